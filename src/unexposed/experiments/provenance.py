"""Versions, commit and machine of a result."""

import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from unexposed.version import __version__


@cache
def versions() -> dict[str, str | None]:
    """Versions of this package, Python, and the packages that move numbers."""
    found: dict[str, str | None] = {"unexposed": __version__, "python": platform.python_version()}
    for package in ("numpy", "torch", "numba"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


@cache
def commit() -> str | None:
    """Commit of the checkout that holds this code, with "+changes" where its sources differ."""
    package = Path(__file__).parents[1]

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(package), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel"), "src", "unexposed") != package.resolve():
            return None  # installed into another project's checkout
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def machine(engine: str | None) -> str:
    """Name of the GPU for the cuda engine, otherwise of the CPU."""
    return _gpu() if engine == "cuda" else _cpu()


@cache
def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


@cache
def _gpu() -> str:
    import torch

    return torch.cuda.get_device_name()
