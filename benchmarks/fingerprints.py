"""Fingerprints of what methods compute: every method × engine × strategy, and what a model does.

`fingerprints.py write FILE` stores them, `fingerprints.py compare FILE` says which changed: bits
on the CPU engine, and how far apart the numbers are elsewhere. Only public functions are used.
"""

import hashlib
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import unexposed as ux

BRIEF = {"dim": 6, "epochs": 4, "learning_rate": 0.02, "batch_size": 64, "negatives": 5}
SHORT = {"dim": 6, "epochs": 4, "n_models": 3, "negatives": 5}
COMPOSED = ["mf", "bpr", "ubpr", "relmf", "umf", "ubo"]
STRATEGIES = ["bilevel", "joint", "alternate", "bilevel_on_batch", "frozen"]
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "mf": [{"biases": True}, {"negatives_from": "catalogue"}, {"negatives_exponent": 0.5}],
    "bpr": [{"biases": True}, {"negatives_exponent": 0.5}],
    "ubpr": [{"popularity_exponent": 0.25}],
    "relmf": [{"form": "squared"}, {"pairs": "all"}, {"popularity_exponent": 1.0}],
    "umf": [{"biases": True}, {"pairs": "all"}, {"weighting": "unbiased"}],
    "ubo": [
        {"gate_pace": 0.5},
        {"exposure_model": "items", "exposure_learning_rate": 0.05},
        {"exposure_model": "popularity", "exposure_learning_rate": 0.05},
        {"exposure_offset": 2.0, "biases": True},
    ],
    "ease": [{"popularity_exponent": 0.5}],
    "cjmf": [],
    "wmf": [],
    "expomf": [],
    "popularity": [],
    "random": [],
}


def digest(*arrays: Any) -> tuple[str, list[float]]:
    """A hash of the bits, and a few numbers that move little when the arrays do."""
    sha, numbers = hashlib.blake2b(digest_size=8), list[float]()
    for one in arrays:
        values = np.ascontiguousarray(one)
        sha.update(repr(values.tolist()).encode() if values.dtype == object else values.tobytes())
        if values.dtype.kind in "fiub":
            flat = values.astype(np.float64).ravel()
            probe = np.cos(np.arange(flat.size))
            numbers += [float(flat.sum()), float(np.abs(flat).sum()), float(flat @ probe)]
    return sha.hexdigest(), numbers


def settings_of(name: str, wanted: dict[str, Any]) -> dict[str, Any]:
    """Those of the wanted settings that the method has."""
    known = ux.make(name).get_params()
    return {key: value for key, value in wanted.items() if key in known}


def models() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Name and training of every model."""
    world = ux.world(240, 60, seed=3)
    clicks = world.clicks(1)
    for name, variants in VARIANTS.items():
        base = settings_of(name, BRIEF if name != "cjmf" else SHORT)
        for extra in [{}, *variants]:
            if set(extra) - set(ux.make(name).get_params()):
                continue
            label = " ".join([name, *(f"{k}={v}" for k, v in extra.items())])
            engines = ["cpu", "reference"] if name in COMPOSED else [""]
            for engine in engines:
                chosen = {**base, **extra} | ({"engine": engine} if engine else {})
                yield f"{label} {engine}".strip(), fitted(name, chosen, clicks)
    for strategy in STRATEGIES:
        for engine in ("cpu", "reference"):
            chosen = {**settings_of("ubo", BRIEF), "strategy": strategy, "engine": engine}
            yield f"ubo {strategy} {engine}", fitted("ubo", chosen, clicks)
    shown = world.log(1)
    for name in ("mf", "umf", "ubo", "bpr"):
        yield f"{name} impressions", fitted(name, settings_of(name, BRIEF), shown)


def fitted(name: str, settings: dict[str, Any], clicks: Any) -> Callable[[], Any]:
    """A function that trains the method."""
    return lambda: ux.make(name, **settings).fit(clicks, seed=5)


def of_model(model: Any, *, newer: Any) -> Iterator[tuple[str, tuple[str, list[float]]]]:
    """What the model says: scores, lists, exposure, similar items, fold-in, update, a file."""
    users, items = list(range(0, 60, 3)), list(range(0, 60, 3))
    lists = model.recommend(users, k=7)
    yield "scores", digest(model.scores(np.arange(240)))
    yield "lists", digest(lists["item"].to_numpy())
    if model.has_exposure:
        yield "exposure", digest(model.exposure(users, items))
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "m.safetensors")
        again = ux.load(Path(folder) / "m.safetensors")
        yield "loaded", digest(again.scores(np.arange(240)))
    for what, call in (
        ("similar", lambda: digest(model.similar_items(3, 5)["item"].to_numpy())),
        ("folded", lambda: digest(model.fold_in(newer).scores(np.arange(240)))),
        ("updated", lambda: digest(model.update(newer, epochs=2, seed=2).scores(np.arange(240)))),
    ):
        try:
            yield what, call()
        except ux.InputError as error:
            yield what, (f"refused: {str(error)[:60]}", [])


def metrics() -> Iterator[tuple[str, tuple[str, list[float]]]]:
    """Every metric of every protocol on a simulated world."""
    world = ux.world(240, 60, seed=3)
    model = ux.make("mf", **settings_of("mf", BRIEF)).fit(world.clicks(1), seed=5)
    judged = world.split(seed=0).judged
    for name in ux.PROTOCOLS:
        try:
            values = ux.evaluate(model, judged, name).values
            yield f"protocol {name}", digest(*(values[key] for key in sorted(values)))
        except ux.InputError as error:
            yield f"protocol {name}", (f"refused: {str(error)[:60]}", [])


def collected() -> dict[str, Any]:
    """All fingerprints by name."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    world, results = ux.world(240, 60, seed=3), dict[str, Any]()
    newer = world.clicks(2)
    only = sys.argv[3] if len(sys.argv) > 3 else ""
    for name, train in models():
        if not name.startswith(only):
            continue
        try:
            model = train()
        except ux.InputError as error:
            results[name] = [f"refused: {str(error)[:60]}", []]
            continue
        for what, value in of_model(model, newer=newer):
            results[f"{name}: {what}"] = list(value)
    if not only:
        results |= {name: list(value) for name, value in metrics()}
    return results


def main() -> None:
    command, path = sys.argv[1], Path(sys.argv[2])
    now = collected()
    if command == "write":
        path.write_text(json.dumps(now, indent=0, ensure_ascii=False) + "\n")
        print(f"{len(now)} fingerprints")
        return
    old = json.loads(path.read_text())
    only = sys.argv[3] if len(sys.argv) > 3 else ""
    old = {name: value for name, value in old.items() if name.startswith(only)}
    differ = [name for name in {**old, **now} if old.get(name, [0])[0] != now.get(name, [1])[0]]
    for name in differ:
        before, after = old.get(name), now.get(name)
        distance = "gone" if not after else "new" if not before else f"{before[0]} → {after[0]}"
        if before and after and before[1] and len(before[1]) == len(after[1]):
            scale = max(map(abs, before[1])) or 1.0
            near = max(abs(a - b) for a, b in zip(before[1], after[1], strict=True)) / scale
            distance = f"apart by {near:.1e}"
        print(f"{name}: {distance}")
    print(f"{len(now)} fingerprints, {len(differ)} differ")


if __name__ == "__main__":
    main()
