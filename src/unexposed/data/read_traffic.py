"""Random traffic from files and frames: pairs shown at random, with what the user thought."""

from typing import Any

from unexposed.data.clicks import HasIds
from unexposed.data.read import Say, read_judged
from unexposed.data.shown import Traffic


def read_traffic(
    source: Any,
    like: HasIds,
    *,
    user: str | None = None,
    item: str | None = None,
    relevance: str | None = None,
    rating: str | None = None,
    threshold: float | None = None,
    delimiter: str | None = None,
    say: Say | None = None,
) -> Traffic:
    """Random traffic in the indices of `like`, read as `read_judged` reads judged pairs.

    Training may use it, so none of its pairs may be judged as well.
    """
    pairs = read_judged(
        source,
        like,
        user=user,
        item=item,
        relevance=relevance,
        rating=rating,
        threshold=threshold,
        delimiter=delimiter,
        say=say,
    )
    return Traffic(pairs.users, pairs.items, pairs.relevant, pairs.user_ids, pairs.item_ids)
