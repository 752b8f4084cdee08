"""`unexposed criterion`: which reading of held-out clicks to trust on a log."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from unexposed.cli import options
from unexposed.cli.talking import print_folded, print_json, progress, say
from unexposed.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from unexposed.tuning.criteria import Study


@options.with_columns
def criterion(
    log: Annotated[str | None, typer.Argument(help=options.LOG)] = None,
    dataset: options.KnownDataset = None,
    columns: options.Columns = options.NO_COLUMNS,
    worlds: Annotated[int, typer.Option(help="Worlds made from the log.", min=1)] = 8,
    splits: Annotated[int, typer.Option(help="Logs drawn from each world.", min=1)] = 1,
    models: Annotated[int, typer.Option(help="Models trained on each log.", min=3)] = 24,
    epochs: Annotated[int, typer.Option(help="Passes of each training.", min=1)] = 30,
    workers: Annotated[int, typer.Option(help="Models trained at a time.", min=1)] = 1,
    data_dir: options.DataDir = None,
    seed: options.Seed = 0,
    as_json: options.AsJson = False,
) -> None:
    """Say which criterion on held-out clicks ranks models best in worlds made from a log."""
    from unexposed.cli import tables
    from unexposed.cli.tune import clicks_alone, disliked_alone
    from unexposed.tuning import criteria

    if (log is None) == (dataset is None):
        raise InputError("give either a LOG or --dataset NAME")
    if dataset is not None and columns.are_given():
        raise InputError("give --dataset, or a LOG with its columns, not both")
    clicks = clicks_alone(dataset, log, columns, data_dir)
    study = criteria.study(
        clicks,
        shown=None if dataset is None else disliked_alone(dataset, data_dir),
        worlds=worlds,
        splits=splits,
        models=models,
        epochs=epochs,
        seed=seed,
        workers=workers,
        progress=progress(),
        say=say,
    )
    if as_json:
        print_json(study.document())
    else:
        tables.show(_table(study))
        print_folded(verdict(study), indent=0)
    if study.interrupted:
        sys.exit(130)


def verdict(study: "Study") -> str:
    """A sentence on the best criterion, and one on what to do."""
    from unexposed.cards import number
    from unexposed.ranking.held_out import DEFAULT

    best = study.agreements[study.best]
    found = (
        f"`{study.best}` ranks models best in {len(study.runs)} worlds like this log "
        f"(rank correlation {number(best.spearman)}; best in {best.wins:.0%} of resamples)"
    )
    if study.advised == DEFAULT:
        return f"{found}. None is above the default, `{DEFAULT}`, by more than chance: keep it"
    advised = study.agreements[study.advised]
    low, high = advised.interval
    return (
        f"{found}. `{study.advised}` is {number(advised.difference)} above the default, "
        f"`{DEFAULT}`, [{number(low)}, {number(high)}]: choose with --criterion {study.advised}"
    )


def _table(study: "Study") -> "Table":
    """A row for each criterion, the best first."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from unexposed.cards import number
    from unexposed.report.tables import spread

    likeness = sum(run.likeness for run in study.runs) / len(study.runs)
    caption = (
        f"{len(study.runs)} worlds and splits, {len(study.labels)} models each; mean ± sd over "
        "them by likeness; regret in DCG@3; wins and interval over resampled worlds and models; "
        f"* more than chance\nlikeness: held-out clicks rank the models in a world as on the log "
        f"with a mean correlation of {number(likeness)}"
    )
    table = Table("criterion", box=SIMPLE_HEAD, caption=caption)
    for name in ("Spearman", "Kendall", "regret", "wins", "to the default", "95 % interval"):
        table.add_column(name, justify="right")
    for name, found in sorted(study.agreements.items(), key=lambda pair: -pair[1].spearman):
        low, high = found.interval
        table.add_row(
            name,
            spread(found.spearman, found.spearman_sd),
            number(found.kendall),
            number(found.regret),
            f"{found.wins:.0%}",
            number(found.difference) + (" *" if found.differs else "  "),
            f"{number(low)} – {number(high)}",
        )
    return table
