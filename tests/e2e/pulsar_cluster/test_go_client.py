"""The Go client, by HTTP and with all of its bytes through the sidecar; `make e2e-full` has it do all that it can."""

import pytest
from clients import talking
from cluster import Cluster
from conversations import CONVERSATIONS, HTTP_REWRITE, THROUGH, Way
from go_modules import PULSAR_CLIENT, built


@pytest.mark.parametrize(
    ("way", "conversation"),
    [(HTTP_REWRITE, "partitions"), (HTTP_REWRITE, "admin"), (THROUGH, "produce and consume"), (THROUGH, "topic moves")],
    ids=["partitions by http", "admin client", "through the sidecar", "topic moves"],
)
def test_go_client_reaches_its_topics_past_redirects(cluster: Cluster, way: Way, conversation: str) -> None:
    """Clients outside can neither resolve nor reach what brokers call themselves."""
    program = (built(PULSAR_CLIENT)["told"],)
    with way.open(cluster):
        CONVERSATIONS[conversation](cluster, lambda token: talking(cluster, way.url, token, program=program))
