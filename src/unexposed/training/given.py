"""What a training is given beside the clicks, and what it gives."""

from dataclasses import dataclass, fields
from typing import Any

from numpy.typing import NDArray

from unexposed.sampling.validation import ValidationSet

Parameters = dict[str, NDArray[Any]]

HELD_OUT_FRACTION = 0.1  # of the clicks, when `fit` is given no held-out clicks


@dataclass(frozen=True, eq=False)
class Side:
    """What a method may be given beside the clicks; one that cannot use a part refuses it."""

    exposure: NDArray[Any] | None = None  # known exposure, (n_items,) or (n_users, n_items)
    user_features: NDArray[Any] | None = None  # (n_users, …), mapped into the user's exposure
    validation: ValidationSet | None = None  # real random traffic, to guide the exposure
    start: Parameters | None = None  # of an earlier model, whose users and items come first

    def given(self) -> set[str]:
        return {f.name for f in fields(self) if getattr(self, f.name) is not None}
