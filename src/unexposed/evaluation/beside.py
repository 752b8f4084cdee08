"""A model beside the popular list and `mf` on the same judged users, by every metric."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.evaluation import significance as statistics
from unexposed.methods.mf import simple_rival
from unexposed.methods.popularity import Popularity, popular_list
from unexposed.model.model import Model
from unexposed.progress import Silent
from unexposed.ranking import verdict as words
from unexposed.ranking.verdict import RIVALS, Gain, Verdict, joined

MANY = 20_000  # users: from here on resampling gives what the t-test gives, and takes minutes
Values = Mapping[str, NDArray[np.float64]]


def rivals_of(model: Model) -> dict[str, Model]:
    """The popular list of the model's own clicks, and `mf` where that trains in moments.

    None of them for a model that is a popular list; no `mf` for a part of a model's users.
    """
    if isinstance(model.method, Popularity):
        return {}
    found = {words.RIVAL: popular_list(model.clicks)}
    rival = simple_rival(model.method, len(model.clicks), refit=True)
    if rival is None or model.clicks.share is not None:
        return found
    trained = rival.fit(model.clicks, seed=model.facts.get("seed", 0), progress=Silent())
    return found | {rival.name: trained}


def gains(model: Values, rival: Values, name: str = words.RIVAL) -> dict[str, dict[str, Any]]:
    """The gain by every metric that is finite for all users, as plain data."""
    found = {}
    for metric, ours in model.items():
        theirs = rival[metric]
        if np.isfinite(ours).all() and np.isfinite(theirs).all():
            found[metric] = gain(ours, theirs).to_json(name)
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


def each_of_document(document: Mapping[str, Any]) -> list[Verdict]:
    """The verdict on judged pairs beside each rival, from what `describe` gives."""
    where = f"on judged pairs ({document['protocol']})"
    said = []
    for rival in RIVALS:
        if not (found := document.get("beside", {}).get(rival)):
            continue
        metric = headline(found)
        gains = {metric: Gain.from_json(found[metric], rival)}
        name, readings = document["method"], {metric: metric}
        said.append(words.verdict(name, gains, where=where, readings=readings, rival=rival))
    return said


def of_document(document: Mapping[str, Any]) -> Verdict | None:
    """The verdict on judged pairs beside all rivals; None for the popular list itself."""
    return joined(each_of_document(document))
