"""The routes of the API, with their parameters and answers, and the OpenAPI document that describes them. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from pulsar_ingress_proxy import __version__
from pulsar_ingress_proxy.console import models


@dataclass(frozen=True, slots=True)
class Route:
    path: str
    name: str
    """The method of the console or its view that answers, and the OpenAPI operation id."""
    summary: str
    answer: type[BaseModel] | None
    """None: it is not JSON, or has no schema of ours."""
    method: Literal["GET", "POST"] = "GET"
    parameters: type[BaseModel] | None = None
    """The query parameters."""
    question: type[BaseModel] | None = None
    content_type: str = "application/json"
    problems: tuple[int, ...] = ()
    """Statuses beyond those that any route may answer with."""


ROUTES = (
    Route("/api/status", "status", "The sidecar at a glance", models.Status),
    Route("/api/ingresses", "ingresses", "Sockets, ingresses and listeners", models.Ingresses),
    Route("/api/brokers", "brokers", "The address book, with the source of every address", models.Brokers),
    Route(
        "/api/reachability",
        "reachability",
        "How far `doctor` is with the book's addresses; begins a round where the last is older than 15 seconds",
        models.Check,
    ),
    Route("/api/generations", "generations", "What changed with each generation", models.Generations),
    Route("/api/findings", "findings", "Conflicts found by discovery, and warnings about the config", models.Findings),
    Route(
        "/api/decisions",
        "decisions",
        "Recent decisions, the newest first",
        models.Decisions,
        parameters=models.DecisionsQuery,
        problems=(400,),
    ),
    Route("/api/decisions/choices", "choices", "What the filters of decisions may be set to", models.Choices),
    Route(
        "/api/decisions/stream",
        "stream",
        "Decisions as they are made: events `decision` (its id is its cursor), `left-out` and `beat`",
        None,
        parameters=models.Filter,
        content_type="text/event-stream",
        problems=(400, 503),
    ),
    Route("/api/config", "settings", "The config in force, and where each key is set", models.Settings),
    Route("/api/figures", "figures", "Hits, misses and latency of the last half hour", models.Figures),
    Route(
        "/api/what-if",
        "what_if",
        "What would become of a request: the decision, rule by rule. Nothing is sent, nothing is kept",
        models.Verdict,
        method="POST",
        question=models.Question,
        problems=(400, 408, 413, 415),
    ),
    Route("/api/openapi.json", "openapi", "This description", None),
)

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
    shown: list[tuple[type[BaseModel], JsonSchemaMode]] = [(models.Problem, "serialization")]
    shown += [(route.answer, "serialization") for route in ROUTES if route.answer is not None]
    shown += [(route.question, "validation") for route in ROUTES if route.question is not None]
    names, schemas = models_json_schema(shown, ref_template="#/components/schemas/{model}")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "pulsar-ingress-proxy console",
            "version": __version__,
            "description": "What one sidecar knows and decides. It can be read, and nothing can be changed by it.",
        },
        "paths": {route.path: {route.method.lower(): _operation(route, names)} for route in ROUTES},
        "components": {"schemas": schemas["$defs"]},
    }


def _operation(route: Route, names: Any) -> dict[str, Any]:
    schema = {"type": "object" if route.content_type == "application/json" else "string"}
    if route.answer is not None:
        schema = names[route.answer, "serialization"]
    responses = {"200": {"description": route.summary, "content": {route.content_type: {"schema": schema}}}}
    problem = {"application/json": {"schema": names[models.Problem, "serialization"]}}
    for status in sorted({403, 405, *route.problems}):
        responses[str(status)] = {"description": _PROBLEMS[status], "content": problem}
    found: dict[str, Any] = {"operationId": route.name, "summary": route.summary, "responses": responses}
    if route.parameters is not None:
        found["parameters"] = list(_parameters(route.parameters))
    if route.question is not None:
        content = {"application/json": {"schema": names[route.question, "validation"]}}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _parameters(asked: type[BaseModel]) -> Iterator[dict[str, Any]]:
    for name, schema in asked.model_json_schema()["properties"].items():
        of = {key: value for key, value in schema.items() if key not in ("title", "anyOf") and value is not None}
        description = of.pop("description", None)
        if "anyOf" in schema:  # with null for unset, which in a query is absent
            (kind,) = (kind for kind in schema["anyOf"] if kind["type"] != "null")
            of |= kind
        found: dict[str, Any] = {"name": name, "in": "query", "required": False, "schema": of}
        if description is not None:
            found["description"] = description
        if of["type"] == "array":
            found |= {"style": "form", "explode": False}
        yield found
