"""What may stand at the gateway's address, and who comes to it: a broker as it is, the sidecar, a client outside."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import yaml
from brokers import CLUSTER, HOST, HOST_PORT, Broker
from children import Child
from cluster import Cluster
from networks import GATEWAY

URL = f"http://{HOST}:{HOST_PORT}"
HERE = Path(__file__).parent

_numbers = count()


@contextmanager
def straight(cluster: Cluster, broker: Broker) -> Iterator[Child]:
    """The ingress leads to that broker, with nothing in between that knows HTTP."""
    route = f"{GATEWAY}:{HOST_PORT}={broker.address}:8080"
    with cluster.started(f"ingress-{next(_numbers)}", sys.executable, HERE / "tcp_routes.py", route) as gateway:
        gateway.says("forwarding")
        yield gateway


@contextmanager
def sidecar(cluster: Cluster, **keys: object) -> Iterator[Child]:
    """The ingress leads to the sidecar; with further keys of its config."""
    name = f"sidecar-{next(_numbers)}"
    config = cluster.folder / f"{name}.yaml"
    config.write_text(yaml.safe_dump(sidecar_config(cluster) | keys))
    program = Path(sys.executable).with_name("pulsar-ingress-proxy")
    with cluster.started(name, program, "run", "--config", config) as child:
        child.says("serving")
        yield child


def sidecar_config(cluster: Cluster) -> dict[str, object]:
    """Twenty lines, as an operator would write them."""
    return {
        "clusterName": CLUSTER,
        "bindAddresses": [f"http://{GATEWAY}:{HOST_PORT}"],
        "brokers": {"webServiceUrl": [broker.web for broker in cluster.brokers]},
        "ingresses": [{"name": "public", "hosts": [HOST, f"*.{HOST}"], "listener": "external"}],
        "advertisedListeners": [
            {
                "broker": broker.name,
                "listeners": f"internal:{broker.web}, internal:{broker.service}, "
                f"external:{broker.external_web}, external:{broker.external_service}",
            }
            for broker in cluster.brokers
        ],
        "metrics": {"address": "127.0.0.1:9090"},
    }


@dataclass(frozen=True, slots=True)
class Spoken:
    """What became of a client."""

    consumed: list[str]
    failure: str | None
    log: str


def client(cluster: Cluster, topic: str, *messages: str, url: str = URL) -> Spoken:
    """A real client outside, that produces and consumes; it knows the ingress's address, and nothing of listeners."""
    command = cluster.networks.outside.command(sys.executable, HERE / "produce_consume.py", url, topic, *messages)
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"the client ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    said = json.loads(lines[-1])
    return Spoken(said.get("consumed", []), said.get("failure"), done.stdout + done.stderr)
