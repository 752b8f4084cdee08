"""The specification: steps by autograd, for every objective and relevance, on any device."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.engine.adam import RowAdam, memory_of, put_back
from unexposed.engine.objective import (
    EXPOSURE_TABLES,
    PRODUCT,
    Initial,
    Objective,
    Optimiser,
)
from unexposed.engine.workers import Alone, Exchange
from unexposed.late import Dtype, Tensor, torch
from unexposed.maths import bilevel
from unexposed.maths.exposure import gated
from unexposed.maths.losses import LOSSES, PAIRWISE_LOSSES
from unexposed.maths.relevance import Relevance, Touched
from unexposed.sampling.samples import Batches, Samples
from unexposed.sampling.validation import ValidationSet


class ReferenceEngine:
    """Tables as torch tensors; the gradient of every step comes from autograd.

    `exposure` is given for each item (n_items,) or each pair (n_users, n_items); for a learned
    exposure it is the popularity that the gate mixes in. `features` (n_users, …) are mapped into
    e_u where the parameters hold an `exposure_feature_weight` in place of free user vectors. Where
    items are `held`, only the rows of users learn. With an `exchange`, users, samples and
    validation pairs are those of this worker.
    """

    def __init__(
        self,
        objective: Objective,
        optimiser: Optimiser,
        parameters: Initial,
        *,
        exposure: NDArray[Any] | None = None,
        features: NDArray[Any] | None = None,
        validation: ValidationSet | None = None,
        relevance: Relevance = PRODUCT,
        held: bool = False,
        exchange: Exchange | None = None,
        dtype: Dtype | None = None,
        device: str = "cpu",
    ) -> None:
        self._place: dict[str, Any] = {"dtype": dtype or torch.float32, "device": device}
        self._objective, self._optimiser = objective, optimiser
        self._exchange = exchange or Alone()
        self._relevance, self._held = relevance, held
        self._tables = {name: torch.tensor(a, **self._place) for name, a in parameters.items()}
        self._kinds = EXPOSURE_TABLES | dict(relevance.tables)
        self._own = {name for name in self._tables if self._kinds[name].rows == "users"}
        self._exposure = None if exposure is None else torch.tensor(exposure, **self._place)
        self._features = None if features is None else torch.tensor(features, **self._place)
        self._validation = validation
        self._n_parts = objective.validation_parts(validation)
        self._steps = 0  # taken so far
        self._adam = {name: self._row_adam(name) for name in self._tables}

    def compile(self) -> None:
        pass

    def epoch(self, samples: Samples, *, batch_size: int) -> float:
        losses = [self.step(batch) for batch in samples.batches(batch_size)]
        return float(np.mean(losses)) if losses else 0.0

    def learn(self, samples: Samples, batches: Batches) -> None:
        for before, batch in zip(batches.before.tolist(), samples.parts(batches), strict=True):
            self._steps = before
            self.step(batch)

    def step(self, samples: Samples) -> float:
        """Learn from a batch; its loss before the step."""
        self._steps += 1
        batch = self._batch(samples)
        strategy = self._objective.strategy
        if strategy is None:
            return self._relevance_step(batch, self._given(batch))
        if strategy == "frozen":
            return self._relevance_step(batch, self._learned(batch, self._alpha(batch)).detach())
        if strategy == "joint":  # both gradients at the same point
            gradients = self._exposure_gradients(batch)
            loss = self._relevance_step(batch, self._learned(batch, self._alpha(batch)).detach())
            self._exposure_step(batch, gradients)
            return loss
        self._exposure_step(batch, self._exposure_gradients(batch))
        return self._relevance_step(batch, self._learned(batch, self._alpha(batch)).detach())

    def parameters(self) -> dict[str, NDArray[Any]]:
        return {name: table.cpu().numpy().copy() for name, table in self._tables.items()}

    def state(self) -> dict[str, NDArray[Any]]:
        memory = memory_of(self._tables, self._adam)
        arrays = {name: tensor.cpu().numpy() for name, tensor in memory.items()}
        return arrays | {"steps": np.array([self._steps])}

    def restore(self, state: Initial) -> None:
        put_back(memory_of(self._tables, self._adam), state)
        self._steps = int(state["steps"][0])

    @property
    def user_arrays(self) -> frozenset[str]:
        return frozenset(n for n in self.state() if n.partition(".")[0] in self._own)

    def give_exposure(self, table: NDArray[Any]) -> None:
        self._exposure = torch.tensor(table, **self._place)

    def _row_adam(self, name: str) -> RowAdam:
        o = self._optimiser
        if name in EXPOSURE_TABLES:
            pace = o.gate_pace if name.startswith("gate") else 1.0
            rates = (o.exposure_learning_rate * pace, o.exposure_weight_decay)
        else:
            rates = (o.learning_rate, o.weight_decay)
        return RowAdam(
            self._tables[name],
            learning_rate=rates[0],
            weight_decay=rates[1],
            decaying=self._kinds[name].decaying,
        )

    def _batch(self, samples: Samples) -> "_Batch":
        rows, times = self._exchange.touched(samples.items)
        batch = _Batch(samples, self._place)
        every_item = torch.from_numpy(np.repeat(rows, times)).long().to(batch.items.device)
        touched = self._relevance.touched(self._tables, batch.users, every_item)
        batch.touched = {n: t for n, t in touched.items() if not self._held or n in self._own}
        return batch

    def _total(self, gradients: dict[str, Tensor]) -> dict[str, Tensor]:
        """The gradients of the whole batch, which workers add up for what users share."""
        shared = {n: g for n, g in gradients.items() if n not in self._own}
        return gradients | self._exchange.total(shared)

    # ω: relevance -----------------------------------------------------------------------------

    def _relevance_step(self, batch: "_Batch", exposure: Tensor) -> float:
        """One Adam step on the loss of the batch, the exposure held fixed."""
        leaves = self._leaves(batch)
        logit = self._logits(batch, leaves, batch.users, batch.items)
        if self._objective.loss in PAIRWISE_LOSSES:
            drawn = batch.click == 0
            first = batch.first_at[drawn]
            shown = exposure[first] if exposure.dim() else exposure
            value = PAIRWISE_LOSSES[self._objective.loss].value(logit[first] - logit[drawn], shown)
            loss = (batch.weight[drawn] * value).sum()
        else:
            value = LOSSES[self._objective.loss].value(logit, batch.click, exposure)
            loss = (batch.weight * value).sum()
        loss = loss / batch.n_clicks
        gradients = dict(zip(batch.touched, torch.autograd.grad(loss, leaves), strict=True))
        gradients = self._total(gradients | {"loss": loss.detach()})
        for name, (rows, times) in batch.touched.items():
            shape = (-1, *(1 for _ in gradients[name].shape[1:]))
            terms = times.to(loss.dtype).reshape(shape) / batch.n_clicks
            self._adam[name].step(rows, gradients[name], number=self._steps, terms=terms)
        return float(gradients["loss"])

    def _leaves(self, batch: "_Batch") -> tuple[Tensor, ...]:
        """The touched rows of each table, as leaves of autograd."""
        touched = batch.touched.items()
        return tuple(self._tables[name][t.rows].requires_grad_() for name, t in touched)

    def _logits(
        self, batch: "_Batch", leaves: tuple[Tensor, ...], users: Tensor, items: Tensor
    ) -> Tensor:
        """The logits of pairs, the touched rows replaced by these, except in fixed columns.

        So a fixed column has no gradient, neither here nor in the look-ahead.
        """
        tables = dict(self._tables)
        for (name, t), rows in zip(batch.touched.items(), leaves, strict=True):
            fixed = self._kinds[name].fixed
            if fixed is not None:
                stays = torch.arange(rows.shape[1], device=rows.device) == fixed
                rows = torch.where(stays, tables[name][t.rows], rows)
            tables[name] = tables[name].index_put((t.rows,), rows)
        return self._relevance.logits(tables, users, items)

    # α: exposure ------------------------------------------------------------------------------

    def _given(self, batch: "_Batch") -> Tensor:
        if self._exposure is None:
            return batch.with_known(torch.ones((), **self._place))
        if self._exposure.dim() == 1:
            return batch.with_known(self._exposure[batch.items])
        return batch.with_known(self._exposure[batch.users, batch.items])

    def _alpha(self, batch: "_Batch") -> tuple[Tensor, ...]:
        """The exposure parameters that the batch touches, as leaves: e (or its map), w, b."""
        if "exposure_feature_weight" in self._tables:
            first = self._tables["exposure_feature_weight"].clone()
        else:
            first = self._tables["exposure_user_factors"][batch.user_rows]
        rest = (self._tables["gate_weight"].clone(), self._tables["gate_bias"].clone())
        return tuple(t.requires_grad_() for t in (first, *rest))

    def _learned(self, batch: "_Batch", alpha: tuple[Tensor, ...]) -> Tensor:
        """m of each pair of the batch, as a function of α; ω enters detached.

        A known m is a constant: no gradient reaches α through it.
        """
        assert self._exposure is not None
        first, gate_weight, gate_bias = alpha
        if self._features is not None:
            first = self._features[batch.user_rows] @ first
        learned = gated(
            first[batch.user_at],
            self._relevance.item_vectors(self._tables, batch.items),
            gate_weight,
            gate_bias,
            self._exposure[batch.items],
            offset=self._objective.offset,
        )
        return batch.with_known(learned)

    def _train_loss(self, batch: "_Batch") -> Callable[..., Tensor]:
        """L_train(ω, α) of the batch, a sum over its pairs, ω being the rows it touches."""
        value = LOSSES[self._objective.loss].value

        def loss(relevance: tuple[Tensor, ...], alpha: tuple[Tensor, ...]) -> Tensor:
            logit = self._logits(batch, relevance, batch.users, batch.items)
            return (batch.weight * value(logit, batch.click, self._learned(batch, alpha))).sum()

        return loss

    def _exposure_gradients(self, batch: "_Batch") -> tuple[Tensor, ...]:
        """∂/∂α of what the strategy minimises (see `bilevel.py`)."""
        alpha, relevance = self._alpha(batch), self._leaves(batch)
        train_loss, strategy = self._train_loss(batch), self._objective.strategy
        if strategy in ("joint", "alternate"):
            return torch.autograd.grad(train_loss(relevance, alpha), alpha)

        def total(gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return tuple(self._total(dict(zip(batch.touched, gradients, strict=True))).values())

        ahead: dict[str, Any] = {"lookahead": self._optimiser.lookahead, "total": total}
        if strategy == "bilevel_on_batch":
            return bilevel.hypergradient_on_batch(train_loss, relevance, alpha, **ahead)
        validation_loss = self._validation_loss(batch)
        return bilevel.hypergradient(train_loss, validation_loss, relevance, alpha, **ahead)

    def _validation_loss(self, batch: "_Batch") -> Callable[..., Tensor]:
        """L_val(ω'), m = 1: ω' differs from ω in the rows that the batch touches.

        A part of the validation pairs stands for all of them, so it counts that much more.
        """
        guide = self._validation
        assert guide is not None
        number = (self._steps - 1) % self._n_parts  # round and round
        bounds, scales = guide.bounds(self._n_parts)
        part, device = slice(*bounds[number : number + 2].tolist()), self._place["device"]
        users, items = (
            torch.from_numpy(c[part]).long().to(device) for c in (guide.users, guide.items)
        )
        relevant = torch.from_numpy(guide.relevant[part]).to(**self._place)
        scale, one = float(scales[number]), torch.ones((), **self._place)

        def loss(relevance: tuple[Tensor, ...]) -> Tensor:
            logit = self._logits(batch, relevance, users, items)
            return scale * LOSSES["low_variance"].value(logit, relevant, one).sum()

        return loss

    def _exposure_step(self, batch: "_Batch", gradients: tuple[Tensor, ...]) -> None:
        names = [name for name in EXPOSURE_TABLES if name in self._tables]
        summed = self._total(dict(zip(names, gradients, strict=True)))
        for name, gradient in summed.items():
            every = torch.arange(len(gradient), device=gradient.device)
            rows = batch.user_rows if name in self._own else every
            self._adam[name].step(rows, gradient, number=self._steps)


class _Batch:
    """A batch as tensors, with its distinct users and where each pair finds its own.

    `touched` are the rows of each table that the batch reads on any worker.
    """

    touched: dict[str, Touched]

    def __init__(self, samples: Samples, place: dict[str, Any]) -> None:
        pairs, device = samples.pairs(), place["device"]
        self.n_clicks = samples.n_clicks
        self.users = torch.from_numpy(pairs.users).long().to(device)
        self.items = torch.from_numpy(pairs.items).long().to(device)
        self.click = torch.from_numpy(pairs.click).to(**place)
        self.weight = torch.from_numpy(pairs.weight).to(**place)
        # the pair of the click that each pair belongs to
        first_at = np.repeat(samples.start[:-1], np.diff(samples.start))
        self.first_at = torch.from_numpy(first_at).to(device)
        self.user_rows, self.user_at = torch.unique(self.users, return_inverse=True)
        known = pairs.exposure
        self._known = None if known is None else torch.from_numpy(known).to(**place)

    def with_known(self, exposure: Tensor) -> Tensor:
        """This exposure, except for pairs whose m is given."""
        if self._known is None:
            return exposure
        return torch.where(torch.isnan(self._known), exposure, self._known)
