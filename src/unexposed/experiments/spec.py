"""Read experiment files: one TOML for each question, with a cell for each table or figure.

    [matrix]                                # every combination of its values is a cell
    "data.semi_synthetic" = ["ml_100k", "amazon_cds"]
    "settings.refit" = { held_out = false, all_clicks = true }   # values with names of their own

    [cells.ml_100k]                         # for the cells with this value
    "tune.splits" = 10

A cell is named after the file and its values, as in worlds-ml_100k-held_out.
"""

import json
import tomllib
from collections.abc import Container
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from unexposed import settings as checks
from unexposed.errors import InputError, did_you_mean
from unexposed.evaluation.protocols import PAPER, TRUE_RELEVANCE, Protocol, protocol
from unexposed.experiments import data as experiment_data
from unexposed.experiments import studies
from unexposed.experiments.compare import KINDS
from unexposed.experiments.data import INPUTS
from unexposed.experiments.task import Arm, Experiment
from unexposed.methods import make, method
from unexposed.ranking.held_out import DEFAULT, criterion
from unexposed.tuning.study import best_settings

Document = dict[str, Any]

MINIATURE_SEEDS = 2
MINIATURE_WORLD = {"simulate": {"users": 80, "items": 40, "seed": 0}}
MINIATURE_SETTINGS = {"epochs": 2, "dim": 8, "n_models": 2}  # for the methods that have them

_KEYS = {
    "kind": str,
    "title": str,
    "protocol": str,
    "also": list,
    "seeds": int,
    "criterion": str,
    "data": dict,
    "settings": dict,
    "methods": dict,
    "tune": dict,
}


@dataclass(frozen=True)
class Cell:
    """One experiment of a file: its document, with the values of the matrix put in."""

    path: Path
    name: str
    document: Document
    alone: bool  # the file has no other cell

    @property
    def results(self) -> Path:
        """Folder of the results, and of the studies below it."""
        return self.path.parent / "results"

    @property
    def where(self) -> str:
        """How messages name this experiment."""
        return str(self.path) if self.alone else f"{self.path}, cell {self.name}"

    @property
    def command(self) -> str:
        """What follows `unexposed run` or `unexposed tune` for this cell."""
        return str(self.path) if self.alone else f"{self.path} --cell {self.name}"

    def read(self, *, tuned: Container[str] | bool = True) -> Experiment:
        """Check the document and make its experiment.

        `tuned` says whether arms have the settings of their studies, or names those that have.
        """
        if isinstance(tuned, bool):
            tuned = self.document.get("methods", {}) if tuned else ()
        return _experiment(self, tuned)

    def ready(self) -> list[str]:
        """Arms that name no study, or one that is there."""
        named = {
            label: table.get("study") if isinstance(table, dict) else None
            for label, table in self.document.get("methods", {}).items()
        }
        return [
            label
            for label, study in named.items()
            if not isinstance(study, str) or (self.results / study).exists()
        ]


def cells(path: Path, *, part: str | None = None) -> list[Cell]:
    """The experiments of a TOML file, one for each cell of its matrix, or those named so."""
    found = matrix(document(path), name=path.stem, where=str(path))
    made = [Cell(path, name, own, len(found) == 1) for name, own in found.items()]
    parts = [] if part is None else [text.strip() for text in part.split(",")]
    chosen = [cell for cell in made if not parts or any(text in cell.name for text in parts)]
    if not chosen:
        raise InputError(f"{path} has no cell {part!r}; its cells: {', '.join(found)}")
    return chosen


def read(path: Path) -> Experiment:
    """Read the experiment of a TOML file without a matrix."""
    first, *others = cells(path)
    if others:
        raise InputError(f"{path} holds {1 + len(others)} experiments: name a cell of its matrix")
    return first.read()


def is_experiment(path: Path) -> bool:
    """Say whether a TOML file describes an experiment."""
    return "kind" in document(path)


