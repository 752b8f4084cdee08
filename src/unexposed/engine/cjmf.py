"""What a step of CJMF computes (Zhu et al. 2020), and the learner that does it by autograd.

C sub-models lie side by side. p = σ(ω_uᵀω_i) is what one of them says of a pair's relevance, m of
its item's exposure:

    L  = −[ c/m·log p + (1 − c/m)·log(1 − p) ]      the relevance, at the other's fixed weight 1/m
         −[ c/p·log m + (1 − c/p)·log(1 − m) ]      the exposure, at the other's fixed weight 1/p
    L′ = −[ c·log(m̄p′) + (1 − c)·log(1 − m̄p′) ]     the residual, p′ = σ((ω_u + ρ_u)ᵀ(ω_i + ρ_i))

The other is the sub-model of the pair's part, which learns nothing from it by L; all others do.
m̄ is the mean of all. ρ learns from every pair by L′, at fixed ω, and stays out of L.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, sigmoid

from unexposed.data import Indices
from unexposed.engine import Name, put_back
from unexposed.engine.adam import RowAdam
from unexposed.errors import InputError
from unexposed.losses import inverse_propensity, low_variance

LEAST, MOST = 0.01, 0.99  # every probability is kept in these bounds
LARGEST_LOGIT = math.log(MOST / LEAST)

Tables = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Samples:
    """Pairs to learn from, in the order they will be visited, and the part each belongs to."""

    users: Indices
    items: Indices
    click: NDArray[np.float32]
    part: Indices

    def __len__(self) -> int:
        return len(self.users)

    def batches(self, size: int) -> Iterator["Samples"]:
        for start in range(0, len(self), size):
            part = slice(start, start + size)
            yield Samples(self.users[part], self.items[part], self.click[part], self.part[part])


@dataclass(frozen=True)
class Rates:
    """Of Adam: how fast one kind of table learns, and what pulls it back to zero."""

    learning_rate: float
    weight_decay: float


@dataclass(frozen=True)
class Optimiser:
    """Adam on the rows a batch touches; without rates for a residual there is none."""

    submodel: Rates
    exposure: Rates
    residual: Rates | None


class Learner(Protocol):
    """Holds the tables and learns from samples in the order they are given."""

    def compile(self) -> None:
        """Have everything ready for the first step: slow once on a machine, then cached."""
        ...

    def epoch(self, samples: Samples, *, batch_size: int) -> float:
        """Take a step on each batch; the mean over batches of the loss before its step."""
        ...

    def tables(self) -> Tables:
        """A copy of what has been learned, by name."""
        ...

    def state(self) -> Tables:
        """All that a step reads and changes, by name; not copied where it need not be."""
        ...

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Be as the learner was whose state this is."""
        ...


def item_exposure(
    item_vector: Tensor,  # q (…, C, dim)
    weight: Tensor,  # a, c, e (C, 3, dim)
    bias: Tensor,  # b, d, f (C, 3)
    popularity: Tensor,  # (…)
) -> Tensor:
    """m = ( g·σ(cᵀq + d) + (1 − g)·popularity )^σ(eᵀq + f), g = σ(aᵀq + b), (…, C), in bounds.

    q is detached: the exposure reads an item's vector, and only the relevance writes it.
    """
    terms = sigmoid(torch.einsum("...cd,ckd->...ck", item_vector.detach(), weight) + bias)
    gate, own, power = terms.unbind(-1)
    return ((gate * own + (1 - gate) * popularity[..., None]) ** power).clamp(LEAST, MOST)


def bounded_logit(user_vector: Tensor, item_vector: Tensor) -> Tensor:
    """The logit of a relevance kept in bounds, (…); no slope where it was out of them."""
    return (user_vector * item_vector).sum(-1).clamp(-LARGEST_LOGIT, LARGEST_LOGIT)


def weights(probability: Tensor, part: Tensor) -> Tensor:
    """What the sub-model of its part says of each pair, from what all say (B, C): (B, 1), fixed."""
    return probability.detach().gather(1, part[:, None])


def joint_loss(logit: Tensor, shown: Tensor, click: Tensor, part: Tensor) -> Tensor:
    """L1 of the relevance weighted by exposure, and of the exposure by relevance, (B, C).

    logit and shown (B, C) are what each sub-model says of each pair's relevance and exposure.
    """
    click = click[:, None]
    relevance = inverse_propensity(logit, click, weights(shown, part))
    return relevance + inverse_propensity(torch.logit(shown), click, weights(sigmoid(logit), part))


def residual_loss(logit: Tensor, shown: Tensor, click: Tensor) -> Tensor:
    """L2 of the relevance with the residual, at the mean exposure of the sub-models, (B, C)."""
    return low_variance(logit, click[:, None], shown.detach().mean(1, keepdim=True))


def learns(part: Tensor, n_models: int) -> Tensor:
    """Which sub-models learn from each pair, (B, C): all but that of its part, or the only one."""
    if n_models == 1:
        return torch.ones(len(part), 1, dtype=torch.bool, device=part.device)
    return part[:, None] != torch.arange(n_models, device=part.device)


