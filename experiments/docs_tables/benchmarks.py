"""Tables of the engines' benchmarks, from the JSON that each of them writes."""

from statistics import mean
from typing import Any

from unexposed.cards import NONE
from unexposed.report.tables import Cell, Table, cells, code


def card(document: dict[str, Any]) -> Table:
    """The CUDA engine against its bars."""
    rows = []
    for row in document["figures"]:
        took = sorted(row["seconds"])
        median = Cell(f"{row['median']:.4f}", aside=f"{took[0]:.4f} … {took[-1]:.4f}")
        speed = f"{row['samples_a_second'] / 1e6:,.0f}"
        rows.append(cells(row["name"], f"{row['batch_size']:,}", median, speed, row["bar"] or NONE))
    heads = ["", "batch", "seconds an epoch (least … most)", "million samples a second", "bar"]
    note = f"{document['card']}, torch {document['torch']}; seconds are medians of the repeats."
    return Table("card", "The CUDA engine", heads, rows, [note])


def cpu(document: dict[str, Any]) -> Table:
    """The CPU engine against its bars."""
    parts = ("median", "least", "greatest")
    rows = [
        cells(row["what"], row["bar"] or NONE, *(_figure(row[part]) for part in parts))
        for row in document["table"]
    ]
    clicks, load = document["clicks"], document["load_average"][0]
    note = f"{document['data']}, {clicks:,} clicks, dim 50, batch 1024; load average {load:.1f}."
    return Table("cpu", "The CPU engine", ["", "bar", *parts], rows, [note])


def _figure(value: float | None) -> str:
    """Two decimals below a hundred; `absent` for a figure that could not be measured."""
    if value is None:
        return "absent"
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def share(document: dict[str, Any]) -> Table:
    """Milliseconds of an epoch by part, and the share outside the kernel."""
    parts = list(next(iter(document["methods"].values()))["seconds"])
    rows = []
    for method, row in document["methods"].items():
        outside = row["share_outside"]
        span = f"{outside['least']:.0%} … {outside['greatest']:.0%}"
        spent = (f"{1000 * row['seconds'][part]['median']:.1f}" for part in parts)
        rows.append(cells(code(method), *spent, Cell(f"{outside['median']:.0%}", aside=span)))
    heads = ["", *(f"{part}, ms" for part in parts), "share outside the kernel"]
    note = f"CPU milliseconds on one core, medians of {document['epochs']} epochs."
    return Table("share", "Where an epoch goes", heads, rows, [note])


def step(document: list[dict[str, Any]]) -> Table:
    """Held-out quality with each kind of step, and how often it beats the engines' own."""
    cases = list(dict.fromkeys((row["dataset"], row["method"]) for row in document))
    found = {(row["dataset"], row["method"], row["step"]): row["held_out"] for row in document}
    own, *others = dict.fromkeys(row["step"] for row in document)

    def cell(case: tuple[str, str], name: str) -> str:
        values = found.get((*case, name))
        if values is None:
            return NONE
        quality = f"{mean(values):.4f}".removeprefix("0")
        if name == own:
            return quality
        higher = sum(a > b for a, b in zip(values, found[(*case, own)], strict=True))
        return f"{quality} ({higher} of {len(values)} seeds higher)"

    rows = [cells(name, *(cell(case, name) for case in cases)) for name in (own, *others)]
    heads = ["step", *(f"{dataset}, {method}" for dataset, method in cases)]
    note = "SNIPS DCG@3 of held-out clicks at the best epoch, mean over seeds."
    return Table("step", "How a step is made", heads, rows, [note])


def estimator(document: dict[str, Any]) -> Table:
    """Bias, variance and cost of an epoch's gradient for each way of drawing."""
    rows = []
    for name, way in document["ways"].items():
        distance = Cell(f"{way['distance']:.3f}", aside=f"{way['by_chance']:.3f}")
        variance = f"{way['variance']:.4f} ± {way['variance_error']:.4f}"
        cost = (f"{way[part]:.0f}" for part in ("drawing_ms", "epoch_ms"))
        rows.append(cells(name, distance, f"{way['cosine']:.3f}", variance, *cost))
    heads = [
        "drawn for each click",
        "distance of the mean (by chance)",
        "its cosine",
        "variance",
        "drawing, ms",
        "epoch, ms",
    ]
    epochs = max(way["epochs"] for way in document["ways"].values())
    note = (
        f"{document['data']}, {document['clicks']:,} clicks of {document['users']:,} users on "
        f"{document['items']:,} items; UMF after {document['trained']} weighted epochs, {epochs} "
        "epochs drawn. All but the first are weighted. Distance and variance are relative to the "
        "length of the gradient over all pairs and to its square; CPU milliseconds on one core, "
        "training included in the last."
    )
    return Table("estimator", "Ways to draw negatives", heads, rows, [note])
