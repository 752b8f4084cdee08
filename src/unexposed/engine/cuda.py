"""The CUDA engine: factor models, every step in closed form, by a few Triton kernels a step.

It gives the parameters that `reference` gives, up to the order in which the gradients of a row are
added: atomic additions come in any order, so two runs differ in their last bits. What it computes
is read in `losses.py`, `exposure.py` and `bilevel.py`; how, in `cuda_kernels.py`.

Steps are captured once as a CUDA graph and replayed: where a batch starts is counted on the card.
`epoch` learns from samples of the host; `train_epoch` from samples that a `DeviceSampler` draws on
the card, so that the host has nothing to do.
"""

import gc
import importlib.util
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unexposed.data import Clicks
from unexposed.engine import Initial, Objective, Optimiser, has_closed_form
from unexposed.engine.adam import BETA1, BETA2, EPSILON
from unexposed.errors import InputError
from unexposed.sampling import Pairs, Triples, Weighting
from unexposed.validation import ValidationSet

CHUNK = 1 << 24  # samples on the card at a time
STEPS_A_GRAPH = 16
LARGE_BATCH = 8192  # from here on there are enough programs to give each more pairs
SMALL_TILE, LARGE_TILE = (8, 4), (32, 8)  # pairs and warps of a program
N_CORRECTIONS = 40_000  # β₂ to this power is 0 in float64, beside 1


def available() -> bool:
    """Whether this machine has a CUDA card, and Triton to write to it."""
    return torch.cuda.is_available() and importlib.util.find_spec("triton") is not None


