"""Room on the GPU for the samples of some batches, and how programs share a batch."""

from typing import Any

from numpy.typing import NDArray

from unexposed.engine.cuda.drawing import DeviceSampler
from unexposed.late import Tensor, torch
from unexposed.sampling.samples import Samples

CHUNK = 1 << 24  # pairs on the GPU at a time
LARGE_BATCH = 4096  # pairs; from here on there are enough programs to give each more of them
SMALL_TILE, LARGE_TILE = (8, 4), (32, 8)  # pairs and warps of a program


class Space:
    """Room for the samples of some batches, and the graph of steps on them."""

    def __init__(self, batch_size: int, pairs: int, batches: int, like: Tensor) -> None:
        self.batch_size, self.pairs, self._batches = batch_size, pairs, batches
        clicks = batch_size * batches
        self.columns = {
            "click_user": like.new_zeros(clicks, dtype=torch.int32),
            "click_start": like.new_zeros(clicks + 1, dtype=torch.int64),
            "click_weight": like.new_zeros(clicks),
            "pair_item": like.new_zeros(pairs * batches, dtype=torch.int32),
        }
        self.graph: torch.cuda.CUDAGraph | None = None

    def holds(self, batch_size: int, pairs: int, batches: int) -> bool:
        """Whether this many batches fit, each of at most this many pairs."""
        return batch_size == self.batch_size and pairs <= self.pairs and batches <= self._batches

    def copy(self, samples: Samples) -> None:
        arrays: list[NDArray[Any]] = [samples.users, samples.start, samples.weight, samples.items]
        for column, array in zip(self.columns.values(), arrays, strict=True):
            column[: len(array)].copy_(torch.from_numpy(array))

    def draw(self, sampler: DeviceSampler, first: int, count: int) -> None:
        user, start, weight, item = self.columns.values()
        torch.arange(count + 1, out=start[: count + 1]).mul_(sampler.pairs_a_click)
        sampler.fill(user, weight, item, first=first, count=count)


def tile_of(clicks: int, pairs: int, *, batch: int | None = None) -> tuple[int, int, int]:
    """Pairs and warps of a program, and the pairs of a click that it takes at a time.

    `batch` is how many pairs a batch has, where `clicks` and `pairs` are not of one batch.
    """
    rows, warps = SMALL_TILE if (pairs if batch is None else batch) < LARGE_BATCH else LARGE_TILE
    each = min(rows, 1 << max(0, -(-pairs // max(1, clicks)) - 1).bit_length())
    return rows, warps, each


def clicks_at_once(pairs: int, batch_size: int) -> int:
    """How many clicks lie on the GPU at a time: whole batches of this many pairs each."""
    return max(1, CHUNK // pairs) * batch_size


def rounded(pairs: int) -> int:
    """Round up by at most an eighth, so that the batches of the next epoch fit too."""
    unit = 1 << max(0, pairs.bit_length() - 4)
    return -(-pairs // unit) * unit
