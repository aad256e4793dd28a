"""All kinds together: when conclusions are drawn, how many, and what metrics and log say of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from fake_api import BUILT_IN, INGRESSES, FakeApi, ingress_parts, says, serving_api

from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.discovery.api_client import KubernetesApi, Patience
from pulsar_ingress_proxy.discovery.credentials import Credentials
from pulsar_ingress_proxy.discovery.informers import InformerSet
from pulsar_ingress_proxy.discovery.reconciler.store import ObjectStore
from pulsar_ingress_proxy.observability.catalogue import Metric, Sidecar
from pulsar_ingress_proxy.observability.metrics import Metrics, Number
from pulsar_ingress_proxy.routing.discovered import Discovered

QUICK = Patience(first_pause=0.01, longest_pause=0.02, absent=0.02, gather=0.01)
GATEWAY_API = "gateway.networking.k8s.io"
PODS = BUILT_IN["Pod"].format("pulsar")
ROUTES = f"/apis/{GATEWAY_API}/v1/namespaces/pulsar/httproutes"


class News:
    """What was found, each time it was another."""

    def __init__(self) -> None:
        self.all: list[Discovered] = []
        self.zones: list[str | None] = []
        self._more = asyncio.Event()

    def __call__(self, discovered: Discovered, zone: str | None) -> None:
        self.all.append(discovered)
        self.zones.append(zone)
        self._more.set()

    async def number(self, count: int) -> Discovered:
        while len(self.all) < count:
            self._more.clear()
            await self._more.wait()
        return self.all[count - 1]

    @property
    def hosts(self) -> list[list[str]]:
        return [sorted(host for ingress in found.ingresses for host in ingress.hosts) for found in self.all]


class Log(logging.Handler):
    """What is logged, for a test to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._more = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self._more.set()

    async def until(self, text: str) -> None:
        while not any(text in line for line in self.lines):
            self._more.clear()
            await self._more.wait()


@pytest.fixture
def said() -> Iterator[Log]:
    logger, one = logging.getLogger("proxy.discovery"), Log()
    level = logger.level
    logger.addHandler(one)
    logger.setLevel(logging.INFO)
    yield one
    logger.removeHandler(one)
    logger.setLevel(level)


class Telling(Number):
    """A metric whose changes can be waited for."""

    def __init__(self, of: Metric) -> None:
        super().__init__(of)
        self.changed = asyncio.Event()

    def add(self, *labels: str, by: float = 1) -> None:
        super().add(*labels, by=by)
        self.changed.set()

    def set(self, value: float, *labels: str) -> None:
        super().set(value, *labels)
        self.changed.set()

    def drop(self, *labels: str) -> None:
        super().drop(*labels)
        self.changed.set()


class Watched:
    """A cluster that is watched, and what has come of it so far."""

    def __init__(self, cluster: KubernetesApi, **kubernetes: Any) -> None:
        config = load_mapping(
            {
                "brokers": {"webServiceUrl": ["http://pulsar-broker:8080"]},
                "kubernetes": {"enabled": True, **kubernetes},
            }
        )
        self.metrics = Metrics("pulsar")
        self._synced = self.metrics.discovery_synced = Telling(Sidecar.discovery_synced)
        self._refused = self.metrics.discovery_restarts = Telling(Sidecar.discovery_restarts)
        self.news = News()
        self.task = asyncio.create_task(InformerSet(config, cluster, self.metrics, self.news).run())

    def synced(self, kind: str) -> float | None:
        return self._synced.values.get((kind,))

    async def until_synced(self, kind: str, value: float | None = 1) -> None:
        while self.synced(kind) != value:
            self._synced.changed.clear()
            await self._synced.changed.wait()

    async def until_refused(self, kind: str, reason: str, times: int = 1) -> None:
        while self._refused.values.get((kind, reason), 0) < times:
            self._refused.changed.clear()
            await self._refused.changed.wait()


