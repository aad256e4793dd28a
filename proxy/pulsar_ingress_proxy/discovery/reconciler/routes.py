"""Derives brokers' addresses from routes: if a rule leads to one broker, its host is that broker's address. Pure.

The host comes from the route, scheme and port from the gateway. `external-url` overrides them. Ambiguous routes are
reported as conflicts and give no address.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pulsar_ingress_proxy.discovery.reconciler.annotations import EXTERNAL_URL, Annotations
from pulsar_ingress_proxy.discovery.reconciler.attachment import Attachment, ClusterView
from pulsar_ingress_proxy.discovery.reconciler.brokers import BrokerId, BrokerPod
from pulsar_ingress_proxy.discovery.reconciler.objects import (
    Backend,
    Key,
    Route,
    Rule,
    Section,
    Service,
    ServicePort,
)
from pulsar_ingress_proxy.discovery.reconciler.ports import families_of, number_of, schemes_of
from pulsar_ingress_proxy.discovery.reconciler.scope import Scope
from pulsar_ingress_proxy.routing.discovered import Conflict, Source
from pulsar_ingress_proxy.syntax.hosts import is_wild, meet
from pulsar_ingress_proxy.syntax.listeners import BINARY_SCHEMES, DEFAULT_PORTS, ServiceUrl


@dataclass(frozen=True, slots=True)
class Address:
    """An address of a broker, by one object."""

    broker: BrokerId
    listener: str | None
    """None: the listener of the host's ingress."""
    url: ServiceUrl
    source: Source
    by: Key
    weak: bool = False
    """Whether it is the pool's Service, which leads to one broker only while there is one."""


class _Unclear(Exception):
    """Why an object gives no address."""


@dataclass(frozen=True, slots=True)
class _Lead:
    """The one broker that a host leads to, and its Service and port."""

    broker: BrokerPod
    service: Service
    port: ServicePort


def route_addresses(route: Route, places: Iterable[Attachment], around: ClusterView) -> Iterator[Address | Conflict]:
    """The addresses of brokers by a route."""
    if not around.scope.trusts(route.key.namespace):
        return
    for at in places:
        for host, rules in _by_host(route, at).items():
            try:
                lead = _lead(host, rules, around)
                if lead is not None:
                    yield from _addresses(route, at, host, lead, around)
            except _Unclear as why:
                yield Conflict(str(route.key), str(why))


def service_addresses(service: Service, around: ClusterView) -> Iterator[Address | Conflict]:
    """The addresses of a broker by its external Service."""
    scope, annotations, listener = around.scope, service.annotations, service.annotations.listener("")
    if listener is None or not service.is_outside or service.key.namespace not in scope.broker_namespaces:
        return
    brokers = around.brokers_behind(service.key)
    if len(brokers) != 1 or annotations.is_wrong(EXTERNAL_URL):
        return
    (broker,) = brokers
    hosts = annotations.hosts or service.addresses
    try:
        for url, source in _service_urls(service, broker, hosts, around):
            weak = _is_pool(service.key, scope)
            yield Address(broker.id, listener, _checked(url, scope), source, service.key, weak)
    except _Unclear as why:
        yield Conflict(str(service.key), str(why))


def routed_hosts(route: Route, places: Iterable[Attachment]) -> Iterator[tuple[str, bool]]:
    """The hosts that have backends, and whether connections carry the host."""
    for at in places:
        for host, rules in _by_host(route, at).items():
            if any(rule.backends for rule in rules):
                yield host, at.section is None or at.section.tells_hosts


def _by_host(route: Route, at: Attachment) -> dict[str, list[Rule]]:
    found: dict[str, list[Rule]] = {}
    for rule in route.rules:
        if at.section is not None and (
            rule.carries not in at.section.takes or rule.port not in (None, at.section.port)
        ):
            continue
        if rule.gateways is not None and at.key not in rule.gateways:
            continue
        for host in meet(rule.hosts, at.hosts) if rule.hosts else at.hosts:
            found.setdefault(host, []).append(rule)
    return found


