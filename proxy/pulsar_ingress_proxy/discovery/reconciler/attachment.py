"""How routes are attached to gateways: sections, hosts and listeners. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from pulsar_ingress_proxy.discovery.reconciler.brokers import BrokerPod
from pulsar_ingress_proxy.discovery.reconciler.objects import Carries, Gateway, Key, Route, Section, Service
from pulsar_ingress_proxy.discovery.reconciler.scope import Scope
from pulsar_ingress_proxy.syntax.hosts import ANY, covers, meet


class ClusterView(Protocol):
    """The other objects that a derivation may look up."""

    @property
    def scope(self) -> Scope: ...

    def gateway(self, key: Key) -> Gateway | None: ...

    def service(self, key: Key) -> Service | None: ...

    def brokers_behind(self, service: Key) -> tuple[BrokerPod, ...]: ...

    def services_before(self, gateway: Gateway) -> tuple[Service, ...]:
        """The Services of an Istio gateway whose pod is ours."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """The attachment of a route to a section of one of our gateways. An Ingress is its own gateway."""

    hosts: tuple[str, ...]
    listener: str | None
    is_own: bool
    """Whether the listener is annotated on the route, not on its gateway."""
    section: Section | None
    """None if the gateway is listed in the config but not visible."""
    key: Key | None = None
    gateway: Gateway | None = None


def attachments(route: Route, around: ClusterView) -> Iterator[Attachment]:
    """The attachments of a route to our gateways."""
    if route.key.kind == "Ingress":
        if around.scope.has_class(route):
            yield from _ingress_sections(route)
        return
    for parent in route.parents:
        gateway = around.gateway(parent.gateway)
        if parent.refused or not around.scope.is_attached(route, parent.gateway, gateway):
            continue
        if gateway is None:
            yield _attached(route, route.hosts or (ANY,), None, parent.gateway, None)
            continue
        for section in gateway.sections:
            if parent.section in (None, section.name) and parent.port in (None, section.port):
                hosts = hosts_at(section, route)
                if hosts and any(rule.carries in section.takes for rule in route.rules):
                    yield _attached(route, hosts, section, parent.gateway, gateway)


def hosts_at(section: Section, route: Route) -> tuple[str, ...]:
    """The hosts of a route that the section allows."""
    offered = [host for namespace, host in section.hosts if namespace in (ANY, route.key.namespace)]
    return meet(route.hosts or (ANY,), offered)


def _attached(
    route: Route, hosts: tuple[str, ...], section: Section | None, key: Key, gateway: Gateway | None
) -> Attachment:
    name = section.name if section is not None else ""
    own = route.annotations.listener(name)
    inherited = gateway.annotations.listener(name) if gateway is not None else None
    return Attachment(hosts, own or inherited, own is not None, section, key, gateway)


def _ingress_sections(ingress: Route) -> Iterator[Attachment]:
    """The sections of an Ingress: hosts with TLS on port 443, others on port 80, as is the convention."""
    takes: frozenset[Carries] = frozenset(["tls" if ingress.annotations.passes_tls else "http"])
    for port in (443, 80):
        tls = port == 443
        hosts = tuple(
            host
            for host in ingress.hosts
            if tls is (ingress.annotations.passes_tls or any(covers(one, host) for one in ingress.tls_hosts))
        )
        if hosts:
            listener = ingress.annotations.listener("")
            section = Section("", port, takes, tls, tuple((ANY, host) for host in hosts))
            yield Attachment(hosts, listener, listener is not None, section)
