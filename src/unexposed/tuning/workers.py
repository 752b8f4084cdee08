"""How worker processes start, and what each does first, whatever its work."""

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
    """Start processes here that Ctrl-C never reaches, not even while they import.

    It is for the parent alone, to which it comes at the end of this, or while it waits for them.
    """
    signal.siginterrupt(signal.SIGINT, True)  # polars has a wait go on over Ctrl-C
    resource_tracker.ensure_running()  # to start it later would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def follow_parent() -> None:
    """End when the parent does, even where it was killed."""
    sys.stderr = Messages(sys.stderr)

    def end_with_parent() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
