"""`routes.failOpen` of the chart: past the sidecar when it cannot be connected to, and only then."""

import asyncio
import re
from typing import Literal, get_args

import pytest
import yaml
from istio_cluster import GATEWAY_POD, HOST
from istio_meshes import Mesh
from istio_stack import IstioStack
from simulated.cluster import Hold
from test_istio_gateway import CLIENT_CALLS, GATEWAY_URL, LOOKUP, OTHER_CALLS, TOPIC, as_it_is

FAIL_OPEN = "outbound|18080||pulsar-ingress-proxy.fail-open.internal"
CLIENTS = 8
EACH_PHASE = 100

Phase = Literal["up", "falling", "down", "rising", "up again", "in between"]
Outcome = tuple[int, Literal["sidecar", "broker", "nobody"]]
"""A lookup's status, and who put the addresses into its answer."""


@pytest.fixture
async def failing_open(istio: IstioStack) -> IstioStack:
    istio.cluster.own(TOPIC, 1)
    await istio.open_gateway(fail_open=True)
    return istio


async def look_up(istio: IstioStack) -> Outcome:
    """The sidecar puts httpUrl on the listener too; a broker's is internal."""
    async with istio.client.get(GATEWAY_URL + LOOKUP, allow_redirects=False) as answer:
        if answer.status != 200:
            return answer.status, "nobody"
        found = await answer.json(content_type=None)
    assert found["brokerUrlTls"] == f"pulsar+ssl://broker-1.{HOST}:6651"
    return answer.status, "sidecar" if found["httpUrl"] == f"https://broker-1.{HOST}" else "broker"


async def bypassed(istio: IstioStack) -> int:
    """By the metric that PulsarIngressBypassed looks at, in its cluster alone."""
    metrics = await istio.gateway_metrics()
    found = re.findall(r'^envoy_cluster_upstream_rq_retry_success\{cluster_name="(.*)"\} (\d+)$', metrics, re.MULTILINE)
    ((cluster, number),) = found
    assert cluster == FAIL_OPEN
    return int(number)


async def test_lookups_go_to_brokers_while_the_sidecar_is_dead_and_back_when_it_lives(failing_open: IstioStack) -> None:
    istio = failing_open
    outcomes: dict[Phase, list[Outcome]] = {phase: [] for phase in get_args(Phase)}
    phase: Phase = "up"
    news = asyncio.Event()
    is_over = False

    async def client() -> None:
        while not is_over:
            begun = phase
            outcome = await look_up(istio)
            outcomes[phase if phase == begun else "in between"].append(outcome)
            news.set()

    async def enough() -> None:
        while len(outcomes[phase]) < EACH_PHASE:
            news.clear()
            await news.wait()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(CLIENTS):
            tasks.create_task(client())
        await enough()
        assert await bypassed(istio) == 0
        phase = "falling"
        istio.sidecar.kill()
        await istio.sidecar.ended()
        phase = "down"
        for broker in istio.cluster.brokers:
            broker.requests.clear()
        await enough()
        asked = [request for broker in istio.cluster.brokers for request in broker.requests]
        phase = "rising"
        await istio.restart_sidecar()
        phase = "up again"
        await enough()
        is_over = True

    assert set(outcomes["up"]) == set(outcomes["up again"]) == {(200, "sidecar")}
    assert set(outcomes["down"]) == {(200, "broker")}
    assert set(outcomes["rising"]) <= {(200, "broker"), (200, "sidecar")}
    lost = [each for each in (*outcomes["falling"], *outcomes["in between"]) if each[0] != 200]
    assert set(lost) <= {(503, "nobody")}  # a connection that the dying sidecar had, or its kernel accepted for it
    assert await bypassed(istio) >= sum(each.count((200, "broker")) for each in outcomes.values())
    assert {tuple(request.values("X-Pulsar-ListenerName")) for request in asked} == {("external",)}
    peers = {request.values("X-Forwarded-Client-Cert")[-1].rpartition("URI=")[2] for request in asked}
    assert peers == {istio.mesh.identity(istio.way)}


