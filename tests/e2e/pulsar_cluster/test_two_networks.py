"""A real client outside, brokers inside: what happens at an ingress without the sidecar, and what happens with it."""

import errno
import json
import socket
import subprocess
import sys

import pytest
from cluster import Cluster
from gateways import URL, client, sidecar, straight
from ownership import lookup, owner

RESOLVE = "import socket, sys; socket.getaddrinfo(sys.argv[1], 80)"


def test_internal_and_external_networks_are_isolated(cluster: Cluster) -> None:
    inside, outside = cluster.networks.inside, cluster.networks.outside
    for broker in cluster.brokers:
        for network, name, found in (
            (inside, broker.name, True),
            (inside, broker.external_name, False),
            (outside, broker.name, False),
            (outside, broker.external_name, True),
        ):
            resolved = subprocess.run(network.command(sys.executable, "-c", RESOLVE, name), capture_output=True)
            assert (resolved.returncode == 0) == found, (network.name, name, resolved.stderr)
        with outside.entered(), socket.socket() as attempt:
            assert attempt.connect_ex((broker.address, 6650)) == errno.ENETUNREACH
        outside.connect(broker.external_name, 6650 + broker.number).close()
        with pytest.raises(ConnectionRefusedError):
            outside.connect(broker.external_name, 8080)


def test_lookup_without_the_sidecar_is_redirected_to_an_internal_address(cluster: Cluster, namespace: str) -> None:
    """Nobody has the bundle yet: whoever is not the leader sends the client to the leader, by its internal name."""
    topic = f"persistent://{namespace}/orders"
    leader = cluster.leader()
    with straight(cluster, next(broker for broker in cluster.brokers if broker != leader)):
        answer = cluster.networks.outside.request("GET", URL + lookup(topic))
        spoken = client(cluster, topic, "lost")
    assert answer.status == 307
    assert answer.headers["Location"] == f"{leader.web}{lookup(topic)}?authoritative=false"
    assert spoken.failure == "ConnectError", spoken.log
    assert f"Could not resolve host: {leader.name}" in spoken.log


def test_lookup_without_the_sidecar_is_answered_with_an_internal_address(cluster: Cluster, namespace: str) -> None:
    """Somebody has it: the answer is the owner's internal address, of no use to the client."""
    topic = f"persistent://{namespace}/orders"
    broker = owner(cluster, topic)
    with straight(cluster, cluster.leader()):
        answer = cluster.networks.outside.request("GET", URL + lookup(topic))
        spoken = client(cluster, topic, "lost")
    assert answer.status == 200
    assert json.loads(answer.body)["brokerUrl"] == broker.service
    assert spoken.failure == "ConnectError", spoken.log
    assert "Host not found" in spoken.log
    assert f"{broker.service}] Connection closed with ConnectError" in spoken.log


def test_client_produces_and_consumes_through_the_sidecar_by_external_addresses(
    cluster: Cluster, namespace: str
) -> None:
    """Once where the bundle is to be found an owner for, by redirects, and once where it has one."""
    topics = [f"persistent://{namespace}/orders", f"persistent://{namespace}/returns"]
    with sidecar(cluster):
        for topic in topics:
            spoken = client(cluster, topic, "one", "two", "three")
            assert spoken.consumed == ["one", "two", "three"], spoken.log
            assert owner(cluster, topic).external_service in spoken.log
            assert "svc.cluster.local" not in spoken.log
