"""A WebSocket tunnel after the handshake, with back-pressure."""

import asyncio
from typing import TYPE_CHECKING

from pulsar_ingress_proxy.http.upstream import UpstreamConnection
from pulsar_ingress_proxy.memory import UNSENT

if TYPE_CHECKING:
    from pulsar_ingress_proxy.http.client import ClientConnection


class Tunnel:
    """Passes bytes between a client's and a broker's connection, bypassing their parsers."""

    def __init__(self, client: "ClientConnection", upstream: UpstreamConnection) -> None:
        self._client = client
        self._done = asyncio.get_running_loop().create_future()
        self._upstream = upstream.switch(self)
        self._upstream.set_write_buffer_limits(high=UNSENT)
        self._early = upstream.tail

    async def run(self) -> None:
        """Pass bytes until either side closes."""
        if self._early:
            self.upstream_data(self._early)
        self._client.hand_over(self)
        try:
            await self._done
        finally:
            self._client.break_off(gently=True)

    def _end(self) -> None:
        if not self._done.done():
            self._done.set_result(None)

    # From the broker.

    def upstream_data(self, data: bytes) -> None:
        self._client.write(data)

    def upstream_lost(self) -> None:
        self._end()

    def upstream_writable(self, writable: bool) -> None:
        self._client.let_read(writable)
        self._client.charge_tunnel(0 if writable else self._upstream.get_write_buffer_size())

    # From the client.

    def client_data(self, data: bytes) -> None:
        self._upstream.write(data)

    def client_lost(self) -> None:
        self._end()

    def client_writable(self, writable: bool) -> None:
        if self._upstream.is_closing():
            return
        if writable:
            self._upstream.resume_reading()
        else:
            self._upstream.pause_reading()
