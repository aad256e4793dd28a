"""Scalable topics of Pulsar 5.0, and its V5 client, which runs in a process of its own."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import artifacts
import jvm
from brokers import Broker
from children import dying_with
from cluster import Cluster

from pulsar_ingress_proxy.binary import commands
from pulsar_ingress_proxy.binary.commands_pb2 import Command, Connect, ScalableTopicDag, ScalableTopicLookup
from pulsar_ingress_proxy.binary.frames import Frame, FrameDecoder, write

PROGRAM = Path(__file__).with_name("V5Client.java")
KINDS = ("queue", "stream", "checkpoint", "group")

_numbers = count()


class V5Client:
    """It produces, and has a consumer of each kind."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def said(self) -> str:
        """The client's next line, of those that are not its library's."""
        assert self._process.stdout is not None
        with self._log.open("a") as log:
            for line in self._process.stdout:
                if line.startswith("said "):
                    return line.removeprefix("said ").strip()
                log.write(line)
        raise AssertionError(f"the client has ended\n{self.log[-6000:]}")

    def round(self, name: str) -> list[str]:
        """Produce messages of that name; the kinds of consumers that have received all of them."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{name}\n")
        self._process.stdin.flush()
        return self.said().split()

    @property
    def log(self) -> str:
        return self._log.read_text()


@contextmanager
def v5_client(
    cluster: Cluster, url: str, topic: str, *kinds: str, ca: Path | None = None, how: str = "plain"
) -> Iterator[V5Client]:
    """A client outside, not yet asked whether it is ready."""
    classpath = f"{artifacts.classpath(artifacts.V5_CLIENT)}:{artifacts.classpath(cluster.options.release)}"
    arguments = (url, topic, cluster.tokens.of("admin"), str(ca or ""), how, *kinds)
    command = jvm.command(classpath, str(PROGRAM), *arguments, heap=200)
    log = cluster.folder / f"v5-{next(_numbers)}.log"
    with subprocess.Popen(
        cluster.networks.outside.command(*command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=dying_with(os.getpid()),
    ) as process:
        try:
            yield V5Client(process, log)
        finally:
            process.kill()


def create(cluster: Cluster, topic: str, segments: int) -> None:
    """A topic is `topic://tenant/namespace/name`."""
    path = topic.removeprefix("topic://")
    url = f"{cluster.brokers[0].web}/admin/v2/scalable/{path}?numInitialSegments={segments}"
    made = cluster.request("PUT", url)
    assert made.status == 204, made


def elect(cluster: Cluster, topic: str, controller: Broker) -> None:
    """Let a broker become the controller of a topic that has none: it is the first that is asked for its stats."""
    path = topic.removeprefix("topic://")
    answer = cluster.request("GET", f"{controller.web}/admin/v2/scalable/{path}/stats")
    assert answer.status == 200, answer


def layout(cluster: Cluster, broker: Broker, port: int, topic: str) -> ScalableTopicDag:
    """What a broker says about a topic on one of its ports."""
    token = cluster.tokens.of("admin").encode()
    connect = Connect(client_version=b"test", protocol_version=21, auth_method_name=b"token", auth_data=token)
    question = ScalableTopicLookup(session_id=1, topic=topic.encode())
    decoder = FrameDecoder(commands.FROM_CONTROLLER, None, is_strict=False)
    with cluster.networks.inside.connect(broker.name, port) as connection:
        connection.sendall(write(Command(type=commands.CONNECT, connect=connect)))
        while data := connection.recv(1 << 16):
            for frame in (piece for piece in decoder.feed(data) or () if isinstance(piece, Frame)):
                if frame.type == commands.CONNECTED:
                    asked = Command(type=commands.SCALABLE_TOPIC_LOOKUP, scalable_topic_lookup=question)
                    connection.sendall(write(asked))
                elif frame.type == commands.SCALABLE_TOPIC_UPDATE:
                    return frame.command().scalable_topic_update.dag
    raise AssertionError(f"{broker.name}:{port} does not say where {topic} is")


def controller(cluster: Cluster, topic: str) -> Broker | None:
    url = layout(cluster, cluster.brokers[0], 6650, topic).url.decode()
    return cluster.broker(url.removeprefix("pulsar://").partition(":")[0]) if url else None
