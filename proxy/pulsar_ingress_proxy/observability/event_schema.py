"""The event schema, shared by the sidecar that writes events and the pipeline that reads them.

Imports only the standard library, so that readers need nothing else of the sidecar. An incompatible change gets a new
version; a field added at the end does not.
"""

from dataclasses import dataclass
from typing import Literal

SCHEMA_VERSION = 1

Type = Literal["string", "integer", "number", "boolean"]


@dataclass(frozen=True, slots=True)
class Field:
    """One key of every event, its JSON type, and whether it may be null."""

    name: str
    type: Type
    nullable: bool
    meaning: str


def _always(name: str, type: Type, meaning: str) -> Field:
    return Field(name, type, False, meaning)


def _maybe(name: str, type: Type, meaning: str) -> Field:
    return Field(name, type, True, meaning)


FIELDS: tuple[Field, ...] = (
    _always("schema", "integer", "version of the schema"),
    _always("time", "string", "when the request came: RFC 3339, UTC, with microseconds"),
    _always("id", "string", "id of the request, the same in log and response header"),
    _always("cluster", "string", "the Pulsar cluster behind the sidecar"),
    _always("sidecar", "string", "the sidecar that decided"),
    _always("generation", "integer", "number of the snapshot it decided by"),
    _always("protocol", "string", "http or binary"),
    _always("kind", "string", "lookup, admin or other"),
    _maybe("method", "string", "HTTP method"),
    _maybe("scheme", "string", "the client's scheme; null where the request's head was refused"),
    _maybe("ingress", "string", "name of the ingress it came through"),
    _maybe("bind", "string", "socket it came in by, as host:port"),
    _maybe("host", "string", "the Host it asked for"),
    _maybe("forwardedHost", "string", "the Host that a trusted proxy says the client asked for"),
    _maybe("serverName", "string", "TLS server name; null for http"),
    _maybe("listener", "string", "the listener selected; null: none"),
    _maybe("rule", "string", "rule that decided: query, header, bind, ingress, default or none"),
    _always("hit", "boolean", "whether it has a listener and was served by it"),
    _maybe("missReason", "string", "why a lookup is a miss"),
    _maybe("clientNamed", "string", "the listener that the client named"),
    _maybe("clientNamedBy", "string", "query or header"),
    _maybe("tenant", "string", "a single name"),
    _maybe("namespace", "string", "a single name, without the tenant"),
    _maybe("topic", "string", "the full name, as in persistent://tenant/namespace/topic"),
    _maybe("broker", "string", "the broker that answered, or that a lookup's answer names"),
    _maybe("status", "integer", "status of the answer; null where there was none"),
    _maybe("redirectAction", "string", "rewritten, followed, passed, kept or refused"),
    _maybe("redirectFrom", "string", "the broker's Location"),
    _maybe("redirectTo", "string", "what the client got or the broker dialled; null: the address book had no answer"),
    _always("hops", "integer", "redirects that the sidecar followed"),
    _maybe("leak", "string", "where an address off the listener stood: location, body or binary"),
    _always("durationMs", "number", "from the request's head to the end of its answer"),
    _maybe("upstreamMs", "number", "from the first byte to a broker to the head of its answer"),
    _always("requestBytes", "integer", "bytes of the request's body"),
    _always("responseBytes", "integer", "bytes of the answer's body"),
    _maybe(
        "clientClass",
        "string",
        "of the client, as trusted proxies tell it: loopback, private or public; never an address",
    ),
    _maybe("userAgent", "string", "the first 256 characters"),
)

NAMES: tuple[str, ...] = tuple(field.name for field in FIELDS)
