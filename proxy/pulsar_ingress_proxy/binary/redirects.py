"""Follows a redirect: the sidecar repeats the client's CONNECT and lookup to another broker on its own connection."""

from dataclasses import dataclass

from pulsar_ingress_proxy.binary.broker_connection import BrokerConnection
from pulsar_ingress_proxy.binary.commands import AUTH_CHALLENGE, CONNECTED, LOOKUP_RESPONSE, clear_originals
from pulsar_ingress_proxy.binary.commands_pb2 import AuthData, Command
from pulsar_ingress_proxy.binary.frames import BadFrame, Frame, write
from pulsar_ingress_proxy.net.errors import BadAnswer, UpstreamError
from pulsar_ingress_proxy.net.pool import BrokerPool
from pulsar_ingress_proxy.syntax.listeners import ServiceUrl

# Methods whose data authenticates to any broker. SASL answers the challenges of one broker.
_REPEATABLE = frozenset((b"", b"none", b"token", b"basic", b"tls", b"athenz"))


class Rejected(UpstreamError):
    """The broker rejected the client's CONNECT, which another accepted."""

    code = "broker-rejected"
    text = "the broker that was redirected to does not accept the client"


class NeedsChallenge(Exception):
    """The broker sent an authentication challenge, which only the client could answer."""


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


async def ask(url: ServiceUrl, who: ConnectInfo, lookup: Command, brokers: BrokerPool, within: float) -> Command:
    """Ask a broker and return its answer; raises UpstreamError or NeedsChallenge."""
    connection = await brokers.dial(url, BrokerConnection)
    try:
        connection.send(write(who.connect))
        greeting = await connection.frame(within)
        if greeting.type == AUTH_CHALLENGE:
            raise NeedsChallenge
        if greeting.type != CONNECTED:
            raise Rejected(f"{url} answers CONNECT with {_error_text(greeting)}")
        connection.send(write(lookup))
        while True:
            frame = await connection.frame(within)
            if frame.type == LOOKUP_RESPONSE:
                return frame.command()
    except BadFrame as fault:
        raise BadAnswer(f"{url} does not speak Pulsar's protocol: {fault}") from None
    finally:
        connection.close()


def _error_text(frame: Frame) -> str:
    error = frame.command().error
    return f"error {error.error}: {error.message.decode('utf-8', 'replace')}"
