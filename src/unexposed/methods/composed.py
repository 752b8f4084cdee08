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

from unexposed import ranks
from unexposed.compiled import noticing
from unexposed.data.clicks import Clicks, Indices
from unexposed.engine.build import build
from unexposed.engine.exchange import Shared
from unexposed.engine.objective import DrawsSamples, Engine, Name, Optimiser
from unexposed.errors import InputError, did_you_mean
from unexposed.maths.item_level import log_share
from unexposed.maths.losses import PAIRWISE_LOSSES
from unexposed.maths.relevance import ITEM_FEATURES, RELEVANCE, Biases, Relevance, Vectors
from unexposed.methods.composition import Composition
from unexposed.methods.exposures import OnClock
from unexposed.methods.known import Counts, Known, Told
from unexposed.methods.shared_settings import PopularitySettings
from unexposed.methods.trained import TrainedMethod, continued
from unexposed.model import fold_in
from unexposed.model.graph import Graph
from unexposed.progress import Progress
from unexposed.ranking import blocks
from unexposed.ranking.blocks import Block
from unexposed.sampling.samples import Samples, Source
from unexposed.settings import setting
from unexposed.training import loop as training
from unexposed.training.checkpoint import Memory
from unexposed.training.clock import ExposureClock
from unexposed.training.side import Parameters, Side