async def test_sidecar_that_sheds_load_with_503_is_not_bypassed(failing_open: IstioStack) -> None:
    istio = failing_open
    config = istio.volumes["pulsar-ingress-proxy-config"]
    settings = yaml.safe_load((config.path / "config.yaml").read_text())
    config.write({"config.yaml": yaml.safe_dump(settings | {"limits": {"inFlight": 1}})})
    await istio.sidecar.process.says("generation 2 is in force")
    holds = [Hold() for _ in istio.cluster.brokers]
    for hold, broker in zip(holds, istio.cluster.brokers, strict=True):
        broker.script.append(hold)
    held = asyncio.create_task(look_up(istio))
    await asyncio.wait(
        [asyncio.create_task(hold.reached.wait()) for hold in holds], return_when=asyncio.FIRST_COMPLETED
    )
    for _ in range(20):
        async with istio.client.get(GATEWAY_URL + LOOKUP) as answer:
            assert (answer.status, (await answer.json())["reason"].partition(":")[0]) == (503, "overloaded")
    assert sum(len(broker.requests) for broker in istio.cluster.brokers) == 1
    for hold in holds:
        hold.release.set()
    assert await held == (200, "sidecar")
    assert await bypassed(istio) == 0


async def test_only_what_clients_need_leads_past_a_dead_sidecar(failing_open: IstioStack) -> None:
    istio = failing_open
    istio.sidecar.kill()
    await istio.sidecar.ended()
    asked = [broker.requests for broker in istio.cluster.brokers]

    async def reaches(method: str, path: str) -> bool:
        for requests in asked:
            requests.clear()
        async with istio.client.request(method, as_it_is(path), allow_redirects=False) as answer:
            assert any(asked) or answer.status == 503
        return any(asked)

    for path in (LOOKUP, *CLIENT_CALLS):
        assert await reaches("GET", path), path
    for method, path in (*OTHER_CALLS, *(("DELETE", path) for path in (LOOKUP, *CLIENT_CALLS))):
        assert not await reaches(method, path), (method, path)


def test_istio_prefers_the_sidecar_and_uses_mutual_tls_only_towards_brokers(mesh: Mesh) -> None:
    """What istiod makes of it: two priorities, no ejection, retries of failed connections alone."""
    pushed = mesh.pushed(fail_open=True)[GATEWAY_POD]
    (cluster,) = (each for each in pushed["clusters"] if each["name"] == FAIL_OPEN)
    found = {
        endpoint["endpoint"]["address"]["socketAddress"]["address"]: (
            locality.get("priority", 0),
            endpoint.get("metadata", {})
            .get("filterMetadata", {})
            .get("envoy.transport_socket_match", {})
            .get("tlsMode"),
        )
        for locality in cluster["loadAssignment"]["endpoints"]
        for endpoint in locality["lbEndpoints"]
    }
    assert found == {"127.0.0.1": (0, None), "pulsar-broker.pulsar.svc.cluster.local": (1, "istio")}
    assert [each["name"] for each in cluster["transportSocketMatches"]] == ["tlsMode-istio", "tlsMode-disabled"]
    assert "healthChecks" not in cluster
    ejects = {key for key, value in cluster["outlierDetection"].items() if key.startswith("enforcing") and value}
    assert ejects == {"enforcingConsecutiveLocalOriginFailure"}
    assert cluster["outlierDetection"]["consecutiveLocalOriginFailure"] == 2**32 - 1
    (policy,) = {
        str(route["route"]["retryPolicy"]["retryOn"])
        for config in pushed["routes"]
        for host in config["virtualHosts"]
        for route in host["routes"]
        if route.get("route", {}).get("cluster") == FAIL_OPEN
    }
    assert policy == "connect-failure"
