"""Beside a real Envoy that Istio's own code has configured from the routes that our chart renders."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from istio_certificates import BROKER
from istio_cluster import GATEWAY_POD, HOST
from istio_meshes import WAYS, Mesh
from istio_stack import IstioStack, istio_stack
from yarl import URL

TOPIC = "persistent://public/default/orders"
LOOKUP = "/lookup/v2/topic/persistent/public/default/orders"
GATEWAY_URL = f"https://{HOST}"
CLIENT_CALLS = (  # the GETs that client libraries make beside lookups: `client` in the config's `expose`
    "/admin/v2/persistent/public/default/orders/partitions?checkAllowAutoCreation=true",
    "/admin/v2/non-persistent/public/default/orders/partitions",
    "/admin/v2/namespaces/public/default/topics?mode=PERSISTENT",
    "/admin/v2/schemas/public/default/orders/schema",
    "/admin/v2/schemas/public/default/orders/schema/3",
)
OTHER_CALLS = (
    ("GET", "/admin/v2/clusters"),
    ("DELETE", "/admin/v2/persistent/public/default/orders"),
    ("GET", "/admin/v2/persistent/public/default/orders/stats"),
    ("GET", "/admin/v2/persistent/public/default/orders/partitions/../stats"),
    ("POST", "/admin/v2/schemas/public/default/orders/schema"),
)
ALIKE = pytest.mark.asyncio(loop_scope="module")  # those that leave the world as they found it


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def calm(mesh: Mesh, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[IstioStack]:
    async with istio_stack(mesh, tmp_path_factory.mktemp("calm")) as found:
        yield found


@pytest.fixture
def unchanged(calm: IstioStack) -> IstioStack:
    """As it was at the beginning, but for what topics there are."""
    for broker in calm.cluster.brokers:
        broker.requests.clear()
    return calm


def as_it_is(path: str) -> URL:
    """The ingress's, not put into shape by the client."""
    return URL(GATEWAY_URL + path, encoded=True)


@pytest.mark.parametrize("way", WAYS)
async def test_lookup_through_the_istio_gateway_is_answered_with_external_addresses(
    mesh: Mesh, tmp_path: Path, way: str
) -> None:
    async with istio_stack(mesh, tmp_path, way) as istio:
        async with istio.client.get(GATEWAY_URL + LOOKUP) as answer:
            found = await answer.json()
        owner = istio.cluster.owner(TOPIC)
        assert (answer.status, found["brokerUrlTls"]) == (200, f"pulsar+ssl://broker-{owner}.{HOST}:6651")
        assert found["httpUrl"] == f"https://broker-{owner}.{HOST}"
        asked = [request for broker in istio.cluster.brokers for request in broker.requests]
        assert {tuple(request.values("X-Pulsar-ListenerName")) for request in asked} == {("external",)}
        # The Envoy in the broker's pod says whom it let in: the gateway's own workload.
        for request in asked:
            (peer,) = request.values("X-Forwarded-Client-Cert")
            assert f"By={BROKER};" in peer
            assert peer.endswith(f"URI={mesh.identity(way)}")
        await istio.sidecar.end(30)
        assert (istio.sidecar.code, "Traceback" in istio.sidecar.output) == (0, False)


@ALIKE
async def test_redirect_leads_through_the_gateway_to_the_broker_that_it_names(unchanged: IstioStack) -> None:
    """A topic that nobody has: its broker is found by way of the leader."""
    url, asked = URL(f"https://broker-1.{HOST}/lookup/v2/topic/persistent/public/nobodys/orders"), []
    while True:
        async with unchanged.client.get(url, allow_redirects=False) as answer:
            (number,) = (n for n, broker in enumerate(unchanged.cluster.brokers) if broker.requests)
            unchanged.cluster.brokers[number].requests.clear()
            asked.append(number)
            assert url.host == f"broker-{number}.{HOST}"
        if answer.status == 200:
            break
        assert answer.status == 307
        url = URL(answer.headers["Location"])
    assert asked[:2] == [1, unchanged.cluster.leader]
    assert asked[-1] == unchanged.cluster.owner("persistent://public/nobodys/orders")


@ALIKE
async def test_client_calls_pass_the_gateway_and_other_admin_calls_are_refused(unchanged: IstioStack) -> None:
    unchanged.cluster.own(TOPIC, 1)
    for path in CLIENT_CALLS:
        async with unchanged.client.get(GATEWAY_URL + path) as answer:
            assert answer.status != 403
    before = sum(len(broker.requests) for broker in unchanged.cluster.brokers)
    assert before >= len(CLIENT_CALLS)
    for method, path in OTHER_CALLS:
        async with unchanged.client.request(method, as_it_is(path)) as answer:
            assert (answer.status, (await answer.json())["reason"].partition(":")[0]) == (403, "not-exposed")
    async with unchanged.client.get(f"{GATEWAY_URL}/metrics") as answer:
        assert (answer.status, await answer.text()) == (404, "")  # Envoy's: no route leads there
    assert sum(len(broker.requests) for broker in unchanged.cluster.brokers) == before


