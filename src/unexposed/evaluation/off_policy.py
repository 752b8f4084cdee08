"""Off-policy estimates: what a logging policy's impressions say about a model's top-k policy.

The log: at each impression a user u came, the logging policy showed an item with the propensity
p = π₀(item | u), and it was clicked (r = 1) or not. The policy to judge shows one of the k items
that the model would recommend to u, each with the chance 1 / k. An impression has the weight

    w = π(item | u) / p,  1 / (k p) for an item in the list, 0 for any other,

and E[w r] is the click rate V of the model's policy, wherever p > 0 for all items of the lists.
Then E[w] = 1: a mean weight far from 1 says that the propensities are not what they claim, or that
the log never shows what the model would.

Impressions are counted by pair, which loses nothing as long as a pair has one propensity.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unexposed.data.ids import match
from unexposed.data.labelled import Impressions
from unexposed.data.pairs import Indices, among, pair_keys, same_ids
from unexposed.errors import InputError
from unexposed.model.model import Model

Values = NDArray[np.float64]


class Estimate(NamedTuple):
    """An estimate of a policy's click rate, and its standard error over impressions."""

    value: float
    standard_error: float

    def to_json(self) -> dict[str, Any]:
        """With a 95 % interval by the normal approximation."""
        value, error = self
        return {"mean": value, "se": error, "ci95": [value - 1.96 * error, value + 1.96 * error]}


@dataclass(frozen=True, eq=False)
class Logged:
    """The impressions of users that the model knows, in its indices."""

    model: Model
    users: Indices  # distinct
    rows: NDArray[np.int64]  # of each pair, the place of its user
    items: Indices  # −1: unknown to the model, which would never show it
    shown: Values
    clicked: Values
    propensity: Values
    unknown_users: int  # left out: the model has no list for them
    trained_on: int  # clicks on pairs that the model was trained on, which its lists leave out

    @property
    def n(self) -> int:
        """Number of impressions."""
        return int(self.shown.sum())

    def weights(self, k: int) -> Values:
        """The weight w of the impressions of each pair under the model's top-k policy."""
        k = min(k, len(self.model.item_ids))
        lists, _ = self.model.top(self.users, k)
        filled = lists >= 0
        n_items = len(self.model.item_ids)
        keys = pair_keys(np.nonzero(filled)[0], lists[filled], n_items)
        keys.sort()
        known = self.items >= 0
        inside = known & among(keys, self.rows, np.where(known, self.items, 0), n_items)
        length = np.maximum(filled.sum(axis=1), 1)[self.rows]  # shorter where few items are left
        return inside / (length * self.propensity)


def logged(model: Model, impressions: Impressions) -> Logged:
    """The impressions in the model's indices; those of unknown users are left out.

    An impression of an unknown item stays: the model would not have shown it.
    """
    if impressions.propensity is None:
        raise InputError(
            "the impressions have no propensities, which off-policy estimates need: name the "
            "column with propensity= (--propensity)"
        )
    users, items = impressions.users, impressions.items
    if not same_ids(impressions, model):
        users = match(impressions.user_ids, model.user_ids)[users]
        items = match(impressions.item_ids, model.item_ids)[items]
    known = users >= 0
    if not known.any():
        raise InputError("the model knows none of the users with impressions")
    users, items = users[known], items[known]
    clicked = impressions.clicked[known].astype(np.float64)
    trained = np.zeros(len(users), dtype=bool)
    there = items >= 0
    trained[there] = model.clicks.contain(users[there], items[there])
    overlap = int(clicked[trained].sum())
    if overlap and overlap == clicked.sum():
        raise InputError(
            "the model was trained on every click among these impressions, and its lists leave "
            "out what it was trained on: give a log that it has not seen"
        )
    distinct, rows = np.unique(users, return_inverse=True)
    return Logged(
        model,
        distinct.astype(np.int32),
        rows,
        items,
        impressions.shown[known].astype(np.float64),
        clicked,
        impressions.propensity[known].astype(np.float64),
        unknown_users=len(np.unique(impressions.users[~known])),
        trained_on=overlap,
    )


