"""Worlds that look like a click log, made from its clicks alone."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit, logit
from scipy.stats import qmc

from unexposed.data.clicks import Clicks
from unexposed.data.worlds.semi_synthetic import fit_exposure
from unexposed.data.worlds.simulate import Factors, Floats, World, centred, user_blocks
from unexposed.errors import InputError

SWEEPS = 8  # of the calibration
STEPS = 7  # of the bisection of a rate
DIM, RIDGE = 10, 5.0
HIGHEST = 12.0  # of a log-odds of exposure: an item that everybody sees


@dataclass(frozen=True)
class Dials:
    """What a log cannot say of itself, and a world must assume."""

    exposed: float  # share of an item's popularity that is due to exposure, not to quality
    relevance_rate: float  # share of all pairs that are relevant
    taste: float  # standard deviation of personal taste, in log-odds
    personal: float  # share of that taste which exposure follows, as under a recommender


LOWEST = Dials(exposed=0.2, relevance_rate=0.05, taste=0.5, personal=0.0)
LARGEST = Dials(exposed=1.0, relevance_rate=0.4, taste=2.0, personal=0.5)


def spread_dials(n: int, *, seed: int, click_rate: float = 0.0) -> list[Dials]:
    """Dials of n worlds, spread evenly between `LOWEST` and `LARGEST` (a Latin hypercube).

    Relevance is at least three times as frequent as a click: else all would have to be seen.
    """
    points = qmc.LatinHypercube(4, rng=np.random.default_rng(seed)).random(n)
    low, high = (np.array(list(vars(dials).values())) for dials in (LOWEST, LARGEST))
    low[1] = min(max(low[1], 3 * click_rate), 0.8)
    high[1] = max(high[1], min(1.5 * low[1], 0.9))
    low[1], high[1] = np.log(low[1]), np.log(high[1])  # rates by their logarithm
    values = low + points * (high - low)
    values[:, 1] = np.exp(values[:, 1])
    return [Dials(*map(float, row)) for row in values]


def fit_clicks(clicks: Clicks, *, seed: int) -> Factors:
    """The log-odds of a click on every pair, by logistic matrix factorisation.

    Vectors are centred, so that biases alone carry activity and popularity.
    """
    if len(clicks) == 0:
        raise InputError("a world needs at least one click")
    rng = np.random.default_rng(seed)
    sizes = clicks.n_users, clicks.n_items
    start = [rng.normal(scale=0.1, size=(n, DIM)).astype(np.float32) for n in sizes]
    found = fit_exposure(clicks.matrix(), *start, ridge=RIDGE)
    users, items = found.user_vectors, found.item_vectors
    return Factors(
        users - users.mean(axis=0),
        items - items.mean(axis=0),
        found.user_bias + users @ items.mean(axis=0),
        found.item_bias + items @ users.mean(axis=0) - users.mean(axis=0) @ items.mean(axis=0),
    )


def disliked_like(log: Clicks, fitted: Factors, dials: Dials) -> Dials:
    """The dials with the rate of relevance that gives a world the dislikes of the log, on average.

    A log that says what was shown says how often it was liked, so no world need assume it. The more
    pairs are relevant, the fewer must be seen to give the clicks, and the fewer are disliked.
    """
    assert log.shown is not None
    n_disliked = int((~log.contain(log.shown.users, log.shown.items)).sum())

    def too_many(odds: float) -> bool:
        found = world_like(log, fitted, replace(dials, relevance_rate=float(expit(odds))))
        seen = sum(
            float((m * (1 - γ)).sum(dtype=np.float64))
            for m, γ in map(found.truth, user_blocks(log.n_users, log.n_items))
        )
        return seen > n_disliked

    low, high = logit(min(max(0.01, len(log) / log.n_users / log.n_items), 0.9)), logit(0.95)
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if too_many(middle) else (low, middle)
    return replace(dials, relevance_rate=float(expit((low + high) / 2)))


def world_like(clicks: Clicks, fitted: Factors, dials: Dials) -> World:
    """A world whose log has the clicks of each user and item that this log has, on average.

        logit γ_ui = taste · t_ui + (1 − exposed) · b_i + constant
        logit m_ui = personal · taste · t_ui + activity_u + shelf_i

    t is the taste that a factor model finds in the clicks, scaled to a deviation of 1, and b the
    log-odds of an item's clicks. Where clicks are m·γ, no log tells how much of b is exposure
    and how much is quality: `exposed` says it. Activity and shelf are then solved for, so that
    Σ_u m_ui·γ_ui is the number of clicks of each item and Σ_i of each user, as near as m ≤ 1
    allows: all worlds have the tail of the log, and differ in what made it.

    The assumption: exposure depends on item, user and taste in this form. A world has no
    season, position or price, and its users do not differ in how much they like. In a log too
    small to show taste, t is what the random start of the factor model left.
    """
    items = fitted.item_vectors / _deviation(fitted)
    quality = (1 - dials.exposed) * (fitted.item_bias - fitted.item_bias.mean())
    zeros = np.zeros(clicks.n_users, dtype=np.float32)
    likes = centred(
        Factors(
            fitted.user_vectors,
            (dials.taste * items).astype(np.float32),
            zeros,
            quality.astype(np.float32),
        ),
        rate=dials.relevance_rate,
        name="relevance_rate",
    )
    sees = Factors(
        fitted.user_vectors,
        (dials.personal * dials.taste * items).astype(np.float32),
        fitted.user_bias,
        fitted.item_bias - quality.astype(np.float32),
    )
    return World(_calibrated(sees, likes, clicks), likes, clicks.user_ids, clicks.item_ids)


def _deviation(fitted: Factors) -> float:
    """The standard deviation of user_vectors · item_vectors over all pairs; both are centred."""
    users, items = fitted.user_vectors, fitted.item_vectors
    square = np.trace((users.T @ users / len(users)) @ (items.T @ items / len(items)))
    return max(float(np.sqrt(square)), 1e-12)


def _calibrated(sees: Factors, likes: Factors, clicks: Clicks) -> Factors:
    """Shift the biases of exposure until users and items have their clicks, on average."""
    # an item without clicks keeps a small chance of one
    of_users, of_items = (np.maximum(n, 0.1) for n in (clicks.user_counts, clicks.item_counts))
    for _ in range(SWEEPS):
        by_item = np.zeros(clicks.n_items)
        for users in user_blocks(clicks.n_users, clicks.n_items):
            like = expit(likes.block(users))
            expected = expit(sees.block(users)) * like
            shift = np.log(of_users[users] / expected.sum(axis=1, dtype=np.float64))
            sees.user_bias[users] = _shifted(sees.user_bias[users], shift)
            by_item += (expit(sees.block(users)) * like).sum(axis=0, dtype=np.float64)
        shifted = _shifted(sees.item_bias, np.log(of_items / by_item))
        sees = sees._replace(item_bias=shifted)
    return sees


def _shifted(bias: Floats, shift: Floats) -> Floats:
    return np.minimum(bias + shift, HIGHEST).astype(np.float32)
