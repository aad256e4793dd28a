"""One request's life: read, decided, asked of a broker, answered.

The rules are elsewhere (selection, routing, redirects, answers); here is the order in which they are asked,
and what is done about it. Answers are written as bytes, without a Response object.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import islice

from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError
from aiohttp.web_request import BaseRequest

from proxy.answers import LookupAnswer, lacks_listener, put_on_listener
from proxy.listeners import BindAddress, ServiceUrl
from proxy.observe.metrics import Metrics
from proxy.observe.records import Record
from proxy.redirects import Redirect, decide
from proxy.requests import set_listener_name
from proxy.routing import dial_url, not_exposed, route
from proxy.selection import Refusal, select
from proxy.snapshot import Snapshot
from proxy.web import coding, heads
from proxy.web.bodies import ReplayBudget, RequestBody
from proxy.web.client import ClientConnection
from proxy.web.pool import Pool
from proxy.web.tunnel import Tunnel
from proxy.web.upstream import BadAnswer, BodyBroken, ClosedEarly, Unreachable, UpstreamConnection, UpstreamError

_IDEMPOTENT = frozenset(("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"))  # RFC 9110 9.2.2
_NO_BODY = frozenset((204, 304))
_CLIENT_LEFT = 499
"""The status, as nginx has it, of a request whose client did not wait for an answer."""
_TRIES = 3
_LOOKUP_BODY_LIMIT = 1 << 20
"""Bytes of a lookup's answer; real ones have a few hundred."""

log = logging.getLogger("proxy.web")


class Rim:
    """What all exchanges share: the snapshot in force, the connections to brokers, and the counts."""

    def __init__(self, snapshot: Snapshot, pool: Pool, metrics: Metrics) -> None:
        self.pool = pool
        self.metrics = metrics
        self.budget = ReplayBudget(snapshot.config.limits.replay_total_bytes)
        self.install(snapshot)

    def install(self, snapshot: Snapshot) -> None:
        """Put a snapshot in force; requests that have begun keep theirs."""
        self.snapshot = snapshot

        # The owner's answer is the same for all its topics, so that there are few to work out.
        @lru_cache(1024)
        def on_listener(body: bytes, listener: str) -> LookupAnswer:
            return put_on_listener(body, listener, snapshot)

        self.on_listener = on_listener
        self.metrics.generation.set(snapshot.generation)
        self.metrics.book_entries.set(len(snapshot.book.entries), "config")


