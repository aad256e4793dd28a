"""Brokers under either load manager: what they answer, and what of it gets outside through the sidecar."""

import asyncio
import json
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from broker_cases import CASES, Case, played
from brokers import HOST, Options
from cluster import Cluster, running
from gateways import URL, client, sidecar
from ownership import lookup, owner
from real_brokers import RealBrokers, ThroughSidecar, inner_addresses, played_again

EXTENSIBLE = pytest.param("extensible", marks=pytest.mark.full)
STAFF, PARTNERS = "staff.example", "partners.example"
AT_ONCE = 24


@pytest.fixture(scope="module", params=["modular", EXTENSIBLE])
def cluster(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Cluster]:
    if request.param == cluster.options.load_manager:
        yield cluster
        return
    with running(Options(load_manager=request.param)) as started:
        yield started


@pytest.fixture(scope="module")
def ingress(cluster: Cluster) -> Iterator[None]:
    """The sidecar, also for clients that are inside, and for partners whose listener the brokers have not got yet."""
    ingresses = [
        {"name": "public", "hosts": [HOST, f"*.{HOST}"], "listener": "external"},
        {"name": "staff", "hosts": [STAFF], "listener": "internal"},
        {"name": "partners", "hosts": [PARTNERS], "listener": "partner"},
    ]
    book = [
        {
            "broker": broker.name,
            "listeners": f"internal:{broker.web}, internal:{broker.service}, external:{broker.external_web}, "
            f"external:{broker.external_service}, partner:pulsar://broker-{broker.number}.{PARTNERS}:6650",
        }
        for broker in cluster.brokers
    ]
    with sidecar(cluster, ingresses=ingresses, advertisedListeners=book):
        yield


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_real_brokers_answer_as_simulated_brokers_do(case: Case, cluster: Cluster) -> None:
    assert (await played_again(case, RealBrokers(cluster))).faults == []


@pytest.mark.usefixtures("ingress")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_answers_through_the_sidecar_contain_no_internal_address(case: Case, cluster: Cluster) -> None:
    """Asked once: what gets out once has got out."""
    assert inner_addresses((await played(case, ThroughSidecar(cluster))).reply) == []


@pytest.mark.usefixtures("ingress")
async def test_concurrent_lookups_get_the_listener_of_their_own_ingress(cluster: Cluster) -> None:
    """As brokers of some versions mix them up (apache/pulsar#26244)."""
    brokers = RealBrokers(cluster)
    url = f"{URL}{lookup(f'persistent://{await brokers.namespace()}/orders')}"

    def ask(host: str) -> tuple[str, str | None]:
        """Whom a client is led to that follows redirects, as far as they lead through the sidecar."""
        at, headers = url, {"Host": host}
        while (answer := cluster.networks.outside.request("GET", at, headers=headers)).status == 307:
            at, headers = answer.headers["Location"], {}
            if host == STAFF:  # whose redirects lead inside
                return host, urlsplit(at).hostname
        assert answer.status == 200, answer
        return host, urlsplit(json.loads(answer.body)["brokerUrl"]).hostname

    hosts = [HOST, STAFF] * (AT_ONCE // 2)
    for host, found in await asyncio.gather(*(asyncio.to_thread(ask, host) for host in hosts)):
        assert found is not None
        assert found.endswith(HOST) == (host == HOST), (host, found)


@pytest.mark.usefixtures("ingress")
async def test_lookup_for_a_listener_that_brokers_lack_is_400(cluster: Cluster) -> None:
    """As PIP-95 wanted it; a broker says 500."""
    topic = f"persistent://{await RealBrokers(cluster).namespace()}/orders"
    owner(cluster, topic)
    answer = cluster.networks.outside.request("GET", URL + lookup(topic), headers={"Host": PARTNERS})
    assert answer.status == 400, answer
    assert json.loads(answer.body)["reason"].startswith("broker-lacks-listener: ")


@pytest.mark.usefixtures("ingress")
async def test_external_client_produces_and_consumes_through_the_sidecar(cluster: Cluster) -> None:
    topic = f"persistent://{await RealBrokers(cluster).namespace()}/orders"
    spoken = await asyncio.to_thread(client, cluster, topic, "one", "two")
    assert spoken.consumed == ["one", "two"], spoken.log
    assert "svc.cluster.local" not in spoken.log
