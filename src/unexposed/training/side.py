"""Inputs of a training beside the clicks, and what of them training must not see."""

from collections.abc import Set
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks
from unexposed.data.features import Encoding, Features, Role
from unexposed.data.ids import Ids, match
from unexposed.data.labelled import Impressions, Traffic
from unexposed.data.pairs import HasIds, among, pair_keys, same_ids
from unexposed.errors import InputError
from unexposed.sampling.validation import ValidationSet

Parameters = dict[str, NDArray[Any]]
Pairs = TypeVar("Pairs", Impressions, Traffic)

HELD_OUT_FRACTION = 0.1  # of the clicks, when `fit` is given no held-out clicks


@dataclass(frozen=True, eq=False)
class Side:
    """Inputs beside the clicks; a method refuses those it cannot use."""

    exposure: NDArray[Any] | None = None  # known exposure, (n_items,) or (n_users, n_items)
    impressions: Impressions | None = None  # what was shown; of a log that has them, its own
    # shown and not clicked: ranks held-out clicks for the criterion `shown`, teaches nothing
    passed_over: Impressions | None = None
    traffic: Traffic | None = None  # judged under random exposure
    # by raw id, or as rows of users × columns: mapped into the user's exposure
    user_features: Features | NDArray[Any] | None = None
    # by raw id, or as rows of items × columns: mapped into a part of the item's vector
    item_features: Features | NDArray[Any] | None = None
    validation: ValidationSet | None = None  # real random traffic, to guide the exposure
    # parameters of an earlier model, whose users and items come first
    start: Parameters | None = None

    def given(self) -> set[str]:
        return {f.name for f in fields(self) if getattr(self, f.name) is not None}

    def __repr__(self) -> str:
        return f"Side({', '.join(sorted(self.given())) or 'nothing'})"

    def only(self, parts: Set[str]) -> "Side":
        """With these parts alone."""
        return replace(self, **dict.fromkeys(self.given() - parts))

    def aligned(self, like: HasIds) -> "Side":
        """With features as arrays, one row for each user or item of `like`."""
        users = feature_rows(self.user_features, like.user_ids, "user")
        items = feature_rows(self.item_features, like.item_ids, "item")
        return replace(self, user_features=users, item_features=items)

    @property
    def user_rows(self) -> NDArray[Any] | None:
        """Features of users, once `aligned`."""
        return _array(self.user_features)

    @property
    def item_rows(self) -> NDArray[Any] | None:
        """Features of items, once `aligned`."""
        return _array(self.item_features)

    def encodings(self) -> dict[Role, Encoding]:
        """How the features of users and items were encoded, where that is known."""
        given: dict[Role, Any] = {"user": self.user_features, "item": self.item_features}
        return {role: f.encoding for role, f in given.items() if isinstance(f, Features)}

    def check_ids(self, clicks: Clicks) -> None:
        """Refuse pairs of other users and items than the clicks, and traffic without a pair."""
        parts: dict[str, HasIds | None] = {
            "impressions": self.impressions,
            "impressions of passed_over": self.passed_over,
            "random traffic": self.traffic,
        }
        for what, part in parts.items():
            if part is not None and not same_ids(part, clicks):
                raise InputError(
                    f"the {what} must know the same users and items as the clicks, in the same "
                    "order"
                )
        if self.traffic is not None and len(self.traffic) == 0:
            raise InputError("the random traffic holds no pair: give more of it, or none")

    def without_held_out(self, clicks: Clicks, held_out: Clicks) -> "Side":
        """Without impressions that were clicked, unless in the training clicks.

        A held-out click is a shown pair. If training saw it as shown and not clicked, it would
        learn the opposite of the label that is to judge it.
        """
        shown = self.impressions
        if shown is None:
            return self
        unknown = (shown.clicked > 0) & ~clicks.contain(shown.users, shown.items)
        unknown |= held_out.contain(shown.users, shown.items)
        return replace(self, impressions=shown.pick(~unknown))


def _array(features: Features | NDArray[Any] | None) -> NDArray[Any] | None:
    assert not isinstance(features, Features), "`fit` aligns features with the clicks"
    return features


def feature_rows(
    features: Features | NDArray[Any] | None, ids: Ids, role: str
) -> NDArray[np.float32] | None:
    """The features of these users or items as an array of finite numbers."""
    if features is None:
        return None
    if isinstance(features, Features):
        return features.of(ids)
    rows = np.asarray(features)
    if rows.ndim != 2 or len(rows) != len(ids):
        raise InputError(
            f"{role}_features must have a row for each of {len(ids)} {role}s, got shape "
            f"{rows.shape}; read_features makes them from a file"
        )
    if not np.isfinite(rows).all():
        raise InputError(f"{role}_features must be finite numbers")
    return rows.astype(np.float32)


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