@ALIKE
async def test_unknown_hosts_are_not_routed_to_any_broker(unchanged: IstioStack) -> None:
    with pytest.raises(aiohttp.ClientConnectionError):
        await unchanged.client.get(f"https://elsewhere.example.org{LOOKUP}")
    async with unchanged.client.get(GATEWAY_URL + LOOKUP, headers={"Host": "elsewhere.example.org"}) as answer:
        assert answer.status == 404
    assert not any(broker.requests for broker in unchanged.cluster.brokers)


async def test_lookups_fail_with_503_when_the_sidecar_is_dead_until_it_is_bypassed(istio: IstioStack) -> None:
    await istio.sidecar.end(0)
    async with istio.client.get(GATEWAY_URL + LOOKUP) as answer:
        assert answer.status == 503
    assert not any(broker.requests for broker in istio.cluster.brokers)

    await istio.open_gateway(bypass=True)
    for number in range(3):
        istio.cluster.own(TOPIC, number)
        async with istio.client.get(GATEWAY_URL + LOOKUP, allow_redirects=False) as answer:
            found = await answer.json()
        assert (answer.status, found["brokerUrlTls"]) == (200, f"pulsar+ssl://broker-{number}.{HOST}:6651")
    asked = [request for broker in istio.cluster.brokers for request in broker.requests]
    assert len(asked) == 3
    assert {tuple(request.values("X-Pulsar-ListenerName")) for request in asked} == {("external",)}


async def test_the_bypass_lets_no_more_through_than_the_sidecar(istio: IstioStack) -> None:
    await istio.open_gateway(bypass=True)
    asked = [broker.requests for broker in istio.cluster.brokers]

    async def reaches(method: str, path: str) -> bool:
        for requests in asked:
            requests.clear()
        async with istio.client.request(method, as_it_is(path), allow_redirects=False) as answer:
            assert any(asked) or answer.status == 404
        return any(asked)

    for path in (LOOKUP, *CLIENT_CALLS):
        assert await reaches("GET", path), path
    for method, path in (*OTHER_CALLS, *(("DELETE", path) for path in CLIENT_CALLS)):
        assert not await reaches(method, path), (method, path)


@ALIKE
async def test_encoded_slash_in_a_topic_name_reaches_the_broker_unchanged(unchanged: IstioStack) -> None:
    """Istio's path normalization leaves what is encoded as it is."""
    async with unchanged.client.get(as_it_is(f"{LOOKUP}%2Feu"), allow_redirects=False):
        pass
    (asked,) = (request for broker in unchanged.cluster.brokers for request in broker.requests)
    assert asked.path == f"{LOOKUP}%2Feu"


def binary_routes(mesh: Mesh, way: str, **options: bool) -> dict[str, str]:
    """By server name, where Envoy leads connections to the binary port."""
    listeners = mesh.pushed(way, **options)[GATEWAY_POD]["listeners"]
    (listener,) = (each for each in listeners if each["name"] == "0.0.0.0_6651")
    return {
        host: chain["filters"][-1]["typedConfig"]["cluster"]
        for chain in listener["filterChains"]
        for host in chain["filterChainMatch"]["serverNames"]
    }


@pytest.mark.parametrize("way", ["gateway values", "gateway parameters"])
def test_envoy_routes_the_binary_protocol_by_server_name_to_the_named_broker(mesh: Mesh, way: str) -> None:
    """Which the sidecar has no part in."""
    service = "pulsar-ingress-proxy-istio-ingress-broker-{n}.pulsar.svc.cluster.local"
    assert binary_routes(mesh, way) == {
        f"broker-{number}.{HOST}": f"outbound|6650||{service.replace('{n}', str(number))}" for number in range(3)
    }


@pytest.mark.parametrize("way", ["gateway values", "gateway parameters"])
def test_through_the_sidecar_envoy_opens_one_port_and_nothing_else(mesh: Mesh, way: str) -> None:
    cluster = "outbound|16650||pulsar-ingress-proxy.sidecar.internal"
    assert binary_routes(mesh, way, through=True) == {HOST: cluster}
    pushed = mesh.pushed(way, through=True)[GATEWAY_POD]
    assert [each["name"] for each in pushed["listeners"]] == ["0.0.0.0_6651"]
    (endpoints,) = (each["endpoints"] for each in pushed["endpoints"] if each["clusterName"] == cluster)
    (endpoint,) = (each["endpoint"]["address"]["socketAddress"] for part in endpoints for each in part["lbEndpoints"])
    assert (endpoint["address"], endpoint["portValue"]) == ("127.0.0.1", 16650)


def test_the_gateways_service_has_the_ports_of_the_routes(mesh: Mesh) -> None:
    for way in ("gateway values", "gateway parameters"):
        (service,) = (
            each
            for each in mesh.gateway(way)
            if each["kind"] == "Service" and each["metadata"]["namespace"] == "istio-ingress"
        )
        assert {443, 6651} <= {port["port"] for port in service["spec"]["ports"]}, way
