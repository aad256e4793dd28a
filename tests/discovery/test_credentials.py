"""As whom the cluster is reached: the pod's own account with a token that is replaced, and kubeconfigs."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme
import yaml
from fake_api import INGRESSES, FakeApi, says, serving_api
from kubernetes.aio.config import incluster_config

from pulsar_ingress_proxy.discovery import credentials
from pulsar_ingress_proxy.discovery.api_client import KubernetesApi, Refused
from pulsar_ingress_proxy.discovery.credentials import Credentials, NoCredentials


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the machine's own."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(credentials, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / ".kube/config"))


class Pod:
    """The files that a kubelet projects into a pod."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.token, self.ca, self.namespace = (folder / name for name in ("token", "ca.crt", "namespace"))
        monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(self.token))
        monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(self.ca))
        monkeypatch.setattr(credentials, "_NAMESPACE", self.namespace)
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        self.namespace.write_text("gateways")
        self.token.write_text("first")

    def trust(self, authority: trustme.CA) -> ssl.SSLContext:
        """Be given that CA; what a server of its shows."""
        self.ca.write_bytes(authority.cert_pem.bytes())
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        return context


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pod:
    return Pod(tmp_path, monkeypatch)


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with serving_api(FakeApi(INGRESSES)) as one:
        yield one


def tokens(api: FakeApi) -> list[str]:
    return [request.headers["Authorization"].lower() for request in api.requests]


async def test_pod_service_account_is_used_and_its_token_read_again_after_401(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = FakeApi(INGRESSES)
    async with serving_api(api, tls=pod.trust(trustme.CA())):
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(api.port))
        cluster = KubernetesApi(Credentials())
        await cluster.get(INGRESSES + "?limit=1")
        assert await cluster.home() == "gateways"
        pod.token.write_text("second")
        api.script[INGRESSES].append(says(401))
        with pytest.raises(Refused, match="no") as refused:
            await cluster.get(INGRESSES + "?limit=1")
        assert refused.value.reason == "unauthorized"
        await cluster.get(INGRESSES + "?limit=1")
        await cluster.close()
    assert tokens(api) == ["bearer first", "bearer first", "bearer second"]


async def test_a_ca_that_is_replaced_is_read_again(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = trustme.CA(), trustme.CA()
    shows_new, shows_old = pod.trust(new), pod.trust(old)
    api = FakeApi(INGRESSES)
    async with serving_api(api, tls=shows_old):
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(api.port))
        cluster = KubernetesApi(Credentials())
        await cluster.get(INGRESSES + "?limit=1")
    async with serving_api(api, api.port, shows_new):
        with pytest.raises(Refused) as refused:
            await cluster.get(INGRESSES + "?limit=1")
        assert refused.value.reason in ("unauthorized", "unreachable", "closed")
        with pytest.raises(Refused, match="certificate") as refused:
            await cluster.get(INGRESSES + "?limit=1")
        assert refused.value.reason == "unauthorized"
        pod.trust(new)
        await cluster.get(INGRESSES + "?limit=1")
    await cluster.close()


@pytest.mark.parametrize("file", ["token", "ca.crt"])
async def test_missing_service_account_token_or_ca_is_reported(
    pod: Pod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    pod.trust(trustme.CA())
    (tmp_path / file).unlink()
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(NoCredentials, match=r"the pod's service account: .* does not exist"):
        await KubernetesApi(Credentials()).connect()


async def test_kubeconfig_variable_beats_the_service_account_of_the_pod(
    pod: Pod, api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path, "messaging")))
    cluster = KubernetesApi(Credentials())
    await cluster.get(INGRESSES + "?limit=1")
    assert await cluster.home() == "messaging"
    assert tokens(api) == ["bearer secret"]
    await cluster.close()


async def test_named_kubeconfig_context_is_used_and_unknown_context_is_refused(api: FakeApi, tmp_path: Path) -> None:
    file = api.kubeconfig(tmp_path)
    config = yaml.safe_load(file.read_text())
    config["users"].append({"name": "other", "user": {"token": "other"}})
    config["contexts"].append({"name": "other", "context": {"cluster": "fake", "user": "other"}})
    file.write_text(yaml.safe_dump(config))
    cluster = KubernetesApi(Credentials(str(file), "other"))
    await cluster.get(INGRESSES + "?limit=1")
    assert (await cluster.home(), tokens(api)) == ("default", ["bearer other"])
    await cluster.close()
    with pytest.raises(NoCredentials, match=f"{file}: .*nowhere"):
        await KubernetesApi(Credentials(str(file), "nowhere")).connect()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "just words",
        "current-context: a",
        "{current-context: a, contexts: [], clusters: [], users: []}",
        "{current-context: a, contexts: [{name: a, context: {cluster: b}}], clusters: [], users: []}",
        "{current-context: a, contexts: 7, clusters: [], users: []}",
    ],
)
async def test_invalid_kubeconfig_is_reported_in_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(text)
    with pytest.raises(NoCredentials) as fault:
        await KubernetesApi(Credentials(str(file))).connect()
    assert str(fault.value).startswith(f"{file}: ")
    assert "\n" not in str(fault.value)


async def test_missing_kubeconfig_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NoCredentials, match=r"\.kube/config: there is no such file"):
        await KubernetesApi(Credentials()).connect()
    with pytest.raises(NoCredentials, match="/no/such/file: there is no such file"):
        await KubernetesApi(Credentials("/no/such/file")).connect()
    with pytest.raises(Refused, match="there is no such file") as refused:
        await KubernetesApi(Credentials()).get("/")
    assert refused.value.reason == "unauthorized"
