"""One file a method; METHODS names them all."""

import sys
from os import PathLike
from typing import Any

from unexposed.errors import InputError, did_you_mean
from unexposed.methods.bpr import BPR
from unexposed.methods.cjmf import CJMF
from unexposed.methods.ease import EASE
from unexposed.methods.expomf import ExpoMF
from unexposed.methods.mf import MF
from unexposed.methods.popularity import Popularity
from unexposed.methods.random import Random
from unexposed.methods.relmf import RelMF
from unexposed.methods.ubo import UBO
from unexposed.methods.ubpr import UBPR
from unexposed.methods.umf import UMF
from unexposed.methods.wmf import WMF
from unexposed.model.load import load as load_with
from unexposed.model.load import load_partitions as load_partitions_with
from unexposed.model.model import Model
from unexposed.model.partitions import Partitions
from unexposed.model.recommender import Recommender
from unexposed.settings import check_names

METHODS: dict[str, type[Recommender]] = {
    "random": Random,
    "popularity": Popularity,
    "mf": MF,
    "bpr": BPR,
    "wmf": WMF,
    "ease": EASE,
    "ubpr": UBPR,
    "relmf": RelMF,
    "umf": UMF,
    "expomf": ExpoMF,
    "cjmf": CJMF,
    "ubo": UBO,
}


def make(name: str, **settings: Any) -> Recommender:
    """The method of this name with these settings, the rest at their defaults."""
    check_names(name, method(name), list(settings))
    return method(name)(**settings)


def method(name: str) -> type[Recommender]:
    """The class of this name."""
    if not isinstance(name, str) or name not in METHODS:
        raise InputError(f"no method {name!r}; {did_you_mean(name, METHODS)}")
    return METHODS[name]


def about(name: str) -> str:
    """What a method is: the first line of its file."""
    text = sys.modules[method(name).__module__].__doc__ or ""
    return text.partition("\n")[0].rstrip(".")


def load(path: str | PathLike[str], *, verify: bool = False) -> Model:
    """The saved model, memory-mapped; `shop` is `shop.safetensors`.

    With `verify` all of it is read now, and compared with its checksums.
    """
    return load_with(path, make, verify=verify)


def load_partitions(path: str | PathLike[str]) -> Partitions:
    """The partitions of a model that was saved by partitions: one model each, mapped.

    For more users than fit into memory; `load` opens the same file as one model.
    """
    return load_partitions_with(path, make)
