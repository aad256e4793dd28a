"""The manifests in deploy/: configs are good, and what pages name is there."""

import re
from pathlib import Path

import pytest
import yaml
from deployed import CONFIGS, FILES, NEEDED, ROOT, config, documents, every_config, name

from pulsar_ingress_proxy.cli import main
from pulsar_ingress_proxy.routing.snapshot import build
from pulsar_ingress_proxy.tools.config_warnings import config_warnings

PAGES = ("docs/install.md", "docs/gateways.md", "docs/without.md", "docs/runbooks/sidecar-down.md")


def test_every_gateway_has_a_config() -> None:
    assert {Path(place).parts[0] for place in CONFIGS} == {"ingress-nginx", "compose"}


@pytest.mark.parametrize("path", FILES, ids=name)
def test_deploy_files_are_kubernetes_objects_unless_values_or_compose_files(path: Path) -> None:
    found = documents(path)
    assert found
    if path.name.endswith("values.yaml") or "compose" in path.parts:
        return
    for document in found:
        assert {"apiVersion", "kind", "metadata"} <= document.keys()
        assert document["metadata"]["name"]
        assert document["metadata"]["namespace"]


@every_config
def test_deploy_configs_pass_check_without_unexpected_warnings(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIGS[place])
    assert main(["check", "--no-files", "--config", str(path)]) == 0, capsys.readouterr().err
    warnings = {warning.partition(":")[0] for warning in config_warnings(build(config(place)))}
    assert warnings <= {"brokers.tls.certificate"}


@every_config
def test_public_ingresses_expose_only_what_clients_need(place: str) -> None:
    read = config(place)
    assert read.ingresses
    for ingress in read.ingresses:
        assert ingress.expose is not None
        assert list(ingress.expose) == NEEDED
        assert ingress.allowed_listeners == (ingress.listener,)


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


def test_without_page_has_the_same_redirect_script_for_istio_and_envoy_gateway() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/without.md").read_text(), re.DOTALL)
    objects = {each["kind"]: each for block in blocks for each in yaml.safe_load_all(block)}
    value = objects["EnvoyFilter"]["spec"]["configPatches"][0]["patch"]["value"]
    (policy,) = objects["EnvoyExtensionPolicy"]["spec"]["lua"]
    assert value["typed_config"]["default_source_code"]["inline_string"] == policy["inline"]
