"""What every worker process does first, whatever its work."""

import multiprocessing
import os
import signal
import sys
import threading

from unexposed.streams import Messages


def follow_parent() -> None:
    """Leave Ctrl-C to the parent, and end when it does, even where it was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stderr = Messages(sys.stderr)

    def end_with_parent() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
