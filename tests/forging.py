"""Change a saved folder as somebody who knows its format can: all checksums agree afterwards."""

import json
import os
from pathlib import Path
from typing import Any

from unexposed.files import archive

Parts = tuple[dict[str, Any], archive.Arrays]


def taken_apart(folder: Path, what: str = "model") -> Parts:
    """The JSON document of a folder, and copies of its arrays."""
    descriptor = os.open(folder / archive.ARRAYS, os.O_RDONLY)
    try:
        arrays = {name: array.copy() for name, array in archive.map_arrays(descriptor)[0].items()}
    finally:
        os.close(descriptor)
    return json.loads((folder / f"{what}.json").read_text()), arrays


def put_together(
    folder: Path, about: dict[str, Any], arrays: archive.Arrays, what: str = "model"
) -> None:
    about["arrays"] = archive.write_arrays(folder / archive.ARRAYS, arrays)
    about["checksum"] = archive.checksum(about)
    (folder / f"{what}.json").write_text(json.dumps(about))


def forge(folder: Path, arrays: dict[str, Any] | None = None, **changed: Any) -> None:
    """Change parts of a model; an array given as None is removed."""
    about, old = taken_apart(folder)
    new = {name: array for name, array in (old | (arrays or {})).items() if array is not None}
    put_together(folder, about | changed, new)
