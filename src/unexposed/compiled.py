"""Compiled loops: the decorator, the cache on disk, and random bits that any thread can compute.

A loop is compiled at its first call on a machine and cached on disk. Equal arguments give equal
bits, for any number of threads.
"""

import contextlib
import functools
import hashlib
import inspect
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np

F = TypeVar("F", bound=Callable[..., Any])
Array = Any

CORES: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
CACHE_CURE = "set NUMBA_CACHE_DIR to a folder that can be written"
_noticed: list[Callable[[], None]] = []  # what to call once, when a kernel is not in the cache


def cached(function: F, **how: Any) -> F:
    """Compile with numba's options `how`, cached on disk where that can be written."""
    njit: Any = numba.njit
    try:
        kernel = njit(cache=True, **how)(function)
    except RuntimeError as error:
        if "no locator available" not in str(error):
            raise
        return njit(**how)(function)
    if hasattr(kernel, "_cache"):  # NUMBA_DISABLE_JIT: it is the function itself
        kernel._cache._cache_file._source_stamp = _stamp(Path(inspect.getfile(function)).parent)
        _tolerate_faults(kernel._cache)
    return kernel


@functools.cache
def _stamp(folder: Path) -> bytes:
    """What changes with any source that a kernel of this folder may inline.

    Numba looks at the file of the kernel alone, and would go on with what other files said before.
    """
    files = {*folder.glob("*.py"), *folder.parent.glob("*.py"), Path(__file__)}
    texts = (f"{file.name}\n{file.read_text(encoding='utf-8')}" for file in sorted(files))
    return hashlib.sha256("\n".join(texts).encode()).digest()


def _tolerate_faults(cache: Any) -> None:
    """Let a kernel run uncached where its cache cannot be read or written; numba would raise.

    What another version of this package has cached may hold types that are no longer there.
    """
    load, save = cache.load_overload, cache.save_overload

    def load_if_possible(*args: Any) -> Any:
        kernel = None
        try:
            kernel = load(*args)
        except (AttributeError, EOFError, ImportError, pickle.UnpicklingError):
            with contextlib.suppress(OSError):
                cache.flush()
        if kernel is None and _noticed:
            _noticed.pop()()
        return kernel

    def save_if_possible(*args: Any) -> None:
        with contextlib.suppress(OSError):
            save(*args)

    cache.load_overload, cache.save_overload = load_if_possible, save_if_possible


@contextlib.contextmanager
def noticing(compiles: Callable[[], None]) -> Iterator[None]:
    """Call this once if a kernel has to be compiled: nothing is said where the cache holds all."""
    _noticed.append(compiles)
    try:
        yield
    finally:
        _noticed.clear()


def compiled(function: F) -> F:
    """Compile a loop, to be called from Python without its lock."""
    return cached(function, nogil=True, error_model="numpy")


# constants of splitmix64
STEP = np.uint64(0x9E3779B97F4A7C15)
FACTOR_1, FACTOR_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)
EXCESS_BITS = np.uint64(11)  # a float64 holds 53 of the 64


@compiled
def mix(x: Any) -> Any:
    """The finaliser of splitmix64: 64 bits that look random, different for every x."""
    x = (x ^ (x >> SHIFTS[0])) * FACTOR_1
    x = (x ^ (x >> SHIFTS[1])) * FACTOR_2
    return x ^ (x >> SHIFTS[2])


@compiled
def below(n: int, bits: Any) -> int:
    """A number from 0 … n − 1, uniform (to within n / 2⁵³) if the bits are."""
    return np.int64(fraction(bits) * n)  # type: ignore[return-value]


@compiled
def fraction(bits: Any) -> float:
    """A number from 0 up to but not including 1, uniform if the bits are."""
    return np.int64(bits >> EXCESS_BITS) * 2.0**-53


@compiled
def random_bits(seed: Any, turn: int) -> Any:
    """The random bits of this turn, in any thread and any order (splitmix64)."""
    return mix(seed + np.uint64(turn + 1) * STEP)
