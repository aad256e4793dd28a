"""By which endpoint a client came in, and which brokers its connection may lead to. Pure."""

from dataclasses import dataclass
from typing import NamedTuple

from pulsar_ingress_proxy.binary.commands_pb2 import Connect
from pulsar_ingress_proxy.routing.addresses import Broker
from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.decisions import dial_url
from pulsar_ingress_proxy.routing.paths import Target
from pulsar_ingress_proxy.routing.requests import Request
from pulsar_ingress_proxy.routing.selection import Refusal, Selection, select
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.authorities import Authority, parse_authority
from pulsar_ingress_proxy.syntax.listeners import BINARY_SCHEMES, BindAddress, ServiceUrl

_LOOKUP = Target("lookup", "lookup")
_SESSION = Target("other", "other")


class ClientEndpoint(NamedTuple):
    """The socket, and the server name that the client sent over TLS, if it did."""

    bind: BindAddress
    server_name: str | None

    def request(self, target: Target, names: tuple[str, ...] = ()) -> Request:
        """What selection looks at; a server name is to a connection what Host is to a request."""
        host = parse_authority(self.server_name) if self.server_name is not None else None
        return Request(target, host, None, self.bind.scheme, self.bind.listener, header_names=names)


@dataclass(frozen=True, slots=True)
class SelectedRequest:
    """What is decided of everything that is asked in the same way."""

    request: Request
    selection: Selection


def lookup_selection(endpoint: ClientEndpoint, name: str | None, decisions: DecisionCache) -> SelectedRequest:
    """The listener of a lookup that names one, or none."""
    return _selection(endpoint, _LOOKUP, name, decisions)


def default_selection(endpoint: ClientEndpoint, decisions: DecisionCache) -> SelectedRequest:
    """The listener of the connection itself, for what nobody has asked for."""
    return _selection(endpoint, _SESSION, None, decisions)


def _selection(endpoint: ClientEndpoint, target: Target, name: str | None, decisions: DecisionCache) -> SelectedRequest:
    key = (endpoint, target.kind, name)
    found = decisions.get(key)
    if isinstance(found, SelectedRequest):
        return found
    request = endpoint.request(target, () if name is None else (name,))
    return decisions.keep(key, SelectedRequest(request, select(request, decisions.snapshot)))


@dataclass(frozen=True, slots=True)
class ConnectionTarget:
    """Where a connection leads: to the pool, in any order, or to one broker and no other; or nowhere."""

    urls: tuple[ServiceUrl, ...]
    broker: Broker | None = None
    refusal: Refusal | None = None
    keeps_name: bool = False
    """Whether the broker that the client names is for whoever is asked, and not for us."""


def connection_target(connect: Connect, endpoint: ClientEndpoint, decisions: DecisionCache) -> ConnectionTarget:
    """The broker that the client names, where that leads through here; the one that its server name means; or any.

    An empty name, as clients of 5.x send it, means any broker. Where answers are left as they are, a client names the
    one that a proxy behind us has told it.
    """
    snapshot = decisions.snapshot
    selection = default_selection(endpoint, decisions).selection
    wanted = connect.proxy_to_broker_url.decode("utf-8", "replace")
    if wanted:
        is_idle = snapshot.config.shadow or (snapshot.config.leaks == "observe" and not is_through(selection))
        if is_idle:
            return ConnectionTarget(snapshot.config.binary_pool, keeps_name=True)
        return _through(wanted, selection, snapshot)
    host = parse_authority(endpoint.server_name) if endpoint.server_name is not None else None
    if host is not None and selection.listener is not None:
        broker = _pinned(host, selection.listener, snapshot)
        if broker is not None:
            return ConnectionTarget((dial_url(broker, snapshot, BINARY_SCHEMES),), broker)
    return ConnectionTarget(snapshot.config.binary_pool)


def _pinned(host: Authority, listener: str, snapshot: Snapshot) -> Broker | None:
    """The one broker whose address on the listener this is; else on the default one, if it has none here (PIP-338)."""
    broker = snapshot.book.pinned(listener, host, BINARY_SCHEMES)
    default = snapshot.config.lookup_listener_name
    if broker is None and default is not None:
        broker = snapshot.book.pinned(default, host, BINARY_SCHEMES)
        if broker is not None and broker.binary_url(listener, "pulsar") is not None:
            return None
    return broker


def _through(wanted: str, selection: Selection, snapshot: Snapshot) -> ConnectionTarget:
    """Whom a client means that was told to come through here: a broker that is known, or this were an open proxy."""
    if not is_through(selection):
        where = f"ingress '{selection.ingress.name}'" if selection.ingress is not None else "this door"
        text = f"brokers are not reached through {where}: throughSidecar is not set"
        return ConnectionTarget((), refusal=Refusal(403, "not-through-here", text, wanted))
    authority = parse_authority(wanted.rpartition("://")[2])
    if authority is not None and authority.port is not None:
        broker = snapshot.book.resolve(authority, 0, BINARY_SCHEMES)
        if broker is not None:
            return ConnectionTarget((dial_url(broker, snapshot, BINARY_SCHEMES),), broker)
        if url := _in_pool(authority, snapshot):
            return ConnectionTarget((url,))
    text = "the broker that was asked for is not one that is known here"
    return ConnectionTarget((), refusal=Refusal(403, "unknown-broker", text, wanted))


def is_through(selection: Selection) -> bool:
    """Whether clients of this ingress reach brokers through the sidecar."""
    return selection.ingress is not None and selection.ingress.through_sidecar


def name_through(broker: Broker | None, address: str | None, listener: str, snapshot: Snapshot) -> str | None:
    """What clients call a broker that they reach through here: they say it again in CONNECT, and need not resolve it.

    Its address on their listener, where that means it alone; else the one that it is dialled by.
    """
    if broker is None:
        authority = parse_authority(address) if address is not None else None
        found = _in_pool(authority, snapshot) if authority is not None else None
        return found.authority if found is not None else None
    url = broker.binary_url(listener, "pulsar")
    if url is None or snapshot.book.is_shared(broker, url):
        url = dial_url(broker, snapshot, BINARY_SCHEMES)
    return url.authority


def _in_pool(authority: Authority, snapshot: Snapshot) -> ServiceUrl | None:
    return next((url for url in snapshot.config.binary_pool if url.authority == str(authority)), None)
