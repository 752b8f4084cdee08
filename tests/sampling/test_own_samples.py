"""One rank draws its own clicks of an epoch, exactly as one process draws them."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.data.share import cut
from unexposed.maths.relevance import normal
from unexposed.sampling.samples import Drawing, Samples


class Rank:
    """One of so many ranks that need nothing from each other."""

    def __init__(self, rank: int, size: int) -> None:
        self.number, self.size = rank, size


def log(n_users: int, n_items: int, most: int) -> Clicks:
    """Users with 0 … most clicks, the first of them with all items."""
    rng = np.random.default_rng(3)
    counts = rng.integers(0, most + 1, size=n_users)
    counts[0] = n_items
    users = np.repeat(np.arange(n_users), counts)
    items = np.concatenate([rng.permutation(n_items)[:n] for n in counts])
    return Clicks.from_pairs(users, items, user_ids=Ids.range(n_users), item_ids=Ids.range(n_items))


LARGE, SMALL = log(3000, 60, 40), log(7, 9, 5)  # several parts that are shuffled, and one


def own_part(samples: Samples, clicks: Clicks) -> Samples:
    row = np.full(clicks.share.n_users, -1, dtype=np.int32)
    row[clicks.share.users] = np.arange(clicks.n_users)
    return samples.own(row)


@pytest.mark.parametrize("clicks", [LARGE, SMALL], ids=["large", "small"])
@pytest.mark.parametrize(
    "drawing",
    [Drawing(3), Drawing(2, "unbiased", exponent=0.5), Drawing(2, source="catalogue")],
    ids=str,
)
@pytest.mark.parametrize("size", [1, 3, 16])
def test_ranks_draw_the_samples_of_one_process_each_its_own(clicks, drawing, size):
    whole, seen = drawing.samples(clicks, np.random.default_rng(5)), 0
    for rank in range(size):
        own = cut(clicks, Rank(rank, size))
        found, wanted = drawing.samples(own, np.random.default_rng(5)), own_part(whole, own)
        for column in ("users", "start", "items", "weight", "position"):
            np.testing.assert_array_equal(getattr(found, column), getattr(wanted, column))
        assert found.total == len(clicks)
        seen += len(found)
    assert seen == len(clicks)


def peak(work: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_the_memory_of_a_rank_follows_its_own_clicks_and_users():
    clicks = log(40_000, 30, 20)
    own = cut(clicks, Rank(1, 32))
    assert own.n_users < 2000
    drawing = Drawing(5)
    for log_of in (clicks, own):
        log_of.user_start, log_of.user_counts  # noqa: B018  counted before
    whole_samples, own_samples = (
        peak(lambda c=c: drawing.samples(c, np.random.default_rng(0))) for c in (clicks, own)
    )
    assert own_samples < whole_samples / 10
    shape, rows = (400_000, 16), np.arange(0, 400_000, 32)
    of_all, of_some = (
        peak(lambda r=r: normal(np.random.default_rng(0), shape, 1, r)) for r in (None, rows)
    )
    assert of_some < of_all / 10
