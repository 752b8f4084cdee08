"""`unexposed fit`: from a click log to a saved model."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unexposed.cli import options
from unexposed.cli.inputs import check_replaces, with_features
from unexposed.cli.talking import leads, progress, say
from unexposed.data.columns import Columns
from unexposed.errors import InputError, Interrupted

if TYPE_CHECKING:
    from unexposed.data.clicks import Clicks
    from unexposed.model.model import Model
    from unexposed.model.recommender import Recommender
    from unexposed.training.side import Side
    from unexposed.workers import Workers


@options.with_columns
def fit(
    log: options.Log,
    columns: Columns,
    out: Annotated[Path, typer.Option(help="File for the model: OUT.safetensors.")],
    method: Annotated[str, typer.Option(help="What to train: see `unexposed methods`.")] = "mf",
    traffic: options.Traffic = None,
    settings: options.Settings = None,
    engine: options.EngineName = None,
    criterion: options.CriterionName = None,
    split: options.SplitRule = None,
    user_features: options.UserFeatures = None,
    item_features: options.ItemFeatures = None,
    seed: options.Seed = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a training that was killed.")
    ] = False,
    checkpoint_every: Annotated[
        float | None,
        typer.Option(help="Seconds between checkpoints, kept in OUT.checkpoint. (default: 30)"),
    ] = None,
    force: options.Force = False,
) -> None:
    """Train a method on a click log and save the model.

    Under torchrun several processes train together: see docs/scaling.md.
    """
    from unexposed.api.inputs import as_traffic
    from unexposed.api.methods import as_methods
    from unexposed.data.log import read_log
    from unexposed.evaluation.compare import check_use
    from unexposed.methods.mf import simple_rival
    from unexposed.model.load import unlike
    from unexposed.model.save import check_ids, check_place, model_path
    from unexposed.training.checkpoint import EVERY, is_kept, place_beside
    from unexposed.workers import led, together

    if "," in method:
        raise InputError(f"fit trains one method, got {method!r}; compare takes several")
    assigned = options.assignments(settings, engine)
    (recommender,) = as_methods(method, assigned, criterion).values()
    if leads():
        check_place(out)
        check_replaces(out, force=force or resume)  # resume says below what it finds and does
    recommender.check_workers()
    checkpoint = place_beside(out)
    with together() as workers:
        kept = led(lambda: is_kept(checkpoint), workers)
        finished = led(model_path(out).exists, workers)
    if kept and not resume:
        say(f"writing over the unfinished training in {checkpoint}; --resume would go on with it")
    clicks = read_log(log, **columns.of_log(), say=say)
    clicks, side = with_features(clicks, columns, user_features, item_features)
    if traffic is not None:
        side = replace(side, traffic=as_traffic(traffic, clicks, columns, say=say))
    check_use({method: recommender}, side, say)
    check_ids(clicks)
    n_users = clicks.n_users if clicks.share is None else clicks.share.n_users
    say(f"{clicks.n_clicks:,} clicks by {n_users:,} users on {clicks.n_items:,} items")
    inputs = _inputs(recommender, clicks, side, seed=seed, split=split)
    if resume and not kept:
        if not finished:
            say(f"there is no {checkpoint} to resume from: training from the start")
        elif changed := unlike(out, inputs):
            say(f"{out} holds another training: {'; '.join(changed[:3])}; training from the start")
        else:
            say(f"{out} holds this training, finished; to train it again, take --force instead")
            return
    train, held_out = (clicks, None) if split is None else _held_out(clicks, split, seed=seed)
    model, stopped = kept_model(
        lambda: recommender.fit(
            train,
            held_out,
            seed=seed,
            side=side,
            progress=progress(),
            checkpoint=checkpoint,
            resume=resume,
            checkpoint_every=EVERY if checkpoint_every is None else checkpoint_every,
            rival=simple_rival(recommender, len(clicks), refit=False),
        )
    )
    model = replace(model, facts=model.facts | {"inputs": inputs})
    model.save(out)  # workers write it together
    tell_of_training(model, stopped)
    recommend = f"unexposed recommend {out} -k 10 --out recommendations.csv"
    say(f"saved to {model_path(out)}; next:", command=recommend)
    if stopped is not None:
        raise stopped


def _inputs(
    method: "Recommender", clicks: "Clicks", side: "Side", *, seed: int, split: str | None
) -> dict[str, Any]:
    """What `--resume` compares with a finished model: every input of the training."""
    from unexposed.training.fingerprint import fingerprint
    from unexposed.training.side import HELD_OUT_FRACTION
    from unexposed.workers import together

    if side.impressions is None:
        side = replace(side, impressions=clicks.shown)
    with together() as workers:
        own: dict[str, Any] = {"side": side.aligned(clicks), "workers": workers}
        found = fingerprint(method, clicks, None, seed=seed, **own)
    return found | {
        "the engine": getattr(method, "engine", "auto"),
        "the split": split or f"random:{HELD_OUT_FRACTION}",
    }


def _held_out(clicks: "Clicks", how: str, *, seed: int) -> "tuple[Clicks, Clicks]":
    """Clicks to train on and clicks that choose the epoch; several workers draw them at random."""
    from unexposed.data.split import split
    from unexposed.workers import together

    with together() as workers:
        if workers is None:
            train, held_out = split(clicks, how, seed=seed)
        else:
            train, held_out = _drawn(clicks, how, seed, workers)
    say(f"{how}: {train.n_clicks:,} clicks to train on, {held_out.n_clicks:,} held out")
    return train, held_out


def _drawn(clicks: "Clicks", how: str, seed: int, workers: "Workers") -> "tuple[Clicks, Clicks]":
    """A random split of clicks that workers divide."""
    name, _, share = how.partition(":")
    if name != "random" or not share.replace(".", "", 1).isdecimal():
        raise InputError(
            f"several workers split a log by random:0.1 and the like, got {how!r}: choose that, "
            "or train in one process"
        )
    return clicks.hold_out(fraction=float(share), seed=seed, workers=workers)


def kept_model(train: Callable[[], "Model"]) -> "tuple[Model, Interrupted | None]":
    """The model of a training, and Ctrl-C if that ended it before its time."""
    try:
        return train(), None
    except Interrupted as stopped:
        return stopped.result, stopped


def tell_of_training(model: "Model", stopped: Interrupted | None) -> None:
    """Say how the training went and, if it was whole, how the model stands beside its rivals."""
    from unexposed.ranking.verdict import RIVAL, gains_of_facts

    facts, name = model.facts, model.method.name
    if "best_epoch" in facts:
        resumed = "".join(f", resumed at epoch {n}" for n in facts.get("resumed_at", [])[-1:])
        best, kept = facts["best_epoch"], f"kept epoch {facts['best_epoch']}"
        if every := facts.get("refitted_on"):
            kept = (
                f"epoch {best} was best, so trained again for {best} epochs on all {every:,} clicks"
            )
        say(
            f"trained {name} for {facts['epochs_run']} epochs in {facts['seconds']:.1f} s "
            f"({facts['ended']}{resumed}); {kept}"
        )
    else:
        say(f"trained {name}")
    if stopped is not None:
        return
    for verdict in model.verdicts:
        say(str(verdict))
    if name == RIVAL:
        say(f"{name} is the list that other methods are compared with")
    elif not model.verdicts:
        say(
            f"not compared with {RIVAL}: too few clicks were held out, or {name} does not use "
            "them; judged pairs can tell (unexposed evaluate)"
        )
    elif name != "mf" and "mf" not in gains_of_facts(facts):
        say(f"not trained beside mf: unexposed compare --methods popularity,mf,{name} does")
