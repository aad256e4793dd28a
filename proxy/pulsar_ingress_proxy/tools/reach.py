"""One request to one address, in the order in which a client would fail: name, port, certificate, answer.

`doctor` and `conformance` send all their requests this way, so that both name the same problems.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from pulsar_ingress_proxy.binary import commands
from pulsar_ingress_proxy.binary.broker_connection import BrokerConnection
from pulsar_ingress_proxy.binary.commands_pb2 import Command, Connect
from pulsar_ingress_proxy.binary.frames import Frame, write
from pulsar_ingress_proxy.http.upstream import UpstreamConnection
from pulsar_ingress_proxy.net.errors import UpstreamError
from pulsar_ingress_proxy.net.tls import CannotLoad, WrongIdentity
from pulsar_ingress_proxy.syntax.listeners import TLS_SCHEMES, ServiceUrl

T = TypeVar("T")
Made = TypeVar("Made", bound=asyncio.BaseProtocol)

_MOST_BODY = 1 << 20
"""Maximum size of a body that is read; a list of a few thousand broker ids is smaller."""


class Tls(Protocol):
    """How a peer is verified: `BrokerTls` as the sidecar does, `ClientTls` as clients do."""

    def context(self, scheme: str) -> ssl.SSLContext: ...
    def verify(self, peer: ssl.SSLObject) -> None: ...


Trust = Callable[[], Tls]
"""Called for the first TLS connection; may raise CannotLoad."""


class ClientTls:
    """The system's CAs, or those of a file, and the host name; raises OSError if the file cannot be used."""

    def __init__(self, cacert: str | None = None) -> None:
        self._context = ssl.create_default_context(cafile=cacert) if cacert else ssl.create_default_context()
        # Python sets it from 3.13 on; Pulsar's clients do not, and accept the CAs of many clusters that it rejects.
        self._context.verify_flags &= ~ssl.VERIFY_X509_STRICT

    def context(self, scheme: str) -> ssl.SSLContext:
        return self._context

    def verify(self, peer: ssl.SSLObject) -> None:
        """The context has compared the host name."""


@dataclass(frozen=True, slots=True)
class Attempt(Generic[T]):
    """How far a request came, its answer, and the first problem. What was not tried is None."""

    resolves: bool | None = None
    connects: bool | None = None
    certificate: bool | None = None
    answer: T | None = None
    problem: str | None = None
    error: Exception | None = None
    """Why a connection that was made gave no answer."""


async def attempt(
    url: ServiceUrl, seconds: float, ask: Callable[[], Awaitable[T]], within: float | None = None
) -> Attempt[T]:
    """Resolve the name, open the port, and `ask`; each step has so many seconds, the last one may have others."""
    host, port = url.host.strip("[]"), int(url.port)
    tried: Attempt[T] = Attempt()
    try:
        async with asyncio.timeout(seconds):
            await asyncio.get_running_loop().getaddrinfo(host, port)
    except (OSError, UnicodeError, TimeoutError) as error:  # IDNA rejects labels over 63 characters
        return replace(tried, resolves=False, problem=f"{host} does not resolve: {_why(error, seconds)}")
    tried = replace(tried, resolves=True)
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(host, port)
        writer.close()
    except (OSError, TimeoutError) as error:
        return replace(tried, connects=False, problem=f"port {port} does not open: {_why(error, seconds)}")
    tried, certificate = replace(tried, connects=True), True if url.scheme in TLS_SCHEMES else None
    within = seconds if within is None else within
    try:
        async with asyncio.timeout(within):
            answer = await ask()
    except CannotLoad as error:
        return replace(tried, problem=f"cannot load the certificate, key or CA to connect with: {error}")
    except ssl.SSLCertVerificationError as error:
        why = f"the certificate is not valid for {host}: {error.verify_message}"
        return replace(tried, certificate=False, problem=why)
    except WrongIdentity as error:
        return replace(tried, certificate=False, problem=f"the peer has another identity: {error}")
    except ssl.SSLError as error:
        return replace(tried, certificate=False, problem=f"no TLS there: {error.reason or error}")
    except (OSError, TimeoutError, UpstreamError) as error:
        return replace(tried, certificate=certificate, problem=f"no answer: {_why(error, within)}", error=error)
    return replace(tried, certificate=certificate, answer=answer)


def _why(error: BaseException, seconds: float) -> str:
    if isinstance(error, TimeoutError):
        return f"nothing within {seconds:g} s"
    return str(getattr(error, "strerror", None) or error)


@asynccontextmanager
async def greeted(
    url: ServiceUrl, connect: Connect, trust: Trust, seconds: float
) -> AsyncIterator[tuple[BrokerConnection, Frame]]:
    """A connection of the binary protocol, and the answer to its CONNECT."""
    connection = await dial(url, trust, BrokerConnection)
    try:
        connection.send(write(Command(type=commands.CONNECT, connect=connect)))
        yield connection, await connection.frame(seconds)
    finally:
        connection.close()


@asynccontextmanager
async def streams(url: ServiceUrl, trust: Trust) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection, and nothing sent yet."""
    tls = trust() if url.scheme in TLS_SCHEMES else None
    context = tls.context(url.scheme) if tls is not None else None
    reader, writer = await asyncio.open_connection(url.host.strip("[]"), int(url.port), ssl=context)
    try:
        if tls is not None:
            tls.verify(writer.get_extra_info("ssl_object"))
        yield reader, writer
    finally:
        writer.transport.abort()


@asynccontextmanager
async def answered(
    url: ServiceUrl, target: str, trust: Trust, seconds: float, *fields: bytes
) -> AsyncIterator[UpstreamConnection]:
    """A GET with these fields, as soon as the head of its answer has arrived: its body may never end."""
    loop = asyncio.get_running_loop()
    connection = await dial(url, trust, lambda: UpstreamConnection(loop, url))
    # HTTP/1.1: Envoy refuses 1.0 with a 426, unless it has accept_http_10.
    lines = [
        f"GET {target} HTTP/1.1".encode(), url.host_field, b"User-Agent: pulsar-ingress-proxy", b"Connection: close",
        *fields,
    ]  # fmt: skip
    try:
        connection.ask("GET", b"\r\n".join([*lines, b"", b""]))
        await connection.head(seconds)
        yield connection
    finally:
        connection.close()


async def body_of(answer: UpstreamConnection, seconds: float) -> bytes:
    """The body of an answer, cut short if it is too large."""
    body = b""
    while (piece := await answer.read(seconds)) and len(body) <= _MOST_BODY:
        body += piece
    return body


async def dial(url: ServiceUrl, trust: Trust, make: Callable[[], Made]) -> Made:
    """Connect, and verify the peer if the URL has TLS."""
    loop, host, port = asyncio.get_running_loop(), url.host.strip("[]"), int(url.port)
    tls = trust() if url.scheme in TLS_SCHEMES else None
    context = tls.context(url.scheme) if tls is not None else None
    transport, made = await loop.create_connection(make, host, port, ssl=context)
    if tls is not None:
        try:
            tls.verify(transport.get_extra_info("ssl_object"))
        except WrongIdentity:
            transport.abort()
            raise
    return made
