"""The OpenAPI description of the service, made of the table that the app routes by."""

from collections.abc import Sequence
from typing import Any

from unexposed.serve.parameters import Parameter
from unexposed.serve.routes import CALLS, Call
from unexposed.serve.schemas import ERROR
from unexposed.version import __version__

ERRORS = {
    400: "a parameter is missing, unknown or not allowed",
    404: "the model does not know this user or item",
    408: "the request came too slowly",
    413: "the body is too large",
    414: "the address is too long",
    503: "too many requests wait",
}


def document(calls: Sequence[Call] = CALLS) -> dict[str, Any]:
    """The description, in OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for call in calls:
        paths.setdefault(call.path, {})[call.method.lower()] = _operation(call)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "unexposed",
            "version": __version__,
            "description": "Lists, similar items and exposure from a saved model. Nothing writes.",
        },
        "paths": paths,
        "components": {"schemas": {"Error": ERROR}},
    }


def _operation(call: Call) -> dict[str, Any]:
    path = call.path.strip("/").replace("-", "_")
    operation: dict[str, Any] = {
        "operationId": f"{call.method.lower()}_{path}",
        "summary": call.about,
        "responses": {
            "200": {"description": "the answer", "content": _json(call.schema)},
            **{
                str(status): {
                    "description": about,
                    "content": _json({"$ref": "#/components/schemas/Error"}),
                }
                for status, about in ERRORS.items()
            },
        },
    }
    if call.method == "POST":
        operation["requestBody"] = {"required": True, "content": _json(_body(call.parameters))}
    else:
        operation["parameters"] = [_parameter(one) for one in call.parameters]
    return operation


def _parameter(one: Parameter) -> dict[str, Any]:
    found = {
        "name": one.name,
        "in": "query",
        "required": one.required,
        "description": one.about,
        "schema": one.schema,
    }
    return found | ({"style": "form", "explode": True} if one.kind == "ids" else {})


def _body(parameters: Sequence[Parameter]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {one.name: one.schema | {"description": one.about} for one in parameters},
        "required": [one.name for one in parameters if one.required],
        "additionalProperties": False,
    }


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
