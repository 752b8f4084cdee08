"""Tables of cells: methods over metrics, strategies, worlds, and the studies of the paper."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import timing
from stored import FOLDER, Stored, data_title, world_title
from unexposed.cards import NONE, number, signed
from unexposed.evaluation.significance import SIGNIFICANCE, bootstrap_interval
from unexposed.experiments.compare import METRIC
from unexposed.experiments.results import Line
from unexposed.experiments.spec import document
from unexposed.report.tables import Cell, Table, cells, code, seconds, shown, spread
from variance import ratios

Paper = Mapping[str, Mapping[str, Sequence[float]]]  # metric → method → mean and deviation

PAPER = document(FOLDER / "paper.toml")
TITLES: dict[str, str] = PAPER["titles"]  # of arms
APART = "Rows that are given more than clicks, named in brackets, do not compete."
FEWEST_CLICKS = 50  # drawn in a range of exposure; with fewer its variance comes out too small


def paper_figure(paper: Paper, metric: str, method: str) -> str:
    """Mean ± deviation in the paper; nothing where the paper has none."""
    theirs = paper.get(metric, {}).get(method)
    return spread(*theirs) if theirs else ""


@dataclass(frozen=True)
class Column:
    """One metric of one cell, with the paper's figures where they are comparable."""

    head: str
    of: Stored
    metric: str = METRIC
    beside_paper: bool = True


def columns(
    name: str, title: str, asked: Sequence[Column], only: Sequence[str] | None = None
) -> Table:
    """The methods of several cells, with the paper's figures in brackets."""
    asked = [column for column in asked if column.of.lines]
    names: dict[str, Cell] = {}
    rows: dict[str, list[Cell]] = {}
    seeds = set()
    for at, column in enumerate(asked):
        paper = PAPER[column.of.data["dataset"]] if column.beside_paper else {}
        found = column.of.compared()
        seeds.add(found["seeds"])
        # the best of the rows that are shown is the best of all: rows are left out, not columns
        for result in found["results"]:
            method, own = result["method"], result["metrics"][column.metric]
            if only is not None and method not in only:
                continue
            names[method] = Cell(method, code=True, aside=result.get("given", ""))
            row = rows.setdefault(method, [Cell(NONE)] * len(asked))
            mark = " †" if own.get("p_holm", 1) <= SIGNIFICANCE else ""
            row[at] = Cell(
                spread(own["mean"], own["sd"]) + mark,
                own.get("below_best") == 0,
                aside=paper_figure(paper, column.metric, method),
            )
    notes = [
        f"Mean ± sd of {' and '.join(map(str, sorted(seeds)))} seeds, best in bold; † below the "
        "best, p < .05 (sign-flip test over users, Holm)."
    ]
    if any(cell.aside for row in rows.values() for cell in row):
        notes.append("In brackets: the paper's figure.")
    if any(cell.aside for cell in names.values()):
        notes.append(APART)
    said = [f"`{arm}`: {TITLES[arm]}" for arm in names if TITLES.get(arm, arm).lower() != arm]
    if said and only is None:
        notes.append(f"{'; '.join(said)}.")
    body = [cells(names[method], *row) for method, row in rows.items()]
    return Table(name, title, ["method", *(column.head for column in asked)], body, notes)


def strategies(asked: Sequence[Stored]) -> Table:
    """The strategies of UBO, and how far each is from the usual one on the same users."""
    rows = []
    base_title = TITLES["ubo"]
    for cell in asked:
        arms = {cell.called(arm): own for arm, own in cell.values(cell.by_truth()).items()}
        base = arms["ubo"].mean(axis=0)
        for arm, values in arms.items():
            by_user = values.mean(axis=0)
            less = [NONE, NONE]
            if arm != "ubo":
                less = [signed(float((by_user - base).mean())), _interval(by_user - base)]
            mean = number(float(by_user.mean()))
            title = TITLES.get(arm, arm)
            rows.append(cells(data_title(cell.data), title, mean, _interval(by_user), *less))
    heads = ["data", "strategy", shown(METRIC), "95 % interval"]
    heads += [f"less {base_title}'s", "95 % interval"]
    title = f"The strategies of {base_title}"
    return Table("differences", title, heads, rows, ["Intervals over users, by bootstrap."], 2)


