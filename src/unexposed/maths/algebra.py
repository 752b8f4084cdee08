"""Linear algebra whose bits do not depend on the number of threads.

A BLAS splits a product over its threads, and the split decides the order of its sums. So each
product runs on one thread, and several threads share blocks of a fixed size.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from unexposed.compiled import CORES

Part = TypeVar("Part")
Made = TypeVar("Made")

MOST_THREADS = 4  # each needs memory for its own blocks


@contextmanager
def one_thread() -> Iterator[None]:
    """Run every product and solution on the calling thread."""
    with _loaded().limit(limits=1, user_api="blas"):
        yield


def each(work: Callable[[Part], Made], parts: Iterable[Part]) -> list[Made]:
    """Call `work` on each part, several at a time; return the results in order."""
    with one_thread(), ThreadPoolExecutor(min(CORES, MOST_THREADS)) as pool:
        return list(pool.map(work, parts))


@cache
def _loaded() -> Any:
    import numpy.linalg  # noqa: F401  load its BLAS, so that it is found
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
