"""All objects at one moment: the brokers among them and their ports, and the questions that derivations ask. Pure."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pulsar_ingress_proxy.discovery.reconciler.objects import (
    Gateway,
    Key,
    ListenerSet,
    Object,
    Pod,
    Service,
    ServicePort,
    Slice,
)
from pulsar_ingress_proxy.discovery.reconciler.scope import Scope
from pulsar_ingress_proxy.syntax.listeners import BINARY_SCHEMES, WEB_SCHEMES
from pulsar_ingress_proxy.syntax.selectors import selects

# The broker's defaults (webServicePort, webServicePortTls, brokerServicePort, brokerServicePortTls).
_USUAL = {8080: "http", 8443: "https", 6650: "pulsar", 6651: "pulsar+ssl"}
_WEB = re.compile(r"https?|web|admin")
_BINARY = re.compile(r"pulsar(ssl|tls)?|binary")
_TLS = re.compile(r".*(ssl|tls|https)")

Ports = tuple[tuple[str, int], ...]
"""Names and numbers of a pod's ports."""


@dataclass(frozen=True, slots=True)
class BrokerPod:
    """One broker, as found in the cluster."""

    key: Key
    """That of its pod. A manually created endpoint counts as a pod whose name is its address."""
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


class ClusterView:
    """The objects, and the brokers among them."""

    def __init__(self, scope: Scope, objects: Mapping[Key, Object]) -> None:
        self.scope = scope
        self.objects = objects
        self._pods = {key: one for key, one in objects.items() if isinstance(one, Pod)}
        self._pod_namespaces = {key.namespace for key in self._pods}
        self._slices_of: dict[Key, list[Slice]] = defaultdict(list)
        self._mentions: dict[Key, list[Slice]] = defaultdict(list)
        for one in objects.values():
            if isinstance(one, Slice):
                self._slices_of[one.service].append(one)
                for endpoint in one.endpoints:
                    self._mentions[Key("Pod", one.key.namespace, endpoint.name)].append(one)
        keys = sorted(self._pods.keys() | self._mentions.keys())
        self.brokers = {key: broker for key in keys if (broker := self._broker(key)) is not None}
        self._by_label: dict[tuple[str, str, str], set[Key]] = defaultdict(set)
        for key, broker in self.brokers.items():
            for item in broker.labels.items():
                self._by_label[(key.namespace, *item)].add(key)
        services = (one for one in objects.values() if isinstance(one, Service) and self._may_lead_to_gateway(one))
        self._gateway_services = sorted(services, key=lambda one: one.key)

    def gateway(self, key: Key) -> Gateway | None:
        """A Gateway, or a ListenerSet that its Gateway allows; None if it is neither, or not visible."""
        found = self.objects.get(key)
        if isinstance(found, ListenerSet):
            parent = self.gateway(found.gateway)
            return parent.with_listeners(found) if parent is not None and parent.allows(found) else None
        return found if isinstance(found, Gateway) else None

    def service(self, key: Key) -> Service | None:
        found = self.objects.get(key)
        return found if isinstance(found, Service) else None

    def brokers_behind(self, service: Key) -> tuple[BrokerPod, ...]:
        """The brokers behind a Service, at most two; those that are not terminating, if there are any."""
        found = self.service(service)
        if found is None or service.namespace not in self.scope.broker_namespaces:
            return ()
        keys = self._selected(found) or {
            Key("Pod", service.namespace, endpoint.name)
            for one in self._slices_of.get(service, ())
            for endpoint in one.endpoints
        }
        brokers = [self.brokers[key] for key in sorted(keys) if key in self.brokers]
        staying = [broker for broker in brokers if not broker.ending]
        return tuple((staying or brokers)[:2])

    def services_before(self, gateway: Gateway | None) -> tuple[Service, ...]:
        """The Services of an Istio gateway whose pod is ours; none for other gateways."""
        if gateway is None or gateway.selector is None:
            return ()
        services = [
            service
            for service in self._gateway_services
            if self.scope.own.labels or selects(gateway.selector, service.selector)
        ]
        return tuple(service for service in services if service.is_outside) or tuple(services)

    def known_ports(self, broker: BrokerPod) -> dict[int, str]:
        """The schemes of the broker's ports that the config's URLs lead to."""
        known: dict[int, str] = {}
        for pool in self.scope.pools:
            service = self.service(pool.service)
            for port in service.ports if service is not None else ():
                if str(port.port) == pool.url.port and (number := number_of(port, broker.ports)) is not None:
                    known.setdefault(number, pool.url.scheme)
        return known

    def _may_lead_to_gateway(self, service: Service) -> bool:
        if self.scope.own.labels:
            return self.scope.is_gateways(service)
        return bool(service.selector) and service.key.namespace in self.scope.gateway_namespaces

    def _selected(self, service: Service) -> set[Key]:
        namespace = service.key.namespace
        having = [self._by_label.get((namespace, *item), set()) for item in service.selector.items()]
        return set.intersection(*sorted(having, key=len)) if having else set()

    def _broker(self, key: Key) -> BrokerPod | None:
        """The broker with this key, if it is one: by kubernetes.brokerSelector, else by the pool's Services."""
        pod, selector, pool = self._pods.get(key), self.scope.broker_selector, self.scope.pool_services
        slices = [one for one in self._mentions.get(key, ()) if one.service in pool]
        if pod is None:
            return self._endpoint_broker(key, slices) if selector is None else None
        if selector is not None:
            is_broker = selector.matches(pod.labels)
        else:
            is_broker = bool(slices) or any(self._pool_selects(service, pod) for service in pool)
        if not is_broker:
            return None
        names = names_of(pod.hostname, pod.subdomain, key.namespace, pod.ips, self.scope.domain)
        return BrokerPod(key, names, key, pod.ports, pod.labels, pod.ending)

    def _pool_selects(self, key: Key, pod: Pod) -> bool:
        service = self.service(key)
        if service is None or not service.selector or key.namespace != pod.key.namespace:
            return False
        return selects(service.selector, pod.labels)

    def _endpoint_broker(self, key: Key, slices: list[Slice]) -> BrokerPod | None:
        """A broker known only by endpoints of a Service: pods are not watched, or it is not a pod."""
        found = [
            (one, endpoint)
            for one in sorted(slices, key=lambda one: one.key)
            for endpoint in one.endpoints
            if endpoint.name == key.name and not (endpoint.is_pod and key.namespace in self._pod_namespaces)
        ]
        if not found:
            return None
        first, endpoint = found[0]
        ips = dict.fromkeys(ip for _, one in found for ip in one.ips)
        hostname = endpoint.hostname or key.name
        subdomain = first.service.name if endpoint.hostname else ""
        names = names_of(hostname, subdomain, key.namespace, ips, self.scope.domain)
        return BrokerPod(key, names, first.key, first.ports, ending=all(one.ending for _, one in found))