def _interval(values: np.ndarray) -> str:
    low, high = bootstrap_interval(values, seed=0)
    return f"{number(low)} … {number(high)}"


def worlds(asked: Sequence[Stored]) -> list[Table]:
    """Each method at every power of the exposure, a table for each world."""
    by_world: dict[str, list[Stored]] = {}
    for cell in sorted(asked, key=lambda cell: cell.data["power"]):
        by_world.setdefault(world_title(cell.data), []).append(cell)
    order = dict.fromkeys(world_title(cell.data) for cell in asked)
    return [_powers(title, by_world[title]) for title in order]


def _powers(title: str, asked: Sequence[Stored]) -> Table:
    powers = [cell.data["power"] for cell in asked]
    made = [{r["method"]: r for r in cell.compared(cell.by_truth())["results"]} for cell in asked]
    best = [
        max((r["metrics"][METRIC]["mean"] for r in one.values() if "given" not in r), default=0)
        for one in made
    ]
    pcc = [
        {
            arm: _mean([line["exposure_correlation"] for line in lines])
            for arm, lines in cell.by_arm().items()
            if all("exposure_correlation" in line for line in lines)
        }
        for cell in asked
    ]
    rows, given = [], {arm: r.get("given", "") for one in made for arm, r in one.items()}
    for arm, aside in given.items():
        row = [Cell(arm, code=True, aside=aside)]
        for one, most in zip(made, best, strict=True):
            own = one[arm]["metrics"][METRIC] if arm in one else {"mean": None, "sd": None}
            row.append(Cell(spread(own["mean"], own["sd"]), own["mean"] == most))
        rows.append([*row, *cells(*(number(of.get(arm)) for of in pcc))])
    heads = ["method", *(f"power {p:g}" for p in powers), *(f"PCC, power {p:g}" for p in powers)]
    by = asked[0].by_truth().name
    notes = [f"{shown(METRIC)} under `{by}`, mean ± sd over seeds; best in bold."]
    notes += [APART] if any(given.values()) else []
    notes.append("PCC: correlation of the model's exposure with the true one.")
    return Table(f"powers-{title}", title, heads, rows, notes)


