"""Exposure given by the user or the log, and the gated model with its derivatives."""

import numpy as np
import pytest
import torch
from torch import Tensor

from unexposed.errors import InputError
from unexposed.maths import exposure

# given


def test_popularity_is_the_square_root_of_the_share_of_the_most_clicked():
    theta = exposure.popularity(np.array([100, 25, 4, 1]), exponent=0.5, floor=1e-3)
    np.testing.assert_allclose(theta, [1.0, 0.5, 0.2, 0.1], rtol=1e-6)
    assert theta.dtype == np.float32


def test_an_item_without_clicks_gets_the_floor():
    theta = exposure.popularity(np.array([0, 1, 10_000]), exponent=0.5, floor=0.05)
    np.testing.assert_allclose(theta, [0.05, 0.05, 1.0], rtol=1e-6)


def test_exponent_zero_shows_every_item():
    theta = exposure.popularity(np.array([0, 1, 7]), exponent=0, floor=0.05)
    assert theta.tolist() == [1, 1, 1]


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
def test_popularity_refuses_what_has_no_meaning(counts, exponent, floor, message):
    with pytest.raises(InputError, match=message):
        exposure.popularity(np.array(counts), exponent=exponent, floor=floor)


def test_constant_is_the_same_for_every_item():
    assert exposure.constant(3, 0.25).tolist() == [0.25, 0.25, 0.25]
    with pytest.raises(InputError, match=r"\(0, 1\], got 0"):
        exposure.constant(3, 0)


@pytest.mark.parametrize("table", [[0.1, 1.0, 0.5], [[0.1, 1.0, 0.5], [0.2, 0.3, 0.4]]])
def test_a_good_table_comes_back_as_it_is(table):
    values = exposure.given(np.array(table), n_users=2, n_items=3)
    np.testing.assert_allclose(values, table, rtol=1e-7)
    assert values.dtype == np.float32


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
def test_a_bad_table_is_refused_where_it_is_bad(table, message):
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


def test_gated_without_parameters_is_halfway_between_a_coin_and_popularity():
    zero = torch.zeros(2, 3)
    popularity = torch.tensor([0.2, 1.0])
    m = exposure.gated(zero, zero, torch.zeros(3), torch.tensor(0.0), popularity)
    torch.testing.assert_close(m, torch.tensor([0.35, 0.75]))  # ¼ + θ/2


def test_gate_chooses_between_user_and_popularity():
    rows = random_rows(seed=1)
    closed = exposure.gated(**(rows | {"gate_bias": torch.tensor(-500.0)}))
    torch.testing.assert_close(closed, rows["popularity"])
    opened = exposure.gated(**(rows | {"gate_bias": torch.tensor(500.0)}), offset=2.0)
    seen = torch.sigmoid((rows["user_vector"] * rows["item_vector"]).sum(1) + 2.0)
    torch.testing.assert_close(opened, seen)


def test_gated_exposure_never_exceeds_one_in_float32():
    generator = torch.Generator().manual_seed(2)
    size = 100_000  # 1 − m must not turn negative where user and popularity both say 1
    item = torch.randn(size, 1, generator=generator) * 5
    user = 30 / item
    one = torch.ones(size)
    m = exposure.gated(user, item, torch.ones(1), torch.tensor(0.3), one)
    assert m.max() <= 1


def test_gradient_does_not_flow_into_the_item_vector():
    rows = {name: t.requires_grad_() for name, t in random_rows(seed=3).items()}
    exposure.gated(**rows).sum().backward()
    assert rows["item_vector"].grad is None
    assert rows["user_vector"].grad is not None


@pytest.mark.parametrize("offset", [0.0, 1.5])
@pytest.mark.parametrize("name", ["user_vector", "gate_weight", "gate_bias"])
def test_gated_gradient_is_the_derivative_of_every_row(name, offset):
    rows = random_rows(seed=4)
    closed = dict(
        zip(
            ["user_vector", "gate_weight", "gate_bias"],
            exposure.gated_gradient(**rows, offset=offset),
            strict=True,
        )
    )[name]

    def moved(parameter: Tensor) -> Tensor:
        return exposure.gated(**(rows | {name: parameter}), offset=offset)

    jacobian = torch.autograd.functional.jacobian(moved, rows[name])  # (B, *parameter)
    if name == "user_vector":  # a row depends on its own vector only
        jacobian = torch.stack([jacobian[row, row] for row in range(len(jacobian))])
    torch.testing.assert_close(closed, jacobian, rtol=1e-12, atol=1e-14)

    direction = torch.randn(
        rows[name].shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64
    )
    along = (closed * direction).sum(-1) if direction.ndim else closed * direction
    step = 1e-6 * direction
    central = (moved(rows[name] + step) - moved(rows[name] - step)) / 2e-6
    torch.testing.assert_close(along, central, rtol=1e-6, atol=1e-9)


def test_gated_block_is_gated_for_every_user_and_item():
    rows = random_rows(seed=6, size=5)
    users, items = rows["user_vector"][:3], rows["item_vector"]
    gate = rows["gate_weight"], rows["gate_bias"]
    block = exposure.gated_block(
        users.numpy(),
        items.numpy(),
        gate[0].numpy(),
        gate[1].item(),
        rows["popularity"].numpy(),
        offset=0.7,
    )
    for u in range(3):
        row = exposure.gated(users[u].expand(5, -1), items, *gate, rows["popularity"], offset=0.7)
        np.testing.assert_allclose(block[u], row, rtol=1e-12)


def test_gated_block_stays_in_float32():
    vectors = np.ones((2, 3), dtype=np.float32)
    ones = np.ones(3, dtype=np.float32)
    block = exposure.gated_block(vectors, vectors, ones, 0.0, ones[:2], offset=1.0)
    assert block.dtype == np.float32


def test_gradient_on_user_vectors_maps_back_to_the_feature_weight():
    generator = torch.Generator().manual_seed(7)
    features = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    weight = torch.randn(3, 2, generator=generator, dtype=torch.float64).requires_grad_()
    upstream = torch.randn(6, 2, generator=generator, dtype=torch.float64)
    exposure.user_vectors(features, weight).backward(upstream)
    torch.testing.assert_close(exposure.user_vectors_gradient(features, upstream), weight.grad)
