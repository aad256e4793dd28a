"""The manifests in deploy/: configs are good, discovery finds what it should, and what pages name is there."""

import json
import re
from pathlib import Path

import pytest
import yaml
from deployed import CONFIGS, FILES, GATEWAYS, NEEDED, ROOT, config, documents, every_config, manifests, name, one

from pulsar_ingress_proxy.cli import main
from pulsar_ingress_proxy.discovery.reconciler.kinds import KINDS
from pulsar_ingress_proxy.routing.snapshot import build
from pulsar_ingress_proxy.tools.config_warnings import config_warnings

PAGES = ("docs/install.md", "docs/without.md", "docs/runbooks/sidecar-down.md")


def test_every_gateway_has_a_config() -> None:
    assert {Path(place).parts[0] for place in CONFIGS} == {*GATEWAYS, "compose"}


@pytest.mark.parametrize("path", FILES, ids=name)
def test_deploy_files_are_kubernetes_objects_unless_values_or_compose_files(path: Path) -> None:
    found = documents(path)
    assert found
    if path.name.endswith("values.yaml") or "compose" in path.parts:
        return
    for document in found:
        assert {"apiVersion", "kind", "metadata"} <= document.keys()
        assert document["metadata"]["name"]
        if document["kind"] not in ("Kustomization", "GatewayClass"):
            assert document["metadata"]["namespace"]


@every_config
def test_deploy_configs_pass_check_without_unexpected_warnings(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIGS[place])
    assert main(["check", "--no-files", "--config", str(path)]) == 0, capsys.readouterr().err
    doubts = {doubt.partition(":")[0] for doubt in config_warnings(build(config(place)))}
    assert doubts <= {"brokers.tls.certificate"}


@every_config
def test_public_ingresses_expose_only_what_clients_need(place: str) -> None:
    read = config(place)
    assert read.ingresses or read.kubernetes.enabled
    for ingress in read.ingresses:
        assert ingress.expose is not None
        assert list(ingress.expose) == NEEDED
        assert ingress.allowed_listeners == (ingress.listener,)
    if read.kubernetes.enabled:
        assert read.miss == "reject"
        assert read.kubernetes.allowed_host_suffixes


@pytest.mark.parametrize(
    ("gateway", "ingress", "binary"),
    [
        pytest.param("istio", "virtualservice/istio-ingress/pulsar", "derived, virtualservice/pulsar/broker-{n}"),
        pytest.param("envoy-gateway", "httproute/pulsar/pulsar", "derived, tlsroute/pulsar/broker-{n}"),
    ],
)
def test_discovery_finds_the_ingress_and_the_brokers(
    gateway: str, ingress: str, binary: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = manifests(gateway, tmp_path)
    assert main(["check", "--no-files", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"ingress   {ingress}: pulsar.example.com, *.pulsar.example.com -> external" in lines
    assert [line for line in lines if line.startswith("ingress")] == [line for line in lines if ingress in line]
    assert not [line for line in lines if line.startswith("conflict")]
    for n in range(3):
        assert f"broker    pulsar-broker-{n}.pulsar-broker.pulsar.svc.cluster.local" in lines
        address = f"pulsar+ssl://broker-{n}.pulsar.example.com:6651 ({binary.format(n=n)})"
        assert any(address in line for line in lines), address

    url = "https://broker-1.pulsar.example.com/lookup/v2/topic/persistent/public/default/orders"
    inside = "http://pulsar-broker-2.pulsar-broker.pulsar.svc.cluster.local:8080/lookup/v2/topic/persistent/a/b/c"
    assert main(["explain", *arguments, url, "--location", inside, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["ingress"], said["listener"], said["hit"]) == (ingress, "external", True)
    assert "//pulsar-broker-1." in said["upstream"]
    assert said["location"]["to"].startswith("https://broker-2.pulsar.example.com/lookup/")

    assert main(["explain", *arguments, "https://pulsar.example.com/admin/v2/clusters", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["reason"] == "not-exposed"


@pytest.mark.parametrize("gateway", ["istio", "envoy-gateway"])
def test_discovery_may_only_list_and_watch_its_kinds_in_its_namespaces(gateway: str) -> None:
    found = documents(f"{gateway}/discovery/rbac.yaml")
    roles = [each for each in found if each["kind"] == "Role"]
    wanted = {(kind.group, kind.plural, verb) for kind in KINDS for verb in ("list", "watch")}
    for role in roles:
        assert wanted == {
            (group, plural, verb)
            for rule in role["rules"]
            for group in rule["apiGroups"]
            for plural in rule["resources"]
            for verb in rule["verbs"]
        }
    namespaces = sorted(config(f"{gateway}/discovery/configmap.yaml").kubernetes.namespaces)
    assert sorted(role["metadata"]["namespace"] for role in roles) == namespaces
    bindings = [each for each in found if each["kind"] == "RoleBinding"]
    assert sorted(binding["metadata"]["namespace"] for binding in bindings) == namespaces
    (account,) = {(each["name"], each["namespace"]) for binding in bindings for each in binding["subjects"]}
    if gateway == "envoy-gateway":
        provider = one("envoy-gateway/envoyproxy.yaml", "EnvoyProxy")["spec"]["provider"]["kubernetes"]
        assert provider["envoyServiceAccount"]["name"] == account[0]
    assert account[1] == one(f"{gateway}/configmap.yaml", "ConfigMap")["metadata"]["namespace"]


def mentioned(text: str) -> set[str]:
    """Paths within the repository; a dot at the end is the sentence's."""
    return {path.rstrip(".") for path in re.findall(r"(?<![\w/.])((?:deploy|helm|docs|dashboards)/[\w./-]*\w)", text)}


@pytest.mark.parametrize("page", PAGES)
def test_paths_and_links_in_pages_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    for path in mentioned(text):
        assert (ROOT / path).exists(), path
    for link, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]+))?\)", text):
        target = (ROOT / page).parent / link if link else ROOT / page
        assert target.exists(), link
        if anchor:
            titles = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}, anchor


@pytest.mark.parametrize("path", FILES, ids=name)
def test_paths_named_in_comments_exist(path: Path) -> None:
    comments = "\n".join(re.findall(r"#(.*)", path.read_text()))
    for named in mentioned(comments):
        assert (ROOT / named).exists(), named


def test_resources_of_kustomizations_exist() -> None:
    for path in FILES:
        if path.name == "kustomization.yaml":
            (kustomization,) = documents(path)
            assert all((path.parent / each).exists() for each in kustomization["resources"])


def test_without_page_has_the_same_redirect_script_for_istio_and_envoy_gateway() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/without.md").read_text(), re.DOTALL)
    objects = {each["kind"]: each for block in blocks for each in yaml.safe_load_all(block)}
    value = objects["EnvoyFilter"]["spec"]["configPatches"][0]["patch"]["value"]
    (policy,) = objects["EnvoyExtensionPolicy"]["spec"]["lua"]
    assert value["typed_config"]["default_source_code"]["inline_string"] == policy["inline"]
