"""`pulsar-client` with a pulsar:// or pulsar+ssl:// URL that leads to the sidecar, and no listener's name."""

import re

import pytest
from binary_servers import PLAIN, PLAIN_PORT, TLS, TLS_PORT, line, plain_socket, through_socket, tls_socket
from brokers import HOST
from clients import Client, ClientFailed, talking
from cluster import Cluster
from ownership import give, move, owner
from test_real_clients import PARTITIONS, create, spread, wide_namespace

__all__ = ["wide_namespace"]

ROLE = "shop"


def speak(client: Client, topic: str, *messages: str) -> None:
    client.subscribe(topic)
    client.produce(topic, *messages)
    assert sorted(client.consume(len(messages))) == sorted(messages)


def gateway_ports(client: Client) -> set[int]:
    """The ports of the gateway's address that it has connected to."""
    return {int(port) for port in re.findall(r"-> 192\.0\.2\.1:(\d+)\]", client.log)}


def test_binary_client_reaches_all_partitions_by_external_broker_addresses(
    cluster: Cluster, wide_namespace: str
) -> None:
    topic = f"persistent://{wide_namespace}/orders"
    create(cluster, topic, PARTITIONS)
    owners = spread(cluster, [f"{topic}-partition-{number}" for number in range(PARTITIONS)])
    with plain_socket(cluster), talking(cluster, PLAIN) as client:
        assert len(client.partitions(topic)) == PARTITIONS
        speak(client, topic, *(f"message {number}" for number in range(2 * PARTITIONS)))
        assert client.connected == {PLAIN, *(broker.external_service for broker in owners)}
        assert "svc.cluster.local" not in client.log


def test_sidecar_follows_binary_redirects_for_a_topic_without_owner(cluster: Cluster, namespace: str) -> None:
    """A broker that is not the leader redirects, which the sidecar follows."""
    leader = cluster.leader()
    others = [broker.service for broker in cluster.brokers if broker != leader]
    topic = f"persistent://{namespace}/orders"
    with plain_socket(cluster, brokers={"brokerServiceUrl": others}), talking(cluster, PLAIN) as client:
        speak(client, topic, "one", "two")
        assert client.connected == {PLAIN, owner(cluster, topic).external_service}


def test_binary_client_reconnects_to_the_new_broker_when_its_topic_moves(cluster: Cluster, namespace: str) -> None:
    topic = f"persistent://{namespace}/orders"
    before, after = cluster.brokers[0], cluster.brokers[1]
    give(cluster, topic, before)
    with plain_socket(cluster), talking(cluster, PLAIN) as client:
        client.subscribe(topic)
        client.produce(topic, "one")
        client.consume_until("one")
        move(cluster, namespace, after)
        client.produce(topic, "two")
        client.consume_until("two")
        assert client.connected == {PLAIN, before.external_service, after.external_service}


def test_binary_client_naming_a_forbidden_listener_is_refused_with_the_reason(cluster: Cluster, namespace: str) -> None:
    """The client hears why, at once, and keeps its connection."""
    with plain_socket(cluster), talking(cluster, PLAIN, listener="internal") as client:
        with pytest.raises(ClientFailed) as failed:
            client.subscribe(f"persistent://{namespace}/orders")
        assert failed.value.failure == "NotAllowedError"
        assert "listener 'internal' may not be named through ingress 'public'" in client.log


def test_through_sidecar_client_connects_to_the_ingress_port_only(cluster: Cluster, wide_namespace: str) -> None:
    """Where no broker has an address outside: all that the client ever connects to is the ingress."""
    topic = f"persistent://{wide_namespace}/orders"
    create(cluster, topic, PARTITIONS)
    assert len(spread(cluster, [f"{topic}-partition-{number}" for number in range(PARTITIONS)])) > 1
    with through_socket(cluster), talking(cluster, PLAIN) as client:
        speak(client, topic, *("x" * 100_000 for _ in range(2 * PARTITIONS)))
        assert gateway_ports(client) == {PLAIN_PORT}


def test_through_sidecar_client_produces_and_consumes_after_its_topic_moves(cluster: Cluster, namespace: str) -> None:
    topic = f"persistent://{namespace}/orders"
    before, after = cluster.brokers[0], cluster.brokers[1]
    give(cluster, topic, before)
    with through_socket(cluster), talking(cluster, PLAIN) as client:
        client.subscribe(topic)
        client.produce(topic, "one")
        client.consume_until("one")
        move(cluster, namespace, after)
        client.produce(topic, "two")
        client.consume_until("two")
        assert owner(cluster, topic, after) == after
        assert gateway_ports(client) == {PLAIN_PORT}


class TestOverTls:
    """A cluster with tokens and TLS, and with brokers at all stages of PIP-95's migration."""

    @pytest.fixture
    def cluster(self, guarded: Cluster) -> Cluster:
        return guarded

    @pytest.fixture
    def topic(self, cluster: Cluster, namespace: str) -> str:
        url = f"{cluster.brokers[0].web}/admin/v2/namespaces/{namespace}/permissions/{ROLE}"
        granted = cluster.request("POST", url, ["produce", "consume"])
        assert granted.status == 204, granted
        return f"persistent://{namespace}/orders"

    def test_tls_client_connects_to_the_external_tls_address_of_the_owner(self, cluster: Cluster, topic: str) -> None:
        book = [line(broker, f"external:{broker.external_service_tls}") for broker in cluster.brokers]
        token = cluster.tokens.of(ROLE)
        with tls_socket(cluster, book) as ca, talking(cluster, TLS, token=token, ca=ca) as client:
            speak(client, topic, "one", "two")
            assert client.connected == {TLS, owner(cluster, topic).external_service_tls}

    def test_tls_server_name_selects_the_broker_on_a_shared_port(self, cluster: Cluster, topic: str) -> None:
        """All brokers have the ingress's own port, and are distinguished by the name that the client sends."""
        book = [
            line(
                broker,
                f"external:pulsar+ssl://{broker.external_name}:{TLS_PORT}",
                f"published:{broker.external_service_tls}",
            )
            for broker in cluster.brokers
        ]
        give(cluster, topic, cluster.brokers[1])
        token = cluster.tokens.of(ROLE)
        with tls_socket(cluster, book) as ca, talking(cluster, TLS, token=token, ca=ca) as client:
            speak(client, topic, "one", "two")
            assert client.connected == {TLS, f"pulsar+ssl://broker-1.{HOST}:{TLS_PORT}"}
