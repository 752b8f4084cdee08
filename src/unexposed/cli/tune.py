"""`unexposed tune`: settings chosen on held-out clicks."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unexposed.cli import options
from unexposed.cli.features import with_features
from unexposed.cli.talking import print_json, say
from unexposed.errors import InputError

if TYPE_CHECKING:
    from unexposed.data.clicks import Clicks
    from unexposed.data.labelled import Impressions
    from unexposed.data.ratings import Ratings
    from unexposed.experiments.studies import Plan
    from unexposed.training.side import Side


@options.with_columns
def tune(
    file: Annotated[
        Path | None,
        typer.Argument(help="Experiment file: makes every study that its arms name."),
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Names, separated by commas: see `unexposed methods`.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for a study file of each method.")
    ] = None,
    dataset: options.KnownDataset = None,
    train: options.OwnLog = None,
    cell: options.CellName = None,
    only: Annotated[
        str | None, typer.Option(help="Of the file: arms, separated by commas.")
    ] = None,
    trials: Annotated[
        int | None, typer.Option(help="Settings tried for each method. (default: 40)", min=1)
    ] = None,
    splits: Annotated[
        int | None, typer.Option(help="Held-out splits a trial is judged on. (default: 1)", min=1)
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes that share the trials.", min=1)] = 1,
    start_from: Annotated[
        Path | None, typer.Option(help="A study whose best settings are tried early.")
    ] = None,
    traffic: options.TrafficFile = None,
    by: Annotated[
        str | None,
        typer.Option(help="held_out, or traffic: what judges a trial. (default: held_out)"),
    ] = None,
    columns: options.Columns = options.NO_COLUMNS,
    user_features: options.UserFeatures = None,
    item_features: options.ItemFeatures = None,
    settings: options.Settings = None,
    engine: options.EngineName = None,
    criterion: options.CriterionName = None,
    split: options.SplitRule = None,
    data_dir: options.DataDir = None,
    seed: options.Seed = 0,
    as_json: options.AsJson = False,
) -> None:
    """Choose settings on held-out clicks, or on random traffic; a stopped study resumes."""
    from unexposed.tuning.study import dissent

    if file is not None:
        others = (methods, out, dataset, train, start_from, settings, criterion, split, traffic, by)
        features = (user_features, item_features)
        if columns.are_given() or any(other is not None for other in (*others, *features)):
            raise InputError(f"{file} says what is tuned: its [tune] table holds settings")
        labels = None if only is None else [arm.strip() for arm in only.split(",")]
        asked = _plans(file, cell, labels, trials=trials, splits=splits, engine=engine)
        made = _make(asked, workers=workers, seed=seed, data_dir=data_dir)
    else:
        if methods is None or out is None:
            raise InputError("give --methods NAMES and --out FOLDER, or an experiment file")
        if cell is not None or only is not None:
            raise InputError("--cell and --only choose studies of an experiment file: give one")
        clicks = clicks_alone(dataset, train, columns, data_dir)
        files = user_features, item_features
        if dataset is not None and any(files):
            raise InputError("features belong to --train: an experiment file gives a data set's")
        clicks, side = with_features(clicks, columns, *files)
        source = dataset or log_called(str(train))
        assigned = options.assignments(settings, engine)
        side = options.with_traffic(side, traffic, clicks, columns)
        if dataset is not None and criterion == "shown":
            side = replace(side, passed_over=disliked_alone(dataset, data_dir))
        given: dict[str, Any] = {
            "trials": trials or 40,
            "splits": splits or 1,
            "workers": workers,
            "seed": seed,
        }
        if by not in (None, "held_out", "traffic"):
            raise InputError(f"--by is held_out or traffic, got {by!r}")
        if by == "traffic":
            if traffic is None or criterion is not None:
                raise InputError("--by traffic needs --traffic FILE, and no --criterion")
            criterion = by
        how: dict[str, Any] = {"start_from": start_from, "criterion": criterion, "split": split}
        made = _tune(clicks, side, source, methods, assigned, out, **how, **given)
    documents = []
    for label, document in made:
        documents.append(document)
        best = document["best"]
        chosen = " ".join(f"--set {k}={v}" for k, v in best["settings"].items())
        judge = "quality on random traffic" if by == "traffic" else "held-out quality"
        say(f"{label}: {judge} {best['value']:.4f} with", command=chosen)
        if nothing_better := _nothing_better(document):
            say(f"{label}: {nothing_better}")
        if preferred := dissent(document):
            say(f"{label}: {options.disagreement(preferred)}")
    if as_json:
        print_json(documents)


def _nothing_better(document: dict[str, Any]) -> str | None:
    """A sentence where the best settings are those that the study began with."""
    from unexposed.methods import method
    from unexposed.settings import default

    best = document["best"]
    cls = method(document["method"])
    defaults = {name: default(cls, name) for name in best["settings"]}
    others = len(document["trials"]) - 1
    tried = f"none of {others} other settings tried did better" if others else "it tried no others"
    if best["settings"] == defaults:
        return f"these are the defaults; {tried}"
    return f"the study began with these settings; {tried}" if best["trial"] == 0 else None


def _tune(
    clicks: "Clicks",
    side: "Side",
    source: str,
    methods: str,
    assigned: list[str],
    out: Path,
    *,
    start_from: Path | None,
    criterion: str | None,
    split: str | None,
    **given: Any,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Tune methods on a log, one after the other."""
    from unexposed.evaluation.compare import check_use, parse_methods
    from unexposed.ranking.held_out import DEFAULT
    from unexposed.tuning import search, study, trial

    held_out = None if criterion == trial.TRAFFIC else criterion
    asked = parse_methods(methods, assigned, criterion=held_out)
    check_use(asked, side.only(side.given() - {"traffic"}), say)  # which may judge any method
    for label, method in asked.items():
        fixed = tuple(text.split("=")[0] for text in [*assigned, *label.split(":")[1:]])
        say(f"{label}: {given['trials']} trials; after Ctrl-C the same command goes on with them")
        document = search.tune(
            clicks,
            method,
            folder=out,
            name=f"{source}_{label.replace(':', '-').replace('=', '-')}",
            fixed=tuple(name.split(".")[-1] for name in fixed),
            start=None if start_from is None else study.best_settings(start_from),
            by=criterion or DEFAULT,
            split=split,
            side=side.only(method.takes | {"traffic", "passed_over"}),
            say=say,
            **given,
        )
        yield label, document


