"""Options that several commands share, each stated once."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from unexposed.data.columns import JUDGED, Columns

READING, LEARNING, SERVING = "Columns of the log", "Training", "Lists"

ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="A saved model.")]
LOG = "Click log: CSV, TSV, JSON lines or Parquet; folder, 'pattern*', - or database."
Log = Annotated[str, typer.Argument(help=LOG)]
OwnLog = Annotated[str | None, typer.Option(help="Your own click log.")]
KnownDataset = Annotated[str | None, typer.Option(help="A known data set.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder that holds the data sets.")]
MethodNames = Annotated[
    str, typer.Option(help="Names, separated by commas: see `unexposed methods`.")
]
Protocol = Annotated[
    str | None,
    typer.Option(
        help="See `unexposed protocols`. (default: catalogue; comparing coat and the like: "
        "ubo-ijcai22)"
    ),
]
Titles = Annotated[Path | None, typer.Option(help="File with the names of items, by id.")]
TitleColumn = Annotated[str | None, typer.Option(help="Column of names in --titles.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a model that is there already.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same result.", min=0)]
CellName = Annotated[
    str | None, typer.Option("--cell", help="Of a matrix: cells whose name holds this text.")
]


def _learning(help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=LEARNING)


Settings = Annotated[
    list[str] | None,
    _learning("name=value for a setting, method.name=value for one method.", "--set"),
]
EngineName = Annotated[
    str | None, _learning("Force reference, cpu or cuda. (default: auto)", "--engine")
]
CriterionName = Annotated[
    str | None, _learning("How held-out clicks choose. (default: uniform)", "--criterion")
]
SplitRule = Annotated[
    str | None,
    _learning("Clicks to hold out: random:0.1, time:0.8, last, date:2024-05-01", "--split"),
]
Traffic = Annotated[
    Path | None, _learning("Pairs shown at random: user, item, and relevance or rating.")
]
UserFeatures = Annotated[
    Path | None, _learning("Table of users by id: their exposure comes from it (ubo).")
]
ItemFeatures = Annotated[
    Path | None, _learning("Table of items by id: also those without a click are ranked.")
]


def assignments(settings: list[str] | None, engine: str | None) -> list[str]:
    """Settings from `--set` and `--engine`, as name=value."""
    return [*(settings or []), *([f"engine={engine}"] if engine else [])]


def with_columns(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the command's parameter `columns` by an option for each column of a log."""
    return _with_columns(command, [f.name for f in fields(Columns)])


def with_judged_columns(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the command's parameter `columns` by an option for each column of judged pairs."""
    return _with_columns(command, list(JUDGED))


def _with_columns(command: Callable[..., None], names: list[str]) -> Callable[..., None]:
    own = inspect.signature(command)
    keyword = inspect.Parameter.KEYWORD_ONLY
    options = []
    for column in fields(Columns):
        if column.name in names:
            of = float if column.name == "threshold" else str
            option = typer.Option(help=column.metadata["help"], rich_help_panel=READING)
            annotation = Annotated[of | None, option]  # type: ignore[valid-type]
            options.append(
                inspect.Parameter(column.name, keyword, default=None, annotation=annotation)
            )
    others = [p.replace(kind=keyword) for p in own.parameters.values() if p.name != "columns"]

    @wraps(command)
    def run(**given: Any) -> None:
        columns = Columns(**{name: given.pop(name) for name in names})
        command(**given, columns=columns)

    run.__signature__ = own.replace(parameters=[*others, *options])  # type: ignore[attr-defined]
    return run
