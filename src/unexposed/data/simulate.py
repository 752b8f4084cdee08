"""Simulated worlds of known exposure and relevance, and the clicks they log.

A world is stored as factors: no users × items array is ever made, only blocks of users.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

from unexposed.data.clicks import Clicks, Judgements, Split
from unexposed.data.ids import Ids
from unexposed.errors import InputError

Floats = NDArray[np.float32]

_PAIRS_AT_ONCE = 1 << 22


class Factors(NamedTuple):
    """A score for each pair: user_vectors · item_vectors + user_bias + item_bias."""

    user_vectors: Floats  # (n_users, dim)
    item_vectors: Floats  # (n_items, dim)
    user_bias: Floats  # (n_users,)
    item_bias: Floats  # (n_items,)

    def block(self, users: NDArray[Any] | slice) -> Floats:
        """The scores of these users: (len(users), n_items)."""
        scores = self.user_vectors[users] @ self.item_vectors.T
        scores += self.user_bias[users][:, None]
        scores += self.item_bias
        return scores


class Truth(NamedTuple):
    """Exposure and relevance of some users, which no log shows: (len(users), n_items) each."""

    exposure: Floats
    relevance: Floats


@dataclass(frozen=True, eq=False)
class World:
    """The chance that each item is shown to each user, and that the user would like it.

    m = σ(exposure score)^power,  γ = σ(relevance score, kept within its range).
    """

    exposure_factors: Factors
    relevance_factors: Factors
    user_ids: Ids
    item_ids: Ids
    exposure_power: float = 1.0
    relevance_range: tuple[float, float] = (-np.inf, np.inf)

    @property
    def n_users(self) -> int:
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        return len(self.item_ids)

    def exposure(self, users: NDArray[Any]) -> Floats:
        """m of these users with all items."""
        return expit(self.exposure_factors.block(users)) ** np.float32(self.exposure_power)

    def relevance(self, users: NDArray[Any]) -> Floats:
        """γ of these users with all items."""
        return expit(self.relevance_factors.block(users).clip(*self.relevance_range))

    def truth(self, users: NDArray[Any]) -> Truth:
        """m and γ of these users with all items."""
        return Truth(self.exposure(users), self.relevance(users))

    def clicks(self, seed: int) -> Clicks:
        """A log of this world: click = O·R, with O ~ Bern(m) and R ~ Bern(γ)."""
        return self._log([sp.csr_array(shown & liked) for shown, liked in self.draws(seed)])

    def split(
        self, *, seed: int, held_out: float = 0.1, judged_per_user: int = 20, fresh: bool = False
    ) -> Split:
        """The clicks of this seed, a part of them held out, and the labels of a random experiment.

        For each user the judged items are a uniform sample of all items, with the R that also
        made the clicks. So an item may be both clicked and judged, as it may be in Coat; leaving
        the clicked ones out would favour items of low exposure, since among the unclicked
        P(R = 1) = γ(1 − m)/(1 − mγ). The price: whoever remembers the clicks knows some answers.
        With `fresh` labels there is no such price: R is drawn anew, as if a user were asked on
        another day.
        """
        if not 1 <= judged_per_user <= self.n_items:
            raise InputError(
                f"judged_per_user must be between 1 and {self.n_items} items, got {judged_per_user}"
            )
        _, _, lots, anew = _streams(seed)
        clicked, judged, relevant, done = [], [], [], 0
        for shown, liked in self.draws(seed):
            clicked.append(sp.csr_array(shown & liked))
            order = lots.random(liked.shape, dtype=np.float32)
            drawn = np.argpartition(order, judged_per_user - 1)[:, :judged_per_user]
            judged.append(drawn.copy())  # a view would keep the whole block
            if fresh:
                users = np.arange(done, done + len(liked))
                chance = np.take_along_axis(self.relevance(users), judged[-1], axis=1)
                relevant.append(anew.random(chance.shape, dtype=np.float32) < chance)
            else:
                relevant.append(np.take_along_axis(liked, judged[-1], axis=1))
            done += len(liked)
        judgements = Judgements.from_pairs(
            np.repeat(np.arange(self.n_users), judged_per_user),
            np.concatenate(judged).ravel(),
            np.concatenate(relevant).ravel(),
            user_ids=self.user_ids,
            item_ids=self.item_ids,
        )
        return Split(*self._log(clicked).hold_out(fraction=held_out, seed=seed), judgements)

    def draws(self, seed: int) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
        """O and R of the log that the seed draws, a block of users at a time."""
        exposed, relevant, _, _ = _streams(seed)
        for users in user_blocks(self.n_users, self.n_items):
            exposure, relevance = self.truth(users)
            yield (
                exposed.random(exposure.shape, dtype=np.float32) < exposure,
                relevant.random(relevance.shape, dtype=np.float32) < relevance,
            )

    def _log(self, blocks: list[sp.csr_array]) -> Clicks:
        pairs = sp.vstack(blocks, format="coo")
        return Clicks.from_pairs(
            pairs.row, pairs.col, user_ids=self.user_ids, item_ids=self.item_ids
        )


def _streams(seed: int) -> list[np.random.Generator]:
    """Generators for O, R, the judged items and fresh labels: independent of each other."""
    return [np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(4)]


def world(
    n_users: int = 500,
    n_items: int = 200,
    *,
    dim: int = 4,
    popularity_bias: float = 0.7,
    relevance_bias: float = 0.3,
    exposure_rate: float = 0.2,
    relevance_rate: float = 0.2,
    seed: int = 0,
) -> World:
    """A made-up world, with two dials for what decides who sees what.

        logit γ_ui = taste_uᵀ taste_i + quality_i + generosity_u + constant
        logit m_ui = −popularity_bias · log rank_i + relevance_bias · logit γ_ui
                     + activity_u + constant

    The rank of an item is drawn by lot, whatever its quality: it stands for shelf space,
    advertising, being first. So `popularity_bias` is how far exposure follows a long tail (Zipf's
    law at 1) that says nothing of relevance, and `relevance_bias` how far it follows relevance
    itself, as under a recommender that works. With both at 0 a user is as likely to see any item
    as any other. The constants make the means of m and γ over all pairs the two rates asked for
    (in a large world: over its first users).
    """
    for name, size in {"n_users": n_users, "n_items": n_items, "dim": dim}.items():
        if size < 1:
            raise InputError(f"{name} must be at least 1, got {size}")
        if size >= 2**31:  # an index has 32 bits
            raise InputError(f"{name} must be at most {2**31 - 1}, got {size}")
    for name, dial in {
        "popularity_bias": popularity_bias,
        "relevance_bias": relevance_bias,
    }.items():
        if not 0 <= dial <= 1:
            raise InputError(f"{name} must lie in [0, 1], got {dial}")
    rng = np.random.default_rng(seed)
    likes = centred(
        Factors(
            normal(rng, (n_users, dim), deviation=1.0),
            normal(rng, (n_items, dim), deviation=1.5 / dim**0.5),
            normal(rng, (n_users,), deviation=0.5),
            normal(rng, (n_items,), deviation=0.75),
        ),
        rate=relevance_rate,
        name="relevance_rate",
    )
    rank = 1 + rng.permutation(n_items)
    activity = normal(rng, (n_users,), deviation=0.5)
    sees = centred(
        Factors(
            likes.user_vectors,
            np.float32(relevance_bias) * likes.item_vectors,
            np.float32(relevance_bias) * likes.user_bias + activity,
            (relevance_bias * likes.item_bias - popularity_bias * np.log(rank)).astype(np.float32),
        ),
        rate=exposure_rate,
        name="exposure_rate",
    )
    return World(sees, likes, Ids.range(n_users), Ids.range(n_items))


def user_blocks(n_users: int, n_items: int) -> Iterator[NDArray[Any]]:
    """The users in blocks whose pairs with all items fit into memory."""
    size = max(1, _PAIRS_AT_ONCE // n_items)
    for start in range(0, n_users, size):
        yield np.arange(start, min(start + size, n_users))


def normal(rng: np.random.Generator, shape: tuple[int, ...], *, deviation: float) -> Floats:
    """Draws from a normal distribution around 0."""
    return rng.normal(scale=deviation, size=shape).astype(np.float32)


def centred(factors: Factors, *, rate: float, name: str) -> Factors:
    """The factors with a constant added that makes the mean of σ(score) this rate."""
    if not 0 < rate < 1:
        raise InputError(f"{name} must lie between 0 and 1, got {rate}")
    scores = factors.block(next(user_blocks(len(factors.user_bias), len(factors.item_bias))))
    constant = brentq(lambda c: float(expit(scores + np.float32(c)).mean()) - rate, -60, 60)
    return factors._replace(user_bias=factors.user_bias + np.float32(constant))
