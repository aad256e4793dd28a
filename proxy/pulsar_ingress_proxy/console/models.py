"""The answers and questions of the API: the source of its JSON and of its schema."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from pulsar_ingress_proxy.observability import event_schema
from pulsar_ingress_proxy.observability.recent import Sort
from pulsar_ingress_proxy.routing.discovered import Source
from pulsar_ingress_proxy.routing.selection import Rule
from pulsar_ingress_proxy.syntax.listeners import comma_separated
from pulsar_ingress_proxy.tools.explain import Explanation

Cause = Literal["start", "reload", "discovery"]


def moment(seconds: float) -> str:
    """A time since the epoch, as the API writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _event_schema() -> dict[str, Any]:
    """The event schema as JSON schema; `cursor` is the API's own."""
    properties: dict[str, Any] = {
        "cursor": {"type": "string", "description": "its place among the decisions of this run, for `since`"}
    }
    for field in event_schema.FIELDS:
        kind: Any = [field.type, "null"] if field.nullable else field.type
        properties[field.name] = {"type": kind, "description": field.meaning}
    return {
        "type": "object",
        "title": "Decision",
        "description": "One event, as in the event log.",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


Decision = Annotated[dict[str, Any], WithJsonSchema(_event_schema())]


class Shape(BaseModel):
    """Fields that are models can be given any object with the same attributes."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", from_attributes=True, defer_build=True
    )


class Problem(Shape):
    """An error."""

    reason: str = Field(description="a code, a colon, and a text")


class Counts(Shape):
    """Since the start. All but the last two count decisions, each as `only` finds it."""

    hits: int
    misses: int
    redirects: int = Field(description="requests that a broker redirected, however often")
    leaks: int
    failures: int = Field(description="decisions answered with 5xx")
    unread: int = Field(description="answers of 503 because of overload to requests that were not read: no decisions")
    requests: int = Field(description="all requests, also those that were not read")


class Status(Shape):
    """The sidecar at a glance."""

    version: str
    cluster: str
    sidecar: str = Field(description="the pod, or the machine")
    source: str | None = Field(description="the config file")
    started_at: str
    uptime_seconds: float
    ready: bool
    not_ready: str | None = Field(description="why it is not")
    generation: int
    changed_at: str = Field(description="when the generation came into force")
    changed_by: Cause
    changes: list[str]
    reload_problem: str | None = Field(description="why the newest config is not in force")
    shadow: bool
    counts: Counts


class Socket(Shape):
    """A bound socket."""

    address: str
    scheme: str
    listener: str | None = Field(description="the listener of all its clients; null: the ingress decides")


class Ingress(Shape):
    name: str
    listener: str
    hosts: list[str]
    expose: list[str] | None = Field(description="null: everything")
    allowed_listeners: list[str] | None = Field(description="null: any known listener but the internal one")
    source: Literal["config", "discovery"]
    hits: int
    misses: int


class Listener(Shape):
    name: str
    internal: bool = Field(description="the listener by which the sidecar dials brokers")
    default: bool = Field(description="lookupListenerName")


class Ingresses(Shape):
    """Sockets, ingresses and their listeners."""

    sockets: list[Socket]
    ingresses: list[Ingress]
    listeners: list[Listener]


class Reach(Shape):
    """What `doctor` found at one address."""

    broker: str
    url: str
    reachable: bool
    judged: bool = Field(description="false: an address for clients, which the sidecar cannot and need not connect to")
    answers: str | None = Field(description="a status, or a command of the binary protocol")
    problem: str | None


class Address(Shape):
    """One URL of a broker on a listener, and its source."""

    listener: str
    url: str
    source: Source
    by: str = Field(description="the line of the config, or the object")
    reach: list[Reach] = Field(description="for a template, one item per broker that was tried; empty: not tried")


class Broker(Shape):
    """A line of the address book."""

    broker: str
    names: list[str] = Field(description="all names that it may use for itself")
    template: bool
    source: Source = Field(description="the most trusted of its addresses' sources")
    addresses: list[Address]


class Conflict(Shape):
    subject: str
    text: str


class Check(Shape):
    """The last round of `doctor`."""

    running: bool
    checked_at: str | None
    reachable: int
    unreachable: int
    not_judged: int = Field(description="addresses for clients that this sidecar cannot connect to")


class Brokers(Shape):
    """The address book."""

    brokers: list[Broker]
    pool: list[Reach] = Field(description="the addresses of the pool that were tried")
    conflicts: list[Conflict]
    check: Check


class Generation(Shape):
    generation: int
    time: str
    cause: Cause
    changes: list[str]
    omitted: int = Field(description="further changes, which are not listed")


class Generations(Shape):
    """The newest first."""

    generations: list[Generation]


class Kind(Shape):
    kind: str
    synced: bool


class Findings(Shape):
    """Conflicts and warnings."""

    discovers: list[Literal["kubernetes", "admin"]] = Field(description="the sources that the config enables")
    kinds: list[Kind] = Field(description="what discovery watches, and whether it is in sync")
    conflicts: list[Conflict]
    warnings: list[str] = Field(description="the warnings of `check`")


class Filter(Shape):
    """Decisions for which all of this holds."""

    model_config = ConfigDict(populate_by_name=False)

    only: Annotated[tuple[Sort, ...], BeforeValidator(comma_separated)] = Field(
        default=(), description="any of these sorts, joined by commas; a hit is a lookup, as a miss is"
    )
    find: str = Field(
        default="",
        max_length=256,
        description="in any case: part of a topic, host, broker, redirect, user agent, client's listener name, or id",
    )
    ingress: str | None = None
    listener: str | None = None
    rule: Rule | None = None
    miss_reason: str | None = None
    protocol: Literal["http", "binary"] | None = None
    kind: Literal["lookup", "admin", "other"] | None = None
    status: str | None = Field(default=None, pattern="^[1-5](xx|[0-9][0-9])$", description="as in 404, or 5xx")
    since: str = Field(default="", description="a cursor: only what came after it")


class DecisionsQuery(Filter):
    """Which decisions, and how many."""

    limit: int = Field(default=100, ge=1, le=500, description="how many")


class Decisions(Shape):
    """The newest first."""

    decisions: list[Decision]
    cursor: str = Field(description="`since` for later ones")
    more: int = Field(description="further matching decisions beyond `limit`")
    kept: int = Field(description="decisions in memory of the sorts in `only`, matching or not")
    made: int = Field(description="decisions of these sorts since the start")


class Choices(Shape):
    """What filters may be set to: what config and discovery know, and what was counted since the start."""

    ingress: list[str]
    listener: list[str]
    miss_reason: list[str]
    status: list[str]


class Setting(Shape):
    """A key of the config in force."""

    key: str = Field(description="as in redirects.maxHops or ingresses.0.hosts.1")
    value: str | int | float | bool | list[str] | None = Field(description="null: unset; a list only if it is empty")
    source: Literal["default", "file", "environment"]
    line: int | None = Field(
        description="of the file: that of the key, or of the nearest one above it; null while a reload is refused"
    )
    variable: str | None = Field(description="of the environment")
    pending: bool = Field(description="the newest config has another value, which takes effect with the next start")


class Settings(Shape):
    """The config in force, with its defaults. What discovery adds is in the ingresses and brokers."""

    generation: int
    file: str | None
    reload_problem: str | None = Field(description="why the newest config is not in force")
    settings: list[Setting]


class Figure(Counts):
    """An interval that ends at `time`."""

    time: str
    seconds: float
    p50_ms: float | None = Field(alias="p50Ms", description="of lookups; null if there were none")
    p99_ms: float | None = Field(alias="p99Ms")


class Figures(Shape):
    """The last half hour, the oldest first."""

    seconds: int = Field(description="the length of an interval")
    figures: list[Figure]


class Header(Shape):
    name: Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$", max_length=256)]  # RFC 9110 5.6.2
    value: Annotated[str, Field(pattern=r"^[^\x00-\x08\x0a-\x1f\x7f]*$", max_length=8192)]


class Question(Shape):
    """A hypothetical request."""

    url: Annotated[str, Field(min_length=1, max_length=8192, description="as the client sees it")]
    method: Annotated[str, Field(pattern="^[A-Z]{1,20}$")] = "GET"
    headers: Annotated[list[Header], Field(max_length=100)] = []
    bind: str | None = Field(default=None, max_length=300, description="the socket that receives it, as host:port")
    location: str | None = Field(default=None, max_length=8192, description="a broker's redirect")
    body: str | None = Field(default=None, max_length=32768, description="a broker's answer to a lookup, as JSON text")
    trusted: bool = Field(default=True, description="whether it comes through a trusted proxy")


class Verdict(Explanation):
    """The decision, as `explain --json` prints it."""

    generation: int
