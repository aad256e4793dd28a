"""The store of Kubernetes objects. Pure.

Any change derives everything again. That takes some 50 ms for a thousand ingresses and three hundred brokers, and can
run in another thread.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.discovery.reconciler.kinds import kind_of
from pulsar_ingress_proxy.discovery.reconciler.objects import Key, Object
from pulsar_ingress_proxy.discovery.reconciler.parsing import key_of, read
from pulsar_ingress_proxy.discovery.reconciler.reconcile import Reconciled, reconcile
from pulsar_ingress_proxy.discovery.reconciler.scope import PodIdentity, Scope
from pulsar_ingress_proxy.discovery.reconciler.view import ClusterView
from pulsar_ingress_proxy.routing.discovered import Discovered

__all__ = ["ObjectStore", "PodIdentity"]


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
        if key is None or not self._is_needed(key):
            return False
        new, old = read(key, obj), self._objects.get(key)
        if new is None:
            self._objects.pop(key, None)
        else:
            self._objects[key] = new
        return new != old

    def remove(self, kind: str, namespace: str, name: str) -> bool:
        """Remove an object; `kind` is a `Kind.name`."""
        return self._objects.pop(Key(kind, namespace, name), None) is not None

    def reconciler(self) -> Callable[[], Reconciled]:
        """A function that derives the result from the current objects; it may be called in another thread."""
        objects = self._objects.copy()
        return lambda: reconcile(self._config, ClusterView(self.scope, objects))

    def reconciled(self) -> Reconciled:
        return self.reconciler()()

    def discovered(self) -> Discovered:
        return self.reconciled().discovered

    def _is_needed(self, key: Key) -> bool:
        of_brokers = key.kind not in ("Pod", "EndpointSlice") or key.namespace in self.scope.broker_namespaces
        return of_brokers and key.namespace in self.scope.namespaces
