"""Quality of a ranking on random traffic, where exposure favours no item."""

from dataclasses import dataclass

import numpy as np

from unexposed.data.clicks import Clicks
from unexposed.data.labelled import Judgements, Traffic
from unexposed.errors import InputError
from unexposed.ranking import metrics
from unexposed.ranking.blocks import Scores
from unexposed.ranking.rank import rank_judged


@dataclass(frozen=True, eq=False)
class ByTraffic:
    """DCG@k of the relevant items among the traffic of each user, mean over users.

    Only users with a relevant and an irrelevant pair say anything of a ranking.
    """

    pairs: Judgements
    clicks: Clicks
    k: int | None

    @staticmethod
    def of(traffic: Traffic, clicks: Clicks, *, k: int | None) -> "ByTraffic":
        """Judge by the traffic on pairs that were not clicked: what was learned is no test."""
        fresh = traffic.pick(~clicks.contain(traffic.users, traffic.items))
        liked, disliked = (
            np.bincount(fresh.users[fresh.relevant == one], minlength=clicks.n_users) > 0
            for one in (True, False)
        )
        kept = fresh.pick((liked & disliked)[fresh.users])
        if len(kept) == 0:
            raise InputError(
                "the random traffic has no user with both a relevant and an irrelevant pair "
                "without a click, so it cannot choose: give more of it"
            )
        ids = traffic.user_ids, traffic.item_ids
        return ByTraffic(Judgements(kept.users, kept.items, kept.relevant, *ids), clicks, k)

    def __call__(self, scores: Scores) -> float:
        ranking = rank_judged(scores, self.pairs, self.clicks)
        return float(metrics.dcg(ranking, self.k).mean())
