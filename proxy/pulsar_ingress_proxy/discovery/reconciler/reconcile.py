"""Derives the result from all objects: ingresses without conflicts, and brokers with their addresses. Pure."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.discovery.reconciler.annotations import LISTENER, Annotations
from pulsar_ingress_proxy.discovery.reconciler.attachment import Attachment, attachments
from pulsar_ingress_proxy.discovery.reconciler.objects import Gateway, Key, ListenerSet, Route, Service, ServicePort
from pulsar_ingress_proxy.discovery.reconciler.routes import (
    KeyedClaim,
    route_addresses,
    routed_hosts,
    service_addresses,
)
from pulsar_ingress_proxy.discovery.reconciler.scope import Scope
from pulsar_ingress_proxy.discovery.reconciler.view import BrokerPod, ClusterView, schemes_of
from pulsar_ingress_proxy.routing.discovered import Conflict, Discovered
from pulsar_ingress_proxy.routing.ingresses import Ingress, Ingresses
from pulsar_ingress_proxy.routing.precedence import Claim, in_order, resolve_claims
from pulsar_ingress_proxy.syntax.hosts import ANY
from pulsar_ingress_proxy.syntax.listeners import ServiceUrl

KeyedIngress = tuple[Key, Ingress]


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The result of all objects; it does not depend on their order."""

    discovered: Discovered
    unmapped: tuple[Conflict, ...]
    """Routes to brokers without a listener; also among the conflicts."""
    hosts: frozenset[tuple[str, bool]]
    """Hosts and wildcards that are routed through our gateways or to a broker; whether connections carry the host."""


def reconcile(config: Config, view: ClusterView) -> Reconciled:
    """Derive the result, in a stable order."""
    conflicts: list[Conflict] = []
    found, addresses, hosts = _derive(view, conflicts)
    ingresses = _resolve_hosts(found, view.scope, conflicts)
    claims = {key: list(_internal(config, broker, view)) for key, broker in view.brokers.items()}
    listener_of = _listener_of(config, [ingress for key, ingress in ingresses if view.scope.trusts(key.namespace)])
    unmapped = []
    for key, claim in addresses:
        listener = claim.listener or listener_of(claim.url.host)
        if listener is not None:
            claims[key].append(claim._replace(listener=listener))
        else:
            leads = f"leads {claim.url} to {view.brokers[key].names[0]}"
            unmapped.append(Conflict(claim.by, f"{leads}, but has no listener: annotate it with {LISTENER}"))
    brokers = []
    for key, claimed in claims.items():
        broker, disagreements = resolve_claims(view.brokers[key].names, claimed)
        brokers.append(broker)
        conflicts += disagreements
    if not brokers:
        conflicts.append(Conflict("brokers", _why_no_brokers(view)))
    own = tuple(ingress for _, ingress in ingresses)
    discovered = Discovered(own, tuple(brokers), conflicts=in_order([*conflicts, *unmapped]))
    return Reconciled(discovered, in_order(unmapped), frozenset(hosts))


def _derive(
    view: ClusterView, conflicts: list[Conflict]
) -> tuple[list[KeyedIngress], list[KeyedClaim], set[tuple[str, bool]]]:
    """The ingresses, brokers' addresses and routed hosts of each object."""
    scope = view.scope
    ingresses: list[KeyedIngress] = []
    addresses: list[KeyedClaim] = []
    hosts: set[tuple[str, bool]] = set()
    for obj in view.objects.values():
        match obj:
            case Route() if places := tuple(attachments(obj, view)):
                ingresses += _route_ingresses(obj, places, scope, conflicts)
                addresses += route_addresses(obj, places, view, conflicts)
                hosts.update(routed_hosts(places))
            case Gateway() | ListenerSet() if (gateway := view.gateway(obj.key)) and scope.is_beside(gateway):
                ingresses += _gateway_ingresses(gateway, scope, conflicts)
            case ListenerSet() if gateway is None and scope.is_meant_for_ours(obj):
                conflicts.append(Conflict(str(obj.key), _why_not_attached(obj, view)))
            case Service() if scope.is_ingress(obj) or obj.key.namespace in scope.broker_namespaces:
                ingresses += _service_ingresses(obj, scope, conflicts)
                own = list(service_addresses(obj, view, conflicts))
                addresses += own
                hosts.update((claim.url.host, True) for _, claim in own)
            case _:
                continue
        conflicts += _faults(obj.key, obj.annotations)
    return ingresses, addresses, hosts


