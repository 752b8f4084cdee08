"""Samples drawn on the GPU: the log, and the sampler that draws its epochs there."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks
from unexposed.engine.cuda import load
from unexposed.errors import InputError
from unexposed.late import Tensor, torch
from unexposed.sampling.samples import Drawing, Samples

BLOCK = 256  # pairs of a program


@dataclass(frozen=True)
class DeviceClicks:
    """A click log on the GPU: pairs ordered by user and item, and where each user's begin."""

    users: Tensor  # int32
    items: Tensor  # int32
    user_start: Tensor  # int64, one entry more than there are users
    n_items: int

    @staticmethod
    def of(clicks: Clicks, *, device: str = "cuda") -> "DeviceClicks":
        return DeviceClicks(
            torch.from_numpy(clicks.users).to(device),
            torch.from_numpy(clicks.items).to(device),
            torch.from_numpy(clicks.user_start).to(device),
            clicks.n_items,
        )

    @property
    def n_users(self) -> int:
        return len(self.user_start) - 1

    @property
    def user_counts(self) -> NDArray[np.int64]:
        return self.user_start.diff().cpu().numpy()

    @property
    def item_counts(self) -> NDArray[np.int64]:
        return self.items.bincount(minlength=self.n_items).cpu().numpy()

    def sum_by_user(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """As `Clicks.sum_by_user`, on the host: a GPU would add in any order."""
        users, items = self.users.cpu().numpy(), self.items.cpu().numpy()
        sums = np.bincount(users, values[items], minlength=self.n_users)
        return sums.astype(np.float64, copy=False)


class DeviceSampler:
    """The epochs of a `sampling.Sampler`, drawn on the GPU.

    The distribution is the same, the random stream another: clicked items are rejected, and the
    order is a keyed pseudo-random permutation. The keys of an epoch come from `seed` and its
    number, so a seed gives the same samples on any GPU.
    """

    def __init__(self, clicks: DeviceClicks, drawing: Drawing, *, seed: int) -> None:
        if drawing.every_pair:
            raise InputError("the GPU draws negatives; samples of every pair come from the host")
        self._device = clicks.users.device
        self._kernel = load(self._device.type, "drawing_kernel").draw
        self._clicks, self._negatives, self._seed = clicks, drawing.negatives, seed
        law = drawing.law(clicks)
        self.item_weight = drawing.item_weight(law)  # (items,) | None
        self._weight = torch.from_numpy(drawing.weight(clicks, law)).to(self._device)
        # the alias table, whose probabilities are compared with 32 random bits
        keep = torch.from_numpy(np.round(law.keep * 2**32).astype(np.int64)).to(self._device)
        alias = torch.from_numpy(law.alias).to(self._device)
        self._log = clicks.users, clicks.items, clicks.user_start, self._weight, keep, alias
        self._even = law.uniform
        most = int(clicks.user_counts.max(initial=0)) if drawing.source == "unclicked" else 0
        self._probes = most.bit_length()  # of a search among a user's clicks
        self.pairs_a_click = 1 + drawing.negatives
        self.epochs = 0  # drawn so far
        self._plan: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def __len__(self) -> int:
        """The clicks of an epoch."""
        return len(self._clicks.users)

    def next_epoch(self) -> None:
        """New keys."""
        words = np.random.SeedSequence([self._seed, self.epochs]).generate_state(8)
        self.epochs += 1
        side = math.isqrt(max(len(self) - 1, 0)) + 1
        seed = int(words[0]) << 31 | int(words[1]) >> 1
        head = [0, 0, len(self), self._clicks.n_items, self._negatives, side, seed]
        self._plan = np.array([*head, *words[2:].tolist()], dtype=np.int64)

    def fill(self, users: Tensor, weight: Tensor, items: Tensor, *, first: int, count: int) -> None:
        """The users, weights and items of `count` clicks of this epoch, from this place on.

        A click has `pairs_a_click` items, −1 in place of those that its user has none left for.
        """
        self._plan[:2] = first, count
        plan = torch.from_numpy(self._plan).to(self._device)
        self._kernel[(count * self.pairs_a_click // BLOCK + 1,)](
            *(plan, *self._log, users, weight, items),
            EVEN=self._even,
            PROBES=self._probes,
            BLOCK=BLOCK,
            num_warps=8,
        )

    def draw(self, most: int | None = None) -> Samples:
        """The next epoch, or its first `most` clicks, on the host."""
        self.next_epoch()
        each = self.pairs_a_click
        n = len(self) if most is None else min(most, len(self))
        users, items = self._clicks.users.new_zeros(n), self._clicks.users.new_zeros(n * each)
        weight = self._weight.new_zeros(n)
        self.fill(users, weight, items, first=0, count=n)
        found = items.cpu().numpy()
        there = found >= 0
        start = np.concatenate([[0], np.cumsum(there)])[::each]
        columns = users.cpu().numpy(), start, found[there], weight.cpu().numpy()
        return Samples(*columns, self.item_weight)
