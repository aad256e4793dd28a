"""The calls of Pulsar's own admin client in Java, made of a broker and through the sidecar, and what came of each.

Both ways the same broker is asked first, and is neither the leader nor the owner of the topic.
"""

import json
import re
import subprocess
from pathlib import Path

import artifacts
import jvm
from cluster import Cluster
from conversations import ROLE, Way, new_namespace
from gateways import URL
from networks import Namespace
from ownership import give

PROGRAM = Path(__file__).with_name("AdminCalls.java")
SECONDS = 240

Results = dict[tuple[str, str], str]  # by interface and method


def direct(cluster: Cluster) -> Results:
    """From inside."""
    leader = cluster.leader()
    asked = next(broker for broker in cluster.brokers if broker != leader)
    return _results(cluster, cluster.networks.inside, asked.web)


def through(cluster: Cluster, way: Way) -> Results:
    """From outside, at the ingress."""
    with way.open(cluster):
        return _results(cluster, cluster.networks.outside, URL)


def _results(cluster: Cluster, network: Namespace, url: str) -> Results:
    namespace = new_namespace(cluster, role=ROLE)
    _fill(cluster, f"persistent://{namespace}/orders")
    classpath = artifacts.classpath(cluster.options.release)
    command = jvm.command(classpath, str(PROGRAM), url, namespace, cluster.tokens.of("admin"), heap=300)
    done = subprocess.run(network.command(*command), capture_output=True, text=True, timeout=SECONDS)
    lines = [line.split("\t", 3)[1:] for line in done.stdout.splitlines() if line.startswith("call\t")]
    assert done.returncode == 0, done.stdout + done.stderr
    return {(interface, method): _plain(came, namespace) for interface, method, came in lines}


def _fill(cluster: Cluster, topic: str) -> None:
    """A subscription and a message, at the broker that is last to be asked."""
    leader = cluster.leader()
    owner = [broker for broker in cluster.brokers if broker != leader][1]
    give(cluster, topic, owner)
    url = f"{owner.web}/admin/v2/{topic.replace('://', '/')}"
    message = {
        "messages": [{"payload": "one"}],
        "schemaVersion": -1,
        "valueSchema": json.dumps({"name": "", "schema": "", "type": "STRING", "properties": {}}),
    }
    for method, where, body, status in (
        ("PUT", url, None, 204),
        ("PUT", f"{url}/subscription/kept", {"ledgerId": -1, "entryId": -1}, 204),
        ("POST", f"{owner.web}/topics/{topic.replace('://', '/')}", message, 200),
    ):
        made = cluster.request(method, where, body)
        assert made.status == status, made


def _plain(came: str, namespace: str) -> str:
    """Without what differs between two namespaces, and between a broker's two addresses."""
    came = came.replace(namespace.rpartition("/")[2], "NAMESPACE")
    came = re.sub(r"pulsar://[\w.-]+:\d+", "BROKER", came)
    return re.sub(r"\d+(\.\d+)?(?=[:,}\]\"])", "N", came) if came.startswith(('"', "{", "[")) else came
