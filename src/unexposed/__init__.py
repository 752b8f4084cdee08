"""Relevance from click logs, with exposure modelled beside it.

Names are loaded when first used, so that importing the package or asking the command for help
does not wait for torch and polars.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

_HOME = {
    "Clicks": "data",
    "Judgements": "data",
    "Ratings": "data",
    "Split": "data",
    "InputError": "errors",
    "PROTOCOLS": "evaluation",
    "evaluate": "evaluation",
    "export_model": "export",
    "DATASETS": "datasets",
    "METHODS": "methods",
    "make": "methods",
    "METRICS": "metrics",
    "read_log": "reading",
    "read_judged": "reading",
    "read_pairs": "reading",
    "Model": "recommender",
    "Recommender": "recommender",
    "Side": "recommender",
    "Rules": "rules",
    "load": "storage",
    "world": "simulate",
}

__all__ = [*_HOME, "__version__"]

if TYPE_CHECKING:
    from unexposed.data import Clicks, Judgements, Ratings, Split
    from unexposed.datasets import DATASETS
    from unexposed.errors import InputError
    from unexposed.evaluation import PROTOCOLS, evaluate
    from unexposed.export import export_model
    from unexposed.methods import METHODS, make
    from unexposed.metrics import METRICS
    from unexposed.reading import read_judged, read_log, read_pairs
    from unexposed.recommender import Model, Recommender, Side
    from unexposed.rules import Rules
    from unexposed.simulate import world
    from unexposed.storage import load


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'unexposed' has no attribute {name!r}")
    return getattr(import_module(f"unexposed.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
