"""What follows from one object, with the few others that it refers to. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from pulsar_ingress_proxy.discovery.reconciler.annotations import LISTENER, Notes
from pulsar_ingress_proxy.discovery.reconciler.attachment import Surroundings, attachments
from pulsar_ingress_proxy.discovery.reconciler.ingresses import gateway_doors, route_doors, service_doors
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
    """One object's part in what is found."""

    doors: tuple[Ingress, ...] = ()
    addresses: tuple[Address, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    hosts: frozenset[tuple[str, bool]] = frozenset()
    """That it leads somewhere from outside, and whether connections say that they are for them."""


NOTHING = Derived()


def derive(obj: Gateway | Route | Service, around: Surroundings) -> Derived:
    """An object's part, as far as it has one."""
    match obj:
        case Route():
            places = tuple(attachments(obj, around))
            found = [*route_doors(obj, places, around.here), *route_addresses(obj, places, around)]
            hosts = frozenset(routed_hosts(obj, places))
            return _sorted(found, _faults(obj.key, obj.notes) if places else (), hosts)
        case Gateway():
            doors = [*gateway_doors(obj, around.here)]
            return _sorted(doors, _faults(obj.key, obj.notes) if around.here.is_beside(obj) else ())
        case Service():
            found = [*service_doors(obj, around.here), *service_addresses(obj, around)]
            ours = around.here.is_door(obj) or obj.key.namespace in around.here.broker_namespaces
            addressed = frozenset((one.url.host, True) for one in found if isinstance(one, Address))
            return _sorted(found, _faults(obj.key, obj.notes) if ours else (), addressed)


def _faults(key: Key, notes: Notes) -> Iterable[Conflict]:
    for fault in notes.faults:
        yield Conflict(str(key), fault)
    if key.kind in ("Ingress", "Service") and any(notes.listeners) and not notes.listener(""):
        yield Conflict(str(key), f"{LISTENER}: this kind has no sections: write the name of a listener alone")


def _sorted(
    found: Iterable[Ingress | Address | Conflict],
    faults: Iterable[Conflict],
    hosts: frozenset[tuple[str, bool]] = frozenset(),
) -> Derived:
    found = [*found, *faults]
    derived = Derived(
        tuple(one for one in found if isinstance(one, Ingress)),
        tuple(one for one in found if isinstance(one, Address)),
        tuple(one for one in found if isinstance(one, Conflict)),
        hosts,
    )
    return NOTHING if derived == NOTHING else derived
