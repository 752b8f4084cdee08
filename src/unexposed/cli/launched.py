"""The command under torchrun: all processes run it, the first one talks, all end together."""

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from unexposed.cli.talking import leads, under_torchrun
from unexposed.errors import InputError

DIVIDED = ("fit", "recommend", "evaluate")  # commands that several workers run


@contextmanager
def with_other_workers() -> Iterator[None]:
    """Meet the other workers that torchrun has started; without torchrun, do nothing."""
    if not under_torchrun():
        yield
        return
    from datetime import timedelta

    import torch.distributed as dist

    from unexposed import workers

    if not leads():
        warnings.simplefilter("ignore")  # the first worker shows the same ones
    try:
        dist.init_process_group("gloo", timeout=timedelta(seconds=workers.LIMIT))
    except RuntimeError as error:
        raise InputError(
            f"the workers did not meet within {workers.LIMIT:.0f} s: see that every machine runs "
            "torchrun with the same --nnodes and rendezvous"
        ) from error
    try:
        with workers.together():
            yield
    except InputError as error:
        if error.shown_elsewhere:
            # torchrun ends all workers when the first has left: let it be the one that says why
            time.sleep(workers.STAY)
        raise
    finally:
        dist.destroy_process_group()


def check_divided(command: str | None) -> None:
    """Refuse a command that several workers would do at once, each the whole of it."""
    if under_torchrun() and os.environ.get("WORLD_SIZE") != "1" and command not in DIVIDED:
        raise InputError(
            f"{command} runs in one process: {', '.join(DIVIDED[:-1])} and {DIVIDED[-1]} are for "
            "torchrun"
        )
