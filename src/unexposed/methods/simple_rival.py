"""`mf` as the rival of another method: on the same clicks, where training it takes moments."""

from unexposed import ranks
from unexposed.methods.mf import MF
from unexposed.methods.popularity import Popularity
from unexposed.methods.trained import TrainedMethod
from unexposed.model.recommender import Recommender
from unexposed.settings import changed, known

SECONDS = 2.0  # a rival that takes longer is left to `compare`
NUMBER = 9e-9  # seconds of an epoch for a click, times 100 + dim: one core of the CPU engine


def simple_rival(method: Recommender, n_clicks: int, *, refit: bool) -> MF | None:
    """`mf` with the same dim, epochs and criterion; None where it would say nothing or take long.

    The method may be `mf` itself or a popular list, or train in a process group.
    """
    if isinstance(method, MF | Popularity) or ranks.several() or n_clicks == 0:
        return None
    given = changed(method) | ({"dim": method.dim} if isinstance(method, TrainedMethod) else {})
    shared = known(TrainedMethod).keys() - {"refit", "epoch_by"}
    rival = MF(**{name: value for name, value in given.items() if name in shared}, refit=refit)
    return rival if seconds(rival, n_clicks) <= SECONDS else None


def seconds(rival: MF, n_clicks: int) -> float:
    """About how long a training takes, from measurements on one core."""
    return n_clicks * rival.epochs * (100 + rival.dim) * NUMBER * (2 if rival.refit else 1)
