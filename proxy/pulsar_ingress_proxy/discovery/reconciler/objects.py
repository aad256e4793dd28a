"""Objects of the cluster, each cut down to what is needed of it. Pure.

Routes of all kinds are one record, and so are gateways of both groups: what they say differs in words alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pulsar_ingress_proxy.discovery.reconciler.annotations import Annotations
from pulsar_ingress_proxy.discovery.reconciler.kinds import BY_NAME

Carries = Literal["http", "tls", "tcp"]
"""What a rule sees of a connection: requests, the server name of a TLS that it does not end, or bytes."""


class Key(NamedTuple):
    """An object's identity; `kind` is a `Kind.name`."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{BY_NAME[self.kind].kind.lower()}/{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Section:
    """A listener of a Gateway, or a server of Istio's: a port, and who may be reached through it."""

    name: str
    port: int
    takes: frozenset[Carries]
    """The rules that apply there."""
    tls: bool | None
    """Whether clients speak TLS to it; None where the bytes pass and the backend knows."""
    hosts: tuple[tuple[str, str], ...]
    """Namespace and host: whose routes may have which hosts there, `*` for any."""

    @property
    def tells_hosts(self) -> bool:
        """Whether what comes through says which host it is for; bytes do not."""
        return self.takes != {"tcp"}


@dataclass(frozen=True, slots=True)
class Gateway:
    """A Gateway of the Gateway API or of Istio."""

    key: Key
    annotations: Annotations
    sections: tuple[Section, ...]
    selector: Mapping[str, str] | None = field(hash=False)
    """Istio's: the labels of the pods it is for."""
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Parent:
    """A gateway that a route asks to be attached to, and where there."""

    gateway: Key
    section: str | None = None
    port: int | None = None
    refused: bool = False
    """Its status says that it is not attached."""


class Backend(NamedTuple):
    """Where a rule leads to; no Service where it is something else."""

    service: Key | None
    port: int | str | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    carries: Carries
    backends: tuple[Backend, ...]
    hosts: tuple[str, ...] = ()
    """Narrower than the route's; none: the route's."""
    whole: bool = True
    """Takes every path."""
    port: int | None = None
    """Of the gateway; None: any."""
    gateways: frozenset[Key] | None = None
    """Of the route's gateways; None: all."""


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
    """An Ingress's: the hosts that are served over TLS."""


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
    """Where it is reached from outside, as far as the object shows."""

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
    """Name and number, of all containers."""
    ending: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One backend of a Service: a pod, or what somebody wrote there by hand."""

    name: str
    """The pod's, else its first address."""
    is_pod: bool
    ips: tuple[str, ...]
    hostname: str = ""
    ending: bool = False


@dataclass(frozen=True, slots=True)
class Slice:
    """An EndpointSlice."""

    key: Key
    service: str
    endpoints: tuple[Endpoint, ...]
    ports: tuple[tuple[str, int], ...]
    """The Service's name of each port, and the number at the endpoints."""


Object = Gateway | Route | Service | Pod | Slice
