"""What the gradient-trained factor models share: settings, sampling, the epoch, the score."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks, Indices
from unexposed.engine.build import build
from unexposed.engine.objective import DrawsSamples, Engine, Name, Objective, Optimiser
from unexposed.maths import exposure
from unexposed.model import fold_in
from unexposed.model.graph import Graph
from unexposed.model.recommender import Recommender
from unexposed.progress import Progress
from unexposed.ranking.blocks import Block
from unexposed.ranking.held_out import CANDIDATES, EXPONENT, K, held_out_quality
from unexposed.sampling import samples as sampling
from unexposed.settings import setting
from unexposed.training import loop as training
from unexposed.training.checkpoint import Checkpoint
from unexposed.training.given import Parameters, Side

STEP = 2  # counts changes to what a step computes: results of an earlier step are no longer ours


@dataclass(frozen=True)
class TrainedMethod(Recommender):
    """Settings of every method that learns by epochs and keeps the best one."""

    dim: int = setting(50, "length of a user's or item's vector", low=1)
    epochs: int = setting(200, "most passes over the clicks", low=1)
    patience: int = setting(60, "epochs without improvement before the end; 0: never", low=0)
    snips_exponent: float = setting(
        EXPONENT, "how strongly held-out clicks on popular items are weighed down", low=-1
    )
    snips_k: int = setting(K, "length of the list they judge; 0: the whole ranking", low=0)
    snips_candidates: int = setting(
        CANDIDATES, "random unclicked items a held-out click is ranked among; 0: all of them", low=0
    )
    snips_window: int = setting(10, "epochs over which their judgement is averaged", low=1)
    refit: bool = setting(
        True,
        "with the epoch chosen, train anew on all clicks, the held-out ones too",
        before=False,
    )

    def loop(self, clicks: Clicks, held_out: Clicks) -> training.Loop:
        """The training loop, with SNIPS on the held-out clicks to choose the epoch."""

        def quality(parameters: Parameters) -> float:
            return held_out_quality(
                lambda users: self.scores(parameters, users),
                clicks,
                held_out,
                exponent=self.snips_exponent,
                k=self.snips_k or None,
                candidates=self.snips_candidates,
            )

        chooses = quality if len(held_out) else None
        return training.Loop(self.name, self.epochs, self.patience, chooses, self.snips_window)

    @abstractmethod
    def trainee(
        self, clicks: Clicks, *, seed: int, side: Side, progress: Progress
    ) -> training.Trainee:
        """This method at the start of its training, ready for the first step."""

    def train(
        self,
        clicks: Clicks,
        held_out: Clicks,
        *,
        seed: int,
        side: Side,
        progress: Progress,
        checkpoint: Checkpoint | None = None,
    ) -> tuple[Parameters, dict[str, Any]]:
        def trained(
            loop: training.Loop, clicks: Clicks, checkpoint: Checkpoint | None
        ) -> tuple[Parameters, dict[str, Any]]:
            trainee = self.trainee(clicks, seed=seed, side=side, progress=progress)
            parameters, facts = training.run(
                loop,
                epoch=trainee.epoch,
                parameters=trainee.parameters,
                progress=progress,
                memory=trainee.memory,
                checkpoint=checkpoint,
            )
            return parameters, facts | trainee.facts

        parameters, facts = trained(self.loop(clicks, held_out), clicks, checkpoint)
        if not self.refit or len(held_out) == 0 or facts["ended"] == training.INTERRUPTED:
            return parameters, facts
        again, every = training.again(self.name, facts), clicks.union(held_out)
        second = None if checkpoint is None else checkpoint.second(epochs=again.epochs)
        return training.refitted(
            parameters, facts, lambda: trained(again, every, second), n_clicks=len(every)
        )

    def scores(self, parameters: Parameters, users: Indices) -> Block:
        return parameters["user_factors"][users] @ parameters["item_factors"].T

    def add_score(self, graph: Graph, parameters: Parameters) -> None:
        graph.constant("user_factors", parameters["user_factors"])
        graph.constant("item_factors", parameters["item_factors"])
        graph.add("Gather", "user_factors", "users", to="user")  # (batch, dim)
        graph.add("Gather", "item_factors", "items", to="item")  # (batch, candidates, dim)
        graph.outputs.append(graph.product("item", "user", to="score"))


def continued(initial: Parameters, start: Parameters | None) -> Parameters:
    """Where training starts, with the first rows of each table from an earlier model."""
    for name, table in initial.items():
        if start is not None and name in start:
            table[: len(start[name])] = start[name]
    return initial


@dataclass(frozen=True)
class FactorMethod(TrainedMethod):
    """p_ui = σ(ω_uᵀω_i), trained by Adam on batches of clicks with their drawn negatives."""

    takes: ClassVar[frozenset[str]] = frozenset({"start"})
    step: ClassVar[int] = STEP

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
        10, "items drawn for each click, anew each epoch", low=1, search=[5, 10, 20]
    )
    negatives_from: sampling.Source = setting(
        "unclicked",
        "what they are drawn from: what the user has not clicked, or all items",
        search=["unclicked", "catalogue"],
    )
    initial_scale: float = setting(0.01, "standard deviation of the first vectors", above=0)
    engine: Name = setting("auto", "what runs the steps; they agree, and differ in speed")

    @abstractmethod
    def objective(self) -> Objective:
        """What this method minimises."""

    def initial(self, clicks: Clicks, rng: np.random.Generator) -> Parameters:
        """Where training starts."""
        return {
            "user_factors": self.normal(clicks.n_users, rng),
            "item_factors": self.normal(clicks.n_items, rng),
        }

    def normal(self, rows: int, rng: np.random.Generator) -> NDArray[np.float32]:
        return rng.normal(0, self.initial_scale, (rows, self.dim)).astype(np.float32)

    def optimiser(self) -> Optimiser:
        return Optimiser(self.learning_rate, self.weight_decay)

    def drawing(self) -> sampling.Drawing:
        """How the samples of an epoch come about."""
        return sampling.Drawing(self.negatives, source=self.negatives_from)

    def build(self, clicks: Clicks, side: Side, rng: np.random.Generator) -> Engine:
        """The engine that will train this method, ready at the first step."""
        start = continued(self.initial(clicks, rng), side.start)
        return build(self.objective(), self.optimiser(), start, name=self.engine)

    def exposure_of_new(self, parameters: Parameters) -> NDArray[np.float32] | None:
        """The exposure of each item to a user of whom nothing is known; None: there is none."""
        del parameters
        return None

    def user_rows(
        self, parameters: Parameters, clicks: Clicks, *, n_clicks: int, epochs: int
    ) -> Parameters:
        vectors = fold_in.solve(
            parameters["item_factors"],
            clicks,
            self.objective(),
            self.optimiser(),
            exposure=self.exposure_of_new(parameters),
            drawing=self.drawing(),
            n_clicks=n_clicks,
            batch_size=self.batch_size,
            epochs=epochs,
        )
        return {"user_factors": vectors}

    def trained_on(self, clicks: Clicks, side: Side) -> Clicks:
        """The clicks that samples are drawn from."""
        del side
        return clicks

    def finished(self, parameters: Parameters, clicks: Clicks, side: Side) -> Parameters:
        """What a model keeps, from what the engine has learned."""
        del clicks, side
        return parameters

    def trainee(
        self, clicks: Clicks, *, seed: int, side: Side, progress: Progress
    ) -> training.Trainee:
        rng = np.random.default_rng(seed)
        engine = self.build(clicks, side, rng)
        learned_from = self.trained_on(clicks, side)

        kind = type(engine).__name__
        name = kind.removesuffix("Engine").lower()
        if kind != "ReferenceEngine":  # which has nothing to compile
            progress.note(f"getting the {name} engine ready: compiled once on a machine, then kept")
        engine.compile()
        return training.Trainee(
            *self._steps_and_epoch(engine, learned_from, seed, rng),
            parameters=lambda: self.finished(engine.parameters(), clicks, side),
            memory=training.Memory(kind, engine.state, engine.restore, rng),
            facts={"engine": name},
        )

    def _steps_and_epoch(
        self, engine: Engine, clicks: Clicks, seed: int, rng: np.random.Generator
    ) -> tuple[Callable[[], Iterator[float]], Callable[[], float]]:
        """One epoch of training, on samples drawn by the engine where it can, else here."""
        drawing, size = self.drawing(), self.batch_size

        def steps(samples: sampling.Samples) -> Iterator[float]:
            return (engine.epoch(batch, batch_size=size) for batch in samples.batches(size))

        if not drawing.every_pair and isinstance(engine, DrawsSamples):
            sampler = engine.sampler(clicks, drawing, seed=seed)
            return (
                lambda: steps(sampler.draw()),
                lambda: engine.train_epoch(sampler, batch_size=size),
            )
        return (
            lambda: steps(drawing.samples(clicks, rng)),
            lambda: engine.epoch(drawing.samples(clicks, rng), batch_size=size),
        )


@dataclass(frozen=True)
class PointwiseMethod(FactorMethod):
    """Factor models that learn from single pairs, clicked or not."""

    scale: ClassVar[Literal["logit", "probability", "order"]] = "logit"
    pairs: Literal["sampled", "all"] = setting("sampled", "drawn negatives, or the whole matrix")
    weighting: sampling.Weighting = setting(
        "none",
        "or weigh the drawn negatives, then always unclicked ones, to stand for all such pairs",
    )

    def drawing(self) -> sampling.Drawing:
        return sampling.Drawing(
            self.negatives,
            self.weighting,
            every_pair=self.pairs == "all",
            source="unclicked" if self.weighting == "unbiased" else self.negatives_from,
        )


@dataclass(frozen=True)
class PopularityMethod(PointwiseMethod):
    """Factor models whose exposure is, or starts from, the popularity θ of an item."""

    popularity_exponent: float = setting(
        0.5, "of θ = (clicks / most clicks)^exponent", low=0, search=(0.05, 1)
    )
    popularity_floor: float = setting(
        0.01, "least θ, and that of an item without clicks", above=0, high=1
    )

    def popularity(self, clicks: Clicks) -> NDArray[np.float32]:
        return exposure.popularity(
            clicks.item_counts, exponent=self.popularity_exponent, floor=self.popularity_floor
        )


@dataclass(frozen=True)
class GivenExposureMethod(PopularityMethod):
    """Factor models with a fixed exposure: popularity, or what they are given."""

    takes: ClassVar[frozenset[str]] = frozenset({"start", "exposure"})

    def given(self, clicks: Clicks, side: Side) -> NDArray[np.float32]:
        if side.exposure is None:
            return self.popularity(clicks)
        return exposure.given(side.exposure, n_users=clicks.n_users, n_items=clicks.n_items)

    def build(self, clicks: Clicks, side: Side, rng: np.random.Generator) -> Engine:
        return build(
            self.objective(),
            self.optimiser(),
            continued(self.initial(clicks, rng), side.start),
            exposure=self.given(clicks, side),
            name=self.engine,
        )

    def finished(self, parameters: Parameters, clicks: Clicks, side: Side) -> Parameters:
        return parameters | {"exposure": self.given(clicks, side)}

    def exposure_of_new(self, parameters: Parameters) -> NDArray[np.float32]:
        table = parameters["exposure"]
        return table if table.ndim == 1 else table.mean(axis=0)

    def user_rows(
        self, parameters: Parameters, clicks: Clicks, *, n_clicks: int, epochs: int
    ) -> Parameters:
        rows = super().user_rows(parameters, clicks, n_clicks=n_clicks, epochs=epochs)
        if parameters["exposure"].ndim == 2:
            rows["exposure"] = np.tile(self.exposure_of_new(parameters), (clicks.n_users, 1))
        return rows

    def exposure(self, parameters: Parameters, users: Indices) -> Block:
        table = parameters["exposure"]
        if table.ndim == 1:
            return np.broadcast_to(table, (len(users), len(table)))
        return table[users]

    def pair_exposure(
        self, parameters: Parameters, users: Indices, items: Indices
    ) -> NDArray[np.float32]:
        table = parameters["exposure"]
        return table[items] if table.ndim == 1 else table[users, items]

    def add_exposure(self, graph: Graph, parameters: Parameters) -> None:
        graph.table("exposure_table", parameters["exposure"], to="exposure")
