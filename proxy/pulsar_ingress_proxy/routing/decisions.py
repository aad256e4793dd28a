"""Decisions about a request before it is forwarded: its listener, a refusal, and its route. Pure.

A request goes to the function workers by its path, to the one broker that its Host names, or to the pool.
"""

from dataclasses import dataclass
from typing import Literal

from pulsar_ingress_proxy.routing.addresses import Broker
from pulsar_ingress_proxy.routing.paths import Area
from pulsar_ingress_proxy.routing.requests import Request
from pulsar_ingress_proxy.routing.selection import Refusal, Selection, select
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.authorities import Authority, parse_authority
from pulsar_ingress_proxy.syntax.listeners import BINARY_SCHEMES, DEFAULT_PORTS, WEB_SCHEMES, ServiceUrl


@dataclass(frozen=True, slots=True)
class Route:
    """A pool, or the one broker that must answer, as it may be told to take the bundle (`authoritative=true`)."""

    pool: Literal["brokers", "functions"]
    broker: Broker | None = None
    url: ServiceUrl | None = None
    """The broker's internal web address."""

    def __str__(self) -> str:
        return f"pool of {self.pool}" if self.url is None else str(self.url)


@dataclass(frozen=True, slots=True)
class Decision:
    """The selected listener, a refusal if any, and the route."""

    selection: Selection
    refusal: Refusal | None
    route: Route
    label: str
    """The listener as a metrics label."""
    miss_reason: str | None
    """Why there is no listener, or why the request is refused."""


@dataclass(frozen=True, slots=True, eq=False)  # hashed by identity
class DecidedRequest:
    """A request and its decision, shared by all identical requests."""

    request: Request
    decision: Decision


_DEFAULT_BINARY = ServiceUrl("pulsar", "", "6650")

BROKERS = Route("brokers")
FUNCTIONS = Route("functions")


def decide(request: Request, snapshot: Snapshot) -> Decision:
    """Select the listener, check for a refusal, and choose the route."""
    selection = select(request, snapshot)
    refusal = not_exposed(request.target.area, selection, snapshot) or selection.refusal
    reason = refusal.code if refusal is not None else selection.reason
    label = snapshot.listener_label(selection.listener)
    return Decision(selection, refusal, route(request, selection, snapshot), label, reason)


def route(request: Request, selection: Selection, snapshot: Snapshot) -> Route:
    broker = None if selection.listener is None else _pinned(request, selection.listener, snapshot)
    is_function_call = request.target.area == "functions" and bool(snapshot.config.function_pool)
    if is_function_call and (broker is None or not _is_worker(broker, snapshot)):
        return FUNCTIONS
    return BROKERS if broker is None else Route("brokers", broker, dial_url(broker, snapshot))


def _is_worker(broker: Broker, snapshot: Snapshot) -> bool:
    """Whether an entry of the address book is a function worker. It may be there for redirects between workers.

    A worker has no binary address, and another web port than the brokers.
    """
    if any(scheme in urls for urls in broker.listeners.values() for scheme in BINARY_SCHEMES):
        return False
    config = snapshot.config
    workers = {url.port for url in config.function_pool}
    return dial_url(broker, snapshot).port not in {url.port for url in config.web_pool} - workers


def not_exposed(area: Area, selection: Selection, snapshot: Snapshot) -> Refusal | None:
    """The refusal for an area that the ingress does not expose. A Host without an ingress must not bypass this."""
    ingress = selection.ingress
    if ingress is None:
        exposed = snapshot.ingresses.expose(area)
        return None if exposed else Refusal(403, "not-exposed", "this is not exposed to hosts of no ingress")
    if ingress.exposes(area):
        return None
    shown = ", ".join(sorted(ingress.expose or ()))
    return Refusal(403, "not-exposed", f"ingress '{ingress.name}' exposes only {shown or 'nothing'}")


def dial_url(broker: Broker, snapshot: Snapshot, schemes: tuple[str, str] = WEB_SCHEMES) -> ServiceUrl:
    """The URL by which the sidecar dials a broker: its internal address, preferably with the pool's scheme."""
    config, is_web = snapshot.config, schemes == WEB_SCHEMES
    # A reload may have removed the last binary address of the pool.
    pool = config.web_pool[0] if is_web else next(iter(config.binary_pool), _DEFAULT_BINARY)
    find = broker.web_url if is_web else broker.binary_url
    url = find(config.internal_listener_name, pool.scheme)
    if url is not None:
        return url
    # Fall back to the broker's name. Its port, if any, is the web port, as in a broker's id; else use the pool's port.
    name = parse_authority(broker.name) or Authority(broker.name, None)
    port = name.port if is_web else None
    return ServiceUrl(pool.scheme, name.host, str(port or pool.port))


def _pinned(request: Request, listener: str, snapshot: Snapshot) -> Broker | None:
    for given in (request.host, request.forwarded_host):
        if given is not None:
            authority = Authority(given.host, given.port or DEFAULT_PORTS[request.scheme])
            if broker := pinned(authority, listener, snapshot):
                return broker
            if snapshot.ingresses.by_host(given.host) is not None:
                return None  # a forwarded host never beats a Host that matches
    return None


def pinned(
    authority: Authority, listener: str, snapshot: Snapshot, schemes: tuple[str, str] = WEB_SCHEMES
) -> Broker | None:
    """The one broker with this address on the listener, or on the default listener if it has none here (PIP-338)."""
    book, default = snapshot.book, snapshot.config.lookup_listener_name
    if broker := book.pinned(listener, authority, schemes):
        return broker
    broker = book.pinned(default, authority, schemes) if default is not None else None
    return None if broker is None or broker.listeners.get(listener, {}).keys() & {*schemes} else broker
