"""The programs of docs/scaling.md run as they stand there, one for each launcher."""

import importlib.util
import multiprocessing
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch.distributed as dist

from command import LOG
from unexposed.methods import load, make

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not dist.is_gloo_available(), reason="this torch has no gloo"),
]

PAGE = (Path(__file__).parents[1] / "docs" / "scaling.md").read_text(encoding="utf-8")
BRIEF = "epochs=2, dim=4, engine='reference'"


def program(heading: str) -> str:
    """The program under a heading, with a training of two epochs."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    (found,) = re.findall(r"^```py\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)
    assert len(found.splitlines()) <= 25
    assert found.count('ux.make("ubo")') == 1
    return found.replace('ux.make("ubo")', f'ux.make("ubo", {BRIEF})')


@pytest.fixture
def place(tmp_path) -> Path:
    (tmp_path / "log").mkdir()
    log = pl.read_csv(LOG.encode())
    for n in range(2):
        log[n::2].write_parquet(tmp_path / "log" / f"{n}.parquet")
    return tmp_path


def assert_the_model_of_one_process(place: Path) -> None:
    import unexposed as ux

    clicks = ux.read_log(place / "log")
    one = make("ubo", epochs=2, dim=4, engine="reference").fit(clicks, seed=0)
    found = load(place / "model", verify=True)
    assert found.facts["workers"] == 2
    for name, table in one.parameters.items():
        np.testing.assert_allclose(found.parameters[name], table, rtol=0, atol=1e-5)


def on_rank(rank: int, port: int, place: Path, text: str) -> None:
    """Run a program as torchrun does, which keeps the store: no rank has to find a free port."""
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    os.environ.update(address, TORCHELASTIC_USE_AGENT_STORE="True", RANK=str(rank))
    os.chdir(place)
    exec(compile(text, "train.py", "exec"), {"__name__": "__main__"})


def test_the_program_for_torchrun_trains_saves_and_recommends(place):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["unexposed.methods"])
    given = store.port, place, program("torchrun")
    ranks = [context.Process(target=on_rank, args=(rank, *given)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(300)
    assert [rank.exitcode for rank in ranks] == [0, 0]
    assert_the_model_of_one_process(place)
    assert pl.read_parquet(place / "lists" / "*.parquet")["user"].n_unique() == 12


def test_the_package_is_pickled_by_its_name():
    """Ray pickles a function together with the modules that it names."""
    import unexposed as ux

    assert pickle.loads(pickle.dumps(ux)) is ux


def launched(heading: str, package: str, place: Path) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install '.[scale]'")
    (place / "train.py").write_text(program(heading))
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=place,
        env={**os.environ, "RAY_TRAIN_V2_ENABLED": "1", "RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert_the_model_of_one_process(place)


def test_the_program_for_ray_train_trains_the_model(place):
    launched("Ray Train", "ray", place)


def test_the_program_for_spark_trains_the_model(place):
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, which is not here")
    launched("Spark's TorchDistributor", "pyspark", place)
