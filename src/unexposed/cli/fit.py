"""`unexposed fit`: from a click log to a saved model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unexposed.cli import options
from unexposed.cli.talking import progress, say
from unexposed.errors import InputError

if TYPE_CHECKING:
    from unexposed.model.model import Model


@options.with_columns
def fit(
    log: Annotated[Path, typer.Argument(help="Click log: CSV, TSV (also .gz) or Parquet.")],
    out: Annotated[Path, typer.Option(help="Folder for the model.")],
    method: Annotated[str, typer.Option(help="Which method to train.")] = "mf",
    traffic: options.TrafficFile = None,
    columns: options.Columns = options.NO_COLUMNS,
    settings: options.Settings = None,
    engine: options.EngineName = None,
    criterion: options.CriterionName = None,
    seed: options.Seed = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a training that was killed.")
    ] = False,
    checkpoint_every: Annotated[
        float | None,
        typer.Option(help="Seconds between checkpoints, kept in OUT.checkpoint. (default: 30)"),
    ] = None,
) -> None:
    """Train a method on a click log and save the model."""
    from unexposed.data.read import read_log
    from unexposed.evaluation.compare import parse_methods
    from unexposed.methods import make
    from unexposed.model.load import unlike
    from unexposed.model.save import check_ids, check_place
    from unexposed.training.checkpoint import EVERY, is_kept, place_beside

    if "," in method:
        raise InputError(f"fit trains one method, got {method!r}; compare takes several")
    assigned = options.assignments(settings, engine)
    (recommender,) = parse_methods(method, assigned, criterion=criterion).values()
    check_place(out)
    checkpoint = place_beside(out)
    if is_kept(checkpoint) and not resume:
        say(f"writing over the unfinished training in {checkpoint}; --resume would go on with it")
    clicks = read_log(log, **columns.given(), say=say)
    check_ids(clicks)
    say(f"{len(clicks):,} clicks by {clicks.n_users:,} users on {clicks.n_items:,} items")
    if resume and not is_kept(checkpoint):
        if not out.exists():
            say(f"there is no {checkpoint} to resume from: training from the start")
        elif changed := unlike(out, make, recommender, clicks, seed=seed, alone=traffic is None):
            say(f"{out} holds another training: {'; '.join(changed[:3])}; training from the start")
        else:
            say(f"{out} holds this training, finished; to train it again, leave out --resume")
            return
    model = recommender.fit(
        clicks,
        seed=seed,
        side=options.side_of(traffic, clicks, columns),
        progress=progress(),
        checkpoint=checkpoint,
        resume=resume,
        checkpoint_every=EVERY if checkpoint_every is None else checkpoint_every,
    )
    model.save(out)
    say(training_line(model))
    say(f"saved to {out}; next: unexposed recommend {out} -k 10 --out recommendations.csv")


def training_line(model: "Model") -> str:
    """One sentence on how the training went."""
    facts = model.facts
    if "best_epoch" not in facts:
        return f"trained {model.method.name}"
    resumed = "".join(f", resumed at epoch {n}" for n in facts.get("resumed_at", [])[-1:])
    best = facts["best_epoch"]
    kept = f"kept epoch {best}"
    if every := facts.get("refitted_on"):
        kept = f"epoch {best} was best, so trained again for {best} epochs on all {every:,} clicks"
    return (
        f"trained {model.method.name} for {facts['epochs_run']} epochs in {facts['seconds']:.1f} s "
        f"({facts['ended']}{resumed}); {kept}"
    )
