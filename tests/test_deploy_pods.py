"""The container in deploy/: it cannot harm the gateway beside it, and has what its config names."""

import json

import pytest
from deployed import config, one, patched_pod

from pulsar_ingress_proxy import __version__

PODS = {"ingress-nginx/ingress-nginx-values.yaml": "ingress-nginx/configmap.yaml"}
# Of nginx with its chart's values, and of what serves.
TAKEN = {80, 443, 8080, 8181, 8443, *range(6651, 6700), *range(10245, 10255)}


@pytest.mark.parametrize("path", PODS)
def test_sidecar_container_is_restricted_and_takes_no_port_of_the_gateway(path: str) -> None:
    pod, read = patched_pod(path), config(PODS[path])
    (container,) = pod["initContainers"]
    assert container["name"] == "pulsar-ingress-proxy"
    assert container["image"] == f"pulsar-ingress-proxy:{__version__}"
    assert container["restartPolicy"] == "Always"
    assert container["args"] == ["run", "--config", "/etc/pulsar-ingress-proxy/config.yaml", "--hold"]
    assert "readinessProbe" not in container
    assert "livenessProbe" not in container
    assert "memory" in container["resources"]["limits"]
    assert container["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    metrics = int(read.metrics.address.rpartition(":")[2])
    assert container["ports"] == [{"name": "pip-metrics", "containerPort": metrics}]
    assert f"{metrics}" in json.dumps(container["startupProbe"])
    probe = container["startupProbe"]
    assert probe["exec"]["command"][1] == "probe" if "exec" in probe else probe["httpGet"]["path"] == "/livez"
    ports = [metrics, int(str(read.console.address).rpartition(":")[2]), *(bind.port for bind in read.bind_addresses)]
    assert len(ports) == len(set(ports))
    assert TAKEN.isdisjoint(ports)
    assert {bind.host for bind in read.bind_addresses} == {"127.0.0.1"}


@pytest.mark.parametrize("path", PODS)
def test_sidecar_container_mounts_the_files_that_its_config_names(path: str) -> None:
    pod, read = patched_pod(path), config(PODS[path])
    (container,) = pod["initContainers"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert {mount["name"] for mount in mounts.values()} <= volumes.keys()
    assert all("subPath" not in mount for mount in mounts.values())  # which would never change
    written = one(PODS[path], "ConfigMap")["metadata"]["name"]
    source = volumes[mounts["/etc/pulsar-ingress-proxy"]["name"]]["configMap"]
    assert source == {"name": written, "optional": True}
    tls = read.brokers.tls
    for place in (read.events.path, read.kubernetes.state_path, tls.ca, tls.certificate, tls.key):
        assert place is None or any(place.startswith(f"{mount}/") for mount in mounts), place
    token = volumes.get(mounts.get("/var/run/secrets/kubernetes.io/serviceaccount", {}).get("name", ""), {})
    assert "projected" not in token
