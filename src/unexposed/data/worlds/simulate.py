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

from unexposed.cards import Card, HasCard
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.data.labelled import Impressions, Judgements, Traffic
from unexposed.data.pairs import Indices
from unexposed.data.split import Split
from unexposed.errors import InputError

Floats = NDArray[np.float32]

_PAIRS_AT_ONCE = 1 << 22
START = 1_704_067_200  # midnight of 1 January 2024, UTC
SECONDS = 30 * 24 * 60 * 60  # the log covers thirty days
_MOST_EXPOSED = 1 - 1e-6  # a pair of m = 1 would be shown without end


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


class Showings(NamedTuple):
    """One row for each time an item was shown to a user, in the order of time."""

    users: Indices
    items: Indices
    clicked: NDArray[np.bool_]
    times: NDArray[np.int64]  # seconds since 1970
    propensity: NDArray[np.float32]  # the chance that the pair is shown at all


@dataclass(frozen=True, eq=False)
class World(HasCard):
    """The chance that each item is shown to each user, and that the user would like it.

    m = σ(exposure score)^power,  γ = σ(relevance score, kept within its range).

    m is the chance that the user notices the item, however often it is shown; `attention` is the
    chance that one showing is noticed, which only the impressions tell.
    """

    exposure_factors: Factors
    relevance_factors: Factors
    user_ids: Ids
    item_ids: Ids
    exposure_power: float = 1.0
    relevance_range: tuple[float, float] = (-np.inf, np.inf)
    attention: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.attention <= 1:
            raise InputError(f"attention must lie in (0, 1], got {self.attention}")

    def __repr__(self) -> str:
        return f"World({self.n_users:,} users, {self.n_items:,} items)"

    def card(self) -> Card:
        """Sizes, and exposure and relevance on average over the first users."""
        truth = self.truth(np.arange(min(self.n_users, 100)))
        means = {name: float(values.mean()) for name, values in truth._asdict().items()}
        facts = {f"mean {name}": mean for name, mean in means.items()}
        return Card(f"World: {self.n_users:,} users, {self.n_items:,} items", facts)

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
        return self._clicks([sp.csr_array(shown & liked) for shown, liked in self.draws(seed)])

    def disliked(self, seed: int) -> Impressions:
        """The pairs that were noticed in the log of this seed and not liked."""
        drawn = [sp.csr_array(shown & ~liked) for shown, liked in self.draws(seed)]
        pairs = sp.vstack(drawn, format="coo")
        return Impressions.from_pairs(
            pairs.row, pairs.col, user_ids=self.user_ids, item_ids=self.item_ids
        )

    def log(self, seed: int) -> Clicks:
        """The clicks of this seed with their times and all impressions."""
        rows = self.showings(seed)
        shown = Impressions.from_pairs(
            rows.users,
            rows.items,
            clicked=rows.clicked,
            propensity=rows.propensity,
            user_ids=self.user_ids,
            item_ids=self.item_ids,
        )
        return Clicks.from_pairs(
            rows.users[rows.clicked],
            rows.items[rows.clicked],
            times=rows.times[rows.clicked],
            user_ids=self.user_ids,
            item_ids=self.item_ids,
            shown=shown,
        )

    def showings(self, seed: int) -> Showings:
        """Every showing behind the clicks of this seed, as a shop would log it."""
        *lots, times = _streams(seed)[4:8]
        found = []
        for users, (exposed, liked) in zip(self._blocks(), self.draws(seed), strict=True):
            rows, items, *counts = draw_showings(
                self.exposure(users), exposed, self.attention, lots
            )
            found.append((users[rows], items, *counts, liked[rows, items]))
        return _in_time(*map(np.concatenate, zip(*found, strict=True)), lots=times)

    def traffic(self, share: float, *, seed: int, without: Judgements | None = None) -> Traffic:
        """About this share of all pairs, shown by lot, with the R that made the clicks of the seed.

        Pairs among the judgements `without` are not drawn, so that training on this traffic tells
        nothing of them.
        """
        left_out = 0 if without is None else len(without) / (self.n_users * self.n_items)
        if not 0 < share <= 1 - left_out:
            beside = " beside the judged pairs" if left_out else ""
            raise InputError(
                f"the share of traffic must lie above 0, at most {1 - left_out:g}{beside}, "
                f"got {share}"
            )
        lots, found = _streams(seed)[8], []
        for users, (_, liked) in zip(self._blocks(), self.draws(seed), strict=True):
            taken = lots.random(liked.shape, dtype=np.float32) < share / (1 - left_out)
            if without is not None:
                judged = slice(*np.searchsorted(without.users, [users[0], users[-1] + 1]))
                taken[without.users[judged] - users[0], without.items[judged]] = False
            rows, items = np.nonzero(taken)
            found.append((users[rows], items, liked[taken]))
        drawn, items, relevant = map(np.concatenate, zip(*found, strict=True))
        pairs = drawn.astype(np.int32), items.astype(np.int32)
        return Traffic(*pairs, relevant, self.user_ids, self.item_ids)

    def split(
        self,
        *,
        seed: int,
        held_out: float = 0.1,
        judged_per_user: int = 20,
        fresh: bool = False,
        impressions: bool = False,
    ) -> Split:
        """The clicks of this seed, a part of them held out, and the labels of a random experiment.

        For each user the judged items are a uniform sample of all items, with the R that also
        made the clicks. So an item may be both clicked and judged, as it may be in Coat; leaving
        the clicked ones out would favour items of low exposure, since among the unclicked
        P(R = 1) = γ(1 − m)/(1 − mγ). The price: whoever remembers the clicks knows some answers.
        With `fresh` labels there is no such price: R is drawn anew, as if a user were asked on
        another day. With `impressions` the clicks hold all that was shown.
        """
        if not 1 <= judged_per_user <= self.n_items:
            raise InputError(
                f"judged_per_user must be between 1 and {self.n_items} items, got {judged_per_user}"
            )
        lots, anew = _streams(seed)[2:4]
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
        clicks = self.log(seed) if impressions else self._clicks(clicked)
        return Split(*clicks.hold_out(fraction=held_out, seed=seed), judgements)

    def draws(self, seed: int) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
        """O and R of the log that the seed draws, a block of users at a time."""
        exposed, relevant = _streams(seed)[:2]
        for users in self._blocks():
            exposure, relevance = self.truth(users)
            yield (
                exposed.random(exposure.shape, dtype=np.float32) < exposure,
                relevant.random(relevance.shape, dtype=np.float32) < relevance,
            )

    def _blocks(self) -> Iterator[NDArray[Any]]:
        return user_blocks(self.n_users, self.n_items)

    def _clicks(self, blocks: list[sp.csr_array]) -> Clicks:
        pairs = sp.vstack(blocks, format="coo")
        return Clicks.from_pairs(
            pairs.row, pairs.col, user_ids=self.user_ids, item_ids=self.item_ids
        )


