"""The brokers' pods: which they are, what they call themselves, and which Services lead to which. Pure.

Kept in step one object at a time: each change says which Services lead elsewhere from then on.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from pulsar_ingress_proxy.discovery.reconciler.objects import Key, Pod, Service, Slice
from pulsar_ingress_proxy.discovery.reconciler.ports import Ports
from pulsar_ingress_proxy.discovery.reconciler.scope import Scope
from pulsar_ingress_proxy.syntax.selectors import selects

Name = TypeVar("Name")
Value = TypeVar("Value")


class BrokerId(NamedTuple):
    """A pod, or an endpoint that somebody wrote by hand, by its address."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class BrokerPod:
    """One broker, as the cluster has it."""

    id: BrokerId
    names: tuple[str, ...]
    """All that it may call itself, the one to dial it by first."""
    by: Key
    """The object that shows it."""
    ports: Ports = ()
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    ending: bool = False


def names_of(hostname: str, subdomain: str, namespace: str, ips: Iterable[str], domain: str) -> tuple[str, ...]:
    """A pod's DNS name in all its forms, and its addresses (kubernetes.io, DNS for Services and Pods)."""
    if not subdomain:  # the bare name leads nowhere, but it is what a broker finds out about itself
        return tuple(dict.fromkeys((*ips, hostname)))
    name = f"{hostname}.{subdomain}"
    full = f"{name}.{namespace}"
    return tuple(dict.fromkeys((f"{full}.svc.{domain}", f"{full}.svc", full, name, hostname, *ips)))