def _mean(numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return float(np.mean(known)) if known else None


def trend(asked: Sequence[Stored]) -> Table:
    """The correlation with the true exposure at a few points of training."""
    rows, ceilings = [], []
    asked = sorted(asked, key=lambda cell: (cell.data["generator"], cell.data["power"]))
    for cell in asked:
        for arm, lines in cell.by_arm().items():
            early, late = (_band(lines, over) for over in ("iterations", "epochs"))
            best = np.nanargmax(late[0]) if np.isfinite(late[0]).any() else 0
            known = np.flatnonzero(np.isfinite(late[0]))
            moments = [_moment(early, 10), _moment(early, 100), _moment(late, best)]
            moments.append(_moment(late, known[-1] if len(known) else 0))
            rows.append(cells(data_title(cell.data), code(arm), *moments))
        most = _mean([line["facts"]["ceiling"] for line in cell.lines])
        ceilings.append(f"{data_title(cell.data)} ({number(most)})")
    heads = ["world", "method", "iteration 10", "iteration 100", "best epoch", "last epoch"]
    notes = [
        "PCC: mean ± sd over seeds of the mean over users.",
        f"The most that one exposure for all users could reach: {'; '.join(ceilings)}.",
    ]
    return Table("pcc", "PCC of learned and true exposure", heads, rows, notes, words=2)


def _band(lines: Sequence[Line], over: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation over seeds at the steps that every seed reached.

    Not a number where a seed has no correlation, because nothing varies over items.
    """
    shortest = min(len(line[over]) for line in lines)
    table = np.array([line[over][:shortest] for line in lines], dtype=np.float64)
    sd = table.std(axis=0, ddof=1) if len(table) > 1 else np.zeros(shortest)
    return table.mean(axis=0), sd


def _moment(band: tuple[np.ndarray, np.ndarray], at: int) -> str:
    mean, sd = band
    if at >= len(mean) or not np.isfinite(mean[at]):
        return NONE
    return spread(float(mean[at]), float(sd[at]))


def times(asked: Sequence[Stored]) -> Table:
    """Seconds an epoch, and how many times longer than RelMF; the paper's ratio beside ours."""
    rows = []
    for cell in asked:
        where = data_title(cell.data)
        for place in sorted({(str(line["engine"]), line["machine"]) for line in cell.lines}):
            own = [line for line in cell.lines if (line["engine"], line["machine"]) == place]
            for arm in dict.fromkeys(line["arm"] for line in own):
                took = [
                    statistics.median(line["epoch_seconds"]) for line in own if line["arm"] == arm
                ]
                least, most = map(seconds, (min(took), max(took)))
                ratio = timing.ratio(own, over=arm, under="relmf")
                said = NONE if ratio is None else f"{ratio:.2f} ×"
                median = seconds(statistics.median(took))
                place_of = f"{where}, {place[0]}"
                rows.append(cells(place_of, code(arm), median, f"{least} … {most}", said))
    paper = PAPER["timing"]
    for method, theirs in paper["seconds"].items():
        where, ratio = f"the paper, {paper['machine']}", theirs / paper["seconds"]["relmf"]
        rows.append(cells(where, code(method), seconds(theirs), NONE, f"{ratio:.2f} ×"))
    heads = ["data and engine", "method", "an epoch, median", "least … most", "of RelMF's"]
    note = "Of RelMF's: the ratio in each repeat, and the median of those."
    return Table("times", "Seconds an epoch", heads, rows, [note], words=2)


def noise(lines: Sequence[Line]) -> Table:
    """The measured variance at the least and greatest exposure, and over the formula."""
    rows = []
    for arm in dict.fromkeys(line["arm"] for line in lines):
        # every line has the same ranges of exposure: they are of one world
        ranges = zip(*(line["rows"] for line in lines if line["arm"] == arm), strict=True)
        bins = [
            [float(np.mean([of(row) for row in same])) for of in _NOISE]
            for same in ranges
            if sum(row["clicks"] for row in same) >= FEWEST_CLICKS
        ]
        bins.sort()
        over = [measured / formula for _, measured, formula in bins]
        rows.append(
            cells(
                TITLES.get(arm, arm),
                f"{bins[0][0]:.3g} … {bins[-1][0]:.3g}",
                *(f"{measured:.3g}" for _, measured, _ in (bins[0], bins[-1])),
                f"{min(over):.2f} … {max(over):.2f}",
            )
        )
    heads = ["loss", "exposure m", "variance at the least m", "at the greatest"]
    found = ratios(lines)

    def span(key: str) -> str:
        values = [row[key] for row in found]
        return f"{min(values):.3g} … {max(values):.3g}"

    notes = [
        f"Ranges of exposure in which fewer than {FEWEST_CLICKS} clicks fell are left out.",
        f"The variance of the whole gradient on ω is {span('empirical')} times as high under L1 "
        f"as under L2 (measured; {span('formula')} by the formulas), and "
        f"{span('formula_over_signal')} times per squared length of the mean gradient; "
        "least … most over seeds.",
    ]
    title = "Variance of the gradient"
    return Table("variance", title, [*heads, "measured / formula"], rows, notes)


_NOISE: tuple[Callable[[Any], float], ...] = (
    lambda row: row["exposure"],
    lambda row: row["on_p"]["empirical"],
    lambda row: row["on_p"]["formula"],
)


def made_by(asked: Sequence[Stored]) -> list[str]:
    """Command, machine, commit and time behind numbers, in one sentence for each command."""
    commands: dict[str, list[Line]] = {}
    for cell in asked:
        commands.setdefault(cell.command, []).extend(cell.lines)
    return [origin(command, lines) for command, lines in commands.items()]


def origin(command: str, lines: Sequence[Line]) -> str:
    def every(key: str, length: int | None = None) -> str:
        found = [str(line[key])[:length] for line in lines if line.get(key) is not None]
        return ", ".join(dict.fromkeys(found)) or NONE

    took = seconds(sum(line["seconds"] for line in lines))
    return (
        f"Made by `{command}`; engine {every('engine')}, {every('machine')}, "
        f"commit {every('commit', 10)}, {took} in all."
    )


def lacking(asked: Sequence[Stored]) -> list[str]:
    """The commands that make missing results, as a paragraph."""
    commands = dict.fromkeys(f"`{cell.command}`" for cell in asked if not cell.complete)
    return [f"Some results are missing; to make them: {', '.join(commands)}."] if commands else []
