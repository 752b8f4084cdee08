"""Quality of a ranking on held-out clicks, which chooses epochs and settings."""

import numpy as np

from unexposed.data.clicks import Clicks, Judgements
from unexposed.ranking import metrics
from unexposed.ranking.blocks import Scores
from unexposed.ranking.rank import rank_catalogue

# what suits a judged set of ten random items
EXPONENT, K, CANDIDATES = 1.5, 3, 10


def held_out_quality(
    scores: Scores,
    clicks: Clicks,
    held_out: Clicks,
    *,
    exponent: float = EXPONENT,
    k: int | None = K,
    candidates: int = CANDIDATES,
) -> float:
    """Estimate DCG@k by SNIPS on held-out clicks, among all items not clicked in training.

    With `candidates`, the expected value when each held-out item is ranked among so many items
    drawn at random.
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
