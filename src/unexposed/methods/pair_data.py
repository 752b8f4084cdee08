"""What data say of single pairs: what was shown, how likely, what is relevant, how often clicked.

    shown    m = 1 − (1 − a)^n for a pair that was shown n times and not clicked
    logged   m = the logged propensity of a pair
    traffic  m = 1, and the label is the relevance
    counts   the weight of a click rises with how often the pair was clicked

A loss that divides by m needs the chance of being shown, which is not 1 for what happened to be
shown: there `shown` gives an item the share of users who saw it.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks
from unexposed.data.labelled import Impressions
from unexposed.data.pairs import Indices
from unexposed.errors import InputError
from unexposed.maths import attention
from unexposed.maths.exposure import Table
from unexposed.methods.exposures import Assumed, ExposureFrom
from unexposed.sampling.marking import Marking
from unexposed.sampling.marks import PairTable
from unexposed.training.side import Side, without_traffic

Counts = Literal["ignored", "linear", "logarithmic"]


def count_weights(counts: NDArray[Any], *, form: Counts, alpha: float) -> NDArray[np.float32]:
    """(1 + α·n)/(1 + α) for a pair clicked n times, or log₂(1 + n) in place of n; 1 at n = 1.

    It is the confidence 1 + α·n of Hu, Koren and Volinsky (2008), scaled so that a log without
    repeated clicks is weighted as before.
    """
    if form == "ignored":
        return np.ones(len(counts), dtype=np.float32)
    n = np.log2(1.0 + counts) if form == "logarithmic" else counts
    weights: NDArray[np.float32] = ((1 + alpha * n) / (1 + alpha)).astype(np.float32)
    return weights


@dataclass(frozen=True, eq=False)
class LearningData:
    """The inputs of a training, once settings have decided how each is used."""

    clicks: Clicks  # that samples are drawn from
    side: Side
    marking: Marking | None = None
    pool: tuple[Indices, Indices] | None = None  # shown and not clicked: what negatives come from
    facts: dict[str, Any] = field(default_factory=dict)

    def given_pairs(self) -> tuple[Indices, Indices]:
        """The pairs whose m no exposure model decides."""
        n_items, keys = self.clicks.n_items, np.zeros(0, dtype=np.int64)
        known = None if self.marking is None else self.marking.known
        if known is not None:
            users = np.repeat(np.arange(self.clicks.n_users), np.diff(known.user_start))
            keys = np.union1d(keys, users * n_items + known.items)
        if self.side.traffic is not None:
            keys = np.union1d(keys, self.side.traffic.keys)
        return (keys // n_items).astype(np.int32), (keys % n_items).astype(np.int32)


@dataclass(frozen=True)
class PairRules:
    """How a method uses what data say of single pairs."""

    assumed: Assumed = Assumed()  # noqa: RUF009  (it is frozen)
    divides: bool = False  # whether the loss divides by m
    negatives: int = 0  # of each click, where the loss compares pairs; 0: it does not
    draws_shown: bool = False  # whether negatives come from what was shown
    traffic_weight: float = 1.0
    counts: Counts = "ignored"
    count_weight: float = 1.0

    def source(self, side: Side) -> ExposureFrom:
        """Where the exposure of single pairs comes from, refused where the data lack it."""
        shown, source = side.impressions, self.assumed.source
        if source == "auto":
            return "modelled" if shown is None else "shown"
        if source == "shown" and shown is None:
            raise InputError(
                "exposure_from=shown needs impressions: give a log that says what was shown, "
                "side=Side(impressions=…), or exposure_from=modelled"
            )
        if source == "logged" and (shown is None or shown.propensity is None):
            raise InputError(
                "exposure_from=logged needs impressions with propensities: give a log that has "
                "them, side=Side(impressions=…), or exposure_from=modelled"
            )
        return source

    def applied(self, clicks: Clicks, side: Side) -> LearningData:
        """What training learns from.

        A click on a pair of the random traffic is left out, for the traffic knows better.
        """
        learned_from = without_traffic(clicks, side.traffic)
        if learned_from.n_clicks == 0:
            raise InputError(
                "the random traffic judges every clicked pair, so no click is left to train on: "
                "give less of it, or traffic_use=none"
            )
        source, facts = self.source(side), dict[str, Any]()
        shown, known, pool = side.impressions, None, None
        if shown is not None and (source != "modelled" or self.draws_shown):
            unclicked = shown.pick((shown.clicked == 0) & ~clicks.contain(shown.users, shown.items))
            facts |= {"impressions": len(unclicked)}
            pool = (unclicked.users, unclicked.items) if self.draws_shown else None
            if source == "shown":
                a = self.assumed.attention or attention.learned(*ever_clicked(clicks, shown))
                facts |= {"attention": a}
                if self.divides and side.exposure is None:
                    share = share_shown(clicks, shown, a)
                    floor = np.float32(self.assumed.floor)
                    side = replace(side, exposure=np.maximum(share, floor))
                elif not self.divides:
                    known = _table(unclicked, attention.seen(unclicked.shown, a))
            elif source == "logged":
                assert shown.propensity is not None
                facts |= {"impressions": len(shown)}
                known = _table(shown, shown.propensity)
        elif self.draws_shown:
            raise InputError(
                "negatives_from=shown needs impressions: give a log that says what was shown, "
                "side=Side(impressions=…), or negatives_from=unclicked"
            )
        weights = self._click_weights(learned_from)
        marking = None
        if known is not None or weights is not None or side.traffic is not None:
            marking = Marking(known, weights, side.traffic, self.traffic_weight, self.negatives)
        return LearningData(learned_from, side, marking, pool, facts)

    def _click_weights(self, clicks: Clicks) -> PairTable | None:
        if self.counts == "ignored":
            return None
        weights = count_weights(clicks.counts, form=self.counts, alpha=self.count_weight)
        return PairTable.of(clicks.users, clicks.items, weights, n_users=clicks.n_users)


def _table(pairs: Impressions, exposure: NDArray[Any]) -> PairTable:
    return PairTable.of(pairs.users, pairs.items, exposure, n_users=pairs.n_users)


def ever_clicked(
    clicks: Clicks, shown: Impressions
) -> tuple[Indices, NDArray[np.int64], NDArray[np.bool_]]:
    """Item, times shown and whether ever clicked, of every pair that was shown.

    Impressions that leave out clicks are completed: a click was a showing as well.
    """
    if (shown.clicked > 0).any():
        return shown.items, shown.shown.astype(np.int64), shown.clicked > 0
    keys = np.union1d(shown.keys, clicks.keys)
    times = np.zeros(len(keys), dtype=np.int64)
    times[np.searchsorted(keys, shown.keys)] += shown.shown
    at = np.searchsorted(keys, clicks.keys)
    times[at] += clicks.counts
    clicked = np.zeros(len(keys), dtype=bool)
    clicked[at] = True
    return (keys % clicks.n_items).astype(np.int32), times, clicked


def share_shown(clicks: Clicks, shown: Impressions, a: float) -> Table:
    """The mean of 1 − (1 − a)^n over all users, for each item: the chance that it is seen."""
    items, times, _ = ever_clicked(clicks, shown)
    total = np.bincount(items, weights=attention.seen(times, a), minlength=clicks.n_items)
    return (total / clicks.n_users).astype(np.float32)
