"""The sockets that clients come in by. Each knows its listener, if it has one."""

from typing import cast

from aiohttp import web
from aiohttp.http_parser import RawRequestMessage
from aiohttp.web_request import BaseRequest

from pulsar_ingress_proxy import memory
from pulsar_ingress_proxy.http.client import Answered, ClientConnection, TooSlow, head_size
from pulsar_ingress_proxy.http.connection_pool import ConnectionPool
from pulsar_ingress_proxy.http.request_cycle import RequestCycle
from pulsar_ingress_proxy.memory import Budget
from pulsar_ingress_proxy.net.context import ServerContext
from pulsar_ingress_proxy.net.socket_server import SocketServer
from pulsar_ingress_proxy.observability.access_record import AccessRecord
from pulsar_ingress_proxy.syntax.listeners import BindAddress


class HttpServer(SocketServer[ClientConnection], web.Server):
    """One bound socket."""

    protocol = "http"

    def __init__(self, context: ServerContext, pool: ConnectionPool, bind: BindAddress) -> None:
        SocketServer.__init__(self, context, bind)
        web.Server.__init__(self, self._answer, handler_cancellation=True)
        self._pool = pool

    def _let_finish(self, client: ClientConnection) -> None:
        client.close()

    # What connections call.

    @property
    def buffers(self) -> Budget:
        return self._context.buffers

    @property
    def head_timeout(self) -> float:
        return self._context.decisions.config.timeouts.head

    def cycle(self, client: ClientConnection, message: RawRequestMessage) -> RequestCycle:
        """A request without a body."""
        return RequestCycle(self._context, self._pool, self.bind, client, message)

    def count(self, record: AccessRecord) -> None:
        """What was answered before it became a request."""
        self._context.metrics.count(record)

    # What aiohttp calls.

    def __call__(self) -> ClientConnection:
        config = self._context.decisions.config
        return ClientConnection(
            self,
            keepalive_timeout=config.timeouts.client_idle,
            max_line_size=config.limits.head_bytes,
            max_field_size=config.limits.head_bytes,
            max_headers=config.limits.headers,
            read_bufsize=memory.READ_BUFFER,
            auto_decompress=False,
            access_log=None,
        )

    async def _answer(self, request: BaseRequest) -> web.StreamResponse:
        """A request that goes aiohttp's way: with a body, an upgrade, or others before it."""
        client = cast(ClientConnection, request.protocol)
        if head_size(request._message) > client.max_line_size:
            client.refuse_head()
            return cast(web.StreamResponse, Answered(keep_alive=False))
        body = request.content if request.body_exists else None
        cycle = RequestCycle(self._context, self._pool, self.bind, client, request._message, body)
        try:
            keep_alive = await cycle.run()
        finally:
            client.release()
        try:
            # Before the next request is begun, or one who asks and does not read would fill the memory.
            await client.drain(self._context.decisions.config.timeouts.request)
        except TooSlow:
            client.reset()
        return cast(web.StreamResponse, Answered(keep_alive and not client.is_draining))
