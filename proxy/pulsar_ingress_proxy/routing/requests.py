"""A request as decisions see it, and the listener name in its query. Pure."""

from dataclasses import dataclass
from urllib.parse import quote, unquote_plus

from pulsar_ingress_proxy.routing.paths import Target
from pulsar_ingress_proxy.syntax.authorities import Authority

LISTENER_PARAMETER = "listenerName"


@dataclass(frozen=True, slots=True)
class Request:
    """The input of decisions: the target, and the socket and host that the request came through."""

    target: Target
    host: Authority | None = None
    forwarded_host: Authority | None = None
    """The last element of X-Forwarded-Host, if a trusted proxy sent it."""
    scheme: str = "http"
    """The client's scheme: X-Forwarded-Proto from a trusted proxy, else the socket's."""
    bind_listener: str | None = None
    query_names: tuple[str, ...] = ()
    header_names: tuple[str, ...] = ()
    has_authorization: bool = False


def listener_names(query: str) -> tuple[str, ...]:
    """The values of every `listenerName` parameter, however its name is encoded."""
    if LISTENER_PARAMETER not in query and "%" not in query:
        return ()
    parameters = (part.partition("=") for part in query.split("&"))
    return tuple(unquote_plus(value) for name, _, value in parameters if _is_listener(name))


def set_listener_name(query: str, name: str | None) -> str:
    """Set `listenerName` to exactly one value, or remove it for None; the rest of the query is unchanged.

    A parameter that already has the name keeps its place.
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


def _is_listener(name: str) -> bool:
    return name == LISTENER_PARAMETER or (("%" in name or "+" in name) and unquote_plus(name) == LISTENER_PARAMETER)
