"""What the sidecar knows of the pod it is in, and whom it asks for that."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fake_api import FakeApi, says, serving_api

from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.discovery.api_client import KubernetesApi, Refused
from pulsar_ingress_proxy.discovery.credentials import Credentials
from pulsar_ingress_proxy.discovery.informers import own_pod
from pulsar_ingress_proxy.routing.snapshot import build, in_zone

POD = "/api/v1/namespaces/pulsar/pods/gateway-0"
NODE = "/api/v1/nodes/node-7"
ZONE = "topology.kubernetes.io/zone"


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POD_NAME", "POD_NAMESPACE", "NODE_NAME", "NODE_ZONE", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with serving_api(FakeApi()) as one:
        collection, _, name = POD.rpartition("/")
        one.objects[collection][name] = {
            "metadata": {"name": name, "labels": {"istio": "ingressgateway"}},
            "spec": {"nodeName": "node-7"},
        }
        one.objects["/api/v1/nodes"]["node-7"] = {"metadata": {"name": "node-7", "labels": {ZONE: "eu-1a"}}}
        yield one


@pytest.fixture
async def cluster(api: FakeApi, tmp_path: Path) -> AsyncIterator[KubernetesApi]:
    one = KubernetesApi(Credentials(str(api.kubeconfig(tmp_path))))
    await one.connect()
    yield one
    await one.close()


def asked(api: FakeApi) -> list[str]:
    return [request.path for request in api.requests]


async def test_downward_api_supplies_namespace_labels_and_zone_without_api_requests(
    api: FakeApi, cluster: KubernetesApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = tmp_path / "labels"
    labels.write_text('app.kubernetes.io/name="gateway"\nistio="ingressgateway"\nempty=""\n')
    monkeypatch.setenv("POD_NAMESPACE", "gateways")
    monkeypatch.setenv("NODE_ZONE", "eu-1b")
    pod = await own_pod(cluster, with_zone=True, labels_file=labels)
    assert pod.namespace == "gateways"
    assert pod.labels == {"app.kubernetes.io/name": "gateway", "istio": "ingressgateway", "empty": ""}
    assert pod.zone == "eu-1b"
    assert asked(api) == []


async def test_zone_is_read_from_the_topology_label_in_the_labels_file(
    api: FakeApi, cluster: KubernetesApi, tmp_path: Path
) -> None:
    labels = tmp_path / "labels"
    labels.write_text(f'{ZONE}="eu-1c"\n')
    assert (await own_pod(cluster, with_zone=True, labels_file=labels)).zone == "eu-1c"
    assert asked(api) == []


async def test_own_pod_and_its_node_are_fetched_once_each_without_downward_api(
    api: FakeApi, cluster: KubernetesApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_NAME", "gateway-0")
    pod = await own_pod(cluster, with_zone=True, labels_file=tmp_path / "none")
    assert (pod.namespace, pod.labels, pod.zone) == ("pulsar", {"istio": "ingressgateway"}, "eu-1a")
    assert asked(api) == [POD, NODE]


async def test_node_is_not_fetched_when_no_zone_is_wanted(
    api: FakeApi, cluster: KubernetesApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_NAME", "gateway-0")
    assert (await own_pod(cluster, with_zone=False, labels_file=tmp_path / "none")).zone is None
    assert asked(api) == [POD]


@pytest.mark.parametrize("status", [403, 404])
async def test_forbidden_or_missing_pod_and_node_are_logged_and_skipped(
    api: FakeApi,
    cluster: KubernetesApi,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    status: int,
) -> None:
    monkeypatch.setenv("POD_NAME", "gateway-0")
    monkeypatch.setenv("NODE_NAME", "node-7")
    api.script[POD].append(says(status, "pods is not for you"))
    api.script[NODE].append(says(status, "nodes is not for you"))
    pod = await own_pod(cluster, with_zone=True, labels_file=tmp_path / "none")
    assert (pod.labels, pod.zone) == ({}, None)
    assert "pods is not for you; selectors are matched to no labels" in caplog.text
    assert "nodes is not for you; no zone is told" in caplog.text
    assert "the zone of node node-7 is not known: set NODE_ZONE" in caplog.text


async def test_reading_own_pod_raises_when_the_api_server_answers_503(
    api: FakeApi, cluster: KubernetesApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_NAME", "gateway-0")
    api.script[POD].append(says(503))
    with pytest.raises(Refused):
        await own_pod(cluster, with_zone=False, labels_file=tmp_path / "none")


async def test_no_api_request_is_made_outside_a_pod(api: FakeApi, cluster: KubernetesApi, tmp_path: Path) -> None:
    pod = await own_pod(cluster, with_zone=False, labels_file=tmp_path / "none")
    assert (pod.namespace, pod.labels) == ("pulsar", {})
    assert asked(api) == []


def test_zone_property_is_added_to_every_ingress_that_does_not_set_it() -> None:
    config = load_mapping(
        {
            "brokers": {"webServiceUrl": ["http://pulsar-broker:8080"]},
            "kubernetes": {"zoneProperty": "rack"},
            "ingresses": [
                {"name": "plain", "listener": "external", "lookupProperties": {"tier": "gold"}},
                {"name": "fixed", "listener": "external", "lookupProperties": {"rack": "eu-1z"}},
            ],
        }
    )
    found = {ingress.name: ingress.lookup_properties for ingress in in_zone(build(config), "eu-1a").ingresses}
    assert found == {"plain": {"rack": "eu-1a", "tier": "gold"}, "fixed": {"rack": "eu-1z"}}
    without = config.model_copy(update={"kubernetes": config.kubernetes.model_copy(update={"zone_property": None})})
    snapshot = build(without)
    assert in_zone(snapshot, "eu-1a") is snapshot
