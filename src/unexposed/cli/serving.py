"""From a saved model to lists: recommend, similar, export."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from unexposed.cli.options import (
    NO_COLUMNS,
    AsJson,
    Columns,
    ModelFolder,
    SpreadsheetSafe,
    TitleColumn,
    Titles,
    with_columns,
)
from unexposed.cli.talking import print_json, progress, say
from unexposed.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from unexposed.model.model import Model


@with_columns
def recommend(
    folder: ModelFolder,
    users: Annotated[
        Path | None, typer.Option(help="Text file with a user id a line. (default: all users)")
    ] = None,
    k: Annotated[int, typer.Option("-k", help="Items for each user.")] = 10,
    out: Annotated[
        Path | None, typer.Option(help="CSV, TSV or Parquet file to write. (default: print)")
    ] = None,
    show_clicked: Annotated[
        bool, typer.Option("--show-clicked", help="Recommend items the user has clicked, too.")
    ] = False,
    allow: Annotated[
        Path | None, typer.Option(help="Only items of this text file, an id a line.")
    ] = None,
    deny: Annotated[
        Path | None, typer.Option(help="No item of this text file, an id a line.")
    ] = None,
    candidates: Annotated[
        Path | None, typer.Option(help="Only these pairs: a table of users and items.")
    ] = None,
    minimum_exposure: Annotated[
        float, typer.Option(help="Only items that the user was shown at least this likely.")
    ] = 0.0,
    popularity_penalty: Annotated[
        float, typer.Option(help="Rank by score − PENALTY · log(1 + clicks of the item).")
    ] = 0.0,
    unknown: Annotated[
        str, typer.Option(help="Users the model never saw: popular (list), skip or refuse.")
    ] = "skip",
    new_clicks: Annotated[
        Path | None, typer.Option(help="Recommend to the users of this newer log, folded in.")
    ] = None,
    titles: Titles = None,
    title: TitleColumn = None,
    columns: Columns = NO_COLUMNS,
    safe: SpreadsheetSafe = False,
) -> None:
    """Recommend items for users, by raw id."""
    from unexposed.data import write as writing
    from unexposed.data.read import read_ids, read_log, read_pairs
    from unexposed.methods import load
    from unexposed.model import recommend as serving
    from unexposed.model.filters import Rules
    from unexposed.model.fold_in import users_alone

    if out is not None:
        writing.check_output(out)
        if safe and out.suffix == ".parquet":
            raise InputError("--spreadsheet-safe is for CSV and TSV: Parquet holds no formulas")
    if users is not None and new_clicks is not None:
        raise InputError("give --users or --new-clicks, not both: the newer log names its users")
    model = load(folder)
    # a delimiter given is that of the pairs or the newer log, if there are any
    own = columns.delimiter if candidates is None and new_clicks is None else None
    names = _read_titles(titles, title, model, item=columns.item, delimiter=own)
    pairs = None if candidates is None else read_pairs(candidates, **columns.pair(), say=say)
    rules = Rules(
        hide_clicked=not show_clicked,
        allow=None if allow is None else _read_items(allow, model),
        deny=() if deny is None else _read_items(deny, model),
        candidates=pairs,
        minimum_exposure=minimum_exposure,
        popularity_penalty=popularity_penalty,
        unknown=unknown,  # type: ignore[arg-type]
    )
    served, wanted = model, cast(Any, model.user_ids.values)
    if new_clicks is not None:
        log = read_log(new_clicks, **columns.given(), any_size=True, say=say)
        served, wanted = users_alone(model, log), log.user_ids.values
    elif users is not None:
        wanted = read_ids(users, model.user_ids)
    known = served.user_ids.index(wanted) >= 0
    if not known.all():
        _say_unknown([u for u, k_ in zip(wanted, known, strict=True) if not k_], unknown)
    if not known.any() and unknown == "skip":
        raise InputError(f"the model knows none of the users in {users or new_clicks}")
    with progress() as bar:
        tables = serving.recommend(served, wanted, k, rules, whole=model, progress=bar)
        if names is not None:
            tables = (_with_titles(table, names) for table in tables)
        if safe:
            tables = map(writing.spreadsheet_safe, tables)
        if out is None:
            writing.write_csv(tables, sys.stdout)
            return
        rows = writing.write_tables(tables, out)
    n_users = len(wanted) if unknown == "popular" else int(known.sum())
    say(f"{rows:,} recommendations for {n_users:,} users in {out}")


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
    """Show the items or users whose vectors are most like those of one."""
    from unexposed.data.write import printed, spreadsheet_safe
    from unexposed.methods import load

    if (item is None) == (user is None):
        raise InputError("give --item ID or --user ID")
    if titles is not None and item is None:
        raise InputError("--titles names items: give --item, for users have none")
    model = load(folder)
    names = _read_titles(titles, title, model)
    if item is not None:
        table = model.similar_items(model.item_ids.parse([item])[0], k)
    else:
        assert user is not None
        table = model.similar_users(model.user_ids.parse([user])[0], k)
    if names is not None:
        table = _with_titles(table, names)
    if as_json:
        return print_json(table.to_dicts())
    sys.stdout.write((spreadsheet_safe(table) if safe else printed(table)).write_csv())
    return None


def export(
    folder: ModelFolder,
    to: Annotated[Path, typer.Option(help="Folder to write.")],
    kind: Annotated[
        str, typer.Option("--format", help="parquet, npy (vectors), usearch (index) or onnx.")
    ],
    k: Annotated[int, typer.Option("-k", help="List length for the recall of an index.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Write a model for serving: vectors, a nearest-neighbour index, or an ONNX scorer."""
    from unexposed.methods import load
    from unexposed.model.export import check_export, describe, export_model

    check_export(to, kind)
    about = export_model(load(folder), to, kind=kind, k=k)
    if as_json:
        return print_json(about)
    for line in describe(about, to):
        say(line)
    return None


def _read_titles(
    path: Path | None,
    title: str | None,
    model: "Model",
    *,
    item: str | None = None,
    delimiter: str | None = None,
) -> dict[Any, str] | None:
    """What items are called, by raw id."""
    from unexposed.data.read import check_title, read_titles

    check_title(path, title)
    if path is None:
        return None
    found = read_titles(path, model, title=title, item=item, delimiter=delimiter)
    say(f"{path}: names of {len(found):,} of {len(model.item_ids):,} items")
    raw = model.item_ids.values[list(found)].tolist()
    return dict(zip(raw, found.values(), strict=True))


def _with_titles(table: "pl.DataFrame", names: dict[Any, str]) -> "pl.DataFrame":
    """The table with a column `title` after `item`; empty where an item has none."""
    import polars as pl

    titles = pl.Series("title", [names.get(raw) for raw in table["item"].to_list()], pl.String)
    return table.insert_column(table.columns.index("item") + 1, titles)


def _read_items(path: Path, model: "Model") -> list[Any]:
    from unexposed.data.read import read_ids

    items = read_ids(path, model.item_ids)
    if unknown := int((model.item_ids.index(items) < 0).sum()):
        say(f"{path}: the model never saw {unknown} of {len(items)} items")
    return items


def _say_unknown(unknown: list[Any], rule: str) -> None:
    done = {"popular": "the popular list goes to", "skip": "left out"}.get(rule)
    if done is not None:
        users = "1 user" if len(unknown) == 1 else f"{len(unknown):,} users"
        say(f"{done} {users} the model never saw, first {unknown[0]!r}")
