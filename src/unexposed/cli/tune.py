"""`unexposed tune`: settings chosen on held-out clicks."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unexposed.cli import options
from unexposed.cli.inputs import known_dataset, with_features
from unexposed.cli.talking import disagreement, print_json, say
from unexposed.data.columns import Columns
from unexposed.errors import InputError

if TYPE_CHECKING:
    from unexposed.experiments.studies import Plan

Document = dict[str, Any]


@options.with_columns
def tune(
    columns: Columns,
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
    traffic: options.Traffic = None,
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
    """Choose settings on held-out clicks, or on random traffic; a stopped study resumes.

    --criterion traffic judges by the pairs of --traffic in place of held-out clicks.
    """
    if file is None:
        if methods is None or out is None:
            raise InputError("give --methods NAMES and --out FOLDER, or an experiment file")
        if cell is not None or only is not None:
            raise InputError("--cell and --only choose studies of an experiment file: give one")
        if (dataset is None) == (train is None):
            raise InputError("give either --dataset NAME or --train LOG")
        if dataset is not None and (user_features or item_features or columns != Columns()):
            raise InputError("columns and features belong to --train, not to --dataset")
        studies = _tune(
            options.assignments(settings, engine),
            train if dataset is None else known_dataset(dataset),
            methods,
            columns,
            traffic=traffic,
            features=(user_features, item_features),
            out=out,
            source=dataset or log_called(str(train)),
            data_dir=data_dir,
            trials=trials or 40,
            splits=splits or 1,
            split=split,
            criterion=criterion,
            workers=workers,
            seed=seed,
        )
    else:
        others = methods, out, dataset, train, settings, criterion, split, traffic
        if columns != Columns() or any((*others, user_features, item_features)):
            raise InputError(f"{file} says what is tuned: its [tune] table holds settings")
        labels = None if only is None else [arm.strip() for arm in only.split(",")]
        asked = _plans(file, cell, labels, trials=trials, splits=splits, engine=engine)
        studies = _make(asked, workers=workers, seed=seed, data_dir=data_dir)
    documents = []
    for label, document in studies:
        _tell(label, document, by_traffic=criterion == "traffic")
        documents.append(document)
    if as_json:
        print_json(documents)


def _tune(
    assigned: list[str],
    train: Any,
    methods: str,
    columns: Columns,
    *,
    traffic: Path | None,
    features: tuple[Path | None, Path | None],
    out: Path,
    source: str,
    data_dir: Path | None,
    criterion: str | None,
    trials: int,
    **how: Any,
) -> Iterator[tuple[str, Document]]:
    """Tune methods on a log, one after the other."""
    from unexposed.api.methods import as_methods
    from unexposed.api.tune import tune as search
    from unexposed.data.log import read_log
    from unexposed.evaluation.compare import check_use
    from unexposed.progress import Silent
    from unexposed.settings import known
    from unexposed.training.side import Side
    from unexposed.tuning.trial import TRAFFIC

    if criterion == TRAFFIC and traffic is None:
        raise InputError("--criterion traffic needs --traffic FILE")
    made, side = as_methods(methods, assigned, None if criterion == TRAFFIC else criterion), Side()
    if isinstance(train, str):
        train = read_log(train, **columns.of_log(), say=say)
        train, side = with_features(train, columns, *features)
    check_use(made, side, say)
    for label, method in made.items():
        texts = [*assigned, *label.split(":")[1:]]
        names = {text.partition("=")[0].rpartition(".")[2] for text in texts}
        say(f"{label}: {trials} trials; after Ctrl-C the same command goes on with them")
        study = search(
            train,
            method,
            trials=trials,
            fixed=names & known(type(method)).keys(),
            criterion=criterion,
            side=side.only(method.takes),
            traffic=traffic,
            data_dir=data_dir,
            out=out,
            name=f"{source}_{label.replace(':', '-').replace('=', '-')}",
            progress=Silent(),
            say=say,
            **how,
        )
        yield label, study.document


def _tell(label: str, document: Document, *, by_traffic: bool) -> None:
    """Say what a study found, whether that is anything new, and which criteria disagree."""
    from unexposed.methods import method
    from unexposed.settings import default
    from unexposed.tuning.study import dissent

    best = document["best"]
    chosen = " ".join(f"--set {k}={v}" for k, v in best["settings"].items())
    judge = "quality on random traffic" if by_traffic else "held-out quality"
    say(f"{label}: {judge} {best['value']:.4f} with", command=chosen)
    cls, others = method(document["method"]), len(document["trials"]) - 1
    tried = f"none of {others} other settings tried did better" if others else "it tried no others"
    if best["settings"] == {name: default(cls, name) for name in best["settings"]}:
        say(f"{label}: these are the defaults; {tried}")
    elif best["trial"] == 0:
        say(f"{label}: the study began with these settings; {tried}")
    if preferred := dissent(document):
        say(f"{label}: {disagreement(preferred)}")


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
) -> Iterator[tuple[str, Document]]:
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
