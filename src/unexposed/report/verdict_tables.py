"""The verdict at the head of a model's page: a headline, advice, and a table for each rival."""

from typing import Any, NamedTuple

from unexposed.cards import number, signed
from unexposed.ranking.verdict import READINGS, RIVAL, RIVALS, Finding, K
from unexposed.report.tables import Cell, Table, cells, shown

WORDS: dict[Finding, tuple[str, str]] = {
    "above": ("above", "more than chance"),
    "below": ("below", "more than chance"),
    "chance": ("no clear difference", "no more than chance"),
}


class Head(NamedTuple):
    """The verdict in a few words, and what to do about it."""

    line: str
    advice: str


NOTHING = Head("This is the popular list, which other models are compared with", "")
UNKNOWN = Head(
    "No verdict: nothing was held out to compare it with the popular list",
    "No clicks were held out when this model was trained, or too few, or an earlier version "
    "trained it.",
)
NOT_YET = "before judged pairs or a test with real users show a gain."


def head(data: dict[str, Any]) -> Head:
    """The verdict by the findings of all readings: first beside the popular list, then `mf`."""
    if data["method"] == RIVAL:
        return NOTHING
    popular, mf = (_findings(data["verdict"]["beside"].get(rival, {})) for rival in RIVALS)
    if not popular:
        return UNKNOWN
    if "below" in popular:
        return Head(
            f"Warning: it loses to the popular list{_share(popular, 'below')}",
            f"Do not put it into production {NOT_YET}",
        )
    if "below" in mf:
        return Head(
            f"Warning: it loses to mf{_share(mf, 'below')}",
            "mf is simpler: put mf into production rather than this model, unless a test with real "
            "users shows a gain.",
        )
    if "above" not in popular:
        return Head(
            "No sign that it is better than the popular list", f"Keep what you have {NOT_YET}"
        )
    line = f"Better than the popular list{_share(popular, 'above')}"
    if "above" in mf:
        line += f" and than mf{_share(mf, 'above')}"
    elif mf:
        line += ", but not clearly better than mf"
    if "chance" in popular:
        return Head(line, "A candidate for a test with real users, and no more than that yet.")
    return Head(
        line,
        "A candidate for production: test it with real users beside what they are shown today.",
    )


def _findings(beside: dict[str, Any]) -> list[Finding]:
    return [gain["finding"] for where in beside.values() for gain in where.values()]


def _share(found: list[Finding], finding: Finding) -> str:
    """How many readings found this, unless all did."""
    n = found.count(finding)
    return "" if n == len(found) else f" by {n} of {len(found)} readings"


def tables(data: dict[str, Any]) -> list[Table]:
    """The model beside each rival by every reading."""
    beside = data["verdict"]["beside"]
    return [_table(data["method"], rival, said) for rival, said in beside.items()]


def notes(data: dict[str, Any]) -> list[str]:
    """How to read the tables of the verdict, a sentence each."""
    beside = data["verdict"]["beside"]
    said = ["In brackets the 95 % interval over users; chance: p > .05."] if beside else []
    if any(one["held_out"] for one in beside.values()):
        said.append(
            f"Held-out clicks are a part of the log that training did not see; NDCG@{K} ranks them "
            "among all items that the user has not clicked: 1 is best. They chose the epoch as "
            "well, so they flatter the model a little."
        )
    if data["judged"]:
        said.append("Judged pairs are those of the file given, by its protocol.")
    if len(beside) == 1 and data["method"] not in RIVALS:
        said.append("`unexposed compare` shows `mf` and other methods beside both.")
    return said


def _table(method: str, rival: str, said: dict[str, Any]) -> Table:
    gains = [("held-out clicks", READINGS[name], gain) for name, gain in said["held_out"].items()]
    gains += [("judged pairs", shown(name), gain) for name, gain in said["judged"].items()]
    rows = [
        cells(
            _found(where, reading, gain["finding"]),
            *(number(gain["mean"]), number(gain[rival])),
            Cell(signed(gain["difference"]), aside=" … ".join(map(number, gain["ci95"]))),
        )
        for where, reading, gain in gains
    ]
    called = RIVALS[rival].removeprefix("the ").removesuffix(" list")
    name = "gains" if rival == RIVAL else f"gains-{rival}"
    return Table(name, f"Beside {RIVALS[rival]}", ["", method, called, "difference"], rows, [])


def _found(where: str, reading: str, finding: Finding) -> Cell:
    """What a row of the verdict says in words, so that a narrow page need not be scrolled."""
    how, chance = WORDS[finding]
    return Cell(f"{where}: {how}", bold=finding != "chance", aside=f"{reading}; {chance}")
