"""Cache compiled kernels in a temporary folder if no other place can be written."""

import contextlib
import os
import pickle
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba

from unexposed.errors import InputError

VARIABLE = "NUMBA_CACHE_DIR"
CURE = f"set {VARIABLE} to a folder that can be written"
_noticed: list[Callable[[], None]] = []  # what to call once, when a kernel is not in the cache


@contextlib.contextmanager
def noticing(compiles: Callable[[], None]) -> Iterator[None]:
    """Call this once if a kernel has to be compiled: nothing is said where the cache holds all."""
    _noticed.append(compiles)
    try:
        yield
    finally:
        _noticed.clear()


def cached(njit: Callable[[Any], Any], function: Any) -> Any:
    """Decorate a function with a caching `njit`, in a temporary folder if need be."""
    try:
        return _kept_if_possible(njit(function))
    except RuntimeError as error:
        if "no locator available" not in str(error):
            raise
    folder = _temporary()
    os.environ[VARIABLE] = folder  # for worker processes as well
    numba.config.CACHE_DIR = folder  # type: ignore[attr-defined]
    message = f"compiled kernels are kept in {folder}: no other place can be written; {CURE}"
    print(message, file=sys.stderr, flush=True)
    return _kept_if_possible(njit(function))


def _kept_if_possible(kernel: Any) -> Any:
    """Let the kernel run uncached where its cache cannot be read or written; numba would raise.

    What another version of this package has cached may hold types that are no longer there.
    """
    if not hasattr(kernel, "_cache"):  # NUMBA_DISABLE_JIT: it is the function itself
        return kernel
    cache = kernel._cache
    load, save = cache.load_overload, cache.save_overload

    def load_if_possible(*args: Any) -> Any:
        found = None
        try:
            found = load(*args)
        except (AttributeError, EOFError, ImportError, pickle.UnpicklingError):
            with contextlib.suppress(OSError):
                cache.flush()
        if found is None and _noticed:
            _noticed.pop()()
        return found

    def save_if_possible(*args: Any) -> None:
        with contextlib.suppress(OSError):
            save(*args)

    cache.load_overload, cache.save_overload = load_if_possible, save_if_possible
    return kernel


def _temporary() -> str:
    """A private folder of this user: numba unpickles the files it finds there."""
    try:
        folder = Path(tempfile.gettempdir()) / f"unexposed-kernels-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        about = folder.lstat()
        is_mine = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid()
        if is_mine and not about.st_mode & 0o077:
            return str(folder)
        return tempfile.mkdtemp(prefix="unexposed-kernels-")
    except OSError as error:
        raise InputError(f"no folder for compiled kernels can be written; {CURE}") from error
