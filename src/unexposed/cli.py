"""The command `unexposed`: one short function a command."""

import io
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from unexposed import __version__, memory
from unexposed.errors import InputError

if TYPE_CHECKING:
    from unexposed.comparison import Comparison, Splits
    from unexposed.data import Clicks
    from unexposed.evaluation import Protocol
    from unexposed.experiment import Experiment
    from unexposed.recommender import Model
    from unexposed.results import Line

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Relevance from click logs, with exposure modelled beside it.",
)

UserColumn = Annotated[str | None, typer.Option("--user", help="Column of user ids.")]
ItemColumn = Annotated[str | None, typer.Option("--item", help="Column of item ids.")]
RatingColumn = Annotated[str | None, typer.Option("--rating", help="Column of ratings.")]
Threshold = Annotated[
    float | None, typer.Option(help="A rating of at least this is a click. (default: 4)")
]
Delimiter = Annotated[str | None, typer.Option(help="What separates columns in a text file.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="name=value for a setting, method.name=value for one method."),
]
EngineName = Annotated[
    str | None, typer.Option("--engine", help="Force reference, cpu or cuda. (default: auto)")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
ProtocolName = Annotated[str, typer.Option("--protocol", help="How to evaluate.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder that holds the data sets.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same result.", min=0)]


@app.command()
def demo(out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("demo")) -> None:
    """Train and compare methods on a small simulated world; under a minute."""
    from unexposed.demo import run

    run(out, say=_say, progress=_progress)


@app.command()
def datasets(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show the known data sets: where each comes from, its terms, whether it is here."""
    from unexposed import datasets as known
    from unexposed import tables

    rows = known.status(data_dir)
    if as_json:
        return _print_json(rows)
    console = tables.console()
    for row in rows:
        left_out = ("name", "title", "absent" if row["present"] else "present")
        shown = {k: v for k, v in row.items() if k not in left_out and v}
        title = f"[bold]{row['name']}[/bold]  {row['title']}"
        console.print(tables.key_value_table(shown, title=title), "")
    return None


@app.command()
def fit(
    log: Annotated[Path, typer.Argument(help="Click log: CSV, TSV (also .gz) or Parquet.")],
    out: Annotated[Path, typer.Option(help="Folder for the model.")],
    method: Annotated[str, typer.Option(help="Which method to train.")] = "mf",
    user: UserColumn = None,
    item: ItemColumn = None,
    rating: RatingColumn = None,
    threshold: Threshold = None,
    delimiter: Delimiter = None,
    settings: Settings = None,
    engine: EngineName = None,
    seed: Seed = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a training that was killed.")
    ] = False,
    checkpoint_every: Annotated[
        float | None,
        typer.Option(help="Seconds between checkpoints, kept in OUT.checkpoint. (default: 30)"),
    ] = None,
) -> None:
    """Train a method on a click log and save the model."""
    from unexposed.checkpoint import EVERY, place_beside
    from unexposed.comparison import parse_methods
    from unexposed.reading import read_log
    from unexposed.storage import check_ids, check_place, unlike

    if "," in method:
        raise InputError(f"fit trains one method, got {method!r}; compare takes several")
    (recommender,) = parse_methods(method, _assignments(settings, engine)).values()
    check_place(out)
    checkpoint = place_beside(out)
    if checkpoint.exists() and not resume:
        _say(f"writing over the unfinished training in {checkpoint}; --resume would go on with it")
    clicks = read_log(
        log,
        user=user,
        item=item,
        rating=rating,
        threshold=threshold,
        delimiter=delimiter,
        say=_say,
    )
    check_ids(clicks)
    _say(f"{len(clicks):,} clicks by {clicks.n_users:,} users on {clicks.n_items:,} items")
    if resume and not checkpoint.exists():
        if not out.exists():
            _say(f"there is no {checkpoint} to resume from: training from the start")
        elif changed := unlike(out, recommender, clicks, seed=seed):
            _say(f"{out} holds another training: {'; '.join(changed[:3])}; training from the start")
        else:
            _say(f"{out} holds this training, finished; to train it again, leave out --resume")
            return
    model = recommender.fit(
        clicks,
        seed=seed,
        progress=_progress(),
        checkpoint=checkpoint,
        resume=resume,
        checkpoint_every=EVERY if checkpoint_every is None else checkpoint_every,
    )
    model.save(out)
    _say(_training_line(model))
    _say(f"saved to {out}; next: unexposed recommend {out} -k 10 --out recommendations.csv")


@app.command()
def recommend(
    folder: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a saved model.")],
    users: Annotated[
        Path | None, typer.Option(help="Text file with a user id a line. (default: all users)")
    ] = None,
    k: Annotated[int, typer.Option("-k", help="Items for each user.")] = 10,
    out: Annotated[
        Path | None, typer.Option(help="CSV, TSV or Parquet file to write. (default: print)")
    ] = None,
    show_clicked: Annotated[
        bool, typer.Option("--show-clicked", help="Recommend items the user has clicked, too.")
    ] = False,
    allow: Annotated[
        Path | None, typer.Option(help="Only items of this text file, an id a line.")
    ] = None,
    deny: Annotated[
        Path | None, typer.Option(help="No item of this text file, an id a line.")
    ] = None,
    candidates: Annotated[
        Path | None, typer.Option(help="Only these pairs: a table of users and items.")
    ] = None,
    minimum_exposure: Annotated[
        float, typer.Option(help="Only items that the user was shown at least this likely.")
    ] = 0.0,
    popularity_penalty: Annotated[
        float, typer.Option(help="Rank by score − PENALTY · log(1 + clicks of the item).")
    ] = 0.0,
    unknown: Annotated[
        str, typer.Option(help="Users the model never saw: popular (list), skip or refuse.")
    ] = "skip",
    new_clicks: Annotated[
        Path | None, typer.Option(help="Recommend to the users of this newer log, folded in.")
    ] = None,
    user: UserColumn = None,
    item: ItemColumn = None,
    rating: RatingColumn = None,
    threshold: Threshold = None,
    delimiter: Delimiter = None,
) -> None:
    """Recommend items for users, by raw id."""
    from unexposed import serving, writing
    from unexposed.fold_in import users_alone
    from unexposed.reading import read_ids, read_log, read_pairs
    from unexposed.rules import Rules
    from unexposed.storage import load

    if out is not None:
        writing.check_table(out)
    if users is not None and new_clicks is not None:
        raise InputError("give --users or --new-clicks, not both: the newer log names its users")
    model = load(folder)
    columns: dict[str, Any] = {"user": user, "item": item, "delimiter": delimiter, "say": _say}
    rules = Rules(
        hide_clicked=not show_clicked,
        allow=None if allow is None else _read_items(allow, model),
        deny=() if deny is None else _read_items(deny, model),
        candidates=None if candidates is None else read_pairs(candidates, **columns),
        minimum_exposure=minimum_exposure,
        popularity_penalty=popularity_penalty,
        unknown=unknown,  # type: ignore[arg-type]
    )
    served, wanted = model, cast(Any, model.user_ids.values)
    if new_clicks is not None:
        log = read_log(new_clicks, **columns, rating=rating, threshold=threshold, any_size=True)
        served, wanted = users_alone(model, log), log.user_ids.values
    elif users is not None:
        wanted = read_ids(users, model.user_ids)
    known = served.user_ids.index(wanted) >= 0
    if not known.all():
        _say_unknown([u for u, k_ in zip(wanted, known, strict=True) if not k_], unknown)
    if not known.any() and unknown == "skip":
        raise InputError(f"the model knows none of the users in {users or new_clicks}")
    with _progress() as progress:
        tables = serving.recommend(served, wanted, k, rules, whole=model, progress=progress)
        if out is None:
            writing.write_csv(tables, sys.stdout)
            return
        rows = writing.write_tables(tables, out)
    n_users = len(wanted) if unknown == "popular" else int(known.sum())
    _say(f"{rows:,} recommendations for {n_users:,} users in {out}")


@app.command()
def similar(
    folder: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a saved model.")],
    item: Annotated[str | None, typer.Option(help="Items like this one, by raw id.")] = None,
    user: Annotated[str | None, typer.Option(help="Users like this one, by raw id.")] = None,
    k: Annotated[int, typer.Option("-k", help="How many.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show the items or users whose vectors are most like those of one."""
    from unexposed.storage import load

    if (item is None) == (user is None):
        raise InputError("give --item ID or --user ID")
    model = load(folder)
    if item is not None:
        table = model.similar_items(model.item_ids.parse([item])[0], k)
    else:
        assert user is not None
        table = model.similar_users(model.user_ids.parse([user])[0], k)
    if as_json:
        return _print_json(table.to_dicts())
    sys.stdout.write(table.write_csv())
    return None


@app.command()
def update(
    folder: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a saved model.")],
    log: Annotated[Path, typer.Argument(help="Newer clicks: CSV, TSV (also .gz) or Parquet.")],
    out: Annotated[Path, typer.Option(help="Folder for the updated model.")],
    epochs: Annotated[
        int | None, typer.Option(help="Most epochs. (default: a tenth of the method's)", min=1)
    ] = None,
    user: UserColumn = None,
    item: ItemColumn = None,
    rating: RatingColumn = None,
    threshold: Threshold = None,
    delimiter: Delimiter = None,
    seed: Seed = 0,
) -> None:
    """Go on training a saved model with newer clicks, new users and items included."""
    from unexposed.reading import read_log
    from unexposed.storage import check_place, load

    check_place(out)
    model = load(folder)
    clicks = read_log(
        log,
        user=user,
        item=item,
        rating=rating,
        threshold=threshold,
        delimiter=delimiter,
        any_size=True,
        say=_say,
    )
    updated = model.update(clicks, epochs=epochs, seed=seed, progress=_progress())
    new_users = len(updated.user_ids) - len(model.user_ids)
    new_items = len(updated.item_ids) - len(model.item_ids)
    _say(f"{len(clicks):,} newer clicks, {new_users:,} new users and {new_items:,} new items")
    updated.save(out)
    _say(_training_line(updated))
    _say(f"saved to {out}")


@app.command()
def evaluate(
    folder: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a saved model.")],
    judged: Annotated[Path, typer.Option(help="File with user, item, and relevance or rating.")],
    protocol: ProtocolName = "ubo-ijcai22",
    user: UserColumn = None,
    item: ItemColumn = None,
    rating: RatingColumn = None,
    threshold: Threshold = None,
    delimiter: Delimiter = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a saved model on judged pairs, whole and by how popular the items are."""
    from unexposed import tables
    from unexposed.evaluation import describe
    from unexposed.evaluation import protocol as protocol_named
    from unexposed.reading import read_judged
    from unexposed.storage import load

    by = protocol_named(protocol)
    model = load(folder)
    judgements = read_judged(
        judged,
        model,
        user=user,
        item=item,
        rating=rating,
        threshold=threshold,
        delimiter=delimiter,
        say=_say,
    )
    document = describe(model, judgements, by)
    if as_json:
        return _print_json(document)
    tables.console().print(tables.evaluation_table(document))
    return None


@app.command()
def compare(
    methods: Annotated[str, typer.Option(help="Names, separated by commas.")],
    dataset: Annotated[str | None, typer.Option(help="A known data set.")] = None,
    train: Annotated[Path | None, typer.Option(help="Your own click log.")] = None,
    judged: Annotated[Path | None, typer.Option(help="Your own judged pairs.")] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds each method runs.", min=1)] = 5,
    protocol: ProtocolName = "ubo-ijcai22",
    user: UserColumn = None,
    item: ItemColumn = None,
    rating: RatingColumn = None,
    threshold: Threshold = None,
    delimiter: Delimiter = None,
    settings: Settings = None,
    engine: EngineName = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Train methods on the same splits and compare them on judged pairs."""
    from unexposed.comparison import compare as run
    from unexposed.comparison import parse_methods
    from unexposed.evaluation import protocol as protocol_named

    by = protocol_named(protocol)
    made = parse_methods(methods, _assignments(settings, engine))
    columns = {"user": user, "item": item, "rating": rating, "delimiter": delimiter}
    if dataset is not None:
        if train or judged or any(columns.values()) or threshold is not None:
            raise InputError("give --dataset, or --train and --judged with their columns, not both")
        splits = _dataset_splits(dataset, by, data_dir)
    elif train is not None and judged is not None:
        splits = _file_splits(train, judged, by, {**columns, "threshold": threshold})
    else:
        raise InputError("give --dataset NAME, or both --train LOG and --judged FILE")
    _print_comparison(
        run(splits, made, by=by, seeds=seeds, progress=_progress(), say=_say), as_json=as_json
    )


@app.command()
def tune(
    methods: Annotated[str, typer.Option(help="Names, separated by commas.")],
    out: Annotated[Path, typer.Option(help="Folder for a study file of each method.")],
    dataset: Annotated[str | None, typer.Option(help="A known data set.")] = None,
    train: Annotated[Path | None, typer.Option(help="Your own click log.")] = None,
    trials: Annotated[int, typer.Option(help="Settings tried for each method.", min=1)] = 40,
    splits: Annotated[int, typer.Option(help="Held-out splits a trial is judged on.", min=1)] = 1,
    workers: Annotated[int, typer.Option(help="Processes that share the trials.", min=1)] = 1,
    start_from: Annotated[
        Path | None, typer.Option(help="A study whose best settings are tried early.")
    ] = None,
    user: UserColumn = None,
    item: ItemColumn = None,
    rating: RatingColumn = None,
    threshold: Threshold = None,
    delimiter: Delimiter = None,
    settings: Settings = None,
    engine: EngineName = None,
    data_dir: DataDir = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Choose the settings of methods on held-out clicks; a study that was stopped goes on."""
    from unexposed.comparison import parse_methods
    from unexposed.tuning import best_settings
    from unexposed.tuning import tune as run

    columns = {"user": user, "item": item, "rating": rating, "delimiter": delimiter}
    clicks = _clicks_to_tune_on(dataset, train, {**columns, "threshold": threshold}, data_dir)
    source = dataset or str(train and train.stem)
    assignments = _assignments(settings, engine)
    documents = []
    for label, method in parse_methods(methods, assignments).items():
        fixed = tuple(text.split("=")[0] for text in [*assignments, *label.split(":")[1:]])
        document = run(
            clicks,
            method,
            trials=trials,
            folder=out,
            name=f"{source}_{label.replace(':', '-').replace('=', '-')}",
            fixed=tuple(name.split(".")[-1] for name in fixed),
            splits=splits,
            workers=workers,
            seed=seed,
            start=None if start_from is None else best_settings(start_from),
            say=_say,
        )
        documents.append(document)
        best = document["best"]
        chosen = " ".join(f"--set {k}={v}" for k, v in best["settings"].items())
        _say(f"{label}: held-out quality {best['value']:.4f} with {chosen}")
    if as_json:
        _print_json(documents)


@app.command()
def run(
    files: Annotated[list[Path], typer.Argument(help="Experiment files: TOML.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results. (default: results/ beside a file)")
    ] = None,
    only: Annotated[str | None, typer.Option(help="Arms, separated by commas.")] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds to run.", min=1)] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run again what is finished.")] = False,
    miniature: Annotated[
        bool, typer.Option("--miniature", help="In seconds, on a simulated world, into miniature/.")
    ] = False,
    workers: Annotated[int, typer.Option(help="Processes side by side.", min=1)] = 1,
    engine: EngineName = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Run experiments; what is finished already is not run again."""
    from unexposed import running

    asked = _experiments(files, miniature=miniature, seeds=seeds, engine=engine)
    labels = None if only is None else [arm.strip() for arm in only.split(",")]
    documents, failed = {}, False
    for file, experiment in asked.items():
        folder = out or (Path("miniature") if miniature else file.parent / "results")
        try:
            lines = running.run(
                experiment,
                folder / f"{experiment.name}.jsonl",
                progress=_progress(),
                say=_say,
                fresh=fresh,
                only=labels,
                workers=workers,
                data_dir=data_dir,
            )
            documents[experiment.name] = _show_run(experiment, lines, as_json=as_json)
        except InputError as error:
            if len(asked) == 1:
                raise
            _say(f"error: {file}: {error}")
            failed = True
    if as_json:
        _print_json(documents if len(asked) > 1 else documents.popitem()[1])
    if failed:
        sys.exit(2)


@app.command()
def report(
    path: Annotated[Path, typer.Argument(help="Folder of experiments, or of a saved model.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the experiments' report, file for a model's.")
    ] = None,
    judged: Annotated[
        Path | None, typer.Option(help="Model: judged pairs, to show how well it does.")
    ] = None,
    protocol: Annotated[
        str | None, typer.Option(help="How to evaluate on --judged. (default: ubo-ijcai22)")
    ] = None,
    titles: Annotated[
        Path | None, typer.Option(help="Model: file with the names of items, by id.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Column of names in --titles.")] = None,
    user: UserColumn = None,
    item: ItemColumn = None,
    rating: RatingColumn = None,
    threshold: Threshold = None,
    delimiter: Delimiter = None,
    as_json: AsJson = False,
) -> None:
    """Write a self-contained page: of experiments and their results, or of one saved model."""
    from unexposed import report as reports

    if out is None and not as_json:
        raise InputError("give --out to write a page, or --json to print what it would show")
    kind = reports.kind_of(path)
    if out is not None:
        reports.check_out(kind, out)
    columns = {"user": user, "item": item, "rating": rating, "delimiter": delimiter}
    if kind == "experiments":
        model_only = (judged, protocol, titles, title, threshold, *columns.values())
        if any(value is not None for value in model_only):
            raise InputError(f"{path} holds experiments: --judged and --titles are for a model")
        document = reports.experiments_document(path, say=_say)
        written = [] if out is None else reports.write_experiments(document, out)
    else:
        given = reports.Given(judged, protocol, titles, title, columns | {"threshold": threshold})
        document = reports.model_document(path, given, say=_say)
        written = [] if out is None else reports.write_model(document, out)
    for line in written:
        _say(line)
    if as_json:
        _print_json(document)


@app.command()
def simulate(
    out: Annotated[Path, typer.Option(help="Folder for clicks.csv, judged.csv, truth.parquet.")],
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
    from unexposed import datasets as known
    from unexposed import simulate as worlds
    from unexposed.writing import check_world, write_world

    if dataset is not None:
        ratings = known.load(dataset, data_dir=data_dir).logged
        if trim:
            ratings = worlds.trim(ratings)
        check_world(ratings, out)
        world = worlds.semi_synthetic(ratings, power=power, seed=seed)
    else:
        dials = {"popularity_bias": popularity_bias, "relevance_bias": relevance_bias}
        given: dict[str, Any] = {name: dial for name, dial in dials.items() if dial is not None}
        world = worlds.world(users, items, seed=seed, **given)
        check_world(world, out)
    for line in write_world(world, out, seed=seed):
        _say(line)


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a saved model.")],
    to: Annotated[Path, typer.Option(help="Folder to write.")],
    kind: Annotated[
        str, typer.Option("--format", help="parquet, npy (vectors), usearch (index) or onnx.")
    ],
    k: Annotated[int, typer.Option("-k", help="List length for the recall of an index.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Write a model for serving: vectors, a nearest-neighbour index, or an ONNX scorer."""
    from unexposed.export import check_export, describe, export_model
    from unexposed.storage import load

    check_export(to, kind)
    about = export_model(load(folder), to, kind=kind, k=k)
    if as_json:
        return _print_json(about)
    for line in describe(about, to):
        _say(line)
    return None


@app.command()
def doctor(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[MODEL]", help="Look at this saved model instead.")
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Check this installation, with exit code 1 if something is broken; or all of a saved model."""
    from unexposed import doctor as doctors

    if folder is not None:
        return _examine_model(folder, as_json=as_json)
    checks = []
    for check in doctors.examine(data_dir, say=_say):
        checks.append(check)
        if not as_json:
            print("\n".join(check.lines()), flush=True)
    if as_json:
        _print_json(doctors.document(checks))
    if not doctors.healthy(checks):
        sys.exit(1)
    return None


def _examine_model(folder: Path, *, as_json: bool) -> None:
    from unexposed import tables
    from unexposed.storage import describe

    document = describe(folder)
    if as_json:
        return _print_json(document)
    tables.console().print(tables.key_value_table(document), "every checksum is right")
    return None


def main() -> None:
    """Run the command; a user's mistake is one sentence and exit code 2."""
    memory.save_addresses()
    if isinstance(sys.stdout, io.TextIOWrapper):  # ids are written as they are in any locale
        sys.stdout.reconfigure(encoding="utf-8")
    try:
        app()
    except InputError as error:
        _say(f"error: {error}")
        sys.exit(2)
    except KeyboardInterrupt:
        _say("interrupted")
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has gone, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        if not memory.is_out(error):
            raise
        _say(f"error: {memory.used_up(error)}")
        sys.exit(2)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"unexposed {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del version
    memory.check_limit()


def _assignments(settings: list[str] | None, engine: str | None) -> list[str]:
    return [*(settings or []), *([f"engine={engine}"] if engine else [])]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _progress() -> Any:
    from unexposed.progress import Lines, on_terminal

    return on_terminal(otherwise=Lines)


def _print_json(document: object) -> None:
    print(json.dumps(document, indent=1, allow_nan=False))


def _print_comparison(comparison: "Comparison", *, as_json: bool) -> None:
    from unexposed import tables

    if as_json:
        _print_json(comparison.document())
    else:
        tables.console().print(tables.comparison_table(comparison))
    if comparison.interrupted:
        sys.exit(130)


def _experiments(
    files: list[Path], *, miniature: bool, seeds: int | None, engine: str | None
) -> "dict[Path, Experiment]":
    """What the files ask for, all of them read before the first is run."""
    from unexposed import experiment as experiments

    made = {}
    for file in files:
        if len(files) > 1 and not experiments.is_experiment(file):
            _say(f"left out {file}, which has no kind and so is no experiment")
            continue
        asked = experiments.read(file)
        if miniature:
            asked = experiments.miniature(asked)
        if seeds is not None:
            asked = replace(asked, seeds=seeds)
        if engine is not None:
            asked = experiments.with_settings(asked, {"engine": engine})
        made[file] = asked
    return made


def _show_run(experiment: "Experiment", lines: "list[Line]", *, as_json: bool) -> Any:
    """Print the table of an experiment, or give its document."""
    from unexposed import tables
    from unexposed.comparison import from_lines

    title = experiment.title.replace("[", r"\[")
    if experiment.kind != "compare":
        if not as_json:
            tables.console().print(title, tables.run_table(lines))
        return {"experiment": experiment.name, "kind": experiment.kind, "lines": lines}
    comparison = from_lines(experiment, lines)
    if as_json:
        return comparison.document()
    tables.console().print(title, tables.comparison_table(comparison))
    return None


def _dataset_splits(name: str, by: "Protocol", data_dir: Path | None) -> "Splits":
    from unexposed import datasets as known
    from unexposed.evaluation import split_ratings

    data = known.load(name, data_dir=data_dir)
    return lambda seed: split_ratings(data.logged, data.random, by, seed=seed)


def _clicks_to_tune_on(
    dataset: str | None, train: Path | None, columns: dict[str, Any], data_dir: Path | None
) -> "Clicks":
    """The clicks alone: a data set's judged part goes no further than this function."""
    from unexposed import datasets as known
    from unexposed.evaluation import PROTOCOLS

    if (dataset is None) == (train is None):
        raise InputError("give either --dataset NAME or --train LOG")
    if train is not None:
        from unexposed.reading import read_log

        return read_log(train, **columns, say=_say)
    assert dataset is not None
    if any(value is not None for value in columns.values()):
        raise InputError("give --dataset, or --train with its columns, not both")
    logged = known.load(dataset, data_dir=data_dir).logged
    return logged.clicks(threshold=PROTOCOLS["ubo-ijcai22"].threshold)


def _file_splits(train: Path, judged: Path, by: "Protocol", columns: dict[str, Any]) -> "Splits":
    from unexposed.comparison import split_clicks
    from unexposed.reading import read_judged, read_log

    clicks = read_log(train, **columns, say=_say)
    return split_clicks(clicks, read_judged(judged, clicks, **columns, say=_say), by)


def _read_items(path: Path, model: "Model") -> list[Any]:
    from unexposed.reading import read_ids

    items = read_ids(path, model.item_ids)
    if unknown := int((model.item_ids.index(items) < 0).sum()):
        _say(f"{path}: the model never saw {unknown} of {len(items)} items")
    return items


def _say_unknown(unknown: list[Any], rule: str) -> None:
    done = {"popular": "the popular list goes to", "skip": "left out"}.get(rule)
    if done is not None:
        _say(f"{done} {len(unknown)} users the model never saw, first {unknown[0]!r}")


def _training_line(model: "Model") -> str:
    facts = model.facts
    if "best_epoch" not in facts:
        return f"trained {model.method.name}"
    resumed = "".join(f", resumed at epoch {n}" for n in facts.get("resumed_at", [])[-1:])
    return (
        f"trained {model.method.name} for {facts['epochs_run']} epochs in "
        f"{facts['seconds']:.1f} s ({facts['ended']}{resumed}); kept epoch {facts['best_epoch']}"
    )
