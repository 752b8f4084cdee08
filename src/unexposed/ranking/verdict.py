"""Whether a model is better than the popular list and other rivals: differences over users."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from unexposed.cards import Card, HasCard, number, signed
from unexposed.data.clicks import Clicks
from unexposed.ranking import metrics
from unexposed.ranking.blocks import Scores
from unexposed.ranking.held_out import Criterion, quality, ranked
from unexposed.workers import Workers, in_all, moments

RIVAL = "popularity"
RIVALS = {RIVAL: "the popular list", "mf": "mf"}  # that `fit` may set a model beside
CHANCE = 0.05  # a p-value above it may be chance
FEWEST = 10  # users, for a t-test that says anything
K = 10

Finding = Literal["above", "below", "chance"]
Values = Mapping[str, NDArray[np.float64]]  # one value for each user, by metric or reading
Gains = Mapping[str, "Gain"]  # by metric or reading
HOW: dict[Finding, str] = {
    "above": "above",
    "below": "below",
    "chance": "not clearly different from",
}
# the readings of held-out clicks, by their name in a model's facts
READINGS = {"clicks": f"NDCG@{K}", "weighed": "with popular items weighed down"}
BEFORE = (
    "do not put it into production before judged pairs (unexposed evaluate) or a test with "
    "real users show a gain"
)
BY_READING = (
    "held-out clicks are on items that were shown, mostly popular ones, so before production "
    "judged pairs (unexposed evaluate) or a test with real users must decide"
)

Rivals = Mapping[str, Callable[[], Scores]]  # by name; each is trained when it is asked for
NO_RIVALS: Rivals = {}


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
class Verdict(HasCard):
    """One sentence on a model beside its rival, and whether it is a warning."""

    text: str
    warns: bool

    def __str__(self) -> str:
        return f"warning: {self.text}" if self.warns else self.text

    def card(self) -> Card:
        """The sentence under its kind."""
        return Card("Warning" if self.warns else "Verdict", note=self.text)


def gains(model: Values, rival: Values, workers: Workers | None = None) -> dict[str, Gain]:
    """Compare the values of the same users by a paired t-test, for each metric or reading.

    t = d̄ / (s / √n) with n − 1 degrees of freedom, of the differences d. A metric that some users
    lack is left out, and so are all where the users of all workers are too few.
    """
    found = {}
    for name, ours in model.items():
        theirs = rival[name]
        finite = np.isfinite(ours).all() and np.isfinite(theirs).all()
        if not finite or in_all(len(ours), workers) < FEWEST:
            continue
        columns = ours - theirs, ours, theirs
        (n, mean, deviation), own, other = moments(*columns, ddof=1, workers=workers)
        error = float(deviation / np.sqrt(n))
        half = float(stdtrit(n - 1, 0.975)) * error
        p = float(2 * stdtr(n - 1, -abs(mean) / error)) if error else float(mean == 0)
        found[name] = Gain(own.mean, other.mean, mean - half, mean + half, p, n)
    return found


def to_json(gains: Mapping[str, Gains]) -> dict[str, Any]:
    """Gains by rival and metric as plain data; rivals without any are left out."""
    return {
        rival: {name: one.to_json(rival) for name, one in own.items()}
        for rival, own in gains.items()
        if own
    }


def from_json(said: Mapping[str, Any]) -> dict[str, dict[str, Gain]]:
    """Read what `to_json` wrote."""
    return {
        rival: {name: Gain.from_json(one, rival) for name, one in own.items()}
        for rival, own in said.items()
    }


def on_held_out(
    model: Scores,
    rivals: Rivals,
    clicks: Clicks,
    held_out: Clicks,
    by: Criterion,
    workers: Workers | None = None,
) -> dict[str, Any]:
    """The gain over the popular list and each rival on held-out clicks, by every reading."""
    parts = clicks, held_out, by, workers
    ours = _readings(model, *parts)
    counts = clicks.item_counts.astype(np.float32)

    def popular(users: NDArray[Any]) -> NDArray[np.float32]:
        return np.broadcast_to(counts, (len(users), len(counts)))

    every: Rivals = {RIVAL: lambda: popular, **rivals}
    return to_json(
        {name: gains(ours, _readings(one(), *parts), workers) for name, one in every.items()}
    )


def _readings(
    scores: Scores, clicks: Clicks, held_out: Clicks, by: Criterion, workers: Workers | None
) -> Values:
    """A value for each user with every held-out click alike, and one by this criterion.

    A criterion that does not weigh popular items down adds nothing to the first reading.
    """
    by = replace(by, among="unclicked")  # what the lists that people get are made of
    ranking = ranked(scores, clicks, held_out, replace(by, draw="all"))
    found = {"clicks": metrics.ndcg(ranking, K)}
    if by.draw != "all":
        ranking = ranked(scores, clicks, held_out, by, workers=workers)
    if by.exponent > -1 or by.draw != "all":
        found["weighed"] = quality(ranking, by)
    return found


def gains_of_facts(facts: Mapping[str, Any]) -> dict[str, dict[str, Gain]]:
    """The gains on held-out clicks in a model's facts, by rival and reading."""
    return from_json(facts.get("verdict", {}))


def each_of_facts(method: str, facts: Mapping[str, Any]) -> list[Verdict]:
    """The verdict on held-out clicks beside each rival in a model's facts."""
    return [
        verdict(method, gains, where="on held-out clicks", readings=READINGS, rival=rival)
        for rival, gains in gains_of_facts(facts).items()
    ]


def joined(verdicts: Iterable[Verdict]) -> Verdict | None:
    """All in one sentence, which warns if any does, those that warn first; None for none."""
    every = sorted(verdicts, key=lambda one: not one.warns)
    return Verdict("; ".join(one.text for one in every), every[0].warns) if every else None


def verdict(
    method: str,
    gains: Gains,
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
        instead = f"take {rival} instead, unless a test with real users shows a gain"
        cure = BY_READING if "above" in findings else BEFORE if rival == RIVAL else instead
        return Verdict(f"{text}; {cure}", warns=True)
    if findings == {"chance"}:
        text += f"; nothing here says that it is better than {RIVALS.get(rival, rival)}"
    return Verdict(text, warns=False)
