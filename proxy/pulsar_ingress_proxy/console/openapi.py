"""The API's description, made of its routes and of the models it answers with. Pure."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from pulsar_ingress_proxy import __version__
from pulsar_ingress_proxy.console.api import ROUTES, Route
from pulsar_ingress_proxy.console.models import Problem

_REFERENCE = "#/components/schemas/{model}"

_PROBLEMS = {
    400: "The question cannot be read",
    403: "Asked by a name that is not the console's own, or by another site's page",
    405: "The console only shows",
    408: "The question did not come in time",
    413: "The question is too long",
    415: "The question is not JSON",
    503: "Too many streams are open",
}


@cache
def description() -> dict[str, Any]:
    """The document, OpenAPI 3.1."""
    models: list[tuple[type[BaseModel], JsonSchemaMode]] = [(Problem, "serialization")]
    models += [(route.answer, "serialization") for route in ROUTES if route.answer is not None]
    models += [(route.question, "validation") for route in ROUTES if route.question is not None]
    names, schemas = models_json_schema(models, ref_template=_REFERENCE)
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, names)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "pulsar-ingress-proxy console",
            "version": __version__,
            "description": "What one sidecar knows and decides. It can be read, and nothing can be changed by it.",
        },
        "paths": paths,
        "components": {"schemas": schemas["$defs"]},
    }


def _operation(route: Route, names: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"operationId": route.name, "summary": route.summary}
    if route.parameters:
        found["parameters"] = [
            {
                "name": parameter.name,
                "in": "query",
                "required": False,
                "description": parameter.description,
                "schema": parameter.schema,
                **({"style": "form", "explode": False} if parameter.schema["type"] == "array" else {}),
            }
            for parameter in route.parameters
        ]
    if route.question is not None:
        content = {"application/json": {"schema": names[route.question, "validation"]}}
        found["requestBody"] = {"required": True, "content": content}
    return found | {"responses": dict(_responses(route, names))}


def _responses(route: Route, names: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if route.answer is not None:
        schema = names[route.answer, "serialization"]
    else:
        schema = {"type": "object" if route.content_type == "application/json" else "string"}
    yield "200", {"description": route.summary, "content": {route.content_type: {"schema": schema}}}
    problem = {"application/json": {"schema": names[Problem, "serialization"]}}
    for status in sorted({403, 405, *route.problems}):
        yield str(status), {"description": _PROBLEMS[status], "content": problem}