class BrokerPods:
    """All brokers, and the Services of their namespaces."""

    def __init__(self, scope: Scope) -> None:
        self._here = scope
        self._pools = {pool.service for pool in scope.pools}
        self._pods: dict[Key, Pod] = {}
        self._slices: dict[Key, Slice] = {}
        self._services: dict[Key, Service] = {}
        self.brokers: dict[BrokerId, BrokerPod] = {}
        self.changed = False
        """Whether a broker came, went or changed, since somebody set this back."""
        self._by_label: dict[tuple[str, str, str], set[BrokerId]] = {}
        self._services_by_label: dict[tuple[str, str, str], set[Key]] = {}
        self._slices_of: dict[Key, set[Key]] = {}
        self._mentions: dict[BrokerId, set[Key]] = {}

    def get(self, key: Key) -> Pod | Slice | None:
        return self._pods.get(key) or self._slices.get(key)

    def keys(self) -> list[Key]:
        return [*self._pods, *self._slices]

    # Changes: each returns the Services that lead elsewhere.

    def set_pod(self, key: Key, pod: Pod | None) -> set[Key]:
        knew_any = self._knows_pods(key.namespace)
        _set(self._pods, key, pod)
        id_ = BrokerId(key.namespace, key.name)
        if knew_any == self._knows_pods(key.namespace):
            return self._review([id_])
        return self._review({id_, *(one for one in self._mentions if one.namespace == key.namespace)})

    def set_slice(self, key: Key, new: Slice | None) -> set[Key]:
        old = self._slices.get(key)
        _set(self._slices, key, new)
        ids: set[BrokerId] = set()
        services: set[Key] = set()
        for one, is_there in ((old, False), (new, True)):
            if one is not None:
                service = Key("Service", key.namespace, one.service)
                services.add(service)
                _enter(self._slices_of, service, key, is_there)
                for endpoint in one.endpoints:
                    ids.add(id_ := BrokerId(key.namespace, endpoint.name))
                    _enter(self._mentions, id_, key, is_there)
        return self._review(ids) | services

    def set_service(self, key: Key, service: Service | None) -> set[Key]:
        old = self._services.get(key)
        _set(self._services, key, service)
        for one, is_there in ((old, False), (service, True)):
            if one is not None and one.selector:
                _enter(self._services_by_label, _sharpest(one), key, is_there)
        if key not in self._pools:
            return {key}
        self.changed = True
        pods = {BrokerId(pod.namespace, pod.name) for pod in self._pods if pod.namespace == key.namespace}
        return self._review(pods) | {key}

    # PendingLookups.

    def behind(self, service: Key) -> tuple[BrokerPod, ...]:
        """The brokers that a Service leads to, of several any two: those that stay, where some are about to end."""
        found = self._services.get(service)
        if found is None:
            return ()
        ids = self._selected(found) or {
            BrokerId(service.namespace, endpoint.name)
            for key in self._slices_of.get(service, ())
            for endpoint in self._slices[key].endpoints
        }
        brokers = [self.brokers[id_] for id_ in ids if id_ in self.brokers]
        staying = [broker for broker in brokers if not broker.ending]
        return tuple((staying or brokers)[:2])

    def _selected(self, service: Service) -> set[BrokerId]:
        namespace = service.key.namespace
        having = [self._by_label.get((namespace, *item), set()) for item in service.selector.items()]
        return set.intersection(*sorted(having, key=len)) if having else set()

    def _knows_pods(self, namespace: str) -> bool:
        return any(key.namespace == namespace for key in self._pods)

    def _review(self, ids: Iterable[BrokerId]) -> set[Key]:
        """Look again whether these are brokers, and what they are called."""
        services: set[Key] = set()
        for id_ in ids:
            old, new = self.brokers.get(id_), self._member(id_)
            if old == new:
                continue
            self.changed = True
            _set(self.brokers, id_, new)
            for one, is_there in ((old, False), (new, True)):
                if one is not None:
                    for item in one.labels.items():
                        _enter(self._by_label, (id_.namespace, *item), id_, is_there)
                    services |= self._leading_to(one)
        return services

    def _leading_to(self, broker: BrokerPod) -> set[Key]:
        namespace = broker.id.namespace
        services = {self._service_of(key) for key in self._mentions.get(broker.id, ())}
        for item in broker.labels.items():
            for key in self._services_by_label.get((namespace, *item), ()):
                if selects(self._services[key].selector, broker.labels):
                    services.add(key)
        return services

    def _service_of(self, slice_: Key) -> Key:
        return Key("Service", slice_.namespace, self._slices[slice_].service)

    def _member(self, id_: BrokerId) -> BrokerPod | None:
        scope = self._here
        pod = self._pods.get(Key("Pod", *id_))
        listed = sorted(key for key in self._mentions.get(id_, ()) if self._service_of(key) in self._pools)
        if pod is not None:
            if scope.broker_selector is not None:
                is_broker = scope.broker_selector.matches(pod.labels)
            else:
                is_broker = bool(listed) or any(self._pool_selects(key, pod) for key in self._pools)
            names = names_of(pod.hostname, pod.subdomain, id_.namespace, pod.ips, scope.domain)
            return BrokerPod(id_, names, pod.key, pod.ports, pod.labels, pod.ending) if is_broker else None
        if not listed or scope.broker_selector is not None:
            return None
        return self._endpoint_member(id_, listed)

    def _pool_selects(self, key: Key, pod: Pod) -> bool:
        service = self._services.get(key)
        if service is None or not service.selector or key.namespace != pod.key.namespace:
            return False
        return selects(service.selector, pod.labels)

    def _endpoint_member(self, id_: BrokerId, slices: list[Key]) -> BrokerPod | None:
        """A broker of which only the Service's endpoints tell: pods are not watched, or it is none."""
        found = [
            (one, endpoint)
            for one in (self._slices[key] for key in slices)
            for endpoint in one.endpoints
            if endpoint.name == id_.name and not (endpoint.is_pod and self._knows_pods(id_.namespace))
        ]
        if not found:
            return None
        first, endpoint = found[0]
        ips = dict.fromkeys(ip for _, one in found for ip in one.ips)
        hostname = endpoint.hostname or id_.name
        subdomain = first.service if endpoint.hostname else ""
        names = names_of(hostname, subdomain, id_.namespace, ips, self._here.domain)
        ending = all(one.ending for _, one in found)
        return BrokerPod(id_, names, first.key, first.ports, ending=ending)


def _sharpest(service: Service) -> tuple[str, str, str]:
    """One label of a selector to find it by: the last, which is `statefulset.kubernetes.io/pod-name` if it has that."""
    return (service.key.namespace, *max(service.selector.items()))


def _enter(index: dict[Name, set[Value]], name: Name, value: Value, is_there: bool) -> None:
    """Put a value into an index, or take it out and leave nothing of it."""
    if is_there:
        index.setdefault(name, set()).add(value)
    elif (values := index.get(name)) is not None:
        values.discard(value)
        if not values:
            del index[name]


def _set(values: dict[Name, Value], name: Name, value: Value | None) -> None:
    if value is None:
        values.pop(name, None)
    else:
        values[name] = value
