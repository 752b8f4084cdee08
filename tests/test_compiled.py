"""Compiled kernels are kept on disk where that is possible, and run everywhere."""

import errno
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numba
import numba.core.caching
import pytest

from unexposed import compiled

DRAW = """
from unexposed import compiled
with compiled.noticing(lambda: print("compiling")):
    print(compiled.random_bits(compiled.STEP, 3) > 0)
"""


def drawn(cache: Path) -> str:
    """What a process prints that keeps its kernels there."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    words = [sys.executable, "-c", DRAW]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout


def twice(n):
    return 2 * n


def test_compiling_is_noticed_once_and_only_where_the_cache_does_not_hold_the_kernel(tmp_path):
    assert [drawn(tmp_path), drawn(tmp_path)] == ["compiling\nTrue\n", "True\n"]


def test_what_another_version_has_cached_is_compiled_again(tmp_path):
    drawn(tmp_path)
    gone = b"cunexposed.compiled\nTypeOfBefore\n."  # a pickled reference
    for index in tmp_path.rglob("*.nbi"):
        with index.open("r+b") as file:
            pickle.load(file)  # the version of numba
            file.truncate()
            file.write(gone)
    assert [drawn(tmp_path), drawn(tmp_path)] == ["compiling\nTrue\n", "True\n"]


def test_a_kernel_is_compiled_again_where_a_file_beside_it_has_changed(tmp_path):
    (tmp_path / "kernel.py").write_text(
        "from inlined import base\nfrom unexposed.compiled import compiled\n\n"
        "@compiled\ndef doubled(n):\n    return 2 * base(n)\n\nprint(doubled(3))\n"
    )
    said = []
    for one in ("n", "n + 1"):
        text = f"import numba\n\n@numba.njit\ndef base(n):\n    return {one}\n"
        (tmp_path / "inlined.py").write_text(text)
        command = [sys.executable, "-B", str(tmp_path / "kernel.py")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        said.append(done.stdout)
    assert said == ["6\n", "8\n"]


def unable(*_: object) -> None:
    raise RuntimeError("cannot cache function 'f': no locator available for file 'f.py'")


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("home", "name", "fault"),
    [
        (numba.core.caching.IndexDataCacheFile, "save", full),
        (numba.core.caching.FunctionCache, "__init__", unable),
    ],
)
def test_a_kernel_that_cannot_be_kept_is_used_all_the_same(monkeypatch, home, name, fault):
    monkeypatch.setattr(home, name, fault)
    assert compiled.cached(twice)(3) == 6
