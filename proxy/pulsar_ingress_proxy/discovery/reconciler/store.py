"""The objects of a cluster as far as they matter, and what follows from them. Pure.

Of each object a small record is kept, and what it contributes. A derivation remembers what it looked at, so that a
change is followed only by those that it touches.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.discovery.reconciler.annotations import NONE
from pulsar_ingress_proxy.discovery.reconciler.brokers import BrokerPod, BrokerPods
from pulsar_ingress_proxy.discovery.reconciler.derivation import NOTHING, Derived, derive
from pulsar_ingress_proxy.discovery.reconciler.kinds import BY_NAME, kind_of
from pulsar_ingress_proxy.discovery.reconciler.merge import merge_objects
from pulsar_ingress_proxy.discovery.reconciler.objects import Gateway, Key, Object, Pod, Route, Service, Slice
from pulsar_ingress_proxy.discovery.reconciler.parsing import key_of, read
from pulsar_ingress_proxy.discovery.reconciler.scope import PodIdentity, Scope
from pulsar_ingress_proxy.routing.discovered import Conflict, Discovered
from pulsar_ingress_proxy.syntax.selectors import selects

__all__ = ["ObjectStore", "PodIdentity"]

_OWN_SERVICES = Key("Service", "", "")
"""What depends on it depends on all Services that lead to our gateway."""


def _lead(service: Key) -> Key:
    """What depends on it depends on whom a Service leads to."""
    return service._replace(kind="lead")


class ObjectStore:
    """All objects that were seen, and what they show together."""

    def __init__(self, config: Config, own: PodIdentity) -> None:
        self._config = config
        self.scope = Scope(config, own)
        self._objects: dict[Key, Gateway | Route | Service] = {}
        self._membership = BrokerPods(self.scope)
        self._own_services: dict[Key, Service] = {}
        self._behind: dict[Key, tuple[BrokerPod, ...]] = {}
        self._derived: dict[Key, Derived] = {}
        self._dependents: dict[Key, set[Key]] = {}
        self._dependencies: dict[Key, set[Key]] = {}
        self._stale: set[Key] = set()
        self._discovered: Discovered | None = None
        self._unmapped: tuple[Conflict, ...] = ()

    def put(self, obj: Mapping[str, Any]) -> bool:
        """Take an object in, new or changed; whether what is found may have changed."""
        kind = kind_of(obj)
        key = key_of(kind, obj) if kind is not None else None
        return key is not None and self._put(key, obj)

    def remove(self, kind: str, namespace: str, name: str) -> bool:
        """Forget an object; `kind` is a `Kind.name`."""
        return self._set(Key(kind, namespace, name), None)

    def replace(self, kind: str, objects: Iterable[Mapping[str, Any]], namespace: str | None = None) -> bool:
        """Take a fresh list of one kind, or of one namespace's, for all there was of it; `kind` is a `Kind.name`."""
        listed = {key: obj for obj in objects if (key := key_of(BY_NAME[kind], obj)) is not None}
        known = [key for key in (*self._objects, *self._membership.keys()) if key.kind == kind]
        changed = [self._set(key, None) for key in known if key not in listed and namespace in (None, key.namespace)]
        changed += [self._put(key, obj) for key, obj in listed.items()]
        return any(changed)

    def discovered(self) -> Discovered:
        """All that is known, the same for the same objects however they came."""
        if self._discovered is None or self._stale:
            for key in self._stale:
                self._rederive(key)
            self._stale.clear()
            self._discovered, self._unmapped = merge_objects(
                self._config, self._derived, self._membership.brokers, _Around(self)
            )
        return self._discovered

    @property
    def hosts(self) -> frozenset[tuple[str, bool]]:
        """Hosts, and wildcards, that lead somewhere through our gateways or to a broker.

        Each with whether connections say that they are for it: those that are routed by port alone have any host.
        """
        self.discovered()
        return frozenset(host for derived in self._derived.values() for host in derived.hosts)

    @property
    def unmapped(self) -> tuple[Conflict, ...]:
        """Routes to brokers that nobody gives a listener; they are among the conflicts too."""
        self.discovered()
        return self._unmapped

    # Changes.

    def _put(self, key: Key, obj: Mapping[str, Any]) -> bool:
        scope = self.scope
        is_needed = key.kind not in ("Pod", "EndpointSlice") or key.namespace in scope.broker_namespaces
        return is_needed and key.namespace in scope.namespaces and self._set(key, read(key, obj))

    def _set(self, key: Key, new: Object | None) -> bool:
        old = self._objects.get(key) or self._membership.get(key)
        if new == old:
            return False
        stale = self._dependents.get(key, set()).copy()
        match new or old:
            case Pod():
                affected = self._membership.set_pod(key, new if isinstance(new, Pod) else None)
            case Slice():
                affected = self._membership.set_slice(key, new if isinstance(new, Slice) else None)
            case one:
                affected = set()
                if isinstance(one, Service):
                    affected = self._set_service(key, new if isinstance(new, Service) else None, stale)
                if isinstance(new, Gateway | Route | Service):
                    self._objects[key] = new
                else:
                    self._objects.pop(key, None)
                # Most Services say nothing by themselves.
                if not isinstance(new, Service) or new.annotations != NONE or key in self._dependencies:
                    stale.add(key)
        for service in affected:
            stale |= self._led_elsewhere(service)
        self._stale |= stale
        brokers_changed, self._membership.changed = self._membership.changed, False
        if brokers_changed:
            self._discovered = None
        return brokers_changed or bool(stale)

    def _set_service(self, key: Key, service: Service | None, stale: set[Key]) -> set[Key]:
        """Take note of whom a Service leads to, brokers or our own gateway; the Services affected."""
        was_own = self._own_services.pop(key, None) is not None
        if service is not None and self._may_lead_to_gateway(service):
            self._own_services[key] = service
        if was_own or key in self._own_services:
            stale |= self._dependents.get(_OWN_SERVICES, set())
        is_brokers = key.namespace in self.scope.broker_namespaces
        return self._membership.set_service(key, service) if is_brokers else set()

    def _led_elsewhere(self, service: Key) -> set[Key]:
        """Those that have to be derived anew because a Service leads to another broker, or no longer to one alone."""
        old = self._behind.pop(service, None)
        if old is None:
            return set()
        new = self._behind[service] = self._membership.behind(service)
        if len(old) == len(new) != 1 or old == new:
            return set()
        return self._dependents.get(_lead(service), set())

    def _may_lead_to_gateway(self, service: Service) -> bool:
        scope = self.scope
        if scope.own.labels:
            return scope.is_gateways(service)
        return bool(service.selector) and service.key.namespace in scope.gateway_namespaces

    def _rederive(self, key: Key) -> None:
        for dependency in self._dependencies.pop(key, ()):
            self._dependents[dependency].discard(key)
            if not self._dependents[dependency]:
                del self._dependents[dependency]
                if dependency.kind == "lead":
                    self._behind.pop(dependency._replace(kind="Service"), None)
        self._derived.pop(key, None)
        obj = self._objects.get(key)
        if obj is None:
            return
        around = _Around(self)
        derived = derive(obj, around)
        if derived != NOTHING:
            self._derived[key] = derived
        self._dependencies[key] = around.seen
        for dependency in around.seen:
            self._dependents.setdefault(dependency, set()).add(key)


class _Around:
    """The other objects for one derivation, and what it asked for."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.scope = store.scope
        self.seen: set[Key] = set()

    def gateway(self, key: Key) -> Gateway | None:
        self.seen.add(key)
        found = self._store._objects.get(key)
        return found if isinstance(found, Gateway) else None

    def service(self, key: Key) -> Service | None:
        self.seen.add(key)
        found = self._store._objects.get(key)
        return found if isinstance(found, Service) else None

    def brokers_behind(self, service: Key) -> tuple[BrokerPod, ...]:
        self.seen.add(_lead(service))
        behind = self._store._behind
        if service not in behind:
            behind[service] = self._store._membership.behind(service)
        return behind[service]

    def services_before(self, gateway: Gateway) -> tuple[Service, ...]:
        self.seen.add(_OWN_SERVICES)
        services = [
            service
            for _, service in sorted(self._store._own_services.items())
            if self.scope.own.labels or selects(gateway.selector or {}, service.selector)
        ]
        return tuple(service for service in services if service.is_outside) or tuple(services)
