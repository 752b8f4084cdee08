"""Tables of the studies: what exposure learns, how noisy losses are, what an epoch costs."""

from collections.abc import Mapping, Sequence
from typing import Any

from unexposed.cards import NONE, number
from unexposed.report.summary import FEWEST_CLICKS
from unexposed.report.tables import Table, cells, code, seconds, spread


def trend(name: str, title: str, panels: Sequence[dict[str, Any]]) -> Table:
    """The correlation with the true exposure at a few points of training."""
    heads = ["world", "method", "iteration 10", "iteration 100", "best epoch", "last epoch"]
    rows = []
    for panel in panels:
        for arm in panel["arms"]:
            early, late = arm["iterations"], arm["epochs"]
            moments = [_moment(early, 10), _moment(early, 100), _best(late), _last(late)]
            rows.append(cells(panel["title"], code(arm["arm"]), *moments))
    notes = ["PCC: mean ± sd over seeds of the mean over users."]
    most = [
        f"{p['title']} ({number(p['ceiling'])})" for p in panels if p.get("ceiling") is not None
    ]
    if most:
        notes.append(f"The most that one exposure for all users could reach: {'; '.join(most)}.")
    return Table(name, title, heads, rows, notes, words=2)


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


def timing(name: str, title: str, panels: Sequence[dict[str, Any]], paper: dict[str, Any]) -> Table:
    """Seconds an epoch, and how many times longer than RelMF; the paper's ratio beside ours."""
    rows = []
    for panel in panels:
        where = f"{panel['title']}, {panel['engine']}"
        for arm in panel["arms"]:
            span = f"{seconds(min(arm['seconds']))} … {seconds(max(arm['seconds']))}"
            ratio = NONE if arm["of_relmf"] is None else f"{arm['of_relmf']:.2f} ×"
            rows.append(cells(where, code(arm["arm"]), seconds(arm["median"]), span, ratio))
    for method, theirs in paper.get("seconds", {}).items():
        where, ratio = f"the paper, {paper['machine']}", theirs / paper["seconds"]["relmf"]
        rows.append(cells(where, code(method), seconds(theirs), NONE, f"{ratio:.2f} ×"))
    heads = ["data and engine", "method", "an epoch, median", "least … most", "of RelMF's"]
    note = "Of RelMF's: the ratio in each repeat, and the median of those."
    return Table(name, title, heads, rows, [note], words=2)


def variance(
    name: str,
    title: str,
    arms: Sequence[dict[str, Any]],
    ratios: Sequence[dict[str, float]],
    titles: Mapping[str, str],
) -> Table:
    """The measured variance at the least and greatest exposure, and over the formula."""
    rows = []
    for arm in arms:
        bins = [row for row in arm["rows"] if row["clicks"] >= FEWEST_CLICKS]
        if not bins:
            continue
        over = [row["empirical"] / row["formula"] for row in bins if row["formula"] > 0]
        rows.append(
            cells(
                titles.get(arm["arm"], arm["arm"]),
                f"{bins[0]['exposure']:.3g} … {bins[-1]['exposure']:.3g}",
                *(f"{at['empirical']:.3g}" for at in (bins[0], bins[-1])),
                f"{min(over):.2f} … {max(over):.2f}" if over else NONE,
            )
        )
    heads = ["loss", "exposure m", "variance at the least m", "at the greatest"]
    heads.append("measured / formula")
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
