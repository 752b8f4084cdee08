"""What a simulated shop shows: every showing of an item to a user, in the order of time."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unexposed.data.pairs import Indices

START = 1_704_067_200  # midnight of 1 January 2024, UTC
SECONDS = 30 * 24 * 60 * 60  # the log covers thirty days
_MOST_EXPOSED = 1 - 1e-6  # a pair of m = 1 would be shown without end


class Showings(NamedTuple):
    """One row for each time an item was shown to a user, in the order of time."""

    users: Indices
    items: Indices
    clicked: NDArray[np.bool_]
    times: NDArray[np.int64]  # seconds since 1970
    propensity: NDArray[np.float32]  # the chance that the pair is shown at all


class Lots(NamedTuple):
    """A generator for each draw, so that no draw depends on the size of the blocks."""

    first: np.random.Generator  # when a noticed pair was noticed first
    later: np.random.Generator  # the later showings that were noticed
    unnoticed: np.random.Generator
    times: np.random.Generator


class _Pairs(NamedTuple):
    """The pairs of a block that were shown: one entry each."""

    users: NDArray[Any]
    items: NDArray[Any]
    noticed: NDArray[Any]  # times
    shown: NDArray[Any]  # times
    liked: NDArray[np.bool_]
    propensity: NDArray[Any]


class Block(NamedTuple):
    """m, O and R of some users with all items: (len(users), n_items) each."""

    users: NDArray[Any]
    exposure: NDArray[np.float32]
    exposed: NDArray[np.bool_]
    liked: NDArray[np.bool_]


def draw_showings(blocks: Iterable[Block], *, attention: float, lots: Lots) -> Showings:
    """The showings behind a log whose O and R are drawn already.

    A pair is shown N ~ Poisson(μ/a) times, with μ = −log(1 − m), and the user notices each showing
    with chance a, the attention. Shown n times it is exposed with chance 1 − (1 − a)^n, and

        P(O = 1) = 1 − E[(1 − a)^N] = 1 − exp(−μ) = m,    P(N > 0) = 1 − (1 − m)^(1/a).

    A user who likes the item clicks when noticing it for the first time, and not again.
    """
    found = [_shown_pairs(block, attention, lots) for block in blocks]
    return _rows(_Pairs(*map(np.concatenate, zip(*found, strict=True))), lots.times)


def _shown_pairs(block: Block, attention: float, lots: Lots) -> _Pairs:
    exposure = block.exposure.astype(np.float64).clip(max=_MOST_EXPOSED)
    rate = -np.log1p(-exposure)
    # Noticed and unnoticed showings are independent: Poisson(μ) and Poisson(μ(1 − a)/a).
    times = lots.unnoticed.poisson(rate * (1 / attention - 1))
    noticed = np.zeros_like(times)
    # Given O = 1 the first noticed showing of the Poisson process on [0, μ] comes at t with
    # P(t < x) = (1 − exp(−x))/m, and Poisson(μ − t) follow it.
    first = -np.log1p(-lots.first.random(block.exposed.sum()) * exposure[block.exposed])
    noticed[block.exposed] = 1 + lots.later.poisson(rate[block.exposed] - first)
    times += noticed
    at = np.nonzero(times)
    propensity = -np.expm1(-rate[at] / attention)
    return _Pairs(block.users[at[0]], at[1], noticed[at], times[at], block.liked[at], propensity)


def _rows(pairs: _Pairs, lots: np.random.Generator) -> Showings:
    pair = np.repeat(np.arange(len(pairs.shown)), pairs.shown)
    place = np.arange(len(pair)) - np.repeat(np.cumsum(pairs.shown) - pairs.shown, pairs.shown)
    times = START + lots.integers(SECONDS, size=len(pair))
    # times are drawn alike for all showings, so any of them may stand for the noticed ones
    tempting = pairs.liked[pair] & (place < pairs.noticed[pair])
    order = np.argsort(times, kind="stable")
    pair, tempting = pair[order], tempting[order]
    clicked = np.zeros(len(pair), dtype=bool)
    clicked[np.flatnonzero(tempting)[np.unique(pair[tempting], return_index=True)[1]]] = True
    return Showings(
        pairs.users[pair].astype(np.int32),
        pairs.items[pair].astype(np.int32),
        clicked,
        times[order],
        pairs.propensity[pair].astype(np.float32),
    )
