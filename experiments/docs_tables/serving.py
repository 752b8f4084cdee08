"""Tables of what serving costs and what it is worth, from the JSON of its benchmarks."""

from typing import Any

from unexposed.cards import NONE, number
from unexposed.report.tables import Cell, Table, cells, code


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
