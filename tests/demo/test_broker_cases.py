"""The cases that real brokers are put to, put to the simulated ones."""

from collections.abc import AsyncIterator, Mapping
from itertools import count, product

import pytest
from aiohttp import ClientSession, DummyCookieJar
from broker_cases import CASES, Case, Named, Reply, played
from yarl import URL

from pulsar_ingress_proxy.demo.cluster import Listener, SimulatedCluster
from pulsar_ingress_proxy.demo.metadata import Family, LoadManager

KINDS: tuple[tuple[Family, LoadManager, bool], ...] = tuple(
    product(("4.x", "5.x"), ("modular", "extensible"), (False, True))
)
_numbers = count()


class SimulatedBrokers:
    """The simulated brokers as the cases ask them."""

    def __init__(self, cluster: SimulatedCluster, session: ClientSession) -> None:
        self.cluster_name = "pulsar"
        self._cluster = cluster
        self._session = session

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
        url = URL(self._cluster.brokers[broker].web + target, encoded=True)
        async with self._session.request(
            method,
            url,
            data=body,
            headers={"Host": self.names[broker].id, **headers},
            allow_redirects=False,
            skip_auto_headers=["Accept-Encoding"],
        ) as response:
            named = {name.lower(): value for name, value in response.headers.items()}
            return Reply(response.status, named, await response.read())


@pytest.fixture
async def session() -> AsyncIterator[ClientSession]:
    async with ClientSession(cookie_jar=DummyCookieJar()) as session:
        yield session


@pytest.mark.parametrize(("family", "load_manager", "trusts"), KINDS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_simulated_brokers_answer_as_real_brokers_do(
    case: Case, family: Family, load_manager: LoadManager, trusts: bool, session: ClientSession
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
        assert (await played(case, SimulatedBrokers(cluster, session))).faults == []
