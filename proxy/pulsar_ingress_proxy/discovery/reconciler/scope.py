"""The scope of this sidecar: its gateways, its brokers, and the namespaces it trusts. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.discovery.reconciler.kinds import BY_NAME
from pulsar_ingress_proxy.discovery.reconciler.objects import Gateway, Key, ListenerSet, Route, Service
from pulsar_ingress_proxy.syntax import hosts
from pulsar_ingress_proxy.syntax.listeners import ServiceUrl
from pulsar_ingress_proxy.syntax.selectors import Selector, parse_selector, selects


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """The pod of the sidecar and its gateway."""

    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Empty: not known."""
    zone: str | None = None
    """Of its node, if it was asked for."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A broker URL of the config, and its Service."""

    url: ServiceUrl
    service: Key


class Scope:
    """What config and pod tell about any object."""

    def __init__(self, config: Config, own: PodIdentity) -> None:
        keys = config.kubernetes
        self.own = own
        self.namespaces = frozenset(keys.namespaces or (own.namespace,))
        self._classes = frozenset(name for name in keys.gateways if "/" not in name)
        self._named = frozenset(_parts(name) for name in keys.gateways if "/" in name)
        self._names_any = bool(keys.gateways)
        self._suffixes = keys.allowed_host_suffixes
        self.broker_selector: Selector | None = parse_selector(keys.broker_selector) if keys.broker_selector else None
        urls = (*config.web_pool, *config.binary_pool)
        self.pools = tuple(Pool(url, key) for url in urls if (key := _service_behind(url.host, own.namespace)))
        self.pool_services = frozenset(pool.service for pool in self.pools)
        self.domain = next(filter(None, (url.host.partition(".svc.")[2] for url in urls)), "cluster.local")
        known = frozenset(service.namespace for service in self.pool_services) & self.namespaces
        self.broker_namespaces = known or frozenset([own.namespace])
        gateways = (namespace for kind, _, namespace, _ in self._named if kind in ("gateway", "service"))
        self.gateway_namespaces = frozenset([own.namespace, *gateways])

    def trusts(self, namespace: str) -> bool:
        """Whether to accept brokers' addresses from a namespace: who can set them receives clients' tokens."""
        return namespace in self.broker_namespaces or namespace in self.gateway_namespaces

    def allowed(self, host: str) -> Iterator[str]:
        """The part of a host pattern that allowedHostSuffixes allows."""
        return hosts.under(host, self._suffixes)

    def lists(self, key: Key) -> bool:
        kind = BY_NAME[key.kind]
        return any((kind.kind.lower(), group, key.namespace, key.name) in self._named for group in ("", kind.group))

    def is_beside(self, gateway: Gateway) -> bool:
        if gateway.selector is not None and self.own.labels:
            # An Istio gateway that does not select this pod is not ours, even if it is listed.
            if not selects(gateway.selector, self.own.labels):
                return False
            names_gateways = any(kind == "gateway" for kind, *_ in self._named)
            return self.lists(gateway.key) or not names_gateways
        outer = gateway.parent or gateway
        return self._counts(outer.key, bool(gateway.annotations.listeners or outer.annotations.listeners))

    def is_meant_for_ours(self, found: ListenerSet) -> bool:
        """Whether a ListenerSet has a listener for a gateway of ours, whether or not that allows it."""
        return bool(found.annotations.listeners) and self._counts(found.gateway, True)

    def is_attached(self, route: Route, gateway: Key, seen: Gateway | None) -> bool:
        """Whether a route is attached to one of our gateways by this gateway."""
        if seen is not None and self.is_beside(seen):
            return True
        if gateway.kind == "IstioGateway" and self.own.labels:
            # Its selector does not match, or is not visible.
            return seen is None and self.lists(gateway)
        return self._counts(gateway, bool(route.annotations.listeners))

    def has_class(self, ingress: Route) -> bool:
        """Whether an Ingress is served by our gateway."""
        return ingress.ingress_class in self._classes or self._counts(ingress.key, bool(ingress.annotations.listeners))

    def is_gateways(self, service: Service) -> bool:
        """Whether a Service leads to our own pod."""
        own = self.own
        return (
            bool(service.selector) and service.key.namespace == own.namespace and selects(service.selector, own.labels)
        )

    def is_ingress(self, service: Service) -> bool:
        return self.is_gateways(service) or self._counts(service.key, bool(service.annotations.listeners))

    def _counts(self, key: Key, annotated: bool) -> bool:
        """Whether an object is ours: by kubernetes.gateways, or without that, by its annotation."""
        return self.lists(key) if self._names_any else annotated


def _parts(gateway: str) -> tuple[str, str, str, str]:
    """Kind, group (if the kind is ambiguous), namespace and name of an element of kubernetes.gateways."""
    kind, namespace, name = gateway.split("/")
    kind, _, group = kind.lower().partition(".")
    return kind, group, namespace, name


def _service_behind(host: str, own_namespace: str) -> Key | None:
    """The Service of a host in the cluster's DNS, which may be that of one of its pods."""
    name, svc, _ = f"{host}.".partition(".svc.")
    labels = name.strip(".").split(".")
    match labels:
        case [service] if not svc:
            return Key("Service", own_namespace, service)
        case [service, namespace]:
            return Key("Service", namespace, service)
        case [_, service, namespace] if svc:
            return Key("Service", namespace, service)
        case _:
            return None
