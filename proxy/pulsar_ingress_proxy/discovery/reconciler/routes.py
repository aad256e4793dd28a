"""Derives brokers' addresses from routes: if a rule leads to one broker, its host is that broker's address. Pure.

The host comes from the route, scheme and port from the gateway. `external-url` overrides them. Ambiguous routes are
reported as conflicts and give no address.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from pulsar_ingress_proxy.discovery.reconciler.annotations import EXTERNAL_URL, Annotations
from pulsar_ingress_proxy.discovery.reconciler.attachment import Attachment
from pulsar_ingress_proxy.discovery.reconciler.objects import Backend, Key, Route, Rule, Section, Service, ServicePort
from pulsar_ingress_proxy.discovery.reconciler.scope import Scope
from pulsar_ingress_proxy.discovery.reconciler.view import BrokerPod, ClusterView, schemes_of
from pulsar_ingress_proxy.routing.discovered import Conflict, Source
from pulsar_ingress_proxy.routing.precedence import Claim
from pulsar_ingress_proxy.syntax.hosts import is_wild, meet
from pulsar_ingress_proxy.syntax.listeners import BINARY_SCHEMES, DEFAULT_PORTS, ServiceUrl, kind_of

KeyedClaim = tuple[Key, Claim]
"""An address of a broker; its listener is empty if it is that of the host's ingress. It is weak if it is the pool's
Service, which leads to one broker only while there is one."""


class _Unclear(Exception):
    """Why an object gives no address."""


@dataclass(frozen=True, slots=True)
class _Lead:
    """The one broker that a host leads to, and its Service and port."""

    broker: BrokerPod
    service: Service
    port: ServicePort

    def __str__(self) -> str:
        return f"port {self.port.port} of {self.service.key}"


def route_addresses(
    route: Route, places: Iterable[Attachment], view: ClusterView, conflicts: list[Conflict]
) -> Iterator[KeyedClaim]:
    if not view.scope.trusts(route.key.namespace):
        return
    for at in places:
        for host, rules in _by_host(at).items():
            try:
                lead = _lead(host, rules, view)
                if lead is not None:
                    weak = lead.service.key in view.scope.pool_services
                    for url, source in tuple(_route_urls(at, host, lead, view)):
                        allowed = _allowed(url, view.scope)
                        yield lead.broker.key, Claim(at.listener or "", allowed, source, str(route.key), weak)
            except _Unclear as why:
                conflicts.append(Conflict(str(route.key), str(why)))


def service_addresses(service: Service, view: ClusterView, conflicts: list[Conflict]) -> Iterator[KeyedClaim]:
    """The addresses of a broker by its external Service."""
    scope, annotations, listener = view.scope, service.annotations, service.annotations.listener("")
    if listener is None or not service.is_outside or service.key.namespace not in scope.broker_namespaces:
        return
    brokers = view.brokers_behind(service.key)
    if len(brokers) != 1 or annotations.is_wrong(EXTERNAL_URL):
        return
    (broker,) = brokers
    weak = service.key in scope.pool_services
    try:
        for url, source in _service_urls(service, broker, view):
            yield broker.key, Claim(listener, _allowed(url, scope), source, str(service.key), weak)
    except _Unclear as why:
        conflicts.append(Conflict(str(service.key), str(why)))


def routed_hosts(places: Iterable[Attachment]) -> Iterator[tuple[str, bool]]:
    """The hosts that have backends, and whether connections carry the host."""
    for at in places:
        for host, rules in _by_host(at).items():
            if any(rule.backends for rule in rules):
                yield host, at.tells_hosts


def _by_host(at: Attachment) -> dict[str, list[Rule]]:
    found: dict[str, list[Rule]] = {}
    for rule in at.route.rules:
        if at.section is not None and (
            rule.carries not in at.section.takes or rule.port not in (None, at.section.port)
        ):
            continue
        if rule.gateways is not None and at.key not in rule.gateways:
            continue
        for host in meet(rule.hosts, at.hosts) if rule.hosts else at.hosts:
            found.setdefault(host, []).append(rule)
    return found


def _lead(host: str, rules: Iterable[Rule], view: ClusterView) -> _Lead | None:
    """The one broker behind a host; None if there is none, or for the pool's host."""
    leads: dict[Key, tuple[BrokerPod, Key, Backend]] = {}
    is_whole, has_others, crowd = False, False, ""
    for rule in rules:
        for backend in rule.backends:
            key = backend.service
            brokers = view.brokers_behind(key) if key is not None else ()
            if key is not None and len(brokers) == 1:
                leads.setdefault(brokers[0].key, (brokers[0], key, backend))
                is_whole = is_whole or rule.whole
                continue
            has_others = True
            if brokers and key not in view.scope.pool_services:
                crowd = f"{host} leads to {key}, which leads to several brokers: not used as an address"
    if len(leads) > 1:
        names = ", ".join(sorted(broker.names[0] for broker, _, _ in leads.values()))
        raise _Unclear(f"{host} leads to {len(leads)} brokers ({names}): not used as an address")
    if not leads and crowd:
        raise _Unclear(crowd)
    if not leads or (has_others and not is_whole):
        return None
    ((broker, key, backend),) = leads.values()
    service = view.service(key)
    port = _service_port(service, backend) if service is not None else None
    if service is None or port is None:
        raise _Unclear(f"{host} leads to port {backend.port} of {key}, which it does not have")
    return _Lead(broker, service, port)


