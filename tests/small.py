"""Methods small enough to be trained in a test."""

from typing import Any

from unexposed.methods import METHODS, make
from unexposed.model.model import Model
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


def make_with(name: str, settings: dict[str, Any]) -> Any:
    """The method with those of these settings that it has."""
    return make(name, **{k: v for k, v in settings.items() if k in known(METHODS[name])})


def assert_same_parameters(one: Model, other: Model) -> None:
    assert one.parameters.keys() == other.parameters.keys()
    for name, array in one.parameters.items():
        assert array.tobytes() == other.parameters[name].tobytes(), name
