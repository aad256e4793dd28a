"""The kinds of objects that discovery reads. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object in the Kubernetes API."""

    name: str
    """Unique name: the kind, with the prefix `Istio` if another group has the same kind."""
    group: str
    versions: tuple[str, ...]
    """Supported versions, the preferred one first."""
    kind: str
    plural: str
    optional: bool = False
    """Whether it is a CRD, which a cluster may lack."""


GATEWAY_API, ISTIO = "gateway.networking.k8s.io", "networking.istio.io"

KINDS = (
    Kind("Ingress", "networking.k8s.io", ("v1",), "Ingress", "ingresses"),
    Kind("Gateway", GATEWAY_API, ("v1", "v1beta1"), "Gateway", "gateways", optional=True),
    Kind("ListenerSet", GATEWAY_API, ("v1",), "ListenerSet", "listenersets", optional=True),
    Kind("HTTPRoute", GATEWAY_API, ("v1", "v1beta1"), "HTTPRoute", "httproutes", optional=True),
    Kind("TLSRoute", GATEWAY_API, ("v1", "v1alpha3", "v1alpha2"), "TLSRoute", "tlsroutes", optional=True),
    Kind("TCPRoute", GATEWAY_API, ("v1", "v1alpha2"), "TCPRoute", "tcproutes", optional=True),
    Kind("IstioGateway", ISTIO, ("v1", "v1beta1", "v1alpha3"), "Gateway", "gateways", optional=True),
    Kind("VirtualService", ISTIO, ("v1", "v1beta1", "v1alpha3"), "VirtualService", "virtualservices", optional=True),
    Kind("Service", "", ("v1",), "Service", "services"),
    Kind("Pod", "", ("v1",), "Pod", "pods"),
    Kind("EndpointSlice", "discovery.k8s.io", ("v1",), "EndpointSlice", "endpointslices"),
)

BY_NAME: Mapping[str, Kind] = {kind.name: kind for kind in KINDS}

_BY_GROUP: Mapping[tuple[str, str], Kind] = {(kind.group, kind.kind): kind for kind in KINDS}


def kind_of(obj: Mapping[str, Any]) -> Kind | None:
    """The kind of an object; None if the kind or its version is not supported."""
    group, _, version = str(obj.get("apiVersion", "")).rpartition("/")
    kind = _BY_GROUP.get((group, str(obj.get("kind", ""))))
    return kind if kind is not None and version in kind.versions else None
