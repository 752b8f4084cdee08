"""Settings as dataclass fields: their bounds, their checks, and parsing from text."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import MISSING, Field, field, fields
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from unexposed.errors import InputError, did_you_mean

T = TypeVar("T")
LARGEST = 2**31 - 1  # compiled code counts in 32 bits
OTHERS_SAY = {  # a setting → what other libraries call it
    "dim": "factors n_factors num_factors latent_dim embedding_dim embedding_size k rank",
    "learning_rate": "lr eta alpha step_size",
    "epochs": "n_epochs num_epochs iterations n_iter max_iter steps",
    "weight_decay": "reg reg_lambda lambda l2 regularization regularisation",
    "regularisation": "reg reg_lambda lambda l2 regularization weight_decay",
    "negatives": "neg n_neg num_neg n_negatives num_negatives negative_samples neg_ratio",
    "patience": "early_stopping early_stop",
    "batch_size": "batch bs",
    "engine": "device backend gpu cuda",
}


def setting(
    default: T,
    about: str,
    *,
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
    search: tuple[float, float] | list[Any] | None = None,
    before: T | None = None,
    names: Collection[str] | None = None,
) -> T:
    """A dataclass field that states its purpose and the values it allows.

    `low` and `high` are allowed values themselves, `above` is not. `search` is where tuning looks:
    between two values, evenly by logarithm, or among the values of a list. `before` is the value
    that trainings used before this setting existed, where it differs from the default. `names` is
    the registry whose names a text may be.
    """
    metadata = {
        "about": about,
        "low": low,
        "above": above,
        "high": high,
        "search": search,
        "names": names,
        "before": default if before is None else before,
    }
    return field(default=default, metadata=metadata)


def known(cls: type) -> dict[str, Field[Any]]:
    """The settings of a method, by name."""
    return {f.name: f for f in fields(cls) if f.init}


def check_names(method: str, cls: type, names: list[str]) -> None:
    """Refuse a setting the method does not have."""
    for name in names:
        if name not in known(cls):
            raise InputError(f"{method} has no setting {name!r}; {nearest(name, known(cls))}")


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown setting: by meaning, or else by spelling."""
    known = list(known)
    asked = name.lower().replace("-", "_")
    for setting_name, others in OTHERS_SAY.items():
        if setting_name in known and asked in others.split():
            return f"did you mean {setting_name!r}?"
    return did_you_mean(name, known)


def check_values(method: str, settings: object) -> None:
    """Refuse a value of the wrong type, or outside the bounds of its field."""
    hints = get_type_hints(type(settings))
    for name, f in known(type(settings)).items():
        value = getattr(settings, name)
        hint = hints[name]
        if hint is float and type(value) is int:
            object.__setattr__(settings, name, float(value))
        elif not _fits(value, hint):
            raise InputError(f"{method}'s setting {name} must be {_spoken(hint)}, got {value!r}")
        names = f.metadata.get("names")
        if names is not None and value not in names:
            raise InputError(f"no {name} {value!r}; {did_you_mean(value, names)}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if hint is int and value > LARGEST:
            raise InputError(f"{method}'s setting {name} must be at most {LARGEST}, got {value}")
        if not _within(value, f.metadata):
            raise InputError(
                f"{method}'s setting {name} must be {_bounds(f.metadata)}, got {value!r}"
            )


def allowed(cls: type, name: str) -> str:
    """The values that a setting allows, in words."""
    hint, metadata = get_type_hints(cls)[name], known(cls)[name].metadata
    if names := metadata.get("names"):
        return f"one of {', '.join(map(repr, names))}"
    bounded = any(metadata.get(bound) is not None for bound in ("low", "above", "high"))
    return f"{_spoken(hint)}, {_bounds(metadata)}" if bounded else _spoken(hint)


def parse_value(method: str, cls: type, name: str, text: str) -> Any:
    """The value of a setting from the text of a command line."""
    check_names(method, cls, [name])
    hint = get_type_hints(cls)[name]
    if hint is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        if hint is int:
            return int(text)
        if hint is float:
            return float(text)
    except ValueError:
        hinted = _spoken(hint)
        raise InputError(f"{method}'s setting {name} must be {hinted}, got {text!r}") from None
    return text


def check_keys(table: dict[str, Any], allowed: Mapping[str, type], where: str) -> None:
    """Refuse an unknown key of a TOML table, or a value of the wrong type."""
    for key, value in table.items():
        if key not in allowed:
            raise InputError(f"{where}: there is no {key!r}; {did_you_mean(key, allowed)}")
        fits = _fits(value, allowed[key])
        if allowed[key] is float and type(value) is int:
            fits = True
        if not fits:
            raise InputError(f"{where}: {key} must be {_spoken(allowed[key])}, got {value!r}")


def values(settings: object) -> dict[str, Any]:
    """The settings as a plain dict, for JSON and for show."""
    return {name: getattr(settings, name) for name in known(type(settings))}


def changed(settings: object) -> dict[str, Any]:
    """The settings that differ from their defaults."""
    cls = type(settings)
    return {name: value for name, value in values(settings).items() if value != default(cls, name)}


def before(cls: type, name: str) -> Any:
    """The value used by a training that is older than this setting."""
    return known(cls)[name].metadata.get("before")


def default(cls: type, name: str) -> Any:
    found = known(cls)[name].default
    return None if found is MISSING else found


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _spoken(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(repr(choice) for choice in get_args(hint))
    spoken = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    spoken |= {dict: "a table", list: "a list"}
    return spoken.get(hint, str(hint))


def _within(value: float, metadata: Any) -> bool:
    low, above, high = metadata.get("low"), metadata.get("above"), metadata.get("high")
    return (
        (low is None or value >= low)
        and (above is None or value > above)
        and (high is None or value <= high)
        and value == value  # false for NaN
        and abs(value) != float("inf")
    )


def _bounds(metadata: Any) -> str:
    low, above, high = metadata.get("low"), metadata.get("above"), metadata.get("high")
    parts = [
        f"at least {low}" if low is not None else None,
        f"above {above}" if above is not None else None,
        f"at most {high}" if high is not None else None,
    ]
    return " and ".join(p for p in parts if p) or "a finite number"
