"""A client of the binary protocol: its endpoint, its CONNECT, and the access records for it."""

from time import time
from typing import Protocol

from pulsar_ingress_proxy.binary.endpoints import ClientEndpoint, default_selection
from pulsar_ingress_proxy.binary.fast_path import FastPath, FastPathCache
from pulsar_ingress_proxy.binary.redirects import ConnectInfo
from pulsar_ingress_proxy.net.context import ServerContext
from pulsar_ingress_proxy.observability.access_record import UNKNOWN, AccessRecord
from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.authorities import Address
from pulsar_ingress_proxy.syntax.listeners import BindAddress


class Server(Protocol):
    """The server that accepted the client, with its current config."""

    bind: BindAddress
    fast_paths: FastPathCache


class ClientContext:
    """What is known about a client."""

    __slots__ = ("_context", "_endpoint", "connect_info", "peer", "server", "server_name")

    def __init__(self, context: ServerContext, server: Server, peer: Address | None, server_name: str | None) -> None:
        self._context = context
        self.server = server
        self.peer = peer
        self.server_name = server_name
        self.connect_info: ConnectInfo | None = None
        self._endpoint = ClientEndpoint(server.bind, server_name)

    @property
    def endpoint(self) -> ClientEndpoint:
        if self._endpoint.bind is not self.server.bind:  # changed by a reload
            self._endpoint = ClientEndpoint(self.server.bind, self.server_name)
        return self._endpoint

    @property
    def user_agent(self) -> bytes | None:
        return self.connect_info.client_version if self.connect_info is not None else None

    def fast_path(self) -> FastPath:
        """The fast path for this client under the current snapshot."""
        return self.server.fast_paths.get(self.server_name)

    def __str__(self) -> str:
        version = self.connect_info.client_version.decode("utf-8", "replace") if self.connect_info else ""
        return f"a client{f' ({version[:64]})' if version else ''} on {self.server.bind}"

    def record(self, snapshot: Snapshot) -> AccessRecord:
        return AccessRecord(
            id=self._context.recorder.new_id(),
            time=time(),
            generation=snapshot.generation,
            protocol="binary",
            bind=self.server.bind.address,
            peer=self.peer,
            user_agent=self.user_agent,
        )

    def other_record(self, decisions: DecisionCache, status: int) -> AccessRecord:
        """A record for anything but a lookup."""
        snapshot = decisions.snapshot
        record = self.record(snapshot)
        found = default_selection(self.endpoint, decisions)
        record.target, record.request, record.selection = UNKNOWN, found.request, found.selection
        record.listener = snapshot.listener_label(found.selection.listener)
        record.status = status
        return record