def document(path: Path) -> Document:
    """Read a TOML file."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        json.dumps(found, allow_nan=False)  # every result will contain it
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from error
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: dates and nan are not allowed ({error})") from error
    return found


# The cells of a file


def matrix(document: Document, *, name: str, where: str) -> dict[str, Document]:
    """Name and document of each cell; a document without a matrix is one cell."""
    changes = document.get("cells", {})
    if "matrix" not in document:
        if changes:
            raise InputError(f"{where}: [cells] needs a [matrix]")
        return {name: document}
    axes = {key: _axis(key, of, f"{where}, [matrix]") for key, of in document["matrix"].items()}
    every = {text for axis in axes.values() for text in axis}
    for text in changes:
        if text not in every:
            near = did_you_mean(text, every)
            raise InputError(f"{where}, [cells]: no value of the matrix is {text!r}; {near}")
    made: dict[str, Document] = {}
    for names in product(*axes.values()):
        chosen = dict(zip(axes, names, strict=True))
        cell = "-".join([name, *names])
        if cell in made:
            raise InputError(f"{where}: [matrix] makes two cells named {cell!r}")
        own = deepcopy({k: v for k, v in document.items() if k not in ("matrix", "cells")})
        for key, text in chosen.items():
            table, last = _table(own, key, f"{where}: [matrix]")
            if last in table:
                raise InputError(f"{where}: {key} is both in [matrix] and outside it")
            table[last] = axes[key][text]
        for text in names:
            for key, value in changes.get(text, {}).items():
                table, last = _table(own, key, f"{where}: [cells.{text}]")
                table[last] = deepcopy(value)
        made[cell] = _filled(own, {"cell": cell, **chosen})
    return made


def _axis(key: str, values: Any, where: str) -> dict[str, Any]:
    """The values of one key of the matrix, by the names that they have in a cell's name."""
    if isinstance(values, list):
        values = {str(value).lower(): value for value in values}
    if not isinstance(values, dict) or not values:
        raise InputError(f"{where}: {key} must be a list of values, or a table of named ones")
    for name, value in values.items():
        if isinstance(value, dict | list) or not name or set(name) & set("/\\{}"):
            raise InputError(f"{where}: {key} has the value {value!r}, which cannot name a file")
    return values


def _table(document: Document, key: str, where: str) -> tuple[Document, str]:
    """The table that a key such as data.power lies in, and its last word."""
    *tables, last = key.split(".")
    for name in tables:
        document = document.setdefault(name, {})
        if not isinstance(document, dict):
            raise InputError(f"{where} sets {key}, but {name} is not a table")
    return document, last


def _filled(document: Document, values: dict[str, str]) -> Document:
    """Replace {cell}, {data.power} and the like in the title and in the names of studies."""

    def filled(text: str) -> str:
        for key, value in values.items():
            text = text.replace(f"{{{key}}}", value)
        return text

    title, said = str(document.get("title", "")), ", ".join(list(values.values())[1:])
    document["title"] = filled(title) if "{" in title else f"{title}: {said}" if title else said
    for table in document.get("methods", {}).values():
        if isinstance(table, dict) and isinstance(table.get("study"), str):
            table["study"] = filled(table["study"])
    return document


# The experiment of a cell


def _experiment(cell: Cell, tuned: Container[str]) -> Experiment:
    document, where = cell.document, cell.where
    checks.check_keys(document, _KEYS, where)
    for key in ("kind", "data"):
        if key not in document:
            raise InputError(f"{where} is not an experiment: it has no {key!r}")
    kind = document["kind"]
    if kind not in KINDS:
        raise InputError(f"{where}: no kind {kind!r}; {did_you_mean(kind, KINDS)}")
    if document.get("seeds", 1) < 1:
        raise InputError(f"{where}: seeds must be at least 1, got {document['seeds']}")
    data = experiment_data.checked(document["data"], f"{where}, [data]")
    names = [document.get("protocol", PAPER), *document.get("also", [])]
    first, *also = (_protocol(name, where) for name in names)
    if TRUE_RELEVANCE is first or (TRUE_RELEVANCE in also and "dataset" in data):
        raise InputError(
            f"{where}: {TRUE_RELEVANCE.name!r} needs a world in [data], and stands in also"
        )
    for by in also:
        if (by.threshold, by.held_out) != (first.threshold, first.held_out):
            raise InputError(f"{where}: {by.name!r} in also splits the data in another way")
    arms = _arms(cell, tuned)
    return Experiment(
        name=cell.name,
        kind=kind,
        title=document.get("title", cell.name),
        protocol=first,
        also=tuple(also),
        seeds=document.get("seeds", 5),
        data=data,
        arms=arms,
        criterion=document.get("criterion", DEFAULT),
        tune=studies.checked(document.get("tune", {}), arms, f"{where}, [tune]"),
    )


