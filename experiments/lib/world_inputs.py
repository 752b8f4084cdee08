"""What only a known world can give an arm: the true exposure, or a guide that no log holds.

    exposure = "true"            an oracle: m of every pair, its item means, or its user level
    guide = "traffic:SHARE"      a validation set: this share of all pairs, drawn by lot
    guide = "disliked:SHARE"     this share of the shown pairs, clicked or disliked; in a data set
                                 of ratings, of the rated pairs, disliked below the threshold

Oracles say how much there is to learn. Each is a float32 table of users × items or of items: the
worlds of experiments are small, 3,000 × 3,000 makes 36 MB.
"""

from collections.abc import Callable

import numpy as np

from unexposed.data.worlds.simulate import Floats, World, user_blocks
from unexposed.errors import InputError, did_you_mean
from unexposed.experiments.data import INPUTS, Data, Input, check_taken, drawn
from unexposed.model.recommender import Recommender
from unexposed.sampling.validation import ValidationSet

_LEAST = np.float32(1e-6)  # a table must lie in (0, 1]; a high power can round m to 0
GUIDES = {"traffic": "random traffic", "disliked": "dislikes"}  # guide → its title


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


def _oracle(data: Data, name: str, _: int) -> dict[str, Floats]:
    return {"exposure": ORACLES[name](data.known_world(f"exposure = {name!r}"))}


def _check_oracle(name: str, method: Recommender, table: dict) -> None:
    if name not in ORACLES:
        raise InputError(f"no exposure {name!r}; {did_you_mean(name, ORACLES)}")
    check_taken("exposure", method, "be given an exposure")
    if "dataset" in table:
        raise InputError(
            f"exposure = {name!r} needs a world whose exposure is known: name semi_synthetic or "
            "simulate in [data]"
        )


def parse(text: str) -> tuple[str, float]:
    """Split a guide into its name and share: `traffic:0.02` is ("traffic", .02)."""
    name, _, share = text.partition(":")
    if name not in GUIDES:
        raise InputError(f"no guide {name!r}; {did_you_mean(name, GUIDES)}")
    try:
        value = float(share or 1)
    except ValueError:
        value = -1.0
    if not 0 < value <= 1:
        raise InputError(
            f"the share of a guide must lie in (0, 1], as in '{name}:0.1'; got {text!r}"
        )
    return name, value


def guide(data: Data, text: str, seed: int) -> ValidationSet:
    """The guide of this name: of a world's log, or of the training clicks of a log of ratings."""
    name, share = parse(text)
    if data.world is not None:
        shown = name == "disliked"
        return ValidationSet(*drawn(data.world, share, seed=data.world_seed, shown=shown))
    if name != "disliked":
        raise InputError(
            f"guide = {text!r} needs a world: name semi_synthetic or simulate in [data]"
        )
    train = data.split(seed).train
    users, items = (
        np.concatenate(pair) for pair in zip((train.users, train.items), data.disliked, strict=True)
    )
    relevant = np.arange(len(users)) < len(train)
    taken = np.random.default_rng([seed, 1]).random(len(users)) < share
    return ValidationSet(
        users[taken].astype(np.int32), items[taken].astype(np.int32), relevant[taken]
    )


def _check_guide(text: str, method: Recommender, _: dict) -> None:
    parse(text)
    check_taken("validation", method, "be given a guide")


INPUTS["exposure"] = Input(str, lambda _: "oracle", _oracle, _check_oracle)
INPUTS["guide"] = Input(
    str,
    lambda text: GUIDES[parse(text)[0]],
    lambda data, text, seed: {"validation": guide(data, text, seed)},
    _check_guide,
)
