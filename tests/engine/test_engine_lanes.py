"""Vectors in kernels give what numpy gives, number by number."""

import math
from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from unexposed.engine.cpu import rows
from unexposed.engine.cpu.formulas import exponential, logarithm
from unexposed.engine.cpu.lanes import fill, load, root, store, total, whole, width
from unexposed.engine.cpu.layout import aligned_zeros

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
        result[k] = logarithm(x[k])


@njit
def exponentials(x: Any, result: Any) -> None:
    for k in range(len(x)):
        result[k] = exponential(x[k])


@njit
def corrected_rates(given: Any, number: Any, corrected: Any) -> None:
    rows.correct_rates(corrected, given, number)


def random_numbers(n: int, dtype: type) -> NDArray[Any]:
    return np.random.default_rng(0).uniform(0.5, 2, n).astype(dtype)


@precision
def test_vectors_work_lane_by_lane(dtype: type) -> None:
    numbers = random_numbers(96, dtype)
    left, right, found = numbers[:48], numbers[48:], np.zeros(96, dtype)
    sums = combine(left, right, found, dtype(3))
    tolerance = 8 * float(np.finfo(dtype).eps)
    assert sums == pytest.approx(float(left.astype(np.float64) @ right), rel=tolerance)
    assert found[:48] == pytest.approx((left * right + 3 - left) / right, rel=tolerance)
    assert (found[48:] == np.sqrt(right)).all()


def test_rows_are_filled_up_to_64_bytes() -> None:
    assert [whole(dim, 4) for dim in (1, 16, 17, 50)] == [16, 16, 32, 64]
    assert [whole(dim, 8) for dim in (1, 8, 9, 50)] == [8, 8, 16, 56]


@precision
def test_tables_begin_on_a_cache_line(dtype: type) -> None:
    for shape in ((1,), (100,), (7, 3, 8), (5000,)):
        table = aligned_zeros(shape, np.dtype(dtype))
        assert (table.shape, table.dtype) == (shape, dtype)
        assert table.ctypes.data % 64 == 0
        assert not table.any()
        assert table.flags.c_contiguous
        assert table.flags.writeable


def test_the_logarithm_is_right_to_the_last_digits_and_keeps_what_is_no_number() -> None:
    x = np.concatenate([10.0 ** np.linspace(-130, 130, 2001), 1 + np.linspace(-0.4, 0.5, 2001)])
    found = np.zeros(len(x))
    logarithms(x, found)
    expected = np.array([math.log(v) for v in x])
    assert found == pytest.approx(expected, rel=4e-16, abs=4e-16)
    logarithms(np.array([math.nan]), found[:1])
    assert math.isnan(found[0])


def test_the_exponential_is_right_to_the_last_digits() -> None:
    x = np.concatenate([np.linspace(-300, 300, 4001), np.linspace(-1, 1, 2001)])
    found = np.zeros(len(x))
    exponentials(x, found)
    assert found == pytest.approx(np.array([math.exp(v) for v in x]), rel=4e-16)


def test_corrections_of_adam_follow_the_steps_and_end_where_they_have_become_one() -> None:
    given = np.array([[1e-3, 0.2], [0.5, 0.0]])  # learning rate and weight decay
    corrected = np.zeros((2, 3))
    for number in (1, 2, 17, 5000):
        corrected_rates(given, number, corrected)
        step, scale = given[:, 0] / (1 - 0.9**number), (1 - 0.999**number) ** -0.5
        assert corrected[:, rows.STEP] == pytest.approx(step, rel=1e-12)
        assert corrected[:, rows.SCALE] == pytest.approx(scale, rel=1e-12)
        assert (corrected[:, rows.DECAY] == given[:, 1]).all()
    corrected_rates(given, 10**12, corrected)
    assert (corrected[:, rows.STEP] == given[:, 0]).all()
    assert (corrected[:, rows.SCALE] == 1).all()
