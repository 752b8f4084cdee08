"""The tables of the experiments, from the plain data of the summary."""

from collections.abc import Mapping, Sequence
from typing import Any

from unexposed.report.look import look
from unexposed.report.summary import FEWEST_CLICKS
from unexposed.report.tables import (
    NONE,
    Cell,
    Table,
    number,
    p_value,
    seconds,
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


def trend(name: str, title: str, panels: Sequence[dict[str, Any]]) -> Table:
    """The correlation with the true exposure at a few moments of the training."""
    heads = ["world", "method", "iteration 10", "iteration 100", "best epoch", "last epoch"]
    rows = []
    for panel in panels:
        for arm in panel["arms"]:
            early, late = arm["iterations"], arm["epochs"]
            cells = [_moment(early, 10), _moment(early, 100), _best(late), _last(late)]
            rows.append([Cell(panel["title"]), Cell(arm["arm"], code=True), *map(Cell, cells)])
    note = "PCC: mean ± sd over seeds of the mean over users."
    return Table(name, title, heads, rows, [note], words=2)


def _moment(band: dict[str, list[Any]], step: int) -> str:
    if step not in band["at"]:
        return NONE
    at = band["at"].index(step)
    return spread(band["mean"][at], band["sd"][at])


def _best(band: dict[str, list[Any]]) -> str:
    if not band["mean"]:
        return NONE
    return _moment(band, band["at"][band["mean"].index(max(band["mean"]))])


def _last(band: dict[str, list[Any]]) -> str:
    return _moment(band, band["at"][-1]) if band["at"] else NONE


def observations(name: str, title: str, rows: Sequence[dict[str, Any]]) -> Table:
    """What the paper saw in the trends, and whether it holds here, by a rule."""
    cells = [
        [
            Cell(row["world"]),
            Cell(row["observation"]),
            Cell("yes" if row["holds"] else "no", bold=not row["holds"]),
            Cell(", ".join(f"{what} {number(value)}" for what, value in row["numbers"].items())),
            Cell(row["rule"]),
        ]
        for row in rows
    ]
    heads = ["world", "the paper saw", "holds here", "numbers", "rule"]
    return Table(name, title, heads, cells, words=len(heads))


def timing(name: str, title: str, panels: Sequence[dict[str, Any]], paper: dict[str, Any]) -> Table:
    """Seconds an epoch, and how many times longer than RelMF; the paper's ratio beside ours."""
    rows = []
    for panel in panels:
        for arm in panel["arms"]:
            rows.append(
                [
                    Cell(f"{panel['title']}, {panel['engine']}"),
                    Cell(arm["arm"], code=True),
                    Cell(seconds(arm["median"])),
                    Cell(f"{seconds(min(arm['seconds']))} … {seconds(max(arm['seconds']))}"),
                    Cell(NONE if arm["of_relmf"] is None else f"{arm['of_relmf']:.2f} ×"),
                ]
            )
    for method, theirs in paper.get("seconds", {}).items():
        ratio = theirs / paper["seconds"]["relmf"]
        rows.append(
            [
                Cell(f"the paper, {paper['machine']}"),
                Cell(method, code=True),
                Cell(seconds(theirs)),
                Cell(NONE),
                Cell(f"{ratio:.2f} ×"),
            ]
        )
    heads = ["data and engine", "method", "an epoch, median", "least … most", "of RelMF's"]
    note = "Of RelMF's: the ratio in each repeat, and the median of those."
    return Table(name, title, heads, rows, [note], words=2)


def variance(
    name: str, title: str, arms: Sequence[dict[str, Any]], ratios: Sequence[dict[str, float]]
) -> Table:
    """What was measured at the least and greatest exposure, over what the formula says."""
    rows = []
    for arm in arms:
        bins = [row for row in arm["rows"] if row["clicks"] >= FEWEST_CLICKS]
        if not bins:
            continue
        over = [row["empirical"] / row["formula"] for row in bins if row["formula"] > 0]
        rows.append(
            [
                Cell(arm["title"]),
                Cell(f"{bins[0]['exposure']:.3g} … {bins[-1]['exposure']:.3g}"),
                Cell(f"{bins[0]['empirical']:.3g}"),
                Cell(f"{bins[-1]['empirical']:.3g}"),
                Cell(f"{min(over):.2f} … {max(over):.2f}" if over else NONE),
            ]
        )
    heads = [
        "loss",
        "exposure m",
        "variance at the least m",
        "at the greatest",
        "measured / formula",
    ]
    notes = [f"Ranges of exposure in which fewer than {FEWEST_CLICKS} clicks fell are left out."]
    notes += [
        f"The variance of the whole gradient on ω is {_range(ratios, 'empirical')} times as high "
        f"under L1 as under L2 (measured; {_range(ratios, 'formula')} by the formulas), and "
        f"{_range(ratios, 'formula_over_signal')} times per squared length of the mean gradient; "
        "least … most over seeds."
    ] * bool(ratios)
    return Table(name, title, heads, rows, notes)


def _range(rows: Sequence[dict[str, float]], key: str) -> str:
    values = [row[key] for row in rows]
    return f"{min(values):.3g} … {max(values):.3g}"


def origins(name: str, title: str, arms: Sequence[dict[str, Any]]) -> Table:
    """Where the numbers of each arm came from."""
    heads = ["arm", "seeds", "engine", "machine", "commit", "seconds in all", "settings, and study"]
    rows = [
        [
            Cell(arm["arm"], code=True),
            Cell(", ".join(map(str, arm["seeds"]))),
            Cell(", ".join(map(str, arm["engines"])) or NONE),
            Cell("; ".join(map(_words, arm["machines"])) or NONE),
            Cell(", ".join(str(commit)[:10] for commit in arm["commits"]) or NONE, code=True),
            Cell(seconds(arm["seconds"])),
            Cell(_words(arm["settings"]), aside=_words(arm.get("study") or "")),
        ]
        for arm in arms
    ]
    return Table(name, title, heads, rows, words=len(heads))


def _words(what: Any) -> str:
    """A mapping as name=value, anything else as it prints."""
    if isinstance(what, dict):
        return ", ".join(f"{key}={_words(value)}" for key, value in what.items()) or "none"
    return str(what)


def method_titles(arms: Sequence[str]) -> str:
    """What the names in a table stand for, where they are not the methods' own."""
    return "; ".join(f"`{arm}`: {look(arm).title}" for arm in arms if "-" in arm)


def made_by(about: dict[str, Any]) -> str:
    """How the numbers of an experiment came about, in one sentence."""
    origins = about["origins"]

    def every(key: str) -> str:
        return ", ".join(dict.fromkeys(str(value) for arm in origins for value in arm[key]))

    commits = ", ".join(dict.fromkeys(str(c)[:10] for arm in origins for c in arm["commits"]))
    took = seconds(sum(arm["seconds"] for arm in origins))
    return (
        f"Made by `{about['command']}`; engine {every('engines') or NONE}, {every('machines')}, "
        f"commit {commits or NONE}, {took} in all."
    )


def environment(places: Sequence[dict[str, Any]]) -> Table:
    """The machines and versions behind the results."""
    rows = [
        [
            Cell(place["machine"]),
            Cell(_words(place["versions"])),
            Cell(", ".join(place["experiments"])),
        ]
        for place in places
    ]
    heads = ["machine", "versions", "experiments"]
    return Table("machines", "Where the results were made", heads, rows, words=3)
