"""What a request may ask and what an answer holds: types that check requests and make schemas."""

import math
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from unexposed.errors import InputError, did_you_mean, plain

T = TypeVar("T", bound=Struct)
NAMES = {
    **{"integer": "a whole number", "number": "a number", "boolean": "true or false"},
    **{"string": "a text", "array": "a list of ids"},
}
EXACT = 2**53  # JavaScript holds no larger whole number exactly


class Missing(InputError):
    """A user or an item that the model does not have: status 404."""


Id = Annotated[
    Any,
    Meta(
        description="a raw id: text, a number, or a list of them for an id of several parts",
        extra_json_schema={"type": ["string", "number", "array", "boolean", "null"]},
    ),
]
Ids = Annotated[list[Id], Meta(max_length=1_000, description="raw ids")]
K = Annotated[int, Meta(ge=1, le=1_000, description="how many, at most")]
Penalty = Annotated[
    float,
    Meta(ge=0, le=1_000, description="rank by score − penalty · log(1 + clicks of the item)"),
]
MinimumExposure = Annotated[
    float, Meta(ge=0, le=1, description="only items that the user was shown at least this likely")
]


# Requests: the parameters of a query, or the fields of a JSON body.


class Nothing(Struct):
    """A request without parameters."""


class ListRules(Struct, kw_only=True):
    """What a request may change about a list."""

    k: K = 10
    popularity_penalty: Penalty = 0
    minimum_exposure: MinimumExposure = 0


class UserRules(ListRules, kw_only=True):
    """What a request may change about the list of a user whom the model may not have."""

    show_clicked: Annotated[bool, Meta(description="list clicked items, too")] = False
    unknown: Annotated[
        Literal["refuse", "popular"],
        Meta(description="refuse users the model never saw, or give them the popular list"),
    ] = "refuse"


class RecommendOne(UserRules, kw_only=True):
    user: Id


class RecommendMany(UserRules, kw_only=True):
    users: Ids


class SimilarTo(Struct, kw_only=True):
    item: Id
    k: K = 10


class PairsOf(Struct):
    user: Id
    item: Ids


class FoldIn(ListRules, kw_only=True):
    clicks: Ids


class ClicksOf(Struct):
    user: Id


class Search(Struct):
    q: Annotated[str, Meta(max_length=200, description="a text; without one, the most clicked")] = (
        ""
    )
    kind: Annotated[Literal["item", "user"], Meta(description="what to search")] = "item"
    limit: Annotated[int, Meta(ge=1, le=100, description="how many, at most")] = 20


# Answers.

Relevance = Annotated[
    float | None,
    Meta(description="P(the user would like it); null where scores only order items"),
]
Exposure = Annotated[
    float | None,
    Meta(description="P(the user was shown it); null where the method does not model it"),
]


class Item(Struct):
    item: Id
    title: str | None
    clicks: int


class Entry(Item):
    rank: int
    score: float
    relevance: Relevance
    exposure: Exposure


class List(Struct):
    user: Id
    known: bool
    items: list[Entry]


class Lists(Struct):
    lists: list[List]


class FoldedIn(Struct):
    known_clicks: int
    unknown_items: list[Id]
    items: list[Entry]


class SimilarItem(Item):
    similarity: float


class Similar(Struct):
    item: Id
    items: list[SimilarItem]


class Pair(Item):
    score: float
    relevance: Relevance
    exposure: Exposure
    clicked: bool


class Pairs(Struct):
    user: Id
    items: list[Pair]


class Click(Item):
    count: int
    relevance: Relevance
    exposure: Exposure


class Clicks(Struct):
    user: Id
    n_clicks: int
    clicks: list[Click]


class UserSummary(Struct):
    user: Id
    clicks: int


class SearchResults(Struct):
    items: list[Item] | UnsetType = UNSET
    users: list[UserSummary] | UnsetType = UNSET


class ModelSummary(Struct):
    method: str
    users: int
    items: int
    clicks: int
    has_exposure: bool
    scale: Literal["logit", "probability", "order"]
    folds_in: bool
    saved: Annotated[str, Meta(description="when the file was written: another one, another model")]
    titles: bool
    verdict: str | None


class Health(Struct):
    status: str
    model: ModelSummary


class Error(Struct):
    error: str


@cache
def schema(kind: type[Struct]) -> dict[str, Any]:
    """The JSON schema of a request."""
    return msgspec.json.schema_components([kind])[1][kind.__name__]


def decoded(kind: type[T], document: Any, *, strict: bool = True) -> T:
    """The request in this document; refused with one sentence if it is not allowed.

    Without `strict`, numbers and truth values may be texts, as in a query.
    """
    required, allowed = schema(kind)["required"], schema(kind)["properties"]
    if not isinstance(document, dict):
        raise InputError(f"the body must be a JSON object with {', '.join(required)}")
    for name in document:
        if name not in allowed:
            near = did_you_mean(name, allowed)
            raise InputError(f"no parameter {plain(repr(name), 40)}; {near}")
    for name in required:
        if name not in document:
            raise InputError(f"give {name}: {allowed[name]['description']}")
    try:
        return msgspec.convert(document, kind, strict=strict)
    except msgspec.ValidationError as error:
        name = str(error).rpartition("$.")[2].rstrip("`")
        value = plain(repr(document[name]), 60)
        raise InputError(f"{name} must be {_words(allowed[name])}, got {value}") from None


def _words(schema: dict[str, Any]) -> str:
    """The values that a JSON schema allows, in words."""
    if "enum" in schema:
        return " or ".join(schema["enum"])
    name = NAMES[schema["type"]]
    if "maximum" in schema:
        return f"{name} from {schema['minimum']} to {schema['maximum']:,}"
    if "maxLength" in schema:
        return f"{name} of at most {schema['maxLength']:,} characters"
    return f"{name}, at most {schema['maxItems']:,}" if "maxItems" in schema else name


def hashable(value: Any) -> Any:
    """A raw id from JSON: a list stands for a tuple."""
    if isinstance(value, list):
        return tuple(hashable(part) for part in value)
    if isinstance(value, dict):
        raise InputError("an object cannot be an id: give text or a number")
    return value


def in_json(raw: Any) -> Any:
    """A raw id as JSON holds it: numbers that JavaScript would change are given as text."""
    if isinstance(raw, tuple):
        return [in_json(part) for part in raw]
    inexact = isinstance(raw, int) and not -EXACT < raw < EXACT
    return str(raw) if inexact or (isinstance(raw, float) and not math.isfinite(raw)) else raw
