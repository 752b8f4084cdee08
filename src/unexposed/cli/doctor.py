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
from typing import Annotated, Any, Literal

import typer

from unexposed.cli.options import AsJson, DataDir
from unexposed.cli.talking import print_folded, print_json, say
from unexposed.errors import InputError
from unexposed.late import install
from unexposed.version import __version__

DEVELOPER_EXTRAS = ("test", "lint", "docs")
INDENT = 22  # columns before what was found
AGREEMENT = {"cpu": 1e-4, "cuda": 0.05}  # of the largest value; the card draws its own items


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
    model: Annotated[
        Path | None, typer.Argument(metavar="[MODEL]", help="Look at this saved model instead.")
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Check this installation, with exit code 1 if something is broken; or all of a saved model."""
    if model is not None:
        return _examine_model(model, as_json=as_json)
    checks = []
    for check in examine(data_dir):
        checks.append(check)
        if not as_json:
            print_folded(str(check), indent=INDENT)
    is_healthy = all(check.state != "broken" for check in checks)
    if as_json:
        print_json({"healthy": is_healthy, "checks": [asdict(check) for check in checks]})
    if not is_healthy:
        sys.exit(1)
    return None


def _examine_model(path: Path, *, as_json: bool) -> None:
    from unexposed.cli import tables
    from unexposed.methods import make
    from unexposed.model.load import describe

    document = describe(path, make)
    if as_json:
        return print_json(document)
    tables.console().print(tables.key_value_table(document), "every checksum is right")
    return None


def examine(data_dir: Path | None = None) -> Findings:
    """Check everything, the simplest first."""
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"
    yield Check("unexposed", "ok", f"{__version__} in {Path(__file__).parent.parent}")
    yield Check("python", "ok", f"{platform.python_version()} on {system}")
    for name in sorted(_required().get("", [])):
        cure = f"pip install --upgrade --force-reinstall {name}"
        yield from _guarded(name, partial(_package, name), cure=cure)
    yield from _guarded("extras", _extras)
    yield from _guarded("GPU", _gpu)
    yield from _guarded("kernel cache", _kernel_cache)
    say("testing the engines; the first time on a machine they are compiled")
    yield from _guarded("self-test", _self_test)
    yield from _guarded("data", lambda: _data(data_dir))


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


def _required() -> dict[str, list[str]]:
    """Required packages by extra; "" stands for the packages that everything needs."""
    found: dict[str, list[str]] = {}
    for line in importlib.metadata.requires("unexposed") or []:
        requirement, _, condition = line.partition(";")
        extra = condition.partition("extra ==")[2].strip(" '\"")
        found.setdefault(extra, []).append(re.split(r"[^\w-]", requirement)[0])
    return found


def _package(name: str) -> Findings:
    importlib.import_module(name)
    yield Check(name, "ok", importlib.metadata.version(name))


def _extras() -> Findings:
    for extra, names in sorted(_required().items()):
        if not extra or extra in DEVELOPER_EXTRAS:
            continue
        missing = [name for name in names if importlib.util.find_spec(name) is None]
        if missing:
            what = f"{' and '.join(missing)} not here"
            yield Check(f"extra {extra}", "note", what, install(extra))
        else:
            versions = (f"{name} {importlib.metadata.version(name)}" for name in names)
            yield Check(f"extra {extra}", "ok", ", ".join(versions))


def _gpu() -> Findings:
    import torch

    from unexposed.compiled import CORES
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
        threads = f"{CORES} CPU threads (NUMBA_NUM_THREADS)"
        yield Check("GPU", "ok", f"none: training runs on the CPU, on {threads}")


def _kernel_cache() -> Findings:
    """Check the folder of compiled kernels: without it each start compiles them again."""
    from unexposed.compiled import CACHE_CURE, mix

    kernel: Any = mix
    folder = kernel.stats.cache_path or "no folder"
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            yield Check("kernel cache", "ok", folder)
    except OSError as error:
        what = f"{folder} cannot be written ({error.strerror}): each start compiles again"
        yield Check("kernel cache", "note", what, CACHE_CURE)


def _self_test() -> Findings:
    """Train ubo on a small world with each engine, and compare with the reference engine."""
    import numpy as np

    from unexposed.data.worlds.simulate import world
    from unexposed.engine import cuda
    from unexposed.methods import make
    from unexposed.progress import Silent

    clicks = world(60, 30, seed=0).log(0)

    def trained(engine: str) -> dict[str, Any]:
        rates = {"learning_rate": 0.01, "exposure_learning_rate": 0.05}
        method = make("ubo", dim=4, epochs=3, refit=False, patience=0, engine=engine, **rates)
        return method.fit(clicks, seed=0, progress=Silent()).parameters

    began, expected = time.perf_counter(), trained("reference")
    for name in ("cpu", "cuda") if cuda.available() else ("cpu",):
        found = trained(name)
        apart = max(
            float(np.abs(found[key] - table).max() / max(1e-3, np.abs(table).max()))
            for key, table in expected.items()
        )
        seconds = f"{time.perf_counter() - began:.1f} s"
        if apart < AGREEMENT[name]:  # false for NaN
            yield Check(f"self-test {name}", "ok", f"agrees with the reference, {seconds}")
        else:
            yield Check(
                f"self-test {name}",
                "broken",
                f"the engine differs from the reference by {apart:.1e} of the largest value",
                "clear the kernel cache and try again; until then train with --engine reference",
            )


def _data(data_dir: Path | None) -> Findings:
    from unexposed.data import datasets

    folder = data_dir or os.environ.get("UNEXPOSED_DATA")
    if folder is not None and not Path(folder).expanduser().is_dir():
        cure = "make it, or set $UNEXPOSED_DATA to the folder that holds the data sets"
        yield Check("data folder", "broken", f"{folder} does not exist", cure)
        return
    where = "$UNEXPOSED_DATA is not set: using the cache" if folder is None else str(folder)
    yield Check("data folder", "ok", where)
    for name, dataset in datasets.DATASETS.items():
        place = datasets.locate(name, data_dir)
        if place is None:
            yield Check(name, "note", "not here; only needed if you name it", dataset.absent)
        elif wrong := datasets.fault(dataset, place):
            cure = "restore that file, or remove the folder"
            yield Check(name, "broken", f"{place}: {wrong}", cure)
        else:
            yield Check(name, "ok", str(place))
