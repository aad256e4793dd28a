"""The cases that real brokers are put to, put to the simulated ones."""

from collections.abc import AsyncIterator, Mapping
from itertools import count, product

import pytest
from broker_cases import CASES, Case, Named, Reply, played
from broker_client import Client, broker_client
from simulated.cluster import Listener, SimulatedCluster
from simulated.metadata import Family, LoadManager

KINDS: tuple[tuple[Family, LoadManager, bool], ...] = tuple(
    product(("4.x", "5.x"), ("modular", "extensible"), (False, True))
)
_numbers = count()


class SimulatedBrokers:
    """The simulated brokers as the cases ask them."""

    def __init__(self, cluster: SimulatedCluster, client: Client) -> None:
        self.cluster_name = "pulsar"
        self._cluster = cluster
        self._client = client

    @property
    def words(self) -> frozenset[str]:
        metadata = self._cluster.metadata
        words = {
            metadata.family,
            metadata.family.replace("x", "0"),
            metadata.load_manager,
            *(["trusting"] if metadata.trusts_forwarded else []),
        }
        return frozenset(words)

    @property
    def names(self) -> list[Named]:
        return [
            Named(
                f"http://{broker.id}",
                broker.id,
                str(broker.listeners["internal"].broker_service_url),
                str(broker.listeners["external"].broker_service_url),
            )
            for broker in self._cluster.brokers
        ]

    async def leader(self) -> int:
        return self._cluster.leader

    async def namespace(self) -> str:
        return f"public/case-{next(_numbers)}"

    async def own(self, topic: str, broker: int) -> None:
        self._cluster.own(topic, broker)

    async def send(
        self, broker: int, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Reply:
        host = {"Host": self.names[broker].id}
        reply = await self._client.send(self._cluster.brokers[broker], target, method, body, {**host, **headers})
        return Reply(reply.status, {name.lower(): value for name, value in reply.headers.items()}, reply.body)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with broker_client() as one:
        yield one


@pytest.mark.parametrize(("family", "load_manager", "trusts"), KINDS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_simulated_brokers_answer_as_real_brokers_do(
    case: Case, family: Family, load_manager: LoadManager, trusts: bool, client: Client
) -> None:
    external = Listener(
        broker_service_url="pulsar://broker-{n}.pulsar.example.com:{n+6650}",
        broker_http_url="http://broker-{n}.pulsar.example.com:8080" if family == "5.x" else None,
    )
    async with SimulatedCluster(
        family=family,
        load_manager=load_manager,
        listeners={"external": external},
        missing_namespaces=["public/nothing", "nobody/nothing"],
        trust_forwarded=trusts,
    ) as cluster:
        assert (await played(case, SimulatedBrokers(cluster, client))).faults == []
