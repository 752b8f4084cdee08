"""`unexposed doctor`: whether this installation works, and how to mend what does not.

Each part is checked alone, and whatever it raises becomes a finding: no broken part hides another.
"""

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from unexposed.cli.options import AsJson, DataDir
from unexposed.cli.talking import print_folded, print_json, say
from unexposed.errors import InputError
from unexposed.extras import install
from unexposed.version import __version__

if TYPE_CHECKING:
    from unexposed.engine.objective import Engine

DEVELOPER_EXTRAS = ("test", "lint")
INDENT = 22  # columns before what was found
AGREEMENT = 1e-4  # of the largest value: what the engines' own tests ask for in float32


@dataclass(frozen=True)
class Check:
    """One finding: all is well, worth knowing, or broken; and the cure."""

    name: str
    state: Literal["ok", "note", "broken"]
    found: str
    cure: str = ""

    def __str__(self) -> str:
        cure = f"\n{'':{INDENT}}→ {self.cure}" if self.cure else ""
        return f"{self.state:7} {self.name:13} {self.found}{cure}"


Findings = Iterator[Check]


def doctor(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[MODEL]", help="Look at this saved model instead.")
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Check this installation, with exit code 1 if something is broken; or all of a saved model."""
    if folder is not None:
        return _examine_model(folder, as_json=as_json)
    checks = []
    for check in examine(data_dir):
        checks.append(check)
        if not as_json:
            print_folded(str(check), indent=INDENT)
    if as_json:
        print_json({"healthy": healthy(checks), "checks": [asdict(check) for check in checks]})
    if not healthy(checks):
        sys.exit(1)
    return None


def _examine_model(folder: Path, *, as_json: bool) -> None:
    from unexposed.cli import tables
    from unexposed.methods import make
    from unexposed.model.load import describe

    document = describe(folder, make)
    if as_json:
        return print_json(document)
    tables.console().print(tables.key_value_table(document), "every checksum is right")
    return None


def examine(data_dir: Path | None = None) -> Findings:
    """Check everything, the simplest first."""
    yield from _guarded("python", _python)
    yield from _guarded("packages", _packages)
    yield from _guarded("extras", _extras)
    yield from _guarded("GPU", _gpu)
    yield from _guarded("engine", _engine)
    yield from _guarded("kernel cache", _kernel_cache)
    say("testing the engines; the first time on a machine they are compiled")
    yield from _guarded("self-test", _self_test)
    yield from _guarded("data", lambda: _data(data_dir))


def healthy(checks: list[Check]) -> bool:
    return all(check.state != "broken" for check in checks)


def _guarded(name: str, look: Callable[[], Findings], *, cure: str = "") -> Findings:
    """Yield the findings of a look, and whatever it raises as one more."""
    try:
        yield from look()
    except InputError as error:
        yield Check(name, "broken", str(error))
    except Exception as error:
        reason = str(error).partition("\n")[0][:200]
        cure = cure or f"{install()}, or report this"
        yield Check(name, "broken", f"{type(error).__name__}: {reason}", cure)


def _python() -> Findings:
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"
    where = Path(__file__).parent.parent
    yield Check("unexposed", "ok", f"{__version__} in {where}")
    yield Check("python", "ok", f"{platform.python_version()} on {system}")


def _packages() -> Findings:
    """Import each package that everything needs."""
    for name in sorted(_required().get("", [])):
        cure = f"pip install --upgrade --force-reinstall {name}"
        yield from _guarded(name, partial(_package, name), cure=cure)


def _package(name: str) -> Findings:
    importlib.import_module(name)
    yield Check(name, "ok", importlib.metadata.version(name))


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
    """Required packages by extra; "" stands for the packages that everything needs."""
    found: dict[str, list[str]] = {}
    for line in importlib.metadata.requires("unexposed") or []:
        requirement, _, condition = line.partition(";")
        extra = condition.partition("extra ==")[2].strip(" '\"")
        found.setdefault(extra, []).append(re.split(r"[^\w-]", requirement)[0])
    return found


def _gpu() -> Findings:
    import torch

    from unexposed.engine import cuda

    if cuda.available():
        gpu = torch.cuda.get_device_properties(0)
        memory = f"{gpu.total_memory / 2**30:.0f} GiB"
        yield Check("GPU", "ok", f"{gpu.name}, {memory}, CUDA {torch.version.cuda}")
    elif torch.cuda.is_available():
        found = f"{torch.cuda.get_device_name(0)}, but triton is missing"
        yield Check("GPU", "note", found, "pip install triton")
    elif shutil.which("nvidia-smi") is not None:
        found = f"torch {torch.__version__} finds no GPU, though nvidia-smi is here"
        cure = "nvidia-smi says whether the driver works; install a torch with CUDA (pytorch.org)"
        yield Check("GPU", "note", found, cure)
    else:
        yield Check("GPU", "ok", "none: training runs on the CPU")


def _engine() -> Findings:
    from unexposed.compiled import CORES
    from unexposed.engine import cuda

    name = "cuda" if cuda.available() else "cpu"
    yield Check("engine", "ok", f"{name}; {CORES} CPU threads (NUMBA_NUM_THREADS)")


def _kernel_cache() -> Findings:
    """Check the folder of compiled kernels: without it each start compiles them again."""
    from unexposed.compiled import CACHE_CURE
    from unexposed.engine.cpu import phases
    from unexposed.ranking import top

    kernels: list[Any] = [phases.run, top.ranks]
    for folder in sorted({kernel.stats.cache_path or "" for kernel in kernels}):
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder or "no folder"):
                yield Check("kernel cache", "ok", folder)
        except OSError as error:
            where = f"{folder} cannot be written ({error.strerror})" if folder else "no folder"
            yield Check("kernel cache", "note", f"{where}: each start compiles again", CACHE_CURE)


def _self_test() -> Findings:
    """Run a few steps of UBO on each engine and on the reference engine."""
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

    def drawn(high: int, size: int = n) -> Any:
        return rng.integers(high, size=size, dtype=np.int32)

    def normal(*shape: int) -> Any:
        return rng.normal(0, 0.5, shape).astype(np.float32)

    start: dict[str, Any] = {
        "user_factors": normal(n_users, dim),
        "item_factors": normal(n_items, dim),
        "exposure_user_factors": normal(n_users, dim),
        "gate_weight": normal(dim),
        "gate_bias": np.zeros(1, dtype=np.float32),
    }
    ends, weights = np.arange(n + 1) * each, np.ones(n, dtype=np.float32)
    samples = Samples(drawn(n_users), ends, drawn(n_items, n * each), weights)
    given: dict[str, Any] = {
        "exposure": rng.uniform(0.1, 1, n_items).astype(np.float32),
        "validation": ValidationSet(drawn(n_users), drawn(n_items), rng.random(n) < 0.5),
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
        yield Check("data folder", "ok", "$UNEXPOSED_DATA is not set: using the cache")
    elif not Path(folder).expanduser().is_dir():
        cure = "make it, or set $UNEXPOSED_DATA to the folder that holds the data sets"
        yield Check("data folder", "broken", f"{folder} does not exist", cure)
        return
    else:
        yield Check("data folder", "ok", str(folder))
    for name, dataset in datasets.DATASETS.items():
        place = datasets.locate(name, data_dir)
        if place is None:
            yield Check(name, "note", "not here; only needed if you name it", dataset.absent)
        elif wrong := datasets.fault(dataset, place):
            cure = "restore that file, or remove the folder"
            yield Check(name, "broken", f"{place}: {wrong}", cure)
        else:
            yield Check(name, "ok", str(place))
