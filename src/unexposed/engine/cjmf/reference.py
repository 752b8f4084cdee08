"""The losses of CJMF, and the learner that takes its steps by autograd: the specification."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.engine.adam import RowAdam
from unexposed.engine.cjmf.step import (
    LARGEST_LOGIT,
    LEAST,
    MOST,
    JointRates,
    PartedSamples,
    Rates,
    Tables,
)
from unexposed.engine.objective import put_back
from unexposed.late import Dtype, Tensor, sigmoid, torch
from unexposed.maths.losses import inverse_propensity, low_variance


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
    """The probability that the sub-model of a pair's part gives it: (B, C) → (B, 1), detached."""
    return probability.detach().gather(1, part[:, None])


def joint_loss(logit: Tensor, shown: Tensor, click: Tensor, part: Tensor) -> Tensor:
    """L1 of the relevance weighted by exposure, and of the exposure by relevance, (B, C).

    logit and shown (B, C): each sub-model's relevance logit and exposure of each pair.
    """
    click = click[:, None]
    relevance = inverse_propensity(logit, click, weights(shown, part))
    return relevance + inverse_propensity(torch.logit(shown), click, weights(sigmoid(logit), part))


def residual_loss(logit: Tensor, shown: Tensor, click: Tensor) -> Tensor:
    """L2 of the relevance with the residual, at the mean exposure of the sub-models, (B, C)."""
    return low_variance(logit, click[:, None], shown.detach().mean(1, keepdim=True))


def learns(part: Tensor, n_models: int) -> Tensor:
    """Which sub-models learn from each pair, (B, C): all but its part's, or the only one."""
    if n_models == 1:
        return torch.ones(len(part), 1, dtype=torch.bool, device=part.device)
    return part[:, None] != torch.arange(n_models, device=part.device)


class ReferenceLearner:
    """The losses above by autograd, in any precision, on any device."""

    def __init__(
        self,
        rates: JointRates,
        tables: Mapping[str, NDArray[Any]],
        popularity: NDArray[Any],
        *,
        dtype: Dtype | None = None,
        device: str = "cpu",
    ) -> None:
        placed: dict[str, Any] = {"dtype": dtype or torch.float32, "device": device}
        self._tables = {name: torch.tensor(table, **placed) for name, table in tables.items()}
        self._popularity = torch.tensor(popularity, **placed)
        self._residual = rates.residual is not None
        self._n_models = len(tables["exposure_bias"])
        self._steps = np.zeros(1, dtype=np.int64)  # taken so far
        self._adam: dict[str, RowAdam] = {}
        for name, table in self._tables.items():
            own: Rates = getattr(rates, name.split("_")[0])
            # a row for Adam is one sub-model's vector of a user or item; a row that no pair of
            # the batch reaches does not move, not even by decay
            rows = table if name.startswith("exposure") else table.view(-1, table.shape[-1])
            self._adam[name] = RowAdam(
                rows, learning_rate=own.learning_rate, weight_decay=own.weight_decay
            )

    def compile(self) -> None:
        """Have everything ready for the first step: here, nothing."""

    def epoch(self, samples: PartedSamples, *, batch_size: int) -> float:
        """Take a step on each batch; the mean over batches of the loss before its step."""
        return float(np.mean([self.step(batch) for batch in samples.batches(batch_size)]))

    def tables(self) -> Tables:
        """A copy of the learned tables, by name."""
        return {name: table.cpu().numpy().copy() for name, table in self._tables.items()}

    def state(self) -> Tables:
        """All that a step reads and changes, by name; views where possible."""
        memory = {name: tensor.cpu().numpy() for name, tensor in self._memory().items()}
        return memory | {"steps": self._steps}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Put back the tables, moments and steps that `state` gave."""
        held = self.state()
        put_back(held, state)
        for name, tensor in self._memory().items():  # on a GPU, `held` is a copy
            tensor.copy_(torch.from_numpy(held[name]))

    def _memory(self) -> dict[str, Tensor]:
        moments = {
            f"{name}.{moment}": tensor
            for name, adam in self._adam.items()
            for moment, tensor in adam.moments().items()
        }
        return self._tables | moments

    def step(self, batch: PartedSamples) -> float:
        """Learn from a batch, all gradients at the same point; its loss before the step."""
        self._steps += 1
        device, pairs = self._popularity.device, batch.drawn.pairs()
        click = torch.as_tensor(pairs.click, device=device, dtype=self._popularity.dtype)
        part = torch.as_tensor(batch.part, device=device).long()
        part = part.repeat_interleave(torch.as_tensor(np.diff(batch.drawn.start), device=device))
        found = {
            kind: torch.unique(torch.as_tensor(rows, device=device).long(), return_inverse=True)
            for kind, rows in (("user", pairs.users), ("item", pairs.items))
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
        if self._residual:
            users = users.detach() + vectors("user", "residual")
            items = items.detach() + vectors("item", "residual")
            loss = loss + residual_loss(bounded_logit(users, items), shown, click).sum()
        loss = loss / len(batch)
        gradients = torch.autograd.grad(loss, list(leaves.values()))
        for name, gradient in zip(leaves, gradients, strict=True):
            if name.startswith("exposure"):
                rows, reached = torch.arange(self._n_models, device=device), taken.any(0)
            else:
                all_learn = name.startswith("residual")
                rows, reached = reach(taken | all_learn, *found[kind_of(name)])
            self._adam[name].step(rows[reached], gradient[reached], number=int(self._steps[0]))
        return float(loss.detach())


def reach(taken: Tensor, rows: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """The row in Adam's table of each sub-model's vector, and whether a pair reached it.

    Both (rows, C); pair b has row at[b], and sub-model c learns from it where taken[b, c].
    """
    count = torch.zeros(len(rows), taken.shape[1], device=rows.device)
    reached = count.index_add_(0, at, taken.float()) > 0
    return rows[:, None] * taken.shape[1] + torch.arange(taken.shape[1], device=at.device), reached


def kind_of(name: str) -> str:
    return name.split("_")[1]