def _streams(seed: int) -> list[np.random.Generator]:
    """Generators for O, R, judged items, fresh labels, showings (4 of them) and traffic.

    They are independent of each other. A new one goes to the end, since the others keep their bits.
    """
    return [np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(9)]


def world(
    n_users: int = 500,
    n_items: int = 200,
    *,
    dim: int = 4,
    popularity_bias: float = 0.7,
    relevance_bias: float = 0.3,
    exposure_rate: float = 0.2,
    relevance_rate: float = 0.2,
    attention: float = 0.5,
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
    (in a large world: over its first users). `attention` is the chance that one showing is noticed.
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
    return World(sees, likes, Ids.range(n_users), Ids.range(n_items), attention=attention)


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


# What a simulated shop shows: every showing of an item to a user


def draw_showings(
    exposure: Floats, exposed: NDArray[np.bool_], attention: float, lots: list[np.random.Generator]
) -> tuple[NDArray[Any], ...]:
    """The pairs of a block of users that were shown, behind a log whose O and R are drawn already.

    Gives the row and the column of each, how often it was noticed and shown, and its propensity.
    A pair is shown N ~ Poisson(μ/a) times, with μ = −log(1 − m), and the user notices each showing
    with chance a, the attention. Shown n times it is exposed with chance 1 − (1 − a)^n, and

        P(O = 1) = 1 − E[(1 − a)^N] = 1 − exp(−μ) = m,    P(N > 0) = 1 − (1 − m)^(1/a).
    """
    first_lots, later_lots, unnoticed_lots = lots
    m = exposure.astype(np.float64).clip(max=_MOST_EXPOSED)
    rate = -np.log1p(-m)
    # Noticed and unnoticed showings are independent: Poisson(μ) and Poisson(μ(1 − a)/a).
    times = unnoticed_lots.poisson(rate * (1 / attention - 1))
    noticed = np.zeros_like(times)
    # Given O = 1 the first noticed showing of the Poisson process on [0, μ] comes at t with
    # P(t < x) = (1 − exp(−x))/m, and Poisson(μ − t) follow it.
    first = -np.log1p(-first_lots.random(exposed.sum()) * m[exposed])
    noticed[exposed] = 1 + later_lots.poisson(rate[exposed] - first)
    times += noticed
    at = np.nonzero(times)
    return *at, noticed[at], times[at], -np.expm1(-rate[at] / attention)


def _in_time(
    users: NDArray[Any],
    items: NDArray[Any],
    noticed: NDArray[Any],
    shown: NDArray[Any],
    propensity: NDArray[Any],
    liked: NDArray[np.bool_],
    *,
    lots: np.random.Generator,
) -> Showings:
    """A row for each showing of these pairs, in the order of time.

    A user who likes an item clicks when noticing it for the first time, and not again.
    """
    pair = np.repeat(np.arange(len(shown)), shown)
    place = np.arange(len(pair)) - np.repeat(np.cumsum(shown) - shown, shown)
    times = START + lots.integers(SECONDS, size=len(pair))
    # times are drawn alike for all showings, so any of them may stand for the noticed ones
    tempting = liked[pair] & (place < noticed[pair])
    order = np.argsort(times, kind="stable")
    pair, tempting = pair[order], tempting[order]
    clicked = np.zeros(len(pair), dtype=bool)
    clicked[np.flatnonzero(tempting)[np.unique(pair[tempting], return_index=True)[1]]] = True
    return Showings(
        users[pair].astype(np.int32),
        items[pair].astype(np.int32),
        clicked,
        times[order],
        propensity[pair].astype(np.float32),
    )
