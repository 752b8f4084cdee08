"""The inputs of a training beside the clicks, and the parameters it learns."""

from dataclasses import dataclass, fields, replace
from typing import Any

from numpy.typing import NDArray

from unexposed.data.shown import Impressions, Traffic
from unexposed.sampling.validation import ValidationSet

Parameters = dict[str, NDArray[Any]]

HELD_OUT_FRACTION = 0.1  # of the clicks, when `fit` is given no held-out clicks


@dataclass(frozen=True, eq=False)
class Side:
    """Inputs beside the clicks; a method refuses those it cannot use."""

    exposure: NDArray[Any] | None = None  # known exposure, (n_items,) or (n_users, n_items)
    impressions: Impressions | None = None  # what was shown; of a log that has them, its own
    traffic: Traffic | None = None  # judged under random exposure
    user_features: NDArray[Any] | None = None  # (n_users, …), mapped into the user's exposure
    item_features: NDArray[Any] | None = None  # (n_items, …), added to the item's vector
    validation: ValidationSet | None = None  # real random traffic, to guide the exposure
    start: Parameters | None = (
        None  # parameters of an earlier model, whose users and items come first
    )

    def given(self) -> set[str]:
        return {f.name for f in fields(self) if getattr(self, f.name) is not None}

    def only(self, names: frozenset[str]) -> "Side":
        """These inputs alone."""
        return replace(self, **dict.fromkeys(self.given() - names))
