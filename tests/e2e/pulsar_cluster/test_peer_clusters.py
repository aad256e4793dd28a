"""Redirects that lead to another cluster: they are for its own ingress, and the sidecar lets them pass."""

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from brokers import CLUSTER
from cluster import Cluster
from gateways import URL, sidecar, straight
from networks import Answer
from ownership import lookup

PEER_URL = "http://pulsar.example.org:8080"
PEER_INSIDE_URL = "http://pulsar-broker.pulsar-c2.svc:8080"


@pytest.fixture
def cluster(guarded: Cluster) -> Cluster:
    """One with authorization: without it, brokers do not mind which cluster they are asked for."""
    return guarded


@dataclass(frozen=True, slots=True)
class Away:
    """A namespace that lives in a peer cluster, and what is asked about it."""

    peer: str
    namespace: str

    @property
    def calls(self) -> dict[str, tuple[str, str]]:
        topic = f"persistent://{self.namespace}/orders"
        admin = f"/admin/v2/{topic.replace('://', '/')}"
        return {
            "lookup": ("GET", lookup(topic)),
            "partitions": ("GET", f"{admin}/partitions"),
            "topic stats": ("GET", f"{admin}/stats"),
            "brokers of that cluster": ("GET", f"/admin/v2/brokers/{self.peer}"),
            "delete the namespace": ("DELETE", f"/admin/v2/namespaces/{self.namespace}"),
        }


CALLS = tuple(Away("", "").calls)


def order(cluster: Cluster, method: str, path: str, body: object = None) -> None:
    done = cluster.request(method, f"{cluster.brokers[0].web}/admin/v2/{path}", body)
    assert done.status in (200, 204), done


@pytest.fixture
def away(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Away]:
    """The peer is known by the URL that a test is parametrized with."""
    peer = tenant = f"peer-{secrets.token_hex(4)}"
    namespace = f"{tenant}/orders"
    order(cluster, "PUT", f"clusters/{peer}", {"serviceUrl": request.param})
    order(cluster, "POST", f"clusters/{CLUSTER}/peers", [peer])
    order(cluster, "PUT", f"tenants/{tenant}", {"allowedClusters": [CLUSTER, peer]})
    order(cluster, "PUT", f"namespaces/{namespace}", {"replication_clusters": [peer]})
    order(cluster, "POST", f"namespaces/{namespace}/allowedClusters", [peer])  # a new one allows its own cluster too
    yield Away(peer, namespace)
    order(cluster, "POST", f"clusters/{CLUSTER}/peers", [])


def ask(cluster: Cluster, away: Away, call: str) -> Answer:
    method, path = away.calls[call]
    headers = {"Authorization": f"Bearer {cluster.tokens.of('admin')}"}
    return cluster.networks.outside.request(method, URL + path, headers=headers)


@pytest.mark.parametrize("away", [PEER_URL], indirect=True, ids=[""])
def test_redirect_to_a_peer_cluster_passes_the_sidecar_unchanged(cluster: Cluster, away: Away) -> None:
    with straight(cluster, cluster.brokers[0]):
        without = {call: ask(cluster, away, call) for call in CALLS}
    with sidecar(cluster, redirects={"peers": ["pulsar.example.org"], "lookup": "follow", "admin": "follow"}):
        through = {call: ask(cluster, away, call) for call in CALLS}
    for call in CALLS:
        assert without[call].status == through[call].status == 307, call
        location = without[call].headers["Location"]
        assert location.startswith(PEER_URL + away.calls[call][1]), call
        assert through[call].headers["Location"] == location, call


@pytest.mark.parametrize("away", [PEER_INSIDE_URL], indirect=True, ids=[""])
def test_redirect_to_a_peer_with_an_internal_name_is_refused_with_502(cluster: Cluster, away: Away) -> None:
    with sidecar(cluster):
        for call in CALLS:
            answer = ask(cluster, away, call)
            assert answer.status == 502, (call, answer)
            assert json.loads(answer.body)["reason"].startswith("unknown-authority: "), call
            assert "svc" not in answer.body.decode()
