"""Compiled loops: how they are compiled, and random bits that any thread can ask for.

A loop is compiled at its first call on a machine and kept on disk. The same arguments give the
same bits, for any number of threads.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np

from unexposed.kernel_cache import cached

F = TypeVar("F", bound=Callable[..., Any])
Array = Any

CORES: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]

# of splitmix64
STEP = np.uint64(0x9E3779B97F4A7C15)
FACTOR_1, FACTOR_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)
EXCESS_BITS = np.uint64(11)  # of 64, beyond those of a float64


def compiled(function: F) -> F:
    njit: Any = numba.njit
    return cached(njit(nogil=True, error_model="numpy", cache=True), function)


@compiled
def mix(x: Any) -> Any:
    """The finaliser of splitmix64: 64 bits that look random, other ones for every x."""
    x = (x ^ (x >> SHIFTS[0])) * FACTOR_1
    x = (x ^ (x >> SHIFTS[1])) * FACTOR_2
    return x ^ (x >> SHIFTS[2])


@compiled
def below(n: int, bits: Any) -> int:
    """A number from 0 … n − 1, uniform (to within n / 2⁵³) where the bits are."""
    return np.int64(np.int64(bits >> EXCESS_BITS) * 2.0**-53 * n)  # type: ignore[return-value]


@compiled
def random_bits(seed: Any, turn: int) -> Any:
    """The bits of this turn: whoever asks, and when, they are the same (splitmix64)."""
    return mix(seed + np.uint64(turn + 1) * STEP)
