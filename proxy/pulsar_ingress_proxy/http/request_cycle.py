"""One request, top to bottom: read, decide, forward, answer, record.

The rules are in `routing`; this module applies them in order. Its code never awaits: the common case, a complete answer
on an idle connection, runs in callbacks. For anything else a `Conversation` continues in a task and calls the same
methods.
"""

import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from time import perf_counter, time
from typing import TYPE_CHECKING

from aiohttp import EMPTY_PAYLOAD, HttpVersion10, HttpVersion11, StreamReader
from aiohttp.http import RawRequestMessage

from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.http import headers
from pulsar_ingress_proxy.http.body import LOOKUP_BODY_LIMIT, RequestBody, decode
from pulsar_ingress_proxy.http.connection_pool import ConnectionPool
from pulsar_ingress_proxy.http.conversation import Conversation
from pulsar_ingress_proxy.http.upstream import UpstreamConnection
from pulsar_ingress_proxy.net.context import ServerContext
from pulsar_ingress_proxy.net.errors import BadAnswer, BodyBroken, UpstreamError
from pulsar_ingress_proxy.observability import event_lines
from pulsar_ingress_proxy.observability.access_record import AccessRecord
from pulsar_ingress_proxy.observability.outcome import Outcome
from pulsar_ingress_proxy.observability.tracing import TRACE_FIELDS, Span
from pulsar_ingress_proxy.routing.answers import decide_leak, lacks_listener, leak_refusal
from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.decisions import DecidedRequest, dial_url
from pulsar_ingress_proxy.routing.paths import OTHER, names_in
from pulsar_ingress_proxy.routing.redirects import Redirect, decide_redirect, refuse_hop
from pulsar_ingress_proxy.routing.selection import OVERLOADED, Refusal
from pulsar_ingress_proxy.syntax.authorities import Address, forwarded_client
from pulsar_ingress_proxy.syntax.listeners import ServiceUrl

if TYPE_CHECKING:
    from pulsar_ingress_proxy.http.client import ClientConnection
    from pulsar_ingress_proxy.http.server import HttpServer

_VERSIONS = (HttpVersion11, HttpVersion10)
"""The parser also accepts 0.9 and 2.0, which brokers could frame differently."""
_NO_BODY = frozenset((204, 304))
_CLIENT_LEFT = 499
"""nginx's status for a client that disconnected before the answer."""
_NO_HEAD = headers.RequestHead()
_CODING = frozenset((b"content-encoding",))

log = logging.getLogger("proxy.web")


