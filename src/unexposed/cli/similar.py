"""`unexposed similar`: the items or users most like one."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unexposed.cli import lists, opening
from unexposed.cli.options import AsJson, ModelFolder, SpreadsheetSafe, TitleColumn, Titles
from unexposed.cli.recommend import read_titles, with_titles
from unexposed.cli.talking import print_json, say
from unexposed.errors import InputError

if TYPE_CHECKING:
    from unexposed.model.model import Model


def similar(
    folder: ModelFolder,
    item: Annotated[
        str | None, typer.Option(help="Items like this one, by id, or by title with --titles.")
    ] = None,
    user: Annotated[str | None, typer.Option(help="Users like this one, by raw id.")] = None,
    k: Annotated[int, typer.Option("-k", help="How many.")] = 10,
    titles: Titles = None,
    title: TitleColumn = None,
    safe: SpreadsheetSafe = False,
    as_json: AsJson = False,
) -> None:
    """Show the items or users that are most like one, by their vectors."""
    from unexposed.data.write import printed, spreadsheet_safe

    if (item is None) == (user is None):
        raise InputError("give --item ID or --user ID")
    if titles is not None and item is None:
        raise InputError("--titles names items: give --item, for users have none")
    model = opening.whole(folder)
    names = read_titles(titles, title, model)
    if item is not None:
        table = model.similar_items(_find(item, model, names or {}), k)
    else:
        assert user is not None
        table = model.similar_users(model.user_ids.parse([user])[0], k)
    if names is not None:
        table = with_titles(table, names)
    if as_json:
        return print_json(table.to_dicts())
    if lists.on_terminal():
        return lists.show_lists([table])
    sys.stdout.write((spreadsheet_safe(table) if safe else printed(table)).write_csv())
    return None


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
