"""The inputs of a training, divided among workers: own users each, and all items."""

from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unexposed import settings
from unexposed.data.clicks import Clicks
from unexposed.data.share import Share, cut
from unexposed.errors import InputError
from unexposed.training.fingerprint import log_fingerprint, side_fingerprint
from unexposed.training.side import Side
from unexposed.workers import Workers

if TYPE_CHECKING:
    from unexposed.model.recommender import Recommender

# parts of Side that are not divided
OF_ALL_USERS = ("impressions", "passed_over", "traffic", "validation", "start")


class Inputs(NamedTuple):
    """What one worker learns from."""

    clicks: Clicks
    held_out: Clicks | None
    side: Side


def check_alone(clicks: Clicks) -> None:
    """Outside a process group, refuse clicks that workers have divided."""
    if clicks.share is not None:
        raise InputError(
            "these clicks are one worker's part of a log: train on them in its process group, or "
            "read the whole log"
        )


def divided(
    method: "Recommender",
    clicks: Clicks,
    held_out: Clicks | None,
    side: Side,
    *,
    seed: int,
    workers: Workers,
) -> Inputs:
    """This worker's part of the inputs: a log that every worker holds whole is cut, others are.

    Workers that were given different things say so.
    """
    for part in OF_ALL_USERS:
        if part in side.given():
            raise InputError(
                f"several workers cannot train with {part}: leave it out, or train in one process"
            )
    workers.check_alike(_known_to_all(method, clicks, held_out, side, seed))
    if clicks.share is None:
        clicks = cut(clicks, workers)
        side = _of_users(side, _share(clicks).users)
    if held_out is not None and held_out.share is None:
        held_out = cut(held_out, workers)
    return Inputs(clicks, held_out, side)


def _share(clicks: Clicks) -> Share:
    assert clicks.share is not None
    return clicks.share


def _known_to_all(
    method: "Recommender", clicks: Clicks, held_out: Clicks | None, side: Side, seed: int
) -> dict[str, Any]:
    """What every worker must have been given alike, hashed where it is large."""
    if clicks.share is not None:
        side = replace(side, user_features=None, exposure=_if_of_items(side.exposure))
    found = {"the method": method.name, **settings.values(method), "the seed": seed}
    found |= _log(clicks) | side_fingerprint(side)
    of_held_out = {} if held_out is None else _log(held_out)
    return found | {f"{name}, held out": value for name, value in of_held_out.items()}


def _log(clicks: Clicks) -> dict[str, Any]:
    if clicks.share is None:
        return log_fingerprint(clicks)
    share = clicks.share
    return {
        "the users of the log": share.n_users,
        "the clicks of the log": share.n_clicks,
        "the clicks of its items": sha256(share.item_counts.tobytes()).hexdigest(),
    }


def _of_users(side: Side, users: NDArray[np.int64]) -> Side:
    """The features and exposures of these users, from those of all users."""
    features, exposure = side.user_rows, side.exposure
    if exposure is not None and np.ndim(exposure) == 2:
        exposure = np.asarray(exposure)[users]
    return replace(
        side, user_features=None if features is None else features[users], exposure=exposure
    )


def _if_of_items(exposure: NDArray[Any] | None) -> NDArray[Any] | None:
    return None if exposure is None or np.ndim(exposure) == 2 else exposure
