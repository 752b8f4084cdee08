"""`unexposed similar`: the items most like one."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unexposed.cli import options
from unexposed.cli.inputs import read_titles, whole, with_titles
from unexposed.cli.talking import print_json, say
from unexposed.errors import InputError

if TYPE_CHECKING:
    from unexposed.model.model import Model


def similar(
    folder: options.ModelFolder,
    item: Annotated[
        str, typer.Option(help="Items like this one, by id, or by title with --titles.")
    ],
    k: Annotated[int, typer.Option("-k", help="How many.")] = 10,
    titles: options.Titles = None,
    title: options.TitleColumn = None,
    as_json: options.AsJson = False,
) -> None:
    """Show the items that are most like one, by their vectors."""
    from unexposed.data.write import write_csv

    model = whole(folder)
    names = read_titles(titles, title, model)
    table = with_titles(model.similar_items(_find(item, model, names or {}), k), names)
    if as_json:
        print_json(table.to_dicts())
    elif sys.stdout.isatty():
        from unexposed.cli import tables

        tables.show_lists([table])
    else:
        write_csv([table], sys.stdout)


def _find(text: str, model: "Model", titles: dict[Any, str]) -> Any:
    """The item of this id, or the only one of this title, or the only one that has it in it."""
    raw = model.item_ids.parse([text])[0]
    if not titles or model.item_ids.index([raw])[0] >= 0:
        return raw
    wanted = text.casefold()
    found = [raw for raw, title in titles.items() if title.casefold() == wanted]
    found = found or [raw for raw, title in titles.items() if wanted in title.casefold()]
    if len(found) == 1:
        say(f"{titles[found[0]]} is item {found[0]}")
        return found[0]
    if not found:
        raise InputError(f"no item has the id {text!r}, and no title holds it")
    some = ", ".join(f"{titles[raw]!r} is {raw}" for raw in found[:3])
    more = ", …" if len(found) > 3 else ""
    raise InputError(f"{len(found)} titles hold {text!r} ({some}{more}); give one whole, or its id")
