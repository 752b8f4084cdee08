"""The step of CJMF (Zhu et al. 2020), by autograd on any device.

C sub-models learn side by side. For one of them p = σ(ω_uᵀω_i) is a pair's relevance and m the
exposure of its item:

    L  = −[ c/m·log p + (1 − c/m)·log(1 − p) ]      the relevance, at the other's fixed weight 1/m
         −[ c/p·log m + (1 − c/p)·log(1 − m) ]      the exposure, at the other's fixed weight 1/p
    L′ = −[ c·log(m̄p′) + (1 − c)·log(1 − m̄p′) ]     the residual, p′ = σ((ω_u + ρ_u)ᵀ(ω_i + ρ_i))

The other is the sub-model of the pair's part: L teaches it nothing from the pair, and all others
learn. m̄ is the mean over sub-models. ρ learns from every pair by L′, at fixed ω, and stays out of
L. The loss of a batch is the sum over its pairs and the sub-models, divided by its clicks. A
sub-model's vector of a user or item moves only if the sub-model learned from one of its pairs.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.data.pairs import Indices
from unexposed.engine.adam import RowAdam, memory_of, put_back
from unexposed.late import Dtype, Tensor, sigmoid, torch
from unexposed.maths.losses import inverse_propensity, low_variance
from unexposed.sampling.samples import Samples

LEAST, MOST = 0.01, 0.99  # every probability is kept in these bounds
CHUNK = 64  # clicks whose vectors fit into a cache
LARGEST_LOGIT = math.log(MOST / LEAST)

Tables = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class PartedSamples:
    """Clicks with their drawn items, and the part that each click and its items belong to.

    Every pair counts 1, whatever its weight.
    """

    drawn: Samples
    part: Indices  # (clicks,)

    def __len__(self) -> int:
        return len(self.part)

    def batches(self, size: int) -> Iterator["PartedSamples"]:
        """Cut into batches of `size` clicks, the last one shorter."""
        for number, batch in enumerate(self.drawn.batches(size)):
            yield PartedSamples(batch, self.part[number * size :][:size])


@dataclass(frozen=True)
class Rates:
    """Adam's learning rate and weight decay for one kind of table."""

    learning_rate: float
    weight_decay: float


@dataclass(frozen=True)
class JointRates:
    """The rates of every kind of table; without rates for it, there is no residual."""

    submodel: Rates
    exposure: Rates
    residual: Rates | None


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


def bounded(logit: Tensor) -> Tensor:
    """The logit of a relevance kept in bounds; no slope where it was out of them."""
    return logit.clamp(-LARGEST_LOGIT, LARGEST_LOGIT)


class Grid:
    """The pairs of a batch, item_at[n, k] being drawn for a click of user_at[n].

    Rows of both tables are (rows, C, dim). Each sum of `sums` is over the pairs of one row.
    """

    def __init__(self, user_at: Tensor, item_at: Tensor, sizes: tuple[int, int, int]) -> None:
        *self.sizes, n_models = sizes
        self._every = torch.arange(n_models, device=item_at.device)[:, None]
        self.user_at, self.item_at = user_at, item_at
        both = user_at[:, None].expand_as(item_at).reshape(-1), item_at.reshape(-1)
        self._both = both
        self._orders = [torch.argsort(at, stable=True) for at in both]

    def products(self, users: Tensor, items: Tensor) -> Tensor:
        """ω_ucᵀω_ic of each pair, (n, k, C)."""
        parts = zip(torch.split(self.user_at, CHUNK), torch.split(self.item_at, CHUNK), strict=True)
        return torch.cat(
            [(users.index_select(0, user)[:, None] * items[item]).sum(-1) for user, item in parts]
        )

    def sums(self, weight: Tensor, table: Tensor, *, of_items: bool) -> Tensor:
        """Σ weight (pairs, C) times the other row of each pair, for every user or every item."""
        n_models, dim = table.shape[1:]
        to, other, order = self._both[of_items], self._both[not of_items], self._orders[of_items]
        rows = torch.arange(self.sizes[of_items], device=to.device)
        bags = torch.nn.functional.embedding_bag(
            (other[order] * n_models + self._every).view(-1),  # by sub-model, then by row
            table.reshape(-1, dim),
            (self._every * len(to) + torch.searchsorted(to[order], rows)).view(-1),
            mode="sum",
            per_sample_weights=weight[order].T.reshape(-1),
        )
        return bags.view(n_models, len(rows), dim).transpose(0, 1)


def logits(users: Tensor, items: Tensor, grid: Grid) -> Tensor:
    """`Grid.products`, differentiable: autograd alone would keep tables of (pairs, C, dim)."""

    class Products(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, users: Tensor, items: Tensor) -> Tensor:
            ctx.save_for_backward(users, items)
            return grid.products(users, items)

        @staticmethod
        def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor]:
            users, items = ctx.saved_tensors
            slope = slope.flatten(0, 1)
            on_users = grid.sums(slope, items, of_items=False)
            return on_users, grid.sums(slope, users, of_items=True)

    apply: Any = Products.apply
    return apply(users, items)


def joint_loss(logit: Tensor, shown: Tensor, click: Tensor, part: Tensor) -> Tensor:
    """L1 of the relevance weighted by exposure, and of the exposure by relevance, (…, C).

    logit and shown (…, C) are each sub-model's relevance logit and exposure of each pair; click
    and part (…) say which pairs are clicks, and whose sub-model gives the weights.
    """

    def weight(probability: Tensor) -> Tensor:
        return probability.detach().gather(-1, part[..., None])

    click = click[..., None]
    relevance = inverse_propensity(logit, click, weight(shown))
    return relevance + inverse_propensity(torch.logit(shown), click, weight(sigmoid(logit)))