@asynccontextmanager
async def watching(api: FakeApi, folder: Path, patience: Patience = QUICK, **kubernetes: Any) -> AsyncIterator[Watched]:
    cluster = KubernetesApi(Credentials(str(api.kubeconfig(folder))), patience)
    await cluster.connect()
    watched = Watched(cluster, **kubernetes)
    try:
        yield watched
    finally:
        watched.task.cancel()
        await asyncio.gather(watched.task, return_exceptions=True)
        await cluster.close()


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeApi]:
    for name in ("POD_NAME", "POD_NAMESPACE", "NODE_ZONE", "NODE_NAME"):
        monkeypatch.delenv(name, raising=False)
    one = FakeApi()
    one.serve_built_in()
    async with serving_api(one):
        yield one


async def test_nothing_is_pushed_before_every_kind_has_been_listed(api: FakeApi, tmp_path: Path) -> None:
    await api.put(INGRESSES, "public", **ingress_parts("pulsar.example.com"))
    api.script[PODS].extend([says(500)] * 3)
    async with watching(api, tmp_path) as watched:
        await watched.news.number(1)
        for kind in BUILT_IN:
            await watched.until_synced(kind)
    assert watched.news.hosts == [["pulsar.example.com"]]
    assert watched.metrics.discovery_restarts.values["Pod", "unreachable"] == 3
    assert dict(watched.metrics.discovery_synced.values) == {}


async def test_empty_cluster_still_pushes_an_empty_result(api: FakeApi, tmp_path: Path) -> None:
    async with watching(api, tmp_path) as watched:
        assert (await watched.news.number(1)).ingresses == ()


async def test_changes_that_come_together_are_pushed_as_one_update(api: FakeApi, tmp_path: Path) -> None:
    patience = Patience(first_pause=0.01, absent=1, gather=0.3)
    async with watching(api, tmp_path, patience) as watched:
        await watched.news.number(1)
        for number in range(20):
            await api.put(INGRESSES, f"ingress-{number}", **ingress_parts(f"pulsar-{number}.example.com"))
        assert len((await watched.news.number(2)).ingresses) == 20
        await api.delete(INGRESSES, "ingress-7")
        assert len((await watched.news.number(3)).ingresses) == 19


async def test_irrelevant_object_changes_are_not_pushed(api: FakeApi, tmp_path: Path) -> None:
    await api.put(INGRESSES, "public", **ingress_parts("pulsar.example.com"))
    async with watching(api, tmp_path) as watched:
        await watched.news.number(1)
        await api.watched(INGRESSES)
        parts = ingress_parts("pulsar.example.com")
        await api.put(INGRESSES, "public", **parts, status={"loadBalancer": {}})
        parts["metadata"]["labels"] = {"team": "messaging"}
        await api.put(INGRESSES, "public", **parts)
        await api.put(INGRESSES, "unrelated", spec={"rules": [{"host": "shop.example.com"}]})
        await api.put(INGRESSES, "public", **ingress_parts("other.example.com"))
        await watched.news.number(2)
    assert watched.news.hosts == [["pulsar.example.com"], ["other.example.com"]]


async def test_missing_kinds_are_logged_in_one_line_and_watched_once_defined(
    api: FakeApi, tmp_path: Path, said: Log
) -> None:
    async with watching(api, tmp_path) as watched:
        await watched.news.number(1)
        assert watched.synced("HTTPRoute") is None
        api.define(GATEWAY_API, "v1", "gateways", "httproutes")
        await watched.until_synced("HTTPRoute")
        await watched.until_synced("Gateway")
        api.undefine(GATEWAY_API)
        for path in [path for path in api.watches if GATEWAY_API in path]:
            for watch in api.open(path):
                watch.cut()
        await watched.until_synced("HTTPRoute", None)
        await watched.until_synced("Gateway", None)
        api.define(GATEWAY_API, "v1", "httproutes")
        await watched.until_synced("HTTPRoute")
    assert said.lines[0] == (
        "the cluster does not serve Gateway, ListenerSet, HTTPRoute, TLSRoute, TCPRoute, IstioGateway, VirtualService; "
        "will retry"
    )
    assert sorted(said.lines[1:]) == [
        "the cluster does not serve Gateway; will retry",
        "the cluster does not serve HTTPRoute; will retry",
        "the cluster serves Gateway now",
        "the cluster serves HTTPRoute now",
        "the cluster serves HTTPRoute now",
    ]


