"""`ux.Estimator`: a method in the shape that scikit-learn expects."""

from importlib import import_module
from typing import Any, Self

import numpy as np

from unexposed.api.inputs import NO_COLUMNS, as_judged, as_protocol
from unexposed.api.methods import as_methods
from unexposed.cards import Card, HasCard
from unexposed.data.clicks import Clicks
from unexposed.data.ids import match
from unexposed.data.log import read_log
from unexposed.errors import InputError, LogWarning, did_you_mean, warn
from unexposed.evaluation import protocols
from unexposed.evaluation.protocols import DEFAULT, Protocol
from unexposed.model.model import Model
from unexposed.model.recommender import Recommender

NESTED = "method__"  # scikit-learn's prefix of the settings of `method`


class Estimator(HasCard):
    """A method that scikit-learn can clone, search and cross-validate; `fit` keeps the model.

    X holds the clicks of a log, one in each row: a frame (of `clicks.frame()`, for example), an
    array of pairs of raw ids, or a list of such pairs. Cross-validation holds some rows out; have
    it shuffle them, `KFold(5, shuffle=True)`: a log is ordered by user, and the model cannot rank
    items for users it never saw. `score` is the mean of `metric` over users, under `protocol`,
    with the held-out rows as the relevant pairs; rows of a user or item that is not in training
    are left out. There is no y.
    """

    def __init__(
        self,
        method: str | Recommender = "mf",
        *,
        seed: int = 0,
        protocol: str | Protocol = DEFAULT,
        metric: str = "ndcg@10",
    ) -> None:
        self.method = method
        self.seed = seed
        self.protocol = protocol
        self.metric = metric

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of the constructor and, if deep, the method's settings as `method__…`."""
        own = {name: getattr(self, name) for name in ("method", "seed", "protocol", "metric")}
        if not deep:
            return own
        settings = self._recommender().get_params().items()
        return own | {NESTED + name: value for name, value in settings}

    def set_params(self, **given: Any) -> Self:
        """Change arguments of the constructor or, as `method__…`, settings of the method."""
        known = self.get_params(deep=False)
        nested = {name: value for name, value in given.items() if name.startswith(NESTED)}
        for name in given.keys() - nested.keys():
            if name not in known:
                raise InputError(f"Estimator has no {name!r}; {did_you_mean(name, known)}")
            setattr(self, name, given[name])
        if nested:
            settings = {name.removeprefix(NESTED): value for name, value in nested.items()}
            self.method = self._recommender().set_params(**settings)
        return self

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train the method on the clicks in X; the model is `model_`."""
        del y
        self.model_: Model = self._recommender().fit(_clicks(X), seed=self.seed)
        return self

    def score(self, X: Any, y: Any = None) -> float:
        """The mean of the metric over users, with the clicks in X as the relevant pairs."""
        del y
        if not self.__sklearn_is_fitted__():
            raise InputError("this Estimator has no model yet: call fit first")
        by = as_protocol(self.protocol, [self.metric])
        rows = _clicks(X, any_size=True)
        strangers = int((match(rows.user_ids, self.model_.user_ids) < 0).sum())
        if strangers > rows.n_users / 2:
            warn(
                f"{strangers:,} of {rows.n_users:,} users to score have no clicks in training and "
                "are left out: let folds shuffle the rows, KFold(5, shuffle=True)",
                LogWarning,
            )
        judged = as_judged(rows, self.model_, NO_COLUMNS, by)
        return protocols.evaluate(self.model_, judged, by).means()[self.metric]

    def __repr__(self) -> str:
        given = ", ".join(f"{k}={v!r}" for k, v in self.get_params(deep=False).items())
        return f"Estimator({given})"

    def card(self) -> Card:
        """What it was made of, and the model if there is one."""
        facts = {name: repr(value) for name, value in self.get_params(deep=False).items()}
        fitted = {"model": repr(self.model_)} if self.__sklearn_is_fitted__() else {}
        return Card("Estimator", facts | fitted)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        sklearn = import_module("sklearn.utils")  # which asks for its tags
        return sklearn.Tags(None, target_tags=sklearn.TargetTags(required=False))

    def _recommender(self) -> Recommender:
        found = list(as_methods(self.method).values())
        if len(found) > 1:
            raise InputError("Estimator takes one method: make one of each")
        return found[0]


def _clicks(X: Any, *, any_size: bool = False) -> Clicks:
    """The clicks of a frame, or of pairs of raw ids."""
    if isinstance(X, Clicks):
        return X
    if isinstance(X, np.ndarray | list):
        if any(np.shape(pair) != (2,) for pair in X):
            raise InputError("X must hold a user and an item in each row, or be a frame")
        users, items = zip(*X, strict=True) if len(X) else ((), ())
        X = {"user": list(users), "item": list(items)}
    return read_log(X, any_size=any_size)
