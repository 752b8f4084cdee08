"""Logs and judgements from files and frames; a bad one is refused with one sentence."""

import logging
import math
import re
from collections.abc import Callable, Hashable
from itertools import combinations
from os import PathLike
from typing import Any, cast

import numpy as np
import polars as pl
import scipy.sparse as sp
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks, HasIds, Judgements
from unexposed.data.delimited import Column, Text, check_text, text_lines
from unexposed.data.encode import encode, encode_pairs
from unexposed.data.ids import Ids, match
from unexposed.data.sources import Table, bad_row, existing, opened, refusing
from unexposed.errors import InputError, did_you_mean, plain

Say = Callable[[str], object]

# What a column may be called, best first: lower case, without "_", "-" and spaces.
NAMES = {
    "user": "user userid uid customer customerid visitor visitorid member memberid viewer viewerid "
    "listener listenerid reader readerid u",
    "item": "item itemid iid product productid sku movie movieid film filmid video videoid "
    "song songid track trackid "
    "article articleid book bookid asin i",
    "rating": "rating ratings stars",
    "relevance": "relevance relevant label",
    "title": "title name itemname itemtitle productname",
}
THRESHOLD = 4.0  # of five stars


def read_log(
    source: Any,
    *,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    threshold: float | None = None,
    delimiter: str | None = None,
    any_size: bool = False,
    say: Say | None = None,
) -> Clicks:
    """Clicks from a CSV, TSV or Parquet file, a frame, a mapping of columns or a sparse matrix.

    Columns that are not given are recognised by `NAMES`. With a rating column, a click is a rating
    of at least the threshold; otherwise every row is a click. A matrix holds counts, or ratings if
    a threshold is given. Every user and item of the log is known, also without a click. A log of
    one user or one item is refused, since nothing can be learned from it, unless `any_size` is set.
    """
    limit = _limit(threshold)
    if sp.issparse(source):
        return _clicks_of_matrix(source, threshold)
    with opened(source, delimiter) as table:
        names = _pair_names(table, user, item)
        rated = _named(table, "rating", rating, needed=threshold is not None)
        _refuse_twice(table, {"user": names[0], "item": names[1], "rating": rated})
        rule = "every row is a click" if rated is None else f"a click is {_rule(rated, limit)}"
        _sayer(say)(f"{table.name}: {_pair(names)}, {rule}")
        columns = table.take(names if rated is None else [*names, rated])
        liked = slice(None) if rated is None else _chosen(table, columns.pop(), rated, limit)
        (user_ids, users), (item_ids, items) = encode_pairs(table, columns, names)
        if not any_size:
            _check_universe(table.name, user_ids, item_ids)
        users, items = users[liked], items[liked]
        if len(users) == 0:
            raise InputError(f"{table.name}: {rule}, and none is; lower threshold= (--threshold)")
        return Clicks.from_pairs(users, items, user_ids=user_ids, item_ids=item_ids)


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
        names = _pair_names(table, user, item)
        _sayer(say)(f"{table.name}: {_pair(names)}, every row is a candidate")
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

    Relevance is a column of 0 and 1, or a rating of at least the threshold. Ids are matched by
    value, else by how they print: "7" in a text file is the integer 7, "007" is not. With
    `later_clicks`, a table that has neither column holds clicks: every row is relevant.
    """
    by_rating = rating is not None or threshold is not None
    if relevance is not None and by_rating:
        raise InputError("relevance= excludes rating= and threshold=: give one or the other")
    limit: float | None = _limit(threshold)
    if sp.issparse(source):
        source = _columns_of_matrix(source, "rating" if by_rating else "relevance")
    with opened(source, delimiter) as table:
        names = _pair_names(table, user, item)
        judged = _named(table, "rating", rating, needed=False)
        if judged is None or not by_rating:
            needed = judged is None and not (later_clicks and not by_rating)
            label = _named(table, "relevance", relevance, needed=needed)
            judged, limit = (judged, limit) if label is None else (label, None)
        if judged is None:
            rule = "no relevance or rating: every row is a click, and relevant"
            _sayer(say)(f"{table.name}: {_pair(names)}, {rule}")
            columns, relevant = table.take(names), None
        else:
            role = "relevance" if limit is None else "rating"
            _refuse_twice(table, {"user": names[0], "item": names[1], role: judged})
            _sayer(say)(f"{table.name}: {_pair(names)}, relevant is {_rule(judged, limit)}")
            columns = table.take([*names, judged])
            relevant = _chosen(table, columns.pop(), judged, limit)
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
        _sayer(say)(left_out)
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
        names = [_named(table, "item", item), _named(table, "title", title)]
        _refuse_twice(table, {"item": names[0], "title": names[1]})
        ids, texts = table.take(cast(list[str], names))
        item_ids, items = encode(table, ids, cast(str, names[0]))
    at = match(item_ids, like.item_ids)[items].tolist()
    pairs = zip(at, list(texts), strict=True)
    found = {index: str(text) for index, text in pairs if index >= 0 and text is not None}
    if not found:
        raise InputError(
            f"{table.name} names no item of the model: check that item= (--item) and "
            "title= (--title) name the right columns"
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


# Sparse matrices


def _columns_of_matrix(matrix: Any, values: str) -> dict[str, NDArray[Any]]:
    """Row, column and value of every stored entry, explicit zeros included."""
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        shape = f"{matrix.ndim} dimensions of {matrix.dtype}"
        raise InputError(f"the matrix has {shape}: give users × items of real numbers")
    coo = sp.coo_array(matrix)
    coo.sum_duplicates()
    for at in np.flatnonzero(~(np.isfinite(coo.data) & (coo.data >= 0)))[:1]:
        raise InputError(
            f"the matrix holds {coo.data[at]} in row {coo.row[at]}, column {coo.col[at]}: "
            "make every value finite and at least 0"
        )
    return {"user": coo.row, "item": coo.col, values: coo.data}


def _clicks_of_matrix(matrix: Any, threshold: float | None) -> Clicks:
    users, items, values = _columns_of_matrix(matrix, "value").values()
    user_ids, item_ids = Ids.range(matrix.shape[0]), Ids.range(matrix.shape[1])
    _check_universe("the matrix", user_ids, item_ids)
    clicked = (values > 0) & (values >= (threshold or 0))
    if not clicked.any():
        raise InputError("the matrix has no click: store positive values, or lower threshold=")
    counts = values[clicked] if threshold is None else None
    if counts is not None and ((counts % 1 != 0) | (counts >= 2**31)).any():
        raise InputError("the matrix holds more than counts: give threshold= if these are ratings")
    return Clicks.from_pairs(
        users[clicked], items[clicked], counts=counts, user_ids=user_ids, item_ids=item_ids
    )


# Choosing columns


def _pair_names(table: Table, user: str | None, item: str | None) -> list[str]:
    names = [_named(table, "user", user), _named(table, "item", item)]
    _refuse_twice(table, {"user": names[0], "item": names[1]})
    return cast(list[str], names)


def _refuse_twice(table: Table, names: dict[str, str | None]) -> None:
    for (role, name), (other, same) in combinations(names.items(), 2):
        if name == same:
            raise InputError(
                f"{table.name}: {role}= and {other}= both name {name!r}; give two columns"
            )


def _named(table: Table, role: str, given: str | None, *, needed: bool = True) -> str | None:
    """The column given for a role, or else the first one recognised by its name."""
    if given in table.columns:
        return given
    alike = {re.sub("[-_ ]", "", c.lower()): c for c in reversed(table.columns)}
    for name in NAMES[role].split() if given is None else ():
        if name in alike:
            return name if name in table.columns else alike[name]
    if given is None and not needed:
        return None
    near = plain(did_you_mean(given or role, table.columns), 200)
    what = f"{role} column" if given is None else f"column {given!r}"
    header = " in its header" if isinstance(table, Text) else ""
    cure = f"{role}= (--{role})"
    if role == "relevance":
        cure = (
            "relevance=, or a rating with rating= (--rating); clicks alone can judge only in the "
            "whole catalogue (--protocol catalogue)"
        )
    raise InputError(f"{table.name} has no {what}{header} ({near}): name it with {cure}")


def _limit(threshold: float | None) -> float:
    if threshold is None:
        return THRESHOLD
    if not (math.isfinite(threshold) and threshold >= 0):
        raise InputError(f"threshold must be a finite number of at least 0, got {threshold}")
    return threshold


def _check_universe(name: str, user_ids: Ids, item_ids: Ids) -> None:
    for role, ids in (("user", user_ids), ("item", item_ids)):
        if len(ids) < 2:
            raise InputError(
                f"{name} has fewer than two {role}s, which leaves nothing to learn: "
                f"check that {role}= (--{role}) names the right column"
            )


# Values


def _chosen(table: Table, column: Column, name: str, limit: float | None) -> NDArray[np.bool_]:
    """Rows rated at least the limit; without a limit, rows that hold 1 instead of 0."""
    numbers = _numbers(column, words={} if limit is not None else {"true": "1", "false": "0"})
    binary = (numbers == 0) | (numbers == 1)
    good = binary if limit is None else numbers.is_finite() & (numbers >= 0)
    for row in (~good.fill_null(False)).arg_true().head(1):
        value = "" if column[row] is None else plain(column[row], 40)
        must = "a number" if numbers[row] is None else "a finite number of at least 0"
        cure = "correct it or leave the row out"
        if limit is None:
            must, cure = "0 or 1", f"if it rates, give rating={name!r} (--rating) and a threshold"
        raise bad_row(table, row, f"the {plain(name)} '{value}' is not {must}; {cure}")
    return numbers.to_numpy() >= (1 if limit is None else limit)


def _numbers(column: Column, words: dict[str, str]) -> pl.Series:
    """A column as floats, null where it does not hold a number."""
    if isinstance(column, list) or not (
        column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.String)
    ):
        texts = [None if value is None else str(value) for value in column]
        column = pl.Series(texts, dtype=pl.String)
    if column.dtype == pl.String:
        column = column.str.strip_chars().str.to_lowercase().replace(words)
    return column if column.dtype.is_float() else column.cast(pl.Float64, strict=False)


def _sayer(say: Say | None) -> Say:
    return say or logging.getLogger("unexposed").info


def _pair(names: list[str]) -> str:
    return f"user = {plain(names[0])}, item = {plain(names[1])}"


def _rule(name: str, limit: float | None) -> str:
    return f"{plain(name)} = 1" if limit is None else f"{plain(name)} ≥ {limit:g}"
