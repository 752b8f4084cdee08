"""The rows of a log, part by part: who, what, and whether each is a click or an impression."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unexposed import memory
from unexposed.data.about import About, Summary, summary
from unexposed.data.clicks import Indices
from unexposed.data.delimited import Column
from unexposed.data.encode import Coded, Kind, coded, merged
from unexposed.data.ids import Ids
from unexposed.data.moments import MUST, Moments, NotATimeError, Span, moments, to_seconds
from unexposed.data.plan import Plan, tally
from unexposed.data.sources import Table, bad_row
from unexposed.data.values import binary, chances, counted, rated, texts
from unexposed.errors import plain

Mask = NDArray[np.bool_]
BYTES_OF_A_ROW = 100  # its indices, twice, the key of its pair, the order of keys, and sums
COUNTS = "; if it counts, give count={0!r} (--count); if neither, click='' (--click '')"


@dataclass(frozen=True)
class Part:
    """The rows of one part of a log that have a user and an item."""

    users: Coded
    items: Coded
    rows: int  # of the part, dropped ones included
    clicked: Mask
    shown: Mask  # impressions that are not clicks themselves
    counts: NDArray[np.int64] | None
    times: Moments | str | None  # of the clicks, or why there are none
    propensity: NDArray[np.float64] | None
    events: Counter[str] = field(default_factory=Counter)
    zeros: int = 0  # rows whose count is 0
    largest: float = 0.0  # rating


@dataclass(frozen=True)
class Rows:
    """The rows of a log that have a user and an item."""

    users: Indices
    items: Indices
    user_ids: Ids
    item_ids: Ids
    clicked: Mask
    shown: Mask
    counts: NDArray[np.int64] | None
    times: NDArray[np.int64] | None  # of the clicks
    propensity: NDArray[np.float64] | None


def read_part(part: Table, plan: Plan) -> Part:
    """The rows of a part as the plan reads them."""
    columns = dict(zip(plan.columns, part.take([*plan.columns.values()]), strict=True))
    n = len(columns["user"])
    clicked, shown = np.ones(n, dtype=bool), np.zeros(n, dtype=bool)
    events, largest, zeros = Counter[str](), 0.0, 0
    counts = times = chance = None
    if "rating" in columns:
        values = rated(part, columns["rating"], plan.columns["rating"])
        clicked, largest = values >= plan.limit, float(values.max(initial=0))
        shown = ~clicked if plan.shown else shown
    elif "click" in columns:
        name = plan.columns["click"]
        clicked = binary(part, columns["click"], name, or_else=COUNTS.format(name))
        shown = ~clicked
    elif plan.clicks:
        found = texts(columns["event"])
        events = tally(found)
        clicked, shown = (found.is_in(v).to_numpy() for v in (plan.clicks, plan.shown))
    if "count" in columns:
        counts = counted(part, columns["count"], plan.columns["count"], clicked)
        zeros = int(np.sum(clicked & (counts == 0)))
        clicked &= counts > 0
    if "time" in columns:
        times = _times(part, columns["time"], plan, clicked)
    if "propensity" in columns:
        name, needed = plan.columns["propensity"], clicked | shown
        chance = chances(part, columns["propensity"], name, needed)
    # Other events may lack an item, such as a search: they are left out, with their ids.
    kept = np.flatnonzero(clicked | shown) if plan.clicks else None
    chosen = slice(None) if kept is None else kept
    return Part(
        _ids(part, columns.pop("user"), plan.columns["user"], kept),  # popped: freed once encoded
        _ids(part, columns.pop("item"), plan.columns["item"], kept),
        n,
        clicked[chosen],
        shown[chosen],
        None if counts is None else counts[chosen],
        times,
        None if chance is None else chance[chosen],
        events,
        zeros,
        largest,
    )


def join(source: str, parts: list[Part], plan: Plan) -> tuple[Rows, Summary]:
    """The rows of all parts, with ids and indices of their own, and what they tell together."""
    told = summary(source, [about(part) for part in parts], plan)
    check_room(source, sum(len(part.clicked) for part in parts), told.rows)
    times = None
    if told.unit is not None:
        found = [part.times.values for part in parts if isinstance(part.times, Moments)]
        times = to_seconds(np.concatenate(found), told.unit)
    users = merged(source, [part.users for part in parts], plan.columns["user"])
    items = merged(source, [part.items for part in parts], plan.columns["item"])
    counts = [part.counts for part in parts if part.counts is not None]
    chance = [part.propensity for part in parts if part.propensity is not None]
    rows = Rows(
        users[1],
        items[1],
        users[0],
        items[0],
        np.concatenate([part.clicked for part in parts]),
        np.concatenate([part.shown for part in parts]),
        np.concatenate(counts) if counts else None,
        times,
        np.concatenate(chance) if chance else None,
    )
    return rows, told


def about(part: Part) -> About:
    """What this part tells about the whole log."""
    return About(
        part.rows,
        int(part.clicked.sum()),
        int(part.shown.sum()),
        Kind.of(part.users),
        Kind.of(part.items),
        Span.of(part.times) if isinstance(part.times, Moments) else part.times,
        part.events,
        part.zeros,
        part.largest,
    )


def check_room(source: str, rows: int, of: int) -> None:
    """Refuse to hold these rows of a log where memory would not do."""
    memory.check(
        source, rows * BYTES_OF_A_ROW, what=f"holding {of:,} rows", cure="give a shorter log"
    )


def _ids(part: Table, column: Column, name: str, kept: NDArray[np.int64] | None) -> Coded:
    if kept is None:
        return coded(part, column, name)
    column = [column[row] for row in kept] if isinstance(column, list) else column[kept]
    return coded(part, column, name, kept)


def _times(part: Table, column: Column, plan: Plan, clicked: Mask) -> Moments | str:
    """The times of the clicks, or why a column that was only recognised by name is not used."""
    try:
        return moments(column, clicked)
    except NotATimeError as error:
        value, name = column[error.row], plain(plan.columns["time"])
        said = f"the {name} '{'' if value is None else plain(value, 40)}' is not {MUST}"
        if "time" in plan.given:
            raise bad_row(part, error.row, said) from None
        return f"{name} is not used: in {part.where(error.row)}, {said}"
