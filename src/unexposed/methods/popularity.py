"""The popular list, the same for everyone."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unexposed.data.clicks import Clicks
from unexposed.data.pairs import Indices
from unexposed.model.fold_in import NewUsers
from unexposed.model.model import Model
from unexposed.model.recommender import Recommender
from unexposed.ranking.blocks import Block
from unexposed.training.loop import Result, Training
from unexposed.training.side import Parameters


@dataclass(frozen=True)
class Popularity(Recommender):
    """Score = how many users clicked the item."""

    name: ClassVar[str] = "popularity"
    baseline: ClassVar[bool] = True
    takes: ClassVar[frozenset[str]] = frozenset({"start"})  # an update starts afresh

    def train(self, given: Training) -> Result:
        return {"item_counts": given.clicks.item_counts.astype(np.float32)}, {}

    def user_rows(self, parameters: Parameters, new: NewUsers) -> Parameters:
        del parameters, new
        return {}

    def scores(self, parameters: Parameters, users: Indices, clicks: Clicks) -> Block:
        del clicks
        counts = parameters["item_counts"]
        return np.broadcast_to(counts, (len(users), len(counts)))


def popular_list(clicks: Clicks) -> Model:
    """The popular list of exactly these clicks, to compare others with."""
    return Model(Popularity(), {"item_counts": clicks.item_counts.astype(np.float32)}, clicks, {})
