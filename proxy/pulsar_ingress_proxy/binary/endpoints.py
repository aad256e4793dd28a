"""The endpoint that a client connected to, and the brokers that its connection may lead to. Pure."""

from dataclasses import dataclass
from typing import NamedTuple

from pulsar_ingress_proxy.binary.commands_pb2 import Connect
from pulsar_ingress_proxy.routing.addresses import Broker
from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.decisions import BROKERS, DecidedRequest, Decision, dial_url, not_exposed, pinned
from pulsar_ingress_proxy.routing.paths import Target
from pulsar_ingress_proxy.routing.requests import Request
from pulsar_ingress_proxy.routing.selection import Refusal, Selection, select
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.authorities import Authority, parse_authority
from pulsar_ingress_proxy.syntax.listeners import BINARY_SCHEMES, BindAddress, ServiceUrl

LOOKUP = Target("lookup", "lookup")
_SESSION = Target("other", "other")


class ClientEndpoint(NamedTuple):
    """The bind address, and the TLS server name (SNI) if the client sent one."""

    bind: BindAddress
    server_name: str | None

    def request(self, target: Target, names: tuple[str, ...] = ()) -> Request:
        """The request that selection sees; the server name takes the place of the Host header."""
        host = parse_authority(self.server_name) if self.server_name is not None else None
        return Request(target, host, None, self.bind.scheme, self.bind.listener, header_names=names)


def decide(
    endpoint: ClientEndpoint, decisions: DecisionCache, target: Target = _SESSION, name: str | None = None
) -> DecidedRequest:
    """The decision about a lookup, or about the connection itself, for commands that answer no lookup; cached.

    `name` is the listener that the client named, if any.
    """
    key = (endpoint, target.kind, name)
    found = decisions.get(key)
    if isinstance(found, DecidedRequest):
        return found
    snapshot = decisions.snapshot
    request = endpoint.request(target, () if name is None else (name,))
    selection = select(request, snapshot)
    refusal = not_exposed(target.area, selection, snapshot) or selection.refusal
    reason = refusal.code if refusal is not None else selection.reason
    decision = Decision(selection, refusal, BROKERS, snapshot.listener_label(selection.listener), reason)
    return decisions.keep(key, DecidedRequest(request, decision))


@dataclass(frozen=True, slots=True)
class ConnectionTarget:
    """Where a connection leads: any broker of the pool, exactly one broker, or a refusal."""

    urls: tuple[ServiceUrl, ...]
    broker: Broker | None = None
    refusal: Refusal | None = None
    keeps_name: bool = False
    """Whether `proxy_to_broker_url` is forwarded, as it is meant for a proxy behind the sidecar."""
    is_any: bool = False
    """Whether the client left the choice of the broker to the sidecar."""


def connection_target(connect: Connect, endpoint: ClientEndpoint, decisions: DecisionCache) -> ConnectionTarget:
    """Choose the broker that CONNECT names, if the ingress has throughSidecar; the one of the server name; or any.

    Clients of 5.x send an empty name for any broker. If answers are not rewritten, the name comes from a proxy behind
    the sidecar.
    """
    snapshot = decisions.snapshot
    selection = decide(endpoint, decisions).decision.selection
    wanted = connect.proxy_to_broker_url.decode("utf-8", "replace")
    if wanted:
        is_idle = selection.shadow or (snapshot.config.leaks == "observe" and not is_through(selection))
        if is_idle:
            return ConnectionTarget(snapshot.config.binary_pool, keeps_name=True)
        return through_target(wanted, selection, snapshot)
    host = parse_authority(endpoint.server_name) if endpoint.server_name is not None else None
    if host is not None and selection.listener is not None:
        broker = pinned(host, selection.listener, snapshot, BINARY_SCHEMES)
        if broker is not None:
            return ConnectionTarget((dial_url(broker, snapshot, BINARY_SCHEMES),), broker)
    return ConnectionTarget(snapshot.config.binary_pool, is_any=True)


def through_target(wanted: str, selection: Selection, snapshot: Snapshot) -> ConnectionTarget:
    """The broker that a client names under throughSidecar. Only known brokers: this is not an open proxy."""
    if not is_through(selection):
        where = f"ingress '{selection.ingress.name}'" if selection.ingress is not None else "this socket"
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
    """The name by which clients ask for a broker in CONNECT under throughSidecar; they need not resolve it.

    It is the broker's address on the client's listener, or the address the sidecar dials if several brokers share that.
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
