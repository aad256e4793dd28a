"""How routes are attached to gateways: sections, hosts and listeners. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from pulsar_ingress_proxy.discovery.reconciler.objects import Carries, Gateway, Key, Route, Section
from pulsar_ingress_proxy.discovery.reconciler.view import ClusterView
from pulsar_ingress_proxy.syntax.hosts import ANY, covers, meet


@dataclass(frozen=True, slots=True)
class Attachment:
    """The attachment of a route to a section of one of our gateways. An Ingress is its own gateway."""

    route: Route
    hosts: tuple[str, ...]
    key: Key
    """The gateway's."""
    section: Section | None
    """None if the gateway is listed in the config but not visible."""
    gateway: Gateway | None = None

    @property
    def own_listener(self) -> str | None:
        return self.route.annotations.listener(self.section.name if self.section is not None else "")

    @property
    def listener(self) -> str | None:
        """The route's own listener, else that of its gateway."""
        if self.own_listener or self.gateway is None or self.section is None:
            return self.own_listener
        return self.gateway.annotations.listener(self.section.name)

    @property
    def tells_hosts(self) -> bool:
        return self.section is None or self.section.tells_hosts


def attachments(route: Route, view: ClusterView) -> Iterator[Attachment]:
    if route.key.kind == "Ingress":
        if view.scope.has_class(route):
            yield from _ingress_sections(route)
        return
    for parent in route.parents:
        gateway = view.gateway(parent.gateway)
        if parent.refused or not view.scope.is_attached(route, parent.gateway, gateway):
            continue
        if gateway is None and parent.gateway in view.objects:
            continue  # a ListenerSet that its Gateway does not allow
        if gateway is None:
            yield Attachment(route, route.hosts or (ANY,), parent.gateway, None)
            continue
        for section in gateway.sections:
            if parent.section in (None, section.name) and parent.port in (None, section.port):
                offered = [host for namespace, host in section.hosts if namespace in (ANY, route.key.namespace)]
                hosts = meet(route.hosts or (ANY,), offered)
                if hosts and any(rule.carries in section.takes for rule in route.rules):
                    yield Attachment(route, hosts, parent.gateway, section, gateway)


def _ingress_sections(ingress: Route) -> Iterator[Attachment]:
    """The sections of an Ingress: hosts with TLS on port 443, others on port 80, as is the convention."""
    passes_tls = ingress.annotations.passes_tls
    takes: frozenset[Carries] = frozenset(["tls" if passes_tls else "http"])
    for port, tls in ((443, True), (80, False)):
        hosts = tuple(
            host for host in ingress.hosts if tls is (passes_tls or any(covers(one, host) for one in ingress.tls_hosts))
        )
        if hosts:
            section = Section("", port, takes, tls, tuple((ANY, host) for host in hosts))
            yield Attachment(ingress, hosts, ingress.key, section)