def ips(weight: Values, shown: Values, clicked: Values, *, clip: float = math.inf) -> Estimate:
    """V̂ = Σ w r / n, without bias; its variance is the sample variance of w r over n.

    Horvitz and Thompson (1952). `weight` is of each pair, `shown` and `clicked` are its counts. A
    `clip` puts min(w, clip) for w: never more, so biased downwards, with less variance (Ionides
    2008, Strehl et al. 2010).
    """
    weight, n = np.minimum(weight, clip), shown.sum()
    value = float((weight * clicked).sum() / n)
    if n < 2:
        return Estimate(value, math.nan)
    # Σ (w r)² = Σ w² r, since r is 0 or 1
    variance = ((weight**2 * clicked).sum() - n * value**2) / (n - 1) / n
    return Estimate(value, math.sqrt(max(variance, 0.0)))


def snips(weight: Values, shown: Values, clicked: Values) -> Estimate:
    """V̂ = Σ w r / Σ w: a little bias, of order 1/n, for less variance (Swaminathan and Joachims
    2015). A common factor in the propensities cancels.

    Its variance to first order is Σ w² (r − V̂)² / (Σ w)².
    """
    total = (weight * shown).sum()
    if total == 0:
        return Estimate(math.nan, math.nan)
    value = float((weight * clicked).sum() / total)
    square = weight**2
    off = (square * clicked).sum() * (1 - value) ** 2
    off += (square * (shown - clicked)).sum() * value**2
    return Estimate(value, float(np.sqrt(off) / total))


def effective(weight: Values, shown: Values) -> float:
    """Effective sample size (Σ w)² / Σ w²: so many equally weighted impressions say as much."""
    squares = (weight**2 * shown).sum()
    return float((weight * shown).sum() ** 2 / squares) if squares else 0.0


Estimator = Callable[[Values, Values, Values, float], Estimate]  # weight, shown, clicked, clip
ESTIMATORS: dict[str, Estimator] = {
    "ips": lambda weight, shown, clicked, _: ips(weight, shown, clicked),
    "snips": lambda weight, shown, clicked, _: snips(weight, shown, clicked),
    "clipped_ips": lambda weight, shown, clicked, clip: ips(weight, shown, clicked, clip=clip),
}


def per_user(log: Logged, names: Collection[str], *, clip: float) -> dict[str, Values]:
    """Each user's part of every estimate, such as `ips@3`: the mean over users is the estimate."""
    found = {}
    n_users = len(log.users)
    weights = _weights(log, names)
    for text in names:
        name, k = _parse(text)
        weight = np.minimum(weights[k], clip) if name == "clipped_ips" else weights[k]
        gains = np.bincount(log.rows, weight * log.clicked, minlength=n_users)
        divisor = (weight * log.shown).sum() if name == "snips" else log.shown.sum()
        found[text] = gains * n_users / divisor if divisor else np.full(n_users, np.nan)
    return found


def describe(log: Logged, names: Collection[str], *, clip: float) -> dict[str, Any]:
    """Every estimate with its standard error, and how much the weights leave of the log."""
    weights = _weights(log, names)
    every = np.ones(len(log.shown))
    metrics = {}
    for text in names:
        name, k = _parse(text)
        metrics[text] = ESTIMATORS[name](weights[k], log.shown, log.clicked, clip).to_json()
    return {
        "users": len(log.users),
        "metrics": metrics,
        "weights": {str(k): _facts(weight, log, clip) for k, weight in weights.items()},
        "clip": clip,
        "impressions": log.n,
        "clicks": int(log.clicked.sum()),
        "logged_rate": ips(every, log.shown, log.clicked).to_json(),
        "unknown_users": log.unknown_users,
        "clicks_trained_on": log.trained_on,
    }


def _weights(log: Logged, names: Collection[str]) -> dict[int, Values]:
    found = {k: log.weights(k) for k in dict.fromkeys(_parse(text)[1] for text in names)}
    if not any(weight.any() for weight in found.values()):
        raise InputError(
            "the log never shows an item of the model's lists, so it cannot judge them: its "
            "policy must show every item now and then"
        )
    return found


def _facts(weight: Values, log: Logged, clip: float) -> dict[str, float]:
    return {
        "effective_sample": effective(weight, log.shown),
        "mean_weight": float((weight * log.shown).sum() / log.n),
        "largest_weight": float(weight.max()),
        "clipped_share": float(log.shown[weight > clip].sum() / log.n),
    }


def _parse(text: str) -> tuple[str, int]:
    """`ips@3` is ("ips", 3)."""
    name, _, k = text.partition("@")
    if name not in ESTIMATORS or not k.isdecimal() or int(k) < 1:
        raise InputError(
            f"no estimate {text!r}; name one of {', '.join(ESTIMATORS)} and a k, as in 'ips@3'"
        )
    return name, int(k)
