"""Linear algebra whose bits do not depend on the number of threads.

A BLAS cuts a product up for its threads, and the cut decides in which order sums are added. So each
product is left to one thread, and several threads share blocks whose size is fixed.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from unexposed.compiled import CORES

Part = TypeVar("Part")
Made = TypeVar("Made")

MOST_THREADS = 4  # each holds blocks of its own


@contextmanager
def one_thread() -> Iterator[None]:
    """Have every product and solution made by the thread that asks for it."""
    with _loaded().limit(limits=1, user_api="blas"):
        yield


def each(work: Callable[[Part], Made], parts: Iterable[Part]) -> list[Made]:
    """What comes of the work on each part, in their order, several of them at a time."""
    with one_thread(), ThreadPoolExecutor(min(CORES, MOST_THREADS)) as pool:
        return list(pool.map(work, parts))


@cache
def _loaded() -> Any:
    import numpy.linalg  # noqa: F401  its BLAS must be there to be found
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
