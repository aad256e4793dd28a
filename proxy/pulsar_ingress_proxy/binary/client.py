"""A client of the binary protocol: its endpoint, its CONNECT, and the access records for it."""

from dataclasses import dataclass
from time import time
from typing import TYPE_CHECKING

from pulsar_ingress_proxy.binary.commands import clear_originals
from pulsar_ingress_proxy.binary.commands_pb2 import AuthData, Command
from pulsar_ingress_proxy.binary.endpoints import ClientEndpoint, decide
from pulsar_ingress_proxy.binary.fast_path import FastPath
from pulsar_ingress_proxy.binary.frames import Frame
from pulsar_ingress_proxy.net.context import ServerContext
from pulsar_ingress_proxy.observability.access_record import AccessRecord
from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.decisions import DecidedRequest
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.authorities import Address

if TYPE_CHECKING:
    from pulsar_ingress_proxy.binary.server import BinaryServer


# Methods whose data authenticates to any broker. SASL answers the challenges of one broker.
_REPEATABLE = frozenset((b"", b"none", b"token", b"basic", b"tls", b"athenz"))


@dataclass(slots=True)
class ConnectInfo:
    """A client's CONNECT, kept to repeat it to other brokers."""

    connect: Command
    can_repeat: bool

    @classmethod
    def of(cls, frame: Frame, trusts_originals: bool, keeps_name: bool) -> "tuple[ConnectInfo, bytes]":
        """From a CONNECT; also returns the frame for the broker, without fields for the sidecar. Raises BadFrame."""
        command = frame.command()
        connect = command.connect
        changed = not frame.is_plain
        if not trusts_originals:
            changed |= clear_originals(connect)
        if connect.proxy_to_broker_url and not keeps_name:
            connect.ClearField("proxy_to_broker_url")
            changed = True
        connect_info = cls(command, connect.auth_method_name.lower() in _REPEATABLE)
        return connect_info, frame.with_command(command) if changed else frame.raw

    @property
    def client_version(self) -> bytes:
        return self.connect.connect.client_version

    def renew(self, data: AuthData) -> None:
        """Replace the authentication data, as the client refreshed it."""
        if data.auth_method_name == self.connect.connect.auth_method_name:
            self.connect.connect.auth_data = data.auth_data


@dataclass(slots=True, eq=False)
class ClientContext:
    """What is known about a client."""

    _context: ServerContext
    server: "BinaryServer"
    peer: Address | None
    server_name: str | None
    connect_info: ConnectInfo | None = None
    _endpoint: ClientEndpoint | None = None

    @property
    def endpoint(self) -> ClientEndpoint:
        if self._endpoint is None or self._endpoint.bind is not self.server.bind:  # changed by a reload
            self._endpoint = ClientEndpoint(self.server.bind, self.server_name)
        return self._endpoint

    @property
    def user_agent(self) -> bytes | None:
        return self.connect_info.client_version if self.connect_info is not None else None

    def fast_path(self) -> FastPath:
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
        record = self.record(decide(self.endpoint, decisions), decisions.snapshot)
        record.status = status
        return record
