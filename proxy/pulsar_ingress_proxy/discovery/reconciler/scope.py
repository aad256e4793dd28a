"""Where this sidecar stands: beside which gateways, in front of which brokers, and whom it believes. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.discovery.reconciler.kinds import BY_NAME
from pulsar_ingress_proxy.discovery.reconciler.objects import Gateway, Key, Route, Service
from pulsar_ingress_proxy.syntax import hosts
from pulsar_ingress_proxy.syntax.listeners import ServiceUrl, parse_service_url
from pulsar_ingress_proxy.syntax.selectors import Selector, parse_selector, selects


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """The sidecar's own pod, that is the gateway's."""

    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    """None of them: not known."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A URL that the config has for brokers, and the Service behind it."""

    url: ServiceUrl
    service: Key


class Scope:
    """What config and own pod say about every object, whatever else there is."""

    def __init__(self, config: Config, own: PodIdentity) -> None:
        keys = config.kubernetes
        self.own = own
        self.namespaces = frozenset(keys.namespaces or (own.namespace,))
        """Watched: what is elsewhere does not exist."""
        self._classes = frozenset(name for name in keys.gateways if "/" not in name)
        self._named = tuple(_listed(name) for name in keys.gateways if "/" in name)
        self._names_any = bool(keys.gateways)
        self._suffixes = keys.allowed_host_suffixes
        self.broker_selector: Selector | None = parse_selector(keys.broker_selector) if keys.broker_selector else None
        urls = [*config.web_pool, *(parse_service_url(url) for url in config.brokers.broker_service_url)]
        self.pools = tuple(Pool(url, key) for url in urls if (key := _service_behind(url.host, own.namespace)))
        self.domain = next(filter(None, (url.host.partition(".svc.")[2] for url in urls)), "cluster.local")
        """The cluster's."""
        known = frozenset(pool.service.namespace for pool in self.pools) & self.namespaces
        self.broker_namespaces = known or frozenset([own.namespace])
        gateways = (named.namespace for named in self._named if named.kind in ("gateway", "service"))
        self.gateway_namespaces = frozenset([own.namespace, *gateways])

    def trusts(self, namespace: str) -> bool:
        """Whether addresses are taken from there: whoever can write them receives clients' tokens."""
        return namespace in self.broker_namespaces or namespace in self.gateway_namespaces

    def allowed(self, host: str) -> Iterator[str]:
        """A host, as far as allowedHostSuffixes lets it be one of ours."""
        return hosts.under(host, self._suffixes)

    def lists(self, key: Key) -> bool:
        """Whether kubernetes.gateways has this very object."""
        return any(named.means(key) for named in self._named)

    def is_beside(self, gateway: Gateway) -> bool:
        """Whether this gateway is ours."""
        if gateway.selector is not None and self.own.labels:
            # The selector says which pods a gateway of Istio is for: if not this one, then no list can make it ours.
            if not selects(gateway.selector, self.own.labels):
                return False
            names_gateways = any(named.kind == "gateway" for named in self._named)
            return self.lists(gateway.key) or not names_gateways
        return self._counts(gateway.key, bool(gateway.annotations.listeners))

    def is_attached(self, route: Route, gateway: Key, seen: Gateway | None) -> bool:
        """Whether a route that hangs on this gateway comes to us by it."""
        if seen is not None and self.is_beside(seen):
            return True
        if gateway.kind == "IstioGateway" and self.own.labels:
            # Its selector says no, or cannot be seen.
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
        """By the list; where there is none, every annotated object does."""
        return self.lists(key) if self._names_any else annotated


@dataclass(frozen=True, slots=True)
class _Listed:
    """An element of kubernetes.gateways: `gateway/ns/name`, or with its group where two have the kind."""

    kind: str
    group: str
    namespace: str
    name: str

    def means(self, key: Key) -> bool:
        kind = BY_NAME[key.kind]
        return (
            (self.namespace, self.name) == (key.namespace, key.name)
            and self.kind == kind.kind.lower()
            and self.group in ("", kind.group)
        )


def _listed(text: str) -> _Listed:
    kind, namespace, name = text.split("/")
    kind, _, group = kind.lower().partition(".")
    return _Listed(kind, group, namespace, name)


def _service_behind(host: str, own_namespace: str) -> Key | None:
    """The Service that a host of the cluster's DNS means, by its own name or by one of its pods'."""
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
