"""The same seed gives the same bits as before the modules moved into rooms.

`python tests/test_fingerprints.py` stores them. On another processor compiled sums differ in
their last bits, so there a hash is not compared, only the rounded size of each array.
"""

import hashlib
import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch

import unexposed as ux
from small import BRIEF, make_with

STORED = Path(__file__).with_name("fingerprints.json")
CHANGES = {"pairs": "all"}, {"weighting": "unbiased"}, {"negatives_from": "catalogue"}
STRATEGIES = "joint", "alternate", "bilevel_on_batch", "frozen"
TRAINED: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in ("random popularity mf bpr wmf relmf umf expomf cjmf ubo").split()),
    *((name, {"engine": "reference"}) for name in ("mf", "bpr", "relmf", "umf", "ubo", "cjmf")),
    *(("umf", change) for change in CHANGES),
    *(("ubo", {"strategy": strategy}) for strategy in STRATEGIES),
    ("ubo", {"validation_in_training": False, "validation_items": 2, "validation_batch": 8}),
    ("relmf", {"form": "squared"}),
]


def machine() -> str:
    """The processor and the vector instructions that torch uses on it."""
    info = Path("/proc/cpuinfo")
    names = info.read_text().splitlines() if info.exists() else []
    model = next((line for line in names if line.startswith("model name")), platform.processor())
    return f"{model.split(':')[-1].strip()}, {torch.backends.cpu.get_cpu_capability()}"


def prints() -> dict[str, Any]:
    """The fingerprint of what every method learns, recommends and scores on a small world."""
    world = ux.world(120, 60, seed=3)
    split = world.split(seed=0)
    clicks = split.train
    found = {"clicks": of(clicks.keys), "truth": of(world.relevance(np.arange(9)))}
    for name, settings in TRAINED:
        model = make_with(name, BRIEF | settings).fit(clicks, seed=1)
        key = f"{name} {settings}" if settings else name
        for part, array in sorted(model.parameters.items()):
            found[f"{key}: {part}"] = of(array)
        lists = model.recommend(clicks.user_ids.values.tolist()[:20], k=5)
        found[f"{key}: lists"] = of(lists["score"].to_numpy())
        values = ux.evaluate(model, split.judged, ux.PROTOCOLS["ubo-ijcai22"]).values
        found[f"{key}: judged"] = of(np.concatenate([values[m] for m in sorted(values)]))
        if "start" in model.method.takes:
            again = model.update(world.clicks(1), epochs=1, seed=2)
            for part, array in sorted(again.parameters.items()):
                found[f"{key}, updated: {part}"] = of(array)
    return found


def of(array: Any) -> dict[str, Any]:
    values = np.ascontiguousarray(array)
    size = float(np.abs(np.nan_to_num(values.astype(np.float64), posinf=0, neginf=0)).mean())
    digest = hashlib.sha256(values.tobytes()).hexdigest()[:16]
    return {"shape": list(values.shape), "hash": digest, "size": float(f"{size:.2g}")}


def test_the_same_seed_gives_the_bits_of_before_the_move() -> None:
    stored = json.loads(STORED.read_text())
    compared = ("shape", "hash") if machine() == stored["machine"] else ("shape",)
    found = prints()
    assert found.keys() == stored["prints"].keys()
    for key, print_ in stored["prints"].items():
        assert {c: found[key][c] for c in compared} == {c: print_[c] for c in compared}, key
        np.testing.assert_allclose(found[key]["size"], print_["size"], rtol=0.2, err_msg=key)


if __name__ == "__main__":
    text = json.dumps({"machine": machine(), "prints": prints()}, indent=1, ensure_ascii=False)
    STORED.write_text(text + "\n")
