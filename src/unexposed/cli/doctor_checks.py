"""Whether this installation works, and what to do where it does not.

Every part is looked at by itself and whatever it raises becomes a finding, so that one that is
broken hides no other.
"""

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from unexposed.errors import InputError
from unexposed.extras import install
from unexposed.version import __version__

if TYPE_CHECKING:
    from unexposed.engine.objective import Engine

DEVELOPER_EXTRAS = ("test", "lint")
AGREEMENT = 1e-4  # of the largest value: what the engines' own tests ask for in float32


@dataclass(frozen=True)
class Check:
    """One finding: all is well, worth knowing, or broken; and the cure."""

    name: str
    state: Literal["ok", "note", "broken"]
    found: str
    cure: str = ""

    def document(self) -> dict[str, str]:
        return asdict(self)

    def lines(self) -> list[str]:
        cure = [f"{'':22}→ {self.cure}"] if self.cure else []
        return [f"{self.state:7} {self.name:13} {self.found}", *cure]


Findings = Iterator[Check]


def examine(data_dir: Path | None = None, *, say: Callable[[str], object]) -> Findings:
    """Every finding, in the order a person would look for them."""
    yield from _guarded("python", _python)
    yield from _guarded("packages", _packages)
    yield from _guarded("extras", _extras)
    yield from _guarded("card", _card)
    yield from _guarded("engine", _engine)
    yield from _guarded("kernel cache", _kernel_cache)
    say("testing the engines; they are compiled once on a machine, then kept")
    yield from _guarded("self-test", _self_test)
    yield from _guarded("data", lambda: _data(data_dir))


def document(checks: list[Check]) -> dict[str, Any]:
    """The findings as plain data."""
    return {"healthy": healthy(checks), "checks": [check.document() for check in checks]}


def healthy(checks: list[Check]) -> bool:
    return all(check.state != "broken" for check in checks)


def _guarded(name: str, look: Callable[[], Findings]) -> Findings:
    try:
        yield from look()
    except InputError as error:
        yield Check(name, "broken", str(error))
    except Exception as error:  # whatever it is, it is what this command is asked for
        reason = str(error).partition("\n")[0][:200]
        cure = f"{install()}, or report this"
        yield Check(name, "broken", f"{type(error).__name__}: {reason}", cure)


def _python() -> Findings:
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors"
    where = Path(__file__).parent
    yield Check("unexposed", "ok", f"{__version__} in {where}")
    yield Check("python", "ok", f"{platform.python_version()} on {system}")


def _packages() -> Findings:
    """The packages that everything needs, each imported."""
    for name in sorted(_required().get("", [])):
        try:
            importlib.import_module(name)
            yield Check(name, "ok", importlib.metadata.version(name))
        except Exception as error:
            reason = str(error).partition("\n")[0][:200]
            cure = f"pip install --upgrade --force-reinstall {name}"
            yield Check(name, "broken", f"{type(error).__name__}: {reason}", cure)


def _extras() -> Findings:
    for extra, names in sorted(_required().items()):
        if not extra or extra in DEVELOPER_EXTRAS:
            continue
        missing = [name for name in names if importlib.util.find_spec(name) is None]
        if missing:
            cure = install(extra)
            yield Check(f"extra {extra}", "note", f"{' and '.join(missing)} not here", cure)
        else:
            versions = (f"{name} {importlib.metadata.version(name)}" for name in names)
            yield Check(f"extra {extra}", "ok", ", ".join(versions))


def _required() -> dict[str, list[str]]:
    """The packages this one names, by extra; "" for those that everything needs."""
    found: dict[str, list[str]] = {}
    for line in importlib.metadata.requires("unexposed") or []:
        requirement, _, condition = line.partition(";")
        extra = condition.partition("extra ==")[2].strip(" '\"")
        found.setdefault(extra, []).append(re.split(r"[^\w-]", requirement)[0])
    return found


def _card() -> Findings:
    import torch

    from unexposed.engine import cuda

    if cuda.available():
        card = torch.cuda.get_device_properties(0)
        memory = f"{card.total_memory / 2**30:.0f} GiB"
        yield Check("card", "ok", f"{card.name}, {memory}, CUDA {torch.version.cuda}")
    elif torch.cuda.is_available():
        found = f"{torch.cuda.get_device_name(0)}, but no triton to write for it"
        yield Check("card", "note", found, "pip install triton")
    elif shutil.which("nvidia-smi") is not None:
        found = f"torch {torch.__version__} sees no card, though nvidia-smi is here"
        cure = "nvidia-smi says whether the driver works; install a torch with CUDA (pytorch.org)"
        yield Check("card", "note", found, cure)
    else:
        yield Check("card", "ok", "none: training runs on the processor")


