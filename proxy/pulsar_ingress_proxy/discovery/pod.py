"""The pod of this sidecar and its gateway: namespace, labels, and the zone of its node.

Read from the downward API if the manifest has it, else by one `get` on the pod and one on the node.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from pulsar_ingress_proxy.discovery.api_client import KubernetesApi, Object, Refused
from pulsar_ingress_proxy.discovery.reconciler.store import PodIdentity

log = logging.getLogger("proxy.discovery")

LABELS = Path("/etc/podinfo/labels")
_ZONE = "topology.kubernetes.io/zone"


async def own_pod(cluster: KubernetesApi, with_zone: bool, labels_file: Path = LABELS) -> PodIdentity:
    """Read the sidecar's pod; raises Refused if the API server is needed and unreachable."""
    namespace = os.environ.get("POD_NAMESPACE") or await cluster.home()
    labels = await asyncio.to_thread(_read_labels, labels_file)
    node = os.environ.get("NODE_NAME")
    if labels is None:
        pod = await _own_object(cluster, namespace)
        labels = _labels(pod)
        node = node or pod.get("spec", {}).get("nodeName")
    zone = await _zone(cluster, labels, node) if with_zone else None
    return PodIdentity(namespace, labels, zone)


async def _own_object(cluster: KubernetesApi, namespace: str) -> Object:
    name = os.environ.get("POD_NAME") or (os.environ.get("HOSTNAME") if cluster.credentials.in_pod else None)
    if not name:
        return {}
    return await _got(cluster, f"/api/v1/namespaces/{namespace}/pods/{name}", "selectors are matched to no labels")


async def _zone(cluster: KubernetesApi, labels: Mapping[str, str], node: str | None) -> str | None:
    # Since Kubernetes 1.35 pods have the zone among their labels.
    zone = os.environ.get("NODE_ZONE") or labels.get(_ZONE)
    if not zone and node:
        zone = _labels(await _got(cluster, f"/api/v1/nodes/{node}", "no zone is told")).get(_ZONE)
    if not zone:
        log.warning("kubernetes.zoneProperty: the zone of node %s is not known: set NODE_ZONE", node or "(unknown)")
    return zone or None


async def _got(cluster: KubernetesApi, path: str, otherwise: str) -> Object:
    try:
        return await cluster.get(path)
    except Refused as refused:
        if refused.reason not in ("forbidden", "absent"):
            raise
        log.warning("%s; %s", refused, otherwise)
        return {}


def _labels(found: Object) -> dict[str, str]:
    return dict(found.get("metadata", {}).get("labels", {}))


def _read_labels(file: Path) -> dict[str, str] | None:
    """Parse lines of `key="value"`; None if there is no such file."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return {key: value.strip('"') for key, equals, value in (line.partition("=") for line in lines) if equals}
