"""Blocks of Markdown pages, between two comments, that are written from results."""

import re
from fnmatch import fnmatch
from typing import Any

from unexposed.errors import InputError
from unexposed.report.sections import Section
from unexposed.report.tables import NONE, markdown, seconds


def filled(text: str, name: str, content: str) -> str:
    """Replace what stands between <!-- NAME --> and <!-- end of NAME -->."""
    pattern = rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end of {re.escape(name)} -->)"
    new, found = re.subn(pattern, lambda m: f"{m[1]}{content}\n{m[2]}", text, flags=re.DOTALL)
    if found != 1:
        raise InputError(f"the page must have one place for {name!r}, found {found}")
    return new


def section_block(
    document: dict[str, Any], sections: list[Section], name: str, *, kind: str, files: str = "*"
) -> str:
    """The tables of a section, where they came from, and the commands for missing results.

    Missing results are looked for in experiments of this kind whose files match.
    """
    missing = _missing(document, kind, files)
    for section in sections:
        if section.name == name:
            parts = list(section.text)
            for table in section.tables:
                parts.append(f"**{table.title}**\n\n{markdown(table)}")
            parts += [_made_by(about) for about in section.experiments]
            return "\n\n".join([*parts, *missing])
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


def _made_by(about: dict[str, Any]) -> str:
    """Command, machine, commit and time behind an experiment's numbers, in one sentence."""
    origins = about["origins"]

    def every(key: str) -> str:
        return ", ".join(dict.fromkeys(str(value) for arm in origins for value in arm[key]))

    commits = ", ".join(dict.fromkeys(str(c)[:10] for arm in origins for c in arm["commits"]))
    took = seconds(sum(arm["seconds"] for arm in origins))
    return (
        f"Made by `{about['command']}`; engine {every('engines') or NONE}, {every('machines')}, "
        f"commit {commits or NONE}, {took} in all."
    )
