"""The parts of a trained method, and the tables that its relevance starts from."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks
from unexposed.engine.objective import Objective, Optimiser
from unexposed.maths.relevance import Relevance
from unexposed.methods.exposures import AllSeen, Exposure, Gated, OnClock
from unexposed.sampling.samples import Drawing
from unexposed.training.side import Side
from unexposed.training.strategy import ExposureLearning


@dataclass(frozen=True)
class Composition:
    """The parts of a trained method."""

    relevance: Relevance
    loss: str  # of `maths/losses.py`
    drawing: Drawing  # the samples of an epoch
    exposure: Exposure = AllSeen()  # noqa: RUF009  (it has no fields)
    learning: ExposureLearning | None = None  # how the exposure learns; None: it does not

    def relevance_of(
        self, clicks: Clicks, item_features: NDArray[np.float32] | None = None
    ) -> Relevance:
        """The relevance, built for the clicks that samples are drawn from."""
        log_odds = self.drawing.log_odds(clicks)
        return self.relevance.of(clicks, log_odds=log_odds, item_features=item_features)

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
