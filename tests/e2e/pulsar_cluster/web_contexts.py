"""A broker's web contexts on real Jetty and Jersey, one JVM for each line of Pulsar, and what they make of a target."""

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import artifacts
import jvm
from children import Child

SOURCE = Path(__file__).with_name("WebContexts.java")
HEAP = 96  # MiB


@dataclass(frozen=True, slots=True)
class Served:
    """What came of a request: the resource that answered it, None where nothing did."""

    status: int
    context: str | None
    resource: str | None
    listener: str | None


@contextmanager
def serving(folder: Path) -> Iterator[dict[str, int]]:
    """The ports on loopback, by line of Pulsar; all start at once."""
    with ExitStack() as stack:
        children = {}
        for line, server in artifacts.WEB_SERVERS.items():
            place = folder / line
            place.mkdir()
            packages = SOURCE.read_text().replace("jakarta.", f"{server.java}.")
            (place / SOURCE.name).write_text(packages.replace("org.eclipse.jetty.ee10.", f"{server.group}."))
            classpath = artifacts.classpath(server)
            command = jvm.command(classpath, str(place / SOURCE.name), line, heap=HEAP)
            children[line] = Child(f"jetty-{line}", command, place / "log")
            stack.callback(children[line].kill)
        for child in children.values():
            child.says("serving on port ", seconds=60)
        yield {line: _port(child) for line, child in children.items()}


def _port(child: Child) -> int:
    found = re.search(r"serving on port (\d+)\n", child.output)
    assert found is not None
    return int(found[1])


def ask(port: int, target: str, host: str = "localhost") -> Served:
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        status, headers, _ = get(connection, target, host)
    return Served(status, headers.get("context"), headers.get("resource"), headers.get("listener"))


def get(connection: socket.socket, target: str, host: str) -> tuple[int, dict[str, str], bytes]:
    """An answer's status, headers and body; client libraries would put the target right first."""
    connection.sendall(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode("latin-1"))
    answer = b"".join(iter(lambda: connection.recv(65536), b""))
    head, end, body = answer.partition(b"\r\n\r\n")
    assert end, f"{target!r} was answered with {answer!r}"
    status, *fields = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
    return int(status.split(" ")[1]), headers, body
