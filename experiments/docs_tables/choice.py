"""What two choices of settings are worth: by held-out clicks, in worlds, and on the judged set."""

from collections.abc import Mapping
from typing import Any

from docs_tables.stored import Place, difference
from docs_tables.verdict import tested_together
from unexposed.cards import number, signed
from unexposed.report.tables import Cell, Table, cells


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


def judged(first: Place, second: Place, heads: tuple[str, str, str]) -> Table:
    """DCG@3 of each arm that both choices have: second less first, over users."""
    found = {arm: difference([(second, arm)], [(first, arm)]) for arm in first.means}
    less = tested_together({arm: one for arm, one in found.items() if one is not None})
    rows = [
        cells(
            Cell(arm, code=True, aside=first.given.get(arm, "")),
            number(first.means[arm]),
            number(second.means[arm]),
            less[arm],
        )
        for arm in less
    ]
    note = (
        "Mean over seeds; in brackets: 95 % interval over users; p: sign-flip test over users, "
        "Holm; bold: p < .05 and the same sign with every seed."
    )
    return Table("choice-judged", "Judged", [*heads, "difference"], rows, [note], words=1)
