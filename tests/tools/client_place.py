"""Where a client stands: names that lead to this machine, a sidecar that ends TLS, and brokers of both protocols."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trustme
from running_sidecar import LOOPBACK, RunningSidecar, merged, running
from simulated.cluster import Listener, SimulatedCluster
from wires import free_port

from pulsar_ingress_proxy.binary import commands
from pulsar_ingress_proxy.binary.commands_pb2 import Command, Connected, Error, Lookup, LookupResponse
from pulsar_ingress_proxy.binary.frames import write
from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.routing.snapshot import build
from pulsar_ingress_proxy.tools.conformance.checks import Client, Result, conform
from pulsar_ingress_proxy.tools.conformance.expectations import TOPIC, expect
from pulsar_ingress_proxy.tools.conformance.verdicts import Cause, State
from pulsar_ingress_proxy.tools.reach import ClientTls

HOST = "pulsar.example.com"
BROKERS = 3
Keys = Mapping[str, Any]


def name_of(broker: int) -> str:
    return f"broker-{broker}.{HOST}"


class Names:
    """The DNS of the place: these names are of this machine, and no others exist."""

    def __init__(self, *names: str) -> None:
        self.known = set(names)
        self._real = socket.getaddrinfo

    def __call__(self, host: str | None, *arguments: Any, **options: Any) -> Any:
        if host in self.known:
            host = "127.0.0.1"
        elif host is not None and not host.startswith("127."):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self._real(host, *arguments, **options)


@dataclass
class BinaryBroker:
    """The binary port of all brokers: it accepts every client, or those with its token, and answers lookups."""

    plain: int = 0
    tls: int = 0
    token: bytes | None = None
    greets: bool = True
    lookups: list[Lookup] = field(default_factory=list)
    dialled: list[str] = field(default_factory=list)
    """The address of each connection: internally every broker has its own, 127.0.0.2 the first."""
    answers: list[Callable[[Lookup], LookupResponse]] = field(default_factory=list)
    """One for each lookup, and then for all that follow."""

    def url(self, broker: int, scheme: str = "pulsar") -> str:
        return f"{scheme}://{name_of(broker)}:{self.plain if scheme == 'pulsar' else self.tls}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.dialled.append(writer.get_extra_info("sockname")[0])
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                size = int.from_bytes(await reader.readexactly(4))
                data = await reader.readexactly(size)
                command = Command.FromString(data[4 : 4 + int.from_bytes(data[:4])])
                if not self.greets:
                    break
                if (answer := self._answer(command)) is not None:
                    writer.write(write(answer))
        writer.close()

    def _answer(self, command: Command) -> Command | None:
        if command.type == commands.CONNECT:
            if self.token in (None, command.connect.auth_data):
                return Command(type=commands.CONNECTED, connected=Connected(server_version=b"simulated"))
            error = Error(request_id=0, error=commands.AUTHENTICATION_ERROR, message=b"Unable to authenticate")
            return Command(type=commands.ERROR, error=error)
        if command.type != commands.LOOKUP:
            return None
        self.lookups.append(command.lookup)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        response = answer(command.lookup)
        response.request_id = command.lookup.request_id
        return Command(type=commands.LOOKUP_RESPONSE, lookup_response=response)


@dataclass
class Place:
    """All of it, and the config that the sidecar runs with, as the client has it too."""

    cluster: SimulatedCluster
    binary: BinaryBroker
    names: Names
    config: dict[str, Any]
    ports: Mapping[str, int]
    ca: Path
    certificates: trustme.CA
    folder: Path

    def url(self, scheme: str, host: str = HOST) -> str:
        return f"{scheme}://{host}:{self.ports[scheme]}"

    @asynccontextmanager
    async def sidecar(self, **keys: Any) -> AsyncIterator[RunningSidecar]:
        """The sidecar, with other keys than the client's config has."""
        async with running(RunningSidecar, merged(self.config, keys)) as one:
            yield one

    async def conform(
        self,
        *urls: str,
        token: str | None = None,
        wait: float = 0,
        topic: str = TOPIC,
        tell: Callable[[Result], None] = lambda _: None,
        **keys: Any,
    ) -> list[Result]:
        """What the command finds, with other keys of its config."""
        snapshot = build(load_mapping(merged(self.config, keys)))
        client = Client(ClientTls(str(self.ca)), str(self.ca), token)
        return await conform([expect(url, snapshot, topic) for url in urls], client, wait, tell)

    def answer(self, broker: int) -> LookupResponse:
        """As a broker names another, by its internal addresses."""
        inside = f"pulsar://{self.cluster.brokers[broker].name}:6650"
        return LookupResponse(url=inside.encode(), response=commands.FOUND)

    def failing(self, message: bytes) -> LookupResponse:
        return LookupResponse(response=commands.FAILED, error=commands.METADATA_ERROR, message=message)


