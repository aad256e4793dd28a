"""One request's life: read, decided, asked of a broker, answered.

The rules are elsewhere (routing: decisions, redirects, answers); here is the order in which they are asked, and what is
done about it. There are two ways through: `start`, without a task, as far as a kept connection gives a whole
answer, which is how nearly all lookups go; and `run`, a coroutine, for everything else.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from itertools import chain, islice
from time import perf_counter, time

from aiohttp import HttpVersion10, HttpVersion11, StreamReader
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawRequestMessage
from aiohttp.web_protocol import RequestPayloadError

from pulsar_ingress_proxy import memory
from pulsar_ingress_proxy.http import forwarding, headers
from pulsar_ingress_proxy.http.body import RequestBody, decode
from pulsar_ingress_proxy.http.client import ClientConnection
from pulsar_ingress_proxy.http.connection_pool import ConnectionPool
from pulsar_ingress_proxy.http.response import ResponseWriter
from pulsar_ingress_proxy.http.upstream import UpstreamConnection
from pulsar_ingress_proxy.http.websocket import Tunnel
from pulsar_ingress_proxy.net.context import ServerContext
from pulsar_ingress_proxy.net.errors import BadAnswer, BodyBroken, ClosedEarly, Unreachable, UpstreamError
from pulsar_ingress_proxy.observability.access_record import AccessRecord
from pulsar_ingress_proxy.observability.tracing import Span
from pulsar_ingress_proxy.routing.answers import decide_leak, lacks_listener, leak_refusal
from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.decisions import Decision, dial_url
from pulsar_ingress_proxy.routing.paths import Target
from pulsar_ingress_proxy.routing.redirects import Redirect, decide_redirect, refuse_hop
from pulsar_ingress_proxy.routing.requests import Request, listener_names, set_listener_name
from pulsar_ingress_proxy.routing.selection import Refusal
from pulsar_ingress_proxy.syntax.listeners import BindAddress, ServiceUrl

_IDEMPOTENT = frozenset(("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"))  # RFC 9110 9.2.2
_VERSIONS = (HttpVersion11, HttpVersion10)
"""The parser takes 0.9 and 2.0 too, and whatever is behind us could read their framing in another way."""
_NO_BODY = frozenset((204, 304))
_CLIENT_LEFT = 499
"""The status, as nginx has it, of a request whose client did not wait for an answer."""
_TRIES = 3
_LOOKUP_BODY_LIMIT = 1 << 20
"""Bytes of a lookup's answer; real ones have a few hundred."""
_DECISIVE = (b"host", b"x-forwarded-host", b"x-forwarded-proto")
_LOCATION, _CODING = frozenset((b"location",)), frozenset((b"content-encoding",))
_OVERLOADED = Refusal(
    503, "overloaded", "more is under way than limits.inFlight and limits.bufferBytes allow", retry_after=1
)

log = logging.getLogger("proxy.web")


