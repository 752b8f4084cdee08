"""How an exposure learns beside relevance: strategy, learning rates, validation set."""

from dataclasses import dataclass

import numpy as np

from unexposed.data import over_ranks
from unexposed.data.clicks import Clicks
from unexposed.engine.objective import Strategy
from unexposed.errors import InputError
from unexposed.sampling import validation
from unexposed.sampling.validation import ValidationSet


@dataclass(frozen=True)
class Guide:
    """How to take a small unbiased set from a log; given random traffic replaces it."""

    users: float  # share of the users, the most active
    items: int  # clicked and unclicked items of each; 0: all that the user clicked
    negatives: validation.Negatives
    batch: int  # pairs used at each step; 0: all
    in_training: bool  # whether its clicks stay in training
    checks: bool = False  # whether half of the pairs is kept to choose the epoch by

    def from_log(self, clicks: Clicks, rng: np.random.Generator | None = None) -> ValidationSet:
        return validation.from_log(
            clicks, users=self.users, items=self.items, negatives=self.negatives, rng=rng
        )

    def pairs(
        self, clicks: Clicks, given: ValidationSet | None, rng: np.random.Generator
    ) -> ValidationSet:
        """The validation pairs, in the order in which steps use them."""
        if self.checks:
            return self.halves(clicks, given)[0].shuffled(rng)
        return (given or self.from_log(clicks, rng)).shuffled(rng)

    def halves(
        self, clicks: Clicks, given: ValidationSet | None
    ) -> tuple[ValidationSet, ValidationSet]:
        """A random half of the pairs to learn from, and the other to choose the epoch by."""
        pairs = (given or self.from_log(clicks)).shuffled(np.random.default_rng(0))
        half = pairs.n_pairs // 2
        if half == 0:
            raise InputError(
                "the validation set has a single pair, too few for epoch_by=validation: "
                "raise validation_users, or use epoch_by=held_out"
            )
        return pairs.part(0, half), pairs.part(half, pairs.n_pairs)

    def training_clicks(self, clicks: Clicks, given: ValidationSet | None) -> Clicks:
        """The clicks that samples are drawn from."""
        if self.in_training or given is not None:
            return clicks
        in_guide = np.isin(clicks.keys, self.from_log(clicks).keys(clicks.n_items))
        if over_ranks.count(int((~in_guide).sum())) == 0:
            raise InputError(
                "the validation set holds every click, so no click is left to train on: "
                "keep validation_in_training, or lower validation_users or validation_items"
            )
        return clicks.pick(~in_guide)


@dataclass(frozen=True)
class ExposureLearning:
    """A strategy of `maths/bilevel.py`, with Adam's rates for the exposure."""

    strategy: Strategy
    learning_rate: float
    weight_decay: float
    gate_pace: float  # the gate's learning rate, as a share of the exposure's
    lookahead: float  # η of the look-ahead step
    guide: Guide
