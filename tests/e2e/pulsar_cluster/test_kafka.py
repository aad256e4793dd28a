"""`doctor` and a real Kafka broker: what each of its listeners tells clients."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import artifacts
import jvm
import pytest
import yaml
from children import Child
from processes import BIN, free_port

HEAP = 256  # MiB
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]


@dataclass(frozen=True, slots=True)
class Kafka:
    """A broker's ports; it advertises 127.0.0.1 on `internal`, localhost on the others, and `guarded` wants a login."""

    internal: int
    external: int
    guarded: int


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    folder, controller = tmp_path_factory.mktemp("kafka"), free_port()
    ports = Kafka(free_port(), free_port(), free_port())
    advertised = f"INTERNAL://127.0.0.1:{ports.internal},EXTERNAL://localhost:{ports.external},GUARDED://localhost:{ports.guarded}"
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "INTERNAL",
        "listeners": f"CONTROLLER://127.0.0.1:{controller},{advertised.replace('localhost', '127.0.0.1')}",
        "advertised.listeners": advertised,
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,GUARDED:SASL_PLAINTEXT"
        ),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.guarded.plain.sasl.jaas.config": f'{LOGIN} required user_client="secret";',
        "log.dirs": str(folder / "data"),
    }
    file = folder / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    classpath = artifacts.classpath(artifacts.KAFKA)
    options = ["format", "--config", str(file), "--cluster-id", CLUSTER_ID]
    formatting = Child(
        "format", jvm.command(classpath, "kafka.tools.StorageTool", *options, heap=HEAP), folder / "format.log"
    )
    assert formatting.ended(120) == 0, formatting.tail()
    broker = Child("kafka", jvm.command(classpath, "kafka.Kafka", str(file), heap=HEAP), folder / "kafka.log")
    try:
        broker.says("Kafka Server started", seconds=180)
        yield ports
    finally:
        broker.kill()


def diagnosed(folder: Path, listeners: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit code and the findings of a client outside."""
    config = folder / "config.yaml"
    keys = {
        "brokers": {"webServiceUrl": ["http://127.0.0.1:1"]},
        "advertisedListeners": [{"broker": "kafka-1", "listeners": listeners}],
    }
    config.write_text(yaml.safe_dump(keys))
    doctor = [str(BIN / "pulsar-ingress-proxy"), "doctor", "--config", str(config), "--listener", "external", "--json"]
    done = subprocess.run(doctor, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize(("listener", "host"), [("internal", "127.0.0.1"), ("external", "localhost")])
def test_listener_that_advertises_the_address_in_the_book_is_reachable(
    kafka: Kafka, tmp_path: Path, listener: str, host: str
) -> None:
    code, [found] = diagnosed(tmp_path, f"external:kafka://{host}:{getattr(kafka, listener)}")
    assert (code, found["answers"], found["problem"], found["warning"]) == (0, "Metadata", None, None)


def test_port_of_the_wrong_listener_is_reported_with_the_address_that_it_advertises(
    kafka: Kafka, tmp_path: Path
) -> None:
    """As through a gateway whose external port leads to the broker's internal listener."""
    url = f"kafka://localhost:{kafka.internal}"
    code, (told, asked) = diagnosed(tmp_path, f"external:{url},internal:kafka://127.0.0.1:{kafka.internal}")
    assert (code, asked["url"], asked["answers"], asked["reachable"]) == (1, url, "Metadata", True)
    assert (told["url"], told["reachable"]) == (f"kafka://127.0.0.1:{kafka.internal}", False)
    assert f"clients of {url} are told to connect to 127.0.0.1:{kafka.internal}" in told["problem"]


def test_listener_that_wants_a_login_is_reachable_with_a_warning(kafka: Kafka, tmp_path: Path) -> None:
    code, [found] = diagnosed(tmp_path, f"external:kafka://localhost:{kafka.guarded}")
    assert (code, found["answers"]) == (0, "ApiVersions")
    assert "authentication (SASL)" in found["warning"]
