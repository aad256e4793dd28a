"""Two worlds in network namespaces: the brokers' inside, and an outside that has nothing but the gateway's address.

Names of either world stand in hosts files of their own; there is no DNS. The only link between them is a pair of
interfaces, 192.0.2.1 inside and 192.0.2.2 outside, and no route leads on.
"""

import ctypes
import http.client
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

from jvm import Missing

GATEWAY = "192.0.2.1"
CLIENT = "192.0.2.2"
PREFIX = "pulsar-e2e"
CLONE_NEWNET = 0x40000000

_numbers = count()


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes


@dataclass(frozen=True, slots=True)
class Namespace:
    """One world: where processes can be started, and where this process can open sockets."""

    name: str
    hosts: Mapping[str, str]

    def command(self, *command: str | Path) -> list[str]:
        """That command, to be run in this world."""
        return ["ip", "netns", "exec", self.name, *map(str, command)]

    def connect(self, host: str, port: int, seconds: float = 30) -> socket.socket:
        """A connection of this world, by its names."""
        if host not in self.hosts:
            raise socket.gaierror(socket.EAI_NONAME, f"{host} does not resolve in {self.name}")
        with self.entered():
            connection = socket.socket()
        connection.settimeout(seconds)
        try:
            connection.connect((self.hosts[host], port))
        except OSError:
            connection.close()
            raise
        return connection

    def request(
        self,
        method: str,
        url: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        seconds: float = 30,
    ) -> Answer:
        """One exchange by HTTP from this world; redirects are for the caller to follow."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        connection = self.connect(parts.hostname, parts.port or (443 if tls else 80), seconds)
        if tls is not None:
            connection = tls.wrap_socket(connection, server_hostname=parts.hostname)
        client = http.client.HTTPConnection(parts.netloc)
        client.sock = connection
        try:
            client.request(method, parts._replace(scheme="", netloc="").geturl(), body, dict(headers or {}))
            response = client.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            client.close()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """This thread, in that namespace: sockets stay in the one they were made in."""
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        other = os.open(f"/run/netns/{self.name}", os.O_RDONLY)
        try:
            _setns(other)
            try:
                yield
            finally:
                _setns(own)
        finally:
            os.close(own)
            os.close(other)


@dataclass(frozen=True, slots=True)
class TwoNetworks:
    inside: Namespace
    outside: Namespace
    folder: Path  # for what their processes write; goes with them


@contextmanager
def two_networks(inside: Mapping[str, str], outside: Mapping[str, str]) -> Iterator[TwoNetworks]:
    """Both worlds with their names; addresses among those of the inside become its own. All goes at the end."""
    if shutil.which("ip") is None:
        raise Missing("ip is missing: `make e2e` needs iproute2")
    sweep()
    name = f"{PREFIX}-{os.getpid()}-{_started(os.getpid())}-{next(_numbers)}"
    networks = TwoNetworks(
        Namespace(f"{name}-inside", {**inside, "localhost": "127.0.0.1"}),
        Namespace(f"{name}-outside", {**outside, "localhost": "127.0.0.1"}),
        Path(tempfile.gettempdir()) / name,
    )
    try:
        networks.folder.mkdir()
        for network in (networks.inside, networks.outside):
            _write_names(network)
        _ip(
            f"netns add {networks.inside.name}",
            f"netns add {networks.outside.name}",
            f"link add gateway netns {networks.inside.name} type veth peer name client netns {networks.outside.name}",
        )
        _ip("link set lo up", "link set client up", f"addr add {CLIENT}/30 dev client", network=networks.outside)
        own = sorted(set(inside.values()))
        _ip(
            "link set lo up",
            "link set gateway up",
            f"addr add {GATEWAY}/30 dev gateway",
            *(f"addr add {address}/32 dev lo" for address in own if not address.startswith("127.")),
            network=networks.inside,
        )
        yield networks
    finally:
        _remove(name)


def sweep() -> None:
    """Remove what was left by owners that were killed."""
    places = (Path("/run/netns"), Path("/etc/netns"), Path(tempfile.gettempdir()))
    names = {path.name for place in places if place.is_dir() for path in place.glob(f"{PREFIX}-*")}
    for name in {found[0] for name in names if (found := re.match(rf"{PREFIX}-(\d+)-(\d+)-\d+", name))}:
        owner, started = name.split("-")[2:4]
        if _started(int(owner)) != started:
            _remove(name)


def _remove(name: str) -> None:
    for network in (f"{name}-inside", f"{name}-outside"):
        if Path("/run/netns", network).exists():
            left = subprocess.run(["ip", "netns", "pids", network], capture_output=True, text=True)
            for process in left.stdout.split():
                with suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", network], capture_output=True)
        shutil.rmtree(Path("/etc/netns", network), ignore_errors=True)
    shutil.rmtree(Path(tempfile.gettempdir(), name), ignore_errors=True)


def _write_names(network: Namespace) -> None:
    """`ip netns exec` puts these files over those in /etc."""
    folder = Path("/etc/netns", network.name)
    try:
        folder.mkdir(parents=True)
    except PermissionError:
        raise Missing("network namespaces cannot be made: `make e2e` needs root") from None
    names = {**network.hosts, socket.gethostname(): "127.0.0.1"}  # a JVM asks for its own
    (folder / "hosts").write_text("".join(f"{address} {name}\n" for name, address in names.items()))
    (folder / "nsswitch.conf").write_text("hosts: files\n")


def _ip(*commands: str, network: Namespace | None = None) -> None:
    where = ["-netns", network.name] if network else []
    done = subprocess.run(["ip", *where, "-batch", "-"], input="\n".join(commands), capture_output=True, text=True)
    if done.returncode != 0:
        raise Missing(f"network namespaces cannot be made: `make e2e` needs root\n{done.stderr.strip()}")


def _started(process: int) -> str | None:
    """When a process was started, in ticks since boot: with its id, it is like no other."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return None


def _setns(namespace: int) -> None:
    """Python has os.setns from 3.12 on."""
    if ctypes.CDLL(None, use_errno=True).setns(namespace, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
