"""Names of `workers` that some rooms still use."""

from collections.abc import Callable
from typing import Any, TypeVar

from numpy.typing import NDArray

from unexposed import workers
from unexposed.workers import LIMIT, STAY, leads, several, together
from unexposed.workers import Workers as Ranks

Value = TypeVar("Value")
__all__ = ["LIMIT", "STAY", "Ranks", "current", "leads", "led", "several", "summed", "together"]


def current() -> Ranks | None:
    return workers._open


def led(work: Callable[[], Value]) -> Value:
    return work() if workers._open is None else workers._open.led(work)


def summed(values: NDArray[Any]) -> NDArray[Any]:
    return workers.summed(values, workers._open)
