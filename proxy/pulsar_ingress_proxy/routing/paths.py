"""Classification of Pulsar's paths, and the names in them. Pure.

A broker reads a path twice: Jetty picks the servlet context from the decoded path, then Jersey cuts the length of that
context's path off the raw one and matches the rest (ContainerRequest). Ambiguous paths are refused; all other paths are
forwarded byte for byte.
"""

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote_plus

from pulsar_ingress_proxy.config.model import Exposable

Kind = Literal["lookup", "admin", "other"]
Area = Literal[Exposable, "other"]

_MOST_SLASHES = 64  # the longest of Pulsar's own paths have 12
_REFUSED = {
    ";": "a path has no parameters: encode a semicolon as %3B",  # /lookup;v2/topic is v2/topic to Jersey
    "\\": "a path has no backslash: encode it as %5C",  # Jetty 12 refuses it, 9.4 does not
    "//": "a path has no empty segments",  # Jetty keeps them, so //admin is not in the context /admin
    "%00": "a path has no NUL",
}
_STRAY_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")  # Jetty reads %u002e as a dot
_DOT_SEGMENT = re.compile(r"(?:/|%2[Ff]|%5[Cc])(?:\.|%2[Ee]){1,2}(?=/|%2[Ff]|%5[Cc]|\Z)")
"""Also between encoded slashes, which Jetty 9.4 decodes before it resolves dots."""
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
    """A path that brokers could read differently."""


@dataclass(frozen=True, slots=True)
class Target:
    """The kind of a request, and the names in its path."""

    kind: Kind
    area: Area
    tenant: str | None = None
    namespace: str | None = None
    topic: str | None = None


_LOOKUP, _LOOKUP_OTHER = Target("lookup", "lookup"), Target("other", "lookup")
_ADMIN, _CLIENT, _FUNCTIONS = Target("admin", "admin"), Target("admin", "client"), Target("admin", "functions")
_TOPICS, _WEBSOCKET, OTHER = Target("other", "topics"), Target("other", "ws"), Target("other", "other")


def classify(method: str, path: str) -> Target:
    """Classify a method and a raw path, without names, which decisions do not need; raises BadPath."""
    if "%" in path or "/." in path or "//" in path or ";" in path or "\\" in path or path.count("/") > _MOST_SLASHES:
        _check_spelling(path)
    words = path.strip("/").split("/")
    match words[0]:
        case "lookup":
            length = {"topic": 7, "destination": 8}.get(words[2]) if len(words) > 2 and words[1] == "v2" else None
            return _LOOKUP if length == len(words) and method in ("GET", "HEAD") else _LOOKUP_OTHER
        case "admin":
            if path.startswith(FUNCTION_PREFIXES):
                return _FUNCTIONS
            return _CLIENT if method in ("GET", "HEAD") and _is_client_call(words[1:]) else _ADMIN
        case "topics":
            return _TOPICS
        case "ws":
            return _WEBSOCKET
    return OTHER


def _check_spelling(path: str) -> None:
    if path.count("/") > _MOST_SLASHES:
        raise BadPath(f"a path has at most {_MOST_SLASHES} slashes")
    for text, why in _REFUSED.items():
        if text in path:
            raise BadPath(why)
    if _STRAY_PERCENT.search(path):
        raise BadPath("a percent sign in a path is followed by two hex digits: encode a percent sign as %25")
    if _DOT_SEGMENT.search(path):
        raise BadPath("dot segments may be resolved in two ways: send the path resolved")
    if "%" in path.strip("/").partition("/")[0]:  # Jetty 9.4 reads /lookup%2Fv2 as two segments, 12 as one
        raise BadPath("the first segment of a path is not percent-encoded")
    try:
        unquote_plus(path, errors="strict")
    except UnicodeDecodeError:
        raise BadPath("what is percent-encoded in a path is UTF-8") from None


Names = tuple[str | None, str | None, str | None]
"""A tenant, its namespace, and the full name of a topic there."""


def names_in(path: str) -> Names:
    """The tenant, namespace and topic in a path. Brokers compare keywords undecoded, and decode only names."""
    words = path.strip("/").split("/")
    rest = words
    if "%" in path or "+" in path:
        # Like URLDecoder, which brokers use for topics (common/util/Codec): + is a space.
        rest = [unquote_plus(word, errors="replace") for word in words]
    match words[0]:
        case "lookup":
            return _named(rest[3:], v1=words[2:3] == ["destination"])
        case "admin" if not path.startswith(FUNCTION_PREFIXES):
            v1 = words[1:2] not in (["v2"], ["v3"])
            return _named(rest[1:] if v1 else rest[2:], v1)
        case "topics" | "ws":
            return _named(rest[1:])
    return None, None, None


def _is_client_call(words: list[str]) -> bool:
    """Whether this is a GET of client libraries: partitions, topics of a namespace, schemas."""
    match words:
        case ["v2", "persistent" | "non-persistent", _, _, _, "partitions"]:
            return True
        case ["v2", "namespaces", _, _, "topics"]:
            return True
        case ["v2", "schemas", _, _, _, "schema"] | ["v2", "schemas", _, _, _, "schema", _]:
            return True
        case ["persistent" | "non-persistent", _, _, _, _, "partitions"] | ["namespaces", _, _, _, "destinations"]:
            return True  # v1
    return False


def _named(rest: list[str], v1: bool = False) -> Names:
    """Tenant, namespace and topic in the segments after the prefix.

    v1 names have the cluster between tenant and namespace; brokers up to 4.0 support them.
    """
    match rest:
        case ["persistent" | "non-persistent" as domain, tenant, namespace, topic, *_] if not v1:
            return tenant, namespace, f"{domain}://{tenant}/{namespace}/{topic}"
        case ["namespaces", tenant, _, namespace, *_] if v1:
            return tenant, namespace, None
        case ["namespaces", tenant, namespace, *_] if not v1:
            return tenant, namespace, None
        case ["schemas", tenant, namespace, topic, *_]:
            return tenant, namespace, f"persistent://{tenant}/{namespace}/{topic}"
    length = 4 if v1 else 3
    for place, segment in enumerate(rest[:4]):
        found = rest[place + 1 : place + 1 + length]
        if segment in _DOMAINS and len(found) == length:
            return found[0], found[-2], f"{segment}://{'/'.join(found)}"
    return None, None, None
