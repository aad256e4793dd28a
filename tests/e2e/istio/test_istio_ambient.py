"""Ambient mode, as docs/gateways.md relies on it, by Istio's charts, controller and discovery server, ztunnel apart."""

import re
from pathlib import Path

import pytest
import yaml
from istio_cluster import CHART, GATEWAY_POD, PROJECT
from istio_meshes import BROKER_ADDRESSES, WAYS, Mesh
from istio_program import charts, named, rendered

MODE = "istio.io/dataplane-mode"


@pytest.fixture
def ambient_mesh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mesh:
    monkeypatch.setenv("PILOT_ENABLE_AMBIENT", "true")  # as Istio's ambient profile tells istiod
    return Mesh(tmp_path)


@pytest.mark.parametrize("way", WAYS)
def test_gateway_pod_stays_out_of_ambient_mode_also_where_its_namespace_is_in_it(ambient_mesh: Mesh, way: str) -> None:
    assert named(ambient_mesh.gateway(way), "Pod", GATEWAY_POD)["metadata"]["labels"][MODE] == "none"


def test_ztunnel_captures_no_pod_that_is_labelled_as_gateways_are(tmp_path: Path) -> None:
    values = {"ambient": {"enabled": True}}
    cni = rendered(charts(tmp_path) / "istio-cni", "istio-cni", "istio-system", values)
    selectors = yaml.safe_load(named(cni, "ConfigMap", "istio-cni-config")["data"]["AMBIENT_ENABLEMENT_SELECTOR"])
    labelled = {"matchLabels": {MODE: "ambient"}}
    unless_left_out = {"matchExpressions": [{"key": MODE, "operator": "NotIn", "values": ["none"]}]}
    assert selectors == [{"podSelector": labelled}, {"podSelector": unless_left_out, "namespaceSelector": labelled}]


def test_envoy_of_the_gateway_reaches_the_binary_port_of_ambient_brokers_through_tunnels(ambient_mesh: Mesh) -> None:
    pushed = ambient_mesh.pushed(ambient=True)[GATEWAY_POD]
    endpoints = [
        endpoint["endpoint"]["address"]
        for each in pushed["endpoints"]
        if each["clusterName"].startswith("outbound|6650||pulsar-ingress-proxy-istio-ingress-broker-")
        for part in each["endpoints"]
        for endpoint in part["lbEndpoints"]
    ]
    tunnels = [address["envoyInternalAddress"] for address in endpoints]
    assert {each["serverListenerName"] for each in tunnels} == {"connect_originate"}
    assert {each["endpointId"] for each in tunnels} == {f"{address}:6650" for address in BROKER_ADDRESSES.values()}


def test_values_of_the_gateways_page_put_the_proxy_into_ambient_mode() -> None:
    section = (PROJECT / "docs/gateways.md").read_text().partition("### Ambient mode\n")[2].partition("\n## ")[0]
    (values,) = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    made = rendered(CHART, "pulsar-ingress-proxy", "pulsar-proxy", yaml.safe_load(values))
    template = named(made, "Deployment", "pulsar-ingress-proxy")["spec"]["template"]
    assert template["metadata"]["labels"][MODE] == "ambient"
    assert f"`cluster.local/ns/pulsar-proxy/sa/{template['spec']['serviceAccountName']}`" in section
