"""The popular list, the same for everyone."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from unexposed.data.clicks import Clicks, Indices
from unexposed.model.graph import Graph
from unexposed.model.model import Model
from unexposed.model.recommender import Recommender
from unexposed.progress import Progress
from unexposed.ranking.blocks import Block
from unexposed.ranking.verdict import NO_RIVALS, Rivals
from unexposed.training.checkpoint import Checkpoint
from unexposed.training.side import Parameters, Side


@dataclass(frozen=True)
class Popularity(Recommender):
    """Score = how many users clicked the item."""

    name: ClassVar[str] = "popularity"
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
        del held_out, seed, side, progress, checkpoint, rivals
        return {"item_counts": clicks.item_counts.astype(np.float32)}, {}

    def user_rows(
        self, parameters: Parameters, clicks: Clicks, *, trained_on: Clicks, epochs: int
    ) -> Parameters:
        del parameters, clicks, trained_on, epochs
        return {}

    def add_score(self, graph: Graph, parameters: Parameters) -> None:
        graph.table("item_counts", parameters["item_counts"], to="score")

    def scores(self, parameters: Parameters, users: Indices, clicks: Clicks) -> Block:
        del clicks
        counts = parameters["item_counts"]
        return np.broadcast_to(counts, (len(users), len(counts)))


def popular_list(clicks: Clicks) -> Model:
    """The popular list of exactly these clicks, to compare others with."""
    return Model(Popularity(), {"item_counts": clicks.item_counts.astype(np.float32)}, clicks, {})


def with_popular(rivals: Rivals, clicks: Clicks) -> Rivals:
    """The popular list of these clicks before the other rivals."""
    return {Popularity.name: lambda: popular_list(clicks).scores, **rivals}
