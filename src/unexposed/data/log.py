"""A click log becomes clicks, and impressions where it has them.

    source → Table (sources, text, parquet, database) → Plan (plan) → a frame of rows → Clicks

Each part of a log becomes a frame with the columns user, item, clicked, shown and, where the log
has them, count and propensity, beside the times of its clicks; the frames become one, and its ids
become indices.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp
from numpy.typing import NDArray

from unexposed.data import share
from unexposed.data.clicks import Clicks, Read
from unexposed.data.columns import Columns, Table
from unexposed.data.ids import Ids
from unexposed.data.labelled import Impressions
from unexposed.data.pairs import Indices
from unexposed.data.plan import Plan, other_events, plan_of, tally
from unexposed.data.sources import in_files, opened
from unexposed.data.values import (
    MUST,
    NotATimeError,
    Span,
    as_texts,
    binary,
    chances,
    counted,
    days_between,
    id_column,
    indexed,
    join_ids,
    kind_of,
    limit_of,
    rated,
    texts,
    times_of,
    to_seconds,
    unit_of,
)
from unexposed.errors import InputError, LogWarning, plain, warn
from unexposed.workers import Workers, leads, several, together

Say = Callable[[str], object]
FIVE = 5  # stars, of which the assumed threshold is meant
COUNTS = "; if it counts, give count={0!r} (--count); if neither, click='' (--click '')"


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
    shown="below" makes every other row an impression; otherwise every row. `clicks.read` says what
    was taken for what, and a `LogWarning` what was dropped or assumed. Every user and item of the
    log is kept, also without a click. A log of one user or one item is refused, since nothing can
    be learned from it, unless `any_size` is set.

    In a process group of torch.distributed all workers call this with the same arguments: each
    reads every file, and returns the clicks of its own users, with their share of the log.
    """
    asked = Columns(
        user, item, rating, threshold, delimiter, click, shown, event, count, time, propensity
    )
    if sp.issparse(source):
        clicks = _of_matrix(source, threshold)
    else:
        divided = several() and in_files(source)
        with (
            together() if divided else nullcontext() as workers,
            opened(source, delimiter, query) as table,
        ):
            clicks = _of_table(table, plan_of(table, asked), workers, any_size=any_size)
    assert clicks.read is not None
    if leads():
        sayer(say)(str(clicks.read))
        if say is None and clicks.read.doubts:
            warn(str(clicks.read), LogWarning)
    return clicks


def sayer(say: Say | None) -> Say:
    return say or logging.getLogger("unexposed").info


# Rows


@dataclass
class _Tally:
    """What the rows of all parts add up to, and what a reader should know of them."""

    rows: int = 0  # dropped ones included
    clicks: int = 0
    shown: int = 0  # impressions that are not clicks themselves
    zeros: int = 0  # rows whose count is 0
    largest: float = 0.0  # rating
    events: Counter[str] = field(default_factory=Counter)
    times: list[Span] = field(default_factory=list)  # of clicks, by part
    no_times: str | None = None  # why there are none


def _of_table(
    table: Table,
    plan: Plan,
    workers: Workers | None,
    *,
    any_size: bool,
    users_are_texts: bool = False,
) -> Clicks:
    """The clicks of a table; of one of several workers, those of its own users."""
    found, parts, times = _Tally(), list[tuple[Table, pl.DataFrame]](), list[NDArray[np.int64]]()
    names = {role: plan.columns[role] for role in ("user", "item")}
    every: dict[str, list[tuple[Table, pl.Series]]] = {"user": [], "item": []}  # of all workers
    for part in table.parts():
        rows, of_clicks = _rows_of(part, plan, found)
        if workers is not None:
            for role, name in names.items():
                share.check_divisible(part.name, rows[role], name)
                ids = rows[role].head(1) if role == "user" else rows[role].unique()
                every[role].append((part, ids))
            mixed = len({kind_of(ids) for _, ids in every["user"] if len(ids)}) > 1
            if mixed and not users_are_texts:  # then others own the users of the parts before
                join_ids(every["user"], names["user"])
                return _of_table(table, plan, workers, any_size=any_size, users_are_texts=True)
            if users_are_texts:
                rows = rows.with_columns(as_texts(rows["user"]).alias("user"))
            own = share.are_own(rows["user"], workers)
            of_clicks = (
                of_clicks[own.filter(rows["clicked"]).to_numpy()] if len(of_clicks) else of_clicks
            )
            rows = rows.filter(own)
        parts.append((part, rows))
        times.append(of_clicks)
    columns = {}
    for role, name in names.items():
        first = sum(len(ids) for _, ids in every[role])
        ids = join_ids([*every[role], *((part, rows[role]) for part, rows in parts)], name)
        columns[role] = indexed(ids[first:]) if role == "user" else indexed(ids)
    (user_ids, users), (item_ids, items) = columns["user"], columns["item"]
    items = items[len(items) - len(users) :]
    rows = pl.concat([rows.drop("user", "item") for _, rows in parts])
    parts.clear()
    values = {name: rows.drop_in_place(name).to_numpy() for name in rows.columns}  # freed in turn
    places = None if workers is None else share.places_among_all(user_ids, workers)
    n_users = len(user_ids) if places is None else places[1]
    unit, read = _summary(table.name, found, plan)
    if not any_size:
        _check_universe(table.name, n_users, len(item_ids))
    if found.clicks == 0:
        cure = "lower threshold= (--threshold)" if "rating" in plan.columns else "give other rows"
        raise InputError(f"{table.name}: {plan.rule}, and none is; {cure}")
    if unit is not None:
        values["time"] = to_seconds(np.concatenate(times), unit)
    clicks = _clicks_of(
        values,
        *(users, items, user_ids, item_ids),
        has_shown=found.shown > 0,
        by_event=bool(plan.clicks),
    )
    if workers is not None and places is not None:
        clicks = share.counted(clicks, *places, workers)
    return replace(clicks, read=replace(read, pairs=clicks.n_clicks))


