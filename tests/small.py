"""Methods small enough to be trained in a test."""

from typing import Any

import numpy as np

from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.methods import METHODS, make
from unexposed.methods.composed import ComposedMethod, PointwiseMethod, PopularitySettings
from unexposed.methods.trained import TrainedMethod
from unexposed.model.model import Model
from unexposed.model.recommender import Recommender
from unexposed.progress import Silent
from unexposed.settings import known

QUICK = {  # enough to learn a small world
    "dim": 8,
    "epochs": 80,
    "patience": 0,
    "learning_rate": 0.02,
    "batch_size": 128,
    "negatives": 5,
    "n_models": 3,
}

BRIEF = {  # a few epochs of several batches
    "dim": 6,
    "epochs": 7,
    "patience": 0,
    "learning_rate": 0.02,
    "batch_size": 64,
    "n_models": 3,
}


# What "METHOD with …" adds to the settings of a method
VARIANTS = {
    "biases": {"biases": True},
    "items": {"exposure_model": "items", "exposure_learning_rate": 0.05},
    "an exponent": {"exposure_model": "popularity", "exposure_learning_rate": 0.05},
}

# Methods by what they can do
PERSONAL = [name for name, cls in METHODS.items() if not cls.baseline]
TRAINED = [name for name, cls in METHODS.items() if issubclass(cls, TrainedMethod)]
COMPOSED = [name for name, cls in METHODS.items() if issubclass(cls, ComposedMethod)]
POINTWISE = [name for name, cls in METHODS.items() if issubclass(cls, PointwiseMethod)]
EXPOSED = [name for name, cls in METHODS.items() if issubclass(cls, PopularitySettings)]
FOLDING = [n for n, cls in METHODS.items() if cls.user_rows is not Recommender.user_rows]
UPDATING = [name for name, cls in METHODS.items() if "start" in cls.takes]
WITH_VECTORS = [n for n, cls in METHODS.items() if cls.vectors is not Recommender.vectors]


def make_with(name: str, settings: dict[str, Any]) -> Any:
    """Make the method, or one of its VARIANTS, with the settings it knows, ignoring the others."""
    name, _, variant = name.partition(" with ")
    settings = settings | VARIANTS.get(variant, {})
    return make(name, **{k: v for k, v in settings.items() if k in known(METHODS[name])})


def quick(name: str, **settings: Any) -> Any:
    return make_with(name, QUICK | settings)


def fitted(name: str, clicks: Clicks, *, seed: int = 0, **settings: Any) -> Model:
    return quick(name, **settings).fit(clicks, seed=seed, progress=Silent())


def clicks_of(matrix: Any) -> Clicks:
    """The nonzero entries of a users × items matrix as clicks."""
    users, items = np.nonzero(matrix)
    n_users, n_items = np.shape(matrix)
    return Clicks.from_pairs(users, items, user_ids=Ids.range(n_users), item_ids=Ids.range(n_items))


def assert_same_parameters(one: Model, other: Model) -> None:
    assert one.parameters.keys() == other.parameters.keys()
    for name, array in one.parameters.items():
        assert array.tobytes() == other.parameters[name].tobytes(), name
