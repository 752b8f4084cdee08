"""The specification: steps by autograd, in float32 or float64, for every objective."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.engine.adam import RowAdam, tables_of
from unexposed.engine.exchange import Alone, Exchange
from unexposed.engine.objective import Initial, Objective, Optimiser, put_back
from unexposed.late import Dtype, Tensor, torch
from unexposed.maths import bilevel
from unexposed.maths.exposure import gated
from unexposed.maths.losses import LOSSES, PAIRWISE_LOSSES
from unexposed.maths.relevance import Columns, DotProduct, Relevance, Touched, columns_of
from unexposed.sampling.samples import Samples
from unexposed.sampling.validation import ValidationSet

LEARNED_EXPOSURE = ("exposure_user_factors", "exposure_feature_weight", "gate_weight", "gate_bias")


class ReferenceEngine:
    """Tables as torch tensors; the gradient of every step comes from autograd.

    `exposure` is given for each item (n_items,) or each pair (n_users, n_items); for a learned
    exposure it is the popularity that the gate mixes in. `features` (n_users, …) are mapped into
    e_u where the parameters hold an `exposure_feature_weight` in place of free user vectors.
    `relevance` gives the logits; the dot product of `user_factors` and `item_factors` if not given.
    With an `exchange`, users, samples and validation pairs are those of this rank.
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
        relevance: Relevance | None = None,
        exchange: Exchange | None = None,
        dtype: Dtype | None = None,
    ) -> None:
        dtype = dtype or torch.float32
        self._objective = objective
        self._exchange = exchange or Alone()
        self._relevance = relevance or DotProduct(0, 0.0)
        self._optimiser = optimiser
        self._tables = {name: torch.tensor(a, dtype=dtype) for name, a in parameters.items()}
        self._exposure = None if exposure is None else torch.tensor(exposure, dtype=dtype)
        self._features = None if features is None else torch.tensor(features, dtype=dtype)
        self._validation = validation
        self._n_parts = objective.validation_parts(validation)
        self._steps = 0  # taken so far
        self._dtype = dtype
        self._columns = {
            name: Columns() if name in LEARNED_EXPOSURE else columns_of(self._relevance, name)
            for name in self._tables
        }
        self._adam = {name: self._row_adam(name) for name in self._tables}

    def compile(self) -> None:
        pass

    def epoch(self, samples: Samples, *, batch_size: int) -> float:
        losses = [self.step(batch) for batch in samples.batches(batch_size)]
        return float(np.mean(losses)) if losses else 0.0

    def step(self, batch: Samples) -> float:
        """Learn from a batch; its loss before the step."""
        self._steps += 1
        pairs = _Batch(batch, self._dtype, *self._exchange.touched(batch.items))
        strategy = self._objective.strategy
        if strategy is None:
            return self._relevance_step(pairs, self._given(pairs))
        if strategy == "frozen":
            return self._relevance_step(pairs, self._learned(pairs, self._alpha(pairs)).detach())
        if strategy == "joint":  # both gradients at the same point
            gradients = self._exposure_gradients(pairs)
            loss = self._relevance_step(pairs, self._learned(pairs, self._alpha(pairs)).detach())
            self._exposure_step(pairs, gradients)
            return loss
        self._exposure_step(pairs, self._exposure_gradients(pairs))
        return self._relevance_step(pairs, self._learned(pairs, self._alpha(pairs)).detach())

    def parameters(self) -> dict[str, NDArray[Any]]:
        return {name: table.clone().numpy() for name, table in self._tables.items()}

    def state(self) -> dict[str, NDArray[Any]]:
        return tables_of(self._tables, self._adam) | {"steps": np.array([self._steps])}

    def restore(self, state: Initial) -> None:
        put_back(tables_of(self._tables, self._adam), state)
        self._steps = int(state["steps"][0])

    def give_exposure(self, table: NDArray[Any]) -> None:
        self._exposure = torch.tensor(table, dtype=self._dtype)

    def _row_adam(self, name: str) -> RowAdam:
        o = self._optimiser
        if name in LEARNED_EXPOSURE:
            pace = o.gate_pace if name.startswith("gate") else 1.0
            rates = (o.exposure_learning_rate * pace, o.exposure_weight_decay)
        else:
            rates = (o.learning_rate, o.weight_decay)
        return RowAdam(
            self._tables[name],
            learning_rate=rates[0],
            weight_decay=rates[1],
            decaying=self._columns[name].decaying,
        )

    # ω: relevance -----------------------------------------------------------------------------

    def _relevance_step(self, pairs: "_Batch", exposure: Tensor) -> float:
        """One Adam step on the loss of the batch, the exposure held fixed."""
        touched = self._touched(pairs)
        leaves = self._leaves(touched)
        logit = self._logits(touched, leaves, pairs.users, pairs.items)
        if self._objective.loss in PAIRWISE_LOSSES:
            drawn = pairs.click == 0
            first = pairs.first_at[drawn]
            shown = exposure[first] if exposure.dim() else exposure
            value = PAIRWISE_LOSSES[self._objective.loss].value(logit[first] - logit[drawn], shown)
            loss = (pairs.weight[drawn] * value).sum()
        else:
            value = LOSSES[self._objective.loss].value(logit, pairs.click, exposure)
            loss = (pairs.weight * value).sum()
        loss = loss / pairs.n_clicks
        gradients = dict(zip(touched, torch.autograd.grad(loss, leaves), strict=True))
        gradients = self._exchange.total(gradients | {"loss": loss})
        for name, (rows, times) in touched.items():
            shape = (-1, *(1 for _ in gradients[name].shape[1:]))
            terms = times.to(self._dtype).reshape(shape) / pairs.n_clicks
            self._adam[name].step(rows, gradients[name], number=self._steps, terms=terms)
        return float(gradients["loss"].detach())

    def _touched(self, pairs: "_Batch") -> dict[str, Touched]:
        """The rows of own users, and every row of items that the whole batch touches."""
        return self._relevance.touched(self._tables, pairs.users, pairs.every_item)

    def _leaves(self, touched: dict[str, Touched]) -> tuple[Tensor, ...]:
        """The touched rows of each table, as leaves of autograd."""
        return tuple(self._tables[name][t.rows].requires_grad_() for name, t in touched.items())

    def _logits(
        self,
        touched: dict[str, Touched],
        leaves: tuple[Tensor, ...],
        users: Tensor,
        items: Tensor,
    ) -> Tensor:
        """The logits of pairs, the touched rows replaced by these, except in fixed columns.

        So a fixed column has no gradient, neither here nor in the look-ahead.
        """
        tables = dict(self._tables)
        for (name, t), rows in zip(touched.items(), leaves, strict=True):
            fixed = self._columns[name].fixed
            if fixed is not None:
                held = torch.arange(rows.shape[1]) == fixed
                rows = torch.where(held, tables[name][t.rows], rows)
            tables[name] = tables[name].index_put((t.rows,), rows)
        return self._relevance.logits(tables, users, items)

    # α: exposure ------------------------------------------------------------------------------

    def _given(self, pairs: "_Batch") -> Tensor:
        if self._exposure is None:
            return pairs.with_known(torch.ones((), dtype=self._dtype))
        if self._exposure.dim() == 1:
            return pairs.with_known(self._exposure[pairs.items])
        return pairs.with_known(self._exposure[pairs.users, pairs.items])

    def _alpha(self, pairs: "_Batch") -> tuple[Tensor, ...]:
        """The exposure parameters that the batch touches, as leaves: e (or its map), w, b."""
        if "exposure_feature_weight" in self._tables:
            first = self._tables["exposure_feature_weight"].clone()
        else:
            first = self._tables["exposure_user_factors"][pairs.user_rows]
        rest = (self._tables["gate_weight"].clone(), self._tables["gate_bias"].clone())
        return tuple(t.requires_grad_() for t in (first, *rest))

    def _learned(self, pairs: "_Batch", alpha: tuple[Tensor, ...]) -> Tensor:
        """m of each pair of the batch, as a function of α; ω enters detached.

        A known m is a constant: no gradient reaches α through it.
        """
        assert self._exposure is not None
        first, gate_weight, gate_bias = alpha
        if self._features is not None:
            first = self._features[pairs.user_rows] @ first
        learned = gated(
            first[pairs.user_at],
            self._relevance.item_vectors(self._tables, pairs.items),
            gate_weight,
            gate_bias,
            self._exposure[pairs.items],
            offset=self._objective.offset,
        )
        return pairs.with_known(learned)

    def _train_loss(self, pairs: "_Batch") -> Callable[..., Tensor]:
        """L_train(ω, α) of the batch, a sum over its pairs, ω being the rows it touches."""
        value, touched = LOSSES[self._objective.loss].value, self._touched(pairs)

        def loss(relevance: tuple[Tensor, ...], alpha: tuple[Tensor, ...]) -> Tensor:
            logit = self._logits(touched, relevance, pairs.users, pairs.items)
            return (pairs.weight * value(logit, pairs.click, self._learned(pairs, alpha))).sum()

        return loss

    def _exposure_gradients(self, pairs: "_Batch") -> tuple[Tensor, ...]:
        """∂/∂α of what the strategy minimises (see `bilevel.py`)."""
        alpha = self._alpha(pairs)
        relevance = self._leaves(self._touched(pairs))
        train_loss = self._train_loss(pairs)
        strategy = self._objective.strategy
        if strategy in ("joint", "alternate"):
            return torch.autograd.grad(train_loss(relevance, alpha), alpha)
        names = tuple(self._touched(pairs))

        def total(gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return tuple(self._exchange.total(dict(zip(names, gradients, strict=True))).values())

        ahead: dict[str, Any] = {"lookahead": self._optimiser.lookahead, "total": total}
        if strategy == "bilevel_on_batch":
            return bilevel.hypergradient_on_batch(train_loss, relevance, alpha, **ahead)
        validation_loss = self._validation_loss(pairs)
        return bilevel.hypergradient(train_loss, validation_loss, relevance, alpha, **ahead)

    def _validation_loss(self, pairs: "_Batch") -> Callable[..., Tensor]:
        """L_val(ω'), m = 1: ω' differs from ω in the rows that the batch touches.

        A part of the validation pairs stands for all of them, so it counts that much more.
        """
        assert self._validation is not None
        number = (self._steps - 1) % self._n_parts  # round and round
        bounds, scales = self._validation.bounds(self._n_parts)
        part = slice(int(bounds[number]), int(bounds[number + 1]))
        users, items, relevant = _indices(self._validation, part, self._dtype)
        scale, touched = float(scales[number]), self._touched(pairs)

        def loss(relevance: tuple[Tensor, ...]) -> Tensor:
            logit = self._logits(touched, relevance, users, items)
            one = torch.ones((), dtype=self._dtype)
            return scale * LOSSES["low_variance"].value(logit, relevant, one).sum()

        return loss

    def _exposure_step(self, pairs: "_Batch", gradients: tuple[Tensor, ...]) -> None:
        names = [name for name in LEARNED_EXPOSURE if name in self._tables]
        summed = self._exchange.total(dict(zip(names, gradients, strict=True)))
        for name, gradient in summed.items():
            of_users = name == "exposure_user_factors"
            rows = pairs.user_rows if of_users else torch.arange(len(gradient))
            self._adam[name].step(rows, gradient, number=self._steps)


class _Batch:
    """A batch as tensors, with its distinct users and where each pair finds its own.

    `rows` are the items that the batch touches on any rank, `times` how often it does.
    """

    def __init__(
        self, samples: Samples, dtype: Dtype, rows: NDArray[Any], times: NDArray[Any]
    ) -> None:
        pairs = samples.pairs()
        self.n_clicks = samples.n_clicks
        self.every_item = torch.from_numpy(np.repeat(rows, times)).long()
        self.users = torch.from_numpy(pairs.users).long()
        self.items = torch.from_numpy(pairs.items).long()
        self.click = torch.from_numpy(pairs.click).to(dtype)
        self.weight = torch.from_numpy(pairs.weight).to(dtype)
        # the pair of the click that each pair belongs to
        self.first_at = torch.from_numpy(np.repeat(samples.start[:-1], np.diff(samples.start)))
        self.user_rows, self.user_at = torch.unique(self.users, return_inverse=True)
        known = pairs.exposure
        self._known = None if known is None else torch.from_numpy(known).to(dtype)

    def with_known(self, exposure: Tensor) -> Tensor:
        """This exposure, except for pairs whose m is given."""
        if self._known is None:
            return exposure
        return torch.where(torch.isnan(self._known), exposure, self._known)


def _indices(validation: ValidationSet, part: slice, dtype: Dtype) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.from_numpy(validation.users[part]).long(),
        torch.from_numpy(validation.items[part]).long(),
        torch.from_numpy(validation.relevant[part]).to(dtype),
    )
