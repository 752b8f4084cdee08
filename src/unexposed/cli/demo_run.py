"""The demo: a simulated world from its log to a table, a saved model and recommendations."""

from collections.abc import Callable
from pathlib import Path

from unexposed.cli import tables
from unexposed.data.simulate import world as make_world
from unexposed.data.write import write_table
from unexposed.data.write_world import write_world
from unexposed.evaluation.compare import compare, split_clicks
from unexposed.evaluation.protocols import exposure_correlation, protocol
from unexposed.methods import make
from unexposed.model.save import check_place
from unexposed.progress import Progress

METHODS = ("random", "popularity", "mf", "bpr", "wmf", "relmf", "umf", "ubo")
SEEDS = 2


def run(folder: Path, *, say: Callable[[str], None], progress: Callable[[], Progress]) -> None:
    """Simulate, compare, fit, recommend; everything that is written lies in the folder."""
    check_place(folder / "model")
    world = make_world(400, 150, seed=7)
    say("A world where the log shows popular items to nearly everyone, liked or not.")
    for line in write_world(world, folder, seed=0):
        say(line)

    split = world.split(seed=0)
    by = protocol("ubo-ijcai22")
    comparison = compare(
        split_clicks(split.train.union(split.held_out), split.judged, by),
        {name: make(name) for name in METHODS},
        by=by,
        seeds=SEEDS,
        progress=progress(),
    )
    console = tables.console()
    console.print(tables.comparison_table(comparison))

    model = make("ubo").fit(split.train, split.held_out, seed=0, progress=progress())
    learned = exposure_correlation(model, world.exposure)
    say(f"ubo: learned and true exposure correlate at {learned:.2f} (mean over users)")
    model.save(folder / "model")
    write_table(model.recommend(model.user_ids.values[:20].tolist()), folder / "recommended.csv")
    say(f"{folder / 'model'} and {folder / 'recommended.csv'}: a model and what it recommends")
    say(f"next: unexposed evaluate {folder / 'model'} --judged {folder / 'judged.csv'}")
