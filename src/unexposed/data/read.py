"""Logs and judgements from files and frames; a bad one is refused with one sentence."""

import logging
from collections.abc import Callable, Hashable, Iterable
from os import PathLike
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks, HasIds, Judgements, Read
from unexposed.data.columns import Columns, named, pair_names, refuse_twice, title_names
from unexposed.data.delimited import Column, check_text, text_lines
from unexposed.data.divided import divides, read_divided
from unexposed.data.encode import encode, encode_pairs
from unexposed.data.ids import Ids, match
from unexposed.data.logged import check_log, clicks_of
from unexposed.data.matrices import clicks_of_matrix, columns_of_matrix
from unexposed.data.plan import plan_of
from unexposed.data.rows import join, read_part
from unexposed.data.sources import Table, existing, opened, refusing
from unexposed.data.values import binary, limit_of, rated
from unexposed.errors import InputError, LogWarning, plain, warn
from unexposed.ranks import leads, several

Say = Callable[[str], object]


def read_log(
    source: Any,
    *,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    threshold: float | None = None,
    click: str | Iterable[str] | None = None,
    shown: str | Iterable[str] | None = None,
    event: str | None = None,
    count: str | None = None,
    time: str | None = None,
    propensity: str | None = None,
    delimiter: str | None = None,
    query: str | None = None,
    any_size: bool = False,
    say: Say | None = None,
) -> Clicks:
    """Clicks, and impressions where the log has them, from any source of a table.

    A source is a file (CSV, TSV, JSON lines, Parquet), a folder, pattern or list of such files, "-"
    for standard input, the address of a database with a `query`, a frame (pandas, polars, Arrow,
    DuckDB), a mapping of columns, or a sparse matrix, which holds counts, or ratings if a threshold
    is given.

    Columns that are not given are recognised by `NAMES`; "" says that there is none. A click is a
    row with 1 in the click column, whose zeros are impressions, or with one of the values `click`
    in the event column, where `shown` are impressions; a rating of at least the threshold, where
    shown="below" makes every other row an impression; otherwise every row. `clicks.read` tells what
    was taken for what, and a `LogWarning` what was dropped or assumed. Every user and item of the
    log is known, also without a click. A log of one user or one item is refused, since nothing can
    be learned from it, unless `any_size` is set.

    In a process group of torch.distributed all ranks call this with the same arguments: they read
    files together, and each returns the clicks of its own users, with their share of the log.
    """
    asked = Columns(
        user, item, rating, threshold, delimiter, click, shown, event, count, time, propensity
    )
    if sp.issparse(source):
        limit_of(threshold)
        clicks = clicks_of_matrix(source, threshold)
    elif several() and divides(source):
        clicks = read_divided(source, asked, delimiter=delimiter, any_size=any_size)
    else:
        with opened(source, delimiter, query) as table:
            plan = plan_of(table, asked)
            rows, told = join(table.name, [read_part(part, plan) for part in table.parts()], plan)
        n_users, n_items = len(rows.user_ids), len(rows.item_ids)
        check_log(table.name, told, plan, n_users=n_users, n_items=n_items, any_size=any_size)
        clicks = clicks_of(table.name, rows, told, plan)
    assert clicks.read is not None
    tell(clicks.read, say)
    return clicks


def tell(read: Read, say: Say | None) -> None:
    """Say how a log was read; where nobody listens, warn of what was dropped or assumed."""
    if not leads():
        return
    sayer(say)(str(read))
    if say is None and read.doubts:
        warn(str(read), LogWarning)


def sayer(say: Say | None) -> Say:
    return say or logging.getLogger("unexposed").info


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
        (user_ids, users), (item_ids, items) = encode_pairs(table, table.take(names), names)
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
    was clicked, where a table with neither says that. Ids are matched by
    value, else by how they print: "7" in a text file is the integer 7, "007" is not. With
    `later_clicks`, a table without such a column holds clicks: every row is relevant.
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
        if judged is None:
            rule = "no relevance or rating: every row is a click, and relevant"
            sayer(say)(f"{table.name}: {_pair(names)}, {rule}")
            columns, relevant = table.take(names), None
        else:
            role = "relevance" if limit is None else "rating"
            refuse_twice(table, {"user": names[0], "item": names[1], role: judged})
            said = f"{table.name}: {_pair(names)}, relevant is {_rule(judged, limit)}"
            sayer(say)(said)
            if say is None and limit is not None and threshold is None:
                said += ", which is assumed: give threshold="
                warn(said, LogWarning)
            columns = table.take([*names, judged])
            relevant = _relevant(table, columns.pop(), judged, limit)
        (user_ids, users), (item_ids, items) = encode_pairs(table, columns, names)
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
    """The titles of items by their index in `like`; unknown items are left out."""
    with opened(source, delimiter) as table:
        names = title_names(table, item, title)
        refuse_twice(table, {"item": names[0], "title": names[1]})
        ids, texts = table.take(names)
        item_ids, items = encode(table, ids, names[0])
    at = match(item_ids, like.item_ids)[items].tolist()
    pairs = zip(at, list(texts), strict=True)
    found = {index: str(text) for index, text in pairs if index >= 0 and text is not None}
    if not found:
        raise InputError(
            f"{table.name} names no item of the model: its column {plain(names[0])!r} should hold "
            "ids of the log"
        )
    return found


def read_ids(path: str | PathLike[str], like_ids: Ids) -> list[Hashable]:
    """The raw ids of a text file, one on each line, with the types of `like_ids`."""
    with refusing(path):
        file = existing(path)
        check_text(file)
        with text_lines(file) as stream:
            lines = [line.rstrip("\r\n") for line in stream]
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise InputError(f"{plain(path)} holds no ids: write one on each line")
    return like_ids.parse(texts)


def _relevant(table: Table, column: Column, name: str, limit: float | None) -> NDArray[np.bool_]:
    """Rows rated at least the limit; without a limit, rows that hold 1 instead of 0."""
    return binary(table, column, name) if limit is None else rated(table, column, name) >= limit


def _pair(names: list[str]) -> str:
    return f"user = {plain(names[0])}, item = {plain(names[1])}"


def _rule(name: str, limit: float | None) -> str:
    return f"{plain(name)} = 1" if limit is None else f"{plain(name)} ≥ {limit:g}"
