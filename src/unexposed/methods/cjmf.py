"""CJMF (Zhu et al. 2020): sub-models that weigh each other's clicks, by joint learning."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from unexposed.data.clicks import Clicks
from unexposed.data.pairs import Indices, pair_keys
from unexposed.engine import cuda
from unexposed.engine.cjmf import (
    LEAST,
    JointRates,
    Learner,
    PartedSamples,
    Rates,
    Tables,
    item_exposure,
)
from unexposed.engine.objective import Name
from unexposed.errors import InputError
from unexposed.late import torch
from unexposed.maths import exposure
from unexposed.methods.composed import STEP
from unexposed.methods.trained import TrainedMethod
from unexposed.progress import Progress
from unexposed.ranking.blocks import Block
from unexposed.sampling import samples as sampling
from unexposed.settings import setting
from unexposed.training.checkpoint import Memory
from unexposed.training.loop import Trainee
from unexposed.training.side import Parameters, Side
from unexposed.workers import Workers


@dataclass(frozen=True)
class CJMF(TrainedMethod):
    """−[ R̃/m·log p + (1 − R̃/m)·log(1 − p) ] − [ R̃/p·log m + (1 − R̃/p)·log(1 − m) ],

    each in C sub-models, where the weights 1/m and 1/p are held fixed. The clicks are split into C
    parts; sub-model c learns from the samples (a click and its drawn negatives) of the other
    parts, and the weights of the clicks of part c come from sub-model c, which never saw them.
    (The weights of unclicked pairs drop out, for R̃ = 0.) A residual, added to the vectors of each
    sub-model, learns from all samples by L2. A single sub-model has no part left out.
    `engine/cjmf.py` has the mathematics.
    """

    name: ClassVar[str] = "cjmf"
    scale: ClassVar[Literal["logit", "probability", "order"]] = "probability"
    step: ClassVar[int] = STEP
    n_models: int = setting(8, "sub-models, and parts of the clicks", low=1)
    batch_size: int = setting(1024, "clicks in a batch, each with its drawn items", low=1)
    learning_rate: float = setting(1e-3, "of Adam, for the sub-models' vectors", above=0)
    weight_decay: float = setting(
        3e-5, "added to the gradient of touched rows", low=0, search=(3e-6, 3e-4)
    )
    exposure_learning_rate: float = setting(1e-3, "of Adam, for the exposure", above=0)
    exposure_weight_decay: float = setting(
        10.0,
        "added to the exposure's gradient; a high value holds it at its start",
        low=0,
        search=(0.1, 100),
    )
    residual: bool = setting(True, "learn a residual from all clicks")
    residual_learning_rate: float = setting(5e-4, "of Adam, for the residual", above=0)
    residual_weight_decay: float = setting(3e-5, "added to the residual's gradient", low=0)
    negatives: int = setting(5, "unclicked items drawn for each click in each epoch", low=1)
    initial_scale: float = setting(0.01, "standard deviation of the first vectors", above=0)
    popularity_exponent: float = setting(0.5, "of θ = (clicks / most clicks)^exponent", low=0)
    engine: Name = setting("auto", "where the steps run: cuda, or else the CPU")

    def trainee(
        self,
        clicks: Clicks,
        *,
        seed: int,
        side: Side,
        progress: Progress,
        workers: Workers | None = None,
    ) -> Trainee:
        del side, progress, workers
        rng = np.random.default_rng(seed)
        popularity, size = self.popularity(clicks), self.batch_size
        if self.engine == "cuda" and not cuda.available():
            raise InputError("engine cuda needs a CUDA GPU and triton; use engine cpu or auto")
        device = "cuda" if self.engine == "cuda" else "cpu"
        tables = self.initial(clicks, rng)
        learner = Learner(self.optimiser(), tables, popularity, device=device)
        part = split(len(clicks), self.n_models, rng)

        def samples() -> PartedSamples:
            return draw(clicks, part, negatives=self.negatives, rng=rng)

        return Trainee(
            lambda: (learner.epoch(b, batch_size=size) for b in samples().batches(size)),
            lambda: learner.epoch(samples(), batch_size=size),
            lambda: kept(learner.tables(), popularity),
            memory=Memory("Learner", learner.state, learner.restore, rng),
            facts={"engine": device},
        )

    def pairs_of_epoch(self, clicks: Clicks) -> int:
        rng = np.random.default_rng(0)
        return len(sampling.drawn(clicks, negatives=self.negatives, rng=rng).items)

    def popularity(self, clicks: Clicks) -> NDArray[np.float32]:
        return exposure.popularity(
            clicks.item_counts, exponent=self.popularity_exponent, floor=LEAST
        )

    def optimiser(self) -> JointRates:
        residual = Rates(self.residual_learning_rate, self.residual_weight_decay)
        return JointRates(
            Rates(self.learning_rate, self.weight_decay),
            Rates(self.exposure_learning_rate, self.exposure_weight_decay),
            residual if self.residual else None,
        )

    def initial(self, clicks: Clicks, rng: np.random.Generator) -> Tables:
        """The tables at the start: residual at zero, the gate and both σ of the exposure at ½."""

        def normal(*shape: int) -> NDArray[np.float32]:
            return rng.normal(0, self.initial_scale, shape).astype(np.float32)

        users, items = ((n, self.n_models, self.dim) for n in (clicks.n_users, clicks.n_items))
        tables = {
            "submodel_user_factors": normal(*users),
            "submodel_item_factors": normal(*items),
            "exposure_weight": normal(self.n_models, 3, self.dim),
            "exposure_bias": np.zeros((self.n_models, 3), dtype=np.float32),
        }
        if self.residual:
            tables["residual_user_factors"] = np.zeros(users, dtype=np.float32)
            tables["residual_item_factors"] = np.zeros(items, dtype=np.float32)
        return tables

    def user_tables(self, parameters: Parameters) -> frozenset[str]:
        del parameters
        return frozenset({"submodel_user_factors"})

    def scores(self, parameters: Parameters, users: Indices, clicks: Clicks) -> Block:
        """The mean of σ(ω_uᵀω_i) over the sub-models."""
        del clicks
        user_factors = parameters["submodel_user_factors"][users]
        item_factors = parameters["submodel_item_factors"]
        total = np.zeros((len(users), len(item_factors)), dtype=np.float32)
        for model in range(user_factors.shape[1]):
            logits = user_factors[:, model] @ item_factors[:, model].T
            total += expit(logits, out=logits)
        return total / np.float32(user_factors.shape[1])

    def exposure(self, parameters: Parameters, users: Indices) -> Block:
        """The mean exposure of an item over the sub-models, the same for every user."""
        table = parameters["exposure"]
        return np.broadcast_to(table, (len(users), len(table)))

    def pair_exposure(
        self, parameters: Parameters, users: Indices, items: Indices
    ) -> NDArray[np.float32]:
        del users
        return parameters["exposure"][items]


def split(n_clicks: int, n_models: int, rng: np.random.Generator) -> Indices:
    """Assign each click to a random part; part sizes differ by at most one."""
    return rng.permutation(n_clicks).astype(np.int32) % np.int32(n_models)


def draw(
    clicks: Clicks, part: Indices, *, negatives: int, rng: np.random.Generator
) -> PartedSamples:
    """Every click with unclicked items drawn for it, in random order; the items share its part."""
    drawn = sampling.drawn(clicks, negatives=negatives, rng=rng)
    visited = pair_keys(drawn.users, drawn.items[drawn.start[:-1]], clicks.n_items)
    return PartedSamples(drawn, part[np.searchsorted(clicks.keys, visited)])


def kept(tables: Tables, popularity: NDArray[Any]) -> Parameters:
    """The parameters a model keeps: vectors with the residual added, and each item's exposure."""
    items = torch.from_numpy(tables["submodel_item_factors"])
    shown = item_exposure(
        items,
        torch.from_numpy(tables["exposure_weight"]),
        torch.from_numpy(tables["exposure_bias"]),
        torch.tensor(popularity, dtype=items.dtype),
    )
    found = {"exposure": shown.mean(1).numpy()}
    for kind in ("user", "item"):
        found[f"submodel_{kind}_factors"] = tables[f"submodel_{kind}_factors"]
        if f"residual_{kind}_factors" in tables:
            found[f"submodel_{kind}_factors"] += tables[f"residual_{kind}_factors"]
    return found
