"""Files that options name: features, titles, ids; and the saved model."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unexposed.cli.talking import say
from unexposed.data.columns import Columns
from unexposed.errors import InputError, did_you_mean

if TYPE_CHECKING:
    import polars as pl

    from unexposed.data.clicks import Clicks
    from unexposed.data.datasets import Dataset
    from unexposed.data.features import Features, Role
    from unexposed.model.model import Model
    from unexposed.training.side import Side


def whole(folder: Path, *, verify: bool = False) -> "Model":
    """The saved model; of one that is saved by partitions, say that all of them are opened."""
    from unexposed.methods import load
    from unexposed.model.load import is_parted

    if is_parted(folder):
        say(f"{folder} is saved by partitions: opening all of them")
    return load(folder, verify=verify)


def check_replaces(out: Path, *, force: bool) -> None:
    """Ask on a terminal whether the model in `out` may be replaced; without one, refuse."""
    from unexposed.model.save import model_path

    if force or not model_path(out).exists():
        return
    if not (_is_terminal(sys.stdin) and _is_terminal(sys.stderr)):
        raise InputError(f"{out} holds a model: give --force to replace it, or another --out")
    print(f"{out} holds a model. Replace it? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise InputError(f"{out} is kept; give another --out")


def _is_terminal(stream: object) -> bool:
    return bool(getattr(stream, "isatty", lambda: False)())  # None: closed when Python began


def known_dataset(name: str) -> "Dataset":
    """The data set of this name."""
    from unexposed.data.datasets import DATASETS

    if name not in DATASETS:
        raise InputError(f"no data set {name!r}; {did_you_mean(name, DATASETS)}")
    return DATASETS[name]


def with_features(
    clicks: "Clicks",
    columns: Columns,
    users: Path | None,
    items: Path | None,
    *,
    model: "Model | None" = None,
) -> "tuple[Clicks, Side]":
    """The clicks with every item of the file in their catalogue, and the features.

    With a model, features are encoded as they were in its training, and are those of its users and
    items too.
    """
    from unexposed.data.features import with_items
    from unexposed.model.update import together
    from unexposed.training.side import Side

    like = clicks if model is None else together(model, clicks)[1]
    of_users = None if users is None else read_features(users, like, columns, "user", model)
    of_items = None if items is None else read_features(items, like, columns, "item", model)
    if of_items is not None:
        if joining := with_items(like, of_items.ids).n_items - like.n_items:
            say(f"{items}: {joining:,} items without a click join the catalogue")
        clicks = with_items(clicks, of_items.ids)
    return clicks, Side(user_features=of_users, item_features=of_items)


def read_features(
    path: Path, clicks: "Clicks", columns: Columns, role: "Role", model: "Model | None" = None
) -> "Features":
    """The features of users or items of a log; the log's own name for its ids is tried first."""
    from unexposed.data.read_features import read_features as read

    encoding = None if model is None else model.encoding(role)
    own = columns.user if role == "user" else columns.item
    return read(path, clicks, role=role, id_column=own, encoding=encoding, say=say)


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


def with_titles(table: "pl.DataFrame", names: dict[Any, str] | None) -> "pl.DataFrame":
    """The table with a column `title` after `item`, empty where an item has no title."""
    import polars as pl

    if names is None:
        return table
    titles = pl.Series("title", [names.get(raw) for raw in table["item"].to_list()], pl.String)
    return table.insert_column(table.columns.index("item") + 1, titles)
