"""A random ranking: the floor that every table needs."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from unexposed.data.clicks import Clicks, Indices
from unexposed.model.recommender import Recommender
from unexposed.progress import Progress
from unexposed.ranking.blocks import Block, in_whole, pair_hash
from unexposed.ranking.verdict import NO_RIVALS, Rivals
from unexposed.training.checkpoint import Checkpoint
from unexposed.training.side import Parameters, Side


@dataclass(frozen=True)
class Random(Recommender):
    """A score drawn for each pair from its seed, without a table of them."""

    name: ClassVar[str] = "random"
    baseline: ClassVar[bool] = True
    takes: ClassVar[frozenset[str]] = frozenset({"start"})  # an update starts afresh

    def train(
        self,
        clicks: Clicks,
        held_out: Clicks,
        *,
        seed: int,
        side: Side,
        progress: Progress,
        checkpoint: Checkpoint | None = None,
        rivals: Rivals = NO_RIVALS,
    ) -> tuple[Parameters, dict[str, Any]]:
        del held_out, side, progress, checkpoint, rivals
        return {
            "seed": np.array([seed], dtype=np.int64),
            "items": np.arange(clicks.n_items, dtype=np.int32),
        }, {}

    def user_rows(
        self, parameters: Parameters, clicks: Clicks, *, trained_on: Clicks, epochs: int
    ) -> Parameters:
        del parameters, clicks, trained_on, epochs
        return {}

    def scores(self, parameters: Parameters, users: Indices, clicks: Clicks) -> Block:
        salt, users = int(parameters["seed"][0]) + 1, in_whole(clicks, users)
        hashed = pair_hash(users[:, None], parameters["items"][None, :], salt=salt)
        return (hashed >> np.uint64(40)).astype(np.float32) / np.float32(2**24)