def _service_port(service: Service, backend: Backend) -> ServicePort | None:
    if backend.port is None:
        return service.ports[0] if len(service.ports) == 1 else None
    return next((port for port in service.ports if backend.port in (port.port, port.name)), None)


def _route_urls(at: Attachment, host: str, lead: _Lead, view: ClusterView) -> Iterator[tuple[ServiceUrl, Source]]:
    schemes = schemes_of(lead.port, lead.broker.ports, view.known_ports(lead.broker))
    kinds = {kind_of(scheme) for scheme in schemes}
    annotations = _speaking(at, view.scope)
    if annotations.is_wrong(EXTERNAL_URL):
        return
    written = [url for url in annotations.external_urls if kinds == {kind_of(url.scheme)}]
    if not written and len(kinds) != 1 and len(annotations.external_urls) == 1:
        written = [*annotations.external_urls]
    for url in written:
        yield _filled(url, lambda: _host(at, host, view)), "annotation"
    if not written:
        yield _derived_url(at, host, lead, schemes, view), "derived"


def _speaking(at: Attachment, scope: Scope) -> Annotations:
    """The annotations whose external-url applies: the route's, else those of its gateways in trusted namespaces."""
    own, gateway = at.route.annotations, at.gateway
    outer = (gateway, gateway.parent) if gateway is not None else ()
    trusted = [one.annotations for one in outer if one is not None and scope.trusts(one.key.namespace)]
    return next((one for one in (own, *trusted) if one.external_urls or one.is_wrong(EXTERNAL_URL)), own)


def _derived_url(at: Attachment, host: str, lead: _Lead, schemes: frozenset[str], view: ClusterView) -> ServiceUrl:
    if at.section is None:
        raise _Unclear(f"its gateway {at.key} is not visible, so scheme and port of {host} are not known")
    kinds = {kind_of(scheme) for scheme in schemes}
    choice = " or ".join(sorted(schemes))
    if len(kinds) != 1:
        what = f"may be {choice}" if kinds else "is neither known as web nor as binary"
        raise _Unclear(f"{lead} {what}: annotate the route with {EXTERNAL_URL}")
    ((plain, with_tls),) = kinds
    if "http" in at.section.takes and plain in BINARY_SCHEMES:
        raise _Unclear(f"{host} is for HTTP, and {lead} is binary")
    if at.section.tls is not None:
        scheme = with_tls if at.section.tls else plain
    elif len(schemes) > 1:
        raise _Unclear(f"{lead} may be {choice}")
    else:
        (scheme,) = schemes
    return _url(scheme, _host(at, host, view), _outer_port(at, at.section, view))


