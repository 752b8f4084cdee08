"""Blocks of Markdown pages, between two comments, that are written from results."""

import re
from collections.abc import Sequence
from fnmatch import fnmatch
from typing import Any

from unexposed.cards import NONE
from unexposed.errors import InputError
from unexposed.report.sections import Section
from unexposed.report.tables import markdown, seconds


def filled(text: str, name: str, content: str) -> str:
    """Replace what stands between <!-- NAME --> and <!-- end of NAME -->."""
    pattern = rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end of {re.escape(name)} -->)"
    new, found = re.subn(pattern, lambda m: f"{m[1]}{content}\n{m[2]}", text, flags=re.DOTALL)
    if found != 1:
        raise InputError(f"the page must have one place for {name!r}, found {found}")
    return new


def section_block(
    document: dict[str, Any],
    sections: list[Section],
    name: str,
    *,
    kind: str,
    files: str = "*",
    tables: str = "",
) -> str:
    """The tables of a section, where they came from, and the commands for missing results.

    Only tables whose name begins so, and experiments of this kind whose name matches `files`.
    """
    missing = _missing(document, kind, files)
    for section in sections:
        if section.name == name:
            chosen = [table for table in section.tables if table.name.startswith(tables)]
            if not chosen:
                break
            parts = [*section.text, *(f"**{t.title}**\n\n{markdown(t)}" for t in chosen)]
            own = [about for about in section.experiments if fnmatch(about["name"], files)]
            return "\n\n".join([*parts, *_made_by(own), *missing])
    return "\n\n".join(missing) or "No results yet."


def _missing(document: dict[str, Any], kind: str, files: str) -> list[str]:
    """The commands that make missing results, as a paragraph."""
    found = (
        f"- `{about['command']}`"
        for about in document["experiments"]
        if about["kind"] == kind
        and fnmatch(about["name"], files)
        and (about["missing"] or about["problem"])
    )
    commands = dict.fromkeys(found)  # the cells of a file share one command
    return ["\n".join(["Results are missing. To make them:", "", *commands])] if commands else []


def _made_by(abouts: Sequence[dict[str, Any]]) -> list[str]:
    """Command, machine, commit and time behind numbers, in one sentence for each command."""
    origins: dict[str, list[dict[str, Any]]] = {}
    for about in abouts:
        origins.setdefault(about["command"], []).extend(about["origins"])
    return [_made(command, arms) for command, arms in origins.items()]


def _made(command: str, arms: Sequence[dict[str, Any]]) -> str:
    def every(key: str) -> str:
        return ", ".join(dict.fromkeys(str(value) for arm in arms for value in arm[key]))

    commits = ", ".join(dict.fromkeys(str(c)[:10] for arm in arms for c in arm["commits"]))
    took = seconds(sum(arm["seconds"] for arm in arms))
    return (
        f"Made by `{command}`; engine {every('engines') or NONE}, {every('machines')}, "
        f"commit {commits or NONE}, {took} in all."
    )
