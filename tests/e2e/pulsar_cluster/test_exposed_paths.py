"""Behind `expose: [lookup]` a real broker's other paths stay out of reach, however they are spelled."""

import json
import secrets
from collections.abc import Iterator

import pytest
from brokers import HOST, HOST_PORT
from cluster import Cluster
from gateways import sidecar
from ownership import lookup
from web_contexts import get

CONTEXTS = ("/admin/v2/clusters", "/metrics/", "/status.html", "/static/", "/topics/persistent/public/default/x")
SPELLINGS = (
    "{}",
    "/{}",
    "/lookup/..{}",
    "/lookup/%2e%2e{}",
    "/lookup/%u002e%u002e{}",
    "/lookup/.%u002e{}",
    "/lookup/..%u002f{}",
    "/lookup/..;{}",
    "/lookup/..%2F{}",
    "/lookup/%c0%ae%c0%ae{}",
    "/lookup;x/..{}",
    f"http://{HOST}{{}}",
    f"http://{HOST}/lookup/%u002e%u002e{{}}",
)


@pytest.fixture(scope="module")
def lookups_only(cluster: Cluster) -> Iterator[Cluster]:
    ingress = {"name": "public", "hosts": [HOST, f"*.{HOST}"], "listener": "external", "expose": ["lookup"]}
    with sidecar(cluster, ingresses=[ingress]):
        yield cluster


def straight(cluster: Cluster, target: str) -> tuple[int, bytes]:
    """What the broker itself says to that."""
    broker = cluster.brokers[0]
    with cluster.networks.inside.connect(broker.name, 8080) as connection:
        status, _, body = get(connection, target, broker.name)
    return status, body


def through(cluster: Cluster, target: str) -> tuple[int, bytes]:
    with cluster.networks.outside.connect(HOST, HOST_PORT) as connection:
        status, _, body = get(connection, target, HOST)
    return status, body


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_path_outside_of_lookup_is_refused(lookups_only: Cluster, spelling: str, context: str) -> None:
    status, body = through(lookups_only, spelling.format(context))
    assert (status, json.loads(body)["reason"].partition(":")[0]) in ((400, "bad-path"), (403, "not-exposed"))


@pytest.mark.parametrize("target", ["/metrics/", "/lookup/%u002e%u002e/metrics/", "/lookup/.%u002e/metrics/"])
def test_broker_serves_metrics_for_spellings_that_the_sidecar_refuses(lookups_only: Cluster, target: str) -> None:
    """Without this the test above would prove nothing."""
    status, body = straight(lookups_only, target)
    assert status == 200
    assert b"pulsar_" in body
    assert through(lookups_only, target)[0] in (400, 403)


def test_a_lookup_cannot_be_hidden_in_path_parameters(lookups_only: Cluster) -> None:
    """Jersey reads it as a lookup, so its answer would have the broker's own addresses."""
    target = lookup(f"persistent://public/default/{secrets.token_hex(4)}")
    hidden = target.replace("/lookup/", "/lookup;", 1)
    assert straight(lookups_only, hidden)[0] in (200, 307)
    assert through(lookups_only, hidden)[0] == 400
    assert through(lookups_only, target)[0] in (200, 307)


@pytest.mark.parametrize("name", ["a%2Fb", "a%252Fb", "100%25", "a+b", "a:b", "%E4%B8%BB", "a%3Bb", "a%20b"])
def test_encoded_topic_names_can_be_looked_up_through_the_sidecar(lookups_only: Cluster, name: str) -> None:
    target = lookup(f"persistent://public/default/{name}")
    assert straight(lookups_only, target)[0] in (200, 307)
    assert through(lookups_only, target)[0] in (200, 307)
