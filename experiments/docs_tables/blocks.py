"""Tables inside Markdown pages: what stands between two comments is made from the results."""

import re
from fnmatch import fnmatch
from typing import Any

from unexposed.errors import InputError
from unexposed.report.origin_tables import made_by
from unexposed.report.sections import Section
from unexposed.report.tables import markdown


def filled(text: str, name: str, content: str) -> str:
    """The page with this content between <!-- NAME --> and <!-- end of NAME -->."""
    pattern = rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end of {re.escape(name)} -->)"
    new, found = re.subn(pattern, lambda m: f"{m[1]}{content}\n{m[2]}", text, flags=re.DOTALL)
    if found != 1:
        raise InputError(f"the page must have one place for {name!r}, found {found}")
    return new


def section_block(
    document: dict[str, Any], sections: list[Section], name: str, *, kind: str, files: str = "*"
) -> str:
    """The tables of a section and how they were made, and the commands for what is missing.

    The experiments of the section are those of this kind whose files match.
    """
    missing = _missing(document, kind, files)
    for section in sections:
        if section.name == name:
            parts = list(section.text)
            for table in section.tables:
                parts.append(f"**{table.title}**\n\n{markdown(table)}")
            parts += [made_by(about) for about in section.experiments]
            return "\n\n".join([*parts, *missing])
    return "\n\n".join(missing) or "No results yet."


def _missing(document: dict[str, Any], kind: str, files: str) -> list[str]:
    """The commands that make what is not there, as a paragraph."""
    commands = [
        f"- `{about['command']}`"
        for about in document["experiments"]
        if about["kind"] == kind
        and fnmatch(about["name"], files)
        and (about["missing"] or about["problem"])
    ]
    return ["\n".join(["Results are missing. To make them:", "", *commands])] if commands else []
