"""Selection: which listener a request belongs to, and by which rule. Pure.

1  query    the client's `listenerName` parameter      }  where clients may name listeners,
2  header   the client's X-Pulsar-ListenerName         }  and may name this one
3  bind     the listener of the socket
4  ingress  the ingress whose hosts match
5  default  lookupListenerName (PIP-338)
–  none     a miss
"""

import re
from dataclasses import dataclass, replace
from typing import Literal

from pulsar_ingress_proxy.routing.ingresses import Ingress
from pulsar_ingress_proxy.routing.requests import Request
from pulsar_ingress_proxy.routing.snapshot import Snapshot

NamedBy = Literal["query", "header"]
Rule = Literal[NamedBy, "bind", "ingress", "default", "none"]

# Safe in a header. Listener names of 4.x brokers may have more than letters and digits, but no spaces, control
# characters or non-ASCII characters.
_SENDABLE = re.compile(r"[!-~]{1,255}")


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer by the sidecar itself: a status, a code for metrics, and a text."""

    status: int
    code: str
    text: str
    detail: str = ""
    """For the log only: it may have internal names."""
    retry_after: int = 0
    """Seconds; 0: no Retry-After."""


OVERLOADED = Refusal(
    503, "overloaded", "more is under way than limits.inFlight and limits.bufferBytes allow", retry_after=1
)
SHED = Refusal(503, "overloaded", "requests wait for longer than limits.waitMillis allows", retry_after=1)


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected listener (a hit), or the reason why there is none (a miss), with an optional refusal."""

    ingress: Ingress | None
    listener: str | None
    rule: Rule
    reason: str | None = None
    refusal: Refusal | None = None
    client_named: str | None = None
    client_named_by: NamedBy | None = None
    shadow: bool = False
    """Whether the request is only recorded, and nothing is changed."""

    @property
    def hit(self) -> bool:
        return self.listener is not None


def select(request: Request, snapshot: Snapshot) -> Selection:
    """Apply the rules; the first that matches wins."""
    named, by = _client_choice(request) if request.query_names or request.header_names else (None, None)
    own = _own_choice(request, named, by, snapshot)
    if len({name for name in request.header_names if name.strip()}) > 1:
        return _refused(own, 400, "conflicting-names", "X-Pulsar-ListenerName is there twice, with two values")
    if named is None or by is None or named == own.listener:
        return _if_reported(own, request, snapshot)
    match snapshot.config.client_listener_name:
        case "ignore":
            return _if_reported(own, request, snapshot)
        case "reject":
            return _refused(own, 400, "client-named", "clients may not name a listener here")
        case "honor":
            return _honoured(own, named, by, snapshot)


def _client_choice(request: Request) -> tuple[str | None, NamedBy | None]:
    """The first name that is not blank: as in brokers, the query overrides the header (TopicLookup)."""
    sources: tuple[tuple[tuple[str, ...], NamedBy], ...] = (
        (request.query_names, "query"),
        (request.header_names, "header"),
    )
    return next(((name, by) for names, by in sources for name in names if name.strip()), (None, None))


def _own_choice(request: Request, named: str | None, by: NamedBy | None, snapshot: Snapshot) -> Selection:
    """Rules 3 to 5, whatever the client named."""
    ingress = _ingress(request, snapshot)
    default = snapshot.config.lookup_listener_name
    shadow = snapshot.config.shadow if ingress is None or ingress.shadow is None else ingress.shadow
    if request.bind_listener is not None:
        return Selection(ingress, request.bind_listener, "bind", None, None, named, by, shadow)
    if ingress is not None:
        return Selection(ingress, ingress.listener, "ingress", None, None, named, by, shadow)
    if default is not None:
        return Selection(None, default, "default", None, None, named, by, shadow)
    refusal = None
    if snapshot.config.miss == "reject" and request.target.kind == "lookup":
        refusal = Refusal(400, "no-rule", "no rule says which listener this lookup is for: its host is of no ingress")
    return Selection(None, None, "none", "no-rule", refusal, named, by, shadow)


def _if_reported(own: Selection, request: Request, snapshot: Snapshot) -> Selection:
    """Our own choice, unless the brokers report that none of them has the listener: they would refuse the lookup."""
    told = snapshot.reported_listeners
    if not told or own.listener is None or own.listener in told or request.target.kind != "lookup":
        return own
    if snapshot.config.unknown_listener == "forward":
        return own
    others = _listed(told - {snapshot.config.internal_listener_name})
    text = f"no broker has a listener '{own.listener}'; they have {others}"
    return replace(own, listener=None, reason="unknown-listener", refusal=Refusal(400, "unknown-listener", text))


def _ingress(request: Request, snapshot: Snapshot) -> Ingress | None:
    """The ingress by Host, then by a trusted proxy's X-Forwarded-Host, then by the listener of the socket.

    An ingress for every host comes last.
    """
    for authority in (request.host, request.forwarded_host):
        if authority is not None and (found := snapshot.ingresses.by_host(authority.host)) is not None:
            return found
    if request.bind_listener is not None:
        return snapshot.ingresses.by_listener(request.bind_listener)
    return snapshot.ingresses.everywhere


def _honoured(own: Selection, name: str, by: NamedBy, snapshot: Snapshot) -> Selection:
    """The client's choice, if the name is valid, allowed through this ingress, and known to a broker."""
    allowed = own.ingress.allowed_listeners if own.ingress is not None else None
    internal = snapshot.config.internal_listener_name
    if not _SENDABLE.fullmatch(name):
        return _refused(own, 400, "bad-listener-name", "a listener name is made of visible ASCII characters")
    if name not in allowed if allowed is not None else name == internal:
        where = f"ingress '{own.ingress.name}'" if own.ingress is not None else "this socket"
        choice = f"; allowed are {_listed(allowed)}" if allowed is not None else ""
        return _refused(own, 403, "not-allowed", f"listener '{name}' may not be named through {where}{choice}")
    known = snapshot.known_listeners
    if known and name not in known and snapshot.config.unknown_listener == "reject":
        choice = _listed(known - {internal} if allowed is None else known & allowed)
        return _refused(own, 400, "unknown-listener", f"no broker has a listener '{name}'; known are {choice}")
    return replace(own, listener=name, rule=by, reason=None, refusal=None)


def _refused(own: Selection, status: int, code: str, text: str) -> Selection:
    refusal = Refusal(status, code, text)
    return replace(own, listener=None, rule=own.client_named_by or "header", reason=code, refusal=refusal)


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "none"
