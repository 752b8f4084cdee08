"""ExpoMF (Liang et al. 2016): exposure as a hidden variable, by expectation maximisation."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit, logit, xlog1py, xlogy

from unexposed.data.clicks import Clicks
from unexposed.data.pairs import Indices
from unexposed.maths import algebra
from unexposed.maths.relevance import Vectors
from unexposed.methods.trained import TrainedMethod, continued, initial_factors
from unexposed.model.fold_in import NewUsers
from unexposed.progress import Progress
from unexposed.ranking.blocks import Block
from unexposed.settings import setting
from unexposed.training.loop import Trainee
from unexposed.training.side import Parameters, Side
from unexposed.workers import Workers

Array = NDArray[Any]

# Each thread holds a block of products of vector entries, a block of their sums and the solver's
# matrices: about 40 MB for any dim and any number of users and items.
BLOCK_ROWS = 512
BLOCK_PRODUCTS = 1_000_000
LEAST_PRIOR = 1e-6  # μ in [1e-6, 1 − 1e-6]: its log-odds stay finite


@dataclass(frozen=True)
class ExpoMF(TrainedMethod):
    """click | exposed ~ N(ω_uᵀω_i, 1/λ_y),  exposed ~ Bern(μ_i),  μ_i ~ Beta(a, b).

    An item that is not exposed is not clicked. ω_u, ω_i ~ N(0, 1/λ). A sweep maximises the log
    posterior of (ω, μ) in ω_u, in ω_i and in μ, and updates the posterior of exposure before each,
    so that the objective never falls. Ranking is by ω_uᵀω_i, the expected click once exposed.
    """

    name: ClassVar[str] = "expomf"
    takes: ClassVar[frozenset[str]] = frozenset({"start"})
    posterior_exposure: ClassVar[bool] = True
    epochs: int = setting(30, "most sweeps over users and items", low=1)
    click_precision: float = setting(0.3, "λ_y", above=0, search=(0.03, 10))
    regularisation: float = setting(1.0, "λ", above=0, search=(0.1, 30))
    prior_exposed: float = setting(1.0, "a of the Beta prior on μ", low=1)
    prior_unexposed: float = setting(1.0, "b of the Beta prior on μ", low=1)
    initial_exposure: float = setting(
        0.01, "the first μ of every item", above=0, high=0.99, search=(0.003, 0.5)
    )
    initial_scale: float = setting(0.01, "standard deviation of the first vectors", above=0)

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
        state = initial_factors(clicks, self.dim, self.initial_scale, rng)
        prior = np.full(clicks.n_items, self.initial_exposure, dtype=np.float32)
        state = continued(state | {"prior_exposure": prior}, side.start)
        matrix = clicks.matrix()
        by_item = sp.csr_array(matrix.T)

        def epoch() -> float:
            return -self.sweep(matrix, by_item, state) / clicks.n_users

        return Trainee.of_sweeps(self.name, epoch, state, rng)

    def sweep(self, matrix: sp.csr_array, by_item: sp.csr_array, state: Parameters) -> float:
        """Update users, items and μ in turn, in place; gives the log posterior before μ moves."""
        user_factors, item_factors = state["user_factors"], state["item_factors"]
        log_odds = logit(state["prior_exposure"])
        weights = {"precision": self.click_precision, "regularisation": self.regularisation}
        user_factors = regress(matrix, user_factors, item_factors, log_odds, **weights)
        item_factors = regress(by_item, item_factors, user_factors, log_odds[:, None], **weights)
        exposed, log_likelihood = expectation(
            matrix, user_factors, item_factors, log_odds, precision=self.click_precision
        )
        before = state["prior_exposure"].astype(np.float64)
        state["user_factors"], state["item_factors"] = user_factors, item_factors
        state["prior_exposure"] = self.prior(exposed, matrix.shape[0]).astype(item_factors.dtype)
        return log_likelihood + self.log_prior(user_factors, item_factors, before)

    def user_tables(self, parameters: Parameters) -> frozenset[str]:
        del parameters
        return frozenset({"user_factors"})

    def vectors(self, parameters: Parameters) -> Vectors:
        return Vectors(parameters["user_factors"], parameters["item_factors"])

    def user_rows(self, parameters: Parameters, new: NewUsers) -> Parameters:
        """As many regressions on the items as there were sweeps, from vectors of zeros."""
        items, matrix = parameters["item_factors"], new.clicks.matrix()
        users = np.zeros((new.clicks.n_users, items.shape[1]), dtype=items.dtype)
        log_odds = logit(parameters["prior_exposure"])
        weights = {"precision": self.click_precision, "regularisation": self.regularisation}
        for _ in range(new.epochs):
            users = regress(matrix, users, items, log_odds, **weights)
        return {"user_factors": users}

    def prior(self, exposed: Array, n_users: int) -> Array:
        """μ_i = (a + Σ_u p_ui − 1) / (a + b + U − 2), the mode given the expected exposures."""
        a, b = self.prior_exposed, self.prior_unexposed
        return np.clip((a + exposed - 1) / (a + b + n_users - 2), LEAST_PRIOR, 1 - LEAST_PRIOR)

    def log_prior(self, user_factors: Array, item_factors: Array, prior_exposure: Array) -> float:
        """log p(ω)p(μ) up to constants: −½λ|ω|² + Σ_i (a − 1)·log μ_i + (b − 1)·log(1 − μ_i)."""
        squares = sum(
            float(np.sum(f.astype(np.float64) ** 2)) for f in (user_factors, item_factors)
        )
        beta = xlogy(self.prior_exposed - 1, prior_exposure)
        beta = beta + xlog1py(self.prior_unexposed - 1, -prior_exposure)
        return -self.regularisation / 2 * squares + float(beta.sum())

    def exposure(self, parameters: Parameters, users: Indices) -> Block:
        """P(exposed | no click, ω, μ): below the prior μ_i if the user would have clicked the item.

        A clicked pair was certainly exposed, but the parameters do not hold the clicks.
        """
        return exposure_given_no_click(
            parameters["user_factors"][users] @ parameters["item_factors"].T,
            logit(parameters["prior_exposure"]),
            precision=self.click_precision,
        )

    def pair_exposure(self, parameters: Parameters, users: Indices, items: Indices) -> Array:
        score = np.einsum(
            "nd,nd->n", parameters["user_factors"][users], parameters["item_factors"][items]
        )
        prior = logit(parameters["prior_exposure"][items])
        return exposure_given_no_click(score, prior, precision=self.click_precision)


def exposure_given_no_click(score: Array, prior_log_odds: Array, *, precision: float) -> Array:
    """p = μ·N(0 | s, 1/λ_y) / (μ·N(0 | s, 1/λ_y) + 1 − μ), with s = ω_uᵀω_i.

    As log-odds: log μ/(1 − μ) + log N, where log N(0 | s, 1/λ_y) = ½·log(λ_y/2π) − ½·λ_y·s².
    The authors' public code has another constant in log N.
    """
    return expit(_log_odds(score, prior_log_odds, precision))


def regress(
    clicks: sp.csr_array,  # own × other, 1 for a click
    own: Array,  # (own, dim): used only in the posterior of exposure
    other: Array,  # (other, dim)
    prior_log_odds: Array,  # of μ: (other,), or (own, 1) if the own rows are items
    *,
    precision: float,
    regularisation: float,
) -> Array:
    """The best own vectors given the others': (λ_y·Σ p·ωωᵀ + λI) x = λ_y·Σ_clicked ω, by row.

    Σ p·ωωᵀ is one matrix product for a block of rows and a block of the others: p times the
    table of products ω_j·ω_k, j ≤ k. Sums and solution are in float64.
    """
    dim = own.shape[1]
    upper = np.triu_indices(dim)
    prior = np.broadcast_to(prior_log_odds, clicks.shape)  # a view, without memory of its own
    out = np.empty_like(own)
    size = max(1, min(BLOCK_ROWS, BLOCK_PRODUCTS // len(upper[0])))

    def solve(rows: slice) -> None:
        mine = clicks[rows]
        sums = np.zeros((mine.shape[0], len(upper[0])))
        for columns in _parts(clicks.shape[1], size):
            score = own[rows] @ other[columns].T
            p = exposure_given_no_click(score, prior[rows, columns], precision=precision)
            p[mine[:, columns].nonzero()] = 1
            vectors = other[columns]
            sums += p @ (vectors[:, upper[0]] * vectors[:, upper[1]])
        left = np.empty((len(sums), dim, dim))
        left[:, upper[0], upper[1]] = precision * sums
        left[:, upper[1], upper[0]] = precision * sums
        left[:, np.arange(dim), np.arange(dim)] += regularisation
        right = precision * (mine @ other).astype(np.float64)
        out[rows] = np.linalg.solve(left, right[:, :, None])[:, :, 0]

    algebra.each(solve, _parts(clicks.shape[0], size))
    return out


def expectation(
    clicks: sp.csr_array,
    user_factors: Array,
    item_factors: Array,
    prior_log_odds: Array,  # (items,)
    *,
    precision: float,
) -> tuple[Array, float]:
    """Σ_u p_ui of each item, and the log likelihood of the clicks, exposure summed out.

    A click: log μ_i + log N(1 | s, 1/λ_y). None: log(μ_i·N(0 | s, 1/λ_y) + 1 − μ_i), which is
    log(1 − μ_i) + log(1 + eᶻ) with z the posterior log-odds of exposure.
    """
    log_shown = np.log(expit(prior_log_odds.astype(np.float64)))  # log μ
    log_hidden = np.log(expit(-prior_log_odds.astype(np.float64)))  # log(1 − μ)

    def expect(rows: slice) -> tuple[Array, float]:
        exposed, log_likelihood = np.zeros(clicks.shape[1]), 0.0
        mine = clicks[rows]
        for columns in _parts(clicks.shape[1], BLOCK_ROWS):
            score = user_factors[rows] @ item_factors[columns].T
            log_odds = _log_odds(score, prior_log_odds[columns], precision)
            clicked = mine[:, columns].nonzero()
            log_density = _log_density(1 - score[clicked].astype(np.float64), precision)
            unclicked = log_hidden[columns] + np.logaddexp(0, log_odds)
            unclicked[clicked] = log_shown[columns][clicked[1]] + log_density
            log_likelihood += float(unclicked.sum(dtype=np.float64))
            p = expit(log_odds)
            p[clicked] = 1
            exposed[columns] += p.sum(axis=0, dtype=np.float64)
        return exposed, log_likelihood

    exposed, log_likelihood = zip(
        *algebra.each(expect, _parts(clicks.shape[0], BLOCK_ROWS)), strict=True
    )
    return np.sum(exposed, axis=0), sum(log_likelihood)


def _log_odds(score: Array, prior_log_odds: Array, precision: float) -> Array:
    """log P(exposed | no click) / P(not exposed | no click)."""
    return prior_log_odds + _log_density(score, precision)


def _log_density(distance: Array, precision: float) -> Array:
    """log N(x | s, 1/λ_y) = ½·log(λ_y/2π) − ½·λ_y·(x − s)²."""
    return float(np.log(precision / (2 * np.pi))) / 2 - precision / 2 * distance**2


def _parts(n: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, n)) for start in range(0, n, size))
