"""Run factor models on a GPU: every step in closed form, by a few Triton kernels.

It gives the parameters that `reference` gives, up to the order in which the gradients of a row are
added: atomic additions come in any order, so two runs differ in their last bits. `losses.py`,
`exposure.py` and `bilevel.py` say what it computes, `kernels.py` how.

Steps are captured once as a CUDA graph and replayed: the GPU counts where a batch starts. `epoch`
learns from samples copied from the host, `train_epoch` from samples that a `DeviceSampler` draws
on the GPU. With an `exchange` the samples come from the host, and `divided.py` runs batch by batch.
"""

import gc
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks
from unexposed.engine.adam import BETA1, BETA2, EPSILON
from unexposed.engine.cuda import load
from unexposed.engine.cuda.divided import Span, Sums, batches_a_span
from unexposed.engine.cuda.drawing import DeviceClicks, DeviceSampler
from unexposed.engine.cuda.space import Space, clicks_at_once, rounded, tile_of
from unexposed.engine.objective import (
    FACTORS,
    NO_MARKS,
    PRODUCT,
    Initial,
    Objective,
    Optimiser,
    check_objective,
    check_samples,
    loss_code,
)
from unexposed.engine.workers import Exchange
from unexposed.errors import InputError
from unexposed.late import Dtype, Tensor, torch
from unexposed.maths.relevance import Relevance
from unexposed.sampling.samples import Drawing, Samples
from unexposed.sampling.validation import ValidationSet

STEPS_A_GRAPH = 16
GUIDE_TILE = 32  # validation pairs of a program

# the kernels of a step, each with its phase, by strategy
STEP_RELEVANCE = ("pairs", "GRADIENT"), ("adam", "GRADIENT")
STEP_EXPOSURE = ("pairs", "EXPOSURE_GRADIENT"), ("adam", "EXPOSURE_GRADIENT")
STEP_BOTH = *STEP_EXPOSURE, *STEP_RELEVANCE
KERNELS_OF_A_STEP = {
    None: STEP_RELEVANCE,
    "frozen": STEP_RELEVANCE,
    # both gradients at one point, then both updates
    "joint": (STEP_EXPOSURE[0], STEP_RELEVANCE[0], STEP_EXPOSURE[1], STEP_RELEVANCE[1]),
    "alternate": STEP_BOTH,
    "bilevel": (("pairs", "AHEAD"), ("validate", "ALONG"), *STEP_BOTH),
    "bilevel_on_batch": (("pairs", "AHEAD"), ("pairs", "ALONG"), *STEP_BOTH),
}
DESCENDS = {"bilevel": "VALIDATION_AHEAD", "bilevel_on_batch": "BATCH_AHEAD"}  # else TRAIN_LOSS


