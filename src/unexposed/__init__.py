"""Relevance from click logs, with exposure modelled beside it.

Names are loaded when first used, so that importing the package or asking the command for help
does not wait for torch and polars.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from unexposed.version import __version__

_ROOMS = {  # a module, and the public names in it
    "api.compare": "compare",
    "api.estimator": "Estimator",
    "api.evaluate": "Evaluation evaluate",
    "api.report": "Page report",
    "api.tune": "Study tune",
    "data.clicks": "Clicks Ratings",
    "data.datasets": "DATASETS",
    "data.features": "Features with_items",
    "data.judged": "read_judged read_pairs read_traffic",
    "data.labelled": "Impressions Judgements Traffic",
    "data.log": "read_log",
    "data.read_features": "read_features",
    "data.worlds.simulate": "world",
    "data.split": "Split split",
    "errors": "InputError Interrupted LogWarning",
    "evaluation.compare": "Comparison",
    "evaluation.describe": "describe",
    "evaluation.protocols": "PROTOCOLS",
    "methods": "METHODS load load_partitions make",
    "model.export": "export_model",
    "model.filters": "Rules",
    "model.model": "Model",
    "model.recommender": "Recommender",
    "ranking.held_out": "CRITERIA",
    "ranking.metrics": "METRICS",
    "training.side": "Side",
}
_HOME = {name: module for module, names in _ROOMS.items() for name in names.split()}

__all__ = [*_HOME, "__version__"]

if TYPE_CHECKING:
    from unexposed.api.compare import compare
    from unexposed.api.estimator import Estimator
    from unexposed.api.evaluate import Evaluation, evaluate
    from unexposed.api.report import Page, report
    from unexposed.api.tune import Study, tune
    from unexposed.data.clicks import Clicks, Ratings
    from unexposed.data.datasets import DATASETS
    from unexposed.data.features import Features, with_items
    from unexposed.data.judged import read_judged, read_pairs, read_traffic
    from unexposed.data.labelled import Impressions, Judgements, Traffic
    from unexposed.data.log import read_log
    from unexposed.data.read_features import read_features
    from unexposed.data.split import Split, split
    from unexposed.data.worlds.simulate import world
    from unexposed.errors import InputError, Interrupted, LogWarning
    from unexposed.evaluation.compare import Comparison
    from unexposed.evaluation.describe import describe
    from unexposed.evaluation.protocols import PROTOCOLS
    from unexposed.methods import METHODS, load, load_partitions, make
    from unexposed.model.export import export_model
    from unexposed.model.filters import Rules
    from unexposed.model.model import Model
    from unexposed.model.recommender import Recommender
    from unexposed.ranking.held_out import CRITERIA
    from unexposed.ranking.metrics import METRICS
    from unexposed.training.side import Side


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'unexposed' has no attribute {name!r}")
    return getattr(import_module(f"unexposed.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__


class _Face(ModuleType):
    """The package, in which a function comes before a room of the same name."""

    def __setattr__(self, name: str, value: Any) -> None:
        # importing the room `report` would put its module in place of the function
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        # launchers pickle functions with the modules they use, which Python does for its own type
        return import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Face
