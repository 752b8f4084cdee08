"""The parts of a trained method, and the tables that its relevance starts from."""

from dataclasses import dataclass, replace

import numpy as np

from unexposed.data.clicks import Clicks
from unexposed.engine.objective import Objective, Optimiser
from unexposed.errors import InputError
from unexposed.maths.relevance import DotProduct, Relevance, WithFeatures
from unexposed.methods.exposures import AllSeen, Exposure, Gated, OnClock
from unexposed.sampling.samples import Drawing
from unexposed.training.side import Parameters, Side
from unexposed.training.strategy import ExposureLearning

BIAS_START = "bias_start"  # the parameter that keeps where user biases start, for new users


@dataclass(frozen=True)
class Composition:
    """The parts of a trained method."""

    relevance: Relevance
    loss: str  # of `maths/losses.py`
    drawing: Drawing  # the samples of an epoch
    exposure: Exposure = AllSeen()  # noqa: RUF009  (it has no fields)
    learning: ExposureLearning | None = None  # how the exposure learns; None: it does not

    def relevance_of(self, clicks: Clicks) -> Relevance:
        """The relevance, whose user biases start at the log-odds of a click in these samples."""
        relevance = self.relevance
        if isinstance(relevance, DotProduct) and relevance.biases == "both":
            return replace(relevance, start=self.drawing.log_odds(clicks))
        return relevance

    def objective(self) -> Objective:
        if self.learning is None or isinstance(self.exposure, OnClock):
            return Objective(self.loss)
        offset = self.exposure.offset if isinstance(self.exposure, Gated) else 0.0
        guide = self.learning.guide
        return Objective(
            self.loss, self.learning.strategy, offset=offset, validation_batch=guide.batch
        )

    def optimiser(self, learning_rate: float, weight_decay: float) -> Optimiser:
        if self.learning is None:
            return Optimiser(learning_rate, weight_decay)
        return Optimiser(
            learning_rate,
            weight_decay,
            exposure_learning_rate=self.learning.learning_rate,
            exposure_weight_decay=self.learning.weight_decay,
            gate_pace=self.learning.gate_pace,
            lookahead=self.learning.lookahead,
        )

    def learned_from(self, clicks: Clicks, side: Side) -> Clicks:
        """The clicks that samples are drawn from."""
        if self.learning is None:
            return clicks
        return self.learning.guide.training_clicks(clicks, side.validation)


def initial(relevance: Relevance, clicks: Clicks, rng: np.random.Generator) -> Parameters:
    """The first values of every table, with the rows of own users where ranks divide the log."""
    if clicks.share is None:
        return relevance.initial(clicks.n_users, clicks.n_items, rng)
    if not isinstance(relevance, DotProduct | WithFeatures):
        raise InputError("several ranks train dot products only: train this in one process")
    return relevance.initial(clicks.share.n_users, clicks.n_items, rng, clicks.share.users)


def bias_start(relevance: Relevance) -> Parameters:
    """Where user biases start, as a parameter of the model; nothing without biases."""
    if not isinstance(relevance, DotProduct) or relevance.biases == "none":
        return {}
    return {BIAS_START: np.array([relevance.start], dtype=np.float32)}


def check_biases(start: Parameters | None, *, biases: bool) -> None:
    """Refuse an earlier model whose rows have other columns."""
    if start is not None and (BIAS_START in start) != biases:
        raise InputError(
            f"the earlier model was trained with biases={not biases}: continue it with the same"
        )
