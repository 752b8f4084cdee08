"""Read experiment files: one TOML for each question, with a cell for each table or figure."""

import json
import tomllib
from collections.abc import Container
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from unexposed import settings as checks
from unexposed.errors import InputError, did_you_mean
from unexposed.evaluation.protocols import PAPER, TRUE_RELEVANCE, Protocol, protocol
from unexposed.experiments import data as experiment_data
from unexposed.experiments import guides, matrix, oracles
from unexposed.experiments import studies as studies_of
from unexposed.experiments.kinds import KINDS
from unexposed.experiments.task import Arm, Experiment
from unexposed.methods import METHODS, make, method
from unexposed.model.recommender import Recommender
from unexposed.ranking.held_out import DEFAULT, criterion
from unexposed.tuning.study import best_settings

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
    "options": dict,
    "settings": dict,
    "methods": dict,
    "arms": dict,
    "miniature": dict,
    "tune": dict,
}
_METHOD_KEYS = {
    "method": str,
    "study": str,
    "exposure": str,
    "guide": str,
    **dict.fromkeys(experiment_data.FEATURES, bool),
    "traffic": float,
    "impressions": bool,
    "settings": dict,
}


@dataclass(frozen=True)
class Cell:
    """One experiment of a file: its document, with the values of the matrix put in."""

    path: Path
    name: str
    document: dict[str, Any]
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
        studies = Studies(self.results, self.command, tuned)
        return parse(self.document, name=self.name, where=self.where, studies=studies)

    def ready(self) -> list[str]:
        """Arms that name no study, or one that is there."""
        named = {
            label: table.get("study") if isinstance(table, dict) else None
            for key in ("methods", "arms")
            for label, table in self.document.get(key, {}).items()
        }
        return [
            label
            for label, study in named.items()
            if not isinstance(study, str) or (self.results / study).exists()
        ]


class Studies(NamedTuple):
    """Where the tuning studies of an experiment lie, and how they are made."""

    folder: Path
    command: str  # what follows `unexposed tune`
    arms: Container[str]  # whose settings come from studies


def cells(path: Path, *, part: str | None = None) -> list[Cell]:
    """The experiments of a TOML file, one for each cell of its matrix, or those named so."""
    found = matrix.cells(document(path), name=path.stem, where=str(path))
    made = [Cell(path, name, document, len(found) == 1) for name, document in found.items()]
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


