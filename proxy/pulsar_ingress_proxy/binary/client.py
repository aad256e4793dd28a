"""A client of the binary protocol: its endpoint, its CONNECT, and the access records for it."""

from time import time
from typing import TYPE_CHECKING

from pulsar_ingress_proxy.binary.endpoints import ClientEndpoint, decide_session
from pulsar_ingress_proxy.binary.fast_path import FastPath
from pulsar_ingress_proxy.binary.redirects import ConnectInfo
from pulsar_ingress_proxy.net.context import ServerContext
from pulsar_ingress_proxy.observability.access_record import AccessRecord
from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.decisions import DecidedRequest
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.authorities import Address

if TYPE_CHECKING:
    from pulsar_ingress_proxy.binary.server import BinaryServer


class ClientContext:
    """What is known about a client."""

    __slots__ = ("_context", "_endpoint", "connect_info", "peer", "server", "server_name")

    def __init__(
        self, context: ServerContext, server: "BinaryServer", peer: Address | None, server_name: str | None
    ) -> None:
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
        version = (self.user_agent or b"").decode("utf-8", "replace")
        return f"a client{f' ({version[:64]})' if version else ''} on {self.server.bind}"

    def record(self, decided: DecidedRequest, snapshot: Snapshot) -> AccessRecord:
        return AccessRecord(
            id=self._context.recorder.new_id(),
            time=time(),
            generation=snapshot.generation,
            protocol="binary",
            bind=self.server.bind.address,
            peer=self.peer,
            user_agent=self.user_agent,
            request=decided.request,
            selection=decided.decision.selection,
            listener=decided.decision.label,
        )

    def other_record(self, decisions: DecisionCache, status: int) -> AccessRecord:
        """A record for anything but a lookup."""
        record = self.record(decide_session(self.endpoint, decisions), decisions.snapshot)
        record.status = status
        return record
