"""What becomes of a client's token: `pulsar-client` drops it where a redirect leads to another host (libcurl does)."""

import pytest
from clients import ClientFailed, java, talking
from cluster import Cluster
from gateways import URL, sidecar
from ownership import give

ROLE = "shop"


@pytest.fixture
def cluster(guarded: Cluster) -> Cluster:
    return guarded


@pytest.fixture
def topic(cluster: Cluster, namespace: str) -> str:
    """One that the role may use, and that no broker has yet."""
    url = f"{cluster.brokers[0].web}/admin/v2/namespaces/{namespace}/permissions/{ROLE}"
    granted = cluster.request("POST", url, ["produce", "consume"])
    assert granted.status == 204, granted
    return f"persistent://{namespace}/orders"


def bystander(cluster: Cluster) -> dict[str, object]:
    """The sidecar asks one broker first, which redirects to the leader as long as nobody has the topic."""
    leader = cluster.leader()
    return {"webServiceUrl": [next(broker.web for broker in cluster.brokers if broker != leader)]}


def test_client_loses_its_token_on_a_rewritten_redirect_and_gets_401(cluster: Cluster, topic: str) -> None:
    """It leads to another host, where the client comes without it: 401."""
    with (
        sidecar(cluster, brokers=bystander(cluster), redirects={"lookup": "rewrite"}),
        talking(cluster, token=cluster.tokens.of(ROLE)) as client,
    ):
        with pytest.raises(ClientFailed) as failed:
            client.subscribe(topic)
        assert failed.value.failure == "ConnectError"
        assert "The requested URL returned error: 401" in client.log


def test_client_token_works_in_rewrite_mode_when_no_broker_redirects(cluster: Cluster, topic: str) -> None:
    """Which is what makes the other case hard to find: it takes a topic that nobody has, as after a restart."""
    give(cluster, topic, cluster.brokers[1])
    with (
        sidecar(cluster, brokers=bystander(cluster), redirects={"lookup": "rewrite"}),
        talking(cluster, token=cluster.tokens.of(ROLE)) as client,
    ):
        client.subscribe(topic)
        client.produce(topic, "one")
        assert client.consume(1) == ["one"]


@pytest.mark.parametrize("redirects", [{}, {"lookup": "follow"}], ids=["by default", "follow"])
def test_a_followed_redirect_keeps_the_token(cluster: Cluster, topic: str, redirects: dict[str, str]) -> None:
    with (
        sidecar(cluster, brokers=bystander(cluster), redirects=redirects),
        talking(cluster, token=cluster.tokens.of(ROLE)) as client,
    ):
        client.subscribe(topic)
        client.produce(topic, "one")
        assert client.consume(1) == ["one"]


@pytest.mark.parametrize("redirects", [{}, {"lookup": "rewrite"}], ids=["by default", "rewrite"])
def test_java_client_keeps_its_token_in_either_mode(cluster: Cluster, topic: str, redirects: dict[str, str]) -> None:
    with sidecar(cluster, brokers=bystander(cluster), redirects=redirects):
        said, _ = java(cluster, URL, topic, "one", token=cluster.tokens.of(ROLE))
    assert said == "consumed one"


@pytest.mark.parametrize("redirects", ["rewrite", "follow"])
def test_client_without_a_token_gets_401_in_either_redirect_mode(cluster: Cluster, topic: str, redirects: str) -> None:
    with sidecar(cluster, redirects={"lookup": redirects}), talking(cluster) as client:
        with pytest.raises(ClientFailed):
            client.subscribe(topic)
        assert "The requested URL returned error: 401" in client.log
