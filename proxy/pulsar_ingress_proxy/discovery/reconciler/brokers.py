"""The brokers' pods: their names, and the Services that lead to them. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pulsar_ingress_proxy.discovery.reconciler.objects import Key, Object, Pod, Service, Slice
from pulsar_ingress_proxy.discovery.reconciler.ports import Ports
from pulsar_ingress_proxy.discovery.reconciler.scope import Scope
from pulsar_ingress_proxy.syntax.selectors import selects


class BrokerId(NamedTuple):
    """A pod by its name, or a manually created endpoint by its address."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class BrokerPod:
    """One broker, as found in the cluster."""

    id: BrokerId
    names: tuple[str, ...]
    """All its names, the one to dial first."""
    by: Key
    """The object it was found by."""
    ports: Ports = ()
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    ending: bool = False


def names_of(hostname: str, subdomain: str, namespace: str, ips: Iterable[str], domain: str) -> tuple[str, ...]:
    """A pod's DNS name in all its forms, and its addresses (kubernetes.io, DNS for Services and Pods)."""
    if not subdomain:  # the bare name does not resolve, but brokers may use it for themselves
        return tuple(dict.fromkeys((*ips, hostname)))
    name = f"{hostname}.{subdomain}"
    full = f"{name}.{namespace}"
    return tuple(dict.fromkeys((f"{full}.svc.{domain}", f"{full}.svc", full, name, hostname, *ips)))


class BrokerPods:
    """All brokers, and the Services of their namespaces that lead to them."""

    def __init__(self, scope: Scope, objects: Iterable[Object]) -> None:
        self._scope = scope
        self._pools = {pool.service for pool in scope.pools}
        self._pods: dict[Key, Pod] = {}
        self._services: dict[Key, Service] = {}
        self._slices_of: dict[Key, list[Slice]] = defaultdict(list)
        self._mentions: dict[BrokerId, list[Slice]] = defaultdict(list)
        for one in objects:
            match one:
                case Pod():
                    self._pods[one.key] = one
                case Service() if one.key.namespace in scope.broker_namespaces:
                    self._services[one.key] = one
                case Slice():
                    self._slices_of[_service_of(one)].append(one)
                    for endpoint in one.endpoints:
                        self._mentions[BrokerId(one.key.namespace, endpoint.name)].append(one)
        self._pod_namespaces = {key.namespace for key in self._pods}
        ids = {BrokerId(key.namespace, key.name) for key in self._pods} | self._mentions.keys()
        self.brokers = {id_: broker for id_ in sorted(ids) if (broker := self._broker(id_)) is not None}
        self._by_label: dict[tuple[str, str, str], set[BrokerId]] = defaultdict(set)
        for id_, broker in self.brokers.items():
            for item in broker.labels.items():
                self._by_label[(id_.namespace, *item)].add(id_)

    def behind(self, service: Key) -> tuple[BrokerPod, ...]:
        """The brokers behind a Service, at most two; those that are not terminating, if there are any."""
        found = self._services.get(service)
        if found is None:
            return ()
        ids = self._selected(found) or {
            BrokerId(service.namespace, endpoint.name)
            for one in self._slices_of.get(service, ())
            for endpoint in one.endpoints
        }
        brokers = [self.brokers[id_] for id_ in sorted(ids) if id_ in self.brokers]
        staying = [broker for broker in brokers if not broker.ending]
        return tuple((staying or brokers)[:2])

    def _selected(self, service: Service) -> set[BrokerId]:
        namespace = service.key.namespace
        having = [self._by_label.get((namespace, *item), set()) for item in service.selector.items()]
        return set.intersection(*sorted(having, key=len)) if having else set()

    def _broker(self, id_: BrokerId) -> BrokerPod | None:
        scope = self._scope
        pod = self._pods.get(Key("Pod", *id_))
        slices = [one for one in self._mentions.get(id_, ()) if _service_of(one) in self._pools]
        listed = sorted(slices, key=lambda one: one.key)
        if pod is not None:
            if scope.broker_selector is not None:
                is_broker = scope.broker_selector.matches(pod.labels)
            else:
                is_broker = bool(listed) or any(self._pool_selects(key, pod) for key in self._pools)
            names = names_of(pod.hostname, pod.subdomain, id_.namespace, pod.ips, scope.domain)
            return BrokerPod(id_, names, pod.key, pod.ports, pod.labels, pod.ending) if is_broker else None
        if not listed or scope.broker_selector is not None:
            return None
        return self._endpoint_broker(id_, listed)

    def _pool_selects(self, key: Key, pod: Pod) -> bool:
        service = self._services.get(key)
        if service is None or not service.selector or key.namespace != pod.key.namespace:
            return False
        return selects(service.selector, pod.labels)

    def _endpoint_broker(self, id_: BrokerId, slices: list[Slice]) -> BrokerPod | None:
        """A broker known only by endpoints of a Service: pods are not watched, or it is not a pod."""
        found = [
            (one, endpoint)
            for one in slices
            for endpoint in one.endpoints
            if endpoint.name == id_.name and not (endpoint.is_pod and id_.namespace in self._pod_namespaces)
        ]
        if not found:
            return None
        first, endpoint = found[0]
        ips = dict.fromkeys(ip for _, one in found for ip in one.ips)
        hostname = endpoint.hostname or id_.name
        subdomain = first.service if endpoint.hostname else ""
        names = names_of(hostname, subdomain, id_.namespace, ips, self._scope.domain)
        ending = all(one.ending for _, one in found)
        return BrokerPod(id_, names, first.key, first.ports, ending=ending)


def _service_of(slice_: Slice) -> Key:
    return Key("Service", slice_.key.namespace, slice_.service)