def number_of(port: ServicePort, ports: Ports) -> int | None:
    """The pod's port behind a Service's port; None if the pod has no port of that name."""
    if isinstance(port.target, int) or port.target.isdigit():
        return int(port.target)
    numbers = dict(reversed(ports))
    return numbers.get(port.target) or numbers.get(port.name)  # an EndpointSlice has the Service's names


def schemes_of(port: ServicePort, ports: Ports, known: dict[int, str]) -> frozenset[str]:
    """The schemes of a port: by the config's URLs, else by the port's names and number.

    Empty if nothing tells, several if names and number disagree.
    """
    number = number_of(port, ports)
    if number in known:
        return frozenset([known[number]])
    names = [port.name, port.app_protocol, port.target if isinstance(port.target, str) else ""]
    names += [name for name, own in ports if own == number]
    said = {scheme for name in names if (scheme := _by_name(name)) is not None}
    usual = _USUAL.get(port.port if number is None else number)
    return frozenset(said | {usual} if usual is not None else said)


def _by_name(name: str) -> str | None:
    """`http`, `https`, `tcp-pulsar`, `tls-pulsarssl`, `web-tls`; in `pulsar-http`, pulsar is the product."""
    words = re.split(r"[-_.]", name.lower())
    family = next(
        (f for f, word in ((WEB_SCHEMES, _WEB), (BINARY_SCHEMES, _BINARY)) if any(map(word.fullmatch, words))), None
    )
    return None if family is None else family[any(map(_TLS.fullmatch, words))]
