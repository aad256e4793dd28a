"""`run --hold` without a valid config: all sockets answer with the reason, over HTTP as a 503."""

import asyncio
import json
import socket
import ssl
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

from aiohttp import web
from pydantic import ValidationError

from pulsar_ingress_proxy.app.sidecar import bound
from pulsar_ingress_proxy.binary import commands
from pulsar_ingress_proxy.config import Config, glean, gleaned_status_address
from pulsar_ingress_proxy.config import model as keys
from pulsar_ingress_proxy.net.status import SETTINGS, StatusServer
from pulsar_ingress_proxy.net.tls import CannotLoad, ServerTls
from pulsar_ingress_proxy.observability.metrics import Metrics
from pulsar_ingress_proxy.syntax.authorities import parse_authority
from pulsar_ingress_proxy.syntax.listeners import TLS_SCHEMES, WEB_SCHEMES, BindAddress, parse_bind_addresses
from pulsar_ingress_proxy.tools.preflight import CannotStart


class HoldingServers:
    """The sockets that the invalid config names, as far as it can be read."""

    def __init__(self, text: str | None, fault: Exception) -> None:
        self._values = glean(text)
        self._reason = f"bad-config: {fault}"
        self._runner = web.ServerRunner(web.Server(self._answer, **SETTINGS))
        metrics = Metrics("")
        metrics.last_reload.set(0)
        self._status = StatusServer(metrics, lambda: str(fault))
        self._binary: list[asyncio.Server] = []
        self._taken: list[tuple[str, int]] = []
        """Addresses that are in use."""
        self.problems: list[CannotStart] = []
        """Why they could not be bound."""

    async def open(self) -> None:
        """Bind all sockets, as far as possible."""
        address = parse_authority(gleaned_status_address(self._values))
        assert address is not None
        assert address.port is not None
        await self._runner.setup()
        status = self._status.open(address.host, address.port)
        await self._bound(f"metrics.address {address}", address.host, address.port, status)
        tls = _tls(self._values)
        for bind in _sockets(self._values):
            opening = self._open(bind, tls if bind.scheme in TLS_SCHEMES else None)
            await self._bound(f"bindAddresses {bind}", bind.host, bind.port, opening)

    def may_bind(self) -> bool:
        """Whether the addresses that were in use are free now."""
        return all(_is_free(host, port) for host, port in self._taken)

    async def close(self) -> None:
        for server in self._binary:
            server.close()
        await self._runner.cleanup()
        await self._status.close()

    async def _answer(self, _: web.BaseRequest) -> web.StreamResponse:
        headers = {"Retry-After": "5", "Cache-Control": "no-store"}
        body = json.dumps({"reason": self._reason}).encode()
        return web.Response(status=503, body=body, content_type="application/json", headers=headers)

    async def _refuse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a client of the binary protocol with a retriable error."""
        with suppress(ConnectionError):
            await reader.read(1)
            writer.write(commands.closing_error(commands.SERVICE_NOT_READY, self._reason))
        writer.close()

    async def _open(self, bind: BindAddress, tls: ssl.SSLContext | None) -> None:
        host = bind.host.strip("[]")
        if bind.scheme in WEB_SCHEMES:
            await web.TCPSite(self._runner, host, bind.port, ssl_context=tls, reuse_address=True).start()
        else:
            self._binary.append(await asyncio.start_server(self._refuse, host, bind.port, ssl=tls))

    async def _bound(self, what: str, host: str, port: int, opening: Awaitable[None]) -> None:
        try:
            await bound(what, opening)
        except CannotStart as problem:
            self._taken.append((host, port))
            self.problems.append(problem)


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host.strip("[]"), port), family=family).close()
    except OSError:
        return False
    return True


def _sockets(values: dict[str, Any]) -> tuple[BindAddress, ...]:
    try:
        return parse_bind_addresses(values["bindAddresses"])
    except (KeyError, TypeError, ValueError):
        binds: tuple[BindAddress, ...] = Config.model_fields["bind_addresses"].default
        return binds


def _tls(values: dict[str, Any]) -> ssl.SSLContext | None:
    """The TLS context of https sockets; without a valid one they answer in plain HTTP."""
    try:
        tls = keys.ServerTls.model_validate(values.get("tls") or {})
        return ServerTls(tls).context if tls.certificate and tls.key else None
    except (ValidationError, CannotLoad):
        return None