def states(results: list[Result]) -> dict[str, State]:
    return {result.check: result.verdict.state for result in results}


def texts(results: list[Result]) -> dict[str, str]:
    return {result.check: result.verdict.text for result in results}


def failure(results: list[Result]) -> tuple[str, Cause | None, str]:
    """The one check that failed, its cause and text."""
    [one] = [result for result in results if result.verdict.state == "failed"]
    return one.check, one.verdict.cause, one.verdict.text


@asynccontextmanager
async def answering(port: int, answer: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
    """Something else at the ingress's address, that answers every request so."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.read(10_000):
            writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", port, ssl=tls):
        yield


def http(status: int, body: bytes = b"") -> bytes:
    return b"HTTP/1.1 %d Status\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


def server_context(pair: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair.configure_cert(context)
    return context


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    names = Names(HOST, *map(name_of, range(BROKERS)))
    monkeypatch.setattr(socket, "getaddrinfo", names)
    return names


@pytest.fixture
async def place(names: Names, tmp_path: Path) -> AsyncIterator[Place]:
    certificates = trustme.CA()
    pair = certificates.issue_cert(HOST, f"*.{HOST}")
    certificates.cert_pem.write_to_path(tmp_path / "ca.pem")
    pair.private_key_and_cert_chain_pem.write_to_path(tmp_path / "ingress.pem")
    binary = BinaryBroker()
    plain = await asyncio.start_server(binary.serve, "0.0.0.0", 0)
    tls = await asyncio.start_server(binary.serve, "127.0.0.1", 0, ssl=server_context(pair))
    binary.plain, binary.tls = (server.sockets[0].getsockname()[1] for server in (plain, tls))
    listener = Listener(
        f"pulsar://broker-{{n}}.{HOST}:{binary.plain}", f"pulsar+ssl://broker-{{n}}.{HOST}:{binary.tls}"
    )
    ports = {scheme: free_port() for scheme in ("http", "https", "pulsar", "pulsar+ssl")}
    async with plain, tls, SimulatedCluster(brokers=BROKERS, listeners={"external": listener}) as cluster:
        config = {
            **LOOPBACK,
            "bindAddresses": [
                *(f"{scheme}://127.0.0.1:{ports[scheme]}" for scheme in ("http", "https", "pulsar+ssl")),
                f"external:pulsar://127.0.0.1:{ports['pulsar']}",
            ],
            "tls": {"certificate": str(tmp_path / "ingress.pem"), "key": str(tmp_path / "ingress.pem")},
            "brokers": {
                "webServiceUrl": [broker.web for broker in cluster.brokers],
                "brokerServiceUrl": [f"pulsar://127.0.0.1:{binary.plain}"],
            },
            "ingresses": [{"name": "public", "hosts": [HOST, f"*.{HOST}"], "listener": "external"}],
            "advertisedListeners": [
                {"broker": broker.name, "listeners": ",".join(addresses(broker.web, number, ports, binary))}
                for number, broker in enumerate(cluster.brokers)
            ],
            "redirects": {"lookup": "rewrite", "admin": "rewrite"},
            "timeouts": {"connect": 2, "lookup": 5},
        }
        yield Place(cluster, binary, names, config, ports, tmp_path / "ca.pem", certificates, tmp_path)


def addresses(web: str, number: int, ports: Mapping[str, int], binary: BinaryBroker) -> Iterator[str]:
    """A broker's: the sidecar's sockets over the web, the brokers' own port over the binary protocol."""
    yield from (f"internal:{web}", f"internal:pulsar://127.0.0.{number + 2}:{binary.plain}")
    yield from (f"external:{scheme}://{name_of(number)}:{ports[scheme]}" for scheme in ("http", "https"))
    yield from (f"external:{binary.url(number, scheme)}" for scheme in ("pulsar", "pulsar+ssl"))
