"""Weighted matrix factorisation (Hu, Koren and Volinsky 2008), by alternating least squares."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks
from unexposed.maths import algebra
from unexposed.maths.relevance import Vectors
from unexposed.methods.pair_data import Counts, count_weights
from unexposed.methods.trained import TrainedMethod, continued, initial_factors
from unexposed.model.fold_in import NewUsers
from unexposed.progress import Progress
from unexposed.settings import setting
from unexposed.training.loop import Trainee
from unexposed.training.side import Parameters, Side
from unexposed.workers import Workers


@dataclass(frozen=True)
class WMF(TrainedMethod):
    """Σ c·(R̃ − ω_uᵀω_i)² + λ(|ω_u|² + |ω_i|²), c = 1 for a click and c₀ < 1 for the rest.

    With counts, c = (1 + α·n)/(1 + α) for a pair clicked n times, or log₂(1 + n) in place of n.
    """

    name: ClassVar[str] = "wmf"
    takes: ClassVar[frozenset[str]] = frozenset({"start"})
    epochs: int = setting(30, "most sweeps over users and items", low=1)
    unclicked_weight: float = setting(
        0.1, "c₀, how much a missing click counts", above=0, high=1, search=(0.01, 1)
    )
    regularisation: float = setting(5.0, "λ", above=0, search=(0.1, 100))
    counts: Counts = setting(
        "ignored", "weigh a click by how often the pair was clicked, n, or by log₂(1 + n)"
    )
    count_weight: float = setting(
        1.0, "α of the weight (1 + α·n)/(1 + α) of a click, where counts are used", above=0
    )
    initial_scale: float = setting(0.1, "standard deviation of the first vectors", above=0)

    def trainee(
        self,
        clicks: Clicks,
        *,
        seed: int,
        side: Side,
        progress: Progress,
        workers: Workers | None = None,
    ) -> Trainee:
        del progress, workers
        rng = np.random.default_rng(seed)
        matrix = self._weighted(clicks)
        by_item = sp.csr_array(matrix.T)
        factors = initial_factors(clicks, self.dim, self.initial_scale, rng)
        factors = continued(factors, side.start)

        def epoch() -> float:
            with algebra.one_thread():
                factors["user_factors"] = self._solve(matrix, factors["item_factors"])
                factors["item_factors"] = self._solve(by_item, factors["user_factors"])
                return self._objective(matrix, **factors)

        return Trainee.of_sweeps(self.name, epoch, factors, rng)

    def user_tables(self, parameters: Parameters) -> frozenset[str]:
        del parameters
        return frozenset({"user_factors"})

    def vectors(self, parameters: Parameters) -> Vectors:
        return Vectors(parameters["user_factors"], parameters["item_factors"])

    def user_rows(self, parameters: Parameters, new: NewUsers) -> Parameters:
        with algebra.one_thread():
            rows = self._solve(self._weighted(new.clicks), parameters["item_factors"])
        return {"user_factors": rows}

    def _weighted(self, clicks: Clicks) -> sp.csr_array:
        """The clicks as a matrix of their c."""
        matrix = clicks.matrix()
        if self.counts != "ignored":
            counts = clicks.checked().counts
            matrix.data = count_weights(counts, form=self.counts, alpha=self.count_weight)
        return matrix

    def _solve(self, clicks: sp.csr_array, other: NDArray[Any]) -> NDArray[np.float32]:
        """The best rows given the other side: (c₀YᵀY + Y_cᵀ(C − c₀)Y_c + λI) x = Y_cᵀC·1."""
        if self.counts != "ignored":
            return self._solve_weighted(clicks, other)
        base = self.unclicked_weight * (other.T @ other)
        base += self.regularisation * np.eye(self.dim, dtype=np.float32)
        out = np.empty((clicks.shape[0], self.dim), dtype=np.float32)
        for row in range(clicks.shape[0]):
            clicked = other[clicks.indices[clicks.indptr[row] : clicks.indptr[row + 1]]]
            left = base + (1 - self.unclicked_weight) * (clicked.T @ clicked)
            out[row] = np.linalg.solve(left, clicked.sum(axis=0))
        return out

    def _solve_weighted(self, clicks: sp.csr_array, other: NDArray[Any]) -> NDArray[np.float32]:
        base = self.unclicked_weight * (other.T @ other)
        base += self.regularisation * np.eye(self.dim, dtype=np.float32)
        out = np.empty((clicks.shape[0], self.dim), dtype=np.float32)
        for row in range(clicks.shape[0]):
            part = slice(clicks.indptr[row], clicks.indptr[row + 1])
            clicked, weight = other[clicks.indices[part]], clicks.data[part]
            left = base + (clicked.T * (weight - self.unclicked_weight)) @ clicked
            out[row] = np.linalg.solve(left, clicked.T @ weight)
        return out

    def _objective(
        self, clicks: sp.csr_array, *, user_factors: NDArray[Any], item_factors: NDArray[Any]
    ) -> float:
        """The loss by user: Σ over all pairs by Gram matrices, without a users × items table."""
        coo = clicks.tocoo()
        score = np.einsum("nd,nd->n", user_factors[coo.row], item_factors[coo.col])
        over_all = np.sum((user_factors.T @ user_factors) * (item_factors.T @ item_factors))
        missed = self.unclicked_weight * (over_all - np.sum(score**2))
        decay = self.regularisation * (np.sum(user_factors**2) + np.sum(item_factors**2))
        return float((np.sum(coo.data * (1 - score) ** 2) + missed + decay) / clicks.shape[0])