def document(path: Path) -> dict[str, Any]:
    """Read a TOML file."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        json.dumps(found, allow_nan=False)  # every result line will contain it
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from error
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: dates and nan are not allowed ({error})") from error
    return found


def parse(document: dict[str, Any], *, name: str, where: str, studies: Studies) -> Experiment:
    """Check a document and make its experiment; `where` begins every error message."""
    checks.check_keys(document, _KEYS, where)
    for key in ("kind", "data"):
        if key not in document:
            raise InputError(f"{where} is not an experiment: it has no {key!r}")
    document = _with_criterion(document, where)
    kind = document["kind"]
    if kind not in KINDS:
        raise InputError(f"{where}: no kind {kind!r}; {did_you_mean(kind, KINDS)}")
    if document.get("seeds", 1) < 1:
        raise InputError(f"{where}: seeds must be at least 1, got {document['seeds']}")
    for table in ("options", "miniature"):
        checks.check_keys(document.get(table, {}), KINDS[kind].options, f"{where}, [{table}]")
    data = experiment_data.checked(document["data"], f"{where}, [data]")
    first, *also = (_protocol(name, where) for name in _protocol_names(document))
    if TRUE_RELEVANCE is first or (TRUE_RELEVANCE in also and "dataset" in data):
        raise InputError(
            f"{where}: {TRUE_RELEVANCE.name!r} needs a world in [data], and stands in also"
        )
    for by in also:
        if (by.threshold, by.held_out) != (first.threshold, first.held_out):
            raise InputError(f"{where}: {by.name!r} in also splits the data in another way")
    arms = _arms(document, where, studies)
    return Experiment(
        name=name,
        kind=kind,
        title=document.get("title", name),
        protocol=first,
        also=tuple(also),
        seeds=document.get("seeds", 5),
        data=data,
        options=document.get("options", {}),
        arms=arms,
        miniature=document.get("miniature", {}),
        criterion=document.get("criterion", DEFAULT),
        tune=studies_of.checked(document.get("tune", {}), arms, f"{where}, [tune]"),
    )


def _with_criterion(document: dict[str, Any], where: str) -> dict[str, Any]:
    """The document with its criterion among the settings, unless they name another."""
    if "criterion" not in document:
        return document
    try:
        criterion(document["criterion"])
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    chosen = {"criterion": document["criterion"]}
    return {**document, "settings": chosen | document.get("settings", {})}


def _protocol_names(document: dict[str, Any]) -> list[Any]:
    return [document.get("protocol", PAPER), *document.get("also", [])]


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


def _arms(document: dict[str, Any], where: str, studies: Studies) -> dict[str, Arm]:
    methods, arms = document.get("methods", {}), document.get("arms", {})
    kind = KINDS[document["kind"]]
    given, other = (methods, arms) if kind.has_methods else (arms, methods)
    if not given or other:
        wanted = "[methods.NAME], as in [methods.mf]" if kind.has_methods else "[arms.NAME]"
        raise InputError(f"{where}: kind {document['kind']!r} needs tables {wanted}, and no others")
    for label, table in given.items():
        if not isinstance(table, dict):
            raise InputError(f"{where}: {label} must be a table, got {table!r}")
    if not kind.has_methods:
        if "settings" in document:
            raise InputError(f"{where}: [settings] belong to methods; give [arms] their options")
        for label, table in arms.items():
            checks.check_keys(table, kind.options, f"{where}, [arms.{label}]")
        return {label: Arm(label, options=table) for label, table in arms.items()}
    made = {
        label: _method_arm(label, table, document, f"{where}, {label}", studies)
        for label, table in methods.items()
    }
    known = {name for arm in made.values() for name in checks.known(type(arm.method))}
    for name in document.get("settings", {}):
        if name not in known and name != "criterion":
            near = checks.nearest(name, known)
            raise InputError(f"{where}: no method here has a setting {name!r}; {near}")
    return made


def _method_arm(
    label: str, table: dict[str, Any], document: dict[str, Any], where: str, studies: Studies
) -> Arm:
    checks.check_keys(table, _METHOD_KEYS, where)
    name, exposure, guide = table.get("method", label), table.get("exposure"), table.get("guide")
    try:
        known = checks.known(method(name))
        common = {k: v for k, v in document.get("settings", {}).items() if k in known}
        settings = dict(common)
        if "study" in table and label in studies.arms:
            settings |= _tuned(studies, table["study"], name, label)
        settings |= table.get("settings", {})
        if exposure is not None:
            _check_oracle(exposure, name, document)
        if guide is not None:
            _check_guide(guide, name)
        features = tuple(part for part in experiment_data.FEATURES if table.get(part))
        for part in features:
            if part not in method(name).takes:
                able = ", ".join(n for n, other in METHODS.items() if part in other.takes)
                raise InputError(f"{name} cannot use {part}; these can: {able}")
        made, traffic = make(name, **settings), table.get("traffic")
        if traffic is not None:
            _check_traffic(traffic, made, document["data"])
        shown, stated = table.get("impressions", False), tuple(common | table.get("settings", {}))
        if shown and ("dataset" in document["data"] or "impressions" not in made.accepts):
            raise InputError(f"impressions = true needs a world in [data], and {name} to use them")
        given = exposure, guide, traffic, shown, features
        return Arm(label, made, table.get("study"), *given, stated)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _check_traffic(share: float, made: Recommender, data: dict[str, Any]) -> None:
    if not 0 < share <= 1:
        raise InputError(f"traffic must lie in (0, 1], got {share}")
    if "traffic" not in made.accepts:
        raise InputError(f"{made.name} cannot use traffic{made.cure('traffic')}")
    if "dataset" in data and "traffic" not in data:
        raise InputError(
            "traffic needs a world in [data], or a data set with traffic = SHARE of its judged part"
        )


def _check_guide(guide: str, name: str) -> None:
    guides.parse(guide)
    if "validation" not in method(name).takes:
        able = ", ".join(n for n, other in METHODS.items() if "validation" in other.takes)
        raise InputError(f"{name} cannot be given a guide; these can: {able}")


def _check_oracle(exposure: str, name: str, document: dict[str, Any]) -> None:
    if not KINDS[document["kind"]].oracles:
        raise InputError(f"kind {document['kind']!r} gives no exposure: only compare does")
    knows_truth = "dataset" not in document["data"]
    oracles.check(exposure, method=method(name), knows_truth=knows_truth)


def _tuned(studies: Studies, study: str, name: str, label: str) -> dict[str, Any]:
    """Read the best settings of a tuning study."""
    try:
        return best_settings(studies.folder / study, method=name)
    except InputError as error:
        made = f"make it with: unexposed tune {studies.command} --only {label}"
        if ".." in Path(study).parts:
            made = "tune the experiment that it belongs to"
        raise InputError(f"{error}; {made}") from error


def with_settings(experiment: Experiment, settings: dict[str, Any]) -> Experiment:
    """Give these settings to every method that has them."""

    def changed(arm: Arm) -> Arm:
        if arm.method is None:
            return arm
        known = checks.known(type(arm.method))
        own = {name: value for name, value in settings.items() if name in known}
        return replace(arm, method=replace(arm.method, **own))

    return replace(experiment, arms={la: changed(arm) for la, arm in experiment.arms.items()})


def miniature(experiment: Experiment) -> Experiment:
    """Shrink an experiment to seconds: a small simulated world, two seeds, two epochs."""
    small = with_settings(experiment, MINIATURE_SETTINGS)
    arms = {
        # the world has no features, and so few pairs that a small share of them says nothing
        label: replace(arm, features=(), traffic=arm.traffic and max(arm.traffic, 0.3))
        for label, arm in small.arms.items()
    }
    return replace(
        small,
        arms=arms,
        title=f"{experiment.title} (miniature)",
        seeds=MINIATURE_SEEDS,
        data=experiment_data.checked(MINIATURE_WORLD, "the miniature's data"),
        options={**experiment.options, **experiment.miniature},
    )
