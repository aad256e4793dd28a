"""Kubernetes objects, reduced to the fields that are needed. Pure.

Routes of all kinds share one record, and so do gateways of both groups.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pulsar_ingress_proxy.discovery.reconciler.annotations import Annotations
from pulsar_ingress_proxy.discovery.reconciler.kinds import BY_NAME

Carries = Literal["http", "tls", "tcp"]
"""What a rule routes: HTTP requests, TLS by its server name without terminating it, or TCP."""


class Key(NamedTuple):
    """An object's identity; `kind` is a `Kind.name`."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{BY_NAME[self.kind].kind.lower()}/{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Section:
    """A listener of a Gateway or ListenerSet, or a server of an Istio Gateway."""

    name: str
    port: int
    takes: frozenset[Carries]
    """The types of rules that apply."""
    tls: bool | None
    """Whether clients use TLS; None: bytes are passed, and the backend decides."""
    hosts: tuple[tuple[str, str], ...]
    """Namespaces of routes and the hosts that they may use; `*` for any."""

    @property
    def tells_hosts(self) -> bool:
        """Whether connections carry the host; plain TCP does not."""
        return self.takes != {"tcp"}


@dataclass(frozen=True, slots=True)
class ListenerSet:
    """More listeners for a Gateway, of somebody else."""

    key: Key
    annotations: Annotations
    sections: tuple[Section, ...]
    gateway: Key
    accepted: bool | None
    """What its status says; None: nothing yet."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """A Gateway of the Gateway API or of Istio, or a ListenerSet that is attached to one."""

    key: Key
    annotations: Annotations
    sections: tuple[Section, ...]
    selector: Mapping[str, str] | None = field(hash=False)
    """For Istio: the labels of the gateway's pods."""
    addresses: tuple[str, ...] = ()
    allowed_listeners: str = "None"
    """From which namespaces ListenerSets may be attached, in the words of the Gateway API."""
    parent: "Gateway | None" = None
    """For a ListenerSet: its Gateway."""

    def allows(self, found: ListenerSet) -> bool:
        match self.allowed_listeners:
            case "All":
                return found.accepted is not False
            case "Same":
                return found.accepted is not False and found.key.namespace == self.key.namespace
            case "Selector":
                return found.accepted is True  # labels of namespaces are not watched
            case _:
                return False

    def with_listeners(self, found: ListenerSet) -> "Gateway":
        """A ListenerSet of this Gateway, which has its addresses, and its annotations unless it has its own."""
        annotations = found.annotations.with_defaults(self.annotations)
        return Gateway(found.key, annotations, found.sections, None, self.addresses, parent=self)


@dataclass(frozen=True, slots=True)
class Parent:
    """A gateway or ListenerSet, section and port that a route refers to."""

    gateway: Key
    section: str | None = None
    port: int | None = None
    refused: bool = False
    """Whether the route's status says that it is not accepted."""


class Backend(NamedTuple):
    """The backend of a rule; `service` is None if it is not a Service."""

    service: Key | None
    port: int | str | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    carries: Carries
    backends: tuple[Backend, ...]
    hosts: tuple[str, ...] = ()
    """Narrows the route's hosts; empty: all of them."""
    whole: bool = True
    """Whether it matches every path."""
    port: int | None = None
    """The gateway's port; None: any."""
    gateways: frozenset[Key] | None = None
    """Narrows the route's gateways; None: all of them."""


@dataclass(frozen=True, slots=True)
class Route:
    """An Ingress, HTTPRoute, TLSRoute, TCPRoute or VirtualService."""

    key: Key
    annotations: Annotations
    hosts: tuple[str, ...]
    rules: tuple[Rule, ...]
    parents: tuple[Parent, ...] = ()
    ingress_class: str | None = None
    tls_hosts: tuple[str, ...] = ()
    """For an Ingress: the hosts with TLS."""


@dataclass(frozen=True, slots=True)
class ServicePort:
    port: int
    target: int | str
    name: str = ""
    node_port: int | None = None
    app_protocol: str = ""


@dataclass(frozen=True, slots=True)
class Service:
    key: Key
    annotations: Annotations
    type: str
    selector: Mapping[str, str] = field(hash=False)
    ports: tuple[ServicePort, ...]
    addresses: tuple[str, ...] = ()
    """External addresses in its status or spec."""

    @property
    def is_outside(self) -> bool:
        return self.type in ("LoadBalancer", "NodePort")

    def outer_port(self, port: ServicePort) -> int:
        """The port that clients outside connect to."""
        return port.node_port if self.type == "NodePort" and port.node_port else port.port


@dataclass(frozen=True, slots=True)
class Pod:
    key: Key
    labels: Mapping[str, str] = field(hash=False)
    hostname: str = ""
    subdomain: str = ""
    ips: tuple[str, ...] = ()
    ports: tuple[tuple[str, int], ...] = ()
    """Name and number of the ports of all containers."""
    ending: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint of a Service: a pod, or a manually created one."""

    name: str
    """The pod's name, else its first address."""
    is_pod: bool
    ips: tuple[str, ...]
    hostname: str = ""
    ending: bool = False


@dataclass(frozen=True, slots=True)
class Slice:
    """An EndpointSlice."""

    key: Key
    service: Key
    endpoints: tuple[Endpoint, ...]
    ports: tuple[tuple[str, int], ...]
    """The Service's name of each port, and the endpoints' port number."""


Object = Gateway | ListenerSet | Route | Service | Pod | Slice
