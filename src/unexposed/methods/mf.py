"""Plain matrix factorisation: every item is taken as seen, so a missing click is a dislike."""

from dataclasses import dataclass
from typing import ClassVar

from unexposed.methods.composed import Composition, PointwiseMethod
from unexposed.methods.trained import TrainedMethod
from unexposed.model.recommender import Recommender
from unexposed.settings import changed, known

SECONDS = 2.0  # a rival that takes longer is left to `compare`
NUMBER = 9e-9  # seconds of an epoch for a click, times 100 + dim: one core of the CPU engine


@dataclass(frozen=True)
class MF(PointwiseMethod):
    """−[ R̃·log p + (1 − R̃)·log(1 − p) ]: the low-variance loss at m = 1."""

    name: ClassVar[str] = "mf"

    def composition(self) -> Composition:
        return Composition(self.relevance_model(), "low_variance", self.drawing())


def simple_rival(method: Recommender, n_clicks: int, *, refit: bool) -> MF | None:
    """`mf` with the dim, epochs and criterion of another method, where training it takes moments.

    None for `mf` itself, for a baseline, and where the training would take longer.
    """
    if method.name == MF.name or method.baseline or n_clicks == 0:
        return None
    own = changed(method) | ({"dim": method.dim} if isinstance(method, TrainedMethod) else {})
    shared = known(TrainedMethod).keys() - {"refit", "epoch_by"}
    rival = MF(**{name: value for name, value in own.items() if name in shared}, refit=refit)
    seconds = n_clicks * rival.epochs * (100 + rival.dim) * NUMBER * (2 if refit else 1)
    return rival if seconds <= SECONDS else None
