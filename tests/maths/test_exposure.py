"""Exposure given or taken from the log, and the gated model with its derivatives."""

import numpy as np
import pytest
import torch
from torch import Tensor

from unexposed.errors import InputError
from unexposed.maths import exposure

# given


@pytest.mark.parametrize(
    ("counts", "exponent", "expected"),
    [
        ([100, 25, 4, 1], 0.5, [1.0, 0.5, 0.2, 0.1]),
        ([0, 1, 10_000], 0.5, [0.05, 0.05, 1.0]),  # the floor
        ([0, 1, 7], 0, [1, 1, 1]),
    ],
)
def test_popularity_is_a_power_of_the_share_of_the_most_clicked(counts, exponent, expected):
    theta = exposure.popularity(np.array(counts), exponent=exponent, floor=0.05)
    np.testing.assert_allclose(theta, expected, rtol=1e-6)
    assert theta.dtype == np.float32


@pytest.mark.parametrize(
    ("counts", "exponent", "floor", "message"),
    [
        ([1, 2], -0.5, 0.1, "exponent must be at least 0, got -0.5"),
        ([1, 2], float("nan"), 0.1, "exponent must be at least 0, got nan"),
        ([1, 2], 0.5, 0.0, r"floor must lie in \(0, 1\], got 0.0"),
        ([1, 2], 0.5, 1.5, r"floor must lie in \(0, 1\], got 1.5"),
        ([0, 0], 0.5, 0.1, "at least one click"),
        ([], 0.5, 0.1, "at least one click"),
        ([3, -1], 0.5, 0.1, "count of at least 0"),
    ],
)
def test_popularity_refuses_impossible_arguments(counts, exponent, floor, message):
    with pytest.raises(InputError, match=message):
        exposure.popularity(np.array(counts), exponent=exponent, floor=floor)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([0.1, 0.0, 0.5], r"got 0.0 at item 1$"),
        ([0.1, 0.2, 1.5], r"got 1.5 at item 2$"),
        ([float("nan"), 0.2, 0.5], r"got nan at item 0$"),
        ([0.1, 1e300, 0.5], r"got 1e\+300 at item 1$"),
        ([[0.1, 0.2, 0.3], [0.1, -1.0, 0.3]], r"got -1.0 at item 1 for user 1$"),
        ([0.1, 0.2], r"3 items, or 2 users × 3 items, got an array of shape \(2,\)"),
        ([[0.1, 0.2, 0.3]], r"got an array of shape \(1, 3\)"),
    ],
)
def test_an_invalid_table_is_refused_with_the_place(table, message):
    with pytest.raises(InputError, match=message):
        exposure.given(np.array(table), n_users=2, n_items=3)


# learned


def random_rows(seed: int, size: int = 30, dim: int = 4) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    return {
        "user_vector": normal(size, dim),
        "item_vector": normal(size, dim),
        "gate_weight": normal(dim),
        "gate_bias": normal(),
        "popularity": torch.rand(size, generator=generator, dtype=torch.float64),
    }


def test_gated_exposure_is_a_constant_to_the_items_it_reads():
    e, w, items = (torch.randn(4, 3, requires_grad=True) for _ in range(3))
    m = exposure.gated(e, items, w[0], torch.zeros(()), torch.full((4,), 0.3))
    by_e, by_items = torch.autograd.grad(m.sum(), (e, items), allow_unused=True)
    assert by_e.abs().min() > 0
    assert by_items is None  # appendix B: −log m must not move ωᵢ


def test_gated_exposure_never_exceeds_one_in_float32():
    generator = torch.Generator().manual_seed(2)
    size = 100_000  # 1 − m must not turn negative where user and popularity both say 1
    item = torch.randn(size, 1, generator=generator) * 5
    user = 30 / item
    one = torch.ones(size)
    m = exposure.gated(user, item, torch.ones(1), torch.tensor(0.3), one)
    assert m.max() <= 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_arrays_of_pairs_and_whole_blocks_have_the_gated_exposure(dtype):
    rows = {name: values.to(dtype) for name, values in random_rows(seed=6, size=5).items()}
    users, items = rows.pop("user_vector")[:3], rows.pop("item_vector")
    gate = {name: values.numpy() for name, values in rows.items()}
    block = exposure.gated_array((users @ items.T).numpy(), items.numpy(), **gate, offset=0.7)
    assert block.dtype == users.numpy().dtype
    for u in range(3):
        user = users[u].expand(5, -1)
        row = exposure.gated(user, items, **rows, offset=0.7)
        np.testing.assert_allclose(block[u], row, rtol=1e-6)
        product = (user * items).sum(dim=1).numpy()
        pairs = exposure.gated_array(product, items.numpy(), **gate, offset=0.7)
        np.testing.assert_allclose(pairs, row, rtol=1e-6)
