"""What the parts of a log tell about the whole: how many rows, and what a reader should know.

Small enough to travel between ranks, each of which reads other parts.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from unexposed.data.encode import Kind, no_rows
from unexposed.data.moments import Span, spoken, to_seconds, unit_of
from unexposed.data.plan import Plan, other_events
from unexposed.errors import InputError, plain

FIVE = 5  # stars, of which the assumed threshold is meant


@dataclass(frozen=True)
class About:
    """What one part tells."""

    rows: int  # dropped ones included
    clicks: int
    shown: int  # impressions that are not clicks themselves
    users: Kind
    items: Kind
    times: Span | str | None  # of the clicks, or why there are none
    events: Counter[str]
    zeros: int  # rows whose count is 0
    largest: float  # rating


@dataclass(frozen=True)
class Summary:
    """What all parts tell together."""

    rows: int
    clicks: int
    shown: int
    unit: str | None  # of the times of clicks; None: there are no times
    notes: tuple[str, ...]
    doubts: tuple[str, ...]


def summary(source: str, parts: list[About], plan: Plan) -> Summary:
    """The sums of all parts, in their order, and what was noticed, dropped or assumed."""
    rows = sum(part.rows for part in parts)
    if rows == 0:
        raise no_rows(source)
    doubts = [other_events(source, plan, sum((part.events for part in parts), Counter()))]
    if zeros := sum(part.zeros for part in parts):
        doubts.append(f"dropped {zeros:,} rows whose {plain(plan.columns['count'])} is 0")
    if plan.assumed:
        largest = max(part.largest for part in parts)
        though = f", though ratings go up to {largest:g}" if largest > FIVE else ""
        doubts.append(f"threshold {plan.limit:g} is assumed{though}: give threshold= (--threshold)")
    unit, notes = _times(source, parts, plan)
    return Summary(
        rows,
        sum(part.clicks for part in parts),
        sum(part.shown for part in parts),
        unit,
        (*plan.notes, *notes),
        tuple(doubt for doubt in doubts if doubt is not None),
    )


def _times(source: str, parts: list[About], plan: Plan) -> tuple[str | None, list[str]]:
    """The unit of the times of all clicks, and a note about them."""
    if "time" not in plan.columns:
        return None, []
    faults = [part.times for part in parts if isinstance(part.times, str)]
    if faults:
        return None, faults[:1]
    spans = [part.times for part in parts if isinstance(part.times, Span) and part.times.rows]
    name = plain(plan.columns["time"])
    try:
        unit = unit_of(spans)
    except ValueError as error:
        said = f"{name} holds {error}"
        if "time" in plan.given:
            raise InputError(f"{source}: {said}: write it alike in all parts") from None
        return None, [f"{name} is not used: it {said}"]
    if not spans:
        return None, []
    ends = np.array([min(span.first for span in spans), max(span.last for span in spans)])
    return unit, [f"{name} is in {unit}, {spoken(to_seconds(ends, unit))}"]
