"""Arrays in a safetensors file: written by its package, memory-mapped and checked by us."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from unexposed.files.arrays import map_arrays, release, verify_arrays, write_arrays

ARRAYS = {
    "wide": np.arange(12, dtype=np.float64).reshape(3, 4),
    "narrow": np.arange(7, dtype=np.uint8),
    "factors": np.linspace(-1, 1, 30, dtype=np.float32).reshape(5, 3, 2),
    "ids": np.array([-5, 2**60]),
    "none": np.zeros((0, 4), dtype=np.int32),
    "half": np.ones(3, dtype=np.float16),
    "scalar": np.array(3.0),
    "strided": np.arange(60, dtype=np.float32).reshape(5, 3, 4)[:, 1],
}


def mapped(path: Path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return map_arrays(descriptor)
    finally:
        os.close(descriptor)


def assert_same(found, expected) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()


def test_arrays_come_back_as_aligned_read_only_views_of_the_file(tmp_path):
    header = write_arrays(tmp_path / "a", ARRAYS)
    arrays, checksums, again = mapped(tmp_path / "a")
    verify_arrays(arrays, checksums)
    assert again == header
    assert_same(arrays, ARRAYS)
    assert_same(load_file(tmp_path / "a"), ARRAYS)  # the package agrees
    assert not any(arrays[name].flags.owndata for name in ("wide", "ids"))
    assert not arrays["wide"].flags.writeable
    assert all(array.flags.aligned for array in arrays.values())
    write_arrays(tmp_path / "b", dict(reversed(ARRAYS.items())))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def entry(**changed: object) -> dict[str, object]:
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changed


HOSTILE = {
    "no object": [],
    "nested": "[" * 100_000,
    "no entry": {"a": 3},
    "unknown type": {"a": entry(dtype="object")},
    "bool, which could hold more than 0 and 1": {"a": entry(dtype="BOOL", shape=[8])},
    "negative shape": {"a": entry(shape=[-2])},
    "fraction": {"a": entry(shape=[2.0])},
    "huge": {"a": entry(shape=[2**62, 2**62])},
    "huge and none": {"a": entry(), "b": entry(shape=[2**55, 4, 0], data_offsets=[8, 8])},
    "too many dimensions": {"a": entry(shape=[1] * 70 + [2])},
    "beyond the end": {"a": entry(shape=[4], data_offsets=[0, 16])},
    "before the start": {"a": entry(data_offsets=[-8, 0])},
    "one over the other": {"a": entry(), "b": entry()},
    "hole": {"a": entry(data_offsets=[4, 8], shape=[1])},
    "metadata that are no object": {"a": entry(), "__metadata__": [1]},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_header_is_refused(case, tmp_path):
    text = HOSTILE[case] if isinstance(HOSTILE[case], str) else json.dumps(HOSTILE[case])
    text += " " * (-len(text) % 8)
    (tmp_path / "a").write_bytes(len(text).to_bytes(8, "little") + text.encode() + bytes(8))
    with pytest.raises(ValueError, match="header|out of place|bytes"):
        mapped(tmp_path / "a")


@pytest.mark.parametrize("length", [9, 2**64 - 1])
def test_a_header_longer_than_the_file_is_refused_before_it_is_read(length, tmp_path):
    (tmp_path / "a").write_bytes(length.to_bytes(8, "little") + b"{}")
    with pytest.raises(ValueError, match="does not fit"):
        mapped(tmp_path / "a")


@given(cut=st.integers(0, 900))
def test_any_cut_is_refused(cut, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "cut"
    write_arrays(path, ARRAYS)
    whole = path.read_bytes()
    path.write_bytes(whole[: min(cut, len(whole) - 1)])
    with pytest.raises(ValueError, match="header|bytes"):
        mapped(path)


def in_memory(path: Path) -> int:
    """Bytes of a mapped file that this process holds."""
    parts = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.M)
    own = [part for part in parts if part.partition("\n")[0].endswith(str(path))]
    return sum(1024 * int(size) for part in own for size in re.findall(r"^Rss: *(\d+)", part, re.M))


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux tells")
def test_released_arrays_take_no_memory_and_stay_readable(tmp_path):
    write_arrays(tmp_path / "large", {"ones": np.ones(1 << 20)})
    arrays, checksums, _ = mapped(tmp_path / "large")
    verify_arrays(arrays, checksums)
    assert in_memory(tmp_path / "large") >= 8 << 20
    release(arrays)
    assert in_memory(tmp_path / "large") < 1 << 20
    verify_arrays(arrays, checksums)
