"""`check`, `explain` and `doctor` with a kubeconfig: one look at a cluster, or a line that says why there is none."""

import importlib.util
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_api import BUILT_IN, INGRESSES, FakeApi, ingress_parts, says, serving_api

from pulsar_ingress_proxy.cli import main
from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.discovery.informers import CannotList, list_store

KEYS: dict[str, Any] = {"brokers": {"webServiceUrl": ["http://pulsar-broker:8080"]}, "kubernetes": {"enabled": True}}
URL = "https://pulsar.example.com/lookup/v2/topic/persistent/public/default/orders"


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POD_NAME", "POD_NAMESPACE", "KUBERNETES_SERVICE_HOST", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    one = FakeApi()
    one.serve_built_in()
    async with serving_api(one):
        yield one


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(KEYS))
    return file


async def test_each_kind_is_listed_once_and_nothing_is_watched(api: FakeApi, tmp_path: Path) -> None:
    api.page = 1
    api.define("gateway.networking.k8s.io", "v1alpha2", "tlsroutes")
    for number in range(3):
        await api.put(INGRESSES, f"ingress-{number}", **ingress_parts(f"ingress-{number}.example.com"))
    store = await list_store(load_mapping(KEYS), str(api.kubeconfig(tmp_path)), None)
    assert [ingress.hosts for ingress in store.discovered().ingresses] == [
        ("ingress-0.example.com",),
        ("ingress-1.example.com",),
        ("ingress-2.example.com",),
    ]
    assert not any("watch" in request.query for request in api.requests)
    tls_routes = "/apis/gateway.networking.k8s.io/v1alpha2/namespaces/pulsar/tlsroutes"
    for path in (*(path.format("pulsar") for path in BUILT_IN.values()), tls_routes):
        assert api.lists(path) == 1


async def test_each_forbidden_kind_is_one_line_of_the_listing_error(api: FakeApi, tmp_path: Path) -> None:
    for kind in ("Pod", "Service"):
        api.script[BUILT_IN[kind].format("pulsar")].append(says(403, f"{kind} is forbidden"))
    with pytest.raises(CannotList) as fault:
        await list_store(load_mapping(KEYS), str(api.kubeconfig(tmp_path)), None)
    assert str(fault.value).splitlines() == ["Service is forbidden", "Pod is forbidden"]


async def test_server_error_while_listing_is_reported_with_its_message(api: FakeApi, tmp_path: Path) -> None:
    api.script[BUILT_IN["Pod"].format("pulsar")].append(says(500, "etcdserver: request timed out"))
    with pytest.raises(CannotList, match=r"^etcdserver: request timed out$"):
        await list_store(load_mapping(KEYS), str(api.kubeconfig(tmp_path)), None)


@pytest.mark.parametrize("command", [["check"], ["explain", URL], ["doctor"]], ids=["check", "explain", "doctor"])
@pytest.mark.parametrize(
    ("kubeconfig", "said"),
    [
        pytest.param("", "kubeconfig: ", id="no kubeconfig"),
        pytest.param("server: 'http://127.0.0.1:1'", "the API server cannot be reached: ", id="nobody there"),
    ],
)
def test_unreachable_cluster_or_bad_kubeconfig_prints_one_line_and_exits_2(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], kubeconfig: str, said: str
) -> None:
    file = tmp_path / "kubeconfig"
    cluster = f"{{name: a, cluster: {{{kubeconfig}}}}}"
    context = "{name: a, context: {cluster: a, user: a}}"
    users = "[{name: a, user: {token: a}}]"
    file.write_text(
        f"{{current-context: a, clusters: [{cluster}], contexts: [{context}], users: {users}}}" if kubeconfig else ""
    )
    assert main([*command, "--config", str(config), "--kubeconfig", str(file)]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert said in err


def test_check_names_the_package_to_install_when_kubernetes_is_missing(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["check", "--config", str(config), "--kubeconfig", "any"]) == 2
    assert "pip install 'pulsar-ingress-proxy[kubernetes]'" in capsys.readouterr().err


def test_manifests_and_kubeconfig_options_exclude_each_other(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["check", "--config", str(config), "--kubeconfig", "a", "--manifests", "b"])
    assert ended.value.code == 2
    assert "not allowed with argument" in capsys.readouterr().err


def test_importing_cli_and_sidecar_does_not_import_the_kubernetes_package() -> None:
    imported = "any(name.startswith('kubernetes') for name in sys.modules)"
    script = f"import sys, pulsar_ingress_proxy.cli, pulsar_ingress_proxy.app.sidecar; sys.exit({imported})"
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0
