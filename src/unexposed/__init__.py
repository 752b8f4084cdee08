"""Relevance from click logs, with exposure modelled beside it.

Names are loaded when first used, so that importing the package or asking the command for help
does not wait for torch and polars.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from unexposed.version import __version__

_HOME = {
    "Clicks": "data.clicks",
    "Judgements": "data.clicks",
    "Ratings": "data.clicks",
    "Split": "data.clicks",
    "Impressions": "data.shown",
    "Traffic": "data.shown",
    "InputError": "errors",
    "PROTOCOLS": "evaluation.protocols",
    "evaluate": "evaluation.protocols",
    "export_model": "model.export",
    "DATASETS": "data.datasets",
    "METHODS": "methods",
    "make": "methods",
    "METRICS": "ranking.metrics",
    "CRITERIA": "ranking.held_out",
    "read_log": "data.read",
    "read_judged": "data.read",
    "read_pairs": "data.read",
    "read_traffic": "data.read_traffic",
    "Model": "model.model",
    "Recommender": "model.recommender",
    "Side": "training.given",
    "Rules": "model.filters",
    "load": "methods",
    "world": "data.simulate",
}

__all__ = [*_HOME, "__version__"]

if TYPE_CHECKING:
    from unexposed.data.clicks import Clicks, Judgements, Ratings, Split
    from unexposed.data.datasets import DATASETS
    from unexposed.data.read import read_judged, read_log, read_pairs
    from unexposed.data.read_traffic import read_traffic
    from unexposed.data.shown import Impressions, Traffic
    from unexposed.data.simulate import world
    from unexposed.errors import InputError
    from unexposed.evaluation.protocols import PROTOCOLS, evaluate
    from unexposed.methods import METHODS, load, make
    from unexposed.model.export import export_model
    from unexposed.model.filters import Rules
    from unexposed.model.model import Model
    from unexposed.model.recommender import Recommender
    from unexposed.ranking.held_out import CRITERIA
    from unexposed.ranking.metrics import METRICS
    from unexposed.training.given import Side


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'unexposed' has no attribute {name!r}")
    return getattr(import_module(f"unexposed.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