def _rows_of(part: Table, plan: Plan, found: _Tally) -> tuple[pl.DataFrame, NDArray[np.int64]]:
    """The rows of a part, and the times of its clicks, if there are any.

    Where events are named, only rows that are clicks or impressions are kept.
    """
    columns = dict(zip(plan.columns, part.take([*plan.columns.values()]), strict=True))
    n = len(columns["user"])
    clicked, shown = np.ones(n, dtype=bool), np.zeros(n, dtype=bool)
    rows: dict[str, Any] = {}
    if "rating" in columns:
        values = rated(part, columns["rating"], plan.columns["rating"])
        clicked = values >= plan.limit
        shown = ~clicked if plan.shown else shown
        found.largest = max(found.largest, float(values.max(initial=0)))
    elif "click" in columns:
        name = plan.columns["click"]
        clicked = binary(part, columns["click"], name, or_else=COUNTS.format(name))
        shown = ~clicked
    elif plan.clicks:
        events = texts(columns["event"])
        found.events.update(tally(events))
        clicked, shown = (events.is_in(v).to_numpy() for v in (plan.clicks, plan.shown))
    if "count" in columns:
        rows["count"] = counted(part, columns["count"], plan.columns["count"], clicked)
        found.zeros += int(np.sum(clicked & (rows["count"] == 0)))
        clicked = clicked & (rows["count"] > 0)
    times = np.empty(0, dtype=np.int64)
    if "time" in columns and found.no_times is None:
        times = _times(part, columns["time"], plan, clicked, found)
    if "propensity" in columns:
        name = plan.columns["propensity"]
        rows["propensity"] = chances(part, columns["propensity"], name, clicked | shown)
    found.rows += n
    found.clicks += int(clicked.sum())
    found.shown += int(shown.sum())
    rows |= {"clicked": clicked, "shown": shown}
    kept = None if not plan.clicks else np.flatnonzero(clicked | shown)
    for role in ("user", "item"):  # other events may lack an item, such as a search
        rows[role] = id_column(part, columns.pop(role), plan.columns[role], kept)
    chosen = slice(None) if kept is None else kept
    frame = {n: v if n in ("user", "item") else v[chosen] for n, v in rows.items()}
    return pl.DataFrame(frame), times


def _times(
    part: Table, column: pl.Series, plan: Plan, clicked: NDArray[np.bool_], found: _Tally
) -> NDArray[np.int64]:
    """The times of clicks; why a column that was only recognised by its name is not used."""
    try:
        times, span = times_of(column, clicked)
    except NotATimeError as error:
        value, name = column[error.row], plain(plan.columns["time"])
        fault = f"the {name} '{'' if value is None else plain(value, 40)}' is not {MUST}"
        if "time" in plan.given:
            raise part.refusal(error.row, fault) from None
        found.no_times = f"{name} is not used: in {part.where(error.row)}, {fault}"
        return np.empty(0, dtype=np.int64)
    found.times += [] if span is None else [span]
    return times