def _engine() -> Findings:
    from unexposed.compiled import CORES
    from unexposed.engine import cuda

    threads = CORES
    name = "cuda" if cuda.available() else "cpu"
    yield Check("engine", "ok", f"{name}; {threads} threads (NUMBA_NUM_THREADS) on the processor")


def _kernel_cache() -> Findings:
    """Where compiled kernels are kept: without it each start compiles anew."""
    from unexposed.kernel_cache import CURE

    try:
        from unexposed.engine.cpu import phases
        from unexposed.ranking import top
    except InputError as error:  # there is no place at all
        yield Check("kernel cache", "broken", str(error).partition(";")[0], CURE)
        return
    kernels: list[Any] = [phases.run, top.ranks]
    for folder in sorted({Path(kernel.stats.cache_path) for kernel in kernels}):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder):
                yield Check("kernel cache", "ok", str(folder))
        except OSError as error:
            found = f"{folder} cannot be written ({error.strerror}): each start compiles anew"
            yield Check("kernel cache", "note", found, CURE)


def _self_test() -> Findings:
    """A few steps of UBO on each engine, beside the reference."""
    from unexposed.engine import cuda
    from unexposed.engine.cpu.engine import CpuEngine
    from unexposed.engine.cuda.engine import CudaEngine

    yield _agreement("cpu", CpuEngine)
    if cuda.available():
        yield _agreement("cuda", CudaEngine)


def _agreement(name: str, kind: Callable[..., "Engine"]) -> Check:
    import numpy as np

    from unexposed.engine.objective import Objective, Optimiser
    from unexposed.engine.reference import ReferenceEngine
    from unexposed.sampling.samples import Samples
    from unexposed.sampling.validation import ValidationSet

    rng = np.random.default_rng(0)
    n_users, n_items, dim, n, each = 8, 6, 4, 32, 3

    def rows(high: int, size: int = n) -> Any:
        return rng.integers(high, size=size, dtype=np.int32)

    start: dict[str, Any] = {
        "user_factors": rng.normal(0, 0.5, (n_users, dim)).astype(np.float32),
        "item_factors": rng.normal(0, 0.5, (n_items, dim)).astype(np.float32),
        "exposure_user_factors": rng.normal(0, 0.5, (n_users, dim)).astype(np.float32),
        "gate_weight": rng.normal(0, 0.5, dim).astype(np.float32),
        "gate_bias": np.zeros(1, dtype=np.float32),
    }
    samples = Samples(
        rows(n_users),
        np.arange(n + 1) * each,
        rows(n_items, n * each),
        np.ones(n, dtype=np.float32),
    )
    given: dict[str, Any] = {
        "exposure": rng.uniform(0.1, 1, n_items).astype(np.float32),
        "validation": ValidationSet(rows(n_users), rows(n_items), rng.random(n) < 0.5),
    }
    what = (Objective("low_variance", "bilevel"), Optimiser(1e-2, 1e-3, lookahead=0.05), start)
    began = time.perf_counter()
    tested, reference = kind(*what, **given), ReferenceEngine(*what, **given)
    for engine in (tested, reference):
        for _ in range(5):
            engine.epoch(samples, batch_size=12)
    found, expected = tested.parameters(), reference.parameters()
    apart = max(
        float(np.abs(found[key] - table).max() / np.abs(table).max())
        for key, table in expected.items()
    )
    seconds = f"{time.perf_counter() - began:.1f} s"
    if apart < AGREEMENT:  # false for NaN
        return Check(f"self-test {name}", "ok", f"agrees with the reference, {seconds}")
    return Check(
        f"self-test {name}",
        "broken",
        f"the engine differs from the reference by {apart:.1e} of the largest value",
        "clear the kernel cache and try again; until then train with --engine reference",
    )


def _data(data_dir: Path | None) -> Findings:
    from unexposed.data import datasets

    folder = data_dir or os.environ.get("UNEXPOSED_DATA")
    if folder is None:
        yield Check("data folder", "ok", "$UNEXPOSED_DATA is not set: the cache is looked at")
    elif not Path(folder).expanduser().is_dir():
        cure = "make it, or set $UNEXPOSED_DATA to the folder that holds the data sets"
        yield Check("data folder", "broken", f"{folder} does not exist", cure)
        return
    else:
        yield Check("data folder", "ok", str(folder))
    for name, dataset in datasets.DATASETS.items():
        place = datasets.locate(name, data_dir)
        if place is None:
            yield Check(name, "note", "not here, and needed only by name", dataset.absent)
        elif wrong := datasets.fault(dataset, place):
            cure = "restore that file, or remove the folder"
            yield Check(name, "broken", f"{place}: {wrong}", cure)
        else:
            yield Check(name, "ok", str(place))
