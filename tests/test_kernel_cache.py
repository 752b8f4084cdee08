"""Kernels are kept somewhere even where neither the package nor the home can be written."""

import errno
import os
import pickle
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numba.core.caching
import pytest

import unexposed
from unexposed import kernel_cache

KERNELS = (
    "from unexposed import compiled\n"
    "from unexposed.engine.cpu import phases\n"
    "compiled.below(3, compiled.STEP)\n"
    "print(compiled.below.stats.cache_path, phases.run.stats.cache_path, sep='\\n')\n"
)


@pytest.fixture
def read_only(tmp_path) -> Path:
    """The package as if it could not be written: a file where numba would make a folder."""
    source = Path(unexposed.__file__).parent
    shutil.copytree(source, tmp_path / "unexposed", ignore=lambda *_: ["__pycache__"])
    for folder in {path.parent for path in (tmp_path / "unexposed").rglob("*.py")}:
        (folder / "__pycache__").touch()
    return tmp_path


def kernels(read_only: Path, temporary: Path) -> subprocess.CompletedProcess[str]:
    drop = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "PYTHONPYCACHEPREFIX")
    kept = {name: value for name, value in os.environ.items() if name not in drop}
    places = {"HOME": "/dev/null", "PYTHONPATH": str(read_only), "TMPDIR": str(temporary)}
    words = [sys.executable, "-c", KERNELS]
    return subprocess.run(words, env=kept | places, capture_output=True, text=True, check=False)


def test_kernels_without_a_place_go_to_a_temporary_folder_of_this_user_alone(read_only, tmp_path):
    (temporary := tmp_path / "temporary").mkdir()
    end = kernels(read_only, temporary)
    assert end.returncode == 0, end.stderr
    (folder,) = temporary.iterdir()
    assert all(line.startswith(str(folder)) for line in end.stdout.splitlines())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert end.stderr.splitlines() == [
        f"compiled kernels are kept in {folder}: no other place can be written; "
        "set NUMBA_CACHE_DIR to a folder that can be written"
    ]
    kept = set(folder.rglob("*"))
    assert kernels(read_only, temporary).returncode == 0
    assert set(folder.rglob("*")) == kept  # not compiled again


def test_a_temporary_folder_that_others_can_write_is_not_used(read_only, tmp_path):
    (temporary := tmp_path / "temporary").mkdir()
    (theirs := temporary / f"unexposed-kernels-{os.getuid()}").mkdir()
    theirs.chmod(0o777)
    end = kernels(read_only, temporary)
    assert end.returncode == 0, end.stderr
    assert list(theirs.iterdir()) == []
    assert len(list(temporary.iterdir())) == 2


def test_no_place_at_all_is_one_sentence(monkeypatch, tmp_path):
    def unable(_: object) -> None:
        raise RuntimeError("cannot cache function 'f': no locator available for file 'f.py'")

    monkeypatch.setattr(kernel_cache.tempfile, "gettempdir", lambda: str(tmp_path / "not here"))
    with pytest.raises(unexposed.InputError, match="no folder for compiled kernels.*NUMBA_CACHE"):
        kernel_cache.cached(unable, len)


def twice(n):
    return 2 * n


def test_a_kernel_that_a_full_disk_cannot_keep_is_used_all_the_same(monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(numba.core.caching.IndexDataCacheFile, "save", full)
    assert kernel_cache.cached(numba.njit(cache=True), twice)(3) == 6


def test_what_another_version_has_cached_is_compiled_again(tmp_path):
    code = "from unexposed import compiled\nassert compiled.below(3, compiled.STEP) < 3\n"
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    gone = b"cunexposed.compiled\nTypeOfBefore\n."  # a pickled reference
    for index in tmp_path.rglob("*.nbi"):
        with index.open("r+b") as file:
            pickle.load(file)  # the version of numba
            file.truncate()
            file.write(gone)
    for _ in range(2):
        again = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        )
        assert again.returncode == 0, again.stderr
    assert not any(gone in index.read_bytes() for index in tmp_path.rglob("*.nbi"))


def test_compiling_is_noticed_once_and_only_where_the_cache_does_not_hold_the_kernel(tmp_path):
    code = (
        "from unexposed import compiled, kernel_cache\n"
        "with kernel_cache.noticing(lambda: print('compiling')):\n"
        "    compiled.random_bits(compiled.STEP, 3)\n"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    said = [
        subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        ).stdout
        for _ in range(2)
    ]
    assert said == ["compiling\n", ""]