def _summary(source: str, found: _Tally, plan: Plan) -> tuple[str | None, Read]:
    """The unit of the times of clicks, and what is said of how the log was read."""
    if found.rows == 0:
        raise no_rows(source)
    doubts = [other_events(source, plan, found.events)]
    if found.zeros:
        doubts.append(f"dropped {found.zeros:,} rows whose {plain(plan.columns['count'])} is 0")
    if plan.assumed:
        though = f", though ratings go up to {found.largest:g}" if found.largest > FIVE else ""
        doubts.append(f"threshold {plan.limit:g} is assumed{though}: give threshold= (--threshold)")
    unit, note = None, found.no_times
    spans = found.times
    if note is None and spans:
        name = plain(plan.columns["time"])
        try:
            unit = unit_of(spans)
        except ValueError as error:
            if "time" in plan.given:
                raise InputError(f"{source}: {name} holds {error}: write it alike") from None
            note = f"{name} is not used: it holds {error}"
        else:
            ends = np.array([min(s.first for s in spans), max(s.last for s in spans)])
            note = f"{name} is in {unit}, {days_between(to_seconds(ends, unit))}"
    return unit, Read(
        source,
        {role: name for role, name in plan.columns.items() if role != "time" or unit is not None},
        plan.rule,
        found.rows,
        found.clicks,
        found.shown,
        found.rows - found.clicks - found.shown,
        notes=(*plan.notes, *([] if note is None else [note])),
        doubts=tuple(doubt for doubt in doubts if doubt is not None),
    )


def no_rows(name: str) -> InputError:
    return InputError(f"{name} has no rows: write a user and an item in each")


def _check_universe(name: str, n_users: int, n_items: int) -> None:
    for role, n in (("user", n_users), ("item", n_items)):
        if n < 2:
            raise InputError(
                f"{name} has fewer than two {role}s, which leaves nothing to learn: "
                f"check that {role}= (--{role}) names the right column"
            )


# Clicks


def _clicks_of(
    values: dict[str, NDArray[Any]],
    users: Indices,
    items: Indices,
    user_ids: Ids,
    item_ids: Ids,
    *,
    has_shown: bool,
    by_event: bool,
) -> Clicks:
    """The clicks of rows, at the times given of them, and impressions where the log has them."""
    clicked = values["clicked"]
    every = bool(clicked.all())
    clicks = Clicks.from_pairs(
        users if every else users[clicked],
        items if every else items[clicked],
        counts=values["count"][clicked] if "count" in values else None,
        times=values.get("time"),
        user_ids=user_ids,
        item_ids=item_ids,
    )
    if not has_shown and "propensity" not in values:
        return clicks
    kept = clicked | values["shown"]
    n = values["count"][kept] if "count" in values else np.ones(kept.sum(), dtype=np.int64)
    shown = Impressions.from_pairs(
        users[kept],
        items[kept],
        user_ids=user_ids,
        item_ids=item_ids,
        shown=n,
        clicked=np.where(clicked[kept], n, 0),
        propensity=values["propensity"][kept] if "propensity" in values else None,
    )
    if by_event:
        # the row of a click stands beside the row of its impression: the larger number counts
        most = np.maximum(shown.shown - shown.clicked, shown.clicked)
        shown = replace(shown, shown=most)
    return replace(clicks, shown=shown)


# Sparse matrices


def columns_of_matrix(matrix: Any, values: str) -> dict[str, NDArray[Any]]:
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


def _of_matrix(matrix: Any, threshold: float | None) -> Clicks:
    """Clicks on the pairs with a positive value, their count, or one of at least the threshold."""
    limit_of(threshold)
    users, items, values = columns_of_matrix(matrix, "value").values()
    _check_universe("the matrix", *matrix.shape)
    clicked = (values > 0) & (values >= (threshold or 0))
    if not clicked.any():
        raise InputError("the matrix has no click: store positive values, or lower threshold=")
    counts = values[clicked] if threshold is None else None
    if counts is not None and ((counts % 1 != 0) | (counts >= 2**31)).any():
        raise InputError("the matrix holds more than counts: give threshold= if these are ratings")
    rule = "a click is a value above 0, its count"
    rule = rule if threshold is None else f"a click is a value ≥ {threshold:g}"
    roles = {"user": "row", "item": "column"}
    return Clicks.from_pairs(
        users[clicked],
        items[clicked],
        counts=counts,
        user_ids=Ids.range(matrix.shape[0]),
        item_ids=Ids.range(matrix.shape[1]),
        read=Read("the matrix", roles, rule, len(values), int(clicked.sum())),
    )