def _plans(
    file: Path,
    cell: str | None,
    only: list[str] | None,
    *,
    engine: str | None,
    **given: int | None,
) -> "list[Plan]":
    """The studies of an experiment file, each once."""
    from unexposed.experiments import spec, studies

    found = []
    for one in spec.cells(file, part=cell):
        asked = one.read(tuned=False)
        if engine is not None:
            asked = spec.with_settings(asked, {"engine": engine})
        found += studies.plans(asked, one.results, only=only, **given)
    if not found:
        raise InputError(f"{file}: no arm names a study, so there is nothing to tune")
    return studies.in_turn(found)


def _make(
    plans: "list[Plan]", *, workers: int, seed: int, data_dir: Path | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Make studies one after the other; a failure is reported and does not stop the others."""
    from unexposed.experiments import studies

    failed = []
    for number, plan in enumerate(plans, 1):
        label = f"{plan.path.stem} ({number} of {len(plans)})"
        say(f"{label}: {plan.arm}, {plan.trials} trials on {plan.splits} splits")
        try:
            found = studies.make(plan, workers=workers, seed=seed, say=say, data_dir=data_dir)
        except InputError as error:
            if len(plans) == 1:
                raise
            say(f"error: {plan.path.stem}: {error}")
            failed.append(f"{plan.path.stem}: {error}")
            continue
        yield label, found
    if failed:
        raise InputError(f"{len(failed)} of {len(plans)} studies failed; {failed[0]}")


def log_called(train: str) -> str:
    """What study files of a log are called."""
    return Path(train.partition("?")[0]).stem.strip("-*[]? ") or "log"


def clicks_alone(
    dataset: str | None, train: str | None, columns: options.Columns, data_dir: Path | None
) -> "Clicks":
    """The clicks alone: a data set's judged part goes no further than this function."""
    if (dataset is None) == (train is None):
        raise InputError("give either --dataset NAME or --train LOG")
    if train is not None:
        from unexposed.data.log import read_log  # with polars, which data sets do without

        return read_log(train, **columns.given(), say=say)
    assert dataset is not None
    if columns.are_given():
        raise InputError("give --dataset, or --train with its columns, not both")
    logged, threshold = _logged(dataset, data_dir)
    return logged.clicks(threshold=threshold)


def disliked_alone(dataset: str, data_dir: Path | None) -> "Impressions":
    """What users of a data set rated below the threshold, in its logged part."""
    logged, threshold = _logged(dataset, data_dir)
    return logged.disliked(threshold=threshold)


def _logged(dataset: str, data_dir: Path | None) -> "tuple[Ratings, float]":
    from unexposed.data import datasets as known
    from unexposed.evaluation.protocols import PROTOCOLS

    return known.load(dataset, data_dir=data_dir).logged, PROTOCOLS["ubo-ijcai22"].threshold
