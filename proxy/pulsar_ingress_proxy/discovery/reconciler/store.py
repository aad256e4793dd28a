"""The store of Kubernetes objects, and the result derived from them. Pure.

Any change derives everything again. That takes some 50 ms for a thousand ingresses and three hundred brokers, and can
run in another thread.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.discovery.reconciler.annotations import NONE
from pulsar_ingress_proxy.discovery.reconciler.brokers import BrokerPod, BrokerPods
from pulsar_ingress_proxy.discovery.reconciler.derivation import derive
from pulsar_ingress_proxy.discovery.reconciler.kinds import BY_NAME, kind_of
from pulsar_ingress_proxy.discovery.reconciler.merge import merge_objects
from pulsar_ingress_proxy.discovery.reconciler.objects import Gateway, Key, Object, Route, Service
from pulsar_ingress_proxy.discovery.reconciler.parsing import key_of, read
from pulsar_ingress_proxy.discovery.reconciler.scope import PodIdentity, Scope
from pulsar_ingress_proxy.routing.discovered import Conflict, Discovered
from pulsar_ingress_proxy.syntax.selectors import selects

__all__ = ["ObjectStore", "PodIdentity", "Reconciled"]


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The result of all objects; it does not depend on their order."""

    discovered: Discovered
    unmapped: tuple[Conflict, ...]
    """Routes to brokers without a listener; also among the conflicts."""
    hosts: frozenset[tuple[str, bool]]
    """Hosts and wildcards that are routed through our gateways or to a broker; whether connections carry the host."""


class ObjectStore:
    """All relevant objects."""

    def __init__(self, config: Config, own: PodIdentity) -> None:
        self._config = config
        self.scope = Scope(config, own)
        self._objects: dict[Key, Object] = {}

    def put(self, obj: Mapping[str, Any]) -> bool:
        """Add or update an object. Returns whether the result may have changed."""
        kind = kind_of(obj)
        key = key_of(kind, obj) if kind is not None else None
        return key is not None and self._put(key, obj)

    def remove(self, kind: str, namespace: str, name: str) -> bool:
        """Remove an object; `kind` is a `Kind.name`."""
        return self._objects.pop(Key(kind, namespace, name), None) is not None

    def replace(self, kind: str, objects: Iterable[Mapping[str, Any]], namespace: str | None = None) -> bool:
        """Replace all objects of one kind, or those of one namespace; `kind` is a `Kind.name`."""
        listed = {key: obj for obj in objects if (key := key_of(BY_NAME[kind], obj)) is not None}
        known = [key for key in self._objects if key.kind == kind and namespace in (None, key.namespace)]
        changed = [self.remove(*key) for key in known if key not in listed]
        changed += [self._put(key, obj) for key, obj in listed.items()]
        return any(changed)

    def reconciler(self) -> Callable[[], Reconciled]:
        """A function that derives the result from the current objects; it may be called in another thread."""
        view = _View(self.scope, self._objects.copy())
        return lambda: _reconcile(self._config, view)

    def reconciled(self) -> Reconciled:
        return self.reconciler()()

    def discovered(self) -> Discovered:
        return self.reconciled().discovered

    def _put(self, key: Key, obj: Mapping[str, Any]) -> bool:
        scope = self.scope
        is_needed = key.kind not in ("Pod", "EndpointSlice") or key.namespace in scope.broker_namespaces
        if not is_needed or key.namespace not in scope.namespaces:
            return False
        new, old = read(key, obj), self._objects.get(key)
        if new == old:
            return False
        if new is None:
            del self._objects[key]
        else:
            self._objects[key] = new
        return True


def _reconcile(config: Config, view: "_View") -> Reconciled:
    derived = {
        key: derive(obj, view)
        for key, obj in view.objects.items()
        # Services without annotations give no results themselves.
        if isinstance(obj, Gateway | Route) or (isinstance(obj, Service) and obj.annotations != NONE)
    }
    discovered, unmapped = merge_objects(config, derived, view.pods.brokers, view)
    return Reconciled(discovered, unmapped, frozenset(host for one in derived.values() for host in one.hosts))


class _View:
    """A copy of the store for derivations."""

    def __init__(self, scope: Scope, objects: Mapping[Key, Object]) -> None:
        self.scope = scope
        self.objects = objects

    @cached_property
    def pods(self) -> BrokerPods:
        return BrokerPods(self.scope, self.objects.values())

    @cached_property
    def _own_services(self) -> list[Service]:
        """The Services that may lead to our gateway."""
        services = [one for _, one in sorted(self.objects.items()) if isinstance(one, Service)]
        return [service for service in services if self._may_lead_to_gateway(service)]

    def gateway(self, key: Key) -> Gateway | None:
        found = self.objects.get(key)
        return found if isinstance(found, Gateway) else None

    def service(self, key: Key) -> Service | None:
        found = self.objects.get(key)
        return found if isinstance(found, Service) else None

    def brokers_behind(self, service: Key) -> tuple[BrokerPod, ...]:
        return self.pods.behind(service)

    def services_before(self, gateway: Gateway) -> tuple[Service, ...]:
        services = [
            service
            for service in self._own_services
            if self.scope.own.labels or selects(gateway.selector or {}, service.selector)
        ]
        return tuple(service for service in services if service.is_outside) or tuple(services)

    def _may_lead_to_gateway(self, service: Service) -> bool:
        scope = self.scope
        if scope.own.labels:
            return scope.is_gateways(service)
        return bool(service.selector) and service.key.namespace in scope.gateway_namespaces
