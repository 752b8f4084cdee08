"""Lists of many users as a folder of Parquet files, one for each partition of the users.

Several workers write the folder together, each the partitions of its own users. One process writes
the same files.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from unexposed import progress as show
from unexposed.data.ids import Ids
from unexposed.data.share import PARTITIONS, owned, partitions_among, rows_by
from unexposed.data.write import write_tables
from unexposed.errors import InputError
from unexposed.files import write_folder
from unexposed.model.filters import Rules
from unexposed.model.partitions import Partitions
from unexposed.model.recommend import RawIds, evenly_spaced, recommend
from unexposed.workers import Workers

if TYPE_CHECKING:
    import polars as pl

    from unexposed.model.model import Model

Part = tuple[int, "Model", RawIds]  # a partition, the model that serves it, and its users
FILES = [f"part-{number:02d}.parquet" for number in range(PARTITIONS)]


def check_folder(folder: Path) -> None:
    """Refuse a place that holds anything but such lists: a log may have files of these names."""
    import polars as pl

    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    columns = set[str]()
    if folder.is_dir() and {path.name for path in folder.iterdir()} == set(FILES):
        with suppress(OSError, pl.exceptions.PolarsError):
            columns = set(pl.read_parquet_schema(folder / FILES[0]))
    if not {"user", "item", "rank", "score"} <= columns:
        raise InputError(
            f"{folder} is something else than lists by partition, which would be lost: choose "
            "another place"
        )


def parts_of(
    model: "Model", users: RawIds | None = None, workers: Workers | None = None
) -> Iterator[Part]:
    """This worker's partitions of these users, or of all users of a model."""
    ids = model.user_ids if users is None else Ids.of(users)
    for number, rows in rows_by(partitions_among(model.user_ids, ids), workers):
        yield number, model, ids.values[rows]


def parts_in(saved: Partitions, workers: Workers | None = None) -> Iterator[Part]:
    """This worker's partitions of a model that was saved by partitions, opened one by one."""
    for number, model in saved.one_by_one(owned(workers)):
        yield number, model, model.user_ids.values


def write_lists(
    parts: Iterable[Part],
    folder: Path,
    k: int,
    rules: Rules,
    *,
    whole: "Model | None" = None,
    as_text: bool = False,
    change: "Callable[[pl.DataFrame], pl.DataFrame] | None" = None,
    progress: show.Progress | None = None,
    workers: Workers | None = None,
) -> int:
    """Write the lists of each partition, all of them or none; gives the rows of all workers.

    `as_text` writes the ids of users as text, because those of one partition may be of another
    type than those of the next. `change` is applied to every table.
    """
    import polars as pl

    check_folder(folder)
    progress = progress or show.Silent()

    def changed(table: "pl.DataFrame") -> "pl.DataFrame":
        if as_text:
            texts = [str(raw) for raw in table["user"].to_list()]
            table = table.with_columns(pl.Series("user", texts, pl.String))
        return table if change is None else change(table)

    def write(place: Path) -> int:
        rows = 0
        for done, (number, model, users) in enumerate(parts, 1):
            tables = recommend(model, users, k, rules, whole=whole)
            rows += write_tables(map(changed, tables), place / FILES[number])
            progress.count("partitions", done, PARTITIONS)
        return rows

    return sum(write_folder(folder, write, workers=workers))


def sample(saved: Partitions, rules: Rules) -> "Model":
    """The model that decides what is popular: the users that `Average` takes, if it is asked."""
    if rules.unknown != "popular":
        return saved.shared
    return saved.at(evenly_spaced(saved.n_users))
