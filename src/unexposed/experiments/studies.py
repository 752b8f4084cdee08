"""The tuning studies that the arms of an experiment name: what each searches, and making them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unexposed import settings as checks
from unexposed.data.datasets import Folder
from unexposed.errors import InputError, did_you_mean
from unexposed.experiments.data import open_data
from unexposed.experiments.task import Arm, Experiment, inputs_of
from unexposed.model.recommender import Recommender
from unexposed.ranking.held_out import criterion
from unexposed.tuning import search, study

TRIALS = 40
_KEYS = {"trials": int, "splits": int, "search": dict, "arms": dict}
_ARM_KEYS = {"trials": int, "splits": int, "search": dict, "settings": dict}
_ARM_KEYS |= {"start": str, "keeps": str}  # the arm whose study it builds on


def checked(table: dict[str, Any], arms: Mapping[str, Arm], where: str) -> dict[str, Any]:
    """Check the [tune] table of an experiment."""
    checks.check_keys(table, _KEYS, where)
    # a setting that no method searches would change nothing; an arm of its own may add one
    searched = {label: search.space(arm.method) for label, arm in arms.items()}
    _check_search(table, arms, searched, where)
    for label, own in table.get("arms", {}).items():
        if not isinstance(own, dict):
            raise InputError(f"{where}: arms.{label} must be a table, got {own!r}")
        checks.check_keys(own, _ARM_KEYS, f"{where}, arms.{label}")
        for name in (label, own.get("start", label), own.get("keeps", label)):
            if name not in arms:
                raise InputError(f"{where}: no arm {name!r}; {did_you_mean(name, arms)}")
            if arms[name].study is None:
                raise InputError(f"{where}: the arm {name!r} names no study")
        known = {label: checks.known(type(arms[label].method))}
        _check_search(own, arms, known, f"{where}, arms.{label}")
    return table


def _check_search(
    table: dict[str, Any],
    arms: Mapping[str, Arm],
    settings: Mapping[str, Mapping[str, Any]],
    where: str,
) -> None:
    """Check the choices of a search, given the settings of each arm that may have some."""
    for name, choices in table.get("search", {}).items():
        having = [arms[label].method for label, own in settings.items() if name in own]
        if not having:
            near = did_you_mean(name, {name for own in settings.values() for name in own})
            raise InputError(f"{where}: search: no arm searches {name!r}; {near}")
        if not isinstance(choices, list) or not choices:
            raise InputError(f"{where}: search.{name} must be a list of choices, got {choices!r}")
        try:
            for choice in choices:
                replace(having[0], **{name: choice})
        except InputError as error:
            raise InputError(f"{where}: search: {error}") from error


@dataclass(frozen=True)
class Plan:
    """One study to make: the method as it starts, and what is held."""

    path: Path
    experiment: Experiment
    arm: Arm
    method: Recommender
    held: tuple[str, ...]  # settings that are not searched
    start: Path | None  # a study whose best settings are tried early
    keeps: Path | None  # a study whose best settings are held, so that only the others are searched
    trials: int
    splits: int
    search: dict[str, list[Any]]  # choices in place of the method's own space of a setting

    def kept(self) -> dict[str, Any]:
        """The best settings of the study that it keeps, as far as its method has and frees them."""
        found = {} if self.keeps is None else study.best_settings(self.keeps)
        own = checks.known(type(self.method))
        return {k: value for k, value in found.items() if k in own and k not in self.held}


def plans(
    experiment: Experiment,
    folder: Path,
    *,
    only: list[str] | None = None,
    trials: int | None = None,
    splits: int | None = None,
) -> list[Plan]:
    """The studies of an experiment read without them; the first of the arms that share one counts.

    The settings that the file states for an arm, and those that [tune] gives it, are held.
    """
    made: dict[Path, Plan] = {}
    for arm in experiment.arms.values():
        # a study elsewhere is made by the experiment that it belongs to
        if arm.study is not None and ".." not in Path(arm.study).parts:
            made.setdefault(folder / arm.study, _plan(experiment, arm, folder))
    chosen = [plan for plan in made.values() if only is None or plan.arm.label in only]
    for label in only or []:
        if label not in (plan.arm.label for plan in chosen):
            near = did_you_mean(label, [plan.arm.label for plan in made.values()])
            raise InputError(f"{experiment.name} makes no study of {label!r}; {near}")
    return [replace(p, trials=trials or p.trials, splits=splits or p.splits) for p in chosen]


def _plan(experiment: Experiment, arm: Arm, folder: Path) -> Plan:
    table = experiment.tune
    own = table.get("arms", {}).get(arm.label, {})
    given = own.get("settings", {})
    checks.check_names(arm.method.name, type(arm.method), list(given))
    known = checks.known(type(arm.method))
    # the second training would not be judged, and arms that differ in it share a study
    fixed = {"refit": False} if "refit" in known else {}
    unused = [n for n in known if "exposure" in arm.inputs and n.startswith("popularity_")]
    searched = search.space(arm.method)
    start, keeps = (
        folder / str(experiment.arms[own[key]].study) if key in own else None
        for key in ("start", "keeps")
    )
    return Plan(
        folder / str(arm.study),
        experiment,
        arm,
        replace(arm.method, **{**given, **fixed}),
        held=tuple(dict.fromkeys([*arm.stated, *given, *unused])),
        start=start,
        keeps=keeps,
        trials=own.get("trials", table.get("trials", TRIALS)),
        splits=own.get("splits", table.get("splits", 1)),
        search={k: v for k, v in table.get("search", {}).items() if k in searched}
        | own.get("search", {}),
    )


def in_turn(made: Iterable[Plan]) -> list[Plan]:
    """Each study once, where several cells share it, after the studies that it builds on."""
    waiting: dict[Path, Plan] = {}
    for plan in made:
        waiting.setdefault(plan.path.resolve(), plan)
    found: list[Plan] = []

    def take(plan: Plan) -> None:
        for needed in (plan.start, plan.keeps):
            if needed is not None and (other := waiting.pop(needed.resolve(), None)):
                take(other)
        found.append(plan)

    while waiting:
        take(waiting.pop(next(iter(waiting))))
    return found


def make(
    plan: Plan,
    *,
    workers: int = 1,
    seed: int = 0,
    say: Callable[[str], None] = lambda _: None,
    data_dir: Folder | None = None,
) -> dict[str, Any]:
    """Make one study on the training clicks of its experiment, which judgements do not reach."""
    asked, kept = plan.experiment, plan.kept()
    data = open_data(asked.data, asked.protocol, data_dir)
    return search.tune(
        data.clicks,
        replace(plan.method, **kept),
        trials=plan.trials,
        folder=plan.path.parent,
        name=plan.path.stem,
        fixed=(*plan.held, *kept),
        reported=tuple(kept),
        splits=plan.splits,
        held_out=asked.protocol.held_out,
        workers=workers,
        seed=seed,
        start=None if plan.start is None else study.best_settings(plan.start),
        choices=plan.search,
        side=inputs_of(plan.arm, data, 0, by_shown=criterion(asked.criterion).among == "shown"),
        by=asked.criterion,
        say=say,
    )
