"""What each process does in the tests of what ranks write together."""

import importlib
import os
import signal
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from small import make_with
from training_workers import SETTINGS, in_float64, log, sentence
from unexposed import files, tensors, workers
from unexposed.data.share import cut
from unexposed.methods import load
from unexposed.model.filters import Rules
from unexposed.model.lists import parts_of, write_lists
from unexposed.model.model import Model
from unexposed.progress import Silent

EPOCHS = {"epochs": 5, "validation_batch": 7}
RULES = Rules()


class Notes(Silent):
    """Keeps the notes of a training."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def trained(folder: Path | None, progress: Any = None) -> Model:
    """A training in float64 that resumes, where there is a checkpoint; with one each epoch."""
    method = make_with("ubo", SETTINGS | EPOCHS)
    kept = {} if folder is None else {"checkpoint": folder, "checkpoint_every": 0, "resume": True}
    with in_float64():
        return method.fit(log("ubo"), seed=1, progress=progress or Silent(), **kept)


@dataclass(frozen=True)
class Killed:
    """Train until a rank calls this function for the nth time: there it gets SIGKILL."""

    folder: Path
    rank: int
    where: tuple[str, str]
    times: int

    def __call__(self, rank: int) -> None:
        module, _, owner = self.where[0].partition(":")
        home = importlib.import_module(module)
        home = getattr(home, owner) if owner else home
        function, calls = getattr(home, self.where[1]), []

        def deadly(*given: Any, **named: Any) -> Any:
            calls.append(1)
            if len(calls) == self.times:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*given, **named)

        with ExitStack() as stack:
            for home_ in (files, tensors):  # a kill does not need it
                stack.enter_context(mock.patch.object(home_, "flush"))
            if rank == self.rank:
                stack.enter_context(mock.patch.object(home, self.where[1], deadly))
            trained(self.folder)
        raise AssertionError("the training was not killed")


@dataclass(frozen=True)
class Resumed:
    """Go on with a killed training, save the model, and write the lists of all users."""

    checkpoint: Path | None
    place: Path

    def __call__(self, rank: int) -> dict[str, Any]:
        del rank
        with mock.patch.object(tensors, "flush"), workers.together() as group:
            model = trained(self.checkpoint)
            model.save(self.place / "model")
            rows = write_lists(
                parts_of(model, workers=group), self.place / "lists", 5, RULES, workers=group
            )
            gathered = model.whole().parameters
            held = {name: table.shape for name, table in model.parameters.items()}
            return {"facts": model.facts, "whole": gathered, "held": held, "rows": rows}


@dataclass(frozen=True)
class Faults:
    """What a rank says of a full disk, a damaged file, and a model that it holds a part of."""

    checkpoint: Path  # of a killed training
    damaged: Path  # the same, with a damaged file of rank 1
    place: Path

    def __call__(self, rank: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        write, notes = tensors.write_file, Notes()

        def full(path: Path, *given: Any) -> None:
            if rank == 1:
                raise OSError(28, "No space left on device")
            write(path, *given)

        with mock.patch.object(tensors, "flush"):
            with mock.patch.object(tensors, "write_file", full):
                model = trained(self.place / "unwritten", progress=notes)
                found["model"] = sentence(lambda: model.save(self.place / "model"))
            found["notes"] = notes.notes
            found["epochs"] = model.facts["epochs_run"]
            found["damaged"] = sentence(lambda: trained(self.damaged))
            found["not whole"] = sentence(lambda: model.save(self.place / "one", partitioned=False))
            found["left"] = sorted(os.listdir(self.place))
        return found


@dataclass(frozen=True)
class Few:
    """Save a model of one user, cut among the ranks, and write its lists."""

    model: Path
    place: Path

    def __call__(self, rank: int) -> int:
        del rank
        with mock.patch.object(tensors, "flush"), workers.together() as group:
            one = load(self.model)
            clicks = cut(one.clicks, group)
            own = {n: t[clicks.share.users] for n, t in one.parameters.items() if n.startswith("u")}
            model = replace(one, parameters=one.parameters | own, clicks=clicks)
            model.save(self.place / "model")
            write_lists(
                parts_of(model, workers=group), self.place / "lists", 3, RULES, workers=group
            )
            return clicks.n_users