def residual_loss(logit: Tensor, shown: Tensor, click: Tensor) -> Tensor:
    """L2 of the relevance with the residual, at the mean exposure of the sub-models, (…, C)."""
    return low_variance(logit, click[..., None], shown.detach().mean(-1, keepdim=True))


class Learner:
    """The tables of all sub-models, and Adam on the rows that a batch reaches."""

    def __init__(
        self,
        rates: JointRates,
        tables: Mapping[str, NDArray[Any]],
        popularity: NDArray[Any],
        *,
        dtype: Dtype | None = None,
        device: str = "cpu",
    ) -> None:
        place: dict[str, Any] = {"dtype": dtype or torch.float32, "device": device}
        self._tables = {name: torch.tensor(table, **place) for name, table in tables.items()}
        self._popularity = torch.tensor(popularity, **place)
        self._kinds = ("submodel", "residual") if rates.residual else ("submodel",)
        self._n_models = len(tables["exposure_bias"])
        self._steps = np.zeros(1, dtype=np.int64)  # taken so far
        self._adam: dict[str, RowAdam] = {}
        for name, table in self._tables.items():
            own: Rates = getattr(rates, name.split("_")[0])
            self._adam[name] = RowAdam(
                table, learning_rate=own.learning_rate, weight_decay=own.weight_decay
            )

    def epoch(self, samples: PartedSamples, *, batch_size: int) -> float:
        """Take a step on each batch; the mean over batches of the loss before its step."""
        return float(np.mean([self.step(batch) for batch in samples.batches(batch_size)]))

    def tables(self) -> Tables:
        """A copy of the learned tables, by name."""
        return {name: table.cpu().numpy().copy() for name, table in self._tables.items()}

    def state(self) -> Tables:
        """All that a step reads and changes, by name; views where possible."""
        memory = memory_of(self._tables, self._adam)
        return {n: t.cpu().numpy() for n, t in memory.items()} | {"steps": self._steps}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Put back the tables, moments and steps that `state` gave."""
        put_back(memory_of(self._tables, self._adam), state)
        self._steps[:] = state["steps"]

    def step(self, batch: PartedSamples) -> float:
        """Learn from a batch, all gradients at the same point; its loss before the step."""
        self._steps += 1
        device = self._popularity.device
        drawn, part = batch.drawn, torch.from_numpy(batch.part).long().to(device)
        # the items of each click in a row, (clicks, most): the clicked one first, the rest padding
        each = np.diff(drawn.start)
        places = drawn.start[:-1, None] + np.arange(max(1, each.max(initial=1)))
        there = torch.from_numpy(places < drawn.start[1:, None]).to(device)
        padded = drawn.items[np.minimum(places, len(drawn.items) - 1)]
        items, item_at = _distinct(padded, device)
        users, user_at = _distinct(drawn.users, device)
        rows = {"user": users, "item": items}
        leaves = {
            name: (table if name.startswith("exposure") else table[rows[_side(name)]])
            .detach()
            .clone()
            .requires_grad_()
            for name, table in self._tables.items()
        }
        click = torch.zeros_like(item_at, dtype=self._popularity.dtype)
        click[:, 0] = 1

        grid = Grid(user_at, item_at, (len(users), len(items), self._n_models))
        user, item = leaves["submodel_user_factors"], leaves["submodel_item_factors"]
        exposure = (leaves["exposure_weight"], leaves["exposure_bias"], self._popularity[items])
        shown = item_exposure(item, *exposure).index_select(0, item_at.reshape(-1))
        shown = shown.view(*item_at.shape, -1)
        learns = there[..., None].expand_as(shown)
        if self._n_models > 1:  # the only sub-model weighs its own clicks
            learns = (
                learns & (part[:, None] != torch.arange(self._n_models, device=device))[:, None]
            )
        parts = part[:, None].expand_as(item_at)
        logit = bounded(logits(user, item, grid))
        loss = (learns * joint_loss(logit, shown, click, parts)).sum()
        if len(self._kinds) == 2:
            user = user.detach() + leaves["residual_user_factors"]
            item = item.detach() + leaves["residual_item_factors"]
            logit = bounded(logits(user, item, grid))
            loss = loss + (there[..., None] * residual_loss(logit, shown, click)).sum()
        loss = loss / len(batch)
        gradients = torch.autograd.grad(loss, list(leaves.values()))
        for name, gradient in zip(leaves, gradients, strict=True):
            if name.startswith("exposure"):
                at = torch.arange(self._n_models, device=device)
            else:
                at = rows[_side(name)]
            moves = None if name.startswith("residual") else self._reached(name, learns, grid)
            self._adam[name].step(at, gradient, number=int(self._steps[0]), moves=moves)
        return float(loss.detach())

    def _reached(self, name: str, learns: Tensor, grid: Grid) -> Tensor | None:
        """Which vectors a pair of the batch reaches: others do not move, not even by decay."""
        taken = learns.flatten(0, 1).to(self._popularity.dtype)
        if name.startswith("exposure"):
            reached = taken.any(0).view(-1, *(1,) * (self._tables[name].dim() - 1))
        else:
            one = taken.new_ones(max(grid.sizes), self._n_models, 1)
            reached = grid.sums(taken, one, of_items=_side(name) == "item") > 0
        return None if reached.all() else reached


def _side(name: str) -> str:
    """ "user" or "item", of a table's name."""
    return name.split("_")[1]


def _distinct(rows: NDArray[Any], device: Any) -> tuple[Tensor, Tensor]:
    return torch.unique(torch.from_numpy(rows).long().to(device), return_inverse=True)