def _lead(host: str, rules: Iterable[Rule], around: ClusterView) -> _Lead | None:
    """The one broker behind a host; None if there is none, or for the pool's host."""
    leads: dict[BrokerId, tuple[BrokerPod, Backend]] = {}
    is_whole, has_others, crowd = False, False, ""
    for rule in rules:
        for backend in rule.backends:
            brokers = around.brokers_behind(backend.service) if backend.service is not None else ()
            if len(brokers) == 1:
                leads.setdefault(brokers[0].id, (brokers[0], backend))
                is_whole = is_whole or rule.whole
            else:
                has_others = True
            if len(brokers) > 1 and backend.service is not None and not _is_pool(backend.service, around.scope):
                crowd = f"{host} leads to {backend.service}, which leads to several brokers: not used as an address"
    if len(leads) > 1:
        names = ", ".join(sorted(broker.names[0] for broker, _ in leads.values()))
        raise _Unclear(f"{host} leads to {len(leads)} brokers ({names}): not used as an address")
    if not leads:
        if crowd:
            raise _Unclear(crowd)
        return None
    if has_others and not is_whole:
        return None
    ((broker, backend),) = leads.values()
    assert backend.service is not None
    service = around.service(backend.service)
    port = _service_port(service, backend) if service is not None else None
    if service is None or port is None:
        raise _Unclear(f"{host} leads to port {backend.port} of {backend.service}, which it does not have")
    return _Lead(broker, service, port)


def _addresses(route: Route, at: Attachment, host: str, lead: _Lead, around: ClusterView) -> Iterator[Address]:
    scope = around.scope
    schemes = schemes_of(lead.port, lead.broker.ports, known_ports(lead.broker, around))
    families = families_of(schemes)
    annotations = _speaking(route.annotations, at, scope)
    if annotations.is_wrong(EXTERNAL_URL):
        return
    written = [url for url in annotations.external_urls if families == {_family(url.scheme)}]
    if not written and len(families) != 1:
        written = list(annotations.external_urls) if len(annotations.external_urls) == 1 else []
    if not written:
        urls: list[tuple[ServiceUrl, Source]] = [(_derived_url(route, at, host, lead, schemes, around), "derived")]
    else:
        urls = [(_written_url(url, route, at, host, around), "annotation") for url in written]
    weak = _is_pool(lead.service.key, scope)
    for url, source in urls:
        yield Address(lead.broker.id, at.listener, _checked(url, scope), source, route.key, weak)


def _speaking(annotations: Annotations, at: Attachment, scope: Scope) -> Annotations:
    """The annotations whose external-url applies: the route's, else the gateway's if its namespace is trusted."""
    gateway = at.gateway
    if annotations.external_urls or annotations.is_wrong(EXTERNAL_URL) or gateway is None:
        return annotations
    return gateway.annotations if scope.trusts(gateway.key.namespace) else annotations


def _derived_url(
    route: Route, at: Attachment, host: str, lead: _Lead, schemes: frozenset[str], around: ClusterView
) -> ServiceUrl:
    if at.section is None:
        raise _Unclear(f"its gateway {at.key} is not visible, so scheme and port of {host} are not known")
    plain, with_tls = _only_family(lead, schemes)
    if "http" in at.section.takes and plain in BINARY_SCHEMES:
        raise _Unclear(f"{host} is for HTTP, and port {lead.port.port} of {lead.service.key} is binary")
    if at.section.tls is None:
        if len(schemes) > 1:
            raise _Unclear(f"port {lead.port.port} of {lead.service.key} may be {' or '.join(sorted(schemes))}")
        (scheme,) = schemes
    else:
        scheme = with_tls if at.section.tls else plain
    return _url(scheme, _host(route, at, host, around), _outer_port(at, at.section, around))


def _written_url(url: ServiceUrl, route: Route, at: Attachment, host: str, around: ClusterView) -> ServiceUrl:
    if "{" not in url.host:
        return url
    return ServiceUrl(url.scheme, url.host.replace("{host}", _host(route, at, host, around)), url.port, url.shows_port)


def _host(route: Route, at: Attachment, host: str, around: ClusterView) -> str:
    """The route's host, or for TCP the single name or address of its gateway."""
    if not is_wild(host):
        return host
    if at.section is None or "tcp" not in at.section.takes:
        raise _Unclear(f"its host {host} is a wildcard, which cannot be an address")
    gateway = at.gateway
    names = route.annotations.hosts
    if gateway is not None and not names:
        services = around.services_before(gateway) if gateway.selector is not None else ()
        names = (
            gateway.annotations.hosts or gateway.addresses or tuple(one for each in services for one in each.addresses)
        )
    if len(names) != 1:
        raise _Unclear(f"its external host is not known{_choice(names)}: annotate it with {EXTERNAL_URL}")
    return names[0]


