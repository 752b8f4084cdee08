"""Results are stored without loss, in few bytes, and survive a kill."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unexposed.errors import InputError
from unexposed.experiments import results


@given(arrays(np.float64, st.integers(0, 400), elements=st.floats(width=64)))
def test_packed_values_come_back_to_the_last_bit(values):
    assert results.unpack(results.pack(values)).tobytes() == values.tobytes()


@pytest.mark.parametrize("n_distinct", [256, 257, 65_537])  # widths of one, two and four bytes
def test_more_distinct_values_than_a_byte_or_two_can_count_come_back(n_distinct):
    values = np.random.default_rng(0).permutation(np.arange(n_distinct) / 7)
    np.testing.assert_array_equal(results.unpack(results.pack(values)), values)


def test_a_metric_of_few_values_takes_less_than_a_byte_for_each_user():
    values = np.random.default_rng(0).choice([0, 0.5, 1, 1.5, 1.63], size=2374)
    assert len(results.pack(values)) < 2374


@pytest.mark.parametrize("text", ["", "nonsense!", "AAAA", results.pack(np.ones(9))[:-8]])
def test_damaged_values_are_refused(text):
    with pytest.raises(InputError, match="damaged"):
        results.unpack(text)


def line(arm: str, seed: int) -> dict[str, object]:
    return {"arm": arm, "seed": seed}


def test_a_line_cut_short_by_a_kill_does_not_count(tmp_path):
    path = tmp_path / "some.jsonl"
    results.append_line(path, line("mf", 0))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:-1])  # only its end is missing
    assert results.is_torn(path)
    assert results.read_lines(path) == [line("mf", 0)]


@pytest.mark.parametrize("text", ["{", "[1]", '{"arm": "mf"}', '{"arm": 3, "seed": 0}', "", "\x00"])
def test_a_damaged_line_is_named(tmp_path, text):
    path = tmp_path / "some.jsonl"
    path.write_text(f"{json.dumps(line('mf', 0))}\n{text}\n{json.dumps(line('mf', 1))}\n")
    with pytest.raises(InputError, match=r"some\.jsonl, line 2 is damaged; remove that line"):
        results.read_lines(path)


def test_a_result_that_is_not_a_number_is_never_written(tmp_path):
    path = tmp_path / "some.jsonl"
    with pytest.raises(ValueError, match="JSON"):
        results.append_line(path, {**line("mf", 0), "seconds": float("nan")})
    assert results.read_lines(path) == []


def test_lines_replace_a_file_all_at_once(tmp_path):
    path = tmp_path / "some.jsonl"
    results.write_lines(path, [line("mf", 0)])
    with pytest.raises(TypeError):
        results.write_lines(path, [line("mf", 1), {"arm": object()}])
    assert results.read_lines(path) == [line("mf", 0)]
    assert list(tmp_path.iterdir()) == [path]