TrafficUse = Literal["training", "none"]
STEP = 2  # raised when a step computes something else: older results no longer count


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
    relevance: str = setting("dot", f"how vectors make a logit: {', '.join(RELEVANCE)}")
    biases: bool = setting(
        False,
        "add a bias of the user and one of the item to the logit, without weight decay",
        search=[False, True],
    )
    traffic_use: TrafficUse = setting(
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

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.relevance not in RELEVANCE:
            near = did_you_mean(self.relevance, RELEVANCE)
            raise InputError(f"no relevance {self.relevance!r}; {near}")

    @abstractmethod
    def composition(self) -> Composition:
        """The parts of this method, from its settings."""

    def relevance_model(self, *, pairwise: bool = False) -> Relevance:
        """The relevance of this name; with `biases`, + b_u + b_i, or + b_i for a pairwise loss."""
        biases: Biases = "none" if not self.biases else "item" if pairwise else "both"
        return RELEVANCE[self.relevance](self.dim, self.initial_scale, biases)

    @property
    def width(self) -> int:
        return self.composition().relevance.width

    def optimiser(self) -> Optimiser:
        return self.composition().optimiser(self.learning_rate, self.weight_decay)

    def traffic_uses(self) -> list[str]:
        uses: dict[str, list[str]] = {"both": ["training", "guide"], "none": []}
        return uses.get(self.traffic_use, [self.traffic_use]) + super().traffic_uses()

    def told(self, clicks: Clicks, side: Side) -> Told:
        """What is known of single pairs, as far as the settings use it."""
        parts = self.composition()
        known = Known(
            traffic_weight=self.traffic_weight,
            counts=self.counts,
            count_weight=self.count_weight,
            draws_shown=parts.drawing.source == "shown",
        )
        if isinstance(self, PopularitySettings):
            known = replace(
                known,
                exposure=self.exposure_from,
                attention=self.attention,
                floor=self.popularity_floor,
            )
        return known.told(
            clicks,
            side,
            learned_from=parts.learned_from(clicks, side),
            inverse=parts.loss.startswith("inverse_propensity"),
            negatives=self.negatives if parts.loss in PAIRWISE_LOSSES else 0,
        )

    def build(
        self, clicks: Clicks, side: Side, rng: np.random.Generator, *, marked: bool = False
    ) -> Engine:
        """The engine that will train this method, before its first step."""
        parts, relevance = self.composition(), self._relevance_of(clicks, side)
        earlier = None if side.start is None else relevance.continued(side.start)
        n_users, own = clicks.n_users, None
        if clicks.share is not None:
            n_users, own = clicks.share.n_users, clicks.share.users
        start = relevance.initial(n_users, clicks.n_items, rng, own)
        start |= parts.exposure.initial(n_users, self.width, side, rng, own)
        guide = None
        if parts.objective().strategy is not None and parts.learning is not None:
            guide = parts.learning.guide.pairs(clicks, side.validation, rng)
        others = ranks.current()
        return build(
            parts.objective(),
            self.optimiser(),
            continued(start, earlier),
            relevance=relevance,
            exposure=parts.exposure.table(clicks, side),
            features=side.user_rows,
            validation=guide,
            marked=marked,
            shared=None if others is None else Shared(others),
            name=self.engine,
        )

    def trainee(
        self, clicks: Clicks, *, seed: int, side: Side, progress: Progress
    ) -> training.Trainee:
        parts = self.composition()
        rng = np.random.default_rng(seed)
        told = self.told(clicks, side)
        side = told.side
        engine = self.build(clicks, side, rng, marked=told.marking is not None)
        kind = type(engine).__name__
        name = kind.removesuffix("Engine").lower()
        others = ranks.current()
        if name == "cuda":
            progress.note("preparing the cuda engine")  # Triton does not say whether it compiles
        elif others is not None and name == "reference":
            progress.note(f"{others.size} ranks train on the reference engine, the slowest")
        elif (
            name == "reference"
            and self.engine == "auto"
            and side.given() & {"user_features", "item_features"}
        ):
            progress.note("features run on the reference engine, the slowest")
        with noticing(lambda: progress.note(f"compiling the {name} engine, once on each machine")):
            engine.compile()
        relevance = self._relevance_of(clicks, side)

        def parameters() -> Parameters:
            return parts.exposure.kept(relevance.kept(engine.parameters()), clicks, side)

        trainee = training.Trainee(
            *self._steps_and_epoch(engine, told, seed, rng, relevance),
            parameters=parameters,
            memory=Memory(kind, engine.state, engine.restore, rng, engine.user_arrays),
            facts={"engine": name} | told.facts | ({"ranks": others.size} if others else {}),
        )
        clock = self._clock(clicks, told, rng)
        return trainee if clock is None else clock.beside(trainee, engine)

    def _clock(self, clicks: Clicks, told: Told, rng: np.random.Generator) -> ExposureClock | None:
        """What moves an exposure that learns after every epoch; None: nothing of that kind."""
        parts, side = self.composition(), told.side
        learning = parts.learning
        if (
            not isinstance(parts.exposure, OnClock)
            or learning is None
            or learning.strategy == "frozen"
        ):
            return None
        drawing, learned_from = parts.drawing, told.clicks
        relevance = self._relevance_of(clicks, side)
        counted: Any = 1 if relevance.counted is None else relevance.counted
        return ExposureClock(
            parts.exposure.form,
            learned_from,
            parts.exposure.start(clicks, side),
            log_share(clicks.item_counts),
            learning.guide.pairs(clicks, side.validation, rng),
            on_training=learning.strategy != "bilevel",
            learning_rate=learning.learning_rate,
            weight_decay=learning.weight_decay,
            weight=lambda users: drawing.expected_weight(learned_from, users) * counted,
            relevance=relevance,
            given=told.given_pairs(),
            rng=rng,
        )

    def _relevance_of(self, clicks: Clicks, side: Side) -> Relevance:
        """The relevance, built for these clicks and the features of their items."""
        parts = self.composition()
        return parts.relevance_of(parts.learned_from(clicks, side), side.item_rows)

    def pairs_of_epoch(self, clicks: Clicks) -> int:
        parts = self.composition()
        drawn = parts.drawing.samples(parts.learned_from(clicks, Side()), np.random.default_rng(0))
        return len(drawn.items)

    def _steps_and_epoch(
        self,
        engine: Engine,
        told: Told,
        seed: int,
        rng: np.random.Generator,
        relevance: Relevance,
    ) -> tuple[Callable[[], Iterator[float]], Callable[[], float]]:
        """One epoch of training, on samples drawn by the engine if it can, else here."""
        clicks, marking = told.clicks, told.marking
        drawing, size = self.composition().drawing, self.batch_size

        def steps(samples: Samples) -> Iterator[float]:
            return (engine.epoch(batch, batch_size=size) for batch in samples.batches(size))

        sampler = drawing.sampler(clicks, told.pool)
        alone = marking is None and clicks.share is None
        if isinstance(engine, DrawsSamples) and alone and sampler.rejects_few():
            there = engine.sampler(clicks, drawing, seed=seed)
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
            return samples if marking is None else marking.mark(samples, rng)

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

    def add_exposure(self, graph: Graph, parameters: Parameters) -> None:
        self.composition().exposure.add_to(graph, parameters)

    def user_rows_by_features(
        self,
        parameters: Parameters,
        clicks: Clicks,
        features: NDArray[Any],
        *,
        trained_on: Clicks,
        epochs: int,
    ) -> Parameters:
        training: dict[str, Any] = {"trained_on": trained_on, "epochs": epochs}
        return self.user_rows(parameters, clicks, **training, features=features)

    def user_rows(
        self,
        parameters: Parameters,
        clicks: Clicks,
        *,
        trained_on: Clicks,
        epochs: int,
        features: NDArray[Any] | None = None,
    ) -> Parameters:
        parts = self.composition()
        relevance = parts.relevance
        by_features = ITEM_FEATURES in parameters

        def solve(of: Clicks, exposure: NDArray[Any] | None) -> Parameters:
            return fold_in.solve(
                parameters,
                of,
                parts.loss,
                self.optimiser(),
                exposure=exposure,
                drawing=parts.drawing,
                law=parts.drawing.law(trained_on),
                counted=trained_on.item_counts > 0 if by_features else None,
                n_clicks=trained_on.n_clicks,
                batch_size=self.batch_size,
                epochs=epochs,
                relevance=relevance,
            )

        if features is None:
            own = solve(clicks, parts.exposure.of_new_user(parameters))
            return own | parts.exposure.rows_of_new_users(parameters, clicks.n_users)
        rows = parts.exposure.rows_by_features(parameters, features)
        both, users = parameters | rows, np.arange(clicks.n_users, dtype=np.int32)
        solved = [
            solve(fold_in.of_part(clicks, part), parts.exposure.block(both, users[part]))
            for part in blocks.parts(clicks.n_users, clicks.n_items)
        ]
        return {n: np.concatenate([one[n] for one in solved]) for n in solved[0]} | rows
