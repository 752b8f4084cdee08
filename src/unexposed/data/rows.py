"""The rows of a log, part by part: who, what, and whether each is a click or an impression."""

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from unexposed import memory
from unexposed.data.clicks import Indices
from unexposed.data.delimited import Column
from unexposed.data.encode import Coded, coded, merged, no_rows
from unexposed.data.ids import Ids
from unexposed.data.moments import MUST, Moments, NotATimeError, in_seconds, moments, spoken
from unexposed.data.plan import Plan, other_events, tally
from unexposed.data.shown import Impressions
from unexposed.data.sources import Table, bad_row
from unexposed.data.values import binary, chances, counted, rated, texts
from unexposed.errors import InputError, plain

Mask = NDArray[np.bool_]
BYTES_OF_A_ROW = 100  # its indices, twice, the key of its pair, the order of keys, and sums
FIVE = 5  # stars, of which the assumed threshold is meant
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
    """The rows of a log that have a user and an item, and how they were read."""

    users: Indices
    items: Indices
    user_ids: Ids
    item_ids: Ids
    clicked: Mask
    shown: Mask
    counts: NDArray[np.int64] | None
    times: NDArray[np.int64] | None  # of the clicks
    propensity: NDArray[np.float64] | None
    rows: int
    notes: tuple[str, ...]
    doubts: tuple[str, ...]


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


def join(source: str, parts: list[Part], plan: Plan) -> Rows:
    """The rows of all parts, with ids and indices of their own."""
    rows = sum(part.rows for part in parts)
    if rows == 0:
        raise no_rows(source)
    memory.check(
        source,
        sum(len(part.clicked) for part in parts) * BYTES_OF_A_ROW,
        what=f"holding {rows:,} rows",
        cure="give a shorter log",
    )
    doubts = [other_events(source, plan, sum((part.events for part in parts), Counter()))]
    if zeros := sum(part.zeros for part in parts):
        doubts.append(f"dropped {zeros:,} rows whose {plain(plan.columns['count'])} is 0")
    if plan.assumed:
        largest = max(part.largest for part in parts)
        though = f", though ratings go up to {largest:g}" if largest > FIVE else ""
        doubts.append(f"threshold {plan.limit:g} is assumed{though}: give threshold= (--threshold)")
    times, notes = _joined_times(source, parts, plan)
    users = merged(source, [part.users for part in parts], plan.columns["user"])
    items = merged(source, [part.items for part in parts], plan.columns["item"])
    counts = [part.counts for part in parts if part.counts is not None]
    chance = [part.propensity for part in parts if part.propensity is not None]
    return Rows(
        users[1],
        items[1],
        users[0],
        items[0],
        np.concatenate([part.clicked for part in parts]),
        np.concatenate([part.shown for part in parts]),
        np.concatenate(counts) if counts else None,
        times,
        np.concatenate(chance) if chance else None,
        rows,
        (*plan.notes, *notes),
        tuple(doubt for doubt in doubts if doubt is not None),
    )


def impressions(rows: Rows, *, apart: bool) -> Impressions | None:
    """Every shown pair with its clicks, or None where nothing but clicks was shown.

    Where clicks and impressions are rows `apart`, the row of a click stands beside the row of its
    impression, so a pair was shown as often as the larger number says.
    """
    if not rows.shown.any() and rows.propensity is None:
        return None
    kept = rows.clicked | rows.shown
    times = np.ones(len(kept), dtype=np.int64) if rows.counts is None else rows.counts
    clicked = np.where(rows.clicked, times, 0)[kept]
    shown = np.where(rows.shown, times, 0)[kept]
    found = Impressions.from_pairs(
        rows.users[kept],
        rows.items[kept],
        user_ids=rows.user_ids,
        item_ids=rows.item_ids,
        shown=shown + clicked,
        clicked=clicked,
        propensity=None if rows.propensity is None else rows.propensity[kept],
    )
    if not apart:
        return found
    return replace(found, shown=np.maximum(found.shown - found.clicked, found.clicked))


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


def _joined_times(
    source: str, parts: list[Part], plan: Plan
) -> tuple[NDArray[np.int64] | None, list[str]]:
    """The times of all clicks in seconds, and a note about them."""
    if "time" not in plan.columns:
        return None, []
    found, faults = list[Moments](), list[str]()
    for part in parts:
        if isinstance(part.times, Moments):
            found.append(part.times)
        elif part.times is not None:
            faults.append(part.times)
    if faults:
        return None, faults[:1]
    name = plain(plan.columns["time"])
    try:
        times, kind = in_seconds([part for part in found if len(part.values)] or found[:1])
    except ValueError as error:
        said = f"{name} holds {error}"
        if "time" in plan.given:
            raise InputError(f"{source}: {said}: write it alike in all parts") from None
        return None, [f"{name} is not used: it {said}"]
    if len(times) == 0:
        return None, []
    return times, [f"{name} is in {kind}, {spoken(times)}"]
