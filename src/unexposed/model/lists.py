"""Recommendations for many users as a folder of Parquet files, one for each partition of them.

Several ranks write the folder together, each the partitions of its own users. One process writes
the same files.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from unexposed import progress as show
from unexposed import ranks
from unexposed.data.ids import Ids
from unexposed.data.partitions import PARTITIONS, owned, partitions_among, rows_by
from unexposed.data.write import write_tables
from unexposed.errors import InputError
from unexposed.files import write_folder
from unexposed.model.filters import Rules
from unexposed.model.partitions import Partitions
from unexposed.model.recommend import RawIds, evenly_spaced, recommend

if TYPE_CHECKING:
    import polars as pl

    from unexposed.model.model import Model


class Part(NamedTuple):
    """Users of one partition, and the model that serves them."""

    number: int
    model: "Model"
    users: RawIds


def file_name(number: int) -> str:
    """The file of the lists of a partition."""
    return f"part-{number:02d}.parquet"


FILES = frozenset(map(file_name, range(PARTITIONS)))


def check_folder(folder: Path) -> None:
    """Refuse a place that holds anything but such lists."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file, not a folder of lists; choose another place")
    if folder.is_dir() and any(folder.iterdir()) and not _holds_lists(folder):
        raise InputError(
            f"{folder} holds something else than lists by partition, which would be lost: choose "
            "another place"
        )


def _holds_lists(folder: Path) -> bool:
    """Whether a folder was written here: a log may have files of the same names."""
    import polars as pl

    if {path.name for path in folder.iterdir()} != FILES:
        return False
    try:
        columns = pl.read_parquet_schema(folder / file_name(0))
    except (OSError, pl.exceptions.PolarsError):
        return False
    return {"user", "item", "rank", "score"} <= columns.keys()


def parts_of(model: "Model", users: RawIds | None = None) -> Iterator[Part]:
    """This rank's partitions of these users, or of all users of a model."""
    ids = model.user_ids if users is None else Ids.of(users)
    for number, rows in rows_by(partitions_among(model.user_ids, ids)):
        yield Part(number, model, ids.values[rows])


def parts_in(saved: Partitions) -> Iterator[Part]:
    """This rank's partitions of a model that was saved by partitions, opened one by one."""
    for number, model in saved.one_by_one(owned()):
        yield Part(number, model, model.user_ids.values)


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
) -> int:
    """Write the lists of each partition, all of them or none; gives the rows of all ranks.

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

    def own(place: Path) -> int:
        rows = 0
        for done, part in enumerate(parts, 1):
            tables = recommend(part.model, part.users, k, rules, whole=whole)
            rows += write_tables(map(changed, tables), place / file_name(part.number))
            progress.count("partitions", done, PARTITIONS)
        return rows

    return sum(write_folder(folder, own, workers=ranks.current()))


def write_of(
    model: "Model",
    folder: Path,
    users: RawIds | None,
    k: int,
    rules: Rules,
    *,
    progress: show.Progress,
) -> int:
    """Write the lists of a model's users; in a process group, of the users of all ranks."""
    with ranks.together():
        as_text = not model.user_ids.are_sortable
        parts = parts_of(model, users)
        return write_lists(parts, folder, k, rules, as_text=as_text, progress=progress)


def sample(saved: Partitions, rules: Rules) -> "Model":
    """The model that decides what is popular: the users that `Average` takes, if it is asked."""
    if rules.unknown != "popular":
        return saved.shared
    return saved.at(evenly_spaced(saved.n_users))
