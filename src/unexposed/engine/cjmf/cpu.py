"""CJMF on the CPU: threads share the sub-models, every step in closed form."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from unexposed.compiled import CORES
from unexposed.engine.cjmf import kernels
from unexposed.engine.cjmf.step import JointRates, PartedSamples, Tables
from unexposed.engine.cpu.compile import on_threads
from unexposed.engine.cpu.lanes import whole
from unexposed.engine.objective import put_back
from unexposed.sampling.samples import Samples

RUN: Any = kernels.run
SPAN = 200_000  # clicks of one call to the kernel, which cannot be interrupted


class CpuLearner:
    """The steps of `ReferenceLearner`, with tables and moments in flat arrays of records."""

    def __init__(
        self,
        rates: JointRates,
        tables: Mapping[str, NDArray[Any]],
        popularity: NDArray[Any],
        *,
        dtype: DTypeLike = np.float32,
        threads: int | None = None,
    ) -> None:
        self._dtype = np.dtype(dtype)
        self._n_users, self._n_models, self._dim = tables["submodel_user_factors"].shape
        self._n_items = len(tables["submodel_item_factors"])
        self._threads = min(threads or CORES, self._n_models)
        self._steps = np.zeros(1, dtype=np.int64)  # taken so far
        self._names = list(tables)
        kinds = ("submodel", "residual")[: 2 if rates.residual else 1]

        def records(side: str) -> NDArray[Any]:
            found = [tables[f"{kind}_{side}_factors"].swapaxes(0, 1) for kind in kinds]
            return self._with_moments(np.stack(found, axis=2))

        each = (rates.submodel, rates.exposure, rates.residual or rates.submodel)
        weight = self._filled(tables["exposure_weight"]).reshape(self._n_models, -1)
        self._model = kernels.Submodels(
            dim=whole(self._dim, self._dtype.itemsize),
            kinds=len(kinds),
            users=records("user"),
            items=records("item"),
            exposure=self._with_moments(np.hstack([weight, tables["exposure_bias"]])),
            rates=np.array([(r.learning_rate, r.weight_decay) for r in each], dtype=np.float64),
            popularity=np.array(popularity, dtype=np.float64),
        )

    def epoch(self, samples: PartedSamples, *, batch_size: int) -> float:
        batch_size = max(1, min(batch_size, len(samples)))
        span = max(1, SPAN // batch_size) * batch_size
        parts = [self._run(part, batch_size) for part in samples.batches(span)]
        return float(np.concatenate(parts).mean())

    def tables(self) -> Tables:
        model, dim = self._model, self._model.dim
        weight, bias = np.split(model.exposure[:, : 3 * dim + 3], [3 * dim], axis=1)
        found = {
            "exposure_weight": weight.reshape(-1, 3, dim)[:, :, : self._dim],
            "exposure_bias": bias,
        }
        for side, records in (("user", model.users), ("item", model.items)):
            shaped = records.reshape(self._n_models, -1, model.kinds, 3, dim)
            values = shaped[:, :, :, 0, : self._dim].swapaxes(0, 1)
            for kind in range(model.kinds):
                found[f"{('submodel', 'residual')[kind]}_{side}_factors"] = values[:, :, kind]
        return {name: found[name].copy(order="C") for name in self._names}

    def state(self) -> Tables:
        memory = {name: getattr(self._model, name) for name in ("users", "items", "exposure")}
        return memory | {"steps": self._steps}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        put_back(self.state(), state)

    def compile(self) -> None:
        """Compile the kernel, or load it from the cache: the first time takes seconds."""
        nothing, start = np.zeros(0, dtype=np.int32), np.zeros(1, dtype=np.int64)
        none = Samples(nothing, start, nothing, nothing.astype(np.float32))
        self._run(PartedSamples(none, nothing), 1)

    def _with_moments(self, values: NDArray[Any]) -> NDArray[Any]:
        """The values of each sub-model, (C, …, dim), flattened, each record with its moments."""
        filled = self._filled(values)
        table = np.zeros((*filled.shape[:-1], 3, filled.shape[-1]), dtype=self._dtype)
        table[..., 0, :] = filled
        return table.reshape(self._n_models, -1)

    def _filled(self, values: NDArray[Any]) -> NDArray[Any]:
        """The values with each row padded with zeros to whole vectors."""
        more = whole(values.shape[-1], self._dtype.itemsize) - values.shape[-1]
        return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, more)])

    def _run(self, samples: PartedSamples, batch_size: int) -> NDArray[np.float64]:
        """Learn from each batch; return their losses."""
        drawn = samples.drawn
        columns = (drawn.users, drawn.start, drawn.items, samples.part)
        types = (np.int32, np.int64, np.int32, np.int32)
        given = kernels.Batch(
            *(np.require(*c, ["C", "W"]) for c in zip(columns, types, strict=True))
        )
        losses = np.zeros((self._n_models, -(-len(samples) // batch_size)))
        n_pairs = int(np.diff(drawn.start[::batch_size], append=drawn.start[-1]).max())
        guess = kernels.Guess(*(np.zeros((self._n_models, n_pairs)) for _ in kernels.Guess._fields))
        barrier = np.zeros(64, dtype=np.int64)

        def work(thread: int) -> None:
            plan, space = self._plan(batch_size, n_pairs), self._work(batch_size, n_pairs)
            shared = (given, batch_size, int(self._steps[0]), self._model, plan, guess, space)
            RUN(*shared, thread, self._threads, barrier, losses)

        on_threads(work, self._threads)
        self._steps += losses.shape[1]
        return losses.sum(0)

    def _plan(self, n_clicks: int, n_pairs: int) -> kernels.Plan:
        """Arrays for a batch of up to this many clicks and pairs."""

        def groups(n_rows: int, n: int) -> kernels.Groups:
            room = (np.zeros(size, dtype=np.int32) for size in (n, n + 2, n, n))
            return kernels.Groups(np.full(n_rows, -1, dtype=np.int32), *room)

        users, items = groups(self._n_users, n_clicks), groups(self._n_items, n_pairs)
        return kernels.Plan(users, items, pair_user=np.zeros(n_pairs, dtype=np.int32))

    def _work(self, n_clicks: int, n_pairs: int) -> kernels.Work:
        def real(n: int) -> NDArray[Any]:
            return np.zeros(n, dtype=self._dtype)

        dim, kinds = self._model.dim, self._model.kinds
        return kernels.Work(
            slope=real(n_pairs),
            residual_slope=real(n_pairs),
            n_learned=np.zeros(n_pairs, dtype=np.int64),
            weight=np.zeros(n_pairs),
            mean_shown=np.zeros(n_pairs),
            on_users=real(kinds * dim * n_clicks),
            on_item=real(kinds * dim),
            on_exposure=real(whole(3 * dim + 3, self._dtype.itemsize)),
            rates=np.zeros((3, 3)),
        )
