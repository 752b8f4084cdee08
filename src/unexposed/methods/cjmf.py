"""CJMF (Zhu et al. 2020): sub-models that weigh each other's clicks, by joint learning."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor, sigmoid

from unexposed import exposure, training
from unexposed.data import Clicks, Indices
from unexposed.engine import put_back
from unexposed.engine.adam import RowAdam, tables_of
from unexposed.factors import TrainedMethod
from unexposed.losses import inverse_propensity, low_variance
from unexposed.progress import Progress
from unexposed.recommender import Block, Parameters, Side
from unexposed.sampling import draw_unclicked
from unexposed.settings import setting

LEAST, MOST = 0.01, 0.99  # every probability is kept in these bounds
LARGEST_LOGIT = math.log(MOST / LEAST)


@dataclass(frozen=True)
class CJMF(TrainedMethod):
    """−[ R̃/m·log p + (1 − R̃/m)·log(1 − p) ] − [ R̃/p·log m + (1 − R̃/p)·log(1 − m) ],

    each in C sub-models, where the weights 1/m and 1/p are held fixed. The clicks are split into C
    parts; sub-model c learns from the samples (a click and its drawn negatives) of the other
    parts, and the weights of the clicks of part c come from sub-model c, which never saw them.
    (The weights of unclicked pairs drop out, for R̃ = 0.) A residual, added to the vectors of every
    sub-model, learns from all samples by L2. A single sub-model has no part left out.
    """

    name: ClassVar[str] = "cjmf"
    scale: ClassVar[Literal["logit", "probability", "order"]] = "probability"
    n_models: int = setting(8, "sub-models, and parts of the clicks", low=1)
    batch_size: int = setting(1024, "pairs in a batch", low=1)
    learning_rate: float = setting(1e-3, "of Adam, for the sub-models' vectors", above=0)
    weight_decay: float = setting(
        1e-5, "added to the gradient of touched rows", low=0, search=(1e-6, 1e-3)
    )
    exposure_learning_rate: float = setting(1e-3, "of Adam, for the exposure", above=0)
    exposure_weight_decay: float = setting(
        1e-5, "added to the exposure's gradient", low=0, search=(1e-6, 1e-2)
    )
    residual: bool = setting(True, "learn a residual from all clicks")
    residual_learning_rate: float = setting(5e-4, "of Adam, for the residual", above=0)
    residual_weight_decay: float = setting(1e-5, "added to the residual's gradient", low=0)
    negatives: int = setting(5, "unclicked items drawn for each click, anew each epoch", low=1)
    initial_scale: float = setting(0.01, "standard deviation of the first vectors", above=0)
    popularity_exponent: float = setting(0.5, "of θ = (clicks / most clicks)^exponent", low=0)

    def trainee(
        self, clicks: Clicks, *, seed: int, side: Side, progress: Progress
    ) -> training.Trainee:
        del side, progress
        rng = np.random.default_rng(seed)
        popularity = exposure.popularity(
            clicks.item_counts, exponent=self.popularity_exponent, floor=LEAST
        )
        learner = Learner(self, self.initial(clicks, rng), popularity)
        part = split(len(clicks), self.n_models, rng)

        def steps() -> Iterator[float]:
            samples = draw(clicks, part, negatives=self.negatives, rng=rng)
            return (learner.step(batch) for batch in samples.batches(self.batch_size))

        return training.Trainee(
            steps,
            lambda: float(np.mean([*steps()])),
            learner.parameters,
            memory=training.Memory(self.name, learner.state, learner.restore, rng),
        )

    def initial(self, clicks: Clicks, rng: np.random.Generator) -> Parameters:
        """Where training starts: the residual at zero, the gate and both σ of the exposure at ½."""

        def normal(*shape: int) -> NDArray[np.float32]:
            return rng.normal(0, self.initial_scale, shape).astype(np.float32)

        return {
            "submodel_user_factors": normal(clicks.n_users, self.n_models, self.dim),
            "submodel_item_factors": normal(clicks.n_items, self.n_models, self.dim),
            "exposure_weight": normal(self.n_models, 3, self.dim),
            "exposure_bias": np.zeros((self.n_models, 3), dtype=np.float32),
            "residual_user_factors": np.zeros((clicks.n_users, self.dim), dtype=np.float32),
            "residual_item_factors": np.zeros((clicks.n_items, self.dim), dtype=np.float32),
        }

    def scores(self, parameters: Parameters, users: Indices) -> Block:
        """The mean of σ(ω_uᵀω_i) over the sub-models."""
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


@dataclass(frozen=True, eq=False)
class Samples:
    """Pairs to learn from, in the order they will be visited, and the part each belongs to.

    A drawn negative belongs to the part of the click that it was drawn for.
    """

    users: Tensor
    items: Tensor
    click: Tensor
    part: Tensor

    def batches(self, size: int) -> Iterator["Samples"]:
        for start in range(0, len(self.users), size):
            part = slice(start, start + size)
            yield Samples(self.users[part], self.items[part], self.click[part], self.part[part])


def split(n_clicks: int, n_models: int, rng: np.random.Generator) -> Indices:
    """The part of each click, by chance, parts as even as can be."""
    return rng.permutation(n_clicks).astype(np.int32) % np.int32(n_models)


def draw(clicks: Clicks, part: Indices, *, negatives: int, rng: np.random.Generator) -> Samples:
    """Every click, and this many unclicked items for each, shuffled."""
    may_draw = clicks.user_counts[clicks.users] < clicks.n_items
    sources = np.repeat(np.flatnonzero(may_draw), negatives)
    drawn = draw_unclicked(clicks, clicks.users[sources], rng)
    click = np.zeros(len(clicks) + len(sources), dtype=np.float32)
    click[: len(clicks)] = 1
    order = torch.from_numpy(rng.permutation(len(click)))
    return Samples(
        torch.from_numpy(np.concatenate([clicks.users, clicks.users[sources]])).long()[order],
        torch.from_numpy(np.concatenate([clicks.items, drawn])).long()[order],
        torch.from_numpy(click)[order],
        torch.from_numpy(np.concatenate([part, part[sources]])).long()[order],
    )


def item_exposure(
    item_vector: Tensor,  # q (…, C, dim)
    weight: Tensor,  # a, c, e (C, 3, dim)
    bias: Tensor,  # b, d, f (C, 3)
    popularity: Tensor,  # (…)
) -> Tensor:
    """m = ( g·σ(cᵀq + d) + (1 − g)·popularity )^σ(eᵀq + f), g = σ(aᵀq + b), (…, C), in bounds.

    q is detached: the exposure reads an item's vector, and only the relevance writes it, as in
    UBO. This is our choice, not checked against the authors' code.
    """
    terms = sigmoid(torch.einsum("...cd,ckd->...ck", item_vector.detach(), weight) + bias)
    gate, own, power = terms.unbind(-1)
    return ((gate * own + (1 - gate) * popularity[..., None]) ** power).clamp(LEAST, MOST)


def weights(probability: Tensor, part: Tensor) -> Tensor:
    """What the sub-model of its part says of each pair, from what all say (B, C): (B, 1), fixed."""
    return probability.detach().gather(1, part[:, None])


class Learner:
    """The sub-models side by side in tables (rows, C, dim); a step moves all of them at once."""

    def __init__(
        self,
        method: CJMF,
        parameters: Parameters,
        popularity: NDArray[Any],
        *,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self._tables = {name: torch.tensor(a, dtype=dtype) for name, a in parameters.items()}
        self._popularity = torch.tensor(popularity, dtype=dtype)
        self._residual = method.residual
        rates = {
            "submodel": (method.learning_rate, method.weight_decay),
            "exposure": (method.exposure_learning_rate, method.exposure_weight_decay),
            "residual": (method.residual_learning_rate, method.residual_weight_decay),
        }
        self._adam: dict[str, RowAdam] = {}
        for name, table in self._tables.items():
            rate, decay = rates[name.split("_")[0]]
            # a row for Adam is what one sub-model holds of a user or item: one that no pair of
            # the batch reaches keeps still, decay included
            rows = table.view(-1, table.shape[-1]) if name.startswith("submodel") else table
            self._adam[name] = RowAdam(rows, learning_rate=rate, weight_decay=decay)

    def step(self, batch: Samples) -> float:
        """Learn from a batch, all gradients at the same point; the mean loss before the step."""
        user_rows, user_at = torch.unique(batch.users, return_inverse=True)
        item_rows, item_at = torch.unique(batch.items, return_inverse=True)
        user_leaf = self._tables["submodel_user_factors"][user_rows].requires_grad_()
        item_leaf = self._tables["submodel_item_factors"][item_rows].requires_grad_()
        weight_leaf = self._tables["exposure_weight"].clone().requires_grad_()
        bias_leaf = self._tables["exposure_bias"].clone().requires_grad_()

        users = user_leaf.index_select(0, user_at)  # (B, C, dim)
        items = item_leaf.index_select(0, item_at)
        logit = bounded_logit((users * items).sum(-1))  # (B, C)
        shown = item_exposure(item_leaf, weight_leaf, bias_leaf, self._popularity[item_rows])
        shown = shown.index_select(0, item_at)
        learns = self.learns(batch.part)
        joint = joint_loss(logit, shown, batch.click, batch.part)
        loss = (learns * joint).sum() / len(joint)
        gradient = torch.autograd.grad(loss, (user_leaf, item_leaf, weight_leaf, bias_leaf))
        residual_loss = self._residual_step(
            (users.detach(), items.detach(), shown.detach().mean(1), batch.click),
            (user_rows, user_at),
            (item_rows, item_at),
        )
        self._move("submodel_user_factors", user_rows, user_at, learns, gradient[0])
        self._move("submodel_item_factors", item_rows, item_at, learns, gradient[1])
        models = torch.nonzero(learns.any(0))[:, 0]
        self._adam["exposure_weight"].step(models, gradient[2][models])
        self._adam["exposure_bias"].step(models, gradient[3][models])
        return float(loss.detach()) + residual_loss

    def learns(self, part: Tensor) -> Tensor:
        """Which sub-models learn from each pair, (B, C): all but that of its part."""
        models = torch.arange(self._tables["exposure_bias"].shape[0])
        if len(models) == 1:
            return torch.ones(len(part), 1, dtype=torch.bool)
        return part[:, None] != models

    def parameters(self) -> Parameters:
        """What a model keeps: the vectors with the residual in them, and each item's exposure."""
        t = self._tables
        shown = item_exposure(
            t["submodel_item_factors"], t["exposure_weight"], t["exposure_bias"], self._popularity
        )
        kept = {
            f"submodel_{kind}_factors": t[f"submodel_{kind}_factors"]
            + t[f"residual_{kind}_factors"][:, None]
            for kind in ("user", "item")
        }
        kept["exposure"] = shown.mean(1)
        return {name: table.numpy().copy() for name, table in kept.items()}

    def state(self) -> Parameters:
        return tables_of(self._tables, self._adam)

    def restore(self, state: Parameters) -> None:
        put_back(self.state(), state)

    def _residual_step(
        self,
        pairs: tuple[Tensor, Tensor, Tensor, Tensor],  # ω_u, ω_i (B, C, dim), m, click (B,)
        users: tuple[Tensor, Tensor],  # the distinct rows, and where each pair finds its own
        items: tuple[Tensor, Tensor],
    ) -> float:
        """Move the residual against the mean L2 of the mean p and m of the sub-models."""
        if not self._residual:
            return 0.0
        user_leaf = self._tables["residual_user_factors"][users[0]].requires_grad_()
        item_leaf = self._tables["residual_item_factors"][items[0]].requires_grad_()
        user_vectors = pairs[0] + user_leaf.index_select(0, users[1])[:, None]
        item_vectors = pairs[1] + item_leaf.index_select(0, items[1])[:, None]
        p = sigmoid(bounded_logit((user_vectors * item_vectors).sum(-1))).mean(1)
        loss = low_variance(torch.logit(p), pairs[3], pairs[2]).mean()
        gradient = torch.autograd.grad(loss, (user_leaf, item_leaf))
        self._adam["residual_user_factors"].step(users[0], gradient[0])
        self._adam["residual_item_factors"].step(items[0], gradient[1])
        return float(loss.detach())

    def _move(self, name: str, rows: Tensor, at: Tensor, learns: Tensor, gradient: Tensor) -> None:
        """Adam's step for what each sub-model holds of these rows, where it learned from one."""
        n_models = learns.shape[1]
        reached = torch.zeros(len(rows), n_models).index_add_(0, at, learns.float()) > 0
        flat = rows[:, None] * n_models + torch.arange(n_models)
        self._adam[name].step(flat[reached], gradient[reached])


def bounded_logit(logit: Tensor) -> Tensor:
    """The logit of a probability kept in bounds; no slope where it was out of them."""
    return logit.clamp(-LARGEST_LOGIT, LARGEST_LOGIT)


def joint_loss(logit: Tensor, shown: Tensor, click: Tensor, part: Tensor) -> Tensor:
    """L1 of the relevance weighted by exposure, and of the exposure by relevance, (B, C).

    logit and shown (B, C) are what each sub-model says of each pair's relevance and exposure.
    """
    click = click[:, None]
    relevance = inverse_propensity(logit, click, weights(shown, part))
    return relevance + inverse_propensity(torch.logit(shown), click, weights(sigmoid(logit), part))
