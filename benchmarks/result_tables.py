"""Tables of the docs from the JSON that each benchmark writes."""

from statistics import mean
from typing import Any

from unexposed.cards import NONE, number
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


def on_a_card(document: dict[str, Any]) -> Table:
    """A group of one rank against none, and two ranks on one card against one process."""
    rows = []
    for name, of in document["one_rank"].items():
        turns = of["group_over_none_by_turn"]
        rows.append(
            cells(
                name,
                f"× {of['group_over_none']:.3f} ({min(turns):.2f} … {max(turns):.2f})",
                f"× {of['exchange_over_none']:.2f}",
                f"{1e3 * of['seconds_more_a_step']:.2f}",
                f"{1e3 * of['seconds_of_sums_a_step']:.2f}",
                f"{of['bytes_a_step'] / 1e6:,.3f}",
            )
        )
    heads = ["", "in a group", "through the exchange", "ms more a step", "ms of sums"]
    heads += ["MB a step"]
    sizes = {of["batch_size"] for of in document["one_rank"].values()}
    note = (
        f"`{document['command']}`: {document['card']}, torch {document['torch']}; batches of "
        f"{' and '.join(f'{size:,}' for size in sorted(sizes))} clicks, one item drawn for each. "
        "In brackets: single turns."
    )
    return Table("scaling-card", "One rank over NCCL", heads, rows, [note], words=1)


def sharing_a_card(document: dict[str, Any]) -> Table:
    """Two ranks on one card over gloo, against one process: the steps, and a whole training."""
    fits = document["fit_of_two_ranks"]
    rows = []
    for name, of in document["two_ranks_on_one_card"].items():
        whole = fits.get(name)
        rows.append(
            cells(
                code(name),
                f"{of['from_one_process']:.0e}",
                f"{of['from_reference']:.0e}",
                NONE if whole is None else f"{whole['from_one_process_on_the_cpu']:.0e}",
                NONE if whole is None else f"{100 * whole['same_rows_of_lists']:g} %",
                f"{of['bytes_a_step'] / 1e6:,.3f}",
            )
        )
    heads = ["", "from one process", "from the reference", "`fit`, from the CPU engine"]
    heads += ["the same in lists", "MB a step"]
    note = (
        "Relative distance of parameters on the same samples, the reference in float64. `fit`: "
        "a whole training, against one process on the CPU."
    )
    return Table("sharing-card", "Two ranks on one card", heads, rows, [note], words=1)


def on_cores(found: dict[str, Any]) -> Table:
    """Steps of ranks on the two cores of one machine, over gloo."""
    rows = []
    for batch_size, by_ranks in found["batches"].items():
        for method in ("mf", "ubo"):
            for ranks, own in by_ranks.items():
                one = own[method]
                alone, told = ranks == "1", [NONE, NONE]
                if not alone:
                    told = [f"{one['exchange'] * 1e3:.1f}", f"{one['bytes'] / 1e3:.0f}"]
                rows.append(
                    cells(
                        code(method),
                        f"{int(batch_size):,}",
                        ranks,
                        f"{one['step'] * 1e3:.1f}",
                        *told,
                        f"{one['memory'] / 1e6:.0f}",
                        f"× {one['group of one']:.3f}" if alone else NONE,
                    )
                )
    heads = ["", "batch", "ranks", "step, ms", "exchange, ms", "kB a step", "MB", "in a group"]
    note = (
        "`python benchmarks/scaling.py`: two cores, so four ranks wait for each other; MB: arrays "
        "of a rank's engine; in a group: CPU time of one rank in a process group, beside none."
    )
    return Table("ranks-on-cores", "Ranks on two cores", heads, rows, [note], words=1)


def whole_log(found: dict[str, Any]) -> Table:
    """A large log from a folder to lists, by one process and by ranks."""
    ranks = found["asked"]["ranks"]
    rows = []
    for command in ("fit", "recommend"):
        alone, divided = found[f"{command}, 1"], found[f"{command}, {ranks}"]
        most = max(divided["peaks"])
        rows.append(
            cells(
                code(command),
                f"{alone['peaks'][0]:.2f}",
                f"{most:.2f}",
                f"{100 * most / alone['peaks'][0]:.0f} %",
                f"{alone['seconds']:.0f}",
                f"{divided['seconds']:.0f}",
            )
        )
    clicks, users = int(found["asked"]["clicks"]), int(found["asked"]["users"])
    note = (
        f"`python benchmarks/divided_log.py`: {clicks:,} clicks of {users:,} users in 16 Parquet "
        f"files, {found['asked']['method']}, dim 64, two epochs on two cores. "
        f"{100 * found['same']:.4f} % of the listed items are the same."
    )
    heads = ["", "one, GiB", f"each of {ranks}, GiB", "share", "one, s", f"{ranks} ranks, s"]
    return Table("whole-log", "A log from folder to lists", heads, rows, [note], words=1)