@pytest.mark.parametrize(
    ("versions", "asked"),
    [(["v1alpha2", "v1"], "v1"), (["v1alpha2", "v1alpha3"], "v1alpha3"), (["v1alpha2"], "v1alpha2")],
)
async def test_a_kind_is_read_in_the_best_version_that_is_served(
    api: FakeApi, tmp_path: Path, versions: list[str], asked: str
) -> None:
    for version in versions:
        api.define(GATEWAY_API, version, "tlsroutes")
    async with watching(api, tmp_path) as watched:
        await watched.news.number(1)
        await watched.until_synced("TLSRoute")
    paths = {request.path for request in api.requests if request.path.endswith("/tlsroutes")}
    assert paths == {f"/apis/{GATEWAY_API}/{asked}/namespaces/pulsar/tlsroutes"}


async def test_forbidden_kind_is_logged_once_and_does_not_block_the_other_kinds(
    api: FakeApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await api.put(INGRESSES, "public", **ingress_parts("pulsar.example.com"))
    api.script[PODS].extend([says(403, "pods is forbidden")] * 4)
    async with watching(api, tmp_path) as watched:
        await watched.news.number(1)
        await api.asked(PODS, 4)
        await watched.until_synced("Ingress")
        assert watched.synced("Pod") == 0
        await watched.until_synced("Pod")
    assert [record.getMessage() for record in caplog.records] == [
        "pods is forbidden: see deploy/rbac.yaml for what the sidecar has to be allowed"
    ]
    assert watched.metrics.discovery_restarts.values["Pod", "forbidden"] == 4


async def test_kind_is_watched_even_when_api_group_discovery_is_forbidden(api: FakeApi, tmp_path: Path) -> None:
    api.define(GATEWAY_API, "v1", "httproutes")
    group = f"/apis/{GATEWAY_API}"
    api.script[group].extend([says(403)] * 1000)
    async with watching(api, tmp_path) as watched:
        await watched.until_synced("HTTPRoute")
        assert watched.synced("HTTPRoute") == 1
    assert len(api.script[group]) < 1000
    assert api.to(f"{group}/v1") == []
    assert api.lists(ROUTES) == 1


async def test_kind_that_keeps_failing_is_waited_for_and_then_skipped(
    api: FakeApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As where the webhook is down that converts it."""
    api.define(GATEWAY_API, "v1", "httproutes")
    await api.put(INGRESSES, "public", **ingress_parts("pulsar.example.com"))
    api.script[ROUTES].extend([says(500, "conversion webhook failed")] * 1000)
    patience = Patience(first_pause=0.01, longest_pause=0.02, rest=0.2)
    async with watching(api, tmp_path, patience) as watched:
        await watched.news.number(1)
        assert watched.synced("HTTPRoute") == 0
        api.script[ROUTES].clear()
        await watched.until_synced("HTTPRoute")
    assert watched.news.hosts == [["pulsar.example.com"]]
    assert "HTTPRoute: not synced yet; continuing without" in caplog.text


async def test_nothing_is_pushed_when_api_server_dies_during_the_initial_lists(tmp_path: Path) -> None:
    api = FakeApi()
    api.serve_built_in()
    # Long enough that the server dies before it is over, however slow the machine, and over before the last refusal.
    patience = Patience(first_pause=0.1, longest_pause=0.2, rest=3)
    dying = asyncio.Event()

    async def late(request: web.Request) -> web.StreamResponse:
        await dying.wait()
        return await says(503)(request)

    async with AsyncExitStack() as stack:
        async with serving_api(api):
            await api.put(INGRESSES, "public", **ingress_parts("pulsar.example.com"))
            api.script[PODS].append(late)
            api.script[f"/apis/{GATEWAY_API}"].append(late)
            watched = await stack.enter_async_context(watching(api, tmp_path, patience))
            await api.watched(INGRESSES)
            dying.set()
        await watched.until_refused("Ingress", "unreachable", times=30)
        assert watched.news.all == []
        async with serving_api(api, api.port):
            await watched.news.number(1)
    assert watched.news.hosts == [["pulsar.example.com"]]


async def test_discovered_state_stays_in_force_while_the_api_server_is_away(tmp_path: Path, said: Log) -> None:
    api = FakeApi()
    api.serve_built_in()
    async with AsyncExitStack() as stack:
        async with serving_api(api):
            await api.put(INGRESSES, "public", **ingress_parts("pulsar.example.com"))
            watched = await stack.enter_async_context(watching(api, tmp_path))
            await watched.news.number(1)
            for kind in BUILT_IN:
                await watched.until_synced(kind)
        await watched.until_refused("Ingress", "unreachable")
        assert watched.synced("Ingress") == 0
        await api.put(INGRESSES, "second", **ingress_parts("second.example.com"))
        async with serving_api(api, api.port):
            await watched.news.number(2)
            await said.until("the API server is back")
            away, back = [line for line in said.lines if "the cluster does not serve" not in line]
    assert watched.news.hosts == [["pulsar.example.com"], ["pulsar.example.com", "second.example.com"]]
    assert away.endswith("; keeping the known objects")
    assert back == "the API server is back"


async def test_kind_is_synced_only_when_it_is_watched_in_every_namespace(api: FakeApi, tmp_path: Path) -> None:
    api.serve_built_in("other")
    elsewhere = BUILT_IN["Ingress"].format("other")
    await api.put(INGRESSES, "public", **ingress_parts("pulsar.example.com"))
    await api.put(elsewhere, "public", **ingress_parts("other.example.com"))
    async with watching(api, tmp_path, namespaces=["pulsar", "other"]) as watched:
        await watched.news.number(1)
        await watched.until_synced("Ingress")
        api.script[elsewhere].extend([says(403)] * 2)
        (await api.watched(elsewhere)).cut()
        await watched.until_synced("Ingress", 0)
        await watched.until_synced("Ingress")
        api.script[elsewhere].append(says(410))
        (await api.watched(elsewhere, 2)).cut()
        await api.watched(elsewhere, 3)
        await api.delete(elsewhere, "public")
        await watched.news.number(2)
    assert watched.news.hosts == [["other.example.com", "pulsar.example.com"], ["pulsar.example.com"]]


async def test_zone_is_pushed_with_the_discovered_state(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_ZONE", "eu-1a")
    async with watching(api, tmp_path, zoneProperty="rack") as watched:
        await watched.news.number(1)
    assert watched.news.zones == ["eu-1a"]


async def test_own_pod_request_is_retried_until_the_api_server_answers(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_NAME", "gateway-0")
    api.script[f"{PODS}/gateway-0"].extend([says(503)] * 3)
    async with watching(api, tmp_path) as watched:
        await watched.news.number(1)
    assert len(api.to(f"{PODS}/gateway-0")) == 4


async def test_object_that_raises_while_being_read_is_logged_and_left_out(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put = ObjectStore.put

    def stumble(self: ObjectStore, obj: Any) -> bool:
        if obj["metadata"]["name"] == "evil":
            raise KeyError("spec")
        return put(self, obj)

    monkeypatch.setattr(ObjectStore, "put", stumble)
    await api.put(INGRESSES, "evil")
    await api.put(INGRESSES, "public", **ingress_parts("pulsar.example.com"))
    async with watching(api, tmp_path) as watched:
        await watched.news.number(1)
        await api.watched(INGRESSES)
    assert watched.news.hosts == [["pulsar.example.com"]]
    assert "Ingress pulsar/evil cannot be read" in caplog.text
