"""`ux.tune`: the settings of a method, chosen on held-out clicks."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from unexposed import progress as show
from unexposed import settings as checks
from unexposed.api.inputs import as_clicks, as_columns, as_dataset, as_traffic, disliked
from unexposed.api.methods import as_methods
from unexposed.cards import Card, Curve, HasCard, text
from unexposed.data.datasets import Dataset
from unexposed.data.log import Say
from unexposed.data.write import Library, as_frame
from unexposed.errors import InputError, as_path
from unexposed.model.recommender import Recommender
from unexposed.ranking.held_out import DEFAULT
from unexposed.training.side import Side
from unexposed.tuning import search
from unexposed.tuning.study import dissent
from unexposed.tuning.trial import TRAFFIC


@dataclass(frozen=True, eq=False)
class Study(HasCard):
    """The trials of a search for settings, and the best of them."""

    start: Recommender  # the method that the search began with
    document: dict[str, Any]  # as `unexposed tune` writes it

    @property
    def best(self) -> Recommender:
        """The method with the settings found, ready to `fit`."""
        return replace(self.start, **self.document["best"]["settings"])

    @property
    def quality(self) -> float:
        """The held-out quality of the best trial."""
        return float(self.document["best"]["value"])

    @property
    def improved(self) -> bool:
        """Whether some trial did better than the settings that the search began with."""
        return self.best != self.start

    def dissent(self) -> dict[str, str]:
        """The trial that each other criterion prefers to the best one, in words."""
        return dissent(self.document)

    def frame(self, library: Library = "polars") -> Any:
        """A row for each trial: number, state, held-out quality, seconds, and its settings."""
        rows = [
            {
                "trial": trial["number"],
                "state": trial["state"],
                "quality": trial["value"],
                "seconds": trial["seconds"],
                **trial["settings"],
            }
            for trial in self.document["trials"]
        ]
        return as_frame(pl.DataFrame(rows, infer_schema_length=None), library)

    def __repr__(self) -> str:
        return f"Study({self._line()}: {self._found()})"

    def card(self) -> Card:
        """What was found, and the best quality after each trial."""
        reached: list[float] = []
        for trial in self.document["trials"]:
            # a trial given up on the way has a value, too, which counts for nothing
            if trial["state"] == "complete":
                reached.append(max([*reached[-1:], trial["value"]]))
        facts = {"held-out quality": self.quality, "found": self._found()}
        facts |= {f"`{name}` prefers": choice for name, choice in self.dissent().items()}
        curve = Curve("best held-out quality after each complete trial", reached)
        return Card(f"Study: {self._line()}", facts, curves=[curve])

    def _line(self) -> str:
        return f"{self.start.name}, {len(self.document['trials'])} trials, {self.quality:.4f}"

    def _found(self) -> str:
        if not self.improved:
            return "no trial was better than the settings it began with"
        found = self.document["best"]["settings"]
        return ", ".join(f"{name}={text(value)}" for name, value in found.items())


def tune(
    train: Any,
    method: str | Recommender,
    *,
    trials: int = 40,
    splits: int = 1,
    split: str | None = None,
    fixed: Iterable[str] = (),
    criterion: str | None = None,
    side: Side | None = None,
    traffic: Any = None,
    workers: int = 1,
    seed: int = 0,
    out: str | Path | None = None,
    name: str | None = None,
    data_dir: str | Path | None = None,
    progress: show.Progress | None = None,
    say: Say | None = None,
    **columns: Any,
) -> Study:
    """Choose the settings of a method by its quality on held-out clicks.

    Settings that differ from their defaults, or are named in `fixed`, stay as they are. `split`
    names what is held out (see `ux.split`), by default a random tenth. With the criterion "traffic"
    the pairs of `traffic`, which were shown at random, judge in place of held-out clicks.
    With a folder `out` the study is kept there under `name`, and a stopped one resumes.
    `columns` are the keywords of `read_log`.
    """
    by_traffic = criterion == TRAFFIC
    made = as_methods(method, criterion=None if by_traffic else criterion)
    ((label, start), *more) = made.items()
    if more:
        raise InputError("tune takes one method: call it for each")
    fixed = [fixed] if isinstance(fixed, str) else list(fixed)
    checks.check_names(start.name, type(start), fixed)
    fixed += [setting.split("=")[0] for setting in label.split(":")[1:]]
    words, side, train = as_columns(columns), side or Side(), as_dataset(train)
    clicks = as_clicks(train, words, data_dir=data_dir, say=say)
    if traffic is not None:
        side = replace(side, traffic=as_traffic(traffic, clicks, words, say=say))
    if criterion == "shown" and isinstance(train, Dataset):
        side = replace(side, passed_over=disliked(train, data_dir))

    def search_in(folder: Path, tell: Say) -> Study:
        document = search.tune(
            clicks,
            start,
            trials=trials,
            folder=folder,
            name=name or start.name,
            fixed=tuple(fixed),
            splits=splits,
            split=split,
            workers=workers,
            seed=seed,
            by=criterion or DEFAULT,
            side=side,
            say=tell,
        )
        return Study(start, document)

    with progress or show.on_terminal(otherwise=show.Silent) as bar:
        tell = say or bar.note
        if out is not None:
            return search_in(as_path(out, "the folder of the study"), tell)
        with TemporaryDirectory() as folder:
            return search_in(Path(folder), tell)
