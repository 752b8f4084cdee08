"""The quality of a ranking on held-out clicks, which chooses epochs and settings."""

import numpy as np

from unexposed.data.clicks import Clicks, Judgements
from unexposed.ranking import metrics
from unexposed.ranking.blocks import Scores
from unexposed.ranking.rank import rank_catalogue


def held_out_quality(
    scores: Scores,
    clicks: Clicks,
    held_out: Clicks,
    *,
    exponent: float,
    k: int | None,
    candidates: int,
) -> float:
    """SNIPS estimate of DCG@k on held-out clicks, among all items not clicked in training.

    Or, with `candidates`, what is expected among so many of them drawn at random.
    """
    wanted = Judgements(
        held_out.users,
        held_out.items,
        np.ones(len(held_out), dtype=bool),
        held_out.user_ids,
        held_out.item_ids,
    )
    ranking = rank_catalogue(scores, wanted, clicks, exponent=exponent)
    if candidates:
        return float(metrics.snips_dcg_of_few(ranking, k, candidates=candidates).mean())
    return float(metrics.snips_dcg(ranking, k).mean())
