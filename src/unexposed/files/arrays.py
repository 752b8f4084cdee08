"""Arrays as a safetensors file, whose header holds a checksum of every array."""

import hashlib
import json
import math
import mmap
import os
import re
from collections.abc import Mapping
from errno import EIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file

from unexposed.files import whole

Arrays = dict[str, NDArray[Any]]

TYPES: dict[str, np.dtype[Any]] = {
    f"{kind.upper()}{8 * size}": np.dtype(f"<{kind}{size}")
    for kind, sizes in {"f": (2, 4, 8), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8)}.items()
    for size in sizes
}
MOST_JSON = 1 << 26  # bytes of the JSON document, or of the header in JSON
MOST_DIMENSIONS = 8
MOST_BYTES = 1 << 56
CHECKSUMS = "sha256"  # the key of the array checksums in the header


def sha256(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()


def write_arrays(path: Path, arrays: Arrays) -> str:
    """Write arrays to a safetensors file, and return the checksum of its header."""
    # safetensors reads the memory of an array as it lies
    packed = {
        name: array if array.flags.c_contiguous else array.copy(order="C")
        for name, array in arrays.items()
    }
    # one entry of metadata only: safetensors writes several in any order
    metadata = {
        CHECKSUMS: json.dumps({name: _array_sha256(packed[name]) for name in sorted(packed)})
    }
    try:
        save_file(packed, path, metadata=metadata)
    except SafetensorError as error:
        found = re.search(r"\(os error (\d+)\)", str(error))
        number = int(found[1]) if found else EIO
        raise OSError(number, os.strerror(number)) from error
    path.chmod(0o666 & ~whole.umask())  # safetensors leaves it to its owner alone
    whole.sync(path)
    with path.open("rb") as file:
        length = file.read(8)
        return sha256(length + file.read(int.from_bytes(length, "little")))


def map_arrays(descriptor: int) -> tuple[Arrays, Any, str]:
    """Read-only views of the arrays in an open file, with the checksums of arrays and header.

    Every length is checked against the file before it is used.
    """
    size = os.fstat(descriptor).st_size
    length = int.from_bytes(os.pread(descriptor, 8, 0), "little")
    if size < 8 or length > min(MOST_JSON, size - 8):
        raise ValueError("its header does not fit into it")
    header = os.pread(descriptor, 8 + length, 0)
    try:
        entries = json.loads(header[8:])
        checksums = json.loads(entries.pop("__metadata__", {}).get(CHECKSUMS, "{}"))
        places = [(*_place(entry), name) for name, entry in entries.items()]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError("its header is not one of a safetensors file") from error
    end = 0
    for begin, stop, dtype, _, name in sorted(places, key=lambda place: place[:2]):
        if begin != end or (8 + length + begin) % dtype.itemsize:
            raise ValueError(f"the array {name!r} is out of place")
        end = stop
    if 8 + length + end != size:
        raise ValueError(f"it has {size:,} bytes and should have {8 + length + end:,}")
    mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    arrays = {
        name: np.ndarray(shape, dtype, buffer=mapped, offset=8 + length + begin)
        if stop > begin
        else np.zeros(shape, dtype)
        for begin, stop, dtype, shape, name in places
    }
    return arrays, checksums, sha256(header)


def release(arrays: Arrays) -> None:
    """Give back the memory of mapped arrays; the file is read again where they are used again."""
    for array in arrays.values():
        mapped = array.base
        if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)


def verify_arrays(arrays: Arrays, checksums: Mapping[str, str]) -> None:
    """Read every array and compare it with its checksum."""
    for name in arrays.keys() ^ dict(checksums).keys():
        raise ValueError(f"the array {name!r} and its checksum are not both there")
    for name, array in arrays.items():
        if _array_sha256(array) != checksums[name]:
            raise ValueError(f"the array {name!r} is not what was written")


def _array_sha256(array: NDArray[Any]) -> str:
    return sha256(array.reshape(-1).view(np.uint8))


def _place(entry: Any) -> tuple[int, int, np.dtype[Any], tuple[int, ...]]:
    """Begin, end, type and shape of an array; refused where they do not agree."""
    (begin, end), shape, dtype = entry["data_offsets"], entry["shape"], TYPES[entry["dtype"]]
    if not all(type(n) is int and 0 <= n < MOST_BYTES for n in (begin, end, *shape)):
        raise ValueError("not a place")
    if math.prod(n or 1 for n in shape) > MOST_BYTES:  # numpy refuses it even where one is 0
        raise ValueError("not a shape")
    if len(shape) > MOST_DIMENSIONS or math.prod(shape) * dtype.itemsize != end - begin:
        raise ValueError("not the size")
    return begin, end, dtype, tuple(shape)
