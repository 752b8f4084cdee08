"""A model beside the popular list on the same judged users, by every metric of a protocol."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.evaluation import significance as statistics
from unexposed.methods.popularity import Popularity, popular_list
from unexposed.model.model import Model
from unexposed.ranking import verdict as words
from unexposed.ranking.verdict import Gain, Verdict

MANY = 20_000  # users: from here on resampling gives what the t-test gives, and takes minutes
Values = Mapping[str, NDArray[np.float64]]


def rival_of(model: Model) -> Model | None:
    """The popular list of the model's own clicks; None if the model is a popular list."""
    return None if isinstance(model.method, Popularity) else popular_list(model.clicks)


def gains(model: Values, rival: Values) -> dict[str, dict[str, Any]]:
    """The gain by every metric that is finite for all users, as plain data."""
    found = {}
    for name, ours in model.items():
        theirs = rival[name]
        if np.isfinite(ours).all() and np.isfinite(theirs).all():
            found[name] = gain(ours, theirs).to_json()
    return found


def gain(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> Gain:
    """A difference with its interval by resampling users and its test by sign flips."""
    found = words.gain(ours, theirs) if len(ours) >= MANY else None
    if found is not None:
        return found
    low, high = statistics.bootstrap_interval(ours - theirs, seed=0)
    p = statistics.paired_test(ours, theirs, seed=0).p_value
    return Gain(float(ours.mean()), float(theirs.mean()), low, high, p, len(ours))


def headline(metrics: Iterable[str]) -> str:
    """The metric that a verdict goes by: dcg@3 as in the paper, or else the first."""
    names = list(metrics)
    return "dcg@3" if "dcg@3" in names else names[0]


def of_document(document: Mapping[str, Any]) -> Verdict | None:
    """The verdict on judged pairs from what `describe` gives; None for the popular list itself."""
    found = document.get("beside", {}).get(words.RIVAL)
    if not found:
        return None
    metric = headline(found)
    gains = {metric: Gain.from_json(found[metric])}
    where = f"on judged pairs ({document['protocol']})"
    return words.verdict(document["method"], gains, where=where, readings={metric: metric})
