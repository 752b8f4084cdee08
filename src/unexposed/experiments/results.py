"""Files of results: one line of JSON for each finished run; a torn last line does not count."""

import base64
import binascii
import json
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.errors import InputError
from unexposed.files.whole import write_whole

Line = dict[str, Any]

# the criterion that the settings `snips_…` of stored results make, by those that differ
CRITERION_OF = {
    (1.5, 0.0, "all", "unclicked"): "uniform",
    (1.5, 0.25, "all", "unclicked"): "popular",
    (1.5, 0.5, "all", "unclicked"): "popular_half",
    (-1.0, 0.0, "all", "unclicked"): "plain",
    (-1.0, 0.0, "wtd", "unclicked"): "wtd",
    (-1.0, 0.0, "all", "shown"): "shown",
}


def with_criterion(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a stored result, with one criterion in place of the settings `snips_…`."""
    own = {k: v for k, v in settings.items() if not k.startswith("snips_")}
    if "snips_candidates_exponent" in settings:
        usual = {"snips_draw": "all", "snips_among": "unclicked"} | settings
        names = ("exponent", "candidates_exponent", "draw", "among")
        own["criterion"] = CRITERION_OF[tuple(usual[f"snips_{name}"] for name in names)]
    if "snips_window" in settings:
        own["quality_window"] = settings["snips_window"]
    return own


def pack(values: NDArray[np.float64]) -> str:
    """Encode numbers as short text without loss: the distinct values, and an index for each.

    A metric takes few distinct values, so most of the text is a byte or less for each user.
    """
    bits = np.ascontiguousarray(values, dtype="<f8").view("<i8")  # keeps −0 and NaN
    distinct, which = np.unique(bits, return_inverse=True)
    width = _width(len(distinct))
    parts = (np.array([len(distinct)], dtype="<u4"), distinct, which.astype(width))
    raw = b"".join(part.tobytes() for part in parts)
    return base64.b64encode(zlib.compress(raw, 9)).decode("ascii")


def unpack(text: str) -> NDArray[np.float64]:
    """Decode the numbers that `pack` encoded."""
    try:
        raw = zlib.decompress(base64.b64decode(text, validate=True))
        n_distinct = int(np.frombuffer(raw, "<u4", count=1)[0])
        distinct = np.frombuffer(raw, "<f8", count=n_distinct, offset=4)
        which = np.frombuffer(raw, _width(n_distinct), offset=4 + 8 * n_distinct)
        return distinct[which].astype(np.float64)
    except (ValueError, IndexError, TypeError, binascii.Error, zlib.error) as error:
        raise InputError(f"these packed values are damaged ({error})") from error


def _width(n_distinct: int) -> str:
    return "<u1" if n_distinct <= 1 << 8 else "<u2" if n_distinct <= 1 << 16 else "<u4"


def read_lines(path: Path) -> list[Line]:
    """Read the results of a file in order; none if the file does not exist.

    A last line without a newline was being written when the run was killed: it does not count.
    """
    try:
        text = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    lines = []
    for number, raw in enumerate(text.split(b"\n")[:-1], 1):
        try:
            line = json.loads(raw)
            if not (isinstance(line, dict) and isinstance(line["arm"], str)):
                raise ValueError("not a result")
            line["seed"] = int(line["seed"])
        except (ValueError, KeyError, TypeError):
            raise InputError(
                f"{path}, line {number} is damaged; remove that line to repeat its run"
            ) from None
        lines.append(line)
    return lines


def is_torn(path: Path) -> bool:
    """Say whether the file ends within a line, as after a kill."""
    if not path.exists() or path.stat().st_size == 0:
        return False
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def check_place(path: Path) -> None:
    """Refuse a path that cannot be written, before the work begins."""
    here = path.parent
    while not here.exists():
        here = here.parent
    if path.is_dir() or not here.is_dir() or not os.access(here, os.W_OK):
        raise InputError(f"cannot write {path}: {here} is not a writable folder")


def append_line(path: Path, line: Line) -> None:
    """Append a result; it is on the disk when this returns."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # opened for each line, because another run may have replaced the file
        with open(path, "ab") as file:
            file.write(_text(line))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def write_lines(path: Path, lines: list[Line]) -> None:
    """Replace the results in a file atomically."""
    write_whole(path, lambda to: to.write_bytes(b"".join(map(_text, lines))))


def _text(line: Line) -> bytes:
    return json.dumps(line, allow_nan=False, separators=(",", ":")).encode() + b"\n"
