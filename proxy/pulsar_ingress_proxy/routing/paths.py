"""Pulsar's paths: is this a lookup, and whose topic is it? Pure.

A broker reads a path twice, and not in the same way: Jetty picks the servlet context from the decoded path, then Jersey
cuts as many characters as that context's path has off the raw one, and matches the rest (ContainerRequest). A spelling
that could be read in two ways is refused; all other paths are forwarded byte for byte.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal
from urllib.parse import unquote_plus

from pulsar_ingress_proxy.config.model import Exposable
from pulsar_ingress_proxy.memory import REQUEST_TARGETS

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


def read_target(method: str, path: str) -> Target:
    """Say what a method and a raw path are about; raises BadPath for one that could be read in two ways."""
    # Clients choose paths, so only short ones are remembered, or many long ones would fill the memory.
    return _remembered_target(method, path) if len(path) <= REQUEST_TARGETS.longest else _read_target(method, path)


def _read_target(method: str, path: str) -> Target:
    if path.count("/") > _MOST_SLASHES:
        raise BadPath(f"a path has at most {_MOST_SLASHES} slashes")
    for text, why in _REFUSED.items():
        if text in path:
            raise BadPath(why)
    if _STRAY_PERCENT.search(path):
        raise BadPath("a percent sign in a path is followed by two hex digits: encode a percent sign as %25")
    if _DOT_SEGMENT.search(path):
        raise BadPath("dot segments may be resolved in two ways: send the path resolved")
    # Jersey compares words as they stand and decodes only names: `words` decides, `names` is for the record.
    words = [word for word in path.split("/") if word]
    if words and "%" in words[0]:  # Jetty 9.4 reads /lookup%2Fv2 as two segments, 12 as one
        raise BadPath("the first segment of a path is not percent-encoded")
    try:
        # As URLDecoder, with which brokers decode topics (common/util/Codec), so + is a space.
        names = [unquote_plus(word, errors="strict") for word in words]
    except UnicodeDecodeError:
        raise BadPath("what is percent-encoded in a path is UTF-8") from None
    match words:
        case ["lookup", *rest]:
            return _read_lookup(method, rest, names[1:])
        case ["admin", *rest]:
            return _read_admin(method, rest, names[1:])
        case ["topics", *_]:
            return _about("other", "topics", names[1:])
        case ["ws", *_]:
            return _about("other", "ws", names[1:])
    return Target("other", "other")


_remembered_target = lru_cache(REQUEST_TARGETS.entries)(_read_target)


def _read_lookup(method: str, words: list[str], names: list[str]) -> Target:
    lengths = {"v2/topic": 6, "v2/destination": 7}
    is_lookup = method in ("GET", "HEAD") and lengths.get("/".join(words[:2])) == len(words)
    return _about("lookup" if is_lookup else "other", "lookup", names[2:], v1=words[1:2] == ["destination"])


def _read_admin(method: str, words: list[str], names: list[str]) -> Target:
    if "/".join(["/admin", *words]).startswith(FUNCTION_PREFIXES):
        return Target("admin", "functions")
    v1 = words[:1] not in (["v2"], ["v3"])
    area: Area = "client" if method in ("GET", "HEAD") and _is_client_call(words) else "admin"
    return _about("admin", area, names if v1 else names[1:], v1)


def _is_client_call(words: list[str]) -> bool:
    """The GETs that client libraries make beside lookups: partitions, topics of a namespace, schemas."""
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
