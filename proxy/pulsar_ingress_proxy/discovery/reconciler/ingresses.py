"""Derives ingresses from annotated objects: their hosts and listeners. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from pulsar_ingress_proxy.discovery.reconciler.annotations import LISTENER, Annotations
from pulsar_ingress_proxy.discovery.reconciler.attachment import Attachment
from pulsar_ingress_proxy.discovery.reconciler.objects import Gateway, Key, Route, Service
from pulsar_ingress_proxy.discovery.reconciler.scope import Scope
from pulsar_ingress_proxy.routing.discovered import Conflict
from pulsar_ingress_proxy.routing.ingresses import Ingress
from pulsar_ingress_proxy.syntax.hosts import ANY

KeyedIngress = tuple[Key, Ingress]


def route_ingresses(
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


def gateway_ingresses(gateway: Gateway, scope: Scope, conflicts: list[Conflict]) -> Iterator[KeyedIngress]:
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


def service_ingresses(service: Service, scope: Scope, conflicts: list[Conflict]) -> Iterator[KeyedIngress]:
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
        yield (
            key,
            Ingress(
                str(key),
                tuple(own),
                listener,
                annotations.allowed_listeners,
                annotations.expose,
                annotations.lookup_properties,
            ),
        )


def _unknown_sections(key: Key, annotations: Annotations, known: set[str]) -> Iterator[Conflict]:
    for name in annotations.listeners:
        if name and name not in known:
            there = f"there are {', '.join(sorted(known))}" if known else "it has none"
            yield Conflict(str(key), f"{LISTENER}: there is no section '{name}'; {there}")


def resolve_hosts(ingresses: Iterable[KeyedIngress], scope: Scope, conflicts: list[Conflict]) -> list[KeyedIngress]:
    """Resolve conflicts, so that no host has two listeners.

    Trusted namespaces take precedence over others, and routes over gateways. If equals disagree, none gets the host.
    """
    ranked = sorted(
        ((_rank(key, scope), key, ingress) for key, ingress in ingresses),
        key=lambda one: (one[0], one[1], one[2].listener),
    )
    claims: dict[str, list[tuple[tuple[bool, bool], Ingress]]] = {}
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


def _rank(key: Key, scope: Scope) -> tuple[bool, bool]:
    return not scope.trusts(key.namespace), key.kind in ("Gateway", "IstioGateway")
