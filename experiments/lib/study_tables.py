"""Tables of the studies that choose: by which criterion, which epoch, on how many splits."""

from collections.abc import Mapping
from typing import Any

from unexposed.cards import number, signed
from unexposed.ranking.held_out import DEFAULT
from unexposed.report.tables import Cell, Table, cells, code


def criteria(found: Mapping[str, dict[str, Any]]) -> Table:
    """Rank correlation with the truth of each criterion on each log; bold: the one to use."""
    rows = []
    for name in dict.fromkeys(name for log in found.values() for name in log["criteria"]):
        row = [code(name)]
        for log in found.values():
            own = log["criteria"][name]
            low, high = own["interval"]
            less = f"{signed(own['difference'])} [{number(low)}, {number(high)}]"
            less = "" if name == log["default"] else less
            row.append(Cell(number(own["spearman"]), name == log["advised"], aside=less))
            row.append(Cell(f"{own['wins']:.0%}"))
        rows.append(cells(*row))
    heads = ["criterion", *(head for log in found for head in (log, "comes first"))]
    worlds = ", ".join(f"{len(log['worlds'])} for {title}" for title, log in found.items())
    asked = any("shown" in log["criteria"] for log in found.values())
    source = "clicks and the ratings below the threshold" if asked else "clicks alone"
    models = " and ".join(dict.fromkeys(str(len(log["models"])) for log in found.values()))
    note = (
        f"Spearman's rank correlation of {models} models with the truth, in worlds made from the "
        f"{source} ({worlds}); in brackets: less the default's [95 % interval]; bold: advised. "
        "Comes first: share of resamples of worlds and models."
    )
    return Table("criteria", "Criteria", heads, rows, [note])


def epochs(found: Mapping[str, Any]) -> Table:
    """The epoch that each criterion picks in worlds like a log, and what the pick costs."""
    rows = []
    for name, own in found["criteria"].items():
        low, high = own["interval"]
        less = f"{signed(own['less_default'])} [{number(low)}, {number(high)}]"
        regret = Cell(number(own["regret"]), aside="" if name == DEFAULT else less)
        rows.append(cells(code(name), f"{own['epoch']:.0f}", regret))
    note = (
        f"Mean of {len(found['worlds'])} worlds made from the clicks of Yahoo!R3, MF with its "
        f"tuned settings; the truth is best at epoch {found['best_epoch']:.0f}. Regret: true DCG@3 "
        "of the best epoch less that of the epoch picked; in brackets: less the default's [95 % "
        "interval over worlds]."
    )
    return Table("epochs", "Picked epochs", ["criterion", "epoch", "regret"], rows, [note])


def judges(found: Mapping[str, Any]) -> Table:
    """Either choice by every criterion on splits that chose neither, and by the truth of worlds."""
    rows = []
    for where in ("splits", "worlds"):
        for name, of in found[where]["judges"].items():
            if where == "worlds" and name != "truth":
                continue
            low, high = of["interval"]
            rows.append(
                cells(
                    "true relevance, in worlds" if name == "truth" else f"held-out clicks, {name}",
                    number(of["first"]),
                    number(of["second"]),
                    f"{signed(of['difference'])} [{number(low)}, {number(high)}]",
                    f"{of['higher']} of {found[where]['n']}",
                )
            )
    heads = ["MF judged by", "5 splits", "20 splits, wider", "difference", "higher in"]
    note = (
        f"Quality of MF with settings chosen on 5 and on 20 splits; {found['splits']['n']} other "
        f"splits of the clicks, {found['worlds']['n']} worlds made from them; in brackets: 95 % "
        "interval over splits or worlds."
    )
    return Table("choice-judges", "Judged without judgements", heads, rows, [note], words=1)
