"""What polars prints of a panic, before it raises one, kept off the screen."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from unexposed.streams import Messages

_ONE_AT_A_TIME = threading.Lock()  # standard error belongs to the whole process


@contextmanager
def without_panics() -> Iterator[None]:
    """Holds back standard error, and shows it if all went well.

    The Rust code of polars writes to the descriptor itself, so that no stream of Python's could
    keep it back. Its error is raised all the same, and tells what there is to tell.
    """
    with _ONE_AT_A_TIME:
        try:
            screen, kept = os.dup(2), os.memfd_create("stderr")
        except (AttributeError, OSError):  # not on this system, or there is no standard error
            yield
            return
        try:
            Messages(sys.stderr).flush()
            os.dup2(kept, 2)
            try:
                yield
            finally:
                Messages(sys.stderr).flush()
                os.dup2(screen, 2)
            os.lseek(kept, 0, os.SEEK_SET)
            with suppress(OSError):
                while block := os.read(kept, 1 << 16):
                    os.write(2, block)
        finally:
            os.close(kept)
            os.close(screen)
