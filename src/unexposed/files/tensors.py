"""Named arrays in one safetensors file: written without a copy, read without reading.

The format is that of safetensors: the length of a header, the header in JSON, the bytes of the
arrays. Its own package copies an array to write it and again to read it; here an array goes
straight to the file, and comes back as a view of the mapped file. The header also holds a
SHA-256 of every array.
"""

import hashlib
import json
import math
import mmap
import os
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

TYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
}
NAMES = {dtype: name for name, dtype in TYPES.items()}
ALIGNMENT = 64  # of the first array; the widest come first, so the others are aligned, too
MOST_HEADER = 1 << 26  # bytes
MOST_DIMENSIONS = 8
MOST_BYTES = 1 << 56
CHUNK = 1 << 23  # bytes written or hashed at a time
CHECKSUMS = "sha256"  # their place in the metadata


class Damaged(ValueError):
    """A file that is not what was written; its text says why, and not which file."""


def write(file: BinaryIO, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> bytes:
    """Write the arrays to a file open for it, and give the header."""
    ordered = dict(sorted(arrays.items(), key=lambda pair: (-pair[1].itemsize, pair[0])))
    unknown = "0" * hashlib.sha256().digest_size * 2
    file.write(_header(ordered, metadata, dict.fromkeys(ordered, unknown)))
    checksums = {}
    for name, array in ordered.items():
        checksum = hashlib.sha256()
        for part in _chunks(array):
            checksum.update(part)
            file.write(part)
        checksums[name] = checksum.hexdigest()
    header = _header(ordered, metadata, checksums)  # as long as before
    file.seek(0)
    file.write(header)
    return header


def read(descriptor: int) -> tuple[Arrays, dict[str, str], bytes]:
    """The arrays as read-only views of an open file, the metadata, and the header as it stands.

    Nothing is believed: every length is checked against the file before it is used.
    """
    size = os.fstat(descriptor).st_size
    length = int.from_bytes(os.pread(descriptor, 8, 0), "little")
    if size < 8 or length > min(MOST_HEADER, size - 8):
        raise Damaged("its header does not fit into it")
    header = os.pread(descriptor, 8 + length, 0)
    try:
        entries = json.loads(header[8:])
        metadata = entries.pop("__metadata__", {})
        texts = {name: str(text) for name, text in metadata.items()}
        places = [(*_place(entry), name) for name, entry in entries.items()]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Damaged("its header is not that of a safetensors file") from error
    end = 0
    for begin, stop, dtype, _, name in sorted(places, key=lambda place: place[:2]):
        if begin != end or (8 + length + begin) % dtype.itemsize:
            raise Damaged(f"the array {name!r} is out of place")
        end = stop
    if 8 + length + end != size:
        raise Damaged(f"it has {size:,} bytes and should have {8 + length + end:,}")
    mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    arrays = {
        name: np.ndarray(shape, dtype, buffer=mapped, offset=8 + length + begin)
        if stop > begin
        else np.zeros(shape, dtype)
        for begin, stop, dtype, shape, name in places
    }
    return arrays, texts, header


def verify(arrays: Arrays, metadata: Mapping[str, str]) -> None:
    """Read every array and compare it with its checksum."""
    try:
        checksums = json.loads(metadata[CHECKSUMS])
        missing = set(arrays) ^ set(checksums)
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise Damaged("it holds no checksums") from error
    for name in missing:
        raise Damaged(f"the array {name!r} and its checksum are not both there")
    for name, array in arrays.items():
        checksum = hashlib.sha256()
        for part in _chunks(array):
            checksum.update(part)
        if checksum.hexdigest() != checksums[name]:
            raise Damaged(f"the array {name!r} is not what was written")


def _header(
    arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str], checksums: dict[str, str]
) -> bytes:
    entries: dict[str, Any] = {"__metadata__": {**metadata, CHECKSUMS: json.dumps(checksums)}}
    begin = 0
    for name, array in arrays.items():
        end = begin + array.nbytes
        kind, shape = NAMES[array.dtype], list(array.shape)
        entries[name] = {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(entries).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _place(entry: Any) -> tuple[int, int, np.dtype[Any], tuple[int, ...]]:
    """Begin, end, type and shape of an array, which agree."""
    (begin, end), shape, dtype = entry["data_offsets"], entry["shape"], TYPES[entry["dtype"]]
    if not all(type(n) is int and 0 <= n < MOST_BYTES for n in (begin, end, *shape)):
        raise ValueError("not a place")
    if math.prod(n or 1 for n in shape) > MOST_BYTES:  # numpy refuses it even where one is 0
        raise ValueError("not a shape")
    if len(shape) > MOST_DIMENSIONS or math.prod(shape) * dtype.itemsize != end - begin:
        raise ValueError("not the size")
    return begin, end, dtype, tuple(shape)


def _chunks(array: NDArray[Any]) -> Iterator[memoryview]:
    """The bytes of an array in row order, a few at a time: only a strided part is copied."""
    if array.size == 0:
        return
    rows = array.reshape(1) if array.ndim == 0 else array
    size = max(1, CHUNK // max(1, rows[:1].nbytes))
    for start in range(0, len(rows), size):
        part: Any = np.ascontiguousarray(rows[start : start + size]).reshape(-1)
        yield memoryview(part).cast("B")
