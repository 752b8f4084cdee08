"""Methods composed of parts: relevance × loss × exposure × sampling × strategy.

A method states each part as a value (`composition`); the engine, the loop, serving and export
work with any parts.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from unexposed.compiled import noticing
from unexposed.data.clicks import Clicks
from unexposed.data.pairs import Indices
from unexposed.engine.build import build
from unexposed.engine.objective import DrawsSamples, Engine, Name, Objective, Optimiser
from unexposed.engine.workers import Shared
from unexposed.maths.losses import PAIRWISE_LOSSES, divides_by_exposure
from unexposed.maths.relevance import ITEM_FEATURES, RELEVANCE, Biases, Relevance, Vectors
from unexposed.methods.exposures import AllSeen, Assumed, Exposure, ExposureFrom, ExposureLearning
from unexposed.methods.pair_data import Counts, LearningData, PairRules
from unexposed.methods.trained import TrainedMethod, continued
from unexposed.model import fold_in
from unexposed.model.fold_in import NewUsers
from unexposed.progress import Progress
from unexposed.ranking import blocks
from unexposed.ranking.blocks import Block
from unexposed.sampling.samples import Drawing, Samples, Source, Weighting
from unexposed.settings import setting
from unexposed.training.checkpoint import Memory
from unexposed.training.loop import Trainee
from unexposed.training.side import Parameters, Side
from unexposed.workers import Workers

STEP = 2  # raised when a step computes something else: older results no longer count


@dataclass(frozen=True)
class Composition:
    """The parts of a trained method."""

    relevance: Relevance
    loss: str  # of `maths/losses.py`
    drawing: Drawing  # the samples of an epoch
    exposure: Exposure = AllSeen()  # noqa: RUF009  (it has no fields)
    learning: ExposureLearning | None = None  # how the exposure learns; None: it does not

    def relevance_of(self, clicks: Clicks, side: Side, workers: Workers | None) -> Relevance:
        """The relevance, built for these clicks and the features of their items."""
        log_odds = self.drawing.log_odds(clicks, workers)
        return self.relevance.of(clicks, log_odds=log_odds, item_features=side.item_rows)

    def objective(self) -> Objective:
        if self.learning is None or not self.exposure.in_steps:
            return Objective(self.loss)
        return Objective(
            self.loss,
            self.learning.strategy,
            offset=self.exposure.offset,
            validation_batch=self.learning.batch,
        )

    def optimiser(self, learning_rate: float, weight_decay: float) -> Optimiser:
        if self.learning is None:
            return Optimiser(learning_rate, weight_decay)
        return Optimiser(
            learning_rate,
            weight_decay,
            exposure_learning_rate=self.learning.learning_rate,
            exposure_weight_decay=self.learning.weight_decay,
            gate_pace=self.learning.gate_pace,
            lookahead=self.learning.lookahead,
        )


@dataclass(frozen=True)
class ComposedMethod(TrainedMethod):
    """A composition, trained by Adam on batches of clicks with their drawn items."""

    takes: ClassVar[frozenset[str]] = frozenset(
        {"start", "impressions", "traffic", "item_features"}
    )
    step: ClassVar[int] = STEP
    divides: ClassVar[bool] = True

    dim: int = setting(64, "length of a user's or item's vector", low=1, search=[32, 64, 128])
    batch_size: int = setting(
        256,
        "clicks in a batch, each with its drawn items",
        low=1,
        search=[128, 256, 512, 1024],
    )
    learning_rate: float = setting(1e-3, "of Adam, for the relevance", above=0, search=(3e-4, 5e-3))
    weight_decay: float = setting(
        5e-3,
        "half of it times |ωᵤ|² + |ωᵢ|² is added to the loss of every pair",
        low=0,
        search=(5e-4, 5e-2),
    )
    negatives: int = setting(
        10, "items drawn for each click in each epoch", low=1, search=[5, 10, 20]
    )
    negatives_from: Source = setting(
        "unclicked",
        "what negatives are drawn from: items the user has not clicked, all items, or items shown "
        "to the user and not clicked (of a user without such items, unclicked ones)",
        search=["unclicked", "catalogue"],
    )
    negatives_exponent: float = setting(
        0.0,
        "negatives are drawn in proportion to clicks^exponent, an item without clicks as if it had "
        "one; 0: all alike",
        low=0,
        high=1,
        search=[0.0, 0.5],
    )
    initial_scale: float = setting(0.01, "standard deviation of the first vectors", above=0)
    relevance: str = setting("dot", "how vectors make a logit", names=RELEVANCE)
    biases: bool = setting(
        False,
        "add a bias of the user and one of the item to the logit, without weight decay",
        search=[False, True],
    )
    traffic_use: Literal["training", "none"] = setting(
        "training", "of random traffic: extra training pairs with m = 1, or none but epoch_by"
    )
    traffic_weight: float = setting(
        1.0, "of a pair of the random traffic; a click counts 1", above=0
    )
    counts: Counts = setting(
        "ignored", "weigh a click by how often the pair was clicked, n, or by log₂(1 + n)"
    )
    count_weight: float = setting(
        1.0, "α of the weight (1 + α·n)/(1 + α) of a click, where counts are used", above=0
    )
    engine: Name = setting("auto", "what runs the steps; they agree, and differ in speed")

    @abstractmethod
    def composition(self) -> Composition:
        """The parts of this method, from its settings."""

    def relevance_model(self, *, pairwise: bool = False) -> Relevance:
        """The relevance of this name; with `biases`, + b_u + b_i, or + b_i for a pairwise loss."""
        biases: Biases = "none" if not self.biases else "item" if pairwise else "both"
        return RELEVANCE[self.relevance](self.dim, self.initial_scale, biases)

    def drawing(self) -> Drawing:
        return Drawing(self.negatives, source=self.negatives_from, exponent=self.negatives_exponent)

    @property
    def width(self) -> int:
        return self.composition().relevance.width

    def optimiser(self) -> Optimiser:
        return self.composition().optimiser(self.learning_rate, self.weight_decay)

    def traffic_uses(self) -> list[str]:
        own = [] if self.traffic_use == "none" else [self.traffic_use]
        return own + super().traffic_uses()

    def learning_data(self, clicks: Clicks, side: Side) -> LearningData:
        """The inputs of a training, each used as the settings say."""
        parts = self.composition()
        return PairRules(
            parts.exposure.assumed,
            divides=divides_by_exposure(parts.loss),
            negatives=self.negatives if parts.loss in PAIRWISE_LOSSES else 0,
            draws_shown=parts.drawing.source == "shown",
            traffic_weight=self.traffic_weight,
            counts=self.counts,
            count_weight=self.count_weight,
        ).applied(clicks, side)

    def build(
        self,
        clicks: Clicks,
        side: Side,
        rng: np.random.Generator,
        *,
        marked: bool = False,
        workers: Workers | None = None,
    ) -> Engine:
        """The engine that will train this method, before its first step."""
        parts = self.composition()
        relevance, objective = parts.relevance_of(clicks, side, workers), parts.objective()
        earlier = None if side.start is None else relevance.continued(side.start)
        n_users, own = clicks.n_users, None
        if clicks.share is not None:
            n_users, own = clicks.share.n_users, clicks.share.users
        start = relevance.initial(n_users, clicks.n_items, rng, own)
        start |= parts.exposure.initial(n_users, relevance.width, side, rng, own)
        guide = None
        if parts.learning is not None and objective.strategy is not None:
            guide = parts.learning.pairs(clicks, side.validation, rng, workers)
        return build(
            objective,
            self.optimiser(),
            continued(start, earlier),
            relevance=relevance,
            exposure=parts.exposure.table(clicks, side),
            features=side.user_rows,
            validation=guide,
            marked=marked,
            shared=None if workers is None else Shared(workers),
            name=self.engine,
        )

    def trainee(
        self,
        clicks: Clicks,
        *,
        seed: int,
        side: Side,
        progress: Progress,
        workers: Workers | None = None,
    ) -> Trainee:
        parts, rng = self.composition(), np.random.default_rng(seed)
        data = self.learning_data(clicks, side)
        side = data.side
        marked = data.marking is not None
        engine = self.build(clicks, side, rng, marked=marked, workers=workers)
        kind = type(engine).__name__
        name = kind.removesuffix("Engine").lower()
        if name == "cuda":
            progress.note("preparing the cuda engine")  # Triton does not say whether it compiles
        elif name == "reference" and workers is not None:
            progress.note(f"{workers.size} workers train on the reference engine, the slowest")
        elif name == "reference" and self.engine == "auto":
            features = side.given() & {"user_features", "item_features"}
            what = "features run" if features else f"{self.name} with these settings runs"
            progress.note(f"{what} on the reference engine, the slowest")
        with noticing(lambda: progress.note(f"compiling the {name} engine, once on each machine")):
            engine.compile()
        relevance = parts.relevance_of(clicks, side, workers)
        steps, epoch = self._steps_and_epoch(engine, data, relevance, seed, rng)
        trainee = Trainee(
            steps,
            epoch,
            lambda: parts.exposure.kept(relevance.kept(engine.parameters()), clicks, side),
            memory=Memory(kind, engine.state, engine.restore, rng, engine.user_arrays),
            facts={"engine": name} | data.facts | ({"workers": workers.size} if workers else {}),
        )
        if parts.learning is None:
            return trainee
        clock = parts.exposure.clock(
            clicks,
            side,
            parts.learning,
            rng,
            learned_from=data.clicks,
            given=data.given_pairs(),
            drawing=parts.drawing,
            relevance=relevance,
            workers=workers,
        )
        return trainee if clock is None else clock.beside(trainee, engine)

    def pairs_of_epoch(self, clicks: Clicks) -> int:
        return len(self.drawing().samples(clicks, np.random.default_rng(0)).items)

    def _steps_and_epoch(
        self,
        engine: Engine,
        data: LearningData,
        relevance: Relevance,
        seed: int,
        rng: np.random.Generator,
    ) -> tuple[Callable[[], Iterator[float]], Callable[[], float]]:
        """One epoch of training, on samples drawn by the engine if it can, else here."""
        drawing, size = self.drawing(), self.batch_size

        def steps(samples: Samples) -> Iterator[float]:
            return (engine.epoch(batch, batch_size=size) for batch in samples.batches(size))

        sampler = drawing.sampler(data.clicks, data.pool)
        plain = data.marking is None and data.clicks.share is None
        if isinstance(engine, DrawsSamples) and plain and sampler.rejects_few():
            there = engine.sampler(data.clicks, drawing, seed=seed)
            return (
                lambda: steps(there.draw()),
                lambda: engine.train_epoch(there, batch_size=size),
            )

        def drawn() -> Samples:
            samples = sampler.draw(rng)
            if relevance.counted is not None:
                usual = 1 if samples.item_weight is None else samples.item_weight
                by_item = (relevance.counted * usual).astype(np.float32)
                samples = replace(samples, item_weight=by_item)
            return samples if data.marking is None else data.marking.mark(samples, rng)

        return lambda: steps(drawn()), lambda: engine.epoch(drawn(), batch_size=size)

    def scores(self, parameters: Parameters, users: Indices, clicks: Clicks) -> Block:
        del clicks
        return self.composition().relevance.scores(parameters, users)

    def vectors(self, parameters: Parameters) -> Vectors | None:
        return self.composition().relevance.vectors(parameters)

    def tastes(self, parameters: Parameters) -> Vectors | None:
        return self.composition().relevance.tastes(parameters)

    def user_tables(self, parameters: Parameters) -> frozenset[str]:
        parts = self.composition()
        own = {name for name, t in parts.relevance.tables.items() if t.rows == "users"}
        return frozenset(own | parts.exposure.user_tables(parameters))

    def exposure(self, parameters: Parameters, users: Indices) -> Block | None:
        return self.composition().exposure.block(parameters, users)

    def pair_exposure(
        self, parameters: Parameters, users: Indices, items: Indices
    ) -> NDArray[np.float32]:
        return self.composition().exposure.pairs(parameters, users, items)

    def user_rows(self, parameters: Parameters, new: NewUsers) -> Parameters:
        parts, n_users = self.composition(), new.clicks.n_users
        counted = new.trained_on.item_counts > 0 if ITEM_FEATURES in parameters else None
        rows = parts.exposure.rows_of_new_users(parameters, n_users, new.features)

        def solve(of: Clicks, exposure: NDArray[Any] | None) -> Parameters:
            return fold_in.solve(
                parameters,
                of,
                parts.loss,
                self.optimiser(),
                exposure=exposure,
                drawing=parts.drawing,
                law=parts.drawing.law(new.trained_on),
                counted=counted,
                n_clicks=new.trained_on.n_clicks,
                batch_size=self.batch_size,
                epochs=new.epochs,
                relevance=parts.relevance,
            )

        if new.features is None:
            return solve(new.clicks, parts.exposure.of_new_user(parameters)) | rows
        both, users = parameters | rows, np.arange(n_users, dtype=np.int32)
        solved = [
            solve(fold_in.of_part(new.clicks, part), parts.exposure.block(both, users[part]))
            for part in blocks.parts(n_users, new.clicks.n_items)
        ]
        return {n: np.concatenate([one[n] for one in solved]) for n in solved[0]} | rows


@dataclass(frozen=True)
class PointwiseMethod(ComposedMethod):
    """A composed method that learns from single pairs; its score is a logit."""

    scale: ClassVar[Literal["logit", "probability", "order"]] = "logit"
    pairs: Literal["sampled", "all"] = setting("sampled", "drawn negatives, or the whole matrix")
    weighting: Weighting = setting(
        "none",
        "or weigh the drawn negatives, always unclicked ones, to stand for all unclicked pairs",
        search=["none", "unbiased"],
    )

    def drawing(self) -> Drawing:
        unbiased = self.weighting == "unbiased"
        return replace(
            super().drawing(),
            weighting=self.weighting,
            every_pair=self.pairs == "all",
            source="unclicked" if unbiased else self.negatives_from,
        )


@dataclass(frozen=True)
class PopularitySettings:
    """Settings of methods whose exposure is, or starts from, the popularity θ of an item."""

    popularity_exponent: float = setting(
        0.5, "of θ = (clicks / most clicks)^exponent", low=0, search=(0.05, 1)
    )
    popularity_floor: float = setting(
        0.01, "least θ, which items without clicks get", above=0, high=1
    )
    exposure_from: ExposureFrom = setting(
        "auto",
        "exposure of single pairs: modelled; 1 − (1 − a)^n where shown n times and not clicked; "
        "the logged propensity; auto: shown where the log has impressions",
    )
    attention: float = setting(
        0.0,
        "a, the chance that a shown item is seen; 0: learned from repeated showings",
        low=0,
        high=1,
    )

    def assumed(self) -> Assumed:
        return Assumed(
            self.popularity_exponent, self.popularity_floor, self.exposure_from, self.attention
        )
