"""Guides that a log of clicks does not hold: random traffic, or what was shown and disliked.

    traffic:SHARE   this share of all pairs, drawn by lot, with what the user thinks of them
    disliked:SHARE  this share of the shown pairs, clicked or disliked; in a data set of ratings,
                    of the rated pairs, which are disliked below the threshold

In a world they use the draws that made its log; a judged label is drawn anew (`fresh`), so that
no guide tells one.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks
from unexposed.data.labelled import Judgements, Traffic
from unexposed.data.pairs import Indices, pair_keys
from unexposed.data.worlds.simulate import World
from unexposed.errors import InputError, did_you_mean
from unexposed.sampling.validation import ValidationSet

SAID = {"traffic": "random traffic", "disliked": "dislikes"}  # guide → what it tells


def parse(text: str) -> tuple[str, float]:
    """Split a guide into its name and share: `traffic:0.02` is ("traffic", .02)."""
    name, _, share = text.partition(":")
    if name not in SAID:
        raise InputError(f"no guide {name!r}; {did_you_mean(name, SAID)}")
    try:
        value = float(share or 1)
    except ValueError:
        value = -1.0
    if not 0 < value <= 1:
        raise InputError(
            f"the share of a guide must lie in (0, 1], as in '{name}:0.1'; got {text!r}"
        )
    return name, value


def of_world(world: World, text: str, *, seed: int) -> ValidationSet:
    """The guide of this name in the log of a world that the seed draws."""
    name, share = parse(text)
    lots, found, first = np.random.default_rng([seed, 1]), [], 0
    for shown, liked in world.draws(seed):
        taken = lots.random(shown.shape, dtype=np.float32) < share
        if name == "disliked":
            taken &= shown
        users, items = np.nonzero(taken)
        found.append((users + first, items, liked[taken]))
        first += len(shown)
    return _set(*(np.concatenate(column) for column in zip(*found, strict=True)))


def traffic_of_world(world: World, share: float, judged: Judgements, *, seed: int) -> Traffic:
    """A share of the pairs of a world as random traffic for training; no judged pair is in it."""
    found = of_world(world, f"traffic:{share}", seed=seed)
    keys = pair_keys(found.users, found.items, world.n_items)
    told = np.isin(keys, pair_keys(judged.users, judged.items, world.n_items))
    ids = judged.user_ids, judged.item_ids
    return Traffic(found.users, found.items, found.relevant, *ids).pick(~told)


def of_ratings(
    clicks: Clicks, disliked: tuple[Indices, Indices], text: str, *, seed: int
) -> ValidationSet:
    """The training clicks of a log of ratings with its disliked pairs, or a share of both."""
    name, share = parse(text)
    if name != "disliked":
        raise InputError(
            f"guide = {text!r} needs a world: name semi_synthetic or simulate in [data]"
        )
    users = np.concatenate([clicks.users, disliked[0]])
    items = np.concatenate([clicks.items, disliked[1]])
    relevant = np.arange(len(users)) < len(clicks)
    taken = np.random.default_rng([seed, 1]).random(len(users)) < share
    return _set(users[taken], items[taken], relevant[taken])


def _set(users: NDArray[Any], items: NDArray[Any], relevant: NDArray[Any]) -> ValidationSet:
    return ValidationSet(users.astype(np.int32), items.astype(np.int32), relevant.astype(bool))
