"""The routes of the API, each with what it takes and answers: the server is set up, and described, by this table."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from pulsar_ingress_proxy.console import models
from pulsar_ingress_proxy.observability.recent import SORTS

MOST_DECISIONS = 500


@dataclass(frozen=True, slots=True)
class Parameter:
    """Of the query."""

    name: str
    schema: dict[str, Any]
    description: str


@dataclass(frozen=True, slots=True)
class Route:
    path: str
    name: str
    summary: str
    answer: type[BaseModel] | None
    """None: it is no JSON, or has no schema of ours."""
    method: Literal["GET", "POST"] = "GET"
    parameters: tuple[Parameter, ...] = ()
    question: type[BaseModel] | None = None
    content_type: str = "application/json"
    problems: tuple[int, ...] = ()
    """Statuses beyond those that any route may answer with."""


_ONLY = Parameter(
    "only",
    {"type": "array", "items": {"type": "string", "enum": list(SORTS)}},
    "sorts of decisions, joined by commas; unset: all",
)

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
    Route("/api/findings", "findings", "Conflicts found by discovery, and doubts about the config", models.Findings),
    Route(
        "/api/decisions",
        "decisions",
        "Recent decisions, the newest first",
        models.Decisions,
        parameters=(
            _ONLY,
            Parameter("since", {"type": "string"}, "a cursor: only what came after it"),
            Parameter(
                "limit", {"type": "integer", "minimum": 1, "maximum": MOST_DECISIONS, "default": 100}, "how many"
            ),
        ),
        problems=(400,),
    ),
    Route(
        "/api/decisions/stream",
        "stream",
        "Decisions as they are made: events `decision` (with its cursor as id), `left-out` and `beat`",
        None,
        parameters=(_ONLY, Parameter("since", {"type": "string"}, "a cursor, as Last-Event-ID is")),
        content_type="text/event-stream",
        problems=(400, 503),
    ),
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
