"""The shapes of the answers as JSON schemas, for the description of the service."""

from typing import Any

from unexposed.serve.parameters import ID

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
TEXT_OR_NONE: Schema = {"type": ["string", "null"]}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}


def whole(**properties: Schema) -> Schema:
    """An object with exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def many(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def either(*schemas: Schema) -> Schema:
    return {"oneOf": list(schemas)}


def share(about: str) -> Schema:
    """A probability, or none."""
    return {"type": ["number", "null"], "minimum": 0, "maximum": 1, "description": about}


RELEVANCE = share("P(would like it); null where scores only order items")
EXPOSURE_OF = share("P(was shown it); null where the method does not model it")
FOUND = {"item": ID, "title": TEXT_OR_NONE, "clicks": COUNT}
FIGURES = {"score": NUMBER, "relevance": RELEVANCE, "exposure": EXPOSURE_OF}
ENTRY = whole(**FOUND, rank=COUNT, **FIGURES)

ERROR = whole(error=TEXT)
HEALTH = whole(
    status=TEXT,
    model=whole(
        method=TEXT,
        users=COUNT,
        items=COUNT,
        clicks=COUNT,
        has_exposure=FLAG,
        scale={"type": "string", "enum": ["logit", "probability", "order"]},
        folds_in=FLAG,
        saved=TEXT_OR_NONE,
        generation=COUNT,
        titles=FLAG,
        verdict=TEXT_OR_NONE,
    ),
)
LIST = whole(user=ID, known=FLAG, items=many(ENTRY))
LISTS = whole(lists=many(LIST))
SIMILAR = either(
    whole(item=ID, items=many(whole(**FOUND, similarity=NUMBER))),
    whole(user=ID, users=many(whole(user=ID, similarity=NUMBER))),
)
EXPOSURE = whole(user=ID, items=many(whole(**FOUND, **FIGURES, clicked=FLAG)))
FOLDED_IN = whole(known_clicks=COUNT, unknown_items=many(ID), items=many(ENTRY))
USER = whole(
    user=ID,
    n_clicks=COUNT,
    clicks=many(whole(**FOUND, count=COUNT, relevance=RELEVANCE, exposure=EXPOSURE_OF)),
)
SEARCH = either(whole(items=many(whole(**FOUND))), whole(users=many(whole(user=ID, clicks=COUNT))))
