"""`unexposed recommend`: lists of items for users, from a saved model."""

import os.path
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from unexposed.cli import lists, options
from unexposed.cli.features import read
from unexposed.cli.talking import progress, say
from unexposed.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import polars as pl

    from unexposed.data.ids import Ids
    from unexposed.model.model import Model


@options.with_columns
def recommend(
    folder: options.ModelFolder,
    users: Annotated[
        str | None,
        typer.Option(
            help="Ids, separated by commas; or a text file, an id a line. (default: all users)"
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", help="Items for each user.")] = 10,
    out: Annotated[
        str | None,
        typer.Option(help="CSV, TSV or Parquet file to write; FOLDER/: parts. (default: print)"),
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
        str | None, typer.Option(help="Recommend to the users of this newer log, folded in.")
    ] = None,
    user_features: Annotated[
        Path | None, typer.Option(help="Table of the users of --new-clicks: their own exposure.")
    ] = None,
    titles: options.Titles = None,
    title: options.TitleColumn = None,
    columns: options.Columns = options.NO_COLUMNS,
    safe: options.SpreadsheetSafe = False,
) -> None:
    """Recommend items for users, by raw id.

    --out FOLDER/ writes a Parquet file for each of 64 partitions of the users; under torchrun each
    process serves its own.
    """
    from unexposed import ranks
    from unexposed.data import write
    from unexposed.data.ids import Ids
    from unexposed.data.judged import read_pairs
    from unexposed.data.log import read_log
    from unexposed.methods import load, load_partitions
    from unexposed.model import lists as by_partition
    from unexposed.model.filters import Rules
    from unexposed.model.load import is_parted

    file, place = _places(out)
    if safe and (place is not None or (file is not None and file.suffix == ".parquet")):
        raise InputError("--spreadsheet-safe is for CSV and TSV: Parquet holds no formulas")
    if users is not None and new_clicks is not None:
        raise InputError("give --users or --new-clicks, not both: the newer log names its users")
    if user_features is not None and new_clicks is None:
        raise InputError("--user-features are of new users: give their --new-clicks")
    if ranks.several() and (place is None or new_clicks is not None):
        raise InputError("under torchrun recommend writes --out FOLDER/, without --new-clicks")
    saved = load_partitions(folder) if is_parted(folder) else None
    if saved is not None and (new_clicks is not None or (users and saved.ids_are == "mixed")):
        say(f"{folder} is saved by partitions: opening all of them")
        saved = None
    model = load(folder) if saved is None else saved.shared
    # --delimiter belongs to the candidates or the newer log, and to the titles if neither is given
    of_titles = columns.delimiter if candidates is None and new_clicks is None else None
    names = read_titles(titles, title, model, item=columns.item, delimiter=of_titles)
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
    served, wanted, named = model, cast(Any, None), str(users)
    if new_clicks is not None:
        log = read_log(new_clicks, **columns.given(), any_size=True, say=say)
        of_users = None
        if user_features is not None:
            of_users = read(user_features, log, columns, "user", model)
        served, wanted = model.of_users(log, user_features=of_users), log.user_ids.values
        named = str(log.read and log.read.source)  # without the password of a database
    elif users is not None:
        wanted = _read_users(users, model.user_ids if saved is None else saved.like)
    whole = model if saved is None else by_partition.sample(saved, rules)
    if wanted is not None:
        if saved is not None:
            served = saved.of_users(Ids.of(dict.fromkeys(wanted)))
        known = served.user_ids.index(wanted) >= 0
        if not known.all():
            _say_unknown([u for u, k_ in zip(wanted, known, strict=True) if not k_], unknown)
        if not known.any() and unknown == "skip":
            raise InputError(_none_known(users, named))
        n_users = len(wanted) if unknown == "popular" else int(known.sum())
    else:
        n_users = len(model.user_ids) if saved is None else saved.n_users

    def titled(table: "pl.DataFrame") -> "pl.DataFrame":
        table = table if names is None else with_titles(table, names)
        return write.spreadsheet_safe(table) if safe else table

    if place is not None:
        parts = by_partition.parts_of(served, wanted)
        if saved is not None and wanted is None:
            parts = by_partition.parts_in(saved)
        mixed = saved.ids_are == "mixed" if saved is not None else not model.user_ids.are_sortable
        given: dict[str, Any] = {"whole": whole, "as_text": mixed, "change": titled}
        with progress() as bar:
            rows = by_partition.write_lists(parts, place, k, rules, **given, progress=bar)
        say(f"{rows:,} recommendations for {n_users:,} users in {place}")
        return
    every = [served] if saved is None or wanted is not None else saved
    groups = ((one, one.user_ids.values if wanted is None else wanted) for one in every)
    at_terminal = file is None and lists.on_terminal()
    first = lists.FIRST if at_terminal and (users is None or os.path.exists(users)) else None
    with progress(prints_rows=file is None) as bar:
        tables = (
            titled(table)
            for one, raw in (groups if first is None else _first(groups, first))
            for table in one.recommendations(raw, k, rules=rules, whole=whole, progress=bar)
        )
        if at_terminal:
            lists.show_lists(tables)
            if first is not None and first < n_users:
                say(
                    f"the first {first} of {n_users:,} users; name others with --users, "
                    "or write all lists with --out FILE"
                )
            return
        if file is None:
            write.write_csv(tables, sys.stdout)
            return
        rows = write.write_tables(tables, file)
    say(f"{rows:,} recommendations for {n_users:,} users in {file}")


def _places(out: str | None) -> tuple[Path | None, Path | None]:
    """The file to write, or the folder; neither: the lists are printed."""
    from unexposed.data.write import check_output
    from unexposed.model.lists import check_folder

    if out is None:
        return None, None
    path = Path(out)
    if out.endswith(("/", os.sep)):
        check_folder(path)
        return None, path
    check_output(path)
    return path, None


def _first(groups: "Iterable[tuple[Model, Any]]", n: int) -> "Iterator[tuple[Model, Any]]":
    """The first n users of all groups."""
    for model, users in groups:
        if n <= 0:
            return
        if len(users):
            yield model, users[:n]
            n -= len(users)


def read_titles(
    path: Path | None,
    title: str | None,
    model: "Model",
    *,
    item: str | None = None,
    delimiter: str | None = None,
) -> dict[Any, str] | None:
    """Titles of items, by raw id."""
    from unexposed.data import judged

    judged.check_title(path, title)
    if path is None:
        return None
    found = judged.read_titles(path, model, title=title, item=item, delimiter=delimiter)
    say(f"{path}: names of {len(found):,} of {len(model.item_ids):,} items")
    raw = model.item_ids.values[list(found)].tolist()
    return dict(zip(raw, found.values(), strict=True))


def with_titles(table: "pl.DataFrame", names: dict[Any, str]) -> "pl.DataFrame":
    """The table with a column `title` after `item`, empty where an item has no title."""
    import polars as pl

    titles = pl.Series("title", [names.get(raw) for raw in table["item"].to_list()], pl.String)
    return table.insert_column(table.columns.index("item") + 1, titles)


def _read_users(text: str, ids: "Ids") -> list[Any]:
    """The ids in a file of this name, or else the ids that the text itself lists."""
    from unexposed.data.judged import read_ids

    if os.path.exists(text):
        return read_ids(text, ids)
    listed = [part.strip() for part in text.split(",") if part.strip()]
    if not listed:
        raise InputError("--users names nobody: give ids, separated by commas, or a file of them")
    return cast(list[Any], ids.parse(listed))


def _none_known(users: str | None, named: str) -> str:
    if users is None or os.path.exists(users):
        return f"the model knows none of the users in {named}"
    return f"the model knows none of the users {users!r}, and there is no file of that name"


def _read_items(path: Path, model: "Model") -> list[Any]:
    from unexposed.data.judged import read_ids

    items = read_ids(path, model.item_ids)
    if unknown := int((model.item_ids.index(items) < 0).sum()):
        say(f"{path}: the model never saw {unknown} of {len(items)} items")
    return items


def _say_unknown(unknown: list[Any], rule: str) -> None:
    done = {"popular": "the popular list goes to", "skip": "left out"}.get(rule)
    if done is not None:
        users = "1 user" if len(unknown) == 1 else f"{len(unknown):,} users"
        say(f"{done} {users} the model never saw, first {unknown[0]!r}")
