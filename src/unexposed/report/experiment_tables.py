"""Tables of comparisons, from the plain data of the summary."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from unexposed.cards import NONE, number, signed
from unexposed.report.tables import Cell, Table, cells, code, p_value, shown, spread

Paper = Mapping[str, Mapping[str, Sequence[float]]]  # metric → method → mean and deviation
Titles = Mapping[str, str]  # of arms
APART = "Rows that are given more than clicks, named in brackets, do not compete."


def full_comparison(name: str, title: str, document: dict[str, Any], paper: Paper) -> Table:
    """Every metric of the protocol, the paper's figure after ours, and the test if there is one."""
    metrics = list(document["results"][0]["metrics"])
    first = "dcg@3" if "dcg@3" in metrics else metrics[0]
    tested = any("p_holm" in result["metrics"][first] for result in document["results"])
    rows = []
    for result in document["results"]:
        found, method = result["metrics"], result["method"]
        figures = [mean_cell(found[m], aside=paper_figure(paper, m, method)) for m in metrics]
        test = against_best(found[first]) if tested else []
        rows.append(cells(named(result), *figures, *test))
    heads = ["method", *map(shown, metrics), *(test_heads(first) if tested else [])]
    mark = "; † below the best, p < .05 (sign-flip test over users, Holm)" if tested else ""
    notes = [protocol_note(document), f"Best in bold{mark}."]
    if any(cell.aside for row in rows for cell in row[1:]):
        notes.append("In brackets: the paper's figure.")
    if any(result.get("given") for result in document["results"]):
        notes.append(APART)
    return Table(name, title, heads, rows, notes)


def named(result: dict[str, Any]) -> Cell:
    """The name of a row, with what it is given beside the clicks."""
    return Cell(result["method"], code=True, aside=result.get("given", ""))


def mean_cell(metric: dict[str, Any], *, aside: str = "") -> Cell:
    """Mean ± deviation of a metric, marked if it is the best or significantly below."""
    mark = " †" if metric.get("significant") else ""
    return Cell(spread(metric["mean"], metric["sd"]) + mark, metric.get("best", False), aside=aside)


def against_best(metric: dict[str, Any]) -> list[Cell]:
    """The two cells under `test_heads`; dashes where the arm does not compete."""
    if "p_holm" not in metric:
        return cells(NONE, NONE)
    return cells(number(abs(metric["below_best"])), p_value(metric["p_holm"]))


def test_heads(metric: str) -> list[str]:
    return [f"below the best {shown(metric)} by", "p (Holm)"]


def paper_figure(paper: Paper, metric: str, method: str) -> str:
    """Mean ± deviation in the paper; nothing where the paper has none."""
    theirs = paper.get(metric, {}).get(method)
    return spread(*theirs) if theirs else ""


def protocol_note(document: dict[str, Any]) -> str:
    users, seeds = document["users"], document["seeds"]
    return f"Protocol `{document['protocol']}`, {users:,} users, mean ± sd of {seeds} seeds."


def strata(name: str, title: str, rows: Sequence[dict[str, Any]], metric: str) -> Table:
    """How well each method finds popular and rare relevant items, and what it recommends."""
    parts = rows[0]["by_popularity"]
    k = int(rows[0]["recommended"]["k"])
    heads = [
        "method",
        *(f"{part} ({about['items']:,} items)" for part, about in parts.items()),
        f"catalogue in the top {k}",
        f"Gini of the top {k}",
        "mean clicks of an item there",
    ]
    body = [
        cells(
            code(row["method"]),
            *(number(row["by_popularity"][part]["metrics"][metric]) for part in parts),
            f"{row['recommended']['coverage']:.0%}",
            number(row["recommended"]["gini"]),
            f"{row['recommended']['mean_popularity']:,.0f}",
        )
        for row in rows
    ]
    note = (
        f"{shown(metric)} where only the relevant items of a stratum count, over the users who "
        "have one; head, middle and tail hold a third of the clicks each. Mean over seeds."
    )
    return Table(name, title, heads, body, [note])


def differences(
    name: str, title: str, panels: Sequence[dict[str, Any]], metric: str, titles: Titles
) -> Table:
    """The strategies of a method, and how far each is from the usual one on the same users."""
    rows = []
    for panel in panels:
        for arm in panel["arms"]:
            less = [NONE, NONE]
            if arm["changed"]:
                less = [signed(arm["difference"]), _interval(arm["difference_ci95"])]
            strategy = titles.get(arm["arm"], arm["arm"])
            mean, span = number(arm["mean"]), _interval(arm["ci95"])
            rows.append(cells(panel["title"], strategy, mean, span, *less))
    base = base_title(panels[0]["arms"], titles)
    heads = ["data", "strategy", shown(metric), "95 % interval", f"less {base}'s", "95 % interval"]
    return Table(name, title, heads, rows, ["Intervals over users, by bootstrap."], words=2)


def base_title(arms: Sequence[dict[str, Any]], titles: Titles) -> str:
    """The title of the arm without a change, which the others are compared with."""
    base = next(arm["arm"] for arm in arms if not arm["changed"])
    return titles.get(base, base)


def _interval(ends: Sequence[float]) -> str:
    return f"{number(ends[0])} … {number(ends[1])}"


def powers(
    name: str, title: str, arms: Sequence[dict[str, Any]], metric: str, protocol: str
) -> Table:
    """Each method at every power of the exposure, and how near its exposure is to the true one."""
    every = sorted({power for arm in arms for power in arm["powers"]})
    rivals = [arm for arm in arms if not arm["given"]]
    best = {
        power: max((_at(arm, "mean").get(power, -math.inf) for arm in rivals), default=math.inf)
        for power in every
    }
    known = [p for p in every if any(_at(arm, "pcc").get(p) is not None for arm in arms)]
    rows = []
    for arm in arms:
        mean, sd, pcc = (_at(arm, part) for part in ("mean", "sd", "pcc"))
        figures = [Cell(spread(mean.get(p), sd.get(p)), mean.get(p) == best[p]) for p in every]
        name_cell = Cell(arm["arm"], code=True, aside=arm["given"])
        rows.append(cells(name_cell, *figures, *(number(pcc.get(p)) for p in known)))
    heads = ["method", *(f"power {p:g}" for p in every), *(f"PCC, power {p:g}" for p in known)]
    notes = [f"{shown(metric)} under `{protocol}`, mean ± sd over seeds; best in bold."]
    if len(rivals) < len(arms):
        notes.append(APART)
    if known:
        notes.append("PCC: correlation of the model's exposure with the true one.")
    return Table(name, title, heads, rows, notes)


def _at(arm: dict[str, Any], key: str) -> dict[float, Any]:
    return dict(zip(arm["powers"], arm[key], strict=True))


def explained(arms: Sequence[str], titles: Titles) -> str:
    """What the names in a table stand for, where a title says more than the name."""
    known = [arm for arm in arms if titles.get(arm, arm).lower() != arm]
    return "; ".join(f"`{arm}`: {titles[arm]}" for arm in known)
