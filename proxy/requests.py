"""Pulsar's paths: is this a lookup, whose topic is it, and which listener did the client ask for?

Paths are read as a broker's servlet container would read them (percent-encoding and path parameters
resolved, empty segments skipped), so that nothing counts as less than it is; they are forwarded byte
for byte all the same.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal
from urllib.parse import quote, unquote_plus

from proxy.authorities import Authority

Kind = Literal["lookup", "admin", "other"]
Exposable = Literal["lookup", "client", "admin", "topics", "ws", "functions"]
Area = Literal[Exposable, "other"]

LISTENER_PARAMETER = "listenerName"

_SHORT = 512
_DOTS = {".", ".."}
_DOMAINS = ("persistent", "non-persistent")

# The prefixes that Apache Pulsar Proxy sends to function workers (AdminProxyHandler.functionRoutes).
FUNCTION_PREFIXES = tuple(
    f"/admin/{rest}"
    for rest in (
        "v3/function", "v2/function", "function", "v3/source", "v2/source", "source", "v3/sink", "v2/sink", "sink",
        "v2/worker", "v2/worker-stats", "worker", "worker-stats",
    )
)  # fmt: skip


class BadPath(ValueError):
    """A path that means one thing here and another behind us."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a request is about."""

    kind: Kind
    area: Area
    tenant: str | None = None
    namespace: str | None = None
    topic: str | None = None

    @property
    def bare(self) -> "Target":
        """Without names, which no decision looks at: so decisions can be remembered."""
        return _bare(self.kind, self.area)


@lru_cache
def _bare(kind: Kind, area: Area) -> Target:
    return Target(kind, area)


@dataclass(frozen=True, slots=True)
class Request:
    """All that a decision may look at: what was asked, and through which door."""

    target: Target
    host: Authority | None = None
    forwarded_host: Authority | None = None
    """The last element of X-Forwarded-Host, if a trusted proxy sent it."""
    scheme: str = "http"
    """The client's own: X-Forwarded-Proto from a trusted proxy, else the socket's."""
    bind_listener: str | None = None
    query_names: tuple[str, ...] = ()
    header_names: tuple[str, ...] = ()


def read_target(method: str, path: str) -> Target:
    """Say what a method and a raw path are about; raises BadPath for one that could be read in two ways."""
    # Clients choose paths, so only short ones are remembered, or many long ones would fill the memory.
    return _remembered_target(method, path) if len(path) <= _SHORT else _read_target(method, path)


def _read_target(method: str, path: str) -> Target:
    # Brokers decode topics as URLDecoder does (common/util/Codec), so + is a space.
    segments = [segment for raw in path.split("/") if (segment := unquote_plus(raw.partition(";")[0]))]
    if not _DOTS.isdisjoint("/".join(segments).replace("\\", "/").split("/")):
        raise BadPath("dot segments may be resolved in two ways: send the path resolved")
    match segments:
        case ["lookup", *rest]:
            return _read_lookup(method, rest)
        case ["admin", *rest]:
            return _read_admin(method, rest, "/" + "/".join(segments))
        case ["topics", *rest]:
            return _about("other", "topics", rest)
        case ["ws", *rest]:
            return _about("other", "ws", rest)
    return Target("other", "other")


_remembered_target = lru_cache(8192)(_read_target)


def _read_lookup(method: str, rest: list[str]) -> Target:
    lengths = {"v2/topic": 6, "v2/destination": 7}
    is_lookup = method in ("GET", "HEAD") and lengths.get("/".join(rest[:2])) == len(rest)
    return _about("lookup" if is_lookup else "other", "lookup", rest[2:], v1=rest[1:2] == ["destination"])


def _read_admin(method: str, rest: list[str], path: str) -> Target:
    if path.startswith(FUNCTION_PREFIXES):
        return Target("admin", "functions")
    v1 = rest[:1] not in (["v2"], ["v3"])
    call = rest if v1 else rest[1:]
    area: Area = "client" if method in ("GET", "HEAD") and _is_client_call(call) else "admin"
    return _about("admin", area, call, v1)


def _is_client_call(rest: list[str]) -> bool:
    """The GETs that client libraries make beside lookups: partitions, topics of a namespace, schemas."""
    match rest:
        case [("persistent" | "non-persistent"), _, _, _, "partitions"]:
            return True
        case [("persistent" | "non-persistent"), _, _, _, _, "partitions"]:  # v1
            return True
        case ["namespaces", _, _, "topics"] | ["namespaces", _, _, _, "destinations"]:
            return True
        case ["schemas", _, _, _, "schema"] | ["schemas", _, _, _, "schema", _]:
            return True
    return False


def _about(kind: Kind, area: Area, rest: list[str], v1: bool = False) -> Target:
    """Find tenant, namespace and topic in what follows the prefix.

    v1 names have the cluster between tenant and namespace; brokers up to 4.0 answer them.
    """
    match rest:
        case ["namespaces", tenant, _, namespace, *_] if v1:
            return Target(kind, area, tenant, namespace)
        case ["namespaces", tenant, namespace, *_] if not v1:
            return Target(kind, area, tenant, namespace)
        case ["schemas", tenant, namespace, topic, *_]:
            return Target(kind, area, tenant, namespace, f"persistent://{tenant}/{namespace}/{topic}")
    length = 4 if v1 else 3
    for place, segment in enumerate(rest[:4]):
        names = rest[place + 1 : place + 1 + length]
        if segment in _DOMAINS and len(names) == length:
            return Target(kind, area, names[0], names[-2], f"{segment}://{'/'.join(names)}")
    return Target(kind, area)


def listener_names(query: str) -> tuple[str, ...]:
    """The values of every `listenerName` parameter, however its name is encoded."""
    if not query:
        return ()
    return tuple(unquote_plus(value) for name, value in _parameters(query) if _is_listener(name))


def set_listener_name(query: str, name: str | None) -> str:
    """The query with `listenerName` exactly once, or not at all for None; every other byte as it was.

    The first parameter that is not blank keeps its place if it says the name already.
    """
    parts: list[str] = []
    done = name is None
    for part in query.split("&") if query else ():
        key, _, value = part.partition("=")
        if not _is_listener(key):
            parts.append(part)
        elif not done and unquote_plus(value) == name:
            parts.append(part)
            done = True
    if not done and name is not None:
        parts.append(f"{LISTENER_PARAMETER}={quote(name, safe='')}")
    return "&".join(parts)


def _parameters(query: str) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (part.partition("=") for part in query.split("&"))]


def _is_listener(name: str) -> bool:
    return name == LISTENER_PARAMETER or (("%" in name or "+" in name) and unquote_plus(name) == LISTENER_PARAMETER)
