"""A random ranking: the floor that every table needs."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unexposed.data.clicks import Clicks
from unexposed.data.pairs import Indices
from unexposed.model.fold_in import NewUsers
from unexposed.model.recommender import Recommender
from unexposed.ranking.blocks import Block, in_whole, pair_hash
from unexposed.training.loop import Result, Training
from unexposed.training.side import Parameters


@dataclass(frozen=True)
class Random(Recommender):
    """A score drawn for each pair from its seed, without a table of them."""

    name: ClassVar[str] = "random"
    baseline: ClassVar[bool] = True
    takes: ClassVar[frozenset[str]] = frozenset({"start"})  # an update starts afresh

    def train(self, given: Training) -> Result:
        return {
            "seed": np.array([given.seed], dtype=np.int64),
            "items": np.arange(given.clicks.n_items, dtype=np.int32),
        }, {}

    def user_rows(self, parameters: Parameters, new: NewUsers) -> Parameters:
        del parameters, new
        return {}

    def scores(self, parameters: Parameters, users: Indices, clicks: Clicks) -> Block:
        salt, users = int(parameters["seed"][0]) + 1, in_whole(clicks, users)
        hashed = pair_hash(users[:, None], parameters["items"][None, :], salt=salt)
        return (hashed >> np.uint64(40)).astype(np.float32) / np.float32(2**24)
