"""Hostile files: models and checkpoints damaged by a disk."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from attack_command import FIT, METHODS, ended
from unexposed.tensors import read_file

READING = (
    "recommend model -k 3",
    "recommend model -k 3 --new-clicks newer.csv --unknown popular --popularity-penalty 1",
    "similar model --item 4 -k 2 --json",
    "update model newer.csv --out other --force",
    "evaluate model --judged world/judged.csv --json",
    "report model --json",
    "export model --to other --format npy",
    "doctor model --json",
)


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


def folders(whole: Path, number: int, seed: int) -> Iterator[str | None]:
    """One damaged model and every command that reads one, or a checkpoint and `fit --resume`."""
    rng = np.random.default_rng([seed, 2, number])
    method = METHODS[rng.integers(len(METHODS))]
    kind, to = (".checkpoint", "out.checkpoint") if number % 4 == 3 else ("", "model")
    resume = (FIT + " --out out --resume").replace("METHOD", method)
    with tempfile.TemporaryDirectory() as name:
        here = Path(name) / "here"
        shutil.copytree(whole, here)
        (here / "other.safetensors").unlink()
        hostile = here / f"{to}.safetensors"
        shutil.copy(whole / f"{method}{kind}.safetensors", hostile)
        how = damage(hostile, rng)
        for words in READING if not kind else (resume,):
            end = ended(here, words)
            fault = end.fault()
            if end.code == 0 and "--json" in words:
                fault = fault or not_json(end.out)
            if end.code == 0 and words.startswith(("update", "fit")):
                given = hostile if words != resume else here / "out.safetensors"
                fault = fault or _unlike(given, whole / f"{method}.safetensors")
            yield fault and f"{method}, {how}: {words}: {fault}"
            (here / "other.safetensors").unlink(missing_ok=True)
            shutil.rmtree(here / "other", ignore_errors=True)


def _unlike(one: Path, other: Path) -> str | None:
    """Whether damage went into a new model: it has other arrays than a sound training."""
    found, wanted = (read_file(path).arrays for path in (one, other))
    same = all(found[name].tobytes() == array.tobytes() for name, array in wanted.items())
    return None if same else "damage went into a new model"


def not_json(out: str) -> str | None:
    try:
        json.loads(out, parse_constant=lambda name: [][len(name)])
    except (ValueError, IndexError):
        return "prints what is not JSON"
    return None
