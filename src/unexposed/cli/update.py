"""`unexposed update`: newer clicks for a saved model."""

from pathlib import Path
from typing import Annotated

import typer

from unexposed.cli import opening
from unexposed.cli.features import with_features
from unexposed.cli.fit import kept_model, training_line, verdict_lines
from unexposed.cli.options import (
    NO_COLUMNS,
    Columns,
    Force,
    ItemFeatures,
    Log,
    ModelFolder,
    Seed,
    UserFeatures,
    with_columns,
)
from unexposed.cli.replacing import check_replaces
from unexposed.cli.talking import progress, say


@with_columns
def update(
    folder: ModelFolder,
    log: Log,
    out: Annotated[Path, typer.Option(help="File for the updated model.")],
    epochs: Annotated[
        int | None, typer.Option(help="Most epochs. (default: a tenth of the method's)", min=1)
    ] = None,
    columns: Columns = NO_COLUMNS,
    user_features: UserFeatures = None,
    item_features: ItemFeatures = None,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Go on training a saved model with newer clicks, new users and items included."""
    from unexposed.data.log import read_log
    from unexposed.model.save import check_place, model_path

    check_place(out)
    place = model_path(out)
    is_same = place.exists() and place.samefile(model_path(folder))  # its clicks stay in it
    check_replaces(out, force=force or is_same)
    model = opening.whole(folder, verify=True)  # damage must not go into a new model
    clicks = read_log(log, **columns.given(), any_size=True, say=say)
    clicks, side = with_features(clicks, columns, user_features, item_features, model=model)
    updated, interrupted = kept_model(
        lambda: model.update(clicks, epochs=epochs, seed=seed, side=side, progress=progress())
    )
    new_users = len(updated.user_ids) - len(model.user_ids)
    new_items = len(updated.item_ids) - len(model.item_ids)
    say(f"{len(clicks):,} newer clicks, {new_users:,} new users and {new_items:,} new items")
    updated.save(out)
    say(training_line(updated))
    for line in () if interrupted else verdict_lines(updated):
        say(line)
    say(f"saved to {out}")
    if interrupted:
        raise KeyboardInterrupt