def _host(at: Attachment, host: str, view: ClusterView) -> str:
    """The route's host, or for TCP the single name or address of its gateway."""
    if not is_wild(host):
        return host
    if at.section is None or "tcp" not in at.section.takes:
        raise _Unclear(f"its host {host} is a wildcard, which cannot be an address")
    names, gateway = at.route.annotations.hosts, at.gateway
    if gateway is not None and not names:
        services = view.services_before(gateway)
        names = (
            gateway.annotations.hosts or gateway.addresses or tuple(one for each in services for one in each.addresses)
        )
    return _only_host(names)


def _only_host(names: tuple[str, ...]) -> str:
    if len(names) != 1:
        choice = f" ({' or '.join(names)})" if names else ""
        raise _Unclear(f"its external host is not known{choice}: annotate it with {EXTERNAL_URL}")
    return names[0]


def _outer_port(at: Attachment, section: Section, view: ClusterView) -> int:
    """The port that clients connect to.

    For Istio, a server's number is a port of the gateway's Service, or else a target port (pilot/pkg/model/gateway.go,
    resolvePorts).
    """
    services = view.services_before(at.gateway)
    if not services:
        return section.port
    ports = [(service, port) for service in services for port in service.ports]
    found = {service.outer_port(port) for service, port in ports if port.port == section.port} or {
        service.outer_port(port) for service, port in ports if port.target == section.port
    }
    if len(found) != 1:
        names = ", ".join(str(service.key) for service in services)
        leading = (
            f"ports {', '.join(map(str, sorted(found)))} of {names} lead" if found else f"no port of {names} leads"
        )
        raise _Unclear(f"{leading} to port {section.port} of {at.key}: annotate it with {EXTERNAL_URL}")
    return found.pop()


def _service_urls(service: Service, broker: BrokerPod, view: ClusterView) -> Iterator[tuple[ServiceUrl, Source]]:
    hosts = service.annotations.hosts or service.addresses
    written = service.annotations.external_urls
    for url in written:
        yield _filled(url, lambda: _only_host(hosts)), "annotation"
    known = view.known_ports(broker)
    found = [(port, schemes_of(port, broker.ports, known)) for port in service.ports]
    if not written and not any(schemes for _, schemes in found):
        raise _Unclear(f"its ports cannot be told apart as web or binary: annotate it with {EXTERNAL_URL}")
    written_kinds = {kind_of(url.scheme) for url in written}
    for port, schemes in found:
        if not schemes or not written_kinds.isdisjoint(map(kind_of, schemes)):
            continue
        if len(schemes) > 1:
            choice = " or ".join(sorted(schemes))
            raise _Unclear(f"its port {port.port} may be {choice}: annotate it with {EXTERNAL_URL}")
        (scheme,) = schemes
        yield _url(scheme, _only_host(hosts), service.outer_port(port)), "derived"


def _filled(url: ServiceUrl, host: Callable[[], str]) -> ServiceUrl:
    """An annotated URL with the host in place of `{host}`."""
    return replace(url, host=url.host.replace("{host}", host())) if "{" in url.host else url


def _allowed(url: ServiceUrl, scope: Scope) -> ServiceUrl:
    if list(scope.allowed(url.host)) != [url.host]:
        raise _Unclear(f"{url} is not under kubernetes.allowedHostSuffixes: left out")
    return url


def _url(scheme: str, host: str, port: int) -> ServiceUrl:
    shows_port = scheme in BINARY_SCHEMES or port != DEFAULT_PORTS[scheme]
    return ServiceUrl(scheme, host, str(port), shows_port)
