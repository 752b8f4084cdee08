"""`unexposed run`: experiments from TOML files."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unexposed.cli.options import AsJson, CellName, DataDir, EngineName
from unexposed.cli.talking import print_json, progress, say
from unexposed.errors import InputError

if TYPE_CHECKING:
    from unexposed.experiments.results import Line
    from unexposed.experiments.spec import Cell
    from unexposed.experiments.task import Experiment


def run(
    files: Annotated[list[Path], typer.Argument(help="Experiment files: TOML.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results. (default: results/ beside a file)")
    ] = None,
    cell: CellName = None,
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
    """Run experiments; finished runs are not repeated."""
    from unexposed.experiments import results
    from unexposed.experiments import run as running

    labels = None if only is None else [arm.strip() for arm in only.split(",")]
    tuned = not miniature if labels is None or miniature else labels
    asked = _read(files, cell, tuned, miniature=miniature, seeds=seeds, engine=engine)
    documents, failed = {}, False
    for cell_of, experiment in asked:
        folder = out or (Path("miniature") if miniature else cell_of.results)
        place = results.Results(folder, experiment.name)
        try:
            lines = running.run(
                experiment,
                place,
                progress=progress(),
                say=say,
                fresh=fresh,
                only=labels,
                workers=workers,
                data_dir=data_dir,
            )
            documents[experiment.name] = _show(experiment, lines, place.document(), as_json=as_json)
        except InputError as error:
            if len(asked) == 1:
                raise
            say(f"error: {cell_of.where}: {error}")
            failed = True
    if as_json:
        print_json(documents if len(asked) != 1 else documents.popitem()[1])
    if failed:
        sys.exit(2)


def _read(
    files: list[Path],
    cell: str | None,
    tuned: bool | list[str],
    *,
    miniature: bool,
    seeds: int | None,
    engine: str | None,
) -> "list[tuple[Cell, Experiment]]":
    """The experiments in these files, all of them read before the first is run."""
    from unexposed.experiments import spec as experiments

    made = []
    for file in files:
        if len(files) > 1 and not experiments.is_experiment(file):
            say(f"left out {file}, which has no kind: it is not an experiment")
            continue
        for found in experiments.cells(file, part=cell):
            asked = found.read(tuned=tuned)
            if miniature:
                asked = experiments.miniature(asked)
            if seeds is not None:
                asked = replace(asked, seeds=seeds)
            if engine is not None:
                asked = experiments.with_settings(asked, {"engine": engine})
            made.append((found, asked))
    return made


def _show(
    experiment: "Experiment", lines: "list[Line]", stored: dict[str, Any], *, as_json: bool
) -> Any:
    """Print the table of an experiment, or return its document."""
    from unexposed.cli import tables
    from unexposed.evaluation.protocols import TRUE_RELEVANCE
    from unexposed.experiments.compare import document

    if experiment.kind != "compare":
        if not as_json:
            tables.show(tables.run_table(lines), title=experiment.title)
        return {"experiment": experiment.name, "kind": experiment.kind, "lines": lines}
    known = stored["comparisons"]
    if as_json:
        return document(experiment, lines, known=known)
    # a world is judged by drawn labels, and where the file says so by its true relevance
    shown = (experiment.protocol, *(by for by in experiment.also if by is TRUE_RELEVANCE))
    for by in shown:
        table = tables.document_table(document(experiment, lines, by=by, known=known))
        tables.show(table, title=experiment.title)
    return None
