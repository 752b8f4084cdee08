"""What a request may ask for: one table of parameters that checks values and describes them."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from unexposed.errors import InputError, did_you_mean, plain

Kind = Literal["id", "ids", "integer", "number", "boolean", "choice", "text"]
REQUIRED = object()
ID: dict[str, Any] = {
    "description": "a raw id: text, a number, or a list of them for an id of several parts",
    "type": ["string", "number", "array", "boolean", "null"],
}
TRUE, FALSE = ("true", "1"), ("false", "0")


class Missing(InputError):
    """What was asked for is not there: status 404."""


@dataclass(frozen=True)
class Parameter:
    """One named value of a request, with its bounds."""

    name: str
    kind: Kind
    about: str
    default: Any = REQUIRED
    least: float | None = None
    most: float | None = None  # of a number; for ids, how many there may be
    choices: tuple[str, ...] = ()

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the value."""
        schema: dict[str, Any] = {"type": {"choice": "string", "text": "string"}.get(self.kind)}
        if self.kind == "id":
            schema = dict(ID)
        elif self.kind == "ids":
            schema = {"type": "array", "items": ID, "maxItems": self.most}
        elif self.kind == "text":
            schema |= {"maxLength": self.most}
        elif self.kind == "choice":
            schema |= {"enum": list(self.choices)}
        else:
            bounds = {"minimum": self.least, "maximum": self.most}
            schema = {"type": self.kind} | {k: v for k, v in bounds.items() if v is not None}
        if not self.required and self.default is not None:
            schema["default"] = self.default
        return schema

    def checked(self, value: Any) -> Any:
        """A value from a JSON document; refused with one sentence if it is not allowed."""
        match self.kind:
            case "id":
                return hashable(value, self.name)
            case "ids":
                if not isinstance(value, list):
                    raise self._refused("be a list of ids", value)
                if len(value) > (self.most or math.inf):
                    raise InputError(f"{self.name} may hold {self.most:,} ids, got {len(value):,}")
                return [hashable(one, self.name) for one in value]
            case "boolean":
                if not isinstance(value, bool):
                    raise self._refused("be true or false", value)
            case "choice":
                if value not in self.choices:
                    raise self._refused(f"be one of {', '.join(self.choices)}", value)
            case "text":
                if not isinstance(value, str) or len(value) > (self.most or math.inf):
                    raise self._refused(f"be a text of at most {self.most} characters", value)
            case "integer":
                if type(value) is not int or not self._allows(value):
                    raise self._refused(f"be a whole number {self._range()}", value)
            case "number":
                if type(value) not in (int, float) or not self._allows(value):
                    raise self._refused(f"be a number {self._range()}", value)
        return value

    def read(self, texts: Sequence[str]) -> Any:
        """A value from the texts that a query gives for it."""
        if self.kind == "ids":
            return self.checked(list(texts))
        if len(texts) > 1:
            raise InputError(f"{self.name} is given {len(texts)} times: give it once")
        text = texts[0]
        match self.kind:
            case "boolean":
                value = True if text in TRUE else False if text in FALSE else text
                return self.checked(value)
            case "integer" | "number":
                return self.checked(_number(text, whole=self.kind == "integer"))
        return self.checked(text)

    def _allows(self, value: float) -> bool:
        least = -math.inf if self.least is None else self.least
        most = math.inf if self.most is None else self.most
        return math.isfinite(value) and least <= value <= most

    def _range(self) -> str:
        if self.most is None:
            return f"of at least {self.least}"
        return f"from {self.least} to {self.most:,}"

    def _refused(self, must: str, value: Any) -> InputError:
        return InputError(f"{self.name} must {must}, got {plain(repr(value), 60)}")


def of_query(known: Sequence[Parameter], given: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The values of a query string, with defaults; refuses what is unknown or not allowed."""
    texts: dict[str, list[str]] = {}
    for name, text in given:
        texts.setdefault(name, []).append(text)
    return _complete(known, {}, texts)


def of_body(known: Sequence[Parameter], document: Any) -> dict[str, Any]:
    """The values of a JSON object, with defaults; refuses what is unknown or not allowed."""
    if not isinstance(document, dict):
        raise InputError(f'the body must be a JSON object with "{known[0].name}"')
    return _complete(known, document, {})


def _complete(
    known: Sequence[Parameter], values: dict[str, Any], texts: dict[str, list[str]]
) -> dict[str, Any]:
    names = [parameter.name for parameter in known]
    for name in (*values, *texts):
        if name not in names:
            raise InputError(f"no parameter {plain(repr(name), 40)}; {did_you_mean(name, names)}")
    found = {}
    for parameter in known:
        if parameter.name in values:
            found[parameter.name] = parameter.checked(values[parameter.name])
        elif parameter.name in texts:
            found[parameter.name] = parameter.read(texts[parameter.name])
        elif parameter.required:
            raise InputError(f"give {parameter.name}: {parameter.about}")
        else:
            found[parameter.name] = parameter.default
    return found


def hashable(value: Any, name: str) -> Any:
    """A raw id from JSON: a list stands for a tuple."""
    if isinstance(value, list):
        return tuple(hashable(part, name) for part in value)
    if isinstance(value, dict):
        raise InputError(f"{name} holds an object, which cannot be an id: give text or a number")
    return value


def _number(text: str, *, whole: bool) -> Any:
    try:
        return int(text) if whole else float(text)
    except ValueError:
        return text
