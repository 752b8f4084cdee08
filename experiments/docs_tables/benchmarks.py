"""The tables of the engines' benchmarks, from the JSON that each of them writes."""

from statistics import mean
from typing import Any

from unexposed.methods import make
from unexposed.report.tables import NONE, Cell, Table, signed


def card(document: dict[str, Any]) -> Table:
    """What the CUDA engine reached, against its bars."""
    rows = []
    for row in document["figures"]:
        took = sorted(row["seconds"])
        rows.append(
            [
                Cell(row["name"]),
                Cell(f"{row['batch_size']:,}"),
                Cell(f"{row['median']:.4f}", aside=f"{took[0]:.4f} … {took[-1]:.4f}"),
                Cell(f"{row['samples_a_second'] / 1e6:,.0f}"),
                Cell(row["bar"] or NONE),
            ]
        )
    heads = ["", "batch", "seconds an epoch (least … most)", "million samples a second", "bar"]
    note = f"{document['card']}, torch {document['torch']}; seconds are medians of the repeats."
    return Table("card", "The CUDA engine", heads, rows, [note])


def cpu(document: dict[str, Any]) -> Table:
    """What the CPU engine reached, against its bars."""
    rows = [
        [
            Cell(row["what"]),
            Cell(row["bar"] or NONE),
            *(Cell(_figure(row[key])) for key in ("median", "least", "greatest")),
        ]
        for row in document["table"]
    ]
    clicks, load = document["clicks"], document["load_average"][0]
    note = (
        f"{document['data']}, {clicks:,} clicks, dim 50, batch 1024. Other programs had "
        f"{document['others_share']:.0%} of the cores; load average {load:.1f}."
    )
    return Table("cpu", "The CPU engine", ["", "bar", "median", "least", "greatest"], rows, [note])


def _figure(value: float | None) -> str:
    """Two places where they say something; what could not be measured is absent."""
    if value is None:
        return "absent"
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def share(document: dict[str, Any]) -> Table:
    """Milliseconds of an epoch by part, and the share outside the kernel."""
    parts = list(document["methods"]["mf"]["seconds"])
    rows = []
    for method, row in document["methods"].items():
        outside = row["share_outside"]
        rows.append(
            [
                Cell(method, code=True),
                *(Cell(f"{1000 * row['seconds'][part]['median']:.1f}") for part in parts),
                Cell(
                    f"{outside['median']:.0%}",
                    aside=f"{outside['least']:.0%} … {outside['greatest']:.0%}",
                ),
            ]
        )
    heads = ["", *(f"{part}, ms" for part in parts), "share outside the kernel"]
    note = f"CPU milliseconds on one core, medians of {document['epochs']} epochs."
    return Table("share", "Where an epoch goes", heads, rows, [note])


def step(document: list[dict[str, Any]]) -> Table:
    """Held-out quality under each make of a step, with the difference to the engines' own."""
    cases = list(dict.fromkeys((row["dataset"], row["method"]) for row in document))
    found = {(row["dataset"], row["method"], row["step"]): row["held_out"] for row in document}
    steps = list(dict.fromkeys(row["step"] for row in document))
    rows = []
    for name in steps:
        cells = [Cell(name)]
        for case in cases:
            values, ours = found.get((*case, name)), found[(*case, steps[0])]
            if values is None:
                cells.append(Cell("–"))
                continue
            apart = [a - b for a, b in zip(values, ours, strict=True)]
            better = sum(a > 0 for a in apart)
            told = f"{mean(values):.4f}".removeprefix("0")
            if name != steps[0]:
                told += f" ({better} of {len(apart)} seeds higher)"
            cells.append(Cell(told))
        rows.append(cells)
    heads = ["step", *(f"{dataset}, {method}" for dataset, method in cases)]
    note = "SNIPS DCG@3 of held-out clicks at the best epoch, mean over seeds."
    return Table("step", "How a step is made", heads, rows, [note])


def selection(document: dict[str, Any]) -> Table:
    """How well each estimate on held-out clicks chooses epochs and settings, best first.

    At the propensity exponent that methods use by default; the document has others.
    """
    exponent = f"{make('mf').snips_exponent:g}"
    found = [
        (name.removesuffix(f", {exponent}"), values)
        for name, values in document["estimates"].items()
        if name.endswith(f", {exponent}")
    ]
    rows = [
        [
            Cell(name),
            Cell(f"{values['epoch_regret']:.4f}"),
            Cell(signed(values["rank_correlation"])),
            Cell(f"{values['dcg_of_its_best']:.3f}"),
        ]
        for name, values in sorted(found, key=lambda pair: pair[1]["epoch_regret"])
    ]
    heads = [
        "list",
        "DCG@3 lost by its epochs",
        "rank correlation of settings",
        "DCG@3 of its settings",
    ]
    methods = ", ".join(document["methods"])
    splits = document.get("splits", 1)
    trained = "one split" if splits == 1 else f"the mean of {splits} splits"
    note = (
        f"{document['trials']} settings of {methods}, {trained}, exponent {exponent}; the mean of "
        f"their best judged DCG@3 is {document['best_judged']:.3f}, the best of all "
        f"{document['best_of_all']:.3f}. few: DCG@3 among ten random items; top 20 and all: "
        "DCG@20 and DCG over the catalogue; pooled: normalised over all users."
    )
    return Table("selection", "What to choose by", heads, rows, [note])
