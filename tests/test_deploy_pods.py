"""The container in deploy/: it cannot harm the gateway beside it, and has what its config names."""

import json

import pytest
import yaml
from deployed import config, documents, one, patched_pod

from pulsar_ingress_proxy import __version__

PODS = {
    "istio/gateway-sidecar.patch.yaml": "istio/configmap.yaml",
    "envoy-gateway/envoyproxy.yaml": "envoy-gateway/configmap.yaml",
    "envoy-gateway/discovery/envoyproxy.yaml": "envoy-gateway/discovery/configmap.yaml",
    "traefik/traefik-values.yaml": "traefik/configmap.yaml",
    "ingress-nginx/ingress-nginx-values.yaml": "ingress-nginx/configmap.yaml",
}
# Of Istio's agent and Envoy, Envoy Gateway's, Traefik and nginx with their charts' values, and of those that serve.
TAKEN = {80, 443, 6651, 8000, 8080, 8181, 8443, 9100, *range(10245, 10255), *range(15000, 15100), *range(19000, 19004)}


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
    if path.startswith("istio"):  # its webhook leads probes over HTTP through a container that starts after this one
        assert container["startupProbe"].keys().isdisjoint({"httpGet", "tcpSocket", "grpc"})
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
    if read.kubernetes.enabled:
        assert "projected" in token
        assert "/etc/podinfo" in mounts
    else:
        assert "projected" not in token


def test_istio_agent_writes_certificates_where_the_sidecar_reads_them() -> None:
    (patch,) = documents("istio/gateway-sidecar.patch.yaml")
    annotations = patch["spec"]["template"]["metadata"]["annotations"]
    folder = yaml.safe_load(annotations["proxy.istio.io/config"])["proxyMetadata"]["OUTPUT_CERTS"]
    tls = config("istio/configmap.yaml").brokers.tls
    assert (tls.certificate, tls.key, tls.ca) == (
        f"{folder}/cert-chain.pem",
        f"{folder}/key.pem",
        f"{folder}/root-cert.pem",
    )
    (agent,) = patch["spec"]["template"]["spec"]["containers"]
    assert agent["volumeMounts"] == [{"name": "istio-certs", "mountPath": folder}]
    assert {url.scheme for url in config("istio/configmap.yaml").web_pool} == {"https"}


def test_discovery_adds_only_pod_info_and_a_token_to_the_container() -> None:
    (plain,) = patched_pod("envoy-gateway/envoyproxy.yaml")["initContainers"]
    (discovering,) = patched_pod("envoy-gateway/discovery/envoyproxy.yaml")["initContainers"]
    assert {variable["name"] for variable in discovering.pop("env")} == {"POD_NAME", "POD_NAMESPACE", "NODE_NAME"}
    more = [mount for mount in discovering["volumeMounts"] if mount not in plain["volumeMounts"]]
    discovering["volumeMounts"] = [mount for mount in discovering["volumeMounts"] if mount not in more]
    assert discovering == plain
    assert {mount["mountPath"] for mount in more} == {"/var/run/secrets/kubernetes.io/serviceaccount", "/etc/podinfo"}
