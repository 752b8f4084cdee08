"""Tables of where numbers came from, and which runs are missing."""

from collections.abc import Sequence
from typing import Any

from unexposed.cards import NONE
from unexposed.report.tables import Cell, Table, cells, code, seconds


def origins(name: str, title: str, arms: Sequence[dict[str, Any]]) -> Table:
    """Where the numbers of each arm came from."""
    heads = ["arm", "seeds", "engine", "machine", "commit", "seconds in all", "settings, and study"]
    rows = [
        cells(
            code(arm["arm"]),
            ", ".join(map(str, arm["seeds"])),
            ", ".join(map(str, arm["engines"])) or NONE,
            "; ".join(map(_words, arm["machines"])) or NONE,
            code(", ".join(str(commit)[:10] for commit in arm["commits"]) or NONE),
            seconds(arm["seconds"]),
            Cell(_words(arm["settings"]), aside=_words(arm.get("study") or "")),
        )
        for arm in arms
    ]
    return Table(name, title, heads, rows, words=len(heads))


def lacking(about: dict[str, Any]) -> str:
    """Say which runs of an experiment are missing."""
    if about["problem"]:
        return str(about["problem"])
    runs = sum(len(lack["seeds"]) for lack in about["missing"])
    arms = ", ".join(f"`{lack['arm']}`" for lack in about["missing"])
    stale = f"; {about['stale']} stored results are of other settings" if about["stale"] else ""
    return f"{runs} of {about['arms'] * about['seeds']} runs, of {arms}{stale}"


def _words(what: Any) -> str:
    """A mapping as name=value, anything else as text."""
    if isinstance(what, dict):
        return ", ".join(f"{key}={_words(value)}" for key, value in what.items()) or "none"
    return str(what)
