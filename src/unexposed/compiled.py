"""The decorator for compiled loops, and random bits that any thread can compute.

A loop is compiled at its first call on a machine and cached on disk. Equal arguments give equal
bits, for any number of threads.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np

from unexposed.kernel_cache import cached

F = TypeVar("F", bound=Callable[..., Any])
Array = Any

CORES: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]

# constants of splitmix64
STEP = np.uint64(0x9E3779B97F4A7C15)
FACTOR_1, FACTOR_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)
EXCESS_BITS = np.uint64(11)  # a float64 holds 53 of the 64


def compiled(function: F) -> F:
    njit: Any = numba.njit
    return cached(njit(nogil=True, error_model="numpy", cache=True), function)


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
