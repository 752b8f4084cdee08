"""`unexposed plan`: the memory and network that a training over ranks needs."""

from typing import TYPE_CHECKING, Annotated

import typer

from unexposed.cli import options
from unexposed.cli.talking import print_json

if TYPE_CHECKING:
    from unexposed.training.plan import Training


def plan(
    users: Annotated[str, typer.Option(help="Users of the log: 1e8, for example.")],
    items: Annotated[str, typer.Option(help="Items of the log.")],
    clicks: Annotated[str, typer.Option(help="Clicked pairs of the log.")],
    method: Annotated[str, typer.Option(help="Name: see `unexposed methods`.")] = "ubo",
    ranks: Annotated[str, typer.Option(help="Processes that train together.")] = "1",
    dim: Annotated[str | None, typer.Option(help="Short for --set dim=…")] = None,
    batch_size: Annotated[str | None, typer.Option(help="Short for --set batch_size=…")] = None,
    settings: options.Settings = None,
    engine: options.EngineName = None,
    as_json: options.AsJson = False,
) -> None:
    """Work out what a training needs: bytes of a rank, bytes of a step, seconds of exchange."""
    from unexposed.evaluation.compare import parse_methods
    from unexposed.methods.planned import planned
    from unexposed.training.plan import document

    short = {"dim": dim, "batch_size": batch_size}
    assigned = options.assignments(settings, engine)
    assigned += [f"{name}={_count(name, text)}" for name, text in short.items() if text is not None]
    (recommender,) = parse_methods(method, assigned).values()
    sizes = {"users": users, "items": items, "clicks": clicks, "ranks": ranks}
    training = planned(
        method, recommender, **{name: _count(name, text) for name, text in sizes.items()}
    )
    if as_json:
        return print_json({"method": method, **document(training)})
    return _show(method, training)


def _count(name: str, text: str) -> int:
    """A whole number as people write it: 1e8, 100_000_000."""
    from unexposed.errors import InputError

    try:
        value = float(text)
        number = int(text) if value < 2**53 and text.isdecimal() else int(value)
    except (ValueError, OverflowError):
        value, number = 0.0, 0
    if number < 1 or number != value:
        option = name.replace("_", "-")
        raise InputError(f"--{option} must be a whole number of at least 1, got {text!r}")
    return number


def _show(method: str, training: "Training") -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from unexposed.cli import tables
    from unexposed.training.plan import NETWORKS

    one = training.ranks == 1
    table = Table("of a rank", box=SIMPLE_HEAD)
    for head in ("bytes", "where", "formula"):
        table.add_column(head, justify="right" if head == "bytes" else "left")
    for part in training.memory():
        table.add_row(part.name, amount(part.n_bytes), part.where, part.formula)
    for where in ("host", "card"):
        if training.total(where):
            table.add_row("all of it", amount(training.total(where)), where, "")
    own = f"u = {training.own_users:,} users and c = {training.own_clicks:,} clicks"
    who = f"{method} in one process" if one else f"{method} on {training.ranks} ranks"
    title = f"{who}: {'' if one else 'the largest has '}{own}, M = {training.items:,} items"
    tables.show(table, title=title)
    lines = [f"{training.steps:,} steps an epoch of b = {training.batch_size:,} clicks"]
    if one:
        lines.append("one process exchanges nothing")
    else:
        lines += [
            f"a step touches at most {training.touched:,.0f} items: M (1 − (1 − 1/M)^(b (1 + k)))",
            f"a rank gives {amount(training.step_bytes)} to {training.sums} all-reduces of a step, "
            f"{amount(training.steps * training.step_bytes)} in an epoch: 4 d × items × "
            f"{training.sums_of_items}, and the gate",
            f"it tells the others which items: {amount(training.told_bytes)} a step",
        ]
        for network in NETWORKS:
            seconds = training.exchange_seconds(network)
            lines.append(
                f"{network.name}: {1e3 * seconds:,.3g} ms of exchange a step, "
                f"{training.steps * seconds / 3600:,.3g} h an epoch, at least"
            )
        lines.append(
            "a ring takes 2 (W − 1)/W × bytes / speed + 2 (W − 1) × latency for an all-reduce"
        )
    for line in lines:
        tables.console().print(line, soft_wrap=True)


def amount(n_bytes: float) -> str:
    """Bytes in powers of ten, as networks and disks are sold: 1.2 GB."""
    for unit, size in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:,.3g} {unit}"
    return f"{n_bytes:,.0f} B"
