"""`unexposed demo`: a simulated world from its log to a table, a model and recommendations."""

from pathlib import Path
from typing import Annotated, Any

import typer

from unexposed.cli.talking import progress, say
from unexposed.settings import known

QUICK = {"epochs": 60, "learning_rate": 5e-3}  # enough for this world
SLOW = {"cjmf"}  # takes longer than all others together


def demo(out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("demo")) -> None:
    """Train and compare methods on a small simulated world; under a minute."""
    from unexposed.api.compare import compare
    from unexposed.cli import tables
    from unexposed.data.worlds.simulate import world as make_world
    from unexposed.data.worlds.write import write_world
    from unexposed.evaluation.protocols import exposure_correlation
    from unexposed.methods import METHODS, make
    from unexposed.model.save import check_place

    model_folder, lists = out / "model", out / "recommended.csv"
    check_place(model_folder)
    world = make_world(400, 150, seed=7)
    say("A world where the log shows popular items to nearly everyone, liked or not.")
    for line in write_world(world, out, seed=0):
        say(line)

    split = world.split(seed=0)
    comparison = compare(
        split,
        {name: make(name, **_brief(kind)) for name, kind in METHODS.items() if name not in SLOW},
        protocol="ubo-ijcai22",
        seeds=1,
        progress=progress(),
    )
    tables.show(tables.document_table(comparison.document()))

    model = make("ubo", **_brief(METHODS["ubo"])).fit(
        split.train, split.held_out, seed=0, progress=progress()
    )
    learned = exposure_correlation(model, world.exposure)
    say(f"ubo: learned and true exposure correlate at {learned:.2f} (mean over users)")
    model.save(model_folder)
    model.write_recommendations(lists, model.user_ids.values[:20])
    say(f"{model_folder} and {lists}: a model and what it recommends")
    say("next:", command=f"unexposed evaluate {model_folder} --judged {out / 'judged.csv'}")


def _brief(method: type) -> dict[str, Any]:
    return {name: value for name, value in QUICK.items() if name in known(method)}
