import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from unexposed.files import tensors

ARRAYS = {
    "wide": np.arange(12, dtype=np.float64).reshape(3, 4),
    "narrow": np.arange(7, dtype=np.uint8),
    "factors": np.linspace(-1, 1, 30, dtype=np.float32).reshape(5, 3, 2),
    "ids": np.array([-5, 2**60]),
    "none": np.zeros((0, 4), dtype=np.int32),
    "half": np.ones(3, dtype=np.float16),
}


def write(path: Path, arrays=ARRAYS, **metadata: str) -> bytes:
    with path.open("wb") as file:
        return tensors.write(file, arrays, metadata)


def read(path: Path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return tensors.read(descriptor)
    finally:
        os.close(descriptor)


def assert_same(found, expected) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()


def test_arrays_and_metadata_come_back_as_they_were(tmp_path):
    header = write(tmp_path / "a", note="ünïcode")
    arrays, metadata, again = read(tmp_path / "a")
    assert_same(arrays, ARRAYS)
    assert metadata["note"] == "ünïcode"
    assert again == header


def test_the_package_safetensors_reads_what_we_write_and_we_what_it_writes(tmp_path):
    write(tmp_path / "ours", note="x")
    assert_same(load_file(tmp_path / "ours"), ARRAYS)
    save_file(ARRAYS, tmp_path / "theirs")
    assert_same(read(tmp_path / "theirs")[0], ARRAYS)


def test_a_strided_array_is_written_as_its_values_part_by_part(tmp_path, monkeypatch):
    monkeypatch.setattr(tensors, "CHUNK", 16)
    strided = np.arange(60, dtype=np.float32).reshape(5, 3, 4)[:, 1]
    write(tmp_path / "a", {"strided": strided, "scalar": np.array(3.0)})
    arrays = read(tmp_path / "a")[0]
    assert arrays["strided"].tolist() == strided.tolist()
    assert arrays["scalar"] == 3.0


def test_arrays_are_views_of_the_file_that_cannot_be_written_to(tmp_path):
    write(tmp_path / "a")
    array = read(tmp_path / "a")[0]["wide"]
    assert not array.flags.owndata
    assert array.flags.aligned
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_a_single_changed_bit_of_an_array_is_found_and_the_array_named(tmp_path):
    header = write(tmp_path / "a")
    arrays, metadata, _ = read(tmp_path / "a")
    tensors.verify(arrays, metadata)
    whole = bytearray((tmp_path / "a").read_bytes())
    whole[len(header) + 3] ^= 1  # in the first of the widest
    (tmp_path / "a").write_bytes(whole)
    arrays, metadata, _ = read(tmp_path / "a")
    with pytest.raises(tensors.Damaged, match="array 'ids' is not what was written"):
        tensors.verify(arrays, metadata)


def entry(**changed: object) -> dict[str, object]:
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changed


HOSTILE = {
    "no dict": [],
    "nested": "[" * 100_000,
    "no entry": {"a": 3},
    "unknown type": {"a": entry(dtype="object")},
    "bool, which could hold more than 0 and 1": {"a": entry(dtype="BOOL", shape=[8])},
    "negative shape": {"a": entry(shape=[-2])},
    "fraction": {"a": entry(shape=[2.0])},
    "true": {"a": entry(shape=[2, True])},
    "huge": {"a": entry(shape=[2**62, 2**62])},
    "huge and none": {"a": entry(), "b": entry(shape=[2**55, 4, 0], data_offsets=[8, 8])},
    "too many dimensions": {"a": entry(shape=[1] * 70 + [2])},
    "beyond the end": {"a": entry(shape=[4], data_offsets=[0, 16])},
    "before the start": {"a": entry(data_offsets=[-8, 0])},
    "one over the other": {"a": entry(), "b": entry()},
    "hole": {"a": entry(data_offsets=[4, 8], shape=[1])},
    "metadata that are no dict": {"a": entry(), "__metadata__": [1]},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_header_is_refused(case, tmp_path):
    text = HOSTILE[case] if isinstance(HOSTILE[case], str) else json.dumps(HOSTILE[case])
    text += " " * (-len(text) % 8)
    (tmp_path / "a").write_bytes(len(text).to_bytes(8, "little") + text.encode() + bytes(8))
    with pytest.raises(tensors.Damaged):
        read(tmp_path / "a")


@pytest.mark.parametrize("length", [9, 2**32, 2**63, 2**64 - 1])
def test_a_header_longer_than_the_file_is_refused_before_it_is_read(length, tmp_path):
    (tmp_path / "a").write_bytes(length.to_bytes(8, "little") + b"{}")
    with pytest.raises(tensors.Damaged, match="does not fit"):
        read(tmp_path / "a")


@given(cut=st.integers(0, 700), at=st.integers(0, 700), byte=st.integers(0, 255))
def test_any_cut_is_refused_and_any_changed_byte_is_refused_or_found(
    cut, at, byte, tmp_path_factory
):
    path = tmp_path_factory.getbasetemp() / "cut"
    write(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: min(cut, len(whole) - 1)])
    with pytest.raises(tensors.Damaged):
        read(path)
    changed = bytearray(whole)
    changed[at] = byte
    path.write_bytes(changed)
    try:
        arrays, metadata, header = read(path)
        tensors.verify(arrays, metadata)
    except tensors.Damaged:
        return
    if header == whole[: len(header)]:  # the caller's part is to know the header
        assert_same(arrays, ARRAYS)
