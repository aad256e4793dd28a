"""The gateway's pod as istiod's webhook lets it in, for each way in which the sidecar comes into it."""

import json
from typing import Any

import pytest
from apiclient import Object
from istio_cluster import GATEWAY_POD
from istio_meshes import WAYS, Mesh
from istio_program import named


@pytest.fixture(params=WAYS)
def pod(mesh: Mesh, request: pytest.FixtureRequest) -> Object:
    found: Object = named(mesh.gateway(request.param), "Pod", GATEWAY_POD)
    return found


def container(pod: Object, kind: str, name: str) -> Any:
    (found,) = (each for each in pod["spec"][kind] if each["name"] == name)
    return found


def test_sidecar_starts_before_envoy_and_has_no_readiness_or_liveness_probe(pod: Object) -> None:
    sidecar = container(pod, "initContainers", "pulsar-ingress-proxy")
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["args"][-1] == "--hold"
    assert "readinessProbe" not in sidecar
    assert "livenessProbe" not in sidecar
    assert [each["name"] for each in pod["spec"]["containers"]] == ["istio-proxy"]
    assert container(pod, "containers", "istio-proxy")["image"] != "auto"  # the webhook was here


def test_sidecar_startup_probe_is_not_rewritten_to_the_istio_agent(pod: Object) -> None:
    """Istio leads HTTP probes to its agent, in a container that starts only after this one."""
    sidecar = container(pod, "initContainers", "pulsar-ingress-proxy")
    asked = sidecar["startupProbe"].get("httpGet", {})
    assert not str(asked.get("path", "")).startswith("/app-health/")
    agent = {each["name"]: each.get("value", "") for each in container(pod, "containers", "istio-proxy")["env"]}
    assert "pulsar-ingress-proxy" not in agent.get("ISTIO_KUBE_APP_PROBERS", "")


def test_istios_agent_writes_certificates_where_the_sidecar_reads_them(pod: Object) -> None:
    agent, sidecar = (
        container(pod, "containers", "istio-proxy"),
        container(pod, "initContainers", "pulsar-ingress-proxy"),
    )
    variables = {each["name"]: each.get("value", "") for each in agent["env"]}
    folder = variables.get("OUTPUT_CERTS")
    assert folder == "/etc/istio-certs"
    (written,) = (each for each in agent["volumeMounts"] if each["mountPath"] == folder)
    (found,) = (each for each in sidecar["volumeMounts"] if each["mountPath"] == folder)
    assert not written.get("readOnly")
    assert (found["name"], found["readOnly"]) == (written["name"], True)
    (volume,) = (each for each in pod["spec"]["volumes"] if each["name"] == found["name"])
    assert volume["emptyDir"]["medium"] == "Memory"


def test_service_account_token_of_the_gateway_is_not_mounted_in_the_sidecar(pod: Object) -> None:
    """Kubernetes mounts the ServiceAccount's token into every container that has nothing else in its place."""
    place = "/var/run/secrets/kubernetes.io/serviceaccount"
    sidecar = container(pod, "initContainers", "pulsar-ingress-proxy")
    (mount,) = (each for each in sidecar["volumeMounts"] if each["mountPath"] == place)
    (volume,) = (each for each in pod["spec"]["volumes"] if each["name"] == mount["name"])
    assert volume.keys() == {"name", "emptyDir"}


def test_every_mount_has_a_volume_and_envoy_keeps_its_own_volumes(pod: Object) -> None:
    volumes = [each["name"] for each in pod["spec"]["volumes"]]
    assert len(volumes) == len(set(volumes))
    for each in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]):
        assert {mount["name"] for mount in each["volumeMounts"]} <= set(volumes)
    assert {"workload-socket", "credential-socket", "istio-token", "istiod-ca-cert"} <= set(volumes)
    assert json.dumps(pod).count("pulsar-ingress-proxy-config") >= 2
