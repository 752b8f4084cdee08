"""The core trains where polars, optuna and pooch are not installed, as on a bare GPU machine."""

from command import python

TRAINS = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("polars", "optuna", "pooch", "pandas"):
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Missing())
import unexposed as ux
from unexposed.experiments import run, spec, studies
from unexposed.evaluation.compare import compare

log = ux.world(30, 20, seed=0).log(0)
ux.make("umf", epochs=1, engine="cpu").fit(log)
print("torch" not in sys.modules)
model = ux.make("mf", epochs=2, engine="reference").fit(log)
print(len(model.clicks) == len(log), len(ux.DATASETS) > 4)
"""


def test_a_world_is_trained_on_without_polars_and_on_the_cpu_engine_without_torch():
    done = python("-c", TRAINS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True"] * 3