def _route_ingresses(
    route: Route, places: tuple[Attachment, ...], scope: Scope, conflicts: list[Conflict]
) -> Iterator[KeyedIngress]:
    """The ingresses of a route with its own listener; otherwise the gateway is the ingress."""
    carried = [
        (at.own_listener, host)
        for at in places
        if at.own_listener
        for host in at.hosts
        if host != ANY or at.tells_hosts
    ]
    if known := {at.section.name for at in places if at.section is not None} - {""}:
        conflicts += _unknown_sections(route.key, route.annotations, known)
    return _ingresses(route.key, route.annotations, carried, scope, conflicts)


def _gateway_ingresses(gateway: Gateway, scope: Scope, conflicts: list[Conflict]) -> Iterator[KeyedIngress]:
    """The ingresses of a gateway of ours, by the listeners of its sections."""
    carried = [
        (listener, host)
        for section in gateway.sections
        if section.takes and (listener := gateway.annotations.listener(section.name)) is not None
        for _, host in section.hosts
        if host != ANY or section.tells_hosts
    ]
    conflicts += _unknown_sections(gateway.key, gateway.annotations, {section.name for section in gateway.sections})
    return _ingresses(gateway.key, gateway.annotations, carried, scope, conflicts)


def _service_ingresses(service: Service, scope: Scope, conflicts: list[Conflict]) -> Iterator[KeyedIngress]:
    """The ingress of a Service that exposes our gateway, with its external names."""
    listener = service.annotations.listener("")
    if listener is None or not service.is_outside or not scope.is_ingress(service):
        return iter(())
    named = [url.host for url in service.annotations.external_urls if "{" not in url.host]
    hosts = named or service.annotations.hosts or service.addresses
    return _ingresses(service.key, service.annotations, [(listener, host) for host in hosts], scope, conflicts)


def _ingresses(
    key: Key, annotations: Annotations, carried: Iterable[tuple[str, str]], scope: Scope, conflicts: list[Conflict]
) -> Iterator[KeyedIngress]:
    """One ingress for each listener, of these listeners and hosts."""
    hosts: dict[str, dict[str, None]] = {}
    for listener, host in carried:
        if host == ANY and not scope.trusts(key.namespace):
            continue  # only trusted namespaces may claim every host
        allowed = list(scope.allowed(host))
        if allowed:
            hosts.setdefault(listener, {}).update(dict.fromkeys(allowed))
        else:
            text = f"has host {host}, which is not under kubernetes.allowedHostSuffixes: left out"
            conflicts.append(Conflict(str(key), text))
    for listener, own in hosts.items():
        limits = (annotations.allowed_listeners, annotations.expose)
        yield key, Ingress(str(key), tuple(own), listener, *limits, annotations.lookup_properties)


def _unknown_sections(key: Key, annotations: Annotations, known: set[str]) -> Iterator[Conflict]:
    for name in annotations.listeners:
        if name and name not in known:
            there = f"there are {', '.join(sorted(known))}" if known else "it has none"
            yield Conflict(str(key), f"{LISTENER}: there is no section '{name}'; {there}")


