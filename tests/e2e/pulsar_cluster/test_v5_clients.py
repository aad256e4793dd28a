"""V5 clients of Pulsar 5.0 with scalable topics: every kind of consumer, through the sidecar and at brokers' addresses.

Brokers have a port for the external listener, which does not help here: they answer with internal addresses on it.
"""

from collections.abc import Iterator

import pytest
from binary_servers import PLAIN, TLS, TLS_PORT, line, plain_socket, through_socket, tls_socket
from brokers import HOST, Options
from cluster import Cluster, running
from scalable_topics import KINDS, controller, create, elect, layout, v5_client

pytestmark = pytest.mark.full
patient = pytest.mark.timeout(400, func_only=True)
EXTERNAL_PORT = 6652
SEGMENTS = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    options = Options(
        line="5.0",
        tls=True,
        authorization=True,
        conf={"scalableTopicAutoScaleEnabled": "false", "transactionCoordinatorEnabled": "true"},
        conf_of={n: {"bindAddresses": f"external:pulsar://10.96.0.{10 + n}:{EXTERNAL_PORT}"} for n in range(3)},
    )
    with running(options) as started:
        yield started


@pytest.fixture
def topic(cluster: Cluster, namespace: str) -> str:
    """One whose controller is the last broker."""
    topic = f"topic://{namespace}/orders"
    create(cluster, topic, SEGMENTS)
    elect(cluster, topic, cluster.brokers[2])
    assert controller(cluster, topic) == cluster.brokers[2]
    return topic


def bystanders(cluster: Cluster) -> dict[str, object]:
    """The sidecar joins clients to brokers that are not the controller."""
    return {"brokerServiceUrl": [broker.service for broker in cluster.brokers[:2]]}


def test_broker_names_internal_addresses_on_the_port_of_the_external_listener(cluster: Cluster, topic: str) -> None:
    """Without the sidecar, so a port for each listener is not enough."""
    dag = layout(cluster, cluster.brokers[0], EXTERNAL_PORT, topic)
    inside = {broker.service for broker in cluster.brokers}
    assert (dag.url.decode(), dag.url_tls) == (cluster.brokers[2].service, b"")
    assert {one.url.decode() for one in dag.segment_brokers} <= inside
    assert len(dag.segment_brokers) == SEGMENTS


@patient
def test_every_kind_of_consumer_works_through_the_sidecar(cluster: Cluster, topic: str) -> None:
    with (
        through_socket(cluster, brokers=bystanders(cluster)),
        v5_client(cluster, PLAIN, topic, *KINDS) as client,
    ):
        assert client.said() == "ready"
        assert client.round("first") == [*KINDS]


@patient
def test_every_kind_of_consumer_works_through_a_tls_socket(cluster: Cluster, topic: str) -> None:
    """All that the client connects to is the ingress's own host."""
    ingress = {"name": "public", "hosts": [HOST], "listener": "internal", "throughSidecar": True}
    book = [line(broker) for broker in cluster.brokers]
    with (
        tls_socket(cluster, book, ingresses=[ingress]) as ca,
        v5_client(cluster, TLS, topic, *KINDS, ca=ca) as client,
    ):
        assert client.said() == "ready"
        assert client.round("first") == [*KINDS]


@patient
def test_every_kind_of_consumer_works_at_brokers_tls_addresses_that_lead_through_the_sidecar(
    cluster: Cluster, topic: str
) -> None:
    """The TLS server name tells the broker; there is a plain address too, which a client with TLS cannot use."""
    book = [
        line(broker, f"external:{broker.external_service}", f"external:pulsar+ssl://{broker.external_name}:{TLS_PORT}")
        for broker in cluster.brokers
    ]
    with tls_socket(cluster, book) as ca, v5_client(cluster, TLS, topic, *KINDS, ca=ca) as client:
        assert client.said() == "ready"
        assert client.round("first") == [*KINDS]
        assert "svc.cluster.local" not in client.log


@patient
def test_consumers_without_a_controller_work_at_addresses_that_lead_past_the_sidecar(
    cluster: Cluster, topic: str
) -> None:
    with plain_socket(cluster), v5_client(cluster, PLAIN, topic, "queue", "checkpoint") as client:
        assert client.said() == "ready"
        assert client.round("first") == ["queue", "checkpoint"]


@patient
@pytest.mark.parametrize("kind", ["stream", "group"])
def test_consumers_with_a_controller_fail_at_addresses_that_lead_past_the_sidecar(
    cluster: Cluster, topic: str, kind: str
) -> None:
    """A broker's answer, which the sidecar does not see, names the controller by its internal address."""
    with plain_socket(cluster), v5_client(cluster, PLAIN, topic, kind) as client:
        assert cluster.brokers[2].name in client.said()


@patient
def test_subscriptions_outlive_their_controller(cluster: Cluster, topic: str) -> None:
    """The client is disconnected with the controller, and the sidecar leads it to the next one."""
    with (
        through_socket(cluster, brokers=bystanders(cluster)),
        v5_client(cluster, PLAIN, topic, *KINDS) as client,
    ):
        assert client.said() == "ready"
        assert client.round("before") == [*KINDS]
        cluster.restart(cluster.brokers[2])
        assert client.round("after") == [*KINDS]
        assert controller(cluster, topic) not in (None, cluster.brokers[2])


@patient
def test_transactions_of_v5_clients_work_through_the_sidecar(cluster: Cluster, topic: str) -> None:
    """Their coordinators come by WatchTcAssignmentsUpdate."""
    with (
        through_socket(cluster),
        v5_client(cluster, PLAIN, topic, "queue", "stream", how="transaction") as client,
    ):
        assert client.said() == "ready"
        assert client.round("first") == ["queue", "stream"]


@patient
def test_transactions_of_v5_clients_are_refused_where_brokers_are_not_reached_through_the_sidecar(
    cluster: Cluster, topic: str
) -> None:
    """The client names the coordinator's broker as it would to a proxy."""
    with plain_socket(cluster), v5_client(cluster, PLAIN, topic, "queue", how="transaction") as client:
        assert client.said() == "ready"
        assert client.round("first") != ["queue"]
        assert "not-through-here: brokers are not reached through ingress 'public'" in client.log
