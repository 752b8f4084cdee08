"""Check what a saved file says about a training, before any of it is used.

Each check raises ValueError; `archive.refusing` turns it into a sentence that names the file.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from unexposed.errors import plain
from unexposed.files.archive import Arrays

MOST_EPOCHS = 10_000_000  # folding in a user takes as many epochs as the training
MOST = 2**63 - 1

Rule = Callable[[Any], bool]


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_count(value: Any, most: int = MOST) -> bool:
    return type(value) is int and 0 <= value <= most


def is_epochs(value: Any) -> bool:
    return is_count(value, MOST_EPOCHS)


def is_number(value: Any) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))


def is_duration(value: Any) -> bool:
    return is_number(value) and value >= 0


def list_of(rule: Rule) -> Rule:
    return lambda value: isinstance(value, list) and all(map(rule, value))


def table_of(rule: Rule) -> Rule:
    return lambda value: isinstance(value, dict) and all(map(rule, value.values()))


def is_verdict(value: Any) -> bool:
    """Whether a value holds gains by rival and reading."""
    return isinstance(value, dict) and all(
        isinstance(gains, dict) and all(is_gain(gain, rival) for gain in gains.values())
        for rival, gains in value.items()
    )


def is_gain(value: Any, rival: str) -> bool:
    """Whether a value is what `Gain.to_json` of `ranking.verdict` writes, or holds more."""
    if not isinstance(value, dict):
        return False
    numbers = (value.get(name) for name in ("mean", rival, "difference", "p_value"))
    ends = value.get("ci95", [])
    return (
        all(map(is_number, numbers))
        and list_of(is_number)(ends)
        and len(ends) == 2
        and 0 <= value["p_value"] <= 1
        and is_count(value.get("users"))
    )


COURSE: dict[str, Rule] = {  # the fields of `checkpoint.Course`
    "losses": list_of(is_number),
    "values": list_of(is_number),
    "best_epoch": is_epochs,
    "best_value": lambda value: is_number(value) or value == -math.inf,
    "seconds": is_duration,
    "resumed_at": list_of(is_epochs),
}
TRAINED: dict[str, Rule] = {  # the facts that every training reports
    "epochs_run": is_epochs,
    "best_epoch": is_epochs,
    "best_value": lambda value: value is None or is_number(value),
    "ended": is_text,
    "losses": list_of(is_number),
    "held_out": list_of(is_number),
    "seconds": is_duration,
}
FACTS: dict[str, Rule] = TRAINED | {
    "seed": lambda value: type(value) is int,
    "engine": is_text,
    "criteria": table_of(list_of(is_number)),  # of the chosen epoch: value, standard error
    "verdict": is_verdict,  # of the chosen epoch, by rival and reading
    "resumed_at": list_of(is_epochs),
    "refitted_on": is_count,
    "side": list_of(is_text),
    "split": is_text,
    "encodings": table_of(list_of(lambda value: isinstance(value, dict))),  # of features, by role
    "log_impressions": is_text,  # their fingerprint
    "impressions": is_count,  # pairs used
    "attention": is_number,
    "traffic": is_count,
    "epochs_before": is_epochs,
    "updates": is_count,
}


def check_facts(facts: Any) -> dict[str, Any]:
    """Return a model's facts: all facts of a training or none, each of its type and range."""
    _check(facts, FACTS)
    if TRAINED.keys() & facts.keys():
        _need(facts, TRAINED)
        _within("best_epoch", facts["best_epoch"], facts["epochs_run"])
        _within("epochs_run", facts["epochs_run"], len(facts["losses"]))
    return dict(facts)


def check_course(course: Any) -> dict[str, Any]:
    """Return the course of a training as its checkpoint states it."""
    _check(course, COURSE)
    _need(course, COURSE)
    _within("best_epoch", course["best_epoch"], len(course["losses"]))
    if len(course["values"]) not in (0, len(course["losses"])):
        raise ValueError("it has not one value for each epoch")
    return dict(course)


def check_state(arrays: Arrays) -> None:
    """Refuse numbers that are not finite, and counts that are negative or too large."""
    for name, array in arrays.items():
        if array.dtype.kind == "f":
            sound = bool(np.isfinite(array).all())
        else:  # counts of steps, which compiled code uses as positions: one more must fit as well
            most = np.iinfo(array.dtype).max // 2
            sound = array.size == 0 or bool(array.min() >= 0 and array.max() <= most)
        if not sound:
            raise ValueError(f"{name} holds numbers that no training leaves there")


def check_alike(found: Arrays, like: Arrays) -> None:
    """Refuse arrays that differ from the expected ones in name, type or shape."""
    for name in found.keys() ^ like.keys():
        raise ValueError(f"{name} is there once")
    for name, array in like.items():
        if (found[name].shape, found[name].dtype) != (array.shape, array.dtype):
            raise ValueError(f"{name} has not the shape it has here")


def _check(claims: Any, rules: Mapping[str, Rule]) -> None:
    if not isinstance(claims, dict):
        raise ValueError(f"it says {plain(claims, 40)} where it should say what was done")
    for name, value in claims.items():
        if name in rules and not rules[name](value):
            raise ValueError(f"its {name} cannot be {plain(repr(value), 40)}")


def _need(claims: Mapping[str, Any], names: Mapping[str, Rule]) -> None:
    for name in names.keys() - claims.keys():
        raise KeyError(name)


def _within(name: str, value: int, most: int) -> None:
    if value > most:
        raise ValueError(f"its {name} cannot be {value}, after {most}")
