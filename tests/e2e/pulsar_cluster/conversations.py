"""What a client of any language does at an ingress, and the ways in: the sidecar's settings with the URL that fits.

Each conversation is about a new namespace, whose topics no broker has at first, and the sidecar asks a broker that is
not the leader: so lookups are redirected. It passes, or raises ClientFailed or AssertionError.
"""

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from binary_servers import PLAIN, plain_socket, through_socket
from brokers import Broker
from clients import Client
from cluster import Cluster
from gateways import URL, sidecar
from ownership import give, move, owner

ANONYMOUS = "anonymous"
ROLE = "shop"
PARTITIONS = 4

Talking = Callable[[str], AbstractContextManager[Client]]  # with a token, which may be empty
Conversation = Callable[[Cluster, Talking], None]


@dataclass(frozen=True, slots=True)
class Way:
    """How clients come in."""

    name: str
    url: str
    sidecar: Callable[[Cluster, Broker], AbstractContextManager[object]]

    @contextmanager
    def open(self, cluster: Cluster) -> Iterator[None]:
        leader = cluster.leader()
        with self.sidecar(cluster, next(broker for broker in cluster.brokers if broker != leader)):
            yield


HTTP_REWRITE = Way(
    "`http://`, `rewrite`",
    URL,
    lambda cluster, asked: sidecar(
        cluster, brokers={"webServiceUrl": [asked.web]}, redirects={"lookup": "rewrite", "admin": "rewrite"}
    ),
)
HTTP_FOLLOW = Way(
    "`http://`, `follow`",
    URL,
    lambda cluster, asked: sidecar(
        cluster, brokers={"webServiceUrl": [asked.web]}, redirects={"lookup": "follow", "admin": "follow"}
    ),
)
BINARY_FOLLOW = Way(
    "`pulsar://`, `follow`",
    PLAIN,
    lambda cluster, asked: plain_socket(cluster, brokers={"brokerServiceUrl": [asked.service]}),
)
BINARY_REWRITE = Way(
    "`pulsar://`, `rewrite`",
    PLAIN,
    lambda cluster, asked: plain_socket(
        cluster, brokers={"brokerServiceUrl": [asked.service]}, redirects={"lookup": "rewrite"}
    ),
)
THROUGH = Way(
    "`pulsar://`, `throughSidecar`",
    PLAIN,
    lambda cluster, asked: through_socket(cluster, brokers={"brokerServiceUrl": [asked.service]}),
)


def produce_and_consume(cluster: Cluster, talking: Talking) -> None:
    topic = f"persistent://{new_namespace(cluster)}/orders"
    with talking("") as client:
        _speak(client, topic)


def topic_with_an_owner(cluster: Cluster, talking: Talking) -> None:
    """Whose lookups no broker redirects."""
    topic = f"persistent://{new_namespace(cluster)}/orders"
    give(cluster, topic, cluster.brokers[1])
    with talking("") as client:
        _speak(client, topic)


def with_a_token(cluster: Cluster, talking: Talking) -> None:
    """That of the only role which may use the topic."""
    topic = f"persistent://{new_namespace(cluster, role=ROLE)}/orders"
    with talking(cluster.tokens.of(ROLE)) as client:
        _speak(client, topic)


def partitioned_topic(cluster: Cluster, talking: Talking) -> None:
    topic = f"persistent://{new_namespace(cluster, bundles=2 * PARTITIONS)}/orders"
    made = cluster.request("PUT", f"{cluster.brokers[0].web}{_admin(topic)}/partitions", PARTITIONS)
    assert made.status == 204, made
    messages = [f"message {number}" for number in range(2 * PARTITIONS)]
    with talking("") as client:
        client.subscribe(topic)
        client.produce(topic, *messages)
        assert sorted(client.consume(len(messages))) == messages


def pattern(cluster: Cluster, talking: Talking) -> None:
    """A subscription to all topics that match."""
    namespace = new_namespace(cluster, bundles=2 * PARTITIONS)
    orders = [f"persistent://{namespace}/orders-{number}" for number in range(PARTITIONS)]
    with talking("") as client:
        for topic in (*orders, f"persistent://{namespace}/returns"):
            client.produce(topic, topic)
        client.subscribe_to_all(f"persistent://{namespace}/orders-.*")
        assert sorted(client.consume(len(orders))) == orders


def reader(cluster: Cluster, talking: Talking) -> None:
    topic = f"persistent://{new_namespace(cluster)}/orders"
    with talking("") as client:
        client.produce(topic, "one", "two")
        assert client.read(topic, 2) == ["one", "two"]


def topic_that_moves(cluster: Cluster, talking: Talking) -> None:
    """Its bundle is unloaded to another broker while the client has a consumer and a producer."""
    namespace = new_namespace(cluster)
    topic = f"persistent://{namespace}/orders"
    before, after = cluster.brokers[0], cluster.brokers[2]
    give(cluster, topic, before)
    with talking("") as client:
        client.subscribe(topic)
        client.produce(topic, "one")
        client.consume_until("one")
        move(cluster, namespace, after)
        client.produce(topic, "two")
        client.consume_until("two")
    assert owner(cluster, topic) == after


def administered_topic(cluster: Cluster, talking: Talking) -> None:
    """By the client's own admin client, with a superuser's token."""
    namespace = new_namespace(cluster)
    topic = f"persistent://{namespace}/orders"
    with talking(cluster.tokens.of("admin") if cluster.options.authorization else "") as client:
        done = client.administer(topic)
    assert (done[0], done[-1]) == ("create", "delete")
    left = cluster.request("GET", f"{cluster.brokers[0].web}/admin/v2/persistent/{namespace}")
    assert left.body == b"[]", left


CONVERSATIONS: dict[str, Conversation] = {
    "produce and consume": produce_and_consume,
    "owned topic": topic_with_an_owner,
    "partitions": partitioned_topic,
    "pattern": pattern,
    "reader": reader,
    "topic moves": topic_that_moves,
    "token": with_a_token,
    "admin": administered_topic,
}


def new_namespace(cluster: Cluster, bundles: int = 1, role: str = ANONYMOUS) -> str:
    """Where brokers want to know, that role alone may produce and consume; `anonymous` are those without a token."""
    name = f"public/test-{secrets.token_hex(4)}"
    url = f"{cluster.brokers[0].web}/admin/v2/namespaces/{name}"
    made = cluster.request("PUT", url, {"bundles": {"numBundles": bundles}})
    assert made.status == 204, made
    if cluster.options.authorization:
        granted = cluster.request("POST", f"{url}/permissions/{role}", ["produce", "consume"])
        assert granted.status == 204, granted
    return name


def _speak(client: Client, topic: str) -> None:
    client.subscribe(topic)
    client.produce(topic, "one", "two")
    assert client.consume(2) == ["one", "two"]


def _admin(topic: str) -> str:
    return f"/admin/v2/{topic.replace('://', '/')}"
