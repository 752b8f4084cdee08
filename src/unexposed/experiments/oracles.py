"""Oracles: the true exposure of a world, or a part of it, given to a method.

They say how much there is to learn. Each is a float32 table of users × items or of items, which
`Side.exposure` takes. A table of pairs is allowed here because the worlds of experiments are
small: 3,000 × 3,000 makes 36 MB.
"""

from collections.abc import Callable

import numpy as np

from unexposed.data.worlds.simulate import Floats, World, user_blocks
from unexposed.errors import InputError, did_you_mean
from unexposed.methods import METHODS
from unexposed.model.recommender import Recommender

_LEAST = np.float32(1e-6)  # a table must lie in (0, 1]; a high power can round m to 0


def true(world: World) -> Floats:
    """m of every pair: (users, items)."""
    blocks = [world.exposure(users) for users in user_blocks(world.n_users, world.n_items)]
    return np.concatenate(blocks).clip(_LEAST, 1)


def item_means(world: World) -> Floats:
    """The mean of m over users, which is the same for everyone: (items,)."""
    return true(world).mean(axis=0, dtype=np.float64).astype(np.float32)


def user_level(world: World) -> Floats:
    """What an activity of users and a popularity of items can express: (users, items).

    mean of the user · mean of the item / mean of all, at most 1.
    """
    exposure = true(world)
    by_user, by_item = (exposure.mean(axis=axis, dtype=np.float64) for axis in (1, 0))
    product = by_user.astype(np.float32)[:, None] * (by_item / by_item.mean()).astype(np.float32)
    return product.clip(_LEAST, 1)


ORACLES: dict[str, Callable[[World], Floats]] = {
    "true": true,
    "item_means": item_means,
    "user_level": user_level,
}


def check(name: str, *, method: type[Recommender], knows_truth: bool) -> None:
    """Refuse an oracle that does not exist, or that the method or the data cannot have."""
    if name not in ORACLES:
        raise InputError(f"no exposure {name!r}; {did_you_mean(name, ORACLES)}")
    if "exposure" not in method.takes:
        able = ", ".join(n for n, other in METHODS.items() if "exposure" in other.takes)
        raise InputError(f"{method.name} cannot be given an exposure; these can: {able}")
    if not knows_truth:
        raise InputError(
            f"exposure = {name!r} needs a world whose exposure is known: name semi_synthetic or "
            "simulate in [data]"
        )
