"""Methods by label, from names as on a command line, from methods, or from both."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from unexposed import settings as checks
from unexposed.errors import InputError, did_you_mean
from unexposed.methods import method
from unexposed.model.recommender import Recommender
from unexposed.ranking.held_out import criterion as criterion_named

Methods = str | Recommender | Iterable[str | Recommender] | Mapping[str, str | Recommender]
Kind = type[Recommender]


def as_methods(
    given: Methods, settings: Iterable[str] = (), criterion: str | None = None
) -> dict[str, Recommender]:
    """Methods by label.

    A text names methods, some with settings of their own: `mf,ubo:strategy=joint:dim=20`. Each of
    `settings` is `dim=64`, for every method that has it, or `ubo.dim=64` for one. They and the
    criterion leave alone what a method was given itself.
    """
    if criterion is not None:
        criterion_named(criterion)
    asked: dict[str, tuple[Kind, dict[str, Any]]] = {}
    for label, kind, own in _asked(given):
        if label in asked:
            raise InputError(f"the method {label!r} is given twice: leave one out")
        asked[label] = kind, own
    if not asked:
        raise InputError("no method given; name some, for example popularity,mf,bpr")
    shared = list(_shared(settings, {kind.name: kind for kind, _ in asked.values()}))
    made = {}
    for label, (kind, own) in asked.items():
        usual: dict[str, Any] = {}
        if criterion is not None and "criterion" in checks.known(kind):
            usual["criterion"] = criterion
        for name, key, text in shared:
            if name == kind.name:
                usual[key] = checks.parse_value(name, kind, key, text)
        made[label] = kind(**usual | own)
    return made


def _asked(given: Methods) -> Iterator[tuple[str, Kind, dict[str, Any]]]:
    """The label and class of each method, and the settings that it was given itself."""
    if isinstance(given, Mapping):
        for label, one in given.items():
            for _, kind, own in _asked(one):
                yield str(label), kind, own
    elif isinstance(given, str):
        for label in filter(None, map(str.strip, given.split(","))):
            name, *texts = label.split(":")
            kind = method(name)
            pairs = [_assignment(text) for text in texts]
            yield label, kind, {k: checks.parse_value(name, kind, k, v) for k, v in pairs}
    elif isinstance(given, Recommender):
        own = checks.changed(given)
        yield given.name + "".join(f":{k}={v}" for k, v in own.items()), type(given), own
    elif isinstance(given, Iterable):
        for one in given:
            yield from _asked(one)
    else:
        kind_of = type(given).__name__
        raise InputError(f"a method is a name or comes from ux.make, got {kind_of}")


def _shared(settings: Iterable[str], kinds: Mapping[str, Kind]) -> Iterator[tuple[str, str, str]]:
    """The method, the setting and the text of each assignment, for every method that has it."""
    for text in settings:
        key, value = _assignment(text)
        target, _, name = key.rpartition(".")
        if target and target not in kinds:
            near = did_you_mean(target, kinds)
            raise InputError(f"{target!r} is not among the methods; {near}")
        having = [target] if target else [n for n, k in kinds.items() if name in checks.known(k)]
        if not having:
            every = {s for kind in kinds.values() for s in checks.known(kind)}
            near = checks.nearest(name, every)
            raise InputError(f"no method here has a setting {name!r}; {near}")
        yield from ((method_name, name, value) for method_name in having)


def _assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InputError(f"a setting is given as name=value, got {text!r}")
    return key.strip(), value.strip()
