"""Object stores filled from the manifests that operators write, and what is discovered in them."""

from collections.abc import Iterable
from typing import Any

import yaml

from pulsar_ingress_proxy.config import Config, load_mapping
from pulsar_ingress_proxy.discovery.reconciler.store import ObjectStore, PodIdentity
from pulsar_ingress_proxy.routing.discovered import Discovered

DOMAIN = "pulsar-broker.pulsar.svc.cluster.local"
BROKER_HOST = "broker-0.pulsar.example.com"

CONFIG = """
brokers:
  webServiceUrl: [http://pulsar-broker.pulsar:8080]
  brokerServiceUrl: [pulsar://pulsar-broker.pulsar:6650]
kubernetes:
  enabled: true
  namespaces: [pulsar, edge, tenant]
  gateways: [nginx, gateway/edge/public, service/edge/edge]
"""

OWN = PodIdentity("edge", {"app": "edge", "istio": "public"})
"""The sidecar is in the pod of the public gateway, in `edge`; brokers are in `pulsar`; `tenant` is watched too."""


PORTS = "{name: http, port: 8080}, {name: https, port: 8443}, {name: pulsar, port: 6650}, {name: pulsarssl, port: 6651}"
CONTAINER_PORTS = PORTS.replace("port:", "containerPort:")

POOL = f"""
apiVersion: v1
kind: Service
metadata: {{name: pulsar-broker, namespace: pulsar}}
spec:
  clusterIP: None
  selector: {{component: broker}}
  ports: [{PORTS}]
"""


def brokers(count: int = 2) -> str:
    """Pods of a StatefulSet, their Service, and a Service for each of them."""
    return "---".join([POOL, *(pod(n) + "---" + own_service(n) for n in range(count))])


def pod(n: int, metadata: str = "", ip: str = "") -> str:
    return f"""
apiVersion: v1
kind: Pod
metadata:
  name: pulsar-broker-{n}
  namespace: pulsar
  labels: {{component: broker, statefulset.kubernetes.io/pod-name: pulsar-broker-{n}}}
  {metadata}
spec:
  hostname: pulsar-broker-{n}
  subdomain: pulsar-broker
  containers: [{{name: broker, ports: [{CONTAINER_PORTS}]}}]
status: {{phase: Running, podIP: {ip or f"10.0.0.{n + 10}"}}}
"""


def own_service(n: int) -> str:
    return f"""
apiVersion: v1
kind: Service
metadata: {{name: broker-{n}, namespace: pulsar}}
spec:
  selector: {{component: broker, statefulset.kubernetes.io/pod-name: pulsar-broker-{n}}}
  ports: [{PORTS}]
"""


def fill(text: str, **values: str) -> str:
    """A template with values for the names that stand in it in capitals."""
    for name, value in values.items():
        text = text.replace(name.upper(), value)
    return text


def objects(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(text) if document]


def config(changes: str = "") -> Config:
    """The config above; of `kubernetes` only the keys given change."""
    values, changed = yaml.safe_load(CONFIG), yaml.safe_load(changes) or {}
    kubernetes = values["kubernetes"] | changed.pop("kubernetes", {})
    return load_mapping(values | changed | {"kubernetes": kubernetes})


def scene(*texts: str, changes: str = "", own: PodIdentity = OWN) -> ObjectStore:
    """An object store with these manifests."""
    return filled(ObjectStore(config(changes), own), [obj for text in texts for obj in objects(text)])


def filled(store: ObjectStore, manifests: Iterable[dict[str, Any]]) -> ObjectStore:
    for obj in manifests:
        store.put(obj)
    return store


def ingresses(discovered: Discovered) -> dict[str, tuple[str, list[str]]]:
    """Each ingress's listener and hosts, by its name."""
    return {one.name: (one.listener, list(one.hosts)) for one in discovered.ingresses}


def addresses(discovered: Discovered, listener: str = "external") -> dict[str, list[str]]:
    """The URLs of each broker on a listener, by the first label of its name; those that have none left out."""
    found = {}
    for one in discovered.brokers:
        if urls := one.listeners.get(listener):
            found[one.names[0].partition(".")[0]] = sorted(map(str, urls.values()))
    return found


def reported(discovered: Discovered) -> list[str]:
    """The conflicts, as lines."""
    return [f"{conflict.subject}: {conflict.text}" for conflict in discovered.conflicts]
