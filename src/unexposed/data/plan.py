"""Which column of a log is taken for what, and which rows are clicks, decided before reading it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from unexposed.data.columns import Columns, Table, named, no_column, pair_names, refuse_twice
from unexposed.data.values import limit_of, texts
from unexposed.errors import InputError, did_you_mean, plain

FEW = 10  # values of an event column that a sentence lists
BELOW = "below"  # shown=below: a rating below the threshold is an impression
RULES = ("rating", "click", "event")  # columns that tell clicks from other rows; at most one


@dataclass(frozen=True)
class Plan:
    """The columns to read, by role, and what makes a row a click or an impression."""

    columns: dict[str, str]
    limit: float | None = None  # of ratings
    assumed: bool = False  # whether nobody gave the limit
    clicks: tuple[str, ...] = ()  # values of the event column; none: every row is a click
    shown: tuple[str, ...] = ()
    given: frozenset[str] = frozenset()  # roles whose column the caller named
    notes: tuple[str, ...] = ()

    @property
    def rule(self) -> str:
        """What is a click, in words."""
        role = next((role for role in RULES if role in self.columns), None)
        name = plain(self.columns.get(role or "", ""))
        if role == "rating":
            lower = ", every other row an impression" if self.shown else ""
            return f"a click is {name} ≥ {self.limit:g}{lower}"
        if role == "click":
            return f"a click is {name} = 1, every other row an impression"
        if role is None or not self.clicks:
            return "every row is a click"
        shown = f", an impression {name} = {_either(self.shown)}" if self.shown else ""
        return f"a click is {name} = {_either(self.clicks)}{shown}"


def plan_of(table: Table, asked: Columns) -> Plan:
    """The plan for a table; refused where it would be a guess."""
    limit = limit_of(asked.threshold)
    user, item = pair_names(table, asked.user, asked.item)
    rule = _rule(table, asked, {user, item})
    columns = {"user": user, "item": item} | rule.columns
    for role in ("count", "time", "propensity"):
        given, taken = getattr(asked, role), set(columns.values())
        if (name := named(table, role, given, needed=bool(given), taken=taken)) is not None:
            columns[role] = name
    refuse_twice(table, dict(columns))
    by_rating, taken = "rating" in rule.columns, set(columns.values())
    unused = [  # columns that might have told clicks from other rows
        named(table, role, None, needed=False, taken=taken)
        for role in RULES
        if role not in columns and getattr(asked, role) is None
    ]
    return Plan(
        columns,
        limit=limit if by_rating else None,
        assumed=by_rating and asked.threshold is None,
        clicks=rule.clicks,
        shown=rule.shown,
        given=frozenset(role for role in columns if getattr(asked, role, None)),
        notes=(*rule.notes, *(f"{plain(name)} is not used" for name in unused if name)),
    )


def _rule(table: Table, asked: Columns, taken: set[str]) -> Plan:
    """What tells clicks from other rows: a rating, a click column, an event column or nothing."""
    below = asked.shown == BELOW and not asked.click and not asked.event
    by_event = bool(asked.click or asked.event or (asked.shown and not below))
    if asked.rating or asked.threshold is not None or below:
        if by_event:
            raise InputError(
                "rating= and threshold= exclude click=, event= and shown=, unless shown=below: "
                "give one or the other"
            )
        rating = named(table, "rating", asked.rating or None, taken=taken)
        return Plan({"rating": str(rating)}, shown=(BELOW,) if below else ())
    event = named(table, "event", asked.event, needed=bool(asked.event), taken=taken)
    if asked.click and not asked.event and asked.click in table.columns:
        if asked.shown:
            raise InputError(
                f"shown= (--shown) names values of an event column, and {asked.click!r} is a "
                "click column, whose zeros are the impressions: give event= (--event), or no shown="
            )
        return Plan({"click": str(asked.click)})
    if asked.click or asked.shown:
        return _by_event(table, asked, event)
    values = Counter[str]()
    for part in table.parts() if event is not None else ():
        values.update(tally(texts(part.take([str(event)])[0])))
    if len(values) > 1:
        raise InputError(
            f"{table.name}: column {event!r} holds {_listed(values)}; say which are clicks and "
            "which only say that the item was shown, such as --click purchase --shown "
            "view,impression (in Python click=, shown=), or --event '' to take every row"
        )
    no_click = asked.click if isinstance(asked.click, str) else None
    if (click := named(table, "click", no_click, needed=False, taken=taken)) is not None:
        return Plan({"click": click})
    if event is not None:
        notes = tuple(f"{plain(event)} is always {plain(value, 40)}" for value in values)
        return Plan({"event": event}, notes=notes)
    found = named(table, "rating", asked.rating, needed=False, taken=taken)
    return Plan({} if found is None else {"rating": found})


def _by_event(table: Table, asked: Columns, event: str | None) -> Plan:
    clicks, shown = values_of(asked.click), values_of(asked.shown)
    if not clicks:
        raise InputError("shown= (--shown) needs click= (--click): which events are clicks?")
    if event is None:
        if len(clicks) == 1 and not shown:
            raise no_column(table, "click", clicks[0])
        near = plain(did_you_mean("event", table.columns), 200)
        raise InputError(
            f"{table.name} has no event column ({near}), whose values click= and shown= name: "
            "name it with event= (--event)"
        )
    if both := set(clicks) & set(shown):
        raise InputError(f"{min(both)!r} is named by click= and by shown=: give it once")
    return Plan({"event": event}, clicks=clicks, shown=shown)


def values_of(given: str | Iterable[str] | None) -> tuple[str, ...]:
    """Values of an event column: separated by commas, or one by one."""
    parts = given.split(",") if isinstance(given, str) else [str(v) for v in given or ()]
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))


def other_events(table_name: str, plan: Plan, found: Counter[str]) -> str | None:
    """The sentence about events that are neither clicks nor impressions, if there are any."""
    if plan.clicks and not any(value in found for value in plan.clicks):
        raise InputError(
            f"{table_name}: no {plain(plan.columns['event'])} is {_either(plan.clicks)}, which "
            f"click= (--click) names; it holds {_listed(found)}"
        )
    others = Counter({v: n for v, n in found.items() if v not in (*plan.clicks, *plan.shown)})
    if not plan.clicks or not others:
        return None
    return f"dropped {_listed(others)}, which neither click= nor shown= names"


def tally(values: pl.Series) -> Counter[str]:
    """How often each text comes."""
    counted = values.value_counts(sort=True, name="\0")
    return Counter(dict(zip(*counted.get_columns(), strict=True)))


def _listed(values: Counter[str]) -> str:
    """Values with how often each comes, the commonest first."""
    most = [f"{plain(v, 40) or 'nothing'} ({n:,})" for v, n in values.most_common(FEW)]
    more = f" and {len(values) - FEW:,} other values" if len(values) > FEW else ""
    return ", ".join(most) + more


def _either(values: tuple[str, ...]) -> str:
    return " or ".join(plain(value, 40) for value in values)