def fold_in(document: list[dict[str, Any]]) -> Table:
    """DCG@3 of users who are folded in, and trained with everybody."""
    kinds = ("retrained", "folded_in", "popular")
    rows = [
        cells(
            *(code(row["method"]), str(row["seed"])),
            *(number(row[kind]) for kind in kinds),
            _share(row),
        )
        for row in document
    ]
    heads = ["", "seed", "trained with all", "folded in", "popular list", "difference (± 1 se)"]
    note = (
        f"Yahoo!R3, {document[0]['users']:,} users left out of the training; DCG@3 under protocol "
        "`ubo-ijcai22`; the bar is −2 %. The error is the standard error of the mean over users."
    )
    return Table("fold-in", "Users folded in", heads, rows, [note])


def update(document: list[dict[str, Any]]) -> Table:
    """Quality and seconds of an update, of a full training, and of folding in alone."""
    rows = [
        cells(
            code(row["method"]),
            *(
                Cell(number(row["everybody"][kind]), aside=number(row["new_users"][kind]))
                for kind in ("retrained", "updated", "folded_in")
            ),
            _share(row),
            *(f"{row['seconds'][kind]:.1f}" for kind in ("retrained", "updated")),
        )
        for row in document
    ]
    heads = ["", "trained on all", "updated", "folded in only", "updated against trained (± 1 se)"]
    heads += ["seconds, trained", "updated"]
    first, loads = document[0], [row["load_average"] or 0 for row in document]
    note = (
        f"MovieLens 100K, {first['clicks']['older']:,} older and {first['clicks']['newer']:,} "
        f"newer clicks, {first['new']['users']} new users and {first['new']['items']} new items; "
        f"{first['metric'].upper()} of {first['users']} users, in brackets of the new ones. "
        f"Seconds on the wall at a load average of {min(loads):.0f} to {max(loads):.0f}."
    )
    return Table("update", "Models updated with newer clicks", heads, rows, [note])


def lists(document: dict[str, Any]) -> Table:
    """How fast lists are made beside implicit's."""
    rows = [
        cells(
            f"implicit's seconds over ours, {clock}",
            "≥ 1",
            *(f"{value:.2f}" for value in ratio.values()),
        )
        for clock, ratio in document["speed"].items()
        if ratio is not None
    ]
    note = (
        f"{document['share']:,} of {document['users']:,} users a round, {document['items']:,} "
        f"items, cores: {document['cores']}; load average {document['load_average'][0]:.1f}."
    )
    heads = ["", "bar", "median", "least", "greatest"]
    return Table("lists", "Lists beside implicit's", heads, rows, [note])


def memory(document: dict[str, Any]) -> Table:
    """The memory it takes to write lists to a file."""
    rows = []
    for row in document["stream"]:
        peak = NONE if row["peak"] is None else f"{row['peak'] / 2**30:.2f}"
        what = f"{row['users']:,} users to {row['format']}"
        rows.append(cells(what, "< 2", peak, f"{row['bytes'] / 1e6:,.0f}"))
    heads = ["", "bar", "GiB above the model", "file, MB"]
    return Table("memory", "Memory of writing lists", heads, rows)


def service(document: dict[str, Any]) -> Table:
    """Requests a second, and how long an answer takes."""
    rows = []
    for row in document["loads"]:
        took, cpu = row["seconds_of_an_answer"], row["cpu_seconds_of_a_request"]
        asked = f"{row['rate']:,.0f} a second" if row["rate"] else "as fast as answers come"
        rows.append(
            cells(
                *(str(row["workers"]), asked, f"{row['per_second']:,.0f}", str(row["failed"])),
                *(f"{1e3 * took[quantile]:.0f}" for quantile in ("p50", "p99")),
                NONE if cpu is None else f"{1e3 * cpu:.2f}",
                f"{row['load_average']:.1f}",
            )
        )
    most = max(row["per_second"] for row in document["loads"])
    heads = ["workers", "requests", "answered a second", "failed", "p50, ms", "p99, ms"]
    heads += ["CPU of one, ms", "load average"]
    note = (
        f"k = {document['k']}, {document['items']:,} items, dim {document['dim']}, "
        f"{document['loads'][0]['connections']} connections, cores: {document['cores']}, shared "
        "with the process that asks and all that the load average counts. The bar, 1,000 a second "
        f"on two cores, is {'reached' if most >= 1_000 else 'not reached under this load'}."
    )
    return Table("service", "Requests a second", heads, rows, [note])


def _share(row: dict[str, Any]) -> Cell:
    sign = "−" if row["relative"] < 0 else "+"
    error = f"{row['standard_error']:.1%}"
    return Cell(f"{sign}{abs(row['relative']):.1%}", aside=error)
