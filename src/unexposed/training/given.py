"""The inputs of a training beside the clicks, and the parameters it learns."""

from collections.abc import Set
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import HasIds
from unexposed.data.encoding import Encoding
from unexposed.data.features import Features, Role
from unexposed.data.ids import Ids
from unexposed.data.shown import Impressions, Traffic
from unexposed.errors import InputError
from unexposed.sampling.validation import ValidationSet

Parameters = dict[str, NDArray[Any]]

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
    start: Parameters | None = (
        None  # parameters of an earlier model, whose users and items come first
    )

    def given(self) -> set[str]:
        return {f.name for f in fields(self) if getattr(self, f.name) is not None}

    def __repr__(self) -> str:
        return f"Side({', '.join(sorted(self.given())) or 'nothing'})"

    def only(self, parts: Set[str]) -> "Side":
        """With these parts alone."""
        return replace(self, **dict.fromkeys(self.given() - parts))

    def aligned(self, like: HasIds) -> "Side":
        """With features as arrays, one row for each user or item of `like`."""
        users = rows_of(self.user_features, like.user_ids, "user")
        items = rows_of(self.item_features, like.item_ids, "item")
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


def _array(features: Features | NDArray[Any] | None) -> NDArray[Any] | None:
    assert not isinstance(features, Features), "`fit` aligns features with the clicks"
    return features


def rows_of(
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
