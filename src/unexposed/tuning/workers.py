"""Start worker processes that Ctrl-C does not reach and that end with their parent."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker

from unexposed.streams import Messages


@contextmanager
def deaf_to_ctrl_c() -> Iterator[None]:
    """Block Ctrl-C for processes started in this context, even while they import.

    The parent alone receives it, at the end of the context or while it waits for the workers.
    """
    signal.siginterrupt(signal.SIGINT, True)  # polars makes a wait restart after Ctrl-C
    resource_tracker.ensure_running()  # starting it later would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def follow_parent() -> None:
    """End this process when its parent ends, even if killed."""
    sys.stderr = Messages(sys.stderr)

    def end_with_parent() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
