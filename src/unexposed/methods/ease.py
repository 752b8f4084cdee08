"""EASE (Steck 2019): every item predicted from the user's other clicks, in closed form."""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import lapack

from unexposed import memory
from unexposed.data.clicks import Clicks
from unexposed.data.pairs import Indices
from unexposed.errors import InputError
from unexposed.maths import algebra, exposure
from unexposed.model.filters import entries
from unexposed.model.fold_in import NewUsers
from unexposed.model.recommender import Recommender
from unexposed.ranking.blocks import Block
from unexposed.ranking.held_out import CRITERIA, DEFAULT
from unexposed.ranking.verdict import on_held_out
from unexposed.settings import setting
from unexposed.training.loop import Result, Training
from unexposed.training.side import Parameters, Side

MOST_ITEMS = 20_000  # items × items numbers are held: 3.2 GB in float64
FEW_ITEMS = 3_000  # a second solution, without the held-out clicks, takes about a second


@dataclass(frozen=True)
class EASE(Recommender):
    """Score of item j = Σ_i R̃_ui·B_ij, where B minimises, with zeros on its diagonal,

    Σ_uj [ (XB)_uj² − 2·R̃_uj/m_j·(XB)_uj ] + λ|B|²,  X = R̃:

    squared errors towards the relevance, unbiased for fixed inputs X, since E[R̃/m] is the
    relevance. With P = (XᵀX + λI)⁻¹ the solution is B_ij = −P_ij/P_jj/m_j for i ≠ j: weighting by
    inverse propensities divides the score of each item by its exposure. At m = 1 this is EASE.
    """

    name: ClassVar[str] = "ease"
    fixed_exposure: ClassVar[bool] = True
    takes: ClassVar[frozenset[str]] = frozenset({"start", "exposure"})  # an update starts afresh
    regularisation: float = setting(100.0, "λ", above=0, search=(1, 5000))
    popularity_exponent: float = setting(
        0.0,
        "of m = (clicks / most clicks)^exponent; 0: no weights",
        low=0,
        search=[0.0, 0.1, 0.25, 0.5],
    )
    popularity_floor: float = setting(0.01, "least m, the clipping of weights", above=0, high=1)
    refit: bool = setting(True, "learn from all clicks, the held-out ones too")

    def train(self, given: Training) -> Result:
        clicks, held_out, side = given.clicks, given.held_out, given.side
        if clicks.n_items > MOST_ITEMS:
            raise InputError(
                f"ease holds items × items numbers, for at most {MOST_ITEMS:,} items, and the log "
                f"has {clicks.n_items:,}; leave out rare items, or use wmf"
            )
        size = 12 * clicks.n_items**2  # in float64, and the result in float32
        memory.check("ease", size, what="items × items numbers", cure="leave out rare items")
        given.progress.note(f"ease: inverting {clicks.n_items:,} × {clicks.n_items:,} numbers")
        facts = dict[str, Any]()
        if len(held_out) and (clicks.n_items <= FEW_ITEMS or not self.refit):
            parameters = self._solved(clicks, side)
            scores = partial(self.scores, parameters, clicks=clicks)
            by = CRITERIA[DEFAULT]
            facts = {"verdict": on_held_out(scores, given.rivals, clicks, held_out, by)}
            if not self.refit:
                return parameters, facts
        return self._solved(clicks.union(held_out) if self.refit else clicks, side), facts

    def _solved(self, clicks: Clicks, side: Side) -> Parameters:
        """The weights between items that these clicks give, and the exposure of items if any."""
        shown = self.exposure_of_items(clicks, side)
        weights = item_weights(clicks, regularisation=self.regularisation)
        if shown is None:
            return {"item_weights": weights}
        weights /= shown
        return {"item_weights": weights, "exposure": shown}

    def exposure_of_items(self, clicks: Clicks, side: Side) -> exposure.Table | None:
        """m of each item; None: there are no weights."""
        if side.exposure is not None:
            table = exposure.given(side.exposure, n_users=clicks.n_users, n_items=clicks.n_items)
            if table.ndim == 1:
                return table
            raise InputError("ease takes one exposure for each item, not one for each pair")
        if self.popularity_exponent == 0:
            return None
        return exposure.popularity(
            clicks.item_counts, exponent=self.popularity_exponent, floor=self.popularity_floor
        )

    def scores(self, parameters: Parameters, users: Indices, clicks: Clicks) -> Block:
        weights = parameters["item_weights"]
        rows, items = entries(clicks.user_start[users], clicks.user_start[users + 1], clicks.items)
        ones = np.ones(len(items), dtype=np.float32)
        clicked = sp.csr_array((ones, (rows, items)), shape=(len(users), len(weights)))
        return np.asarray(clicked @ weights)

    def exposure(self, parameters: Parameters, users: Indices) -> Block | None:
        if "exposure" not in parameters:
            return None
        table = parameters["exposure"]
        return np.broadcast_to(table, (len(users), len(table)))

    def user_rows(self, parameters: Parameters, new: NewUsers) -> Parameters:
        """Nothing: a user is its clicks."""
        del parameters, new
        return {}


def item_weights(clicks: Clicks, *, regularisation: float) -> NDArray[np.float32]:
    """B_ij = −P_ij/P_jj, P = (XᵀX + λI)⁻¹, with zeros on the diagonal.

    P comes from the Cholesky factor, in place, on one thread: the same bits on any number of cores.
    """
    matrix = clicks.matrix().astype(np.float64)
    gram = np.asfortranarray((matrix.T @ matrix).toarray())
    diagonal = np.diag_indices(len(gram))
    gram[diagonal] += regularisation
    with algebra.one_thread():
        factor, failed = lapack.dpotrf(gram, lower=1, overwrite_a=1)
        inverse, failed_too = lapack.dpotri(factor, lower=1, overwrite_c=1)
    if failed or failed_too:
        raise InputError("the matrix of co-clicks cannot be inverted; raise regularisation")
    scale = -1 / inverse[diagonal]
    out = np.empty(inverse.shape, dtype=np.float32)
    for row in range(len(out)):  # the lower triangle holds P: P_ij = P_ji
        out[row, :row] = inverse[row, :row] * scale[:row]
        out[row, row:] = inverse[row:, row] * scale[row:]
    out[diagonal] = 0
    return out
