"""The tables of the experiments, from the plain data of the summary."""

from collections.abc import Mapping, Sequence
from typing import Any

from unexposed.report.look import LOOKS, look
from unexposed.report.tables import (
    NONE,
    Cell,
    Table,
    number,
    p_value,
    setting_value,
    shown,
    signed,
    spread,
)

Paper = Mapping[str, Mapping[str, Sequence[float]]]  # metric → method → mean and deviation


def short_comparison(
    name: str, title: str, document: dict[str, Any], paper: Paper, metrics: Sequence[str]
) -> Table:
    """A few metrics, the paper's figure in a column of its own, and the test by the first."""
    heads, first = ["method"], metrics[0]
    for metric in metrics:
        heads += [shown(metric)] + ["paper"] * bool(paper)
    rows = []
    for result in document["results"]:
        row = [Cell(result["method"], code=True)]
        for metric in metrics:
            row.append(_value(result["metrics"][metric]))
            if paper:
                row.append(Cell(_theirs(paper, metric, result["method"])))
        rows.append([*row, *_against_best(result["metrics"][first])])
    heads += [f"below the best {shown(first)} by", "p (Holm)"]
    return Table(name, title, heads, rows, [_protocol_note(document)])


def side_by_side(
    name: str, title: str, found: Mapping[str, tuple[dict[str, Any], Paper]], metric: str
) -> Table:
    """One metric on several data sets, each with the paper's figure."""
    rows: dict[str, list[Cell]] = {}
    for document, _ in found.values():
        for result in document["results"]:
            rows.setdefault(result["method"], [])
    for document, paper in found.values():
        own = {result["method"]: result["metrics"][metric] for result in document["results"]}
        for method, row in rows.items():
            row.append(_value(own[method]) if method in own else Cell(NONE))
            row.append(Cell(_theirs(paper, metric, method)))
    heads = ["method"]
    for where in found:
        heads += [f"{where} {shown(metric)}", "paper"]
    cells = [[Cell(method, code=True), *row] for method, row in rows.items()]
    seeds = " and ".join(str(n) for n in sorted({d["seeds"] for d, _ in found.values()}))
    note = (
        f"Mean ± sd of {seeds} seeds, best in bold; † below the best, p < .05 (sign-flip test over "
        "users, Holm)."
    )
    return Table(name, title, heads, cells, [note])


def full_comparison(name: str, title: str, document: dict[str, Any], paper: Paper) -> Table:
    """Every metric of the protocol; the paper's figure after ours, † where the test says below."""
    metrics = list(document["results"][0]["metrics"])
    first = "dcg@3" if "dcg@3" in metrics else metrics[0]
    rows = []
    for result in document["results"]:
        row = [Cell(result["method"], code=True)]
        for metric in metrics:
            theirs = _theirs(paper, metric, result["method"])
            row.append(_value(result["metrics"][metric], "" if theirs == NONE else theirs))
        rows.append([*row, *_against_best(result["metrics"][first])])
    heads = [
        "method",
        *(shown(m) for m in metrics),
        f"below the best {shown(first)} by",
        "p (Holm)",
    ]
    notes = [
        _protocol_note(document),
        "Best in bold; † below the best, p < .05 (sign-flip test over users, Holm).",
    ]
    if any(cell.aside for row in rows for cell in row[1:]):
        notes.append("In brackets: the paper's figure.")
    return Table(name, title, heads, rows, notes)


def plain_comparison(name: str, title: str, document: dict[str, Any]) -> Table:
    """Every metric of the protocol without tests, for the appendix."""
    metrics = list(document["results"][0]["metrics"])
    rows = [
        [Cell(result["method"], code=True), *(_value(result["metrics"][m]) for m in metrics)]
        for result in document["results"]
    ]
    heads = ["method", *(shown(m) for m in metrics)]
    return Table(name, title, heads, rows, [_protocol_note(document), "Best in bold."])


def _value(metric: dict[str, Any], aside: str = "") -> Cell:
    mark = " †" if metric.get("significant") else ""
    return Cell(spread(metric["mean"], metric["sd"]) + mark, metric.get("best", False), aside=aside)


def _against_best(metric: dict[str, Any]) -> list[Cell]:
    return [Cell(number(abs(metric["below_best"]))), Cell(p_value(metric["p_holm"]))]


def _theirs(paper: Paper, metric: str, method: str) -> str:
    theirs = paper.get(metric, {}).get(method)
    return spread(*theirs) if theirs else NONE


def _protocol_note(document: dict[str, Any]) -> str:
    users, seeds = document["users"], document["seeds"]
    return f"Protocol `{document['protocol']}`, {users:,} users, mean ± sd of {seeds} seeds."