def _resolve_hosts(ingresses: Iterable[KeyedIngress], scope: Scope, conflicts: list[Conflict]) -> list[KeyedIngress]:
    """Resolve conflicts, so that no host has two listeners.

    Trusted namespaces take precedence over others, routes over gateways, and these over ListenerSets. If equals
    disagree, none gets the host.
    """
    ranked = sorted(
        ((_rank(key, scope), key, ingress) for key, ingress in ingresses),
        key=lambda one: (one[0], one[1], one[2].listener),
    )
    claims: dict[str, list[tuple[tuple[bool, int], Ingress]]] = {}
    for rank, _, ingress in ranked:
        for host in ingress.hosts:
            claims.setdefault(host, []).append((rank, ingress))
    owners: dict[str, str | None] = {}
    for host, claimed in claims.items():
        best = {ingress.listener: ingress for rank, ingress in reversed(claimed) if rank == claimed[0][0]}
        owners[host] = claimed[0][1].listener if len(best) == 1 else None
        if len(best) > 1:
            said = " and ".join(f"{best[name].name} ({name})" for name in sorted(best))
            subject = "every host" if host == ANY else host
            conflicts.append(Conflict(subject, f"is of {said}: used for neither"))
    resolved = []
    for _, key, ingress in ranked:
        hosts = tuple(host for host in ingress.hosts if owners[host] == ingress.listener)
        if hosts:
            resolved.append((key, replace(ingress, hosts=hosts)))
    return resolved


_RANKS = {"Gateway": 1, "IstioGateway": 1, "ListenerSet": 2}


def _rank(key: Key, scope: Scope) -> tuple[bool, int]:
    return not scope.trusts(key.namespace), _RANKS.get(key.kind, 0)


def _faults(key: Key, annotations: Annotations) -> Iterator[Conflict]:
    for fault in annotations.faults:
        yield Conflict(str(key), fault)
    if key.kind in ("Ingress", "Service") and any(annotations.listeners) and not annotations.listener(""):
        yield Conflict(str(key), f"{LISTENER}: this kind has no sections: write the name of a listener alone")


def _listener_of(config: Config, found: list[Ingress]) -> Callable[[str], str | None]:
    """Returns the listener of a host by its ingress; ingresses of the config come first."""
    written = [Ingress(one.name, one.hosts, one.listener) for one in config.ingresses]
    both = (Ingresses(written), Ingresses(found))

    def listener(host: str) -> str | None:
        ingresses = (ingresses.by_host(host) or ingresses.everywhere for ingresses in both)
        return next((ingress.listener for ingress in ingresses if ingress is not None), None)

    return listener


def _internal(config: Config, broker: BrokerPod, view: ClusterView) -> Iterator[Claim]:
    """A broker's internal addresses: the ports behind the config's URLs, else the ports of its pod."""
    known = view.known_ports(broker) or {
        number: scheme
        for name, number in broker.ports
        for scheme in schemes_of(ServicePort(number, number, name), (), {})
    }
    for number, scheme in known.items():
        url = ServiceUrl(scheme, broker.names[0], str(number))
        yield Claim(config.internal_listener_name, url, "derived", str(broker.by))


def _why_not_attached(found: ListenerSet, view: ClusterView) -> str:
    gateway = view.gateway(found.gateway)
    if gateway is None:
        return f"its gateway {found.gateway} is not visible, so it may not allow it: left out"
    if found.accepted is False:
        return f"is not accepted by {gateway.key}, as its status says: left out"
    if gateway.allowed_listeners == "Selector":
        return f"is not accepted by {gateway.key} yet, whose allowedListeners has a selector: left out"
    return f"is not allowed by {gateway.key}, whose allowedListeners is '{gateway.allowed_listeners}': left out"


def _why_no_brokers(view: ClusterView) -> str:
    scope = view.scope
    if scope.broker_selector is not None:
        where = ", ".join(sorted(scope.broker_namespaces))
        return f"no pod in {where} has the labels of kubernetes.brokerSelector"
    if not scope.pools:
        text = "no URL of the config names a Service of this cluster"
        return f"{text}: say which pods are brokers by kubernetes.brokerSelector"
    service = scope.pools[0].service
    if service.namespace not in scope.namespaces:
        return f"namespace {service.namespace} of {service} is not watched: add it to kubernetes.namespaces"
    is_there = view.service(service) is not None
    return f"{service} {'leads to no pod' if is_there else 'is not there'}: no broker is found"
