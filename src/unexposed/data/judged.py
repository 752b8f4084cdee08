"""Judged pairs, random traffic, candidates, titles and lists of ids, from files and frames."""

from collections.abc import Hashable
from os import PathLike
from typing import Any, cast

import numpy as np
import polars as pl
import scipy.sparse as sp

from unexposed.data.clicks import Clicks
from unexposed.data.columns import Table, named, pair_names, recognised, refuse_twice
from unexposed.data.ids import Ids, match
from unexposed.data.labelled import Judgements, Traffic
from unexposed.data.log import Say, columns_of_matrix, no_rows, sayer
from unexposed.data.pairs import HasIds, Indices
from unexposed.data.sources import existing, opened, refusing
from unexposed.data.text import check_bytes, text_lines
from unexposed.data.values import binary, encode, limit_of, rated
from unexposed.errors import InputError, LogWarning, did_you_mean, plain, warn


def read_pairs(
    source: Any,
    *,
    user: str | None = None,
    item: str | None = None,
    delimiter: str | None = None,
    say: Say | None = None,
) -> Clicks:
    """The pairs of a table as clicks, whatever else it holds: the candidates of users."""
    with opened(source, delimiter) as table:
        names = pair_names(table, user, item)
        sayer(say)(f"{table.name}: {_pair(names)}, every row is a candidate")
        (user_ids, users), (item_ids, items) = _encoded(table, table.take(names), names)
        return Clicks.from_pairs(users, items, user_ids=user_ids, item_ids=item_ids)


def read_judged(
    source: Any,
    like: HasIds,
    *,
    user: str | None = None,
    item: str | None = None,
    relevance: str | None = None,
    rating: str | None = None,
    threshold: float | None = None,
    delimiter: str | None = None,
    later_clicks: bool = False,
    say: Say | None = None,
) -> Judgements:
    """Judged pairs in the indices of `like`; pairs of an unknown user or item are left out.

    Relevance is a column of 0 and 1, or a rating of at least the threshold, or whether the pair
    was clicked, where a table with neither says that. Ids are matched by value, else by how they
    print: "7" in a text file is the integer 7, "007" is not. With `later_clicks`, a table without
    such a column holds clicks: every row is relevant.
    """
    by_rating = rating is not None or threshold is not None
    if relevance is not None and by_rating:
        raise InputError("relevance= excludes rating= and threshold=: give one or the other")
    limit: float | None = limit_of(threshold)
    if sp.issparse(source):
        source = columns_of_matrix(source, "rating" if by_rating else "relevance")
    with opened(source, delimiter) as table:
        names = pair_names(table, user, item)
        judged = named(table, "rating", rating, needed=False)
        if judged is None or not by_rating:
            clicked = None if judged or by_rating else named(table, "click", None, needed=False)
            needed = judged is None and clicked is None and not (later_clicks and not by_rating)
            label = named(table, "relevance", relevance, needed=needed) or clicked
            judged, limit = (judged, limit) if label is None else (label, None)
        relevant = None
        if judged is None:
            rule = "no relevance or rating: every row is a click, and relevant"
            sayer(say)(f"{table.name}: {_pair(names)}, {rule}")
            columns = table.take(names)
        else:
            role = "relevance" if limit is None else "rating"
            refuse_twice(table, {"user": names[0], "item": names[1], role: judged})
            rule = f"{plain(judged)} = 1" if limit is None else f"{plain(judged)} ≥ {limit:g}"
            said = f"{table.name}: {_pair(names)}, relevant is {rule}"
            sayer(say)(said)
            if say is None and limit is not None and threshold is None:
                warn(f"{said}, which is assumed: give threshold=", LogWarning)
            *columns, labels = table.take([*names, judged])
            if limit is None:
                relevant = binary(table, labels, judged)
            else:
                relevant = rated(table, labels, judged) >= limit
        (user_ids, users), (item_ids, items) = _encoded(table, columns, names)
    user_at, item_at = match(user_ids, like.user_ids), match(item_ids, like.item_ids)
    users, items = user_at[users], item_at[items]
    relevant = np.ones(len(users), dtype=bool) if relevant is None else relevant
    known = (users >= 0) & (items >= 0)
    if not known.all():
        left_out = (
            f"{table.name}: left out {np.sum(~known):,} of {len(known):,} judged pairs: "
            f"{np.sum(user_at < 0):,} unknown users, {np.sum(item_at < 0):,} unknown items"
        )
        if not known.any():
            raise InputError(f"{left_out}; judge users and items of the training log")
        sayer(say)(left_out)
    return Judgements.from_pairs(
        users[known], items[known], relevant[known], user_ids=like.user_ids, item_ids=like.item_ids
    )


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


def check_title(titles: object, title: str | None) -> None:
    """Refuse a title column without the file that would hold it."""
    if title is not None and titles is None:
        raise InputError("--title names a column of the file that --titles gives: give both")


def read_titles(
    source: Any,
    like: HasIds,
    *,
    title: str | None = None,
    item: str | None = None,
    delimiter: str | None = None,
) -> dict[int, str]:
    """The titles of items by their index in `like`; unknown items are left out.

    `item` may be the name in another table, a log or judged pairs, and `title` is often the only
    other column: ids are in the column given if there is one of that name, else in one that is
    recognised, else in the only one left.
    """
    with opened(source, delimiter) as table:
        texts = cast(str, named(table, "title", title))
        ids = item if item and item in table.columns else recognised(table.columns, "item")
        others = [name for name in table.columns if name != texts]
        if ids is None and len(others) != 1:
            near = plain(did_you_mean(item or "item", others), 200)
            raise InputError(f"{table.name} has no column of item ids ({near}): call it item")
        name = ids or others[0]
        refuse_twice(table, {"item": name, "title": texts})
        column, found = table.take([name, texts])
        item_ids, items = encode(table, column, name)
    at = match(item_ids, like.item_ids)[items].tolist()
    pairs = zip(at, found.to_list(), strict=True)
    titles = {index: str(text) for index, text in pairs if index >= 0 and text is not None}
    if not titles:
        raise InputError(
            f"{table.name} names no item of the model: its column {plain(name)!r} should hold "
            "ids of the log"
        )
    return titles


def read_ids(path: str | PathLike[str], like_ids: Ids) -> list[Hashable]:
    """The raw ids of a text file, one on each line, with the types of `like_ids`."""
    with refusing(path):
        file = existing(path)
        check_bytes(file, plain(path))
        with text_lines(file) as stream:
            lines = [line.rstrip("\r\n") for line in stream]
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise InputError(f"{plain(path)} holds no ids: write one on each line")
    return like_ids.parse(texts)


def _encoded(table: Table, columns: list[pl.Series], names: list[str]) -> list[tuple[Ids, Indices]]:
    if len(columns[0]) == 0:
        raise no_rows(table.name)
    pairs = zip(columns, names, strict=True)
    return [encode(table, column, name) for column, name in pairs]


def _pair(names: list[str]) -> str:
    return f"user = {plain(names[0])}, item = {plain(names[1])}"
