"""Hostile folders: models and checkpoints damaged by a disk or forged by an expert."""

import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from attack_command import FIT, METHODS, ended
from unexposed.files import archive

READING = (
    "recommend model -k 3",
    "recommend model -k 3 --new-clicks newer.csv --unknown popular --popularity-penalty 1",
    "similar model --item 4 -k 2 --json",
    "similar model --user 3 -k 2",
    "update model newer.csv --out other --force",
    "evaluate model --judged world/judged.csv --json",
    "report model --json",
    "export model --to other --format npy",
    "doctor model --json",
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to every value of a document."""
    for key, part in value.items() if isinstance(value, dict) else enumerate(value[:2]):
        yield (*path, key)
        if isinstance(part, dict | list):
            yield from places(part, (*path, key))


def forge_document(about: dict[str, Any], rng: np.random.Generator) -> str:
    odd = [None, True, -1, 0, 1, 3, 2**31, -(2**63), 10**12, 10**30, math.nan, math.inf, 1e300]
    odd += ["", "\x1b[31m", "9", -0.5, [], [[]], [None], {}, {"a": 1}, [1, "x"]]
    found = list(places(about))
    path = found[rng.integers(len(found))]
    at: Any = about
    for key in path[:-1]:
        at = at[key]
    if rng.integers(4) == 0:
        del at[path[-1]]
        return f"{path} removed"
    at[path[-1]] = value = odd[rng.integers(len(odd))]
    return f"{path} = {value!r}"


def forge_array(arrays: dict[str, Any], rng: np.random.Generator) -> str:
    name = sorted(arrays)[rng.integers(len(arrays))]
    array = arrays[name]
    how = str(rng.choice(["value", "bits", "length", "longer", "type", "shape", "gone"]))
    if how == "gone" or array.size == 0:
        del arrays[name]
    elif how == "length":
        arrays[name] = array[: rng.integers(len(array) + 1)]
    elif how == "longer":
        arrays[name] = np.concatenate([array, array[-1:]])
    elif how == "type":
        with np.errstate(invalid="ignore"):
            arrays[name] = array.astype(str(rng.choice(["<f8", "<i8", "<u1", "<f2", "<i4"])))
    elif how == "shape":
        arrays[name] = array.reshape([(-1,), (1, -1), (-1, 1)][rng.integers(3)])
    elif how == "bits":
        array.reshape(-1).view(np.uint8)[rng.integers(array.nbytes)] ^= 1 << rng.integers(8)
    else:
        least = np.finfo(array.dtype) if array.dtype.kind == "f" else np.iinfo(array.dtype)
        ends = [0, 1, 5, 99, least.min, least.max, array.max()]
        ends += [np.nan, np.inf, 1e30] if array.dtype.kind == "f" else []
        array.reshape(-1)[rng.integers(array.size)] = ends[rng.integers(len(ends))]
    return f"{name}: {how}"


def damage(file: Path, rng: np.random.Generator) -> str:
    """Flip a bit, cut or lengthen, as a bad disk does: the checksums tell."""
    content = bytearray(file.read_bytes())
    how, at = str(rng.choice(["bit", "bit", "cut", "more"])), int(rng.integers(len(content)))
    if how == "bit":
        content[at] ^= 1 << rng.integers(8)
    elif how == "cut":
        del content[at:]
    else:
        content += b"\0"
    file.write_bytes(content)
    return f"{file.name}: {how} at {at}"


def make_hostile(folder: Path, what: str, rng: np.random.Generator) -> tuple[str, bool]:
    """Change a sound folder; how, and whether its checksums still agree."""
    if rng.integers(3) == 0:
        name = str(rng.choice(["arrays.safetensors", "arrays.safetensors", f"{what}.json"]))
        return damage(folder / name, rng), False
    about = json.loads((folder / f"{what}.json").read_text())
    descriptor = os.open(folder / "arrays.safetensors", os.O_RDONLY)
    arrays = {name: array.copy() for name, array in archive.map_arrays(descriptor)[0].items()}
    os.close(descriptor)
    how = forge_document(about, rng) if rng.integers(2) else forge_array(arrays, rng)
    about["arrays"] = archive.write_arrays(folder / archive.ARRAYS, arrays)
    about["checksum"] = archive.checksum(about)
    (folder / f"{what}.json").write_text(json.dumps(about))
    return how, True


def folders(whole: Path, number: int, seed: int) -> Iterator[str | None]:
    """One hostile model and every command that reads one, or a checkpoint and `fit --resume`."""
    rng = np.random.default_rng([seed, 2, number])
    method = METHODS[rng.integers(len(METHODS))]
    what, to = ("checkpoint", "out.checkpoint") if number % 4 == 3 else ("model", "model")
    resume = (FIT + " --out out --resume").replace("METHOD", method)
    with tempfile.TemporaryDirectory() as name:
        here = Path(name) / "here"
        shutil.copytree(whole, here)
        shutil.rmtree(here / "other")
        shutil.copytree(whole / (method if what == "model" else f"{method}.checkpoint"), here / to)
        how, is_forged = make_hostile(here / to, what, rng)
        for words in READING if what == "model" else (resume,):
            end = ended(here, words)
            fault = end.fault()
            if end.code == 0 and "--json" in words:
                fault = fault or not_json(end.out)
            if end.code == 0 and words.startswith(("update", "fit")) and not is_forged:
                arrays = "arrays.safetensors"
                is_same = (
                    words == resume
                    and (here / "out" / arrays).read_bytes()
                    == (whole / method / arrays).read_bytes()
                )
                fault = fault or (None if is_same else "damage went into a new model")
            yield fault and f"{method}, {how}: {words}: {fault}"
            shutil.rmtree(here / "other", ignore_errors=True)


def not_json(out: str) -> str | None:
    try:
        json.loads(out, parse_constant=lambda name: [][len(name)])
    except (ValueError, IndexError):
        return "prints what is not JSON"
    return None