class CudaEngine:
    """As `ReferenceEngine`, on a card. `parameters` may also be tensors that are there already.

    `device` is the card, or "cpu" for Triton's interpreter (TRITON_INTERPRET=1), which is slow.
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
        dtype: torch.dtype = torch.float32,
        device: str = "cuda",
    ) -> None:
        if not has_closed_form(objective, parameters, features):
            raise InputError(f"the cuda engine does not know {objective}; use the reference engine")
        if objective.strategy == "bilevel" and validation is None:
            raise InputError("the strategy 'bilevel' needs a validation set")
        self._kernels = _kernels(device)
        self._objective = objective
        self._dtype, self._device = dtype, device
        self._names = list(parameters)
        self._dim = parameters["user_factors"].shape[1]
        self._width = -(-self._dim // 8) * 8  # rows of whole 32-byte sectors
        self._users = _Table(parameters["user_factors"], self._width, dtype, device)
        self._items = _Table(parameters["item_factors"], self._width, dtype, device)
        self._seers, self._gate = self._users, self._items  # stand-ins where exposure is given
        if objective.strategy is not None:
            self._seers = _Table(parameters["exposure_user_factors"], self._width, dtype, device)
            self._gate = _Table(self._gate_rows(parameters), self._width, dtype, device)
        self._exposure = None if exposure is None else self._tensor(exposure).contiguous()
        self._guide = self._new_guide(validation)
        self._settings = self._tensor(
            [
                optimiser.learning_rate,
                optimiser.weight_decay,
                optimiser.exposure_learning_rate,
                optimiser.exposure_weight_decay,
                optimiser.exposure_learning_rate * optimiser.gate_pace,
                optimiser.lookahead,
                objective.offset,
                self._guide.scale if self._guide else 1.0,
                BETA1,
                1 - BETA1,
                BETA2,
                1 - BETA2,
                EPSILON,
            ]
        )
        power = np.arange(N_CORRECTIONS).clip(1)[:, None]
        self._corrections = self._tensor(1 / (1 - np.array([BETA1, BETA2]) ** power))
        self._loss = torch.zeros(1, dtype=torch.float64, device=device)
        self._state = torch.zeros(5, dtype=torch.int64, device=device)
        self._claims = 0  # claim numbers given out so far: they only ever grow
        self._turn = 0
        self._sampler: DeviceSampler | None = None  # the last one made
        self._space: _Space | None = None

    def epoch(self, samples: Pairs | Triples, *, batch_size: int) -> float:
        self._check(samples)
        chunk = _chunk(len(samples), batch_size)
        self._loss.zero_()
        for part in samples.batches(chunk):
            space = self._room(chunk, batch_size)
            for name, column in space.samples.items():
                column[: len(part)].copy_(torch.from_numpy(getattr(part, name)))
            self._run(space, len(part))
        return self._mean_loss(len(samples), batch_size)

    def sampler(
        self, clicks: Clicks, *, negatives: int, weighting: Weighting, pairwise: bool, seed: int
    ) -> "DeviceSampler":
        """What draws the epochs of this log on the card."""
        self._sampler = DeviceSampler(
            DeviceClicks.of(clicks, device=self._device),
            negatives=negatives,
            seed=seed,
            weighting=weighting,
            pairwise=pairwise,
        )
        return self._sampler

    def train_epoch(self, sampler: "DeviceSampler", *, batch_size: int) -> float:
        """As `epoch`, on the sampler's next epoch, drawn on the card."""
        n = len(sampler)
        chunk = _chunk(n, batch_size)
        sampler.next_epoch()
        self._loss.zero_()
        for start in range(0, n, chunk):
            space, count = self._room(chunk, batch_size), min(chunk, n - start)
            sampler.fill(space.samples, start, count)
            self._run(space, count)
        return self._mean_loss(n, batch_size)

    def parameters(self) -> dict[str, NDArray[Any]]:
        found = {"user_factors": self._users, "item_factors": self._items}
        if self._objective.strategy is not None:
            found |= {"exposure_user_factors": self._seers, "gate": self._gate}
        arrays = {k: t.rows[:, 0, : self._dim].cpu().numpy().copy() for k, t in found.items()}
        if "gate" in arrays:
            gate = arrays.pop("gate")
            arrays |= {"gate_weight": gate[0], "gate_bias": gate[1, :1]}
        return {name: arrays[name] for name in self._names}

    def state(self) -> dict[str, NDArray[Any]]:
        """Copied to the host. Claims are left out: they only tell the batches of a run apart."""
        drawn = 0 if self._sampler is None else self._sampler.epochs
        tables = {name: tensor.cpu().numpy() for name, tensor in self._tensors().items()}
        return tables | {"turn": np.array([self._turn]), "epochs_drawn": np.array([drawn])}

    def restore(self, state: Initial) -> None:
        for name, tensor in self._tensors().items():
            if state[name].shape != tuple(tensor.shape):
                raise ValueError(f"{name} has not the shape it has here")
            tensor.copy_(torch.from_numpy(np.array(state[name])))
        self._turn = int(state["turn"][0])
        if self._sampler is not None:
            self._sampler.epochs = int(state["epochs_drawn"][0])

    def _tensors(self) -> dict[str, Tensor]:
        tables = {"users": self._users, "items": self._items}
        if self._objective.strategy is not None:
            tables |= {"seers": self._seers, "gate": self._gate}
        return {
            f"{name}.{part}": getattr(table, part)
            for name, table in tables.items()
            for part in ("rows", "counts")
        }

    def compile(self, *, batch_size: int = 1024) -> None:
        """Have the kernels ready: seconds the first time on a machine, from a cache later."""
        self._run(self._room(batch_size, batch_size), 0)

    # what lies on the card --------------------------------------------------------------------

    def _tensor(self, values: Any, dtype: torch.dtype | None = None) -> Tensor:
        if isinstance(values, list):  # torch would make float32 of it
            values = np.array(values)
        return torch.as_tensor(values).to(device=self._device, dtype=dtype or self._dtype)

    def _gate_rows(self, parameters: Initial) -> Tensor:
        """w, and b in the first column of a row of its own."""
        gate = torch.zeros(2, self._dim, dtype=self._dtype, device=self._device)
        gate[0] = self._tensor(parameters["gate_weight"])
        gate[1, 0] = self._tensor(parameters["gate_bias"]).reshape(-1)[0]
        return gate

    def _new_guide(self, validation: ValidationSet | None) -> "_Guide | None":
        if self._objective.strategy != "bilevel" or validation is None:
            return None
        n, size = len(validation), self._objective.validation_batch
        order = np.arange(n)
        if size == 0 or size >= n:  # all at every step, in any order: that of the items is fast
            size, order = n, np.argsort(validation.items, kind="stable")
        return _Guide(
            self._tensor(validation.users[order], torch.int32),
            self._tensor(validation.items[order], torch.int32),
            self._tensor(validation.relevant[order]),
            size,
            n / size,
        )

    @property
    def _slots(self) -> int:
        """Places of an item in a sample."""
        return 2 if self._objective.loss == "pairwise" else 1

    def _room(self, capacity: int, batch_size: int) -> "_Space":
        space = self._space
        if space is None or space.batch_size != batch_size or space.capacity < capacity:
            self._space = None  # give back the memory first
            self._space = space = self._new_space(capacity, batch_size)
        return space

    def _new_space(self, capacity: int, batch_size: int) -> "_Space":
        def buffer(rows: int) -> Tensor:
            return torch.zeros(rows, self._width, dtype=self._dtype, device=self._device)

        def column(dtype: torch.dtype) -> Tensor:
            return torch.zeros(capacity, dtype=dtype, device=self._device)

        integers = ["users", "items"] + ["negatives"] * (self._slots == 2)
        floats = [] if self._slots == 2 else ["click", "weight"]
        samples = {name: column(torch.int32) for name in integers}
        samples |= {name: column(self._dtype) for name in floats}
        on_users, on_items = buffer(batch_size), buffer(batch_size * self._slots)
        learns = self._objective.strategy not in (None, "frozen")
        ahead = self._objective.strategy in ("bilevel", "bilevel_on_batch")
        return _Space(
            batch_size,
            capacity,
            samples,
            on_users,
            on_items,
            buffer(batch_size) if ahead else on_users,
            buffer(batch_size) if ahead else on_items,
            buffer(batch_size) if learns else on_users,
            buffer(2),
            torch.zeros(batch_size, dtype=self._dtype, device=self._device),
        )

    def _check(self, samples: Pairs | Triples) -> None:
        if isinstance(samples, Triples) != (self._objective.loss == "pairwise"):
            raise InputError(f"{self._objective} does not learn from {type(samples).__name__}")
        if len(samples) == 0:
            return
        n_users, n_items = len(self._users.rows), len(self._items.rows)
        columns = [("user", samples.users, n_users), ("item", samples.items, n_items)]
        if isinstance(samples, Triples):
            columns.append(("item", samples.negatives, n_items))
        for what, rows, n in columns:
            if rows.min() < 0 or rows.max() >= n:
                raise InputError(f"a sample names {what} {rows.max()}, but there are {n}")

    # the steps --------------------------------------------------------------------------------

    def _run(self, space: "_Space", count: int) -> None:
        """Learn from the first samples of the space; nothing waits for it to end."""
        steps = -(-count // space.batch_size)
        state = [0, 0, count, self._claims, self._turn]
        self._state.copy_(torch.tensor(state, dtype=torch.int64))
        if self._device != "cuda":  # Triton's interpreter
            for _ in range(steps):
                self._step(space)
        else:
            if space.graph is None:
                self._capture(space, count)
            assert space.graph is not None
            for _ in range(-(-steps // STEPS_A_GRAPH)):
                space.graph.replay()  # steps past the last sample do nothing
        self._turn += steps
        self._claims += (steps + STEPS_A_GRAPH) * space.batch_size * self._slots

    def _capture(self, space: "_Space", count: int) -> None:
        """Record the steps; before, compile the kernels by a step on no samples."""
        self._state[2] = 0
        self._step(space)
        self._state[2] = count
        self._state[:2] = 0
        torch.cuda.synchronize()
        space.graph = torch.cuda.CUDAGraph()
        with _no_collection(), torch.cuda.graph(space.graph):
            for _ in range(STEPS_A_GRAPH):
                self._step(space)

    def _step(self, space: "_Space") -> None:
        strategy = self._objective.strategy
        launch = _Launches(self, space)
        launch.claim()
        if self._objective.loss == "pairwise":
            launch.pairwise_gradient()
        elif strategy in (None, "frozen"):
            launch.relevance_gradient()
        elif strategy == "joint":  # both gradients at the same point
            launch.exposure_gradient()
            launch.relevance_gradient()
            launch.exposure_adam()
        else:
            if strategy == "bilevel":
                launch.look_ahead()
                launch.validate()
            elif strategy == "bilevel_on_batch":
                launch.look_ahead()
                launch.look_again()
            launch.exposure_gradient()
            launch.exposure_adam()
            launch.relevance_gradient()
        launch.relevance_adam()

    def _mean_loss(self, n: int, batch_size: int) -> float:
        return float(self._loss.item()) / max(1, -(-n // batch_size))


@contextmanager
def _no_collection() -> Iterator[None]:
    """Hold the garbage collector: the graph of a dead engine, freed now, would spoil a capture."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Launches:
    """The kernels of a step, with what each is given."""

    def __init__(self, engine: CudaEngine, space: "_Space") -> None:
        self._engine, self._space = engine, space
        self._tile = SMALL_TILE if space.batch_size < LARGE_BATCH else LARGE_TILE
        self._shape = {
            "WIDTH": engine._width,
            "COLUMNS": 1 << (engine._width - 1).bit_length(),
        }

    def claim(self) -> None:
        e, s = self._engine, self._space
        self._grid(e._kernels.claim, 256)(
            e._state, *s.rows(), e._users.owner, e._items.owner, s.batch_size, SLOTS=e._slots
        )

    def look_ahead(self) -> None:
        e, s = self._engine, self._space
        self._tiles(e._kernels.look_ahead)(
            *self._pair_columns(), s.on_users, s.on_items, s.batch_size
        )

    def validate(self) -> None:
        e, s, guide = self._engine, self._space, self._engine._guide
        assert guide is not None
        self._tiles(e._kernels.validate, count=guide.size, pairs=32)(
            e._state,
            e._settings,
            guide.users,
            guide.items,
            guide.relevant,
            len(guide.users),
            guide.size,
            e._users.rows,
            e._items.rows,
            e._users.owner,
            e._items.owner,
            s.on_users,
            s.on_items,
            s.along_users,
            s.along_items,
            s.batch_size,
        )

    def look_again(self) -> None:
        e, s = self._engine, self._space
        self._tiles(e._kernels.look_again)(
            *self._pair_columns(),
            s.on_users,
            s.on_items,
            s.along_users,
            s.along_items,
            s.direct,
            s.batch_size,
        )

    def exposure_gradient(self) -> None:
        e, s, kernels = self._engine, self._space, self._engine._kernels
        descends = {
            "bilevel": kernels.VALIDATION_AHEAD,
            "bilevel_on_batch": kernels.BATCH_AHEAD,
        }.get(e._objective.strategy or "", kernels.TRAIN_LOSS)
        self._tiles(kernels.exposure_gradient)(
            *self._pair_columns(),
            s.on_users,
            s.on_items,
            s.along_users,
            s.along_items,
            s.direct,
            s.on_seers,
            s.on_gate,
            s.batch_size,
            DESCENDS=descends,
        )

    def relevance_gradient(self) -> None:
        e, s, kernels = self._engine, self._space, self._engine._kernels
        if e._objective.strategy is not None:
            comes_from = kernels.GATED
        elif e._exposure is None:
            comes_from = kernels.SHOWN
        else:
            comes_from = kernels.PER_ITEM if e._exposure.dim() == 1 else kernels.PER_PAIR
        self._tiles(kernels.relevance_gradient)(
            *self._pair_columns(),
            s.on_users,
            s.on_items,
            s.along_users,
            s.along_items,
            e._loss,
            s.batch_size,
            len(e._items.rows),
            LOSS=getattr(kernels, e._objective.loss.upper()),
            EXPOSURE=comes_from,
            LOOKED_AHEAD=e._objective.strategy in ("bilevel", "bilevel_on_batch"),
        )

    def pairwise_gradient(self) -> None:
        e, s = self._engine, self._space
        self._tiles(e._kernels.pairwise_gradient)(
            e._state,
            *s.rows(),
            e._users.rows,
            e._items.rows,
            e._users.owner,
            e._items.owner,
            s.on_users,
            s.on_items,
            e._loss,
            s.batch_size,
        )

    def exposure_adam(self) -> None:
        e, s = self._engine, self._space
        self._tiles(e._kernels.exposure_adam, extra=1)(
            e._state,
            e._settings,
            e._corrections,
            N_CORRECTIONS,
            s.samples["users"],
            e._users.owner,
            e._seers.rows,
            e._seers.counts,
            s.on_seers,
            e._gate.rows,
            e._gate.counts,
            s.on_gate,
            s.batch_size,
        )

    def relevance_adam(self) -> None:
        e, s = self._engine, self._space
        self._tiles(e._kernels.relevance_adam, sides=1 + e._slots)(
            e._state,
            e._settings,
            e._corrections,
            N_CORRECTIONS,
            *s.rows(),
            e._users.owner,
            e._items.owner,
            e._users.rows,
            e._items.rows,
            e._users.counts,
            e._items.counts,
            s.on_users,
            s.on_items,
            s.batch_size,
            SLOTS=e._slots,
        )

    def _pair_columns(self) -> tuple[Tensor, ...]:
        e, samples = self._engine, self._space.samples
        return (
            e._state,
            e._settings,
            samples["users"],
            samples["items"],
            samples["click"],
            samples["weight"],
            e._users.rows,
            e._items.rows,
            e._seers.rows,
            e._gate.rows,
            e._settings if e._exposure is None else e._exposure,  # a stand-in: nobody reads it
            e._users.owner,
            e._items.owner,
        )

    def _grid(self, kernel: Any, pairs: int) -> Callable[..., None]:
        programs = -(-self._space.batch_size // pairs)
        return partial(kernel[(programs,)], PAIRS=pairs)

    def _tiles(
        self,
        kernel: Any,
        *,
        count: int | None = None,
        pairs: int | None = None,
        extra: int = 0,
        sides: int = 1,
    ) -> Callable[..., None]:
        count, pairs = count or self._space.batch_size, pairs or self._tile[0]
        programs = -(-count // pairs) + extra
        return partial(
            kernel[(programs, sides)], PAIRS=pairs, num_warps=self._tile[1], **self._shape
        )


class _Table:
    """Rows with their moments, how many steps each took, and who owns it in this batch."""

    def __init__(self, values: Any, width: int, dtype: torch.dtype, device: str) -> None:
        values = torch.as_tensor(values)
        n, dim = values.shape
        self.rows = torch.zeros(n, 3, width, dtype=dtype, device=device)
        self.rows[:, 0, :dim] = values.to(device=device, dtype=dtype)
        self.counts = torch.zeros(n, dtype=torch.int32, device=device)
        self.owner = torch.full((n,), -1, dtype=torch.int64, device=device)


@dataclass(frozen=True)
class _Guide:
    """The validation pairs, how many of them a step takes, and what each then stands for."""

    users: Tensor
    items: Tensor
    relevant: Tensor
    size: int
    scale: float


@dataclass
class _Space:
    """Room for samples and for the gradients of a batch, and the graph of steps on it."""

    batch_size: int
    capacity: int
    samples: dict[str, Tensor]
    on_users: Tensor  # of the look-ahead, then of the step; zero between steps, like all below
    on_items: Tensor
    along_users: Tensor  # g = ∂L/∂ω at ω′
    along_items: Tensor
    on_seers: Tensor
    on_gate: Tensor  # w, then b
    direct: Tensor  # ∂L/∂m of each pair at ω′
    graph: torch.cuda.CUDAGraph | None = None

    def rows(self) -> tuple[Tensor, Tensor, Tensor]:
        """Users, items and (a stand-in, where samples are pairs) negatives."""
        items = self.samples["items"]
        return self.samples["users"], items, self.samples.get("negatives", items)


# samples drawn on the card --------------------------------------------------------------------


@dataclass(frozen=True)
class DeviceClicks:
    """A click log on the card: pairs ordered by user and item, and where each user's begin."""

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


class DeviceSampler:
    """The epochs of `sampling.sampled_pairs` (or `sampled_triples`), drawn on the card.

    The same distribution, another random stream: negatives are uniform over a user's unclicked
    items, by rejection; the order is a keyed pseudo-random permutation. Each epoch has keys of its
    own, from `seed` and its number, so a seed gives the same samples on any card.
    """

    def __init__(
        self,
        clicks: DeviceClicks,
        *,
        negatives: int,
        seed: int,
        weighting: Weighting = "none",
        pairwise: bool = False,
    ) -> None:
        device = clicks.users.device.type
        self._kernels = _kernels(device)
        self._clicks, self._negatives, self._seed = clicks, negatives, seed
        self._unbiased, self._pairwise = weighting == "unbiased", pairwise
        counts = clicks.user_start.diff()
        most = int(counts.max()) if len(counts) else 0
        self._probes = max(1, most.bit_length())
        self._sources, n_sources = clicks.users, len(clicks.users)  # a stand-in: all may draw
        self._all_draw = most < clicks.n_items
        if not self._all_draw:  # some user has no unclicked item left
            self._sources = (counts < clicks.n_items)[clicks.users.long()].nonzero().flatten()
            n_sources = len(self._sources)
        self._n = n_sources * negatives + (0 if pairwise else len(clicks.users))
        self.epochs = 0  # drawn so far
        self._plan = np.zeros(0, dtype=np.int64)

    def __len__(self) -> int:
        """The samples of an epoch."""
        return self._n

    def next_epoch(self) -> None:
        """New keys."""
        words = np.random.SeedSequence([self._seed, self.epochs]).generate_state(8)
        self.epochs += 1
        side = math.isqrt(max(self._n - 1, 0)) + 1
        c = self._clicks
        seed = int(words[0]) << 31 | int(words[1]) >> 1
        head = [0, 0, self._n, len(c.users), c.n_items, self._negatives, side, seed]
        self._plan = np.array([*head, *words[2:].tolist()], dtype=np.int64)

    def fill(self, samples: dict[str, Tensor], start: int, count: int) -> None:
        """The next `count` samples of this epoch, from this place in its order."""
        c, users, items = self._clicks, samples["users"], samples["items"]
        self._plan[:2] = start, count
        self._kernels.draw[(-(-count // 256),)](
            torch.from_numpy(self._plan).to(users.device),
            c.users,
            c.items,
            c.user_start,
            self._sources,
            users,
            items,
            samples.get("click", users),  # stand-ins, where samples are triples
            samples.get("weight", users),
            samples.get("negatives", users),
            PAIRS_OF_CLICKS=self._pairwise,
            UNBIASED=self._unbiased,
            ALL_DRAW=self._all_draw,
            PROBES=self._probes,
            BLOCK=256,
            num_warps=8,
        )

    def draw(self, most: int | None = None) -> Pairs | Triples:
        """The next epoch, or its first samples, on the host."""
        self.next_epoch()
        n = self._n if most is None else min(most, self._n)
        device = self._clicks.users.device
        names = ["users", "items", "negatives"] if self._pairwise else ["users", "items"]
        samples = {name: torch.zeros(n, dtype=torch.int32, device=device) for name in names}
        if not self._pairwise:
            samples |= {name: torch.zeros(n, device=device) for name in ("click", "weight")}
        self.fill(samples, 0, n)
        columns = {name: column.cpu().numpy() for name, column in samples.items()}
        return Triples(**columns) if self._pairwise else Pairs(**columns)


def _chunk(n: int, batch_size: int) -> int:
    """How many samples lie on the card at a time: whole batches, all of a short epoch."""
    return max(1, min(-(-n // batch_size), CHUNK // batch_size)) * batch_size


def _kernels(device: str) -> ModuleType:
    """The kernels, which need a card, or Triton's interpreter for tensors of the CPU."""
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("the cuda engine needs an NVIDIA card that torch can see; use cpu")
    if importlib.util.find_spec("triton") is None:
        raise InputError("the cuda engine needs triton: pip install triton")
    from unexposed.engine import cuda_kernels

    return cuda_kernels
