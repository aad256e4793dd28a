"""The asynchronous part of a request: new connections, bodies, streamed answers, retries, WebSockets.

It continues a `RequestCycle` in a task, and calls its methods to decide, answer and finish.
"""

import asyncio
import logging
from collections.abc import Iterator
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING

from pulsar_ingress_proxy.http import headers
from pulsar_ingress_proxy.http.body import LOOKUP_BODY_LIMIT, RequestBody, room_for
from pulsar_ingress_proxy.http.upstream import UpstreamConnection
from pulsar_ingress_proxy.http.websocket import Tunnel
from pulsar_ingress_proxy.net.errors import BadAnswer, BodyBroken, ClosedEarly, TooSlow, Unreachable, UpstreamError
from pulsar_ingress_proxy.routing.selection import OVERLOADED
from pulsar_ingress_proxy.syntax.listeners import ServiceUrl

if TYPE_CHECKING:
    from pulsar_ingress_proxy.http.request_cycle import RequestCycle

_TRIES = 3

log = logging.getLogger("proxy.web")


class Conversation:
    """One request, from its first await to its end."""

    def __init__(
        self,
        cycle: "RequestCycle",
        method: str,
        target: str,
        urls: Iterator[ServiceUrl],
        asked: UpstreamConnection | None,
    ) -> None:
        """`asked` is a connection on which the request was already sent to the first of these brokers."""
        self._cycle = cycle
        self._pump: asyncio.Task[None] | None = None
        self._connection = asked
        self._task = asyncio.get_running_loop().create_task(self._run(method, target, urls))
        self._task.add_done_callback(self._ended)

    def cancel(self) -> None:
        """The client disconnected."""
        self._task.cancel()

    def stop_sending(self) -> bool:
        """Stop sending the request's body. Returns whether all of it was sent."""
        pump, self._pump = self._pump, None
        if pump is None or pump.done():
            return True
        pump.cancel()
        return False

    async def _run(self, method: str, target: str, urls: Iterator[ServiceUrl]) -> None:
        cycle = self._cycle
        try:
            while True:
                connection = await self._ask(method, target, urls)
                redirect = await self._answer(connection, method)
                if redirect is None:
                    return
                method, target, urls = redirect
        except UpstreamError as error:
            cycle.give_up(error)
        except Exception:
            cycle.fault()

    def _ended(self, _: asyncio.Task[None]) -> None:
        self.stop_sending()
        if self._connection is not None:
            self._connection.close()
        self._cycle.finish()

    async def _ask(self, method: str, target: str, urls: Iterator[ServiceUrl]) -> UpstreamConnection:
        """Send the request and wait for the head of an answer, from one of these brokers.

        A request that failed before an answer is retried: on a new connection if a reused one was closed, else on the
        next broker. A request that may have had an effect, or whose body cannot be replayed, is not retried. So only
        idempotent requests with no body or a complete one use idle connections.
        """
        cycle, problem = self._cycle, None
        may_repeat = method in headers.IDEMPOTENT
        may_reuse = may_repeat and (cycle.body is None or cycle.body.is_whole())
        for url in islice(urls, _TRIES):
            for reuse in (True, False) if may_reuse else (False,):
                connection, self._connection = self._connection, None
                try:
                    if connection is None:
                        connection = await cycle.pool.connection(url, reuse)
                        self._connection = connection
                        self._send(connection, method, target)
                    self._connection = connection
                    await connection.head(cycle.answer_timeout)
                except (Unreachable, ClosedEarly) as error:
                    self.stop_sending()
                    self._connection = None
                    if cycle.body is not None and not cycle.body.replayable:
                        raise
                    if connection is not None and connection.used:
                        continue
                    cycle.pool.brokers.failed(url)
                    problem = self._failed(problem, error)
                    if isinstance(error, ClosedEarly) and not may_repeat:
                        raise
                    break
                if problem is not None:
                    cycle.upstream_errors += (problem.code,)
                cycle.upstream_duration = perf_counter() - cycle.asked_at
                return connection
        assert problem is not None
        raise problem

    def _failed(self, earlier: UpstreamError | None, error: UpstreamError) -> UpstreamError:
        if earlier is not None:
            self._cycle.upstream_errors += (earlier.code,)
        log.warning("%s %s; asking the next broker, if there is one", self._cycle.id, error)
        return error

    def _send(self, connection: UpstreamConnection, method: str, target: str) -> None:
        cycle = self._cycle
        connection.on_continue = self._continue if b"expect" in cycle.head.special else None
        if not cycle.asked_at:
            cycle.asked_at = perf_counter()
        head = cycle.request_head(method, target, connection.url)
        body = cycle.body
        if body is not None and body.is_whole():
            connection.ask(method, head + body.whole())
            return
        connection.ask(method, head)
        if body is not None:
            self._pump = asyncio.get_running_loop().create_task(self._pump_body(body, connection))

    async def _pump_body(self, body: RequestBody, connection: UpstreamConnection) -> None:
        try:
            await body.send(connection)
        except BodyBroken as error:
            connection.fail(error)
        except UpstreamError:
            return  # raised again where the answer is awaited

    def _continue(self) -> None:
        if not self._cycle.is_continued:
            self._cycle.is_continued = True
            self._cycle.client.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def _answer(
        self, connection: UpstreamConnection, method: str
    ) -> tuple[str, str, Iterator[ServiceUrl]] | None:
        """Answer the client. Returns the next request instead if a redirect is followed."""
        cycle = self._cycle
        if connection.status == 101:
            await self._switch(connection)
            return None
        is_redirect = connection.location is not None and 300 <= connection.status < 400
        if connection.complete or is_redirect:
            redirect = cycle.answer(connection, method)
            self._connection = None
            return cycle.follow(redirect, connection.status, method) if redirect is not None else None
        data = b""
        if cycle.needs_check(connection.status):
            data = await self._gather(connection)
            if connection.complete or not cycle.shadow:
                cycle.answer_lookup(connection, data)
                self._connection = None
                return None
        if not cycle.client.charge(room_for(connection.length)):
            cycle.refuse(OVERLOADED)
        elif await self._stream(connection, data):
            cycle.dismiss(connection)
            self._connection = None
        return None

    async def _gather(self, connection: UpstreamConnection) -> bytes:
        """Read a lookup's answer, up to the limit."""
        body = connection.take()
        while not connection.complete and len(body) <= LOOKUP_BODY_LIMIT:
            body += await connection.read(self._cycle.config.timeouts.lookup)
        return body + connection.take()

    async def _stream(self, connection: UpstreamConnection, data: bytes) -> bool:
        """Stream an answer to the client; `data` is its beginning. Returns false if it was cut off."""
        cycle, fields, is_chunked = self._cycle, connection.fields, False
        client, within = cycle.client, cycle.config.timeouts.request
        if connection.length is not None:
            fields.append(b"Content-Length: %d" % connection.length)
        elif cycle.chunks:
            is_chunked = True
            fields.append(b"Transfer-Encoding: chunked")
        else:
            cycle.keep_alive = False
        cycle.write_head(connection.status, connection.reason, fields)
        try:
            while data or (data := await connection.read(within)):
                cycle.response_bytes += len(data)
                client.write(b"%x\r\n%b\r\n" % (len(data), data) if is_chunked else data)
                data = b""
                await client.drain(within)
        except UpstreamError as error:
            # The head is sent: only closing the connection can signal that the answer is incomplete.
            log.warning("%s %s %s: %s", cycle.id, cycle.method, cycle.kind, error)
            if not isinstance(error, BodyBroken | TooSlow):
                cycle.upstream_errors += (error.code,)
            cycle.break_off(gently=is_chunked or connection.length is not None)
            return False
        if is_chunked:
            client.write(b"0\r\n\r\n")
        return True

    async def _switch(self, connection: UpstreamConnection) -> None:
        """Tunnel bytes both ways after a 101, until either side closes."""
        cycle = self._cycle
        if cycle.method != "GET" or not cycle.head.wants_websocket or not connection.upgrades:
            raise BadAnswer("the broker switched to a protocol that was not asked for")
        tunnel = Tunnel(cycle.client, connection)
        cycle.keep_alive = False
        cycle.status = 101
        own = b"X-Request-Id: %b" % cycle.id.encode()
        fields = [*connection.fields, own, *headers.UPGRADE]
        cycle.client.write(headers.write_head(b"HTTP/1.1 101 Switching Protocols", fields))
        await tunnel.run()
