"""Options that several commands share, each stated once."""

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from unexposed.data.clicks import Clicks
    from unexposed.training.side import Side

ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="A saved model.")]
MethodNames = Annotated[
    str, typer.Option(help="Names, separated by commas: see `unexposed methods`.")
]
KnownDataset = Annotated[str | None, typer.Option(help="A known data set.")]
LOG = "Click log: CSV, TSV, JSON lines or Parquet; folder, 'pattern*', - or database."
Log = Annotated[str, typer.Argument(help=LOG)]
OwnLog = Annotated[str | None, typer.Option(help="Your own click log.")]
TrafficFile = Annotated[
    Path | None,
    typer.Option("--traffic", help="Pairs shown at random: user, item, and relevance or rating."),
]
Titles = Annotated[Path | None, typer.Option(help="File with the names of items, by id.")]
TitleColumn = Annotated[str | None, typer.Option(help="Column of names in --titles.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="name=value for a setting, method.name=value for one method."),
]
UserFeatures = Annotated[
    Path | None, typer.Option(help="Table of users by id: their exposure comes from it (ubo).")
]
ItemFeatures = Annotated[
    Path | None, typer.Option(help="Table of items by id: also those without a click are ranked.")
]
EngineName = Annotated[
    str | None, typer.Option("--engine", help="Force reference, cpu or cuda. (default: auto)")
]
CriterionName = Annotated[
    str | None, typer.Option(help="How held-out clicks choose. (default: uniform)")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
SpreadsheetSafe = Annotated[
    bool,
    typer.Option("--spreadsheet-safe", help="CSV: ' before text that a spreadsheet would compute."),
]
SplitRule = Annotated[
    str | None,
    typer.Option("--split", help="Clicks to hold out: random:0.1, time:0.8, last, date:2024-05-01"),
]
ProtocolName = Annotated[
    str | None,
    typer.Option("--protocol", help="See `unexposed protocols`. (default: catalogue)"),
]
DataDir = Annotated[Path | None, typer.Option(help="Folder that holds the data sets.")]
CellName = Annotated[
    str | None, typer.Option("--cell", help="Of a matrix: cells whose name holds this text.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace a model that is there already.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same result.", min=0)]


@dataclass(frozen=True)
class JudgedColumns:
    """Names of the columns of judged pairs, and the rating that is relevant."""

    user: Annotated[str | None, typer.Option("--user", help="Column of user ids.")] = None
    item: Annotated[str | None, typer.Option("--item", help="Column of item ids.")] = None
    rating: Annotated[str | None, typer.Option("--rating", help="Column of ratings.")] = None
    threshold: Annotated[
        float | None, typer.Option(help="A rating of at least this is a click. (default: 4)")
    ] = None
    delimiter: Annotated[
        str | None, typer.Option(help="What separates columns in a text file.")
    ] = None

    def judged(self) -> dict[str, Any]:
        """Keywords for `read_judged`."""
        return {f.name: getattr(self, f.name) for f in fields(JudgedColumns)}

    def pair(self) -> dict[str, Any]:
        """Keywords for `read_pairs`: a pair has no rating."""
        return {name: getattr(self, name) for name in ("user", "item", "delimiter")}

    def are_given(self) -> bool:
        return any(value is not None for value in asdict(self).values())


@dataclass(frozen=True)
class Columns(JudgedColumns):
    """Names of a log's columns, and what is a click; '' says that there is no such column."""

    click: Annotated[
        str | None, typer.Option(help="Column of 0 and 1, or the events that are clicks.")
    ] = None
    shown: Annotated[
        str | None,
        typer.Option(
            help="Events of an item that was shown, such as view,impression; below: ratings below "
            "the threshold."
        ),
    ] = None
    event: Annotated[str | None, typer.Option(help="Column of events.")] = None
    count: Annotated[str | None, typer.Option(help="Column of how often, such as plays.")] = None
    time: Annotated[str | None, typer.Option(help="Column of times.")] = None
    propensity: Annotated[
        str | None, typer.Option(help="Column of the logged chance that the item was shown.")
    ] = None
    query: Annotated[
        str | None,
        typer.Option(help="SQL for a log in a database: sqlite:///shop.db, postgresql://…"),
    ] = None

    def given(self) -> dict[str, Any]:
        """Keywords for `read_log`."""
        return asdict(self)


NO_COLUMNS = Columns()
NO_JUDGED_COLUMNS = JudgedColumns()


def with_traffic(
    side: "Side | None", traffic: Path | None, clicks: "Clicks", columns: Columns
) -> "Side":
    """Inputs of a training beside the clicks, with the random traffic of this file."""
    from unexposed.cli.talking import say
    from unexposed.data.judged import read_traffic
    from unexposed.training.side import Side

    side = side or Side()
    if traffic is None:
        return side
    return replace(side, traffic=read_traffic(traffic, clicks, **columns.judged(), say=say))


def with_columns(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the command's parameter `columns` by one option for each field of its class."""
    own = inspect.signature(command)
    kind = type(own.parameters["columns"].default)
    options = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=f.type)
        for f in fields(kind)
    ]
    shown: list[inspect.Parameter] = []
    for parameter in own.parameters.values():
        keyword = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        shown += options if parameter.name == "columns" else [keyword]

    @wraps(command)
    def run(**given: Any) -> None:
        columns = kind(**{f.name: given.pop(f.name) for f in fields(kind)})
        command(**given, columns=columns)

    run.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]
    return run


def assignments(settings: list[str] | None, engine: str | None) -> list[str]:
    """Settings from `--set` and `--engine`, as name=value."""
    return [*(settings or []), *([f"engine={engine}"] if engine else [])]


def disagreement(preferred: dict[str, str]) -> str:
    """Say which criteria prefer something else."""
    said = ", ".join(f"`{criterion}` prefers {choice}" for criterion, choice in preferred.items())
    return f"criteria disagree: {said}"
