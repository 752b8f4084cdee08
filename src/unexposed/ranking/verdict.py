"""Whether a model is better than the popular list and `mf`: differences over users, in words."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr, stdtrit

from unexposed.cards import Card, Shown, number, signed
from unexposed.data import over_ranks
from unexposed.data.clicks import Clicks
from unexposed.ranking import metrics
from unexposed.ranking.blocks import Scores
from unexposed.ranking.held_out import Criterion, quality, ranked

RIVAL = "popularity"
RIVALS = {RIVAL: "the popular list", "mf": "mf"}  # that a model stands beside, and in a sentence
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

BEFORE = {
    RIVAL: "do not put it into production before judged pairs (unexposed evaluate) or a test with "
    "real users show a gain",
    "mf": "mf is simpler: take it instead, unless a test with real users shows a gain",
}
BY_READING = (
    "held-out clicks are on items that were shown, mostly popular ones, so before production "
    "judged pairs (unexposed evaluate) or a test with real users must decide"
)
NO_SIGN = "nothing here says that it is better than"

Rivals = Mapping[str, Callable[[], Scores]]  # by name; each is trained when it is asked for


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

    def to_json(self, rival: str = RIVAL) -> dict[str, Any]:
        return {
            "mean": self.mean,
            rival: self.rival,
            "difference": self.difference,
            "ci95": [self.low, self.high],
            "p_value": self.p,
            "users": self.users,
            "finding": self.finding,
        }

    @staticmethod
    def from_json(said: Mapping[str, Any], rival: str = RIVAL) -> "Gain":
        """Read what `to_json` wrote; difference and finding follow from the rest."""
        low, high = said["ci95"]
        return Gain(said["mean"], said[rival], low, high, said["p_value"], said["users"])

    def __str__(self) -> str:
        size = f"{signed(self.difference)} [{number(self.low)}, {number(self.high)}]"
        more = "no more" if self.finding == "chance" else "more"
        return f"{number(self.mean)} against {number(self.rival)}, {size}, {more} than chance"


@dataclass(frozen=True)
class Verdict(Shown):
    """One sentence on a model beside its rival, and whether it is a warning."""

    text: str
    warns: bool

    def __str__(self) -> str:
        return f"warning: {self.text}" if self.warns else self.text

    def card(self) -> Card:
        """The sentence under its kind."""
        return Card("Warning" if self.warns else "Verdict", note=self.text)


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
    model: Scores, rivals: Rivals, clicks: Clicks, held_out: Clicks, by: Criterion
) -> dict[str, Any]:
    """The gain over the popular list and each rival on held-out clicks, by every reading."""
    ours = _readings(model, clicks, held_out, by)
    counts = clicks.item_counts.astype(np.float32)

    def popular(users: NDArray[Any]) -> NDArray[np.float32]:
        return np.broadcast_to(counts, (len(users), len(counts)))

    beside: dict[str, Any] = {}
    for name, rival in {RIVAL: lambda: popular, **rivals}.items():
        theirs = _readings(rival(), clicks, held_out, by)
        found = {reading: gain(ours[reading], theirs[reading]) for reading in ours}
        said = {reading: one.to_json(name) for reading, one in found.items() if one is not None}
        beside |= {name: said} if said else {}
    return beside


def _readings(
    scores: Scores, clicks: Clicks, held_out: Clicks, by: Criterion
) -> dict[str, NDArray[np.float64]]:
    """A value for each user with every held-out click alike, and one by this criterion.

    A criterion that does not weigh popular items down adds nothing to the first reading.
    """
    by = replace(by, among="unclicked")  # what the lists that people get are made of
    ranking = ranked(scores, clicks, held_out, replace(by, draw="all"))
    found = {"clicks": metrics.ndcg(ranking, K)}
    if by.draw != "all":
        ranking = ranked(scores, clicks, held_out, by)
    if by.exponent > -1 or by.draw != "all":
        found["weighed"] = quality(ranking, by)
    return found


def each_of_facts(method: str, facts: Mapping[str, Any]) -> list[Verdict]:
    """The verdict on held-out clicks beside each rival in a model's facts."""
    return [
        verdict(method, gains, where="on held-out clicks", readings=READINGS, rival=rival)
        for rival, gains in gains_of_facts(facts).items()
    ]


def gains_of_facts(facts: Mapping[str, Any]) -> dict[str, dict[str, Gain]]:
    """The gains on held-out clicks in a model's facts, by rival and reading; empty ones left out.

    A file may have said anything: names are known ones, difference and finding are derived.
    """
    found = {}
    for rival in RIVALS:
        said = facts.get("verdict", {}).get(rival, {})
        if gains := {n: Gain.from_json(said[n], rival) for n in READINGS if n in said}:
            found[rival] = gains
    return found


def joined(verdicts: Iterable[Verdict]) -> Verdict | None:
    """All in one sentence, which warns if any does, those that warn first; None for none."""
    every = sorted(verdicts, key=lambda one: not one.warns)
    return Verdict("; ".join(one.text for one in every), every[0].warns) if every else None


def verdict(
    method: str,
    gains: Mapping[str, Gain],
    *,
    where: str,
    readings: Mapping[str, str],
    rival: str = RIVAL,
) -> Verdict:
    """Say by every reading whether the method is above its rival; a loss by any is a warning."""
    (first, leading), *others = gains.items()
    text = f"{where} {method} is {HOW[leading.finding]} {rival}: {readings[first]} {leading}"
    for name, one in others:
        text += f"; {readings[name]} it is {HOW[one.finding].removesuffix(' from')}: {one}"
    findings = {one.finding for one in gains.values()}
    if "below" in findings:
        return Verdict(
            f"{text}; {BY_READING if 'above' in findings else BEFORE[rival]}", warns=True
        )
    if findings == {"chance"}:
        text += f"; {NO_SIGN} {RIVALS[rival]}"
    return Verdict(text, warns=False)
