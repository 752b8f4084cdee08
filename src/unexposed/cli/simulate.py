"""`unexposed simulate`: a world whose exposure and relevance are known."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from unexposed.cli.options import DataDir, Seed
from unexposed.cli.talking import say


def simulate(
    out: Annotated[Path, typer.Option(help="Folder for clicks.csv, judged.csv, truth.parquet.")],
    impressions: Annotated[
        bool,
        typer.Option("--impressions", help="Also write impressions.csv: one row for each showing."),
    ] = False,
    traffic: Annotated[
        float,
        typer.Option(help="Also write traffic.csv: this share of pairs, at random.", min=0, max=1),
    ] = 0.0,
    attention: Annotated[
        float | None, typer.Option(help="Chance that a showing is noticed. (default: 0.5)")
    ] = None,
    users: Annotated[int, typer.Option(help="How many users.", min=2)] = 500,
    items: Annotated[int, typer.Option(help="How many items.", min=2)] = 200,
    popularity_bias: Annotated[
        float | None, typer.Option(help="How far exposure follows popularity.", min=0, max=1)
    ] = None,
    relevance_bias: Annotated[
        float | None, typer.Option(help="How far exposure follows relevance.", min=0, max=1)
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Make a semi-synthetic world from this rating set.")
    ] = None,
    generator: Annotated[
        str, typer.Option(help="Semi-synthetic: converged, or saito (as the paper's worlds).")
    ] = "converged",
    power: Annotated[
        float, typer.Option(help="Semi-synthetic: a higher power makes exposure rarer.", min=0)
    ] = 0.5,
    trim: Annotated[
        bool, typer.Option("--trim", help="Semi-synthetic: the paper's cut to 3,000 × 3,000.")
    ] = False,
    data_dir: DataDir = None,
    seed: Seed = 0,
) -> None:
    """Write the clicks and judgements of a world whose exposure and relevance are known."""
    from unexposed.data import datasets as known
    from unexposed.data.worlds import semi_synthetic
    from unexposed.data.worlds import simulate as worlds
    from unexposed.data.worlds.write import check_world, write_world
    from unexposed.errors import InputError, did_you_mean

    if generator not in semi_synthetic.GENERATORS:
        near = did_you_mean(generator, semi_synthetic.GENERATORS)
        raise InputError(f"no generator {generator!r}; {near}")
    if attention is not None and not impressions:
        raise InputError("--attention changes what impressions tell: add --impressions")
    files = {"impressions": impressions, "traffic": traffic > 0}
    if dataset is not None:
        ratings = known.load(dataset, data_dir=data_dir).logged
        if trim:
            ratings = semi_synthetic.trim(ratings)
        check_world(ratings, out, **files)
        world = semi_synthetic.GENERATORS[generator](ratings, power=power, seed=seed)
    else:
        dials = {"popularity_bias": popularity_bias, "relevance_bias": relevance_bias}
        given: dict[str, Any] = {name: dial for name, dial in dials.items() if dial is not None}
        world = worlds.world(users, items, seed=seed, **given)
        check_world(world, out, **files)
    if attention is not None:
        world = replace(world, attention=attention)
    for line in write_world(world, out, seed=seed, impressions=impressions, traffic=traffic):
        say(line)
