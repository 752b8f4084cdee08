"""The programs of docs/scaling.md run as they stand there, one for each launcher."""

import importlib.util
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

from command import LOG
from unexposed.methods import load, make

PAGE = (Path(__file__).parents[1] / "docs" / "scaling.md").read_text(encoding="utf-8")
BRIEF = "epochs=2, dim=4, engine='reference'"


def program(heading: str) -> str:
    """The program under a heading, with a training of two epochs."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"^```py\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)
    return block.replace('ux.make("ubo")', f'ux.make("ubo", {BRIEF})')


@pytest.mark.slow
@pytest.mark.parametrize(
    ("heading", "package", "launcher"),
    [
        ("torchrun", "torch", "-m torch.distributed.run --standalone --nproc-per-node=2"),
        ("Ray Train", "ray", ""),
        ("Spark's TorchDistributor", "pyspark", ""),
    ],
)
def test_the_program_of_a_launcher_trains_the_model_of_one_process(
    heading, package, launcher, tmp_path
):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install '.[scale]'")
    if package == "pyspark" and shutil.which("java") is None:
        pytest.skip("Spark needs Java, which is not here")
    import unexposed as ux

    (tmp_path / "log").mkdir()
    for n in range(2):
        pl.read_csv(LOG.encode())[n::2].write_parquet(tmp_path / "log" / f"{n}.parquet")
    (tmp_path / "train.py").write_text(program(heading))
    done = subprocess.run(
        [sys.executable, *launcher.split(), "train.py"],
        cwd=tmp_path,
        env={**os.environ, "RAY_TRAIN_V2_ENABLED": "1", "RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    one = make("ubo", epochs=2, dim=4, engine="reference").fit(
        ux.read_log(tmp_path / "log"), seed=0
    )
    trained = load(tmp_path / "model", verify=True)
    for name, table in one.parameters.items():
        np.testing.assert_allclose(trained.parameters[name], table, rtol=0, atol=1e-5)


def test_the_package_is_pickled_by_its_name():
    """Ray pickles a function together with the modules that it names."""
    import unexposed as ux

    assert pickle.loads(pickle.dumps(ux)) is ux