def _outer_port(at: Attachment, section: Section, around: ClusterView) -> int:
    """The port that clients connect to.

    For Istio, a server's number is a port of the gateway's Service, or else a target port (pilot/pkg/model/gateway.go,
    resolvePorts).
    """
    gateway = at.gateway
    services = around.services_before(gateway) if gateway is not None and gateway.selector is not None else ()
    if not services:
        return section.port
    found = {
        service.outer_port(port) for service in services for port in service.ports if port.port == section.port
    } or {service.outer_port(port) for service in services for port in service.ports if port.target == section.port}
    if len(found) != 1:
        names = ", ".join(str(service.key) for service in services)
        leading = (
            f"ports {', '.join(map(str, sorted(found)))} of {names} lead" if found else f"no port of {names} leads"
        )
        raise _Unclear(f"{leading} to port {section.port} of {at.key}: annotate it with {EXTERNAL_URL}")
    return found.pop()


def _service_urls(
    service: Service, broker: BrokerPod, hosts: tuple[str, ...], around: ClusterView
) -> Iterator[tuple[ServiceUrl, Source]]:
    def host() -> str:
        if len(hosts) != 1:
            raise _Unclear(f"its external host is not known{_choice(hosts)}: annotate it with {EXTERNAL_URL}")
        return hosts[0]

    written = service.annotations.external_urls
    for url in written:
        filled = url.host.replace("{host}", host()) if "{" in url.host else url.host
        yield ServiceUrl(url.scheme, filled, url.port, url.shows_port), "annotation"
    known = known_ports(broker, around)
    found = [(port, schemes_of(port, broker.ports, known)) for port in service.ports]
    if not written and not any(schemes for _, schemes in found):
        raise _Unclear(f"its ports cannot be told apart as web or binary: annotate it with {EXTERNAL_URL}")
    for port, schemes in found:
        if not schemes or any(_family(url.scheme) in families_of(schemes) for url in written):
            continue
        if len(schemes) > 1:
            raise _Unclear(
                f"its port {port.port} may be {' or '.join(sorted(schemes))}: annotate it with {EXTERNAL_URL}"
            )
        (scheme,) = schemes
        yield _url(scheme, host(), service.outer_port(port)), "derived"


def known_ports(broker: BrokerPod, around: ClusterView) -> dict[int, str]:
    """The schemes of the broker's ports that the config's URLs lead to."""
    known: dict[int, str] = {}
    for pool in around.scope.pools:
        service = around.service(pool.service)
        for port in service.ports if service is not None else ():
            if str(port.port) == pool.url.port and (number := number_of(port, broker.ports)) is not None:
                known.setdefault(number, pool.url.scheme)
    return known


def _service_port(service: Service, backend: Backend) -> ServicePort | None:
    if backend.port is None:
        return service.ports[0] if len(service.ports) == 1 else None
    return next((port for port in service.ports if backend.port in (port.port, port.name)), None)


def _only_family(lead: _Lead, schemes: frozenset[str]) -> tuple[str, str]:
    families = families_of(schemes)
    if len(families) != 1:
        what = f"may be {' or '.join(sorted(schemes))}" if families else "is neither known as web nor as binary"
        raise _Unclear(f"port {lead.port.port} of {lead.service.key} {what}: annotate the route with {EXTERNAL_URL}")
    (family,) = families
    return family


def _checked(url: ServiceUrl, scope: Scope) -> ServiceUrl:
    if list(scope.allowed(url.host)) != [url.host]:
        raise _Unclear(f"{url} is not under kubernetes.allowedHostSuffixes: left out")
    return url


def _url(scheme: str, host: str, port: int) -> ServiceUrl:
    shows_port = scheme in BINARY_SCHEMES or port != DEFAULT_PORTS[scheme]
    return ServiceUrl(scheme, host, str(port), shows_port)


def _family(scheme: str) -> tuple[str, str]:
    (family,) = families_of(frozenset([scheme]))
    return family


def _is_pool(service: Key, scope: Scope) -> bool:
    return any(pool.service == service for pool in scope.pools)


def _choice(hosts: tuple[str, ...]) -> str:
    return f" ({' or '.join(hosts)})" if hosts else ""