def _protocol(name: object, where: str) -> Protocol:
    if name == TRUE_RELEVANCE.name:
        return TRUE_RELEVANCE
    try:
        found = protocol(str(name))
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    if found.candidates == "logged":
        raise InputError(
            f"{where}: protocol {name!r} is for a model and a log, not for experiments"
        )
    return found


def _arms(cell: Cell, tuned: Container[str]) -> dict[str, Arm]:
    tables, settings, where = cell.document.get("methods"), dict[str, Any](), cell.where
    if not tables:
        raise InputError(f"{where}: name methods in tables [methods.NAME], as in [methods.mf]")
    try:
        if "criterion" in cell.document:
            criterion(cell.document["criterion"])
            settings["criterion"] = cell.document["criterion"]
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    settings |= cell.document.get("settings", {})
    keys: dict[str, type] = {"method": str, "study": str, "settings": dict}
    keys |= {name: of.type for name, of in INPUTS.items()}
    made = {}
    for label, table in tables.items():
        if not isinstance(table, dict):
            raise InputError(f"{where}: {label} must be a table, got {table!r}")
        checks.check_keys(table, keys, f"{where}, {label}")
        try:
            made[label] = _arm(label, table, settings, cell, tuned)
        except InputError as error:
            raise InputError(f"{where}, {label}: {error}") from None
    known = {name for arm in made.values() for name in checks.known(type(arm.method))}
    for name in settings:
        if name not in known and name != "criterion":
            near = checks.nearest(name, known)
            raise InputError(f"{where}: no method here has a setting {name!r}; {near}")
    return made


def _arm(label: str, table: Document, settings: Document, cell: Cell, tuned: Container[str]) -> Arm:
    name, study = table.get("method", label), table.get("study")
    known = checks.known(method(name))
    stated = {k: v for k, v in settings.items() if k in known} | table.get("settings", {})
    own = dict(stated)
    if study is not None and label in tuned:
        common = {k: v for k, v in settings.items() if k in known}
        own = common | _tuned(cell, study, name, label) | table.get("settings", {})
    made = make(name, **own)
    inputs = {key: table[key] for key in INPUTS if table.get(key, False) is not False}
    for key, value in inputs.items():
        INPUTS[key].check(value, made, cell.document["data"])
    return Arm(label, made, study, inputs, tuple(stated))


def _tuned(cell: Cell, study: str, name: str, label: str) -> Document:
    """Read the best settings of a tuning study."""
    try:
        return best_settings(cell.results / study, method=name)
    except InputError as error:
        made = f"make it with: unexposed tune {cell.command} --only {label}"
        if ".." in Path(study).parts:
            made = "tune the experiment that it belongs to"
        raise InputError(f"{error}; {made}") from error


def with_settings(experiment: Experiment, settings: Document) -> Experiment:
    """Give these settings to every method that has them."""

    def changed(arm: Arm) -> Arm:
        known = checks.known(type(arm.method))
        own = {name: value for name, value in settings.items() if name in known}
        return replace(arm, method=replace(arm.method, **own))

    return replace(experiment, arms={la: changed(arm) for la, arm in experiment.arms.items()})


def miniature(experiment: Experiment) -> Experiment:
    """Shrink an experiment to seconds: a small simulated world, two seeds, two epochs."""
    small = with_settings(experiment, MINIATURE_SETTINGS)

    def less(arm: Arm) -> Arm:
        # the world has no features, and so few pairs that a small share of them says nothing
        inputs = {k: v for k, v in arm.inputs.items() if not k.endswith("_features")}
        if "traffic" in inputs:
            inputs["traffic"] = max(inputs["traffic"], 0.3)
        return replace(arm, inputs=inputs)

    return replace(
        small,
        arms={label: less(arm) for label, arm in small.arms.items()},
        title=f"{experiment.title} (miniature)",
        seeds=MINIATURE_SEEDS,
        data=experiment_data.checked(MINIATURE_WORLD, "the miniature's data"),
    )
