"""Vectors in kernels give what numpy gives, number by number."""

import math
from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from unexposed.engine import cpu_kernels as kernels
from unexposed.engine.cpu import adam_rates, aligned_zeros
from unexposed.engine.lanes import fill, load, root, store, total, whole, width

njit: Any = numba.njit
precision = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@njit
def combine(left: Any, right: Any, target: Any, scale: Any) -> Any:
    """(left·right + scale − left)/right and √right, vector by vector; Σ left·right."""
    by, sums = fill(left, scale), fill(left, left.dtype.type(0))
    for k in range(np.uint64(0), np.uint64(len(left)), width(left)):
        one, other = load(left, k), load(right, k)
        sums = sums + one * other
        store(target, k, (one * other + by - one) / other)
        store(target, np.uint64(len(left)) + k, root(other))
    return total(sums)


@njit
def logarithms(x: Any, result: Any) -> None:
    for k in range(len(x)):
        result[k] = kernels.logarithm(x[k])


def random_numbers(n: int, dtype: type) -> NDArray[Any]:
    return np.random.default_rng(0).uniform(0.5, 2, n).astype(dtype)


@precision
def test_vectors_work_lane_by_lane(dtype: type) -> None:
    numbers = random_numbers(48, dtype)
    left, right, found = numbers[:24], numbers[24:], np.zeros(48, dtype)
    sums = combine(left, right, found, dtype(3))
    tolerance = 8 * float(np.finfo(dtype).eps)
    assert sums == pytest.approx(float(left.astype(np.float64) @ right), rel=tolerance)
    assert found[:24] == pytest.approx((left * right + 3 - left) / right, rel=tolerance)
    assert (found[24:] == np.sqrt(right)).all()


def test_rows_are_filled_up_to_32_bytes() -> None:
    assert [whole(dim, 4) for dim in (1, 8, 9, 50)] == [8, 8, 16, 56]
    assert [whole(dim, 8) for dim in (1, 4, 5, 50)] == [4, 4, 8, 52]


@precision
def test_tables_begin_on_a_cache_line(dtype: type) -> None:
    for n in (1, 100, 5000):
        table = aligned_zeros(n, dtype)
        assert table.shape == (n,)
        assert table.ctypes.data % 64 == 0
        assert not table.any()


def test_the_logarithm_is_right_to_the_last_digits_and_keeps_what_is_no_number() -> None:
    x = np.concatenate([10.0 ** np.linspace(-130, 130, 2001), 1 + np.linspace(-0.4, 0.5, 2001)])
    found = np.zeros(len(x))
    logarithms(x, found)
    expected = np.array([math.log(v) for v in x])
    assert found == pytest.approx(expected, rel=4e-16, abs=4e-16)
    logarithms(np.array([math.nan]), found[:1])
    assert math.isnan(found[0])


def test_corrections_of_adam_end_where_they_have_become_one() -> None:
    corrections = adam_rates(1e-3, 0)[kernels.FIXED_RATES :].reshape(-1, 2)
    count = 17
    assert corrections[count, 0] == pytest.approx(1 / (1 - 0.9**count), rel=1e-15)
    assert corrections[count, 1] == pytest.approx((1 - 0.999**count) ** -0.5, rel=1e-15)
    assert (corrections[-1] == 1).all()