@dataclass(slots=True, eq=False, repr=False)
class RequestCycle:
    """One request, from its head to the last byte of its answer."""

    _server: "HttpServer"
    client: "ClientConnection"
    _message: RawRequestMessage
    _reader: StreamReader

    # Set by `start`.
    pool: ConnectionPool = field(init=False)
    _context: ServerContext = field(init=False)
    decisions: DecisionCache = field(init=False)
    config: Config = field(init=False)
    id: str = field(init=False)
    method: str = field(init=False)
    _started: float = field(init=False)
    _time: float = field(init=False)
    chunks: bool = field(init=False)
    """Whether the client supports chunked answers; HTTP/1.0 does not."""
    keep_alive: bool = field(init=False)

    head: headers.RequestHead = _NO_HEAD
    _path: str = ""
    _query: str = ""
    _trusted: bool = False
    _span: Span | None = None
    body: RequestBody | None = None
    is_continued: bool = False
    """Whether the client got a 100 (Continue)."""
    _decided: DecidedRequest | None = None
    """None if the head could not be read."""
    _is_lookup: bool = False
    _listener: str | None = None
    shadow: bool = False
    """Whether the request is only recorded, and nothing is changed."""
    _question: tuple[str, str, ServiceUrl, Iterator[ServiceUrl]] = field(init=False)
    """What was asked last: method, request target, broker, and the brokers to try next."""
    _conversation: Conversation | None = None
    connection: UpstreamConnection | None = None
    """The connection that an answer is awaited on."""
    asked_at: float = 0.0
    _hops: set[tuple[str, object]] | None = None
    """The followed redirects: broker and request target."""

    # For the record.
    _miss_reason: str | None = None
    status: int = 0
    broker: str | None = None
    _redirects: tuple[str, ...] = ()
    _redirect_from: str | None = None
    _redirect_to: str | None = None
    _unmapped: int = 0
    _leak: str | None = None
    _leak_action: str = ""
    upstream_errors: tuple[str, ...] = ()
    upstream_duration: float | None = None
    _request_bytes: int = 0
    response_bytes: int = 0

    # Reading, deciding, forwarding.

    def start(self) -> None:
        """Read, decide and send the request; continues when the broker answers."""
        self._started = perf_counter()
        self._time = time()
        server, message = self._server, self._message
        self.pool = server.pool
        self._context = context = server.context
        self.decisions = context.decisions
        self.config = context.decisions.config
        self.id = context.recorder.new_id()
        self.method = message.method
        self.chunks = message.version >= HttpVersion11
        self.keep_alive = self.chunks and not message.should_close
        in_flight = server.in_flight
        in_flight[0] += 1
        try:
            refusal = self._read(is_excess=in_flight[0] > self.config.limits.in_flight)
            if refusal is None:
                self.ask(self.method, *self._plan())
                return
            self.refuse(refusal)
        except headers.BadHead as fault:
            self.refuse(Refusal(fault.status, fault.code, str(fault)), close=True)
        except Exception:
            self.fault()
        self.finish()

    def _read(self, is_excess: bool) -> Refusal | None:
        """Read the head and decide; raises BadHead."""
        message, config, client = self._message, self.config, self.client
        if message.version not in _VERSIONS:
            raise headers.BadHead("http-version", "this socket takes HTTP/1.1 and HTTP/1.0", 505)
        if self._context.tracing is None:
            head = headers.RequestHead(message.raw_headers, self.decisions)
        else:
            head = headers.RequestHead(message.raw_headers, self.decisions, TRACE_FIELDS)
            self._span, head.added = self._context.tracing.begin(message.raw_headers)
        self.head = head
        special = head.special
        self._trusted = client.is_trusted(self.decisions.trusted_proxies)
        if b"transfer-encoding" in special:
            headers.check_transfer_encoding(head, not self.chunks)
        if message.version is HttpVersion10:
            # RFC 9110 7.8 and 10.1.1: Upgrade and Expect are ignored in HTTP/1.0.
            special.pop(b"upgrade", None)
            special.pop(b"expect", None)
        if b"expect" in special and special[b"expect"].lower() != b"100-continue":
            raise headers.BadHead("expectation-failed", "only 100-continue can be expected", 417)
        self._path, self._query, authority = headers.split_target(message.method, message.path)
        target = headers.about(message.method, self._path)
        self._is_lookup = target.kind == "lookup"
        self._decided = decided = headers.read_and_decide(
            self.decisions, head, target, self._query, authority, self._server.bind, self._trusted
        )
        decision = decided.decision
        self._listener = decision.selection.listener
        self.shadow = decision.selection.shadow
        self._miss_reason = decision.miss_reason
        if self._reader is not EMPTY_PAYLOAD:
            length = int(special[b"content-length"]) if b"content-length" in special else None
            self.body = RequestBody(self._reader, length, config.redirects.replay_bytes, self._context.replays)
        if is_excess:
            self._miss_reason = OVERLOADED.code
            return OVERLOADED
        return None if self.shadow else decision.refusal

    def _plan(self) -> tuple[str, Iterator[ServiceUrl]]:
        """The request target, and the brokers to try in order."""
        assert self._decided is not None
        query, target, decision = self._query, self._message.path, self._decided.decision
        if query and self._is_lookup and self._decided.request.query_names and not self.shadow:
            selection = decision.selection
            kept = selection.client_named if selection.client_named_by == "query" else None
            query = self.decisions.query_with(query, kept if kept == selection.listener else None)
        if query != self._query or not target.startswith("/"):
            target = f"{self._path}?{query}" if query else self._path
        chosen = decision.route
        if chosen.broker is not None and chosen.url is not None:
            self.broker = chosen.broker.name
            return target, iter((chosen.url,))
        pool = self.config.function_pool if chosen.pool == "functions" else self.config.web_pool
        return target, self.pool.brokers.in_turn(pool)

    def ask(self, method: str, target: str, urls: Iterator[ServiceUrl]) -> None:
        """Send the request to the first of these brokers, on an idle connection if it can be retried."""
        url = next(urls)
        self._question = method, target, url, urls
        body, connection = self.body, None
        if (body is None or body.is_whole()) and method in headers.IDEMPOTENT and b"upgrade" not in self.head.special:
            connection = self.pool.kept(url)
        if connection is None:
            self._continue_in_task()
            return
        self.connection = connection
        if not self.asked_at:
            self.asked_at = perf_counter()
        head = self.request_head(method, target, url)
        connection.ask(method, head if body is None else head + body.whole(), self._answered, self.answer_timeout)

    @property
    def answer_timeout(self) -> float:
        """Timeout of a broker's answer in seconds."""
        return self.config.timeouts.lookup if self._is_lookup else self.config.timeouts.request

    def request_head(self, method: str, target: str, url: ServiceUrl) -> bytes:
        """The head for the broker."""
        head, body, framing = self.head, self.body, b""
        if body is not None:
            framing = body.field + b"\r\n"
            if b"expect" in head.special and not self.is_continued and not body.size:
                framing += b"Expect: 100-continue\r\n"
        elif b"content-length" in head.special and method == self.method:
            framing = b"Content-Length: 0\r\n"
        if b"upgrade" in head.special and method == "GET" and head.wants_websocket:
            framing += b"\r\n".join((*headers.UPGRADE, b""))
        return headers.forwarded_head(
            f"{method} {target} HTTP/1.1", head, url, self.config, self._trusted, self.client.peer_field,
            self._is_lookup, self._listener, self.shadow, framing,
        )  # fmt: skip

    # Answering.

    def _answered(self) -> None:
        """Called when an answer's head has arrived, or the connection failed."""
        connection = self.connection
        assert connection is not None
        if not connection.complete or connection.status == 101:
            self._continue_in_task()
            return
        self.connection = None
        self.upstream_duration = perf_counter() - self.asked_at
        try:
            redirect = self.answer(connection, self._question[0])
            if redirect is not None:
                self.ask(*self.follow(redirect, connection.status, self._question[0]))
                return
        except UpstreamError as error:
            connection.close()
            self.give_up(error)
        except Exception:
            connection.close()
            self.fault()
        self.finish()

    def _continue_in_task(self) -> None:
        """Continue in a task."""
        self._server.tasks[0] += 1
        connection, self.connection = self.connection, None
        method, target, url, urls = self._question
        self._conversation = Conversation(self, method, target, chain((url,), urls), connection)

    def answer(self, connection: UpstreamConnection, method: str) -> Redirect | None:
        """Answer with a complete answer, or with a redirect, whose body is not needed.

        Returns the redirect instead if it is to be followed.
        """
        status, fields = connection.status, connection.fields
        if connection.location is not None and 300 <= status < 400:
            redirect = self._redirect(connection.location.decode("latin-1"))
            if not self.shadow:
                if redirect.refusal is not None or redirect.broker is not None:
                    self.dismiss(connection)
                    if redirect.refusal is None:
                        return redirect
                    self.refuse(redirect.refusal)
                    return None
                if redirect.action == "rewritten" and redirect.location is not None:
                    fields = [field for field in fields if field is not connection.location_field]
                    fields.append(b"Location: " + redirect.location.encode("latin-1"))
        elif self.needs_check(status):
            if method != "HEAD":
                self.answer_lookup(connection, connection.take())
                return None
            if not self.shadow:
                connection.length = None  # a GET would get a rewritten body (RFC 9110 8.6)
        if method == "HEAD" or status in _NO_BODY:
            if connection.length is not None and status != 204:
                fields.append(b"Content-Length: %d" % connection.length)
            body = b""
        else:
            body = connection.take()
            fields.append(b"Content-Length: %d" % len(body))
        reason = connection.reason
        self.dismiss(connection)
        self.write_head(status, reason, fields, body)
        return None

    def needs_check(self, status: int) -> bool:
        """Whether the body of an answer must be checked before it is passed on."""
        return self._is_lookup and (status == 200 or status == 500) and self._listener is not None

    def answer_lookup(self, connection: UpstreamConnection, body: bytes) -> None:
        """Answer a lookup with its addresses on the listener, or with a refusal."""
        status, reason, fields, refusal = connection.status, connection.reason, connection.fields, None
        if self.shadow:
            with suppress(BadAnswer):
                self._check_answer(connection, body)
        else:
            body, refusal = self._check_answer(connection, body)
            if connection.codings:
                fields = headers.without(fields, _CODING)
        self.dismiss(connection)
        if refusal is not None:
            self.refuse(refusal)
            return
        fields.append(b"Content-Length: %d" % len(body))
        self.write_head(status, reason, fields, body)

    def _check_answer(self, connection: UpstreamConnection, body: bytes) -> tuple[bytes, Refusal | None]:
        """The body to answer with, decoded, or a refusal."""
        assert self._listener is not None
        plain = decode(body, connection.codings, LOOKUP_BODY_LIMIT)
        if connection.status != 200:
            refusal = lacks_listener(connection.status, plain, self._listener)
            if refusal is not None:
                self._miss_reason = refusal.code  # the lookup was a miss after all
            return plain, refusal
        answer = self.decisions.on_listener(plain, self._listener)
        self.broker = answer.broker
        if answer.had_leak and (leak := decide_leak(self.config.leaks, answer.had_leak, answer.has_leak)):
            self._leak, self._leak_action = "body", leak
            if leak == "blocked":
                return plain, leak_refusal(self._listener)
        return plain if self.config.leaks == "observe" else answer.body, None

    def _redirect(self, location: str) -> Redirect:
        """Decide about a redirect and record it."""
        assert self._decided is not None
        can_follow = self.body is None or self.body.replayable
        request, selection = self._decided.request, self._decided.decision.selection
        redirect = decide_redirect(location, request, selection, self.decisions, can_follow)
        to = redirect.location
        if redirect.broker is not None:
            to = f"{dial_url(redirect.broker, self.decisions.snapshot)}{redirect.target}"
            if self._hops is None:
                self._hops = set()
            hop = (redirect.broker.name, redirect.target)
            if refusal := refuse_hop(hop, self._hops, self.config.redirects.max_hops):
                redirect = Redirect("refused", refusal=refusal, unmapped=redirect.unmapped)
        self._redirects += (redirect.action,)
        self._redirect_from, self._redirect_to = location, None if redirect.unmapped else to
        self._unmapped += redirect.unmapped
        if redirect.leak:
            self._leak, self._leak_action = "location", "passed"
        return redirect

    def follow(self, redirect: Redirect, status: int, method: str) -> tuple[str, str, Iterator[ServiceUrl]]:
        """The next request, for a redirect that is followed."""
        assert redirect.broker is not None
        if status == 303:
            method = "GET"
            self._forget_body()  # the client may not have sent all of it
        self.broker = redirect.broker.name
        return method, redirect.target, iter((dial_url(redirect.broker, self.decisions.snapshot),))

    def dismiss(self, connection: UpstreamConnection) -> None:
        """Release a connection: keep it if the answer was complete and all of the request was sent."""
        is_sent = self._conversation is None or self._conversation.stop_sending()
        if connection.complete and is_sent:
            self.pool.give_back(connection)
        else:
            connection.close()

    def write_head(self, status: int, reason: bytes, fields: headers.Fields, body: bytes = b"") -> None:
        """Write the head of an answer, and `body` in the same write."""
        client = self.client
        fields.append(b"X-Request-Id: " + self.id.encode())
        if client.is_draining or not (self._reader is EMPTY_PAYLOAD or self._reader.is_eof()):
            self.keep_alive = False  # the rest of the body will not be read
        if not self.keep_alive:
            fields.append(b"Connection: close")
        self.status = status
        self.response_bytes += len(body)
        client.write(headers.write_head(b"HTTP/1.1 %d %b" % (status, reason), fields) + body)

    def refuse(self, refusal: Refusal, close: bool = False) -> None:
        """Answer with a refusal."""
        if close:
            self.keep_alive = False
        if refusal.detail:
            log.warning("%s %s %s: %s: %s", self.id, self.method, self.kind, refusal.text, refusal.detail)
        reason, fields, body = headers.own_answer(refusal.status, refusal.code, refusal.text)
        if refusal.retry_after:
            fields.append(b"Retry-After: %d" % refusal.retry_after)
        self.write_head(refusal.status, reason, fields, body if self.method != "HEAD" else b"")

    def give_up(self, error: UpstreamError) -> None:
        """Answer that no broker answered, and why."""
        if isinstance(error, BodyBroken):
            self.refuse(Refusal(400, error.code, str(error)), close=True)
            return
        self.upstream_errors += (error.code,)
        self.refuse(Refusal(504 if error.code == "broker-timeout" else 502, error.code, error.text, str(error)))

    def fault(self) -> None:
        """Log an unexpected exception, and answer 500 if nothing was sent yet."""
        log.exception("%s %s failed", self.id, self.method)
        if self.status:  # part of an answer was sent
            self.break_off(gently=False)
        else:
            text = "this is a fault of the proxy; its log says more"
            self.refuse(Refusal(500, "internal-error", text), close=True)
        self.status = 500

    def break_off(self, gently: bool) -> None:
        """Close the connection inside the answer."""
        self.keep_alive = False
        self.client.break_off(gently)

    def abandon(self) -> None:
        """The client disconnected."""
        if self._conversation is not None:
            self._conversation.cancel()
        else:
            self.finish()

    # Recording.

    def finish(self) -> None:
        """Count and record the request, and let the next one begin."""
        self._server.in_flight[0] -= 1
        duration = perf_counter() - self._started
        self.status = self.status or _CLIENT_LEFT
        if self.body is not None:
            self._forget_body()
        if self.connection is not None:
            self.connection.forget()
        recorder, names, redirect, client = self._context.recorder, "", event_lines.NO_REDIRECT, ""
        if recorder.makes_lines:
            names = event_lines.NO_NAMES if self._decided is None else event_lines.names(*names_in(self._path))
            client = event_lines.client(self._client_address(), self.head.user_agent)
            if self._redirects:
                redirect = event_lines.redirect(self._redirect_from, self._redirect_to)
        recorder.add(
            self._outcome(), self.id, self._time, names, redirect, duration, self.upstream_duration,
            self._request_bytes, self.response_bytes, client,
        )  # fmt: skip
        if self._span is not None:
            self._span.end(self._record())
        self._conversation = None  # a reference cycle, which would stay until a full garbage collection
        self.client.request_ended(self.keep_alive)

    def _outcome(self) -> Outcome:
        """The parts of its record shared with all requests that ended in the same way; cached."""
        question = (
            self._decided or self._server.bind.address, self.method, self.status, self._miss_reason, self.broker,
            self._redirects, self._unmapped, self._leak, self._leak_action, self.upstream_errors,
            self.upstream_duration is None,
        )  # fmt: skip
        found = self.decisions.get(question)
        if isinstance(found, Outcome):
            return found
        outcome = Outcome(self._record(), self._context.metrics)
        return self.decisions.keep(question, outcome, sum(map(len, outcome.words)))

    @property
    def kind(self) -> str:
        return self._decided.request.target.kind if self._decided is not None else "other"

    def _client_address(self) -> Address | None:
        """The client's address: the one that trusted proxies report, else the peer's."""
        if self._trusted and (forwarded_for := self.head.special.get(b"x-forwarded-for")):
            reported = forwarded_client(forwarded_for, self.decisions.trusted_proxies)
            if reported is not None:
                return reported
        return self.client.address

    def _record(self) -> AccessRecord:
        decided = self._decided
        return AccessRecord(
            id=self.id,
            generation=self.decisions.snapshot.generation,
            method=self.method,
            bind=self._server.bind.address,
            target=decided.request.target if decided is not None else OTHER,
            request=decided.request if decided is not None else None,
            selection=decided.decision.selection if decided is not None else None,
            listener=decided.decision.label if decided is not None else "",
            miss_reason=self._miss_reason,
            status=self.status,
            broker=self.broker,
            redirects=list(self._redirects),
            unmapped=self._unmapped,
            leak=self._leak,
            leak_action=self._leak_action,
            upstream_errors=list(self.upstream_errors),
            upstream_duration=self.upstream_duration,
        )

    def _forget_body(self) -> None:
        """Release the body."""
        if self.body is not None:
            self._request_bytes = self.body.size
            self.body.drop()
            self.body = None
