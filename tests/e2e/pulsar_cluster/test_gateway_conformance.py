"""`conformance` from outside, through Envoy and the sidecar to real brokers: healthy, and with one thing broken."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from brokers import HOST
from cluster import Cluster
from gateways import sidecar, sidecar_config
from ownership import give, owner
from tls_gateway import BINARY, SIDECAR_BINARY_PORT, SIDECAR_WEB_PORT, WEB, book_line, envoy

ROLE, READER = "shop", "reader"
WEB_CHECKS = ("connect", "lookup", "redirects", "addresses", "brokers", "admin")
BINARY_CHECKS = ("connect", "lookup", "redirects", "addresses", "brokers")


def keys(cluster: Cluster, listener: str = "external") -> dict[str, object]:
    """Of the sidecar behind Envoy. It asks brokers that redirect to the leader as long as nobody has a topic."""
    leader = cluster.leader()
    others = [broker for broker in cluster.brokers if broker != leader]
    return {
        "bindAddresses": [
            f"http://127.0.0.1:{SIDECAR_WEB_PORT}", f"{listener}:pulsar://127.0.0.1:{SIDECAR_BINARY_PORT}",
        ],
        "brokers": {
            "webServiceUrl": [broker.web for broker in others],
            "brokerServiceUrl": [broker.service for broker in others],
        },
        "ingresses": [{"name": "public", "hosts": [HOST, f"*.{HOST}"], "listener": listener}],
        "advertisedListeners": [book_line(broker, listener) for broker in cluster.brokers],
        "timeouts": {"connect": 2},
    }  # fmt: skip


@pytest.fixture(scope="class")
def behind_envoy(cluster: Cluster) -> Iterator[None]:
    with envoy(cluster), sidecar(cluster, **keys(cluster)):
        yield


@pytest.fixture(scope="class")
def guarded_behind_envoy(guarded: Cluster) -> Iterator[None]:
    with envoy(guarded), sidecar(guarded, **keys(guarded)):
        yield


@pytest.fixture
def topic(namespace: str) -> str:
    """One that no broker has yet."""
    return f"persistent://{namespace}/orders"


def conformance(
    cluster: Cluster, topic: str, *arguments: str | Path, code: int, config: dict[str, object] | None = None
) -> list[dict[str, Any]]:
    """What the command finds outside, with the sidecar's config."""
    path = cluster.folder / "conformance.yaml"
    path.write_text(yaml.safe_dump(sidecar_config(cluster) | (config or keys(cluster))))
    program = Path(sys.executable).with_name("pulsar-ingress-proxy")
    options = ("--config", path, "--cacert", cluster.folder / "ca.crt", "--topic", topic, "--json")
    command = cluster.networks.outside.command(program, "conformance", *options, *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (code, ""), done.stdout + done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["checks"]
    return found


def failures(found: list[dict[str, Any]]) -> dict[str, str]:
    """The cause of each check that failed."""
    return {check["check"]: check["cause"] for check in found if check["result"] == "failed"}


def text(found: list[dict[str, Any]], check: str) -> str:
    return next(str(one["text"]) for one in found if one["check"] == check)


def token_file(cluster: Cluster, role: str) -> Path:
    path = cluster.folder / f"{role}.token"
    path.write_text(cluster.tokens.of(role))
    return path


@contextmanager
def without_name(cluster: Cluster, name: str) -> Iterator[None]:
    """A world outside that does not know this name."""
    hosts = Path("/etc/netns", cluster.networks.outside.name, "hosts")
    whole = hosts.read_text()
    hosts.write_text("".join(line for line in whole.splitlines(keepends=True) if line.split()[1] != name))
    try:
        yield
    finally:
        hosts.write_text(whole)


@pytest.mark.usefixtures("behind_envoy")
class TestHealthyGateway:
    def test_lookup_is_redirected_and_every_address_is_reached(self, cluster: Cluster, topic: str) -> None:
        found = conformance(cluster, topic, "--url", WEB, code=0)
        assert {check["check"]: check["result"] for check in found} == dict.fromkeys(WEB_CHECKS, "held")
        assert text(found, "redirects").startswith(f"to https://{cluster.leader().external_name}:8443")
        assert f"pulsar+ssl://{owner(cluster, topic).external_name}:6681" in text(found, "brokers")

    def test_message_comes_back_by_both_protocols(self, cluster: Cluster, topic: str) -> None:
        give(cluster, topic, cluster.leader())
        report = cluster.folder / "conformance.xml"
        found = conformance(cluster, topic, "--url", WEB, BINARY, "--produce", "--junit", report, code=0)
        checks = [*WEB_CHECKS, "produce", *BINARY_CHECKS, "produce"]
        assert [(check["check"], check["result"]) for check in found] == [(check, "held") for check in checks], found
        assert ElementTree.parse(report).getroot().get("tests") == str(len(checks))

    def test_broker_name_that_does_not_resolve_is_dns(self, cluster: Cluster, topic: str) -> None:
        give(cluster, topic, cluster.brokers[1])
        name = cluster.brokers[1].external_name
        with without_name(cluster, name):
            found = conformance(cluster, topic, "--url", WEB, code=1)
        assert failures(found) == {"brokers": "dns"}
        assert f"{name} does not resolve" in text(found, "brokers")

    def test_broker_that_does_not_answer_is_broker(self, cluster: Cluster, topic: str) -> None:
        """The others still know it as the owner, and Envoy still accepts connections for it."""
        broker = cluster.leader()
        give(cluster, topic, broker)
        config = keys(cluster)
        with cluster.paused(broker):
            found = conformance(cluster, topic, "--url", WEB, BINARY, code=1, config=config)
        assert [check["cause"] for check in found if check["check"] == "brokers"] == ["broker", "broker"]
        assert failures(found) == {"brokers": "broker"}
        assert f"pulsar+ssl://{broker.external_name}:6681: no answer: nothing within 2 s" in text(found, "brokers")

    def test_binary_redirect_past_the_sidecar_is_listener(self, cluster: Cluster, topic: str) -> None:
        """The broker that the client is sent to answers for its own port, so with an internal address."""
        found = conformance(cluster, topic, "--url", BINARY, code=1)
        [(check, cause)] = failures(found).items()
        assert check in ("redirects", "addresses")
        assert cause == "listener"
        assert "svc.cluster.local" in text(found, check)


def test_certificate_for_another_name_is_certificate(cluster: Cluster, topic: str) -> None:
    with envoy(cluster, certificate=["other.example.com"]), sidecar(cluster, **keys(cluster)):
        found = conformance(cluster, topic, "--url", WEB, code=1)
    assert failures(found) == {"connect": "certificate"}
    assert f"the certificate is not valid for {HOST}: Hostname mismatch" in text(found, "connect")


def test_broker_hosts_without_a_route_are_route(cluster: Cluster, topic: str) -> None:
    """The lookup is answered; Envoy has no route for the host that it is redirected to."""
    with envoy(cluster, routed=[HOST]), sidecar(cluster, **keys(cluster)):
        found = conformance(cluster, topic, "--url", WEB, code=1)
    assert failures(found) == {"redirects": "route"}
    assert f"https://{cluster.leader().external_name}:8443 answers 404, and not the sidecar" in text(found, "redirects")


def test_gateway_without_a_sidecar_is_route(cluster: Cluster, topic: str) -> None:
    with envoy(cluster):
        found = conformance(cluster, topic, "--url", WEB, BINARY, code=1)
    assert failures(found) == {"lookup": "route", "admin": "route", "connect": "route"}
    assert "answers 503, and not the sidecar: upstream connect error" in text(found, "lookup")


def test_listener_that_brokers_lack_is_listener(cluster: Cluster, topic: str) -> None:
    give(cluster, topic, cluster.brokers[0])
    config = keys(cluster, listener="partner")
    with envoy(cluster), sidecar(cluster, **config):
        found = conformance(cluster, topic, "--url", WEB, BINARY, code=1, config=config)
    assert failures(found) == {"lookup": "listener"}
    assert [check["cause"] for check in found if check["check"] == "lookup"] == ["listener", "listener"]
    assert "broker-lacks-listener" in text(found, "lookup")


def test_all_brokers_down_is_broker(cluster: Cluster, topic: str) -> None:
    """As the sidecar sees it: nothing listens where its brokers should be."""
    nowhere = {"webServiceUrl": ["http://127.0.0.1:1"], "brokerServiceUrl": ["pulsar://127.0.0.1:1"]}
    with envoy(cluster), sidecar(cluster, **keys(cluster) | {"brokers": nowhere}):
        found = conformance(cluster, topic, "--url", WEB, BINARY, code=1)
    assert failures(found) == {"lookup": "broker", "admin": "broker", "connect": "broker"}
    assert "broker-unreachable" in text(found, "lookup")


@pytest.mark.usefixtures("guarded_behind_envoy")
class TestTokens:
    """A cluster that wants them."""

    @pytest.fixture
    def cluster(self, guarded: Cluster) -> Cluster:
        return guarded

    @pytest.fixture
    def topic(self, cluster: Cluster, namespace: str) -> str:
        for role, actions in ((ROLE, ["produce", "consume"]), (READER, ["consume"])):
            url = f"{cluster.brokers[0].web}/admin/v2/namespaces/{namespace}/permissions/{role}"
            granted = cluster.request("POST", url, actions)
            assert granted.status == 204, granted
        return f"persistent://{namespace}/orders"

    def test_client_without_a_token_reaches_brokers_and_holds(self, cluster: Cluster, topic: str) -> None:
        found = conformance(cluster, topic, "--url", WEB, BINARY, "--produce", code=0)
        results = [(check["check"], check["result"]) for check in found]
        assert results[:2] == [("connect", "held"), ("lookup", "held")]
        assert results[5:7] == [("admin", "held"), ("produce", "skipped")]
        assert results[7:9] == [("connect", "held"), ("lookup", "skipped")]
        assert text(found, "lookup") == "reached, not allowed: 401"

    def test_client_with_a_token_produces_and_consumes(self, cluster: Cluster, topic: str) -> None:
        """Over HTTP first: the sidecar follows the redirects, and the topic has an owner then."""
        for url, checks in ((WEB, WEB_CHECKS), (BINARY, BINARY_CHECKS)):
            token = ("--token-file", token_file(cluster, ROLE))
            found = conformance(cluster, topic, "--url", url, "--produce", *token, code=0)
            assert {one["check"]: one["result"] for one in found} == dict.fromkeys((*checks, "produce"), "held"), found

    @pytest.mark.parametrize(("role", "check"), [("stranger", "lookup"), (READER, "produce")])
    def test_token_of_a_role_without_permission_is_credentials(
        self, cluster: Cluster, topic: str, role: str, check: str
    ) -> None:
        give(cluster, topic, cluster.brokers[0])
        token = ("--token-file", token_file(cluster, role))
        found = conformance(cluster, topic, "--url", WEB, BINARY, "--produce", *token, code=1)
        assert [one["cause"] for one in found if one["check"] == check] == ["credentials", "credentials"], found
