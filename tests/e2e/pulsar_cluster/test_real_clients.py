"""`pulsar-client`, Python over C++, with an http:// URL that leads to the sidecar: what it does all day."""

import pytest
from brokers import CLUSTER, Broker
from clients import talking
from cluster import Cluster
from gateways import sidecar
from ownership import give, lookup, move, owner

PARTITIONS = 8


@pytest.fixture
def wide_namespace(cluster: Cluster, namespace: str) -> str:
    """A new one with so many bundles that two topics are seldom in the same."""
    name = f"{namespace}-wide"
    url = f"{cluster.brokers[0].web}/admin/v2/namespaces/{name}"
    made = cluster.request("PUT", url, {"bundles": {"numBundles": 2 * PARTITIONS}})
    assert made.status == 204, made
    return name


def spread(cluster: Cluster, topics: list[str]) -> set[Broker]:
    """Let the brokers have the topics in turn, as far as their bundles allow."""
    for number, topic in enumerate(topics):
        broker = cluster.brokers[number % len(cluster.brokers)]
        taken = cluster.request("GET", f"{broker.web}{lookup(topic)}?authoritative=true")
        assert taken.status == 200, taken
    return {owner(cluster, topic) for topic in topics}


def create(cluster: Cluster, topic: str, partitions: int) -> None:
    url = f"{cluster.brokers[0].web}/admin/v2/{topic.replace('://', '/')}/partitions"
    made = cluster.request("PUT", url, partitions)
    assert made.status == 204, made


def test_http_client_reaches_all_partitions_by_external_broker_addresses(cluster: Cluster, wide_namespace: str) -> None:
    topic = f"persistent://{wide_namespace}/orders"
    create(cluster, topic, PARTITIONS)
    owners = spread(cluster, [f"{topic}-partition-{number}" for number in range(PARTITIONS)])
    messages = [f"message {number}" for number in range(2 * PARTITIONS)]
    with sidecar(cluster), talking(cluster) as client:
        assert len(client.partitions(topic)) == PARTITIONS
        client.subscribe(topic)
        client.produce(topic, *messages)
        assert sorted(client.consume(len(messages))) == sorted(messages)
        assert client.connected == {broker.external_service for broker in owners}


def test_pattern_subscription_receives_from_topics_on_all_brokers(cluster: Cluster, wide_namespace: str) -> None:
    orders = [f"persistent://{wide_namespace}/orders-{number}" for number in range(PARTITIONS)]
    owners = spread(cluster, orders)
    with sidecar(cluster), talking(cluster) as client:
        for topic in (*orders, f"persistent://{wide_namespace}/returns"):
            client.produce(topic, topic)
        client.subscribe_to_all(f"persistent://{wide_namespace}/orders-.*")
        assert sorted(client.consume(len(orders))) == orders
        assert client.connected >= {broker.external_service for broker in owners}
        assert "svc.cluster.local" not in client.log


@pytest.mark.full
@pytest.mark.timeout(150, func_only=True)
def test_pattern_subscription_finds_a_topic_that_is_created_later(cluster: Cluster, wide_namespace: str) -> None:
    """Once a minute: the client takes a shorter period and does not keep to it."""
    today, tomorrow = f"persistent://{wide_namespace}/orders-1", f"persistent://{wide_namespace}/orders-2"
    with sidecar(cluster), talking(cluster, patience=90) as client:
        client.produce(today, "one")
        client.subscribe_to_all(f"persistent://{wide_namespace}/orders-.*")
        assert client.consume(1) == ["one"]
        client.produce(tomorrow, "two")
        assert client.consume(1) == ["two"]


def test_client_can_use_a_topic_with_a_cluster_in_its_name(cluster: Cluster, namespace: str) -> None:
    """The first form of names, which brokers of 4.0 still know: the client asks by other paths."""
    name = namespace.replace("/", f"/{CLUSTER}/")
    made = cluster.request("PUT", f"{cluster.brokers[0].web}/admin/namespaces/{name}")
    assert made.status == 204, made
    topic = f"persistent://{name}/orders"
    with sidecar(cluster), talking(cluster) as client:
        client.subscribe(topic)
        client.produce(topic, "one")
        assert client.consume(1) == ["one"]
        assert f"/lookup/v2/destination/persistent/{name}/orders" in client.log
        assert client.connected <= {broker.external_service for broker in cluster.brokers}


@pytest.mark.parametrize("redirects", ["rewrite", "follow"])
def test_http_client_reconnects_to_the_new_broker_when_its_topic_moves(
    cluster: Cluster, namespace: str, redirects: str
) -> None:
    """The old owner hangs up, and the client looks the topic up again."""
    topic = f"persistent://{namespace}/orders"
    before, after = cluster.brokers[0], cluster.brokers[1]
    give(cluster, topic, before)
    with sidecar(cluster, redirects={"lookup": redirects}), talking(cluster) as client:
        client.subscribe(topic)
        client.produce(topic, "one")
        client.consume_until("one")
        move(cluster, namespace, after)
        client.produce(topic, "two")
        client.consume_until("two")  # the first may come again, if the owner hung up before it was told
        assert client.connected == {before.external_service, after.external_service}
    assert owner(cluster, topic) == after