class Exchange:
    """One request, from its head to the last byte of its answer."""

    def __init__(self, rim: Rim, bind: BindAddress, request: BaseRequest) -> None:
        self._rim = rim
        self._snapshot = rim.snapshot
        self._config = rim.snapshot.config
        self._on_listener = rim.on_listener
        self._bind = bind
        self._request = request
        assert isinstance(request.protocol, ClientConnection)
        self._client = request.protocol
        self._loop = asyncio.get_running_loop()
        self._method = request.method
        self._keep_alive = request.keep_alive and request.version >= (1, 1)
        self._body: RequestBody | None = None
        self._pump: asyncio.Task[None] | None = None
        self._continued = False
        self._asked_at = 0.0
        self._hops: set[tuple[str, str]] = set()
        """The redirects that were followed: whom they named, and what to ask for."""
        self.record = Record()

    async def run(self) -> bool:
        """Answer; true where the connection may be used again."""
        started = self._loop.time()
        try:
            await self._run()
        except Exception:
            if self.record.status:  # part of an answer is out, and no other may follow it
                self._client.break_off(gently=False)
            self.record.status = 500
            raise
        finally:
            self._stop_pump()
            if self._body is not None:
                self._body.drop()
            self.record.duration = self._loop.time() - started
            self.record.status = self.record.status or _CLIENT_LEFT
            self._rim.metrics.count(self.record)
        return self._keep_alive

    async def _run(self) -> None:
        try:
            self._read()
        except heads.BadHead as fault:
            self._refuse(Refusal(fault.status, fault.code, str(fault)), close=True)
            return
        self._select()
        if self._refusal is not None and not self._config.shadow:
            self._refuse(self._refusal)
            return
        try:
            await self._converse()
        except UpstreamError as error:
            self._give_up(error)

    # Reading and deciding.

    def _read(self) -> None:
        request, config = self._request, self._config
        self._head = head = heads.read_head(request.raw_headers)
        self._trusted = self._client.is_trusted(config.trusted_proxies)
        self._path, self._query, self._asked = heads.read_request(
            request.method, request.raw_path, head, self._bind, self._trusted
        )
        if request.version < (1, 1):
            # RFC 9110 7.8 and 10.1.1: an HTTP/1.0 client upgrades nothing and expects nothing.
            head.special.pop(b"upgrade", None)
            head.special.pop(b"expect", None)
        if head.text(b"expect").lower() not in ("", "100-continue"):
            raise heads.BadHead("expectation-failed", "only 100-continue can be expected", 417)
        if request.body_exists:
            length = head.special.get(b"content-length")
            self._body = RequestBody(
                request.content, int(length[0]) if length else None, config.redirects.replay_bytes, self._rim.budget
            )

    def _select(self) -> None:
        record, asked = self.record, self._asked
        self._selection = selection = select(asked, self._snapshot)
        self._refusal = not_exposed(asked, selection) or selection.refusal
        record.kind = asked.target.kind
        record.is_lookup = asked.target.kind == "lookup"
        record.rule = selection.rule
        record.listener = self._snapshot.listener_label(selection.listener)
        if selection.ingress is not None:
            record.ingress = selection.ingress.name
        record.miss_reason = self._refusal.code if self._refusal is not None else selection.reason
        self._is_lookup = record.is_lookup

    # Asking brokers.

    async def _converse(self) -> None:
        """Ask, and ask again where a redirect is followed, until there is something to answer with."""
        path, query = self._path, self._query
        if self._is_lookup and not self._config.shadow and self._asked.query_names:
            selection = self._selection
            kept = selection.client_named if selection.client_named_by == "query" else None
            query = set_listener_name(query, kept if kept == selection.listener else None)
        method, target = self._method, self._request.raw_path
        if query != self._query or not target.startswith("/"):
            target = f"{path}?{query}" if query else path
        chosen = route(self._asked, self._selection, self._snapshot)
        if chosen.url is not None:
            urls: Iterator[ServiceUrl] = iter((chosen.url,))
        else:
            pool = self._config.function_pool if chosen.pool == "functions" else self._config.web_pool
            urls = self._rim.pool.in_turn(pool)
        while True:
            connection = await self._ask(method, target, urls)
            try:
                redirect = await self._answer(connection, method)
            except BaseException:
                connection.close()
                raise
            if redirect is None or redirect.broker is None:
                return
            if connection.status == 303:
                method = "GET"
                self._forget_body()
            target = redirect.target
            urls = iter((dial_url(redirect.broker, self._snapshot),))

    async def _ask(self, method: str, target: str, urls: Iterator[ServiceUrl]) -> UpstreamConnection:
        """Get the head of an answer from one of these brokers.

        What failed before an answer is tried again: on a new connection where a kept one had been closed, on the
        next broker where a connection failed; but never what may have had an effect, nor a body that is gone.
        """
        problem: UpstreamError | None = None
        may_repeat = method in _IDEMPOTENT
        for url in islice(urls, _TRIES):
            for reuse in (True, False) if may_repeat else (False,):
                connection: UpstreamConnection | None = None
                try:
                    connection = await self._rim.pool.connection(url, reuse)
                    await self._send(connection, method, target)
                except (Unreachable, ClosedEarly) as error:
                    self._stop_pump()
                    if self._body is not None and not self._body.replayable:
                        raise
                    if connection is not None and connection.used:
                        continue
                    self._rim.pool.failed(url)
                    problem = self._failed(problem, error)
                    if isinstance(error, ClosedEarly) and not may_repeat:
                        raise
                    break
                except BaseException:
                    if connection is not None:
                        connection.close()
                    raise
                if problem is not None:
                    self.record.upstream_failed(problem.code)
                return connection
        assert problem is not None
        raise problem

    def _failed(self, earlier: UpstreamError | None, error: UpstreamError) -> UpstreamError:
        if earlier is not None:
            self.record.upstream_failed(earlier.code)
        log.warning("%s; asking the next broker, if there is one", error)
        return error

    async def _send(self, connection: UpstreamConnection, method: str, target: str) -> None:
        connection.on_continue = self._continue if b"expect" in self._head.special else None
        if not self._asked_at:
            self._asked_at = self._loop.time()
        connection.ask(method, self._request_head(method, target, connection.url))
        if self._body is not None:
            self._pump = self._loop.create_task(self._pump_body(self._body, connection))
        timeouts = self._config.timeouts
        await connection.head(timeouts.lookup if self._is_lookup else timeouts.request)
        self.record.upstream_duration = self._loop.time() - self._asked_at

    def _request_head(self, method: str, target: str, url: ServiceUrl) -> bytes:
        """The head as a broker gets it: the client's fields, and those that the proxy answers for."""
        head, config = self._head, self._config
        host = url.host if not url.shows_port else url.authority
        headers: heads.Headers = [(b"Host", host.encode()), *head.passed]
        forwarded_for = head.text(b"x-forwarded-for") if self._trusted else ""
        peer = self._client.peer
        headers.append((b"X-Forwarded-For", (f"{forwarded_for}, {peer}" if forwarded_for else peer).encode("latin-1")))
        headers.append((b"X-Forwarded-Proto", url.scheme.encode()))
        if config.brokers.trust_original_principal and b"x-original-principal" in head.special:
            headers += [(b"X-Original-Principal", value) for value in head.special[b"x-original-principal"]]
        if self._is_lookup and not config.shadow:
            headers.append((b"Accept-Encoding", b"identity"))
            if self._selection.listener is not None:
                headers.append((heads.LISTENER_HEADER, self._selection.listener.encode()))
        elif b"accept-encoding" in head.special:
            headers.append((b"Accept-Encoding", head.text(b"accept-encoding").encode("latin-1")))
        if config.shadow:
            headers += [(heads.LISTENER_HEADER, value) for value in head.special.get(b"x-pulsar-listenername", ())]
        if self._body is not None:
            if self._body.length is None:
                headers.append((b"Transfer-Encoding", b"chunked"))
            else:
                headers.append((b"Content-Length", b"%d" % self._body.length))
            if b"expect" in head.special and not self._continued and not self._body.size:
                headers.append((b"Expect", b"100-continue"))
        elif b"content-length" in head.special and method == self._method:
            headers.append((b"Content-Length", b"0"))
        if self._wants_websocket():
            headers += [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
        start_line = b"%b %b HTTP/1.1" % (method.encode(), target.encode("latin-1"))
        return heads.write_head(start_line, headers)

    def _wants_websocket(self) -> bool:
        return (
            b"upgrade" in self._head.special
            and self._head.text(b"upgrade").lower() == "websocket"
            and "upgrade" in (option.strip() for option in self._head.text(b"connection").lower().split(","))
            and self._method == "GET"
        )

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
            self._keep_alive = self._keep_alive and self._request.content.is_eof()
            self._body.drop()
            self._body = None

    def _continue(self) -> None:
        if not self._continued:
            self._continued = True
            self._client.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # Answering.

    async def _answer(self, connection: UpstreamConnection, method: str) -> Redirect | None:
        """Answer with what this broker said; or the redirect that is to be followed."""
        status, headers = connection.status, heads.answer_headers(connection.headers)
        if status == 101:
            await self._switch(connection)
            return None
        if 300 <= status < 400 and (location := heads.header(headers, b"location")) is not None:
            redirect = self._redirect(location.decode("latin-1"))
            if not self._config.shadow:
                if redirect.broker is not None or redirect.refusal is not None:
                    self._dismiss(connection)
                    if redirect.refusal is not None:
                        self._refuse(redirect.refusal)
                    return redirect
                if redirect.action == "rewritten" and redirect.location is not None:
                    headers = heads.without(headers, b"location")
                    headers.append((b"Location", redirect.location.encode("latin-1")))
        elif self._is_lookup and status in (200, 500) and self._selection.listener is not None:
            if method != "HEAD":
                await self._answer_lookup(connection, headers)
                return None
            if not self._config.shadow:
                connection.length = None  # of another body than a GET would have (RFC 9110 8.6)
        await self._relay(connection, headers, method)
        return None

    def _redirect(self, location: str) -> Redirect:
        can_follow = self._body is None or self._body.replayable
        redirect = decide(location, self._asked, self._selection, self._snapshot, can_follow)
        if redirect.broker is not None:
            redirect = self._hop(redirect, redirect.broker.name)
        record = self.record
        record.redirected(redirect.action)
        record.unmapped += redirect.unmapped
        if redirect.leak:
            record.leaked("location", "passed")
        return redirect

    def _hop(self, redirect: Redirect, broker: str) -> Redirect:
        """The redirect, or its refusal where it would lead in a circle or too far."""
        hop, most = (broker, redirect.target), self._config.redirects.max_hops
        if hop in self._hops:
            refusal = Refusal(502, "redirect-loop", "brokers redirect in a circle", f"{broker} a second time")
        elif len(self._hops) >= most:
            refusal = Refusal(502, "too-many-redirects", f"more than {most} redirects (redirects.maxHops)", broker)
        else:
            self._hops.add(hop)
            return redirect
        return Redirect("refused", refusal=refusal, unmapped=redirect.unmapped)

    def _dismiss(self, connection: UpstreamConnection) -> None:
        """Be done with an answer that the client does not get."""
        done = self._pump is None or self._pump.done()
        self._stop_pump()
        if connection.complete and done:
            connection.take()
            self._rim.pool.give_back(connection)
        else:
            connection.close()

    async def _answer_lookup(self, connection: UpstreamConnection, headers: heads.Headers) -> None:
        """Put a lookup's answer on the listener, and say clearly that a broker lacks one."""
        body = await self._gather(connection)
        status, reason = connection.status, connection.reason
        if self._config.shadow:
            with suppress(BadAnswer):
                self._judge(status, headers, body)
            await self._stream(connection, headers, body)
            return
        plain, refusal = self._judge(status, headers, body)
        self._dismiss(connection)
        if refusal is not None:
            self._refuse(refusal)
            return
        if plain is not body:
            headers = heads.without(headers, b"content-encoding")
        self._write_whole(status, reason, headers, plain)

    def _judge(self, status: int, headers: heads.Headers, body: bytes) -> tuple[bytes, Refusal | None]:
        """The body to answer with, decoded, or a refusal."""
        listener = self._selection.listener
        assert listener is not None
        plain = coding.decode(body, headers, _LOOKUP_BODY_LIMIT)
        if refusal := lacks_listener(status, plain, listener):
            self.record.miss_reason = refusal.code
        elif status == 200:
            return self._check_leaks(plain, self._on_listener(plain, listener))
        return plain, refusal

    def _check_leaks(self, sent: bytes, answer: LookupAnswer) -> tuple[bytes, Refusal | None]:
        leaks, record = self._config.leaks, self.record
        if leaks == "observe":
            if answer.was_foreign:
                record.leaked("body", "observed")
            return sent, None
        if not answer.is_foreign:
            return answer.body, None
        record.leaked("body", "blocked" if leaks == "block" else "passed")
        if leaks == "block":
            text = f"the broker's answer has an address that is not on listener '{self._selection.listener}'"
            return answer.body, Refusal(502, "leak", text)
        return answer.body, None

    async def _gather(self, connection: UpstreamConnection) -> bytes:
        """A lookup's answer, or as much of it as there may be."""
        body = connection.take()
        while not connection.complete and len(body) <= _LOOKUP_BODY_LIMIT:
            body += await connection.read(self._config.timeouts.lookup)
        return body + connection.take()

    async def _relay(self, connection: UpstreamConnection, headers: heads.Headers, method: str) -> None:
        """Hand an answer on: whole where it is here already, else as it comes."""
        status = connection.status
        if method == "HEAD" or status in _NO_BODY:
            if connection.length is not None and status != 204:
                headers.append((b"Content-Length", b"%d" % connection.length))
            self._write_head(status, connection.reason, headers)
            self._dismiss(connection)
        elif connection.complete:
            body = connection.take()
            reason = connection.reason
            self._dismiss(connection)
            self._write_whole(status, reason, headers, body)
        else:
            await self._stream(connection, headers)

    async def _stream(self, connection: UpstreamConnection, headers: heads.Headers, data: bytes = b"") -> None:
        """Hand an answer on as it comes; `data` is what has come of it already."""
        chunked = False
        if connection.length is not None:
            headers.append((b"Content-Length", b"%d" % connection.length))
        elif self._request.version >= (1, 1):
            chunked = True
            headers.append((b"Transfer-Encoding", b"chunked"))
        else:
            self._keep_alive = False
        self._write_head(connection.status, connection.reason, headers)
        try:
            while data or (data := await connection.read(self._config.timeouts.request)):
                self._client.write(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)
                data = b""
                await self._client.drain()
        except UpstreamError as error:
            # The head is out: a broken connection is the only way left to say that this is not all.
            log.warning("%s %s: %s", self._method, self._asked.target.kind, error)
            if not isinstance(error, BodyBroken):
                self.record.upstream_failed(error.code)
            connection.close()
            self._keep_alive = False
            self._client.break_off(gently=chunked or connection.length is not None)
            return
        if chunked:
            self._client.write(b"0\r\n\r\n")
        self._dismiss(connection)

    async def _switch(self, connection: UpstreamConnection) -> None:
        """Pass bytes both ways after a 101, until either side is done."""
        if not self._wants_websocket() or heads.header(connection.headers, b"upgrade") is None:
            raise BadAnswer("the broker switched to a protocol that was not asked for")
        tunnel = Tunnel(self._client, connection)
        self._keep_alive = False
        self.record.status = 101
        headers = heads.answer_headers(connection.headers)
        headers += [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
        self._client.write(heads.write_head(b"HTTP/1.1 101 Switching Protocols", headers))
        try:
            await tunnel.run()
        finally:
            connection.close()

    def _write_whole(self, status: int, reason: bytes, headers: heads.Headers, body: bytes) -> None:
        headers.append((b"Content-Length", b"%d" % len(body)))
        self._write_head(status, reason, headers, body)

    def _write_head(self, status: int, reason: bytes, headers: heads.Headers, body: bytes = b"") -> None:
        if self._body is not None and not self._request.content.is_eof():
            self._keep_alive = False  # the rest of the body would be taken for a request
        if not self._keep_alive:
            headers.append((b"Connection", b"close"))
        self.record.status = status
        self._client.write(heads.write_head(b"HTTP/1.1 %d %b" % (status, reason), headers) + body)

    def _refuse(self, refusal: Refusal, close: bool = False) -> None:
        """An answer of our own."""
        self._keep_alive = self._keep_alive and not close
        if refusal.detail:
            log.warning("%s %s: %s: %s", self._method, self.record.kind, refusal.text, refusal.detail)
        reason, headers, body = heads.own_answer(refusal.status, refusal.code, refusal.text)
        self._write_head(refusal.status, reason, headers, body if self._method != "HEAD" else b"")

    def _give_up(self, error: UpstreamError) -> None:
        """Say that there is no answer, and why."""
        if isinstance(error, BodyBroken):
            self._refuse(Refusal(400, error.code, str(error)), close=True)
            return
        self.record.upstream_failed(error.code)
        self._refuse(Refusal(504 if error.code == "broker-timeout" else 502, error.code, error.text, str(error)))
