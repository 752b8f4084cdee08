"""CJMF on the CPU: its sub-models shared out over threads, every step in closed form."""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from unexposed.engine import cjmf_kernels as kernels
from unexposed.engine import put_back
from unexposed.engine.cjmf import Optimiser, Samples, Tables
from unexposed.engine.cpu import NUMBA_CONFIG, adam_rates
from unexposed.engine.lanes import whole

RUN: Any = kernels.run
MEMORY = ("users", "items", "exposure", "user_count", "item_count", "exposure_count")
SPAN = 1_000_000  # samples of one call to the kernel: it cannot be interrupted


class CpuLearner:
    """As `ReferenceLearner`, with the tables and their moments in flat arrays of records."""

    def __init__(
        self,
        optimiser: Optimiser,
        tables: Mapping[str, NDArray[Any]],
        popularity: NDArray[Any],
        *,
        dtype: DTypeLike = np.float32,
        threads: int | None = None,
    ) -> None:
        self._dtype = np.dtype(dtype)
        self._n_users, self._n_models, self._dim = tables["submodel_user_factors"].shape
        self._n_items = len(tables["submodel_item_factors"])
        self._threads = min(threads or NUMBA_CONFIG.NUMBA_NUM_THREADS, self._n_models)
        kinds = ["submodel", "residual"][: 2 if optimiser.residual else 1]

        def records(side: str) -> NDArray[Any]:
            """(C, rows, kinds, 3, dim): values, and room for their moments."""
            found = [tables[f"{kind}_{side}_factors"].swapaxes(0, 1) for kind in kinds]
            return self._with_moments(np.stack(found, axis=2))

        rates = (optimiser.submodel, optimiser.exposure, optimiser.residual or optimiser.submodel)
        counts = [
            np.zeros((self._n_models, n), dtype=np.int32)
            for n in (len(kinds) * self._n_users, len(kinds) * self._n_items, 1)
        ]
        weight = self._filled(tables["exposure_weight"]).reshape(self._n_models, -1)
        self._model = kernels.Model(
            dim=whole(self._dim, self._dtype.itemsize),
            kinds=len(kinds),
            users=records("user"),
            items=records("item"),
            exposure=self._with_moments(np.hstack([weight, tables["exposure_bias"]])),
            user_count=counts[0],
            item_count=counts[1],
            exposure_count=counts[2],
            rates=np.stack([adam_rates(r.learning_rate, r.weight_decay) for r in rates]),
            popularity=np.array(popularity, dtype=np.float64),
        )
        self._names = list(tables)

    def epoch(self, samples: Samples, *, batch_size: int) -> float:
        span = max(1, SPAN // batch_size) * batch_size
        parts = [self._run(part, batch_size) for part in samples.batches(span)]
        return float(np.concatenate(parts).mean())

    def tables(self) -> Tables:
        model, dim = self._model, self._model.dim

        def values(records: NDArray[Any], kind: int) -> NDArray[Any]:
            shaped = records.reshape(self._n_models, -1, model.kinds, 3, dim)
            return np.ascontiguousarray(shaped[:, :, kind, 0, : self._dim].swapaxes(0, 1))

        found = {
            "exposure_weight": model.exposure[:, : 3 * dim]
            .reshape(-1, 3, dim)[:, :, : self._dim]
            .copy(),
            "exposure_bias": model.exposure[:, 3 * dim : 3 * dim + 3].copy(),
        }
        for kind, table in enumerate(("submodel", "residual")[: model.kinds]):
            found[f"{table}_user_factors"] = values(model.users, kind)
            found[f"{table}_item_factors"] = values(model.items, kind)
        return {name: found[name] for name in self._names}

    def state(self) -> Tables:
        return {name: getattr(self._model, name) for name in MEMORY}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        put_back(self.state(), state)

    def compile(self) -> None:
        """Have the kernel ready: seconds the first time on a machine, from its cache later."""
        rows = np.zeros(0, dtype=np.int32)
        self._run(Samples(rows, rows, np.zeros(0, dtype=np.float32), rows), 1)

    def _with_moments(self, values: NDArray[Any]) -> NDArray[Any]:
        """The values of each sub-model, (C, …, dim), flat, each record with its moments."""
        filled = self._filled(values)
        table = np.zeros((*filled.shape[:-1], 3, filled.shape[-1]), dtype=self._dtype)
        table[..., 0, :] = filled
        return table.reshape(self._n_models, -1)

    def _filled(self, values: NDArray[Any]) -> NDArray[Any]:
        """The values with zeros after each row, up to whole vectors."""
        more = whole(values.shape[-1], self._dtype.itemsize) - values.shape[-1]
        return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, more)])

    def _run(self, samples: Samples, batch_size: int) -> NDArray[np.float64]:
        """The loss of each batch, having learned from it."""
        losses = np.zeros((self._n_models, -(-len(samples) // batch_size)))
        columns = [
            np.require(column, kind, ["C", "W"])
            for column, kind in (
                (samples.users, np.int32),
                (samples.items, np.int32),
                (samples.click, np.float32),
                (samples.part, np.int32),
            )
        ]
        said = self._said(batch_size)
        barrier = np.zeros(64, dtype=np.int64)

        def work(thread: int) -> None:
            plan, space = self._plan(batch_size), self._work(batch_size)
            RUN(
                *columns,
                batch_size,
                self._model,
                plan,
                said,
                space,
                thread,
                self._threads,
                barrier,
                losses,
            )

        others = [threading.Thread(target=work, args=(t,)) for t in range(1, self._threads)]
        for thread in others:
            thread.start()
        work(0)
        for thread in others:
            thread.join()
        return losses.sum(0)

    def _said(self, batch_size: int) -> kernels.Said:
        return kernels.Said(*(np.zeros((self._n_models, batch_size)) for _ in kernels.Said._fields))

    def _plan(self, batch_size: int) -> kernels.Plan:
        def integers(n: int) -> NDArray[np.int32]:
            return np.zeros(n, dtype=np.int32)

        return kernels.Plan(
            user_rows=integers(batch_size),
            user_start=integers(batch_size + 2),
            user_pairs=integers(batch_size),
            item_rows=integers(batch_size),
            item_start=integers(batch_size + 2),
            item_pairs=integers(batch_size),
            pair_user=integers(batch_size),
            pair_item=integers(batch_size),
            place_users=np.full(self._n_users, -1, dtype=np.int32),
            place_items=np.full(self._n_items, -1, dtype=np.int32),
        )

    def _work(self, batch_size: int) -> kernels.Work:
        def real(n: int) -> NDArray[Any]:
            return np.zeros(n, dtype=self._dtype)

        dim, kinds = self._model.dim, self._model.kinds
        return kernels.Work(
            slope=real(batch_size),
            residual_slope=real(batch_size),
            n_learned=np.zeros(batch_size, dtype=np.int64),
            weight=np.zeros(batch_size),
            mean_shown=np.zeros(batch_size),
            on_users=real(kinds * dim * batch_size),
            on_item=real(kinds * dim),
            on_exposure=real(whole(3 * dim + 3, self._dtype.itemsize)),
        )
