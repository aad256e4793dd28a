"""A real client outside, in a process of its own, as a test talks to it."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO

import artifacts
import jvm
from cluster import Cluster
from gateways import URL

PYTHON = (sys.executable, Path(__file__).with_name("told_client.py"))

_numbers = count()


class ClientFailed(Exception):
    """What the client's library raised, and the end of its log."""

    def __init__(self, failure: str, log: str) -> None:
        super().__init__("\n".join([failure, *log.splitlines()[-25:]]))
        self.failure = failure


class Client:
    """It knows a service URL, perhaps a token and a CA, and nothing of listeners."""

    def __init__(self, calls: IO[str], answers: IO[str], log: Path) -> None:
        self._calls = calls
        self._answers = answers
        self._log = log

    @property
    def log(self) -> str:
        """What the library has written, at level info: every lookup's answer and every connection."""
        return self._log.read_text() if self._log.exists() else ""

    @property
    def connected(self) -> set[str]:
        """The brokers' addresses that it has gone to."""
        return set(re.findall(r"-> (\S+)\] Create ClientConnection", self.log))

    def partitions(self, topic: str) -> list[str]:
        return self._texts("partitions", topic)

    def subscribe(self, topic: str) -> None:
        """From the beginning of the topic."""
        self._call("subscribe", topic)

    def subscribe_to_all(self, pattern: str) -> None:
        """To all topics that match, also to those that come to be later."""
        self._call("subscribe_to_all", pattern)

    def produce(self, topic: str, *messages: str) -> None:
        self._call("produce", topic, *messages)

    def consume(self, messages: int) -> list[str]:
        """So many of what it has subscribed to; it waits for each."""
        return self._texts("consume", messages)

    def consume_until(self, message: str) -> None:
        """This one, after whatever comes before it."""
        self._call("consume_until", message)

    def read(self, topic: str, messages: int) -> list[str]:
        """So many from the beginning of a topic, without a subscription."""
        return self._texts("read", topic, messages)

    def administer(self, topic: str) -> list[str]:
        """Create, use and delete a topic by the admin client that comes with the library; what it has done."""
        return self._texts("administer", topic)

    def _texts(self, call: str, *arguments: str | int) -> list[str]:
        done = self._call(call, *arguments)
        assert isinstance(done, list)
        return done

    def _call(self, call: str, *arguments: str | int) -> object:
        self._calls.write(json.dumps([call, *arguments]) + "\n")
        self._calls.flush()
        line = self._answers.readline()
        assert line, f"the client has ended\n{self.log}"
        answer = json.loads(line)
        if "failed" in answer:
            raise ClientFailed(answer["failed"], self.log)
        done: object = answer["done"]
        return done


@contextmanager
def talking(
    cluster: Cluster,
    url: str = URL,
    token: str = "",
    ca: Path | None = None,
    patience: int = 10,
    listener: str = "",
    program: Sequence[str | Path] = PYTHON,
) -> Iterator[Client]:
    """A client, for as long as the test talks to it; it waits so many seconds for anything."""
    log = cluster.folder / f"client-{next(_numbers)}.log"
    arguments = (url, log, str(patience), token, ca or "", listener)
    with subprocess.Popen(
        cluster.networks.outside.command("setpriv", "--pdeathsig", "KILL", *program, *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Client(process.stdin, process.stdout, log)
        finally:
            process.kill()


def java(
    cluster: Cluster, url: str, topic: str, *messages: str, how: str = "plain", listener: str = "", token: str = ""
) -> tuple[str, str]:
    """What Pulsar's own client in Java says in the end, and its log."""
    classpath = artifacts.classpath(cluster.options.release)
    arguments = (url, topic, how, listener, token, *messages)
    command = jvm.command(classpath, str(Path(__file__).with_name("JavaClient.java")), *arguments, heap=200)
    done = subprocess.run(cluster.networks.outside.command(*command), capture_output=True, text=True, timeout=120)
    log = done.stdout + done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith(("consumed ", "failed "))]
    assert said, log
    return said[-1], log