class ReferenceLearner:
    """The losses above by autograd, in any precision, on any device: the oracle."""

    def __init__(
        self,
        optimiser: Optimiser,
        tables: Mapping[str, NDArray[Any]],
        popularity: NDArray[Any],
        *,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
    ) -> None:
        placed: dict[str, Any] = {"dtype": dtype, "device": device}
        self._tables = {name: torch.tensor(table, **placed) for name, table in tables.items()}
        self._popularity = torch.tensor(popularity, **placed)
        self._optimiser = optimiser
        self._n_models = len(tables["exposure_bias"])
        self._adam: dict[str, RowAdam] = {}
        for name, table in self._tables.items():
            rates: Rates = getattr(optimiser, name.split("_")[0])
            # a row for Adam is what one sub-model holds of a user or item: one that no pair of
            # the batch reaches keeps still, decay included
            rows = table if name.startswith("exposure") else table.view(-1, table.shape[-1])
            with torch.device(device):
                self._adam[name] = RowAdam(
                    rows, learning_rate=rates.learning_rate, weight_decay=rates.weight_decay
                )

    def compile(self) -> None:
        """Nothing to do."""

    def epoch(self, samples: Samples, *, batch_size: int) -> float:
        return float(np.mean([self.step(batch) for batch in samples.batches(batch_size)]))

    def tables(self) -> Tables:
        return {name: table.cpu().numpy().copy() for name, table in self._tables.items()}

    def state(self) -> Tables:
        return {name: tensor.cpu().numpy() for name, tensor in self._memory().items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        held = self.state()
        put_back(held, state)
        for name, tensor in self._memory().items():  # on a card, what is held is a copy
            tensor.copy_(torch.from_numpy(held[name]))

    def _memory(self) -> dict[str, Tensor]:
        moments = {
            f"{name}.{moment}": tensor
            for name, adam in self._adam.items()
            for moment, tensor in adam.moments().items()
        }
        return self._tables | moments

    def step(self, batch: Samples) -> float:
        """Learn from a batch, all gradients at the same point; the mean loss before the step."""
        device, dtype = self._popularity.device, self._popularity.dtype
        part = torch.as_tensor(batch.part, device=device).long()
        click = torch.as_tensor(batch.click, device=device, dtype=dtype)
        found = {
            kind: torch.unique(torch.as_tensor(rows, device=device).long(), return_inverse=True)
            for kind, rows in (("user", batch.users), ("item", batch.items))
        }
        leaves = {
            name: (table if name.startswith("exposure") else table[found[kind_of(name)][0]])
            .detach()
            .clone()
            .requires_grad_()
            for name, table in self._tables.items()
        }

        def vectors(kind: str, table: str) -> Tensor:
            """Of each pair, (B, C, dim)."""
            return leaves[f"{table}_{kind}_factors"].index_select(0, found[kind][1])

        users, items = vectors("user", "submodel"), vectors("item", "submodel")
        shown = item_exposure(
            leaves["submodel_item_factors"],
            leaves["exposure_weight"],
            leaves["exposure_bias"],
            self._popularity[found["item"][0]],
        ).index_select(0, found["item"][1])
        taken = learns(part, self._n_models)
        loss = (taken * joint_loss(bounded_logit(users, items), shown, click, part)).sum()
        if self._optimiser.residual:
            users = users.detach() + vectors("user", "residual")
            items = items.detach() + vectors("item", "residual")
            loss = loss + residual_loss(bounded_logit(users, items), shown, click).sum()
        loss = loss / len(part)
        gradients = torch.autograd.grad(loss, list(leaves.values()))
        for name, gradient in zip(leaves, gradients, strict=True):
            if name.startswith("exposure"):
                models = torch.nonzero(taken.any(0))[:, 0]
                self._adam[name].step(models, gradient[models])
            else:
                reached = torch.ones_like(taken) if name.startswith("residual") else taken
                rows, at = found[kind_of(name)]
                self._move(name, rows, at, reached, gradient)
        return float(loss.detach())

    def _move(self, name: str, rows: Tensor, at: Tensor, taken: Tensor, gradient: Tensor) -> None:
        """Adam's step for what each sub-model holds of these rows, where it learned from one."""
        n_models = taken.shape[1]
        count = torch.zeros(len(rows), n_models, device=rows.device)
        reached = count.index_add_(0, at, taken.float()) > 0
        flat = rows[:, None] * n_models + torch.arange(n_models, device=rows.device)
        self._adam[name].step(flat[reached], gradient[reached])


def kind_of(name: str) -> str:
    return name.split("_")[1]


def build(
    optimiser: Optimiser, tables: Tables, popularity: NDArray[Any], *, name: Name = "auto"
) -> Learner:
    """The learner of this engine; on a card it is the reference, which the CPU's outruns."""
    from unexposed.engine import cuda
    from unexposed.engine.cjmf_cpu import CpuLearner

    if name in ("auto", "cpu"):
        return CpuLearner(optimiser, tables, popularity)
    if name == "cuda" and not cuda.available():
        raise InputError("there is no CUDA card here, or no triton; use engine cpu or auto")
    device = "cuda" if name == "cuda" else "cpu"
    return ReferenceLearner(optimiser, tables, popularity, device=device)
