"""Derives ingresses from annotated objects: their hosts and listeners. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from pulsar_ingress_proxy.discovery.reconciler.annotations import LISTENER, Annotations
from pulsar_ingress_proxy.discovery.reconciler.attachment import Attachment
from pulsar_ingress_proxy.discovery.reconciler.objects import Gateway, Key, Route, Service
from pulsar_ingress_proxy.discovery.reconciler.scope import Scope
from pulsar_ingress_proxy.routing.discovered import Conflict
from pulsar_ingress_proxy.routing.ingresses import Ingress
from pulsar_ingress_proxy.syntax.hosts import ANY

Carried = Iterable[tuple[str, str]]
"""Listeners and hosts."""


def route_ingresses(route: Route, places: Iterable[Attachment], scope: Scope) -> Iterator[Ingress | Conflict]:
    """The ingresses of a route with its own listener; otherwise the gateway is the ingress."""
    places = tuple(places)
    carried = [
        (at.listener, host)
        for at in places
        if at.is_own and at.listener
        for host in at.hosts
        if host != ANY or at.section is None or at.section.tells_hosts
    ]
    yield from _ingresses(route.key, route.annotations, carried, scope)
    if known := {at.section.name for at in places if at.section is not None} - {""}:
        yield from _unknown_sections(route.key, route.annotations, known)


def gateway_ingresses(gateway: Gateway, scope: Scope) -> Iterator[Ingress | Conflict]:
    """The ingresses of a gateway, by the listeners of its sections."""
    if not scope.is_beside(gateway):
        return
    carried = [
        (listener, host)
        for section in gateway.sections
        if section.takes and (listener := gateway.annotations.listener(section.name)) is not None
        for _, host in section.hosts
        if host != ANY or section.tells_hosts
    ]
    yield from _ingresses(gateway.key, gateway.annotations, carried, scope)
    yield from _unknown_sections(gateway.key, gateway.annotations, {section.name for section in gateway.sections})


def service_ingresses(service: Service, scope: Scope) -> Iterator[Ingress | Conflict]:
    """The ingress of a Service that exposes our gateway, with its external names."""
    listener = service.annotations.listener("")
    if listener is None or not service.is_outside or not scope.is_ingress(service):
        return
    named = [url.host for url in service.annotations.external_urls if "{" not in url.host]
    hosts = named or service.annotations.hosts or service.addresses
    yield from _ingresses(service.key, service.annotations, [(listener, host) for host in hosts], scope)


def _ingresses(key: Key, annotations: Annotations, carried: Carried, scope: Scope) -> Iterator[Ingress | Conflict]:
    hosts: dict[str, list[str]] = {}
    for listener, host in dict.fromkeys(carried):
        if host == ANY and not scope.trusts(key.namespace):
            continue  # only trusted namespaces may claim every host
        allowed = list(scope.allowed(host))
        hosts.setdefault(listener, []).extend(allowed)
        if not allowed:
            yield Conflict(str(key), f"has host {host}, which is not under kubernetes.allowedHostSuffixes: left out")
    for listener, own in hosts.items():
        if own:
            unique = tuple(dict.fromkeys(own))
            yield Ingress(
                str(key),
                unique,
                listener,
                annotations.allowed_listeners,
                annotations.expose,
                annotations.lookup_properties,
            )


def _unknown_sections(key: Key, annotations: Annotations, known: set[str]) -> Iterator[Conflict]:
    for name in annotations.listeners:
        if name and name not in known:
            there = f"there are {', '.join(sorted(known))}" if known else "it has none"
            yield Conflict(str(key), f"{LISTENER}: there is no section '{name}'; {there}")


def resolve_hosts(
    ingresses: Mapping[Key, Iterable[Ingress]], scope: Scope
) -> tuple[list[tuple[Key, Ingress]], list[Conflict]]:
    """Resolve conflicts, so that no host has two listeners.

    Trusted namespaces take precedence over others, and routes over gateways. If equals disagree, none gets the host.
    """
    ranked = sorted(
        ((_rank(key, scope), key, ingress) for key, own in ingresses.items() for ingress in own),
        key=lambda one: (one[0], one[1], one[2].listener),
    )
    claims: dict[str, list[tuple[tuple[bool, bool], Ingress]]] = {}
    for rank, _, ingress in ranked:
        for host in ingress.hosts:
            claims.setdefault(host, []).append((rank, ingress))
    owners: dict[str, str | None] = {}
    conflicts: list[Conflict] = []
    for host, claimed in claims.items():
        best = {ingress.listener: ingress for rank, ingress in reversed(claimed) if rank == claimed[0][0]}
        owners[host] = claimed[0][1].listener if len(best) == 1 else None
        if len(best) > 1:
            said = " and ".join(f"{best[name].name} ({name})" for name in sorted(best))
            host_ = "every host" if host == ANY else host
            conflicts.append(Conflict(host_, f"is of {said}: used for neither"))
    resolved = []
    for _, key, ingress in ranked:
        hosts = tuple(host for host in ingress.hosts if owners[host] == ingress.listener)
        if hosts:
            resolved.append((key, ingress if hosts == ingress.hosts else replace(ingress, hosts=hosts)))
    return resolved, conflicts


def _rank(key: Key, scope: Scope) -> tuple[bool, bool]:
    return not scope.trusts(key.namespace), key.kind in ("Gateway", "IstioGateway")
