"""Derives ingresses, addresses and conflicts from one object and those it refers to. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from pulsar_ingress_proxy.discovery.reconciler.annotations import LISTENER, Annotations
from pulsar_ingress_proxy.discovery.reconciler.attachment import ClusterView, attachments
from pulsar_ingress_proxy.discovery.reconciler.ingresses import gateway_ingresses, route_ingresses, service_ingresses
from pulsar_ingress_proxy.discovery.reconciler.objects import Gateway, Key, Route, Service
from pulsar_ingress_proxy.discovery.reconciler.routes import (
    Address,
    route_addresses,
    routed_hosts,
    service_addresses,
)
from pulsar_ingress_proxy.routing.discovered import Conflict
from pulsar_ingress_proxy.routing.ingresses import Ingress


@dataclass(frozen=True, slots=True)
class Derived:
    """The results from one object."""

    ingresses: tuple[Ingress, ...] = ()
    addresses: tuple[Address, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    hosts: frozenset[tuple[str, bool]] = frozenset()
    """Hosts that are routed from outside, and whether connections carry the host."""


def derive(obj: Gateway | Route | Service, around: ClusterView) -> Derived:
    """Derive the results from one object."""
    match obj:
        case Route():
            places = tuple(attachments(obj, around))
            found = [*route_ingresses(obj, places, around.scope), *route_addresses(obj, places, around)]
            hosts = frozenset(routed_hosts(obj, places))
            return _sorted(found, _faults(obj.key, obj.annotations) if places else (), hosts)
        case Gateway():
            ingresses = [*gateway_ingresses(obj, around.scope)]
            return _sorted(ingresses, _faults(obj.key, obj.annotations) if around.scope.is_beside(obj) else ())
        case Service():
            found = [*service_ingresses(obj, around.scope), *service_addresses(obj, around)]
            ours = around.scope.is_ingress(obj) or obj.key.namespace in around.scope.broker_namespaces
            addressed = frozenset((one.url.host, True) for one in found if isinstance(one, Address))
            return _sorted(found, _faults(obj.key, obj.annotations) if ours else (), addressed)


def _faults(key: Key, annotations: Annotations) -> Iterable[Conflict]:
    for fault in annotations.faults:
        yield Conflict(str(key), fault)
    if key.kind in ("Ingress", "Service") and any(annotations.listeners) and not annotations.listener(""):
        yield Conflict(str(key), f"{LISTENER}: this kind has no sections: write the name of a listener alone")


def _sorted(
    found: Iterable[Ingress | Address | Conflict],
    faults: Iterable[Conflict],
    hosts: frozenset[tuple[str, bool]] = frozenset(),
) -> Derived:
    found = [*found, *faults]
    return Derived(
        tuple(one for one in found if isinstance(one, Ingress)),
        tuple(one for one in found if isinstance(one, Address)),
        tuple(one for one in found if isinstance(one, Conflict)),
        hosts,
    )
