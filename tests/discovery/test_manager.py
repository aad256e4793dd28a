"""Discovery in a sidecar that runs: what is found comes into force, survives reloads and restarts, and hurts nobody."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from fake_api import BUILT_IN, INGRESSES, FakeApi, ingress_parts, serving_api
from simulated.cluster import SimulatedCluster

from pulsar_ingress_proxy.app.sidecar import Sidecar
from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.discovery import manager
from pulsar_ingress_proxy.routing.discovered import NOTHING
from pulsar_ingress_proxy.tools.preflight import CannotStart

LOOKUP = "/lookup/v2/topic/persistent/public/default/orders"


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POD_NAME", "POD_NAMESPACE", "NODE_ZONE", "NODE_NAME", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    """Not serving yet."""
    one = FakeApi()
    one.serve_built_in()
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    return one


@asynccontextmanager
async def reachable(api: FakeApi, folder: Path) -> AsyncIterator[None]:
    async with serving_api(api, api.port):
        api.kubeconfig(folder)
        yield


@pytest.fixture
async def brokers() -> AsyncIterator[SimulatedCluster]:
    async with SimulatedCluster(brokers=2) as cluster:
        yield cluster


class Place:
    """A sidecar, and the events of its life that tests wait for."""

    def __init__(self, brokers: SimulatedCluster, /, **keys: Any) -> None:
        self._brokers = brokers
        self._keys: dict[str, Any] = {
            "bindAddresses": ["http://127.0.0.1:0"],
            "metrics": {"address": "127.0.0.1:0"},
            "console": {"address": None},
            "brokers": {"webServiceUrl": [brokers.brokers[0].web]},
            "drainSeconds": 0,
        }
        self.sidecar = Sidecar(load_mapping({**self._keys, **keys}))
        self._installed = asyncio.Event()

    async def start(self) -> None:
        await self.sidecar.start()
        install = self.sidecar._context.install

        def installed(snapshot: Any) -> None:
            install(snapshot)
            self._installed.set()

        self.sidecar._context.install = installed  # type: ignore[method-assign]

    async def reload(self, **keys: Any) -> None:
        await self.sidecar.reload(load_mapping({**self._keys, **keys}))

    @property
    def hosts(self) -> list[str]:
        return sorted(host for ingress in self.sidecar.snapshot.ingresses for host in ingress.hosts)

    async def until_hosts(self, *hosts: str) -> None:
        while self.hosts != sorted(hosts):
            self._installed.clear()
            await self._installed.wait()

    async def until_known(self, *listeners: str) -> None:
        while self.sidecar.snapshot.known_listeners != set(listeners):
            self._installed.clear()
            await self._installed.wait()

    async def ask(self, host: str) -> tuple[int, Any]:
        url = f"http://127.0.0.1:{self.sidecar.http_servers[0].port}{LOOKUP}"
        async with (
            ClientSession() as session,
            session.get(url, headers={"Host": host}, allow_redirects=False) as answer,
        ):
            return answer.status, await answer.json(content_type=None)

    async def readiness(self) -> str:
        url = f"http://127.0.0.1:{self.sidecar.metrics_port}/readyz"
        async with ClientSession() as session, session.get(url) as answer:
            return (await answer.text()).strip()

    @property
    def tags(self) -> list[list[str]]:
        return [seen.values("X-Pulsar-ListenerName") for broker in self._brokers.brokers for seen in broker.requests]


@asynccontextmanager
async def running(brokers: SimulatedCluster, /, **keys: Any) -> AsyncIterator[Place]:
    place = Place(brokers, **keys)
    await place.start()
    try:
        yield place
    finally:
        await place.sidecar.stop()


WATCHED: dict[str, Any] = {"enabled": True}


async def test_ingress_takes_effect_when_its_object_is_created_and_ends_when_deleted(
    api: FakeApi, brokers: SimulatedCluster, tmp_path: Path
) -> None:
    brokers.own("persistent://public/default/orders", 0)
    async with reachable(api, tmp_path), running(brokers, kubernetes=WATCHED) as place:
        await api.watched(INGRESSES)
        assert (await place.ask("pulsar.example.com"))[0] == 200
        await api.put(INGRESSES, "public", **ingress_parts("pulsar.example.com"))
        await place.until_hosts("pulsar.example.com")
        assert (await place.ask("pulsar.example.com"))[0] == 200
        generation = place.sidecar.snapshot.generation
        await api.put(INGRESSES, "public", **ingress_parts("pulsar.example.com"), status={"loadBalancer": {}})
        await api.delete(INGRESSES, "public")
        await place.until_hosts()
    assert place.tags == [[], ["external"]]
    assert place.sidecar.snapshot.generation == generation + 1


async def test_sidecar_is_not_ready_before_the_cluster_has_been_seen(
    api: FakeApi, brokers: SimulatedCluster, tmp_path: Path
) -> None:
    async with reachable(api, tmp_path), running(brokers, kubernetes=WATCHED) as place:
        assert await place.readiness() == "not ready: discovery has not synced yet"
        await api.watched(BUILT_IN["Pod"].format("pulsar"))
        place._installed.clear()
        await api.put(INGRESSES, "public", **ingress_parts("pulsar.example.com"))
        await place.until_hosts("pulsar.example.com")
        assert await place.readiness() == "ok"


async def test_sidecar_becomes_ready_after_the_grace_period_without_a_cluster(
    api: FakeApi, brokers: SimulatedCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ready = asyncio.Event()

    class Sooner(manager.DiscoveryManager):
        def _be_ready(self, why: str = "") -> None:
            super()._be_ready(why)
            ready.set()

    monkeypatch.setattr("pulsar_ingress_proxy.app.sidecar.DiscoveryManager", Sooner)
    monkeypatch.setattr(manager, "_GRACE", 0.1)
    async with running(brokers, kubernetes=WATCHED) as place:
        await ready.wait()
        assert await place.readiness() == "ok"
        assert (await place.ask("pulsar.example.com"))[0] in (200, 307)
    assert "discovery has not synced yet; becoming ready anyway" in caplog.text


async def test_sidecar_starts_with_saved_state_while_the_api_server_is_away(
    api: FakeApi, brokers: SimulatedCluster, tmp_path: Path
) -> None:
    keys = {"enabled": True, "statePath": str(tmp_path / "state")}
    async with reachable(api, tmp_path):
        await api.put(INGRESSES, "public", **ingress_parts("pulsar.example.com"))
        async with running(brokers, kubernetes=keys) as place:
            await place.until_hosts("pulsar.example.com")
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(running(brokers, kubernetes=keys))
        assert place.hosts == ["pulsar.example.com"]
        assert await place.readiness() == "ok"
        await api.delete(INGRESSES, "public")
        await api.put(INGRESSES, "second", **ingress_parts("second.example.com"))
        await stack.enter_async_context(reachable(api, tmp_path))
        await place.until_hosts("second.example.com")


async def test_saved_state_follows_the_reloaded_config(api: FakeApi, brokers: SimulatedCluster, tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    tight = {"enabled": True, "statePath": state, "allowedHostSuffixes": ["example.org"]}
    async with reachable(api, tmp_path):
        await api.put(INGRESSES, "public", **ingress_parts("pulsar.example.com"))
        async with running(brokers, kubernetes={"enabled": True, "statePath": state}) as place:
            await place.until_hosts("pulsar.example.com")
            await place.reload(kubernetes=tight)
            assert place.hosts == ["pulsar.example.com"]  # until the cluster has been seen by the new one
            await place.until_hosts()
    known = json.loads((tmp_path / "state/discovery.json").read_text())["known"]
    assert known["observed"]["ingresses"] == []


async def test_reload_keeps_discovered_state_unless_discovery_is_disabled(
    api: FakeApi, brokers: SimulatedCluster, tmp_path: Path
) -> None:
    async with reachable(api, tmp_path):
        await api.put(INGRESSES, "public", **ingress_parts("pulsar.example.com"))
        async with running(brokers, kubernetes=WATCHED) as place:
            await place.until_hosts("pulsar.example.com")
            found = place.sidecar.discovered
            await place.reload(kubernetes=WATCHED, miss="reject")
            assert place.sidecar.discovered is found
            assert place.hosts == ["pulsar.example.com"]
            assert api.lists(INGRESSES) == 1
            await place.reload(kubernetes={"enabled": False})
            assert place.sidecar.discovered == NOTHING
            assert place.hosts == []
            await place.reload(kubernetes=WATCHED)
            await place.until_hosts("pulsar.example.com")


async def test_discovery_may_be_turned_on_by_a_reload(api: FakeApi, brokers: SimulatedCluster, tmp_path: Path) -> None:
    brokers.own("persistent://public/default/orders", 0)
    async with reachable(api, tmp_path), running(brokers) as place:
        await api.put(INGRESSES, "public", **ingress_parts("pulsar.example.com"))
        assert (await place.ask("pulsar.example.com"))[0] == 200
        assert (place.hosts, api.requests) == ([], [])
        await place.reload(kubernetes=WATCHED)
        await place.until_hosts("pulsar.example.com")
        assert place.hosts == ["pulsar.example.com"]
        assert (await place.ask("pulsar.example.com"))[0] == 200
    assert place.tags == [[], ["external"]]


async def test_zone_property_is_set_on_configured_and_discovered_ingresses(
    api: FakeApi, brokers: SimulatedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_ZONE", "eu-1a")
    ingresses = [{"name": "fixed", "hosts": ["fixed.example.com"], "listener": "external"}]
    async with reachable(api, tmp_path):
        await api.put(INGRESSES, "public", **ingress_parts("pulsar.example.com"))
        keys = {"enabled": True, "zoneProperty": "rack"}
        async with running(brokers, kubernetes=keys, ingresses=ingresses) as place:
            await place.until_hosts("fixed.example.com", "pulsar.example.com")
            assert [ingress.lookup_properties for ingress in place.sidecar.snapshot.ingresses] == [
                {"rack": "eu-1a"}
            ] * 2


async def test_discovery_conflicts_are_logged_once_and_counted(
    api: FakeApi, brokers: SimulatedCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with reachable(api, tmp_path):
        await api.put(INGRESSES, "public", **ingress_parts("pulsar.example.com"))
        for listener in ("external", "partner"):
            await api.put(INGRESSES, listener, **ingress_parts("whose.example.com", listener))
        async with running(brokers, kubernetes={"enabled": True, "brokerSelector": "app=broker"}) as place:
            await place.until_hosts("pulsar.example.com")
            await api.watched(INGRESSES)
            await api.put(INGRESSES, "second", **ingress_parts("second.example.com"))
            await place.until_hosts("pulsar.example.com", "second.example.com")
            assert place.sidecar.metrics.discovery_conflicts.values[()] == 2
            await api.delete(INGRESSES, "partner")
            await api.delete(INGRESSES, "second")
            await place.until_hosts("pulsar.example.com", "whose.example.com")
            assert place.sidecar.metrics.discovery_conflicts.values[()] == 1
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len([line for line in said if "used for neither" in line]) == 1


async def test_start_names_the_package_to_install_when_kubernetes_is_missing(
    brokers: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "kubernetes" else found(name))
    with pytest.raises(CannotStart, match=r"pip install 'pulsar-ingress-proxy\[kubernetes\]'"):
        await Place(brokers, kubernetes=WATCHED).start()


async def test_request_for_a_listener_that_no_broker_has_is_refused_with_400(brokers: SimulatedCluster) -> None:
    keys = {"webServiceUrl": [brokers.brokers[0].web], "discover": "admin"}
    ingresses = [{"name": "public", "hosts": ["pulsar.example.com"], "listener": "partner"}]
    book = [{"broker": broker.name, "listeners": f"internal:{broker.web}"} for broker in brokers.brokers]
    async with running(brokers, brokers=keys, ingresses=ingresses, advertisedListeners=book) as place:
        await place.until_known("internal", "external")
        status, body = await place.ask("pulsar.example.com")
        assert (status, body["reason"].partition(":")[0]) == (400, "unknown-listener")
        listeners = {name for broker in place.sidecar.discovered.brokers for name in broker.listeners}
    assert listeners == {"internal", "external"}
    assert place.sidecar.metrics.discovery_synced.values == {}
