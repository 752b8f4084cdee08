"""`unexposed recommend`: lists of items for users, from a saved model."""

import os.path
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from unexposed.cli import options
from unexposed.cli.inputs import read_features, read_titles, with_titles
from unexposed.cli.talking import progress, say
from unexposed.data.columns import Columns
from unexposed.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from unexposed.data.ids import Ids
    from unexposed.model.model import Model


def _serving(help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=options.SERVING)


@options.with_columns
def recommend(
    folder: options.ModelFolder,
    columns: Columns,
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
        bool, _serving("Recommend items the user has clicked, too.", "--show-clicked")
    ] = False,
    allow: Annotated[Path | None, _serving("Only items of this text file, an id a line.")] = None,
    deny: Annotated[Path | None, _serving("No item of this text file, an id a line.")] = None,
    candidates: Annotated[
        Path | None, _serving("Only these pairs: a table of users and items.")
    ] = None,
    minimum_exposure: Annotated[
        float, _serving("Only items that the user was shown at least this likely.")
    ] = 0.0,
    popularity_penalty: Annotated[
        float, _serving("Rank by score − PENALTY · log(1 + clicks of the item).")
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
) -> None:
    """Recommend items for users, by raw id.

    --out FOLDER/ writes a Parquet file for each of 64 partitions of the users; under torchrun each
    process serves its own.
    """
    from unexposed.cli import tables
    from unexposed.data import write
    from unexposed.data.ids import Ids
    from unexposed.data.judged import read_pairs
    from unexposed.data.log import read_log
    from unexposed.methods import load, load_partitions
    from unexposed.model import lists as by_partition
    from unexposed.model.filters import Rules
    from unexposed.model.load import is_parted
    from unexposed.workers import several, together

    file, place = _places(out)
    if users is not None and new_clicks is not None:
        raise InputError("give --users or --new-clicks, not both: the newer log names its users")
    if user_features is not None and new_clicks is None:
        raise InputError("--user-features are of new users: give their --new-clicks")
    if several() and (place is None or new_clicks is not None):
        raise InputError("under torchrun recommend writes --out FOLDER/, without --new-clicks")
    saved = load_partitions(folder) if is_parted(folder) else None
    if saved is not None and (new_clicks is not None or (users and saved.ids_are == "mixed")):
        say(f"{folder} is saved by partitions: opening all of them")
        saved = None
    model = load(folder) if saved is None else saved.shared
    # --delimiter belongs to the candidates or the newer log, and to the titles if neither is given
    of_titles = columns.delimiter if candidates is None and new_clicks is None else None
    names = read_titles(titles, title, model, item=columns.item, delimiter=of_titles)
    pairs = None if candidates is None else read_pairs(candidates, **columns.of_pairs(), say=say)
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
        log = read_log(new_clicks, **columns.of_log(), any_size=True, say=say)
        of_users = None
        if user_features is not None:
            of_users = read_features(user_features, log, columns, "user", model)
        served, wanted = model.of_users(log, user_features=of_users), log.user_ids.values
        named = str(log.read and log.read.source)  # without the password of a database
    elif users is not None:
        wanted = _read_users(users, model.user_ids if saved is None else saved.like)
    whole = model if saved is None else by_partition.sample(saved, rules)
    if wanted is None:
        n_users = len(model.user_ids) if saved is None else saved.n_users
    else:
        if saved is not None:
            served = saved.of_users(Ids.of(dict.fromkeys(wanted)))
        n_known = _known(served, wanted, unknown, named, users)
        n_users = len(wanted) if unknown == "popular" else n_known
    if place is not None:
        mixed = saved.ids_are == "mixed" if saved is not None else not model.user_ids.are_sortable
        with progress() as bar, together() as workers:
            parts = by_partition.parts_of(served, wanted, workers)
            if saved is not None and wanted is None:
                parts = by_partition.parts_in(saved, workers)
            rows = by_partition.write_lists(
                parts,
                place,
                k,
                rules,
                whole=whole,
                as_text=mixed,
                change=lambda table: with_titles(table, names),
                progress=bar,
                workers=workers,
            )
        say(f"{rows:,} recommendations for {n_users:,} users in {place}")
        return
    every = [served] if saved is None or wanted is not None else saved
    groups: Iterable[tuple[Model, Any]] = (
        (one, one.user_ids.values if wanted is None else wanted) for one in every
    )
    at_terminal = file is None and sys.stdout.isatty()
    named_by_file = users is None or os.path.exists(users)
    if first := tables.FIRST if at_terminal and named_by_file else 0:
        groups = _first(groups, first)
    with progress(prints_rows=file is None) as bar:
        lists = (
            with_titles(table, names)
            for one, raw in groups
            for table in one.recommendations(raw, k, rules=rules, whole=whole, progress=bar)
        )
        if at_terminal:
            tables.show_lists(lists)
        elif file is None:
            write.write_csv(lists, sys.stdout)
        else:
            rows = write.write_tables(lists, file)
    if file is not None:
        say(f"{rows:,} recommendations for {n_users:,} users in {file}")
    elif 0 < first < n_users:
        say(
            f"the first {first} of {n_users:,} users; name others with --users, or write all lists "
            "with --out FILE"
        )


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


def _known(
    served: "Model", wanted: "Iterable[Any]", rule: str, named: str, users: str | None
) -> int:
    """How many of these users the model knows; say what the others get, refuse if that is all."""
    known = served.user_ids.index(wanted) >= 0
    unknown = [user for user, is_known in zip(wanted, known, strict=True) if not is_known]
    done = {"popular": "the popular list goes to", "skip": "left out"}.get(rule)
    if unknown and done is not None:
        several = "1 user" if len(unknown) == 1 else f"{len(unknown):,} users"
        say(f"{done} {several} the model never saw, first {unknown[0]!r}")
    if not known.any() and rule == "skip":
        if users is None or os.path.exists(users):
            raise InputError(f"the model knows none of the users in {named}")
        raise InputError(
            f"the model knows none of the users {users!r}, and there is no file of that name"
        )
    return int(known.sum())


def _first(groups: "Iterable[tuple[Model, Any]]", n: int) -> "Iterator[tuple[Model, Any]]":
    """The first n users of all groups."""
    for model, users in groups:
        if n <= 0:
            return
        if len(users):
            yield model, users[:n]
            n -= len(users)


def _read_users(text: str, ids: "Ids") -> list[Any]:
    """The ids in a file of this name, or else the ids that the text itself lists."""
    from unexposed.data.judged import read_ids

    if os.path.exists(text):
        return read_ids(text, ids)
    listed = [part.strip() for part in text.split(",") if part.strip()]
    if not listed:
        raise InputError("--users names nobody: give ids, separated by commas, or a file of them")
    return cast(list[Any], ids.parse(listed))


def _read_items(path: Path, model: "Model") -> list[Any]:
    from unexposed.data.judged import read_ids

    items = read_ids(path, model.item_ids)
    if unknown := int((model.item_ids.index(items) < 0).sum()):
        say(f"{path}: the model never saw {unknown} of {len(items)} items")
    return items
