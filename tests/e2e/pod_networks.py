"""The network of a node: a namespace for it and one for each pod, a bridge between them, and no way out.

Namespaces have no names. They are open files of this process, and gone when it ends, however that ends.
What Kubernetes does with routes and kube-proxy, forwarders do here: sockets in the node's namespace that lead to pods,
or to what listens on the loopback of the machine. DNS is a file of hosts.
"""

import asyncio
import ctypes
import os
import socket
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from caching import Missing

CLONE_NEWNET = 0x40000000
CHUNK = 65536
BRIDGE = "10.1.0.1"  # the node's own address among the pods'

_LIBC = ctypes.CDLL(None, use_errno=True)

Dial = Callable[[], Awaitable[socket.socket]]


class Network:
    """One network namespace."""

    def __init__(self) -> None:
        made: list[int] = []

        def unshare() -> None:
            if _LIBC.unshare(CLONE_NEWNET) == 0:
                made.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY))

        thread = threading.Thread(target=unshare)
        thread.start()
        thread.join()
        if not made:
            raise Missing("network namespaces cannot be made: `make e2e` needs root")
        (self._file,) = made
        self.path = f"/proc/{os.getpid()}/fd/{self._file}"

    def close(self) -> None:
        """It goes when the last process in it has ended."""
        os.close(self._file)

    def ip(self, *commands: str) -> None:
        batch = ["nsenter", f"--net={self.path}", "ip", "-batch", "-"]
        done = subprocess.run(batch, input="\n".join(commands), capture_output=True, text=True)
        assert done.returncode == 0, f"{commands}: {done.stderr}"

    @contextmanager
    def entered(self) -> Iterator[None]:
        """This thread, in that namespace: sockets stay in the one they were made in. Nothing may be awaited inside."""
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            _setns(self._file)
            try:
                yield
            finally:
                _setns(own)
        finally:
            os.close(own)

    def socket(self) -> socket.socket:
        with self.entered():
            made = socket.socket()
        made.setblocking(False)
        return made

    def client(self, names: dict[str, str] | None = None) -> aiohttp.ClientSession:
        """A client in there, which knows these names."""

        def made(_: Any) -> socket.socket:
            return self.socket()

        connector = aiohttp.TCPConnector(resolver=_Hosts(names or {}), socket_factory=made, limit=0)
        return aiohttp.ClientSession(connector=connector)


class NodeNetwork:
    """The node's namespace, its pods' and its names."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.hosts = folder / "hosts"
        self._names: dict[str, str] = {"localhost": "127.0.0.1"}
        self._pods = 1
        self._own = Network()
        self._forwarders: dict[tuple[str, int], asyncio.Server] = {}
        self._addresses: set[str] = set()
        self._open: set[asyncio.WriteTransport] = set()
        self._own.ip(
            "link set lo up",
            # With an address of its own, or it takes over that of a pod, and changes it when another pod comes or goes.
            "link add pods address 02:00:00:00:00:01 type bridge",
            f"addr add {BRIDGE}/16 dev pods",
            "link set pods up",
        )
        self.name()

    def close(self) -> None:
        for server in self._forwarders.values():
            server.close()
        for end in self._open:
            end.abort()
        self._own.close()

    def pod(self) -> tuple[Network, str]:
        """A namespace for a pod, and its address."""
        self._pods += 1
        number, made = self._pods, Network()
        address = f"10.1.{number // 256}.{number % 256}"
        self._own.ip(
            f"link add {_interface(address)} type veth peer name eth0 netns {made.path}",
            f"link set {_interface(address)} master pods up",
        )
        made.ip(
            "link set lo up", f"addr add {address}/16 dev eth0", "link set eth0 up", f"route add default via {BRIDGE}"
        )
        return made, address

    def unplug(self, address: str) -> None:
        """Cut a pod off: what it and others send to each other is lost, and nobody is told."""
        self._own.ip(f"link set {_interface(address)} nomaster")

    def plug(self, address: str) -> None:
        """Connect a pod again."""
        self._own.ip(f"link set {_interface(address)} master pods")

    def name(self, **names: str) -> None:
        """Let names lead to addresses, in all pods at once: written into the one file, which is mounted there."""
        self._names |= names
        self.hosts.write_text("".join(f"{address} {name}\n" for name, address in self._names.items()))

    async def forward(self, address: str, port: int, dial: Dial) -> None:
        """What connects to that address, from pods or from the node, is connected to whatever is dialled then."""
        if (address, port) in self._forwarders:
            return
        if address not in self._addresses:
            self._own.ip(f"addr add {address}/32 dev lo")
            self._addresses.add(address)
        listening = self._own.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address, port))

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                other_reader, other_writer = await asyncio.open_connection(sock=await dial())
            except OSError:
                writer.transport.abort()
                return
            ends = {writer.transport, other_writer.transport}
            self._open |= ends
            await asyncio.gather(_pump(reader, other_writer), _pump(other_reader, writer))
            for end in ends:
                end.close()
            self._open -= ends

        self._forwarders[address, port] = await asyncio.start_server(serve, sock=listening)

    async def dial(self, address: str, port: int) -> socket.socket:
        """A connection from the node, as a kubelet's or kube-proxy's."""
        made = self._own.socket()
        try:
            await asyncio.get_running_loop().sock_connect(made, (address, port))
        except OSError:
            made.close()
            raise
        return made

    def client(self) -> aiohttp.ClientSession:
        """A client on the node, which knows the names of the cluster."""
        return self._own.client(self._names)


class _Hosts(AbstractResolver):
    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        if host not in self._names:
            raise OSError(f"{host} is no name of the cluster: {', '.join(self._names)}")
        return [ResolveResult(hostname=host, host=self._names[host], port=port, family=family, proto=0, flags=0)]

    async def close(self) -> None:
        pass


def _interface(address: str) -> str:
    """The node's end of a pod's interface."""
    _, _, high, low = address.split(".")
    return f"pod{int(high) * 256 + int(low)}"


async def dial_machine(url: SplitResult) -> socket.socket:
    """A connection on the machine itself, where the API server and the simulated brokers listen."""
    made = socket.socket()
    made.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(made, (url.hostname, url.port))
    except OSError:
        made.close()
        raise
    return made


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()
        return
    writer.transport.abort()


def _setns(namespace: int) -> None:
    """Python has os.setns from 3.12 on."""
    if _LIBC.setns(namespace, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
