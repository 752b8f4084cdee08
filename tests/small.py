"""Methods small enough to be trained in a test."""

from typing import Any

from unexposed.methods import METHODS, make
from unexposed.methods.composed import ComposedMethod
from unexposed.methods.trained import TrainedMethod
from unexposed.model.model import Model
from unexposed.model.recommender import Recommender
from unexposed.settings import known

QUICK = {  # and yet enough to learn a small world
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


# What the methods can do, asked of each
PERSONAL = [name for name, cls in METHODS.items() if not cls.baseline]
TRAINED = [name for name, cls in METHODS.items() if issubclass(cls, TrainedMethod)]
COMPOSED = [name for name, cls in METHODS.items() if issubclass(cls, ComposedMethod)]
FOLDING = [n for n, cls in METHODS.items() if cls.user_rows is not Recommender.user_rows]
UPDATING = [name for name, cls in METHODS.items() if "start" in cls.takes]
WITH_VECTORS = [n for n, cls in METHODS.items() if cls.vectors is not Recommender.vectors]
WITH_SCORER = [
    name
    for name, cls in METHODS.items()
    if name in WITH_VECTORS or cls.add_score is not Recommender.add_score
]


def make_with(name: str, settings: dict[str, Any]) -> Any:
    """The method with those of these settings that it has."""
    return make(name, **{k: v for k, v in settings.items() if k in known(METHODS[name])})


def assert_same_parameters(one: Model, other: Model) -> None:
    assert one.parameters.keys() == other.parameters.keys()
    for name, array in one.parameters.items():
        assert array.tobytes() == other.parameters[name].tobytes(), name
