"""`unexposed update`: newer clicks for a saved model."""

from pathlib import Path
from typing import Annotated

import typer

from unexposed.cli import options
from unexposed.cli.fit import kept_model, tell_of_training
from unexposed.cli.inputs import check_replaces, whole, with_features
from unexposed.cli.talking import progress, say
from unexposed.data.columns import Columns


@options.with_columns
def update(
    folder: options.ModelFolder,
    log: options.Log,
    columns: Columns,
    out: Annotated[Path, typer.Option(help="File for the updated model.")],
    epochs: Annotated[
        int | None, typer.Option(help="Most epochs. (default: a tenth of the method's)", min=1)
    ] = None,
    user_features: options.UserFeatures = None,
    item_features: options.ItemFeatures = None,
    seed: options.Seed = 0,
    force: options.Force = False,
) -> None:
    """Go on training a saved model with newer clicks, new users and items included."""
    from unexposed.data.log import read_log
    from unexposed.model.save import check_place, model_path

    check_place(out)
    place = model_path(out)
    is_same = place.exists() and place.samefile(model_path(folder))  # its clicks stay in it
    check_replaces(out, force=force or is_same)
    model = whole(folder, verify=True)  # damage must not go into a new model
    clicks = read_log(log, **columns.of_log(), any_size=True, say=say)
    clicks, side = with_features(clicks, columns, user_features, item_features, model=model)
    updated, stopped = kept_model(
        lambda: model.update(clicks, epochs=epochs, seed=seed, side=side, progress=progress())
    )
    new_users = len(updated.user_ids) - len(model.user_ids)
    new_items = len(updated.item_ids) - len(model.item_ids)
    say(f"{len(clicks):,} newer clicks, {new_users:,} new users and {new_items:,} new items")
    updated.save(out)
    tell_of_training(updated, stopped)
    say(f"saved to {model_path(out)}")
    if stopped is not None:
        raise stopped
