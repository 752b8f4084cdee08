"""UBO as a researcher would write it in PyTorch: what the closed form of our engines replaces.

Embedding tables, a look-ahead step that autograd can differentiate through (`create_graph`), and
dense Adam on every table. `benchmarks/engine_cpu.py` times it on the same batches as our engine.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, logsigmoid

Batch = tuple[Tensor, Tensor, Tensor]  # users, items, click


class Relevance(nn.Module):
    """p_ui = σ(ω_uᵀω_i)."""

    def __init__(self, n_users: int, n_items: int, dim: int) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(n_users, dim), nn.Embedding(n_items, dim)
        for table in (self.users, self.items):
            nn.init.normal_(table.weight, std=0.01)


class Exposure(nn.Module):
    """m = r·σ(e_uᵀω_i) + (1 − r)·θ_i, r = σ(wᵀω_i + b)."""

    def __init__(self, n_users: int, dim: int, popularity: Tensor) -> None:
        super().__init__()
        self.users, self.gate = nn.Embedding(n_users, dim), nn.Linear(dim, 1)
        nn.init.normal_(self.users.weight, std=0.01)
        self.register_buffer("popularity", popularity)

    def forward(self, users: Tensor, items: Tensor, item_vectors: Tensor) -> Tensor:
        item_vectors = item_vectors.detach()
        gate = torch.sigmoid(self.gate(item_vectors).squeeze(1))
        seen = torch.sigmoid((self.users(users) * item_vectors).sum(1))
        return gate * seen + (1 - gate) * self.popularity[items]


class UBO:
    """One step a batch: look ahead, exposure on the validation pairs, relevance on the batch."""

    def __init__(
        self,
        *,
        n_users: int,
        n_items: int,
        dim: int,
        popularity: Tensor,
        validation: Batch,
        lookahead: float = 1e-3,
    ) -> None:
        self.relevance = Relevance(n_users, n_items, dim)
        self.exposure = Exposure(n_users, dim, popularity)
        self.validation, self.lookahead = validation, lookahead
        self.adam = torch.optim.Adam(self.relevance.parameters(), lr=1e-3, weight_decay=1e-5)
        self.exposure_adam = torch.optim.Adam(
            self.exposure.parameters(), lr=1e-3, weight_decay=1e-4
        )

    def train_loss(self, tables: Iterable[Tensor], batch: Batch) -> Tensor:
        users, items, click = batch
        user_table, item_table = tables
        item_vectors = embedding(items, item_table)
        logit = (embedding(users, user_table) * item_vectors).sum(1)
        m = self.exposure(users, items, item_vectors)
        clicked = -torch.log(m) - logsigmoid(logit)
        unclicked = -torch.log((1 - m) * torch.sigmoid(logit) + torch.sigmoid(-logit))
        return torch.where(click > 0, clicked, unclicked)

    def validation_loss(self, tables: Iterable[Tensor]) -> Tensor:
        users, items, relevant = self.validation
        user_table, item_table = tables
        logit = (embedding(users, user_table) * embedding(items, item_table)).sum(1)
        return -torch.where(relevant > 0, logsigmoid(logit), logsigmoid(-logit)).sum()

    def step(self, batch: Batch) -> float:
        tables = list(self.relevance.parameters())
        inner = self.train_loss(tables, batch).sum()
        slopes = torch.autograd.grad(inner, tables, create_graph=True)
        ahead = [t - self.lookahead * s for t, s in zip(tables, slopes, strict=True)]
        self.exposure_adam.zero_grad()
        self.validation_loss(ahead).backward(inputs=list(self.exposure.parameters()))
        self.exposure_adam.step()
        self.adam.zero_grad()
        loss = self.train_loss(tables, batch).sum() / batch[2].sum()
        loss.backward(inputs=tables)
        self.adam.step()
        return float(loss.detach())