class RequestCycle:
    """One request, from its head to the last byte of its answer."""

    # What most requests never have stands here, and costs them nothing.
    _body: RequestBody | None = None
    _pump: asyncio.Task[None] | None = None
    _task: asyncio.Task[None] | None = None
    _connection: UpstreamConnection | None = None
    _is_lookup = False
    _question: tuple[str, str, Iterator[ServiceUrl]]
    """What the broker under way was asked, and who may be asked next."""
    _continued = False
    _asked_at = 0.0
    _hops: set[tuple[str, object]] | None = None
    """The redirects that were followed: whom they named, and what to ask for."""
    _span: Span | None = None

    def __init__(
        self,
        context: ServerContext,
        pool: ConnectionPool,
        bind: BindAddress,
        client: ClientConnection,
        message: RawRequestMessage,
        body: StreamReader | None = None,
    ) -> None:
        self._context = context
        self._pool = pool
        self.decisions = decisions = context.decisions
        self._config = decisions.config
        self._bind = bind
        self._client = client
        self.message = message
        self._reader = body
        self._loop = client.loop
        self._method = message.method
        self._started = perf_counter()
        self.record = record = AccessRecord(
            id=context.recorder.new_id(),
            time=time(),
            generation=decisions.snapshot.generation,
            method=message.method,
            bind=bind.address,
            peer=client.peer,
        )
        chunks = message.version >= (1, 1)
        self._response = ResponseWriter(client, record, chunks, not message.should_close and chunks, body)
        self._is_excess = not context.begin()

    # The ways through.

    def start(self) -> None:
        """Go as far as can be gone without waiting, and on from there when the broker answers."""
        try:
            if self._decide():
                method, target, urls = self._plan()
                url = next(urls)
                connection = self._pool.kept(url) if method in _IDEMPOTENT else None
                if connection is None:
                    self._go_on(self._converse(method, target, chain((url,), urls)))
                    return
                self._connection = connection
                self._asked_at = perf_counter()
                self._question = method, target, chain((url,), urls)
                connection.ask(method, self._request_head(method, target, url))
                connection.call_back(self._answered, self._patience())
                self._pool.watch(connection)
                return
        except Exception:
            self._fault()
        self._finish()

    def _answered(self) -> None:
        """The broker has said something, or never will."""
        method, target, urls = self._question
        connection = self._connection
        assert connection is not None
        self._pool.unwatch(connection)
        if not connection.complete or connection.status == 101:
            self._go_on(self._converse(method, target, urls, connection))
            return
        self._connection = None
        try:
            self.record.upstream_duration = perf_counter() - self._asked_at
            redirect = self._answer_whole(connection, method)
            if redirect is not None:
                self._go_on(self._follow(redirect, connection, method))
                return
        except UpstreamError as error:
            connection.close()
            self._give_up(error)
        except Exception:
            connection.close()
            self._fault()
        self._finish()

    def _go_on(self, rest: Coroutine[None, None, None]) -> None:
        """Do the rest in a task."""

        async def guarded() -> None:
            try:
                await rest
            except UpstreamError as error:
                self._give_up(error)
            except Exception:
                self._fault()

        def ended(_: asyncio.Task[None]) -> None:
            rest.close()  # it never began, where the client left before its turn came
            if self._connection is not None:
                self._connection.close()
            self._finish()

        self._task = self._loop.create_task(guarded())
        self._task.add_done_callback(ended)

    def abandon(self) -> None:
        """The client is gone."""
        if self._task is not None:
            self._task.cancel()
        elif self._connection is not None:
            self._pool.unwatch(self._connection)
            self._connection.call_back(None)
            self._connection.close()
            self._finish()

    async def run(self) -> bool:
        """Answer; true where the connection may be used again."""
        try:
            if self._decide():
                await self._converse(*self._plan())
        except UpstreamError as error:
            self._give_up(error)
        except Exception:
            self._fault()
        finally:
            self._close()
        return self._response.keep_alive

    def _finish(self) -> None:
        self._close()
        self._client.request_ended(self._response.keep_alive)

    def _close(self) -> None:
        record = self.record
        self._stop_pump()
        if self._body is not None:
            record.request_bytes = self._body.size
            self._body.drop()
        record.duration = perf_counter() - self._started
        record.status = record.status or _CLIENT_LEFT
        if self._span is not None:
            self._span.end(record)
        self._context.finish(record)

    def _fault(self) -> None:
        """An exception that nobody expected: said in the log, and to the client as far as that can be."""
        log.exception("%s %s failed", self.record.id, self._method)
        if self.record.status:  # part of an answer is out, and no other may follow it
            self._response.break_off(gently=False)
        else:
            text = "this is a fault of the proxy; its log says more"
            self._response.refuse(Refusal(500, "internal-error", text), close=True)
        self.record.status = 500

    # Reading and deciding.

    def _decide(self) -> bool:
        """Read the head and decide; false where the answer is given already."""
        try:
            self._read()
        except headers.BadHead as fault:
            self._response.refuse(Refusal(fault.status, fault.code, str(fault)), close=True)
            return False
        decision, record = self.decision, self.record
        record.selection = decision.selection
        record.listener = decision.label
        record.miss_reason = decision.miss_reason
        if self._is_excess:
            record.miss_reason = _OVERLOADED.code
            self._response.refuse(_OVERLOADED)
            return False
        if decision.refusal is not None and not self._config.shadow:
            self._response.refuse(decision.refusal)
            return False
        return True

    def _read(self) -> None:
        message, config, record = self.message, self._config, self.record
        if message.version not in _VERSIONS:
            raise headers.BadHead("http-version", "this socket takes HTTP/1.1 and HTTP/1.0", 505)
        self.head = head = headers.read_head(message.raw_headers)
        if self._context.tracing is not None:
            self._span = self._context.tracing.begin(head.passed)
        record.user_agent = head.user_agent
        self.trusted = self._client.is_trusted(config.trusted_proxies)
        if self.trusted and b"x-forwarded-for" in head.special:
            record.peer = self.decisions.forwarded_client(head.special[b"x-forwarded-for"]) or record.peer
        headers.check_transfer_encoding(head)
        self._path, self._query, record.target, self._asked, self.decision = read_and_decide(
            self.decisions, message.method, message.path, head, self._bind, self.trusted
        )
        record.request = self._asked
        self._is_lookup = record.target.kind == "lookup"
        self._listener = self.decision.selection.listener
        if message.version < (1, 1):
            # RFC 9110 7.8 and 10.1.1: an HTTP/1.0 client upgrades nothing and expects nothing.
            head.special.pop(b"upgrade", None)
            head.special.pop(b"expect", None)
        if b"expect" in head.special and head.text(b"expect").lower() != "100-continue":
            raise headers.BadHead("expectation-failed", "only 100-continue can be expected", 417)
        if self._reader is not None:
            text = head.special.get(b"content-length")
            length = int(text) if text else None
            self._is_excess |= not self._client.charge(memory.REQUEST + _room_for(length))
            self._body = RequestBody(self._reader, length, config.redirects.replay_bytes, self._context.replays)

    def _plan(self) -> tuple[str, str, Iterator[ServiceUrl]]:
        """What to ask, and which brokers, in order."""
        query, target = self._query, self.message.path
        if self._is_lookup and self._asked.query_names and not self._config.shadow:
            selection = self.decision.selection
            kept = selection.client_named if selection.client_named_by == "query" else None
            query = set_listener_name(query, kept if kept == selection.listener else None)
        if query != self._query or not target.startswith("/"):
            target = f"{self._path}?{query}" if query else self._path
        chosen = self.decision.route
        if chosen.broker is not None and chosen.url is not None:
            self.record.broker = chosen.broker.name
            return self._method, target, iter((chosen.url,))
        pool = self._config.function_pool if chosen.pool == "functions" else self._config.web_pool
        return self._method, target, self._pool.brokers.in_turn(pool)

    # Asking brokers.

    async def _converse(
        self, method: str, target: str, urls: Iterator[ServiceUrl], asked: UpstreamConnection | None = None
    ) -> None:
        """Ask, and ask again where a redirect is followed, until there is something to answer with.

        `asked` is a connection on which the first of these brokers has been asked already.
        """
        self._connection = None
        connection = await self._ask(method, target, urls, asked)
        try:
            redirect = await self._answer(connection, method)
        except BaseException:
            connection.close()
            raise
        if redirect is not None:
            await self._follow(redirect, connection, method)

    async def _follow(self, redirect: Redirect, connection: UpstreamConnection, method: str) -> None:
        assert redirect.broker is not None
        if connection.status == 303:
            method = "GET"
            self._forget_body()
        self.record.broker = redirect.broker.name
        await self._converse(method, redirect.target, iter((dial_url(redirect.broker, self.decisions.snapshot),)))

    async def _ask(
        self, method: str, target: str, urls: Iterator[ServiceUrl], asked: UpstreamConnection | None
    ) -> UpstreamConnection:
        """Get the head of an answer from one of these brokers.

        What failed before an answer is tried again: on a new connection where a kept one had been closed, on the
        next broker where a connection failed; but never what may have had an effect, nor a body that is gone. So
        only what can be sent again whatever happens goes by a kept connection: what is idempotent and has no body.
        """
        problem: UpstreamError | None = None
        may_repeat = method in _IDEMPOTENT
        for url in islice(urls, _TRIES):
            for reuse in (True, False) if may_repeat and self._body is None else (False,):
                connection, asked = asked, None
                try:
                    if connection is None:
                        connection = await self._pool.connection(url, reuse)
                        self._send(connection, method, target)
                    await connection.head(self._patience())
                except (Unreachable, ClosedEarly) as error:
                    self._stop_pump()
                    if self._body is not None and not self._body.replayable:
                        raise
                    if connection is not None and connection.used:
                        continue
                    self._pool.brokers.failed(url)
                    problem = self._failed(problem, error)
                    if isinstance(error, ClosedEarly) and not may_repeat:
                        raise
                    break
                except BaseException:
                    if connection is not None:
                        connection.close()
                    raise
                if problem is not None:
                    self.record.upstream_errors.append(problem.code)
                self.record.upstream_duration = perf_counter() - self._asked_at
                return connection
        assert problem is not None
        raise problem

    def _failed(self, earlier: UpstreamError | None, error: UpstreamError) -> UpstreamError:
        if earlier is not None:
            self.record.upstream_errors.append(earlier.code)
        log.warning("%s %s; asking the next broker, if there is one", self.record.id, error)
        return error

    def _send(self, connection: UpstreamConnection, method: str, target: str) -> None:
        connection.on_continue = self._continue if b"expect" in self.head.special else None
        if not self._asked_at:
            self._asked_at = perf_counter()
        connection.ask(method, self._request_head(method, target, connection.url))
        if self._body is not None:
            self._pump = self._loop.create_task(self._pump_body(self._body, connection))

    def _patience(self) -> float:
        return self._config.timeouts.lookup if self._is_lookup else self._config.timeouts.request

    def _request_head(self, method: str, target: str, url: ServiceUrl) -> bytes:
        head, body = self.head, self._body
        fields = forwarding.fields(
            head, url, self._config, self.trusted, self._client.peer_field, self._is_lookup, self._listener
        )
        if body is not None:
            fields.append(body.field)
            if b"expect" in head.special and not self._continued and not body.size:
                fields.append(b"Expect: 100-continue")
        elif b"content-length" in head.special and method == self._method:
            fields.append(b"Content-Length: 0")
        if b"upgrade" in head.special and forwarding.wants_websocket(self._method, head):
            fields += forwarding.UPGRADE
        return headers.write_head(f"{method} {target} HTTP/1.1".encode("latin-1"), fields)

    async def _pump_body(self, body: RequestBody, connection: UpstreamConnection) -> None:
        try:
            await body.send(connection)
        except UpstreamError:
            return  # whoever waits for the answer learns of it there
        except (RequestPayloadError, HttpProcessingError, OSError) as error:
            connection.fail(BodyBroken(f"the request's body is broken: {error}"))

    def _stop_pump(self) -> None:
        if self._pump is not None:
            self._pump.cancel()
            self._pump = None

    def _forget_body(self) -> None:
        """Go on without the body, of which the client may not have sent all."""
        if self._body is not None:
            self.record.request_bytes = self._body.size
            self._body.drop()
            self._body = None

    def _continue(self) -> None:
        if not self._continued:
            self._continued = True
            self._client.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # Answering.

    async def _answer(self, connection: UpstreamConnection, method: str) -> Redirect | None:
        """Answer with what this broker said; or the redirect that is to be followed."""
        if connection.status == 101:
            await self._switch(connection)
            return None
        if connection.complete or self._is_redirect(connection):
            return self._answer_whole(connection, method)
        fields, data, patience = connection.fields, b"", self._config.timeouts.request
        if self._needs_check(connection):
            data = await self._gather(connection)
            if not self._config.shadow:
                self._answer_lookup(connection, fields, data)
                return None
            with suppress(BadAnswer):
                self._check_answer(connection, data)
        if not self._client.charge(_room_for(connection.length)):
            connection.close()
            self._response.refuse(_OVERLOADED)
        elif await self._response.stream(connection, fields, data, patience):
            self._dismiss(connection)
        else:
            connection.close()
        return None

    def _answer_whole(self, connection: UpstreamConnection, method: str) -> Redirect | None:
        """Answer with what is here already: all of an answer, or a redirect, whose body is nobody's business."""
        status, shadow = connection.status, self._config.shadow
        fields = connection.fields
        if self._is_redirect(connection):
            redirect = self._redirect((connection.location or b"").decode("latin-1"))
            if not shadow:
                if redirect.refusal is not None:
                    self._dismiss(connection)
                    self._response.refuse(redirect.refusal)
                    return None
                if redirect.broker is not None:
                    self._dismiss(connection)
                    return redirect
                if redirect.action == "rewritten" and redirect.location is not None:
                    fields = headers.without(fields, _LOCATION)
                    fields.append(b"Location: " + redirect.location.encode("latin-1"))
        elif self._needs_check(connection):
            if method != "HEAD":
                body = connection.take()
                if not shadow:
                    self._answer_lookup(connection, fields, body)
                    return None
                with suppress(BadAnswer):
                    self._check_answer(connection, body)
                self._pass(connection, fields, body)
                return None
            if not shadow:
                connection.length = None  # of another body than a GET would have (RFC 9110 8.6)
        if method == "HEAD" or status in _NO_BODY:
            if connection.length is not None and status != 204:
                fields.append(b"Content-Length: %d" % connection.length)
            self._response.head(status, connection.reason, fields)
            self._dismiss(connection)
        else:
            self._pass(connection, fields, connection.take())
        return None

    def _pass(self, connection: UpstreamConnection, fields: headers.Fields, body: bytes) -> None:
        status, reason = connection.status, connection.reason
        self._dismiss(connection)
        self._response.whole(status, reason, fields, body)

    def _is_redirect(self, connection: UpstreamConnection) -> bool:
        return 300 <= connection.status < 400 and connection.location is not None

    def _needs_check(self, connection: UpstreamConnection) -> bool:
        """Whether the body has to be read before the client may have it."""
        return self._is_lookup and connection.status in (200, 500) and self._listener is not None

    def _redirect(self, location: str) -> Redirect:
        can_follow = self._body is None or self._body.replayable
        redirect = decide_redirect(location, self._asked, self.decision.selection, self.decisions, can_follow)
        to = redirect.location
        if redirect.broker is not None:
            to = f"{dial_url(redirect.broker, self.decisions.snapshot)}{redirect.target}"
            redirect = self._hop(redirect, redirect.broker.name)
        record = self.record
        record.redirects.append(redirect.action)
        record.redirect_from, record.redirect_to = location, None if redirect.unmapped else to
        record.unmapped += redirect.unmapped
        if redirect.leak:
            record.leaked("location", "passed")
        return redirect

    def _hop(self, redirect: Redirect, broker: str) -> Redirect:
        """The redirect, or its refusal where it would lead in a circle or too far."""
        if self._hops is None:
            self._hops = set()
        refusal = refuse_hop((broker, redirect.target), self._hops, self._config.redirects.max_hops)
        return redirect if refusal is None else Redirect("refused", refusal=refusal, unmapped=redirect.unmapped)

    def _dismiss(self, connection: UpstreamConnection) -> None:
        """Be done with an answer: keep the connection if all of it came, and all of the request went."""
        done = self._pump is None or self._pump.done()
        self._stop_pump()
        if connection.complete and done:
            connection.take()
            self._pool.give_back(connection)
        else:
            connection.close()

    def _answer_lookup(self, connection: UpstreamConnection, fields: headers.Fields, body: bytes) -> None:
        """Put a lookup's answer on the listener, and say clearly that a broker lacks one."""
        status, reason = connection.status, connection.reason
        plain, refusal = self._check_answer(connection, body)
        self._dismiss(connection)
        if refusal is not None:
            self._response.refuse(refusal)
            return
        if connection.codings:
            fields = headers.without(fields, _CODING)
        self._response.whole(status, reason, fields, plain)

    def _check_answer(self, connection: UpstreamConnection, body: bytes) -> tuple[bytes, Refusal | None]:
        """The body to answer with, decoded, or a refusal."""
        assert self._listener is not None
        plain, record = decode(body, connection.codings, _LOOKUP_BODY_LIMIT), self.record
        if connection.status != 200:
            refusal = lacks_listener(connection.status, plain, self._listener)
            if refusal is not None:
                record.miss_reason = refusal.code  # the lookup was a miss after all
            return plain, refusal
        policy, answer = self._config.leaks, self.decisions.on_listener(plain, self._listener)
        leak = decide_leak(policy, answer.had_leak, answer.has_leak)
        record.broker = answer.broker
        if leak is not None:
            record.leaked("body", leak)
        refusal = leak_refusal(self._listener) if leak == "blocked" else None
        return plain if policy == "observe" else answer.body, refusal

    async def _gather(self, connection: UpstreamConnection) -> bytes:
        """A lookup's answer, or as much of it as there may be."""
        body = connection.take()
        while not connection.complete and len(body) <= _LOOKUP_BODY_LIMIT:
            body += await connection.read(self._config.timeouts.lookup)
        return body + connection.take()

    async def _switch(self, connection: UpstreamConnection) -> None:
        """Pass bytes both ways after a 101, until either side is done."""
        if not forwarding.wants_websocket(self._method, self.head) or not connection.upgrades:
            raise BadAnswer("the broker switched to a protocol that was not asked for")
        tunnel = Tunnel(self._client, connection)
        self._response.keep_alive = False
        self.record.status = 101
        own = b"X-Request-Id: %b" % self.record.id.encode()
        fields = [*connection.fields, own, b"Connection: Upgrade", b"Upgrade: websocket"]
        self._client.write(headers.write_head(b"HTTP/1.1 101 Switching Protocols", fields))
        try:
            await tunnel.run()
        finally:
            connection.close()

    def _give_up(self, error: UpstreamError) -> None:
        """Say that there is no answer, and why."""
        if isinstance(error, BodyBroken):
            self._response.refuse(Refusal(400, error.code, str(error)), close=True)
            return
        self.record.upstream_errors.append(error.code)
        self._response.refuse(
            Refusal(504 if error.code == "broker-timeout" else 502, error.code, error.text, str(error))
        )


def _room_for(length: int | None) -> int:
    """Bytes to hold for a body on its way."""
    return memory.TRANSFER if length is None else min(2 * length, memory.TRANSFER)


def read_and_decide(
    decisions: DecisionCache,
    method: str,
    raw_target: str,
    head: headers.RequestHead,
    bind: BindAddress,
    trusted: bool,
) -> tuple[str, str, Target, Request, Decision]:
    """Path and query as they were, what they are about, the request and its decision.

    Raises BadHead.
    """
    path, query, authority = headers.split_target(method, raw_target)
    target = headers.about(method, path)
    special = head.special
    key = (
        bind.address, special.get(b"host"), authority, trusted, special.get(b"x-forwarded-host"),
        special.get(b"x-forwarded-proto"), head.listener_names, listener_names(query) if query else (),
        target.kind, target.area,
    )  # fmt: skip

    def read() -> tuple[Request, int]:
        request = headers.read_request(target, query, authority, head, bind, trusted)
        names = (*head.listener_names, *request.query_names, *map(head.text, _DECISIVE))
        return request, sum(map(len, names)) + 8 * len(names)  # empty ones take room, too

    return path, query, target, *decisions.decide(key, read)
