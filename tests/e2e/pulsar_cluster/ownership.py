"""Which broker has a topic, and how a test decides that."""

import json
import time
from urllib.parse import urlsplit

from brokers import Broker
from cluster import Cluster

WHOLE = "0x00000000_0xffffffff"  # the bundle of a namespace that has one
SECONDS = 30


def lookup(topic: str) -> str:
    """The path of its lookup."""
    return f"/lookup/v2/topic/{topic.replace('://', '/')}"


def owner(cluster: Cluster, topic: str, asked: Broker | None = None) -> Broker:
    """The broker that has the topic, which takes it now if nobody has it; the first is asked, or that one."""
    url = (asked or cluster.brokers[0]).web + lookup(topic)
    while (answer := cluster.request("GET", url)).status == 307:
        url = answer.headers["Location"]
    assert answer.status == 200, answer
    return cluster.broker(urlsplit(json.loads(answer.body)["brokerUrl"]).hostname)


def give(cluster: Cluster, topic: str, to: Broker) -> None:
    """Let a broker have the topic's bundle, which nobody has, and which is all of its namespace.

    Asked with authority it takes it, whoever it is. Under the extensible load manager it has to be moved there, and
    the others hear of it a little later.
    """
    answer = cluster.request("GET", f"{to.web}{lookup(topic)}?authoritative=true")
    assert answer.status == 200, answer
    if owner(cluster, topic) != to:
        move(cluster, "/".join(topic.split("/")[2:4]), to)
    deadline = time.monotonic() + SECONDS
    while any(owner(cluster, topic, broker) != to for broker in cluster.brokers):
        assert time.monotonic() < deadline, f"{to.name} should have {topic}"
        time.sleep(0.1)


def move(cluster: Cluster, namespace: str, to: Broker) -> None:
    """Let the bundle of a namespace that has one go from the broker that has it to another."""
    destination = urlsplit(to.web).netloc
    url = f"{cluster.brokers[0].web}/admin/v2/namespaces/{namespace}/{WHOLE}/unload?destinationBroker={destination}"
    while (answer := cluster.request("PUT", url)).status == 307:
        url = answer.headers["Location"]
    assert answer.status == 204, answer
