"""The contract of a method: it holds settings, and `fit` returns a model."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, final

import numpy as np
from numpy.typing import NDArray

from unexposed import progress as show
from unexposed import settings as checks
from unexposed.cards import Card, HasCard
from unexposed.data.clicks import Clicks, check_clicks
from unexposed.data.pairs import Indices
from unexposed.errors import InputError, Interrupted
from unexposed.maths.relevance import Vectors
from unexposed.model.fold_in import NewUsers
from unexposed.model.model import Model
from unexposed.ranking.blocks import Block, Scores, pairs_from_rows
from unexposed.ranking.held_out import passed_over
from unexposed.ranking.verdict import Rivals
from unexposed.training.checkpoint import EVERY, Checkpoint
from unexposed.training.divided import check_alone, divided
from unexposed.training.fingerprint import fingerprint
from unexposed.training.loop import Result, Training
from unexposed.training.side import HELD_OUT_FRACTION, Parameters, Side, without_traffic
from unexposed.workers import Workers, several, together


@dataclass(frozen=True)
class Recommender(HasCard, ABC):
    """A method and its settings; `fit` returns a model and does not change the method."""

    name: ClassVar[str]
    takes: ClassVar[frozenset[str]] = frozenset()  # the parts of Side it can use
    baseline: ClassVar[bool] = False  # a lower bound in comparisons: it does not learn tastes
    # what a score is: the logit of the relevance, the relevance itself, or only an order
    scale: ClassVar[Literal["logit", "probability", "order"]] = "order"
    posterior_exposure: ClassVar[bool] = False  # exposure is P(exposed | no click)
    fixed_exposure: ClassVar[bool] = False  # exposure is assumed or given, and not learned
    divides: ClassVar[bool] = False  # whether several processes can train it together

    def __post_init__(self) -> None:
        checks.check_values(self.name, self)
        cls = type(self)
        if cls.scores is Recommender.scores and cls.vectors is Recommender.vectors:
            raise TypeError(f"{cls.__name__} must define `scores` or `vectors`")

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.__repr__ = Recommender.__repr__  # type: ignore[method-assign]  # not the dataclass's

    def __repr__(self) -> str:
        own = ", ".join(f"{name}={value!r}" for name, value in checks.changed(self).items())
        return f"{type(self).__name__}({own})"

    def card(self) -> Card:
        """The settings, each with its default and its purpose."""
        rows = [
            [name, str(getattr(self, name)), str(f.default), f.metadata.get("about", "")]
            for name, f in checks.known(type(self)).items()
        ]
        return Card(f"Method: {self.name}", {}, ["setting", "value", "default", "about"], rows)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name, as scikit-learn asks for them."""
        del deep  # no setting has settings of its own
        return checks.values(self)

    def set_params(self, **settings: Any) -> Self:
        """The method with these settings; unlike in scikit-learn, this one does not change.

        `Estimator` has a `set_params` that changes the object.
        """
        checks.check_names(self.name, type(self), list(settings))
        return replace(self, **settings)

    @final
    def fit(
        self,
        clicks: Clicks,
        held_out: Clicks | None = None,
        *,
        seed: int = 0,
        side: Side | None = None,
        progress: show.Progress | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: float = EVERY,
        resume: bool = False,
        rival: "Recommender | None" = None,
    ) -> Model:
        """Learn from clicks; held-out clicks choose the epoch (by default a tenth of the clicks).

        Ctrl-C raises `Interrupted`, whose `result` is the model of the best epoch so far.

        `checkpoint` names a file from which a killed training resumes: pass it again with
        `resume`. It is written after an epoch once `checkpoint_every` seconds have passed, and
        removed when the model is saved.

        `rival` is a simpler method, trained on the same clicks for the model's verdict alone.

        In a process group of torch.distributed all workers call this with the same arguments, or
        with their own parts of a log, and train together; each returns a model of its own users:
        see docs/scaling.md.
        """
        for given in [clicks] if held_out is None else [clicks, held_out]:
            check_clicks(given, of=self.name)
        if not isinstance(side, Side | None):
            raise InputError(f"side must be a Side, got {type(side).__name__}")
        if clicks.n_clicks == 0:
            raise InputError(f"{self.name} cannot learn from a log without clicks")
        if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**63:
            raise InputError(f"seed must be between 0 and 2^63 − 1, got {seed}")
        self.check_workers()
        side = side or Side()
        for part in sorted(side.given() - self.accepts):
            raise InputError(f"{self.name} cannot use {part}{self.cure(part)}")
        of_inputs = dict[str, Any]()
        if beside := sorted(side.given() - {"start"}):
            of_inputs["side"] = beside
        if side.traffic is not None:
            of_inputs["traffic"] = len(side.traffic)
        with together() as workers, _shown(progress, workers) as shown:
            clicks = clicks.checked()
            encodings, side = side.encodings(), side.aligned(clicks)
            if encodings:
                of_inputs["encodings"] = {role: e.to_json() for role, e in encodings.items()}
            uses = self.accepts & {"impressions", "passed_over"}
            if side.impressions is None and clicks.shown is not None and uses:
                side = replace(side, impressions=clicks.shown)
            side.check_ids(clicks)
            if workers is None:
                check_alone(clicks)
            else:
                clicks, held_out, side = divided(
                    self, clicks, held_out, side, seed=seed, workers=workers
                )
            if held_out is None:
                seen = clicks
                clicks, held_out = clicks.hold_out(
                    fraction=HELD_OUT_FRACTION, seed=seed, workers=workers
                )
            else:
                seen = clicks.union(held_out, workers)
            if workers is None:
                shows = side.passed_over or side.impressions or clicks.shown
                side = replace(side, passed_over=passed_over(shows, clicks, held_out))
            side = side.without_held_out(clicks, held_out)
            held_out = without_traffic(held_out, side.traffic)  # training may know those labels
            kept = None
            if checkpoint is not None:
                inputs: dict[str, Any] = {"seed": seed, "side": side, "workers": workers}
                of = fingerprint(self, clicks, held_out, **inputs)
                again: dict[str, Any] = {"resume": resume, "every": checkpoint_every}
                again["workers"] = workers
                kept = Checkpoint(
                    Path(checkpoint), of=of, clicks=clicks, user_tables=self.user_tables, **again
                )
            elif resume:
                raise InputError("resume needs the checkpoint to resume from: give checkpoint=FILE")

            def model(result: Result) -> Model:
                parameters, facts = result
                facts = {"seed": seed, **facts, **of_inputs}
                place = None if kept is None else kept.path
                return Model(self, parameters, seen.pairs_alone(), facts, place)

            try:
                alone = rival if workers is None else None
                rivals = _rivals(alone, clicks, held_out, seed=seed)
                training = Training(clicks, held_out, seed, side, shown, kept, rivals, workers)
                return model(self.train(training))
            except Interrupted as stopped:
                raise Interrupted(model(stopped.result)) from None

    def check_workers(self) -> None:
        """In a process group, refuse what trains in one process only."""
        if several() and not self.divides:
            raise InputError(
                f"{self.name} cannot be trained by several workers: train it in one process"
            )

    @property
    def accepts(self) -> frozenset[str]:
        """The parts of Side that the method uses with these settings."""
        return self.takes

    def cure(self, part: str) -> str:
        """What to do about a part of Side that is not accepted, to follow the refusal."""
        del part
        return ""

    @abstractmethod
    def train(self, given: Training) -> Result:
        """The learned parameters by name, and facts about the training.

        The verdict among them says how the model stands beside the rivals on held-out clicks.
        """

    def scores(self, parameters: Parameters, users: Indices, clicks: Clicks) -> Block:
        """How relevant every item is to each of these users; only the order matters.

        `users` are indices of users of `clicks`. By default a score is a product of `vectors`.
        """
        del clicks
        vectors = self.vectors(parameters)
        assert vectors is not None, "a method without vectors defines scores"
        return vectors.users[users] @ vectors.items.T

    def vectors(self, parameters: Parameters) -> Vectors | None:
        """The vectors whose product is the score; None if the score is not a product."""
        del parameters
        return None

    def tastes(self, parameters: Parameters) -> Vectors | None:
        """The vectors whose angle says how alike two users or items are: those of the score.

        A method whose vectors hold biases leaves them out.
        """
        return self.vectors(parameters)

    def user_tables(self, parameters: Parameters) -> frozenset[str]:
        """The names of the parameters that have a row for each user."""
        del parameters
        return frozenset()

    def exposure(self, parameters: Parameters, users: Indices) -> Block | None:
        """How likely each of these users was shown each item; None if not modelled."""
        del parameters, users
        return None

    def user_rows(self, parameters: Parameters, new: NewUsers) -> Parameters:
        """The parameters of new users, learned from their clicks alone (see `fold_in`)."""
        del parameters, new
        raise InputError(f"{self.name} cannot fold in users: fit it again with their clicks")

    def pair_exposure(
        self, parameters: Parameters, users: Indices, items: Indices
    ) -> NDArray[np.float32]:
        """The exposure of each pair, by default taken from whole rows."""
        return pairs_from_rows(lambda part: self.exposure(parameters, part), users, items)


def _rivals(rival: Recommender | None, clicks: Clicks, held_out: Clicks, *, seed: int) -> Rivals:
    """A method's scores by its name, learned without the held-out clicks when asked for."""
    if rival is None:
        return {}
    blind = replace(rival, **({"refit": False} if "refit" in checks.values(rival) else {}))

    def scores() -> Scores:
        try:
            model = blind.fit(clicks, held_out, seed=seed, progress=show.Silent())
        except Interrupted:  # a part of a rival is of no use
            raise KeyboardInterrupt from None
        return partial(blind.scores, model.parameters, clicks=clicks)

    return {rival.name: scores}


def _shown(progress: show.Progress | None, workers: Workers | None) -> show.Progress:
    """What was asked for; by default a bar on a terminal, of the first worker alone."""
    if progress is not None:
        return progress
    if workers is not None and workers.number > 0:
        return show.Silent()
    return show.on_terminal(otherwise=show.Silent)
