"""The rows of a log become clicks, and impressions where it has them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from unexposed.data.about import Summary
from unexposed.data.clicks import Clicks, Read
from unexposed.data.matrices import check_universe
from unexposed.data.plan import Plan
from unexposed.data.rows import Rows
from unexposed.data.shown import Impressions
from unexposed.errors import InputError

CLICKED = ("users", "items", "counts", "times")  # columns of clicks
SHOWN = ("users", "items", "shown", "clicked", "propensity")  # and of impressions


def check_log(
    source: str, told: Summary, plan: Plan, *, n_users: int, n_items: int, any_size: bool
) -> None:
    """Refuse a log of which nothing can be learned."""
    if not any_size:
        check_universe(source, n_users, n_items)
    if told.clicks == 0:
        cure = "lower threshold= (--threshold)" if "rating" in plan.columns else "give other rows"
        raise InputError(f"{source}: {plan.rule}, and none is; {cure}")


def clicks_of(source: str, rows: Rows, told: Summary, plan: Plan) -> Clicks:
    """The clicks and impressions of these rows of a log; the summary is of the whole log."""
    clicked = rows.clicked
    every = bool(clicked.all())
    clicks = Clicks.from_pairs(
        rows.users if every else rows.users[clicked],
        rows.items if every else rows.items[clicked],
        counts=None if rows.counts is None else rows.counts[clicked],
        times=rows.times,
        user_ids=rows.user_ids,
        item_ids=rows.item_ids,
    )
    shown = None
    if told.shown or rows.propensity is not None:
        shown = impressions(rows, apart=bool(plan.clicks))
    timed = told.unit is not None
    read = Read(
        source,
        {role: name for role, name in plan.columns.items() if role != "time" or timed},
        plan.rule,
        told.rows,
        told.clicks,
        told.shown,
        told.rows - told.clicks - told.shown,
        len(clicks),
        told.notes,
        told.doubts,
    )
    return replace(clicks, shown=shown, read=read)


def clicks_of_blocks(source: str, blocks: Iterator[Rows], told: Summary, plan: Plan) -> Clicks:
    """As `clicks_of`, for rows that come by blocks of users, in the order of users."""
    found = [clicks_of(source, block, told, plan) for block in blocks]
    first, shown = found[0], [part.shown for part in found if part.shown is not None]
    columns, showings = _columns(found, CLICKED), _columns(shown, SHOWN)
    del found
    every = replace(shown[0], **_joined(showings)) if shown else None
    del shown
    return replace(first, **_joined(columns), shown=every)


def _columns(parts: Sequence[Any], names: tuple[str, ...]) -> dict[str, list[Any]]:
    """Columns of all parts that have them."""
    return {n: [getattr(part, n) for part in parts if getattr(part, n) is not None] for n in names}


def _joined(columns: dict[str, list[Any]]) -> dict[str, Any]:
    """Columns of parts one after the other; the parts are freed on the way."""
    return {n: np.concatenate(columns.pop(n)) if columns[n] else None for n in [*columns]}


def impressions(rows: Rows, *, apart: bool) -> Impressions:
    """Every shown pair with its clicks.

    Where clicks and impressions are rows `apart`, the row of a click stands beside the row of its
    impression, so a pair was shown as often as the larger number says.
    """
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
