"""A web server of Jetty on several ports, and the requests that it read on each."""

import re
import urllib.request
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import artifacts
import jvm
from children import Child

SOURCE = Path(__file__).with_name("SeenRequests.java")
HEAP = 96  # MiB
REPORTS_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as Jetty read it."""

    number: int
    """Of the first, 1. Its answer has it in the header `Seen`."""
    port: int
    peer: str
    """The address that it came from."""
    client: str
    """The last address in X-Forwarded-For."""
    method: str
    fields: frozenset[str]
    """Their names."""
    target: str
    body: bytes
    is_whole: bool


class Origin:
    """A Jetty that runs. Its first port is for reports."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._reports, *self.ports = ports
        self._told = 0

    def new_requests(self) -> list[Seen]:
        """All since the last time; waits for those of which Jetty still reads the body."""
        url = f"http://127.0.0.1:{self._reports}/{self._told}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        first, self._told = self._told + 1, self._told + len(lines)
        return [_seen(number, line) for number, line in enumerate(lines, first)]


def _seen(number: int, line: str) -> Seen:
    port, peer, client, method, fields, target, body, whole = line.split("\t")
    return Seen(
        number,
        int(port),
        peer,
        client.rpartition(",")[2].strip(),
        method,
        frozenset(fields.split(",")),
        b64decode(target).decode(),
        b64decode(body),
        whole == "true",
    )


@contextmanager
def serving(line: str, folder: Path, idle_seconds: Sequence[float]) -> Iterator[Origin]:
    """The Jetty of a line of Pulsar, with one port for each of these timeouts."""
    server = artifacts.WEB_SERVERS[line]
    source = SOURCE.read_text().replace("jakarta.", f"{server.java}.")
    (folder / SOURCE.name).write_text(source.replace("org.eclipse.jetty.ee10.", f"{server.group}."))
    timeouts = [str(int(seconds * 1000)) for seconds in (REPORTS_SECONDS, *idle_seconds)]
    command = jvm.command(artifacts.classpath(server), str(folder / SOURCE.name), *timeouts, heap=HEAP)
    child = Child(server.name, command, folder / "log")
    try:
        child.says("serving on ports ", seconds=60)
        found = re.search(r"serving on ports ([\d ]+)\n", child.output)
        assert found is not None
        yield Origin([int(port) for port in found[1].split()])
    finally:
        child.kill()
