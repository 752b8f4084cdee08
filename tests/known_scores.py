"""A model whose scores are given as a table, to evaluate rankings known by hand."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.model.model import Model
from unexposed.model.recommender import Recommender


@dataclass(frozen=True)
class Table(Recommender):
    name: ClassVar[str] = "table"

    def train(self, given: Any) -> Any:
        raise NotImplementedError

    def scores(self, parameters, users, clicks):
        return parameters["scores"][users]

    def exposure(self, parameters, users):
        return parameters["exposure"][users] if "exposure" in parameters else None


def model_of(scores: Any, clicked: tuple[Any, Any] = ([], []), *, exposure: Any = None) -> Model:
    """A model of these scores (users × items), trained on these clicks."""
    n_users, n_items = np.shape(scores)
    users, items = (np.array(part, dtype=np.int32) for part in clicked)
    ids = {"user_ids": Ids.range(n_users), "item_ids": Ids.range(n_items)}
    parameters = {"scores": np.asarray(scores, dtype=np.float32)}
    if exposure is not None:
        parameters["exposure"] = np.asarray(exposure, dtype=np.float32)
    return Model(Table(), parameters, Clicks.from_pairs(users, items, **ids), {})
