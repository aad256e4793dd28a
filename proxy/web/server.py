"""The sockets that clients come in by. Each knows its listener, if it has one."""

import asyncio
import ssl
from typing import cast

from aiohttp import web
from aiohttp.web_request import BaseRequest

from proxy.listeners import BindAddress
from proxy.web.client import Answered, ClientConnection
from proxy.web.exchange import Exchange, Rim


class Door(web.Server):
    """One bound socket."""

    def __init__(self, rim: Rim, bind: BindAddress) -> None:
        super().__init__(self._answer, handler_cancellation=True)
        self.bind = bind
        self._rim = rim
        self._server: asyncio.Server | None = None

    async def open(self, tls: ssl.SSLContext | None) -> None:
        """Bind; raises OSError where that cannot be."""
        self._server = await asyncio.get_running_loop().create_server(
            self, self.bind.host.strip("[]"), self.bind.port, ssl=tls, reuse_address=True, backlog=1024
        )

    @property
    def port(self) -> int:
        """The port that was bound, which port 0 leaves to the system."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self, grace: float) -> None:
        """Stop accepting, let what runs finish, then end it."""
        if self._server is not None:
            self._server.close()
        self.pre_shutdown()
        await self.shutdown(max(grace, 0.001))  # aiohttp takes 0 for no limit

    def __call__(self) -> ClientConnection:
        config = self._rim.snapshot.config
        return ClientConnection(
            self,
            self._rim.metrics,
            keepalive_timeout=config.timeouts.client_idle,
            max_line_size=config.limits.head_bytes,
            max_field_size=config.limits.head_bytes,
            max_headers=config.limits.headers,
            auto_decompress=False,
            access_log=None,
        )

    async def _answer(self, request: BaseRequest) -> web.StreamResponse:
        in_flight = self._rim.metrics.in_flight
        in_flight.add("http")
        try:
            return cast(web.StreamResponse, Answered(await Exchange(self._rim, self.bind, request).run()))
        finally:
            in_flight.add("http", by=-1)
