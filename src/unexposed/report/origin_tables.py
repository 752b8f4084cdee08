"""How numbers came about: the runs behind each arm, and the machines behind them all."""

from collections.abc import Sequence
from typing import Any

from unexposed.report.tables import NONE, Cell, Table, seconds


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


def lacking(about: dict[str, Any]) -> str:
    """Which runs of an experiment are not there, in a few words."""
    if about["problem"]:
        return str(about["problem"])
    n_arms, every = about["arms"], list(range(about["seeds"]))
    stale = f"; {about['stale']} stored results are of other settings" if about["stale"] else ""
    if len(about["missing"]) == n_arms and all(m["seeds"] == every for m in about["missing"]):
        return f"all of its {n_arms * len(every)} runs{stale}"
    return "; ".join(_lack(lack, every) for lack in about["missing"]) + stale


def _lack(lack: dict[str, Any], every: list[int]) -> str:
    if lack["seeds"] == every:
        return f"`{lack['arm']}`"
    word = "seed" if len(lack["seeds"]) == 1 else "seeds"
    return f"`{lack['arm']}` ({word} {', '.join(map(str, lack['seeds']))})"


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


def _words(what: Any) -> str:
    """A mapping as name=value, anything else as it prints."""
    if isinstance(what, dict):
        return ", ".join(f"{key}={_words(value)}" for key, value in what.items()) or "none"
    return str(what)
