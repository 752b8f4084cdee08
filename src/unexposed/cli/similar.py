"""`unexposed similar`: the items or users most like one."""

import sys
from typing import Annotated

import typer

from unexposed.cli.options import AsJson, ModelFolder, SpreadsheetSafe, TitleColumn, Titles
from unexposed.cli.recommend import read_titles, with_titles
from unexposed.cli.talking import print_json
from unexposed.errors import InputError


def similar(
    folder: ModelFolder,
    item: Annotated[str | None, typer.Option(help="Items like this one, by raw id.")] = None,
    user: Annotated[str | None, typer.Option(help="Users like this one, by raw id.")] = None,
    k: Annotated[int, typer.Option("-k", help="How many.")] = 10,
    titles: Titles = None,
    title: TitleColumn = None,
    safe: SpreadsheetSafe = False,
    as_json: AsJson = False,
) -> None:
    """Show the items or users that are most like one, by their vectors."""
    from unexposed.data.write import printed, spreadsheet_safe
    from unexposed.methods import load

    if (item is None) == (user is None):
        raise InputError("give --item ID or --user ID")
    if titles is not None and item is None:
        raise InputError("--titles names items: give --item, for users have none")
    model = load(folder)
    names = read_titles(titles, title, model)
    if item is not None:
        table = model.similar_items(model.item_ids.parse([item])[0], k)
    else:
        assert user is not None
        table = model.similar_users(model.user_ids.parse([user])[0], k)
    if names is not None:
        table = with_titles(table, names)
    if as_json:
        return print_json(table.to_dicts())
    sys.stdout.write((spreadsheet_safe(table) if safe else printed(table)).write_csv())
    return None
