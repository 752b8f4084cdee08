"""Whether a model is better than the popular list: differences over users, and plain words."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from unexposed.cards import number, signed
from unexposed.data import over_ranks
from unexposed.data.clicks import Clicks
from unexposed.ranking import metrics
from unexposed.ranking.blocks import Scores
from unexposed.ranking.held_out import Criterion, quality, ranked

RIVAL = "popularity"
CHANCE = 0.05  # a p-value above it may be chance
FEWEST = 10  # users, for a t-test that says anything
K = 10

Finding = Literal["above", "below", "chance"]
HOW: dict[Finding, str] = {
    "above": "above",
    "below": "below",
    "chance": "not clearly different from",
}
# the readings of held-out clicks, by their name in a model's facts
READINGS = {"clicks": f"NDCG@{K}", "weighed": "with popular items weighed down"}

BEFORE = (
    "do not put it into production before judged pairs (unexposed evaluate) or a test with real "
    "users show a gain"
)
BY_READING = (
    "held-out clicks are on items that were shown, mostly popular ones, so before production "
    "judged pairs (unexposed evaluate) or a test with real users must decide"
)
NO_SIGN = "nothing here says that it is better than the popular list"


@dataclass(frozen=True)
class Gain:
    """The mean over users of a model and of its rival, and the interval and test of the difference.

    The interval holds 95 %; p is the chance of a difference as large if none were real.
    """

    mean: float
    rival: float
    low: float
    high: float
    p: float
    users: int

    @property
    def difference(self) -> float:
        return self.mean - self.rival

    @property
    def finding(self) -> Finding:
        if self.p > CHANCE or self.difference == 0:
            return "chance"
        return "above" if self.difference > 0 else "below"

    def to_json(self) -> dict[str, Any]:
        return {
            "mean": self.mean,
            RIVAL: self.rival,
            "difference": self.difference,
            "ci95": [self.low, self.high],
            "p_value": self.p,
            "users": self.users,
            "finding": self.finding,
        }

    @staticmethod
    def from_json(said: Mapping[str, Any]) -> "Gain":
        """Read what `to_json` wrote; difference and finding follow from the rest."""
        low, high = said["ci95"]
        return Gain(said["mean"], said[RIVAL], low, high, said["p_value"], said["users"])

    def __str__(self) -> str:
        size = f"{signed(self.difference)} [{number(self.low)}, {number(self.high)}]"
        more = "no more" if self.finding == "chance" else "more"
        return f"{number(self.mean)} against {number(self.rival)}, {size}, {more} than chance"


@dataclass(frozen=True)
class Verdict:
    """One sentence on a model beside its rival, and whether it is a warning."""

    text: str
    warns: bool

    def __str__(self) -> str:
        return f"warning: {self.text}" if self.warns else self.text


def gain(model: ArrayLike, rival: ArrayLike) -> Gain | None:
    """Compare the values of the same users by a paired t-test; None for too few users of all ranks.

    t = d̄ / (s / √n) with n − 1 degrees of freedom, of the differences d.
    """
    ours, theirs = np.asarray(model, dtype=np.float64), np.asarray(rival, dtype=np.float64)
    if over_ranks.count(len(ours)) < FEWEST:
        return None
    (n, mean, deviation), own, other = over_ranks.moments(ours - theirs, ours, theirs, ddof=1)
    error = float(deviation / np.sqrt(n))
    half = float(stdtrit(n - 1, 0.975)) * error
    p = float(2 * stdtr(n - 1, -abs(mean) / error)) if error else float(mean == 0)
    return Gain(own.mean, other.mean, mean - half, mean + half, p, n)


def on_held_out(
    model: Scores, popular: Scores, clicks: Clicks, held_out: Clicks, by: Criterion
) -> dict[str, Any]:
    """The gain on held-out clicks, each click alike and by this criterion, as a fact of a model.

    A criterion that does not weigh popular items down adds nothing to the first reading.
    """
    both = (model, popular)
    alike = replace(by, draw="all")
    rankings = [ranked(scores, clicks, held_out, alike) for scores in both]
    found = {"clicks": gain(*(metrics.ndcg(ranking, K) for ranking in rankings))}
    if by.draw != "all":
        rankings = [ranked(scores, clicks, held_out, by) for scores in both]
    if by.exponent > -1 or by.draw != "all":
        found["weighed"] = gain(*(quality(ranking, by) for ranking in rankings))
    said = {name: one.to_json() for name, one in found.items() if one is not None}
    return {RIVAL: said} if said else {}


def of_facts(method: str, facts: Mapping[str, Any]) -> Verdict | None:
    """The verdict on held-out clicks from a model's facts; None where they hold none."""
    said = facts.get("verdict", {}).get(RIVAL, {})
    gains = {n: Gain.from_json(said[n]) for n in READINGS if n in said}
    if not gains:
        return None
    return verdict(method, gains, where="on held-out clicks", readings=READINGS)


def verdict(
    method: str, gains: Mapping[str, Gain], *, where: str, readings: Mapping[str, str]
) -> Verdict:
    """Say by every reading whether the method is above its rival; a loss by any is a warning."""
    (first, leading), *others = gains.items()
    text = f"{where} {method} is {HOW[leading.finding]} {RIVAL}: {readings[first]} {leading}"
    for name, one in others:
        text += f"; {readings[name]} it is {HOW[one.finding].removesuffix(' from')}: {one}"
    findings = {one.finding for one in gains.values()}
    if "below" in findings:
        return Verdict(f"{text}; {BY_READING if 'above' in findings else BEFORE}", warns=True)
    return Verdict(f"{text}; {NO_SIGN}" if findings == {"chance"} else text, warns=False)
