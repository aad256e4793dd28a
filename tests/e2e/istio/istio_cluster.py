"""A cluster with Istio, brokers behind STRICT mutual TLS and an ingress gateway, as the manifests that are in it."""

import base64
from collections.abc import Mapping
from pathlib import Path

import trustme
import yaml
from apiclient import Object
from istio_program import documents, inject, named, rendered

PROJECT = Path(__file__).parents[3]
CHART = PROJECT / "helm" / "pulsar-ingress-proxy"
HOST = "pulsar.example.com"
SERVICE = "pulsar-broker.pulsar.svc.cluster.local"
GATEWAY_POD = "istio-ingress-0"
WEB, BINARY = 8080, 6650
CAPTURED = {"ambient.istio.io/redirection": "enabled"}


def policies(account: str) -> list[Object]:
    """What the mesh demands at the brokers: deploy/istio/mtls.yaml, for a gateway with that ServiceAccount."""
    text = (PROJECT / "deploy" / "istio" / "mtls.yaml").read_text()
    assert "/sa/istio-ingress]" in text
    return documents(text.replace("/sa/istio-ingress]", f"/sa/{account}]"))


def release(kind: str, **routes: object) -> list[Object]:
    """What our chart makes beside a gateway of that type, with routes for three brokers in the mesh."""
    values = {
        "gateway": {"type": kind, "istioCertificates": True},
        "routes": {"create": True, "host": HOST, "brokers": 3, **routes},
        "config": {"brokers": {"webServiceUrl": [f"https://{SERVICE}:{WEB}"]}},
    }
    return rendered(CHART, "pulsar-ingress-proxy", "istio-ingress", values)


def statistics() -> list[str]:
    """Expressions of those that the chart turns on in the gateway's Envoy with routes.failOpen."""
    (text,) = named(release("istio", failOpen=True), "ConfigMap", "pulsar-ingress-proxy-sidecar")["data"].values()
    settings = yaml.safe_load(yaml.safe_load(text)["podAnnotations"]["proxy.istio.io/config"])
    expressions: list[str] = settings["proxyStatsMatcher"]["inclusionRegexps"]
    return expressions


def istiod(charts: Path, values: Object) -> list[Object]:
    """What the control plane is installed with: its mesh config and its injection templates."""
    made = rendered(charts / "istio-control" / "istio-discovery", "istiod", "istio-system", values)
    return [named(made, "ConfigMap", "istio"), named(made, "ConfigMap", "istio-sidecar-injector")]


def gateway(charts: Path, values: Object) -> list[Object]:
    """What Istio's gateway chart makes."""
    return rendered(charts / "gateway", "istio-ingress", "istio-ingress", values)


def pod_of(deployment: Object, name: str, address: str) -> Object:
    """A pod that the Deployment makes; injected, if that was."""
    template = deployment["spec"]["template"]
    metadata = template["metadata"] | {"name": name, "namespace": deployment["metadata"]["namespace"]}
    return _running({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}, address)


def brokers(addresses: Mapping[int, str]) -> list[Object]:
    """The brokers' pods, not injected yet, and their Services: one for all without an address, and one for each."""
    pods = [_broker(number, address) for number, address in addresses.items()]
    common = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"component": "broker"}}
    ports = [{"name": "http", "port": WEB}, {"name": "tcp-pulsar", "port": BINARY}]
    metadata = {"name": "pulsar-broker", "namespace": "pulsar"}
    service: Object = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": common | {"ports": ports}}
    return [*pods, service]


def captured(objects: list[Object]) -> list[Object]:
    """With what Istio's CNI writes to pods whose traffic ztunnel takes."""
    return [
        each | {"metadata": each["metadata"] | {"annotations": CAPTURED}} if each["kind"] == "Pod" else each
        for each in objects
    ]


def secret(authority: trustme.CA) -> Object:
    """The ingress's certificate."""
    issued = authority.issue_cert(HOST, f"*.{HOST}")
    pair = {
        "tls.crt": b"".join(each.bytes() for each in issued.cert_chain_pems),
        "tls.key": issued.private_key_pem.bytes(),
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "pulsar-example-com", "namespace": "istio-ingress"},
        "type": "kubernetes.io/tls",
        "data": {name: base64.b64encode(content).decode() for name, content in pair.items()},
    }


def as_served(each: Object) -> Object:
    """With what the API server adds: the pods' port of a Service is the same, if nothing else is said."""
    if each["kind"] != "Service":
        return each
    ports = [{"protocol": "TCP", "targetPort": port["port"]} | port for port in each["spec"]["ports"]]
    return each | {"spec": each["spec"] | {"ports": ports}}


def slice_of(service: Object, pods: list[Object]) -> Object:
    """What the endpoint controller makes of a Service and the pods it selects."""
    metadata, selector = service["metadata"], service["spec"]["selector"].items()
    chosen = [
        pod
        for pod in pods
        if pod["metadata"]["namespace"] == metadata["namespace"] and selector <= pod["metadata"]["labels"].items()
    ]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{metadata['name']}-1",
            "namespace": metadata["namespace"],
            "labels": {"kubernetes.io/service-name": metadata["name"]},
        },
        "addressType": "IPv4",
        "ports": [
            {"name": port["name"], "port": port["targetPort"], "protocol": port["protocol"]}
            for port in service["spec"]["ports"]
        ],
        "endpoints": [
            {
                "addresses": [pod["status"]["podIP"]],
                "conditions": {"ready": True, "serving": True, "terminating": False},
                "targetRef": {"kind": "Pod", "name": pod["metadata"]["name"], "namespace": metadata["namespace"]},
            }
            for pod in chosen
        ],
    }


def injected(control_plane: list[Object], objects: list[Object]) -> list[Object]:
    """These, as istiod's webhook would let them in."""
    return inject([*control_plane, *objects])[len(control_plane) :]


def _broker(number: int, address: str) -> Object:
    name = f"pulsar-broker-{number}"
    labels = {"component": "broker", "statefulset.kubernetes.io/pod-name": name}
    container = {
        "name": "pulsar-broker",
        "image": "apachepulsar/pulsar",
        "ports": [{"containerPort": WEB}, {"containerPort": BINARY}],
    }
    spec = {
        "serviceAccountName": "pulsar-broker",
        "hostname": name,
        "subdomain": "pulsar-broker",
        "containers": [container],
    }
    metadata = {"name": name, "namespace": "pulsar", "labels": labels}
    return _running({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, address)


def _running(pod: Object, address: str) -> Object:
    ready = [{"type": "Ready", "status": "True"}]
    return pod | {"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": ready}}