class CudaEngine:
    """The steps of `ReferenceEngine` on a GPU. `parameters` may be tensors that lie there already.

    With an `exchange`, users, samples and validation pairs are those of this worker. `device` is
    "cuda", or "cpu" for Triton's slow interpreter (TRITON_INTERPRET=1).
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
        exchange: Exchange | None = None,
        dtype: Dtype | None = None,
        device: str = "cuda",
    ) -> None:
        check_objective("cuda", objective, parameters, features, validation)
        self._kernels = load(device, "kernels")
        self._strategy = objective.strategy
        self._dtype, self._device = dtype or torch.float32, device
        self._names = list(parameters)
        self._dim = parameters["user_factors"].shape[1]
        self._width = -(-self._dim // 8) * 8  # rows of whole 32-byte sectors
        self._tables = self._new_tables(parameters)
        self._steps = 0  # taken so far
        self._claims = 0  # numbers of owners given out so far: they only ever grow
        self._batches = 0  # run with an exchange so far: their numbers only ever grow too
        self._state = torch.zeros(9, dtype=torch.int64, device=device)
        self._loss = torch.zeros(1, dtype=torch.float64, device=device)
        self._sums = None
        if exchange is not None:
            self._sums = Sums(exchange, self._tables, self._kernels, self._dim)
        self._arguments = self._fixed(objective, optimiser, exposure)
        self._arguments |= self._columns(relevance)
        self._most_guides = 0  # validation pairs of a step
        if validation is not None and objective.strategy == "bilevel":
            self._arguments |= self._guide(validation, objective.validation_parts(validation))
        self._item_weight: NDArray[np.float32] | None = None  # of the last epoch
        self._sampler: DeviceSampler | None = None  # the last one made
        self._space: Space | None = None

    def compile(self) -> None:
        """Compile the kernels, or load them from the cache: the first time takes seconds."""
        self._state.zero_()
        self._step(self._room(1024, 6 * 1024, 1))

    def epoch(self, samples: Samples, *, batch_size: int) -> float:
        n_users, n_items = (len(self._tables[name]) for name in FACTORS)
        check_samples(samples, n_users=n_users, n_items=n_items)
        if samples.marks is not None:
            raise InputError(NO_MARKS)
        if self._sums is not None:
            return self._divided_epoch(samples, batch_size, self._sums)
        batch_size = max(1, min(batch_size, len(samples)))
        bounds = samples.start[[*range(0, len(samples), batch_size), len(samples)]]
        most = rounded(int(np.diff(bounds).max(initial=1)))  # pairs of a batch
        self._loss.zero_()
        self._weigh_items(samples.item_weight)
        for part in samples.batches(clicks_at_once(most, batch_size)):
            space = self._room(batch_size, most, -(-len(part) // batch_size))
            space.copy(part)
            self._run(space, len(part), len(part.items))
        return self._mean_loss(len(samples), batch_size)

    def sampler(self, clicks: Clicks, drawing: Drawing, *, seed: int) -> DeviceSampler:
        """Return the sampler that draws the epochs of this log on the GPU."""
        if self._sums is not None:
            raise InputError("the samples of several workers come from the host")
        log = DeviceClicks.of(clicks, device=self._device)
        self._sampler = DeviceSampler(log, drawing, seed=seed)
        return self._sampler

    def train_epoch(self, sampler: DeviceSampler, *, batch_size: int) -> float:
        """Learn as `epoch` does, from the sampler's next epoch, drawn on the GPU."""
        n, each = len(sampler), sampler.pairs_a_click
        batch_size = max(1, min(batch_size, n))
        chunk = clicks_at_once(batch_size * each, batch_size)
        sampler.next_epoch()
        self._loss.zero_()
        self._weigh_items(sampler.item_weight)
        for first in range(0, n, chunk):
            count = min(chunk, n - first)
            space = self._room(batch_size, batch_size * each, -(-count // batch_size))
            space.draw(sampler, first, count)
            self._run(space, count, count * each)
        return self._mean_loss(n, batch_size)

    def parameters(self) -> dict[str, NDArray[Any]]:
        found = {n: t[:, 0, : self._dim].cpu().numpy().copy() for n, t in self._tables.items()}
        if "gate" in found:
            gate = found.pop("gate")
            found |= {"gate_weight": gate[0], "gate_bias": gate[1, :1]}
        return {name: found[name] for name in self._names}

    def state(self) -> dict[str, NDArray[Any]]:
        """Copy to the host; leave out the owners, which only tell the batches of a run apart."""
        drawn = 0 if self._sampler is None else self._sampler.epochs
        tables = {name: t.cpu().numpy() for name, t in self._rows_and_moments().items()}
        return tables | {"steps": np.array([self._steps]), "epochs_drawn": np.array([drawn])}

    def restore(self, state: Initial) -> None:
        for name, tensor in self._rows_and_moments().items():
            if state[name].shape != tuple(tensor.shape):
                raise ValueError(f"{name} has not the shape it has here")
            tensor.copy_(torch.from_numpy(np.array(state[name])))
        self._steps = int(state["steps"][0])
        if self._sampler is not None:
            self._sampler.epochs = int(state["epochs_drawn"][0])

    # tensors on the GPU ------------------------------------------------------------------------

    @property
    def user_arrays(self) -> frozenset[str]:
        return frozenset({"user_factors", "exposure_user_factors"})

    def give_exposure(self, table: NDArray[Any]) -> None:
        self._arguments["exposure"].copy_(self._tensor(table))

    def _tensor(self, values: Any, dtype: Dtype | None = None) -> Tensor:
        return torch.as_tensor(values).to(device=self._device, dtype=dtype or self._dtype)

    def _new_tables(self, parameters: Initial) -> dict[str, Tensor]:
        """Rows with their moments and sums of gradients, (rows, parts, width); see `kernels.py`."""
        k, given = self._kernels, {name: self._tensor(a) for name, a in parameters.items()}
        parts = k.LOOK_AHEAD_PARTS if self._strategy in DESCENDS else k.PLAIN_PARTS

        def table(values: Tensor, parts: Any) -> Tensor:
            rows = values.new_zeros(len(values), parts.value, self._width)
            rows[:, 0, : self._dim] = values
            return rows

        tables = {name: table(given[name], parts) for name in FACTORS}
        if self._strategy is not None:
            gate = given["gate_weight"].new_zeros(2, self._dim)
            gate[0], gate[1, 0] = given["gate_weight"], given["gate_bias"].reshape(-1)[0]
            users = given["exposure_user_factors"]
            tables["exposure_user_factors"] = table(users, k.PLAIN_PARTS)
            tables["gate"] = table(gate, k.PLAIN_PARTS)
        return tables

    def _rows_and_moments(self) -> dict[str, Tensor]:
        return {name: table[:, :3] for name, table in self._tables.items()}

    def _fixed(self, objective: Objective, optimiser: Optimiser, exposure: Any) -> dict[str, Any]:
        """The arguments that the kernels get in every step, by name."""
        k, o, tables = self._kernels, optimiser, self._tables
        users, items = tables["user_factors"], tables["item_factors"]
        given = k.SHOWN if exposure is None else (k.PER_ITEM, k.PER_PAIR)[exposure.ndim - 1]
        settings = [  # in the order of their places in `kernels.py`
            *(o.learning_rate, o.exposure_learning_rate, o.exposure_learning_rate * o.gate_pace),
            *(o.weight_decay, o.exposure_weight_decay, o.lookahead, objective.offset),
            *(BETA1, BETA2, math.log(BETA1), math.log(BETA2), EPSILON),
        ]
        return {
            "state": self._state,
            "settings": torch.tensor(settings, dtype=torch.float64, device=self._device),
            "loss": self._loss,
            "users": users,
            "items": items,
            # stand-ins where no kernel reads these three
            "exposure_users": tables.get("exposure_user_factors", users),
            "gate": tables.get("gate", items),
            "exposure": users if exposure is None else self._tensor(exposure).contiguous(),
            "n_items": len(items),
            "item_weight": self._tensor(np.ones(len(items)), torch.float32),
            "BY_ITEM": False,
            "DIVIDED": self._sums is not None,
            "touched": self._state,  # a stand-in, too
            "user_owner": self._tensor(np.full(len(users), -1), torch.int64),
            "item_owner": self._tensor(np.full(len(items), -1), torch.int64),
            "LOSS": loss_code("cuda", objective, k.LOSS_CODES),
            "EXPOSURE": given if objective.strategy is None else k.GATED,
            "DESCENDS": getattr(k, DESCENDS.get(objective.strategy or "", "TRAIN_LOSS")),
            "PARTS": users.shape[1],
            "WIDTH": self._width,
            "COLUMNS": 1 << (self._width - 1).bit_length(),
        }

    def _columns(self, relevance: Relevance) -> dict[str, int]:
        """How the kernels treat the columns of both tables; alike where there are no biases."""
        of_users, of_items = (relevance.tables[name] for name in FACTORS)
        return {
            "USER_ONES": -1 if of_users.fixed is None else of_users.fixed,
            "ITEM_ONES": -1 if of_items.fixed is None else of_items.fixed,
            "DECAYING": self._width if of_users.decaying is None else of_users.decaying,
        }

    def _guide(self, validation: ValidationSet, parts: int) -> dict[str, Any]:
        """The validation pairs, ordered by item in each of their parts."""
        start, scale = validation.bounds(parts)
        part = np.repeat(np.arange(parts), np.diff(start))
        order = np.lexsort((validation.items, part))
        self._most_guides = int(np.diff(start).max())
        return {
            "guide_user": self._tensor(validation.users[order], torch.int32),
            "guide_item": self._tensor(validation.items[order], torch.int32),
            "guide_relevant": self._tensor(validation.relevant[order]),
            "guide_start": self._tensor(start, torch.int64),
            "guide_scale": self._tensor(scale, torch.float64),
            "n_guide_parts": parts,
        }

    def _weigh_items(self, weight: NDArray[np.float32] | None) -> None:
        """Set what drawn items weigh; steps are compiled and captured for either case."""
        if weight is self._item_weight:
            return
        if (weight is None) != (self._item_weight is None):
            self._space = None
        self._item_weight = weight
        self._arguments["BY_ITEM"] = weight is not None
        if weight is not None:  # in place: captured steps know where it lies
            self._arguments["item_weight"].copy_(torch.from_numpy(weight))

    def _room(self, batch_size: int, pairs: int, batches: int) -> Space:
        space = self._space
        if space is None or not space.holds(batch_size, pairs, batches):
            self._space = space = None  # free the memory first
            self._space = space = Space(batch_size, pairs, batches, self._tables["user_factors"])
        return space

    # the steps --------------------------------------------------------------------------------

    def _run(self, space: Space, clicks: int, pairs: int) -> None:
        """Learn from the first clicks of the space, without waiting for the GPU."""
        steps = -(-clicks // space.batch_size)
        if self._device == "cuda" and space.graph is None:
            self._capture(space)
        self._state[:5].copy_(torch.tensor([0, 0, clicks, self._claims, self._steps]))
        if space.graph is None:  # Triton's interpreter
            for _ in range(steps):
                self._step(space)
        else:
            for _ in range(-(-steps // STEPS_A_GRAPH)):
                space.graph.replay()  # steps past the last click do nothing
        self._steps += steps
        self._claims += pairs

    def _capture(self, space: Space) -> None:
        """Compile the kernels by a step on no clicks, then record the steps."""
        self._state.zero_()
        self._step(space)
        torch.cuda.synchronize()
        was_on = gc.isenabled()
        gc.collect()
        gc.disable()  # the graph of a dead engine, freed now, would spoil the capture
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(STEPS_A_GRAPH):
                    self._step(space)
        finally:
            if was_on:
                gc.enable()
        space.graph = graph

    def _step(self, space: Space) -> None:
        """Launch the kernels of a step."""
        tile = tile_of(space.batch_size, space.pairs)
        arguments = self._arguments | space.columns | {"batch_size": space.batch_size}
        arguments["OPENS"] = True
        for name, phase in KERNELS_OF_A_STEP[self._strategy]:
            sizes = {"clicks": space.batch_size, "items": space.pairs}
            self._launch(name, phase, arguments, tile, **sizes)
            arguments["OPENS"] = False

    def _launch(
        self,
        name: str,
        phase: str,
        arguments: dict[str, Any],
        tile: tuple[int, int, int],
        *,
        clicks: int,
        items: int,
    ) -> None:
        """Launch a kernel for at most so many clicks, and so many places to look for items."""
        rows, warps, each = tile
        others = items if phase == "GRADIENT" else 1  # of the gate
        programs = {
            "pairs": -(-clicks // (rows // each)),
            "validate": -(-self._most_guides // GUIDE_TILE),
            "adam": -(-clicks // rows) + -(-others // rows),
        }[name]
        if programs == 0:  # a worker without clicks in this batch, or without validation pairs
            return
        kernel = getattr(self._kernels, name)
        own: dict[str, Any] = {"EACH": each, "CLICKS": rows // each}
        own["PHASE"] = getattr(self._kernels, phase)
        own["ROWS"] = GUIDE_TILE if name == "validate" else rows
        given = arguments | own
        kernel[(programs,)](**{n: given[n] for n in kernel.arg_names}, num_warps=warps)

    # one of several workers ----------------------------------------------------------------------

    def _divided_epoch(self, samples: Samples, batch_size: int, sums: Sums) -> float:
        """Learn from this worker's samples, with the other workers; the loss is of all samples."""
        batch_size = max(1, min(batch_size, samples.n_clicks))
        self._loss.zero_()
        self._weigh_items(samples.item_weight)
        pairs = sums.number(len(samples.items))  # of all workers
        tile = tile_of(
            samples.n_clicks, pairs, batch=pairs * batch_size // max(1, samples.n_clicks)
        )
        items = self._tables["item_factors"]
        each = batches_a_span(samples, batch_size, pairs, len(items))
        for part in samples.batches(batch_size * each):
            sums.meet()
            span = Span(part, batch_size, items, sums)
            states = span.states(base=self._claims, steps=self._steps, batches=self._batches)
            for number, state in enumerate(states):
                self._state.copy_(state)
                self._divided_step(span, number, tile, sums)
            self._steps += len(states)
            self._batches += len(states)
            self._claims += len(part.items)
        sums.meet()
        self._loss.copy_(sums.of({"loss": self._loss})["loss"])
        return self._mean_loss(samples.n_clicks, batch_size)

    def _divided_step(
        self, span: Span, number: int, tile: tuple[int, int, int], sums: Sums
    ) -> None:
        """Launch the kernels of a step; between them the workers add up what users share."""
        arguments = self._arguments | span.columns | {"OPENS": True}
        rows = span.rows_of(number)
        self._arguments["item_owner"].index_fill_(0, rows, self._batches + number)
        for name, phase in KERNELS_OF_A_STEP[self._strategy]:
            sums.add_up(rows, before=(name, phase))
            sizes = {"clicks": span.n_clicks[number], "items": len(rows)}
            self._launch(name, phase, arguments, tile, **sizes)
            sums.note(name, phase)
            arguments["OPENS"] = False

    def _mean_loss(self, clicks: int, batch_size: int) -> float:
        return float(self._loss.item()) / max(1, -(-clicks // batch_size))
