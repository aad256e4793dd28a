"""What brokers say of themselves: simulated ones, asked over real sockets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from simulated.broker_api import Answer
from simulated.cluster import Hold, SimulatedCluster, always, dies, says

from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.discovery.admin import KIND, AdminPoller, BrokerAdmin, Unanswered, described, read_token
from pulsar_ingress_proxy.net.pool import BrokerPool
from pulsar_ingress_proxy.net.tls import BrokerTls
from pulsar_ingress_proxy.observability.metrics import Metrics
from pulsar_ingress_proxy.routing.discovered import NOTHING, Discovered
from pulsar_ingress_proxy.syntax.authorities import Authority
from pulsar_ingress_proxy.syntax.listeners import ServiceUrl, parse_service_url


class Round:
    """Makes a round of an AdminPoller when called, and keeps what was pushed."""

    def __init__(self, cluster: SimulatedCluster, pool: BrokerPool, reported: Discovered, **keys: Any) -> None:
        config = load_mapping({"brokers": {"webServiceUrl": [cluster.brokers[0].web], "discover": "admin", **keys}})
        self._places = {
            broker.name: ServiceUrl("http", "127.0.0.1", broker.web.rpartition(":")[2]) for broker in cluster.brokers
        }
        self.news: list[Discovered] = []
        self.metrics = Metrics("pulsar")
        self._rounds = AdminPoller(BrokerAdmin(config, pool, self._dial), self.metrics, reported, self.news.append)

    def _dial(self, name: Authority) -> ServiceUrl | None:
        return self._places.get(name.host)

    async def __call__(self) -> str | None:
        """Make one; why it failed, if it did."""
        try:
            await self._rounds.round()
        except Unanswered as refusal:
            self._rounds._failed(refusal)
            return refusal.reason
        return None

    @property
    def synced(self) -> float:
        return self.metrics.discovery_synced.values[KIND,]


@asynccontextmanager
async def rounds(cluster: SimulatedCluster, reported: Discovered = NOTHING, **keys: Any) -> AsyncIterator[Round]:
    config = load_mapping({"brokers": {"webServiceUrl": [cluster.brokers[0].web]}})
    yield Round(cluster, BrokerPool(5, BrokerTls(config)), reported, **keys)


async def test_admin_round_discovers_listeners_and_addresses_of_each_broker() -> None:
    async with SimulatedCluster(brokers=3) as cluster, rounds(cluster) as round:
        assert await round() is None
    (found,) = round.news
    assert [broker.names for broker in found.brokers] == [(broker.name,) for broker in cluster.brokers]
    first = found.brokers[0]
    assert {name: sorted(map(str, urls.values())) for name, urls in first.listeners.items()} == {
        "internal": [
            "http://pulsar-broker-0.pulsar-broker.pulsar.svc.cluster.local:8080",
            "pulsar://pulsar-broker-0.pulsar-broker.pulsar.svc.cluster.local:6650",
        ],
        "external": ["pulsar+ssl://broker-0.pulsar.example.com:6651"],
    }
    assert set(first.sources.values()) == {("admin", f"broker {cluster.brokers[0].id}")}
    assert found.listeners == {"internal", "external"}
    assert round.synced == 1


async def test_unchanged_admin_answers_are_not_pushed_again() -> None:
    async with SimulatedCluster(brokers=2) as cluster, rounds(cluster) as round:
        for _ in range(3):
            await round()
        assert len(round.news) == 1
        del cluster.brokers[1].listeners["external"]
        await round()
    assert len(round.news) == 2
    assert [("external" in broker.listeners) for broker in round.news[-1].brokers] == [True, False]


async def test_admin_token_file_is_read_again_for_every_round(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    async with SimulatedCluster(brokers=1, token="new") as cluster, rounds(cluster, adminTokenFile=str(token)) as round:
        assert await round() == "unauthorized"
        assert round.synced == 0
        token.write_text("new\n")
        assert await round() is None
    assert round.synced == 1
    asked = cluster.brokers[0].requests
    assert [request.header("Authorization") for request in asked] == ["Bearer old", "Bearer new", "Bearer new"]


async def test_token_is_not_sent_over_plain_http_when_the_pool_uses_tls() -> None:
    config = load_mapping({"brokers": {"webServiceUrl": ["https://pulsar-broker:8443"]}})
    pool = BrokerPool(5, BrokerTls(config))
    asking = BrokerAdmin(config, pool, lambda name: parse_service_url(f"http://{name}"))
    with pytest.raises(Unanswered, match="no token is sent there"):
        await asking.broker(Authority("broker-0", 8080), "secret")


async def test_no_authorization_header_is_sent_without_a_token_file() -> None:
    async with SimulatedCluster(brokers=1) as cluster, rounds(cluster) as round:
        await round()
    assert {request.header("Authorization") for request in cluster.brokers[0].requests} == {None}


async def test_unreachable_broker_keeps_its_last_known_state_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with SimulatedCluster(brokers=3) as cluster, rounds(cluster) as round:
        await round()
        await cluster.brokers[2].stop()
        cluster.metadata.alive.add(2)
        for _ in range(2):
            assert await round() == "unreachable"
        assert round.synced == 0
    assert len(round.news) == 1
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


async def test_known_listeners_stay_empty_until_every_broker_has_answered() -> None:
    """Or a listener that only the silent one has would be refused."""
    async with SimulatedCluster(brokers=2) as cluster, rounds(cluster) as round:
        cluster.brokers[1].script.append(dies())
        assert await round() == "unreachable"
        assert round.news[-1].listeners == frozenset()
        assert len(round.news[-1].brokers) == 1
        await round()
    assert round.news[-1].listeners == {"internal", "external"}


async def test_brokers_that_have_gone_are_forgotten() -> None:
    async with SimulatedCluster(brokers=2) as cluster, rounds(cluster) as round:
        await round()
        await cluster.brokers[1].stop()
        cluster.expire(1)
        assert await round() is None
    assert [broker.names for broker in round.news[-1].brokers] == [(cluster.brokers[0].name,)]


async def test_restored_admin_state_is_kept_while_no_broker_answers() -> None:
    async with SimulatedCluster(brokers=1) as cluster, rounds(cluster) as round:
        await round()
    async with SimulatedCluster(brokers=1) as cluster, rounds(cluster, round.news[0]) as later:
        cluster.brokers[0].script.append(always(says(Answer(503, b"starting", "text/plain"))))
        assert await later() == "refused"
        assert later.news == []
        cluster.brokers[0].script.clear()
        assert await later() is None
    assert later.news == []


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b"[]", b'["not a broker/"]', b"[" * 100_000])
async def test_malformed_broker_list_fails_the_round_and_changes_nothing(body: bytes) -> None:
    async with SimulatedCluster(brokers=1) as cluster, rounds(cluster) as round:
        cluster.brokers[0].script.append(says(Answer(200, body, "application/json")))
        assert await round() == "garbled"
    assert round.news == []


@pytest.mark.parametrize(
    ("runtime", "listeners"),
    [
        ({}, {}),
        ({"advertisedListeners": None}, {}),
        ({"advertisedListeners": "null", "webServicePort": "Optional[8080]"}, {"internal": ["http://broker-0:8080"]}),
        (
            {"webServicePort": "Optional.empty", "webServicePortTls": "Optional[8443]"},
            {"internal": ["https://broker-0:8443"]},
        ),
        (
            {"advertisedListeners": "internal:http://elsewhere:80,external:pulsar://b:6650", "webServicePort": 8080},
            {"internal": ["http://elsewhere:80"], "external": ["pulsar://b:6650"]},
        ),
        (
            {"advertisedListeners": "external:pulsar://b:6650,external:kafka+ssl://b:9093"},
            {"external": ["pulsar://b:6650", "kafka+ssl://b:9093"]},
        ),
    ],
)
def test_listeners_are_read_from_the_runtime_configuration_of_a_broker(
    runtime: dict[str, Any], listeners: dict[str, list[str]]
) -> None:
    broker = described(Authority("broker-0", 8080), runtime, "internal")
    assert {name: [*map(str, urls.values())] for name, urls in broker.listeners.items()} == listeners
    assert broker.sources.keys() == {(name, url.partition(":")[0]) for name in listeners for url in listeners[name]}


def test_invalid_advertised_listeners_of_a_broker_are_reported() -> None:
    with pytest.raises(Unanswered, match=r"broker-0:8080: .*ftp"):
        described(Authority("broker-0", 8080), {"advertisedListeners": "external:ftp://b:21"}, "internal")
    with pytest.raises(Unanswered, match="template"):
        described(Authority("broker-0", 8080), {"advertisedListeners": "external:http://{n}:80"}, "internal")


@pytest.mark.parametrize("text", ["", " \n", "two words", "line\r\nHost: evil", "sécret"])
def test_malformed_or_missing_token_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(Unanswered, match="adminTokenFile"):
        read_token(str(tmp_path / "token"))
    with pytest.raises(Unanswered, match="cannot be read"):
        read_token(str(tmp_path / "missing"))


async def test_admin_rounds_repeat_until_cancelled_and_drop_their_synced_metric(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pulsar_ingress_proxy.discovery.admin._EVERY", 0.01)
    third = Hold()
    async with SimulatedCluster(brokers=1) as cluster, rounds(cluster) as round:
        answer = says(Answer(200, f'["{cluster.brokers[0].id}"]'.encode(), "application/json"))
        config = says(Answer(200, b"{}", "application/json"))
        cluster.brokers[0].script.extend([answer, config, answer, config, third])
        task = asyncio.create_task(round._rounds.run())
        await third.reached.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert len(round.news) == 1
    assert (KIND,) not in round.metrics.discovery_synced.values
