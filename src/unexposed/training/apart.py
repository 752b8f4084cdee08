"""Keep apart what training may be told from what chooses its epoch: impressions, random traffic."""

from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from unexposed.data.clicks import Clicks, HasIds, same_ids
from unexposed.data.ids import match
from unexposed.data.pairs import among, pair_keys
from unexposed.data.shown import Impressions, Traffic
from unexposed.errors import InputError
from unexposed.training.given import Side

Pairs = TypeVar("Pairs", Impressions, Traffic)


def check_ids(side: Side, clicks: Clicks) -> None:
    """Refuse impressions or traffic of other users and items than the clicks; empty traffic too."""
    parts: dict[str, HasIds | None] = {
        "impressions": side.impressions,
        "impressions of passed_over": side.passed_over,
        "random traffic": side.traffic,
    }
    for what, part in parts.items():
        if part is not None and not same_ids(part, clicks):
            raise InputError(
                f"the {what} must know the same users and items as the clicks, in the same order"
            )
    if side.traffic is not None and len(side.traffic) == 0:
        raise InputError("the random traffic holds no pair: give more of it, or none")


def without_held_out(side: Side, clicks: Clicks, held_out: Clicks) -> Side:
    """Drop from the impressions every click that is not one of the training clicks.

    A held-out click is a shown pair. If training saw it as shown and not clicked, it would learn
    the opposite of the label that is to judge it.
    """
    shown = side.impressions
    if shown is None:
        return side
    unknown = (shown.clicked > 0) & ~clicks.contain(shown.users, shown.items)
    unknown |= held_out.contain(shown.users, shown.items)
    return replace(side, impressions=shown.pick(~unknown))


def without_traffic(clicks: Clicks, traffic: Traffic | None) -> Clicks:
    """The clicks on pairs that the traffic does not judge."""
    if traffic is None or len(clicks) == 0:
        return clicks
    return clicks.pick(~among(traffic.keys, clicks.users, clicks.items, clicks.n_items))


def shares(traffic: Traffic, uses: list[str]) -> dict[str, Traffic]:
    """An equal random share of the pairs for each use: no label serves two of them."""
    lot = np.random.default_rng(0).permutation(len(traffic)) % max(1, len(uses))
    return {use: traffic.pick(lot == number) for number, use in enumerate(uses)}


def aligned(pairs: Pairs, like: HasIds) -> Pairs:
    """The pairs whose user and item these ids name, in their indices."""
    users = match(pairs.user_ids, like.user_ids)[pairs.users].astype(np.int32)
    items = match(pairs.item_ids, like.item_ids)[pairs.items].astype(np.int32)
    order = np.argsort(pair_keys(users, items, len(like.item_ids)), kind="stable")
    order = order[((users >= 0) & (items >= 0))[order]]
    own = {"users": users, "items": items}
    columns: dict[str, Any] = {"user_ids": like.user_ids, "item_ids": like.item_ids}
    for field in fields(pairs):
        column = own.get(field.name, getattr(pairs, field.name))
        if isinstance(column, np.ndarray):
            columns[field.name] = column[order]
    return replace(pairs, **columns)