def strata(name: str, title: str, rows: Sequence[dict[str, Any]], metric: str) -> Table:
    """How well each method finds popular and rare relevant items, and what it recommends."""
    parts = list(rows[0]["by_popularity"])
    k = int(rows[0]["recommended"]["k"])
    heads = [
        "method",
        *(f"{part} ({rows[0]['by_popularity'][part]['items']:,} items)" for part in parts),
        f"catalogue in the top {k}",
        f"Gini of the top {k}",
        "mean clicks of an item there",
    ]
    cells = []
    for row in rows:
        lists = row["recommended"]
        cells.append(
            [
                Cell(row["method"], code=True),
                *(Cell(number(row["by_popularity"][p]["metrics"][metric])) for p in parts),
                Cell(f"{lists['coverage']:.0%}"),
                Cell(number(lists["gini"])),
                Cell(f"{lists['mean_popularity']:,.0f}"),
            ]
        )
    note = (
        f"{shown(metric)} where only the relevant items of a stratum count, over the users who "
        "have one; head, middle and tail hold a third of the clicks each. Mean over seeds."
    )
    return Table(name, title, heads, cells, [note])


def differences(name: str, title: str, panels: Sequence[dict[str, Any]], metric: str) -> Table:
    """The strategies of UBO, and how far each is from UBO on the same users."""
    rows = []
    for panel in panels:
        for arm in panel["arms"]:
            less = [Cell(NONE), Cell(NONE)]
            if arm["arm"] != "ubo":
                less = [Cell(signed(arm["difference"])), Cell(_interval(arm["difference_ci95"]))]
            rows.append(
                [
                    Cell(panel["title"]),
                    Cell(look(arm["arm"]).title),
                    Cell(number(arm["mean"])),
                    Cell(_interval(arm["ci95"])),
                    *less,
                ]
            )
    heads = ["data", "strategy", shown(metric), "95 % interval", "less UBO's", "95 % interval"]
    return Table(name, title, heads, rows, ["Intervals over users, by bootstrap."], words=2)


def levers(
    name: str, title: str, panels: Mapping[str, Sequence[dict[str, Any]]], metric: str
) -> Table:
    """UBO with one thing changed, and how far that is from UBO on the same users of each set."""
    rows: dict[str, list[Cell]] = {}
    for arms in panels.values():
        rows |= {_change(arm): [] for arm in arms}
    for arms in panels.values():
        own = {_change(arm): arm for arm in arms}
        for change, row in rows.items():
            arm = own.get(change)
            row += [Cell(number(arm["mean"])), _less(arm)] if arm else [Cell(NONE), Cell(NONE)]
    heads = ["change"]
    for where in panels:
        heads += [f"{where} {shown(metric)}", "less UBO's (95 % interval)"]
    cells = [[Cell(change or NONE), *rows[change]] for change in sorted(rows)]
    note = "Intervals over users, by bootstrap; one in twenty misses zero by chance."
    return Table(name, title, heads, cells, [note])


def _change(arm: dict[str, Any]) -> str:
    """What sets an arm apart from UBO; nothing for UBO itself, which so comes first."""
    return ", ".join(
        f"{name}: {setting_value(was)} → {setting_value(now)}"
        for name, (was, now) in sorted(arm["changed"].items())
    )


def _less(arm: dict[str, Any]) -> Cell:
    if not arm["changed"]:
        return Cell(NONE)
    low, high = arm["difference_ci95"]
    return Cell(signed(arm["difference"]), bold=low > 0 or high < 0, aside=_interval((low, high)))


def _interval(ends: Sequence[float]) -> str:
    return f"{number(ends[0])} … {number(ends[1])}"


def powers(name: str, title: str, arms: Sequence[dict[str, Any]], metric: str) -> Table:
    """Each method at every power of the exposure."""
    every = sorted({power for arm in arms for power in arm["powers"]})
    best = {
        power: max(m for arm in arms for p, m in _at(arm, "mean").items() if p == power)
        for power in every
    }
    rows = []
    for arm in arms:
        mean, sd = _at(arm, "mean"), _at(arm, "sd")
        cells = [Cell(spread(mean.get(p), sd.get(p)), mean.get(p) == best[p]) for p in every]
        rows.append([Cell(arm["arm"], code=True), *cells])
    heads = ["method", *(f"power {power:g}" for power in every)]
    return Table(
        name, title, heads, rows, [f"{shown(metric)}, mean ± sd over seeds; best in bold."]
    )


def _at(arm: dict[str, Any], key: str) -> dict[float, float]:
    return dict(zip(arm["powers"], arm[key], strict=True))


def method_titles(arms: Sequence[str]) -> str:
    """What the names in a table stand for, where they are not the methods' own."""
    return "; ".join(f"`{arm}`: {look(arm).title}" for arm in arms if "-" in arm and arm in LOOKS)
