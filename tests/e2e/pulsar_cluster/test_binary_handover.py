"""Binary clients under the extensible load manager: topics that are handed over, transactions, brokers that restart.

Its brokers tell clients who has their topic now, and Pulsar's own client reacts to that and to refusals in its own way.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from binary_servers import PLAIN, plain_socket, through_socket
from brokers import Options
from children import Child
from clients import java, talking
from cluster import Cluster, running
from ownership import give, move
from test_real_clients import create

Ingress = Callable[[Cluster], AbstractContextManager[Child]]
HERE = Path(__file__).parent
PARTITIONS = 4


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running(Options(load_manager="extensible", transactions=True)) as started:
        yield started


def test_java_client_produces_and_consumes_without_internal_addresses(cluster: Cluster, namespace: str) -> None:
    topic = f"persistent://{namespace}/orders"
    with plain_socket(cluster):
        said, log = java(cluster, PLAIN, topic, "one", "two")
        assert said == "consumed one two"
        assert "svc.cluster.local" not in log


def test_java_client_keeps_its_connection_when_its_listener_is_refused(cluster: Cluster, namespace: str) -> None:
    """On ServiceNotReady, which brokers say for a listener that they lack, it would drop it and come again."""
    with plain_socket(cluster):
        said, log = java(cluster, PLAIN, f"persistent://{namespace}/orders", "one", listener="internal")
        assert said == "failed NotAllowedException"
        assert "listener 'internal' may not be named" in log
        assert log.count("Connected to server") == 1


@pytest.mark.parametrize(
    "ingress",
    [
        pytest.param(plain_socket, id="addresses outside"),
        pytest.param(through_socket, id="through the sidecar", marks=pytest.mark.full),
    ],
)
def test_java_client_consumes_only_committed_transactions(cluster: Cluster, namespace: str, ingress: Ingress) -> None:
    """Their coordinators are looked up too."""
    with ingress(cluster):
        said, _ = java(cluster, PLAIN, f"persistent://{namespace}/orders", "one", "two", "three", how="transaction")
        assert said == "consumed one three"


def test_handover_through_the_sidecar_names_the_new_owner_by_external_address(cluster: Cluster, namespace: str) -> None:
    """Through the sidecar the client is told the new owner by a name that leads there: no lookup is needed."""
    topic = f"persistent://{namespace}/orders"
    before, after = cluster.brokers[0], cluster.brokers[2]
    give(cluster, topic, before)
    ingress = {"name": "public", "listener": "external", "throughSidecar": True}
    with plain_socket(cluster, ingresses=[ingress]), talking(cluster, PLAIN) as client:
        client.subscribe(topic)
        client.produce(topic, "one")
        client.consume_until("one")
        move(cluster, namespace, after)
        client.produce(topic, "two")
        client.consume_until("two")
        assert f"assignedBrokerUrl: {after.external_service}" in client.log
        assert "svc.cluster.local" not in client.log


@pytest.mark.timeout(900, func_only=True)
def test_no_acknowledged_message_is_lost_when_brokers_restart_one_by_one(cluster: Cluster, namespace: str) -> None:
    """Under load, and nothing that was acknowledged is lost."""
    topic = f"persistent://{namespace}/orders"
    create(cluster, topic, PARTITIONS)
    command = cluster.networks.outside.command(
        "setpriv", "--pdeathsig", "KILL", sys.executable, HERE / "steady_client.py", PLAIN, topic
    )
    log = cluster.folder / "steady.log"
    with (
        through_socket(cluster),
        log.open("wb") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as client,
    ):
        assert client.stdin is not None
        assert client.stdout is not None
        try:
            for restart in (None, *cluster.brokers):
                if restart:
                    cluster.restart(restart)
                client.stdin.write("more\n")
                client.stdin.flush()
                assert any(line == "steady\n" for line in iter(client.stdout.readline, ""))
            client.stdin.close()
            said = json.loads(next(line for line in client.stdout if line.startswith("{")))
        finally:
            client.kill()
    assert said["lost"] == []
