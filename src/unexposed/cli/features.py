"""Features of users and items, from the files that `--user-features` and `--item-features` name."""

from pathlib import Path
from typing import TYPE_CHECKING

from unexposed.cli.options import Columns
from unexposed.cli.talking import say

if TYPE_CHECKING:
    from unexposed.data.clicks import Clicks
    from unexposed.data.features import Features, Role
    from unexposed.model.model import Model
    from unexposed.training.side import Side


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
    of_users = None if users is None else read(users, like, columns, "user", model)
    of_items = None if items is None else read(items, like, columns, "item", model)
    if of_items is not None:
        if joining := with_items(like, of_items.ids).n_items - like.n_items:
            say(f"{items}: {joining:,} items without a click join the catalogue")
        clicks = with_items(clicks, of_items.ids)
    return clicks, Side(user_features=of_users, item_features=of_items)


def read(
    path: Path, clicks: "Clicks", columns: Columns, role: "Role", model: "Model | None" = None
) -> "Features":
    """The features of users or items of a log; the log's own name for its ids is tried first."""
    from unexposed.data.read_features import read_features

    encoding = None if model is None else model.encoding(role)
    own = columns.user if role == "user" else columns.item
    return read_features(path, clicks, role=role, id_column=own, encoding=encoding, say=say)
