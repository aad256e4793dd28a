"""The lookups of one connection: each is decided, forwarded to the broker, and answered.

Methods return the bytes for the broker or the client, and the session writes them at a frame boundary. Only answers
that come later, such as another broker's, are sent with `send`.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from time import perf_counter, time

from pulsar_ingress_proxy.binary import answers, commands, lookups
from pulsar_ingress_proxy.binary.broker_connection import NeedsChallenge, ask
from pulsar_ingress_proxy.binary.client import ClientContext
from pulsar_ingress_proxy.binary.commands_pb2 import Command, LookupResponse
from pulsar_ingress_proxy.binary.endpoints import LOOKUP, decide
from pulsar_ingress_proxy.binary.fast_path import BODY, BRIEF, URL_TLS, FastLookup, FastPath, LookupTemplate, encode_id
from pulsar_ingress_proxy.binary.frames import Frame, write
from pulsar_ingress_proxy.memory import HEAD, REQUEST
from pulsar_ingress_proxy.net.context import ServerContext
from pulsar_ingress_proxy.net.errors import ClosedEarly, TimedOut, UpstreamError
from pulsar_ingress_proxy.observability import event_lines
from pulsar_ingress_proxy.observability.access_record import AccessRecord
from pulsar_ingress_proxy.routing.answers import lacks_listener
from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.decisions import DecidedRequest, dial_url
from pulsar_ingress_proxy.routing.redirects import RedirectDecision, refuse_hop
from pulsar_ingress_proxy.routing.selection import OVERLOADED, Refusal, Selection
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.listeners import BINARY_SCHEMES

_CLIENT_LEFT = 499
_TICK = 0.001

log = logging.getLogger("proxy.binary")

Hops = set[tuple[str, object]]
"""The followed redirects of a lookup: the broker, and whether `authoritative` was set."""


@dataclass(slots=True)
class Pending:
    """A lookup that awaits its answer."""

    record: AccessRecord
    decisions: DecisionCache
    decided: DecidedRequest
    command: Command
    """The command as sent to the broker."""
    started: float
    template: LookupTemplate | None = None
    """The template that its answer is cached for."""
    following: asyncio.Task[None] | None = None
    charged: int = 0
    """Bytes charged to the shared budget."""

    @property
    def request_id(self) -> int:
        return self.command.lookup.request_id

    @property
    def snapshot(self) -> Snapshot:
        return self.decisions.snapshot

    @property
    def selection(self) -> Selection:
        return self.decided.decision.selection


@dataclass(slots=True, eq=False)
class PendingLookups:
    """The unanswered lookups of a connection; also rewrites addresses that brokers push."""

    _context: ServerContext
    _client: ClientContext
    _send: Callable[[bytes], None]
    _start: Callable[[Coroutine[None, None, None]], asyncio.Task[None]]
    """Starts a task that ends with the connection."""
    _fast_path: FastPath
    _in_flight: list[float]
    """The gauge of lookups in flight, of all connections."""
    _open: dict[bytes, FastLookup | Pending] = field(default_factory=dict)
    """Lookups in flight, on the fast or the slow path, by the bytes of their ids."""
    _watch: asyncio.TimerHandle | None = None
    _named: str | None = None
    """The listener that the client named in its last lookup."""
    _client_line: str = ""
    """The client's part of an event line."""
    is_closing: bool = False
    """While draining, all lookups take the slow path, which checks whether the session is idle."""

    @property
    def are_open(self) -> bool:
        return bool(self._open)

    def end(self) -> None:
        """The client disconnected."""
        if self._watch is not None:
            self._watch.cancel()
        for pending in self._all():
            self._finish(pending, _CLIENT_LEFT)

    def fail(self) -> None:
        """The broker disconnected. Lookups that follow a redirect await another broker, and end with the client."""
        for pending in self._all():
            if pending.following is None:
                pending.record.upstream_errors.append(ClosedEarly.code)
                self._finish(pending, 502)

    # The slow path.

    def ask(self, frame: Frame) -> bytes | None:
        """Decide about a lookup. Returns the frame for the broker, or None if it is answered already."""
        decisions, started = self._context.decisions, perf_counter()
        snapshot = decisions.snapshot
        command = frame.command()
        lookup = command.lookup
        decided = lookups.decide(lookup, self._client.endpoint, decisions)
        decision = decided.decision
        record = self._record(command, len(frame.raw), decided, snapshot)
        pending = Pending(record, decisions, decided, command, started)
        self._begin(encode_id(lookup.request_id), pending)
        size = REQUEST + HEAD * len(frame.raw)
        is_excess = self._in_flight[0] > snapshot.config.limits.in_flight or not self._context.buffers.take(size)
        if is_excess:
            record.miss_reason = OVERLOADED.code
        else:
            pending.charged = size
        refusal = OVERLOADED if is_excess else decision.refusal if not decision.selection.shadow else None
        if refusal is not None:
            self._send(self._refused(pending, refusal))
            return None
        changed = lookups.prepare(lookup, decision.selection, snapshot)
        self._named = decision.selection.client_named
        self._start_timeout(snapshot)
        made = frame.with_command(command) if changed or not frame.is_plain else frame.raw
        if frame.is_plain and not decision.selection.shadow:
            pending.template = self._client.fast_path().learn_lookup(frame.raw, made, decided)
        return made

    def _record(self, command: Command, size: int, decided: DecidedRequest, snapshot: Snapshot) -> AccessRecord:
        record = self._client.record(decided, snapshot)
        record.target, record.request_bytes = lookups.about(command.lookup.topic), size
        record.miss_reason = decided.decision.miss_reason
        return record

    def answer(self, frame: Frame) -> bytes | None:
        """Process a broker's answer. Returns the frame for the client, or None if the answer comes later."""
        command = frame.command()
        response = command.lookup_response
        number = encode_id(response.request_id)
        pending = self._pending(number) if number in self._open else None
        if pending is None or pending.following is not None:  # not the answer to a lookup in flight
            return self.push(frame)
        pending.record.upstream_duration = perf_counter() - pending.started
        if _is_redirect(response):
            return self._redirected(pending, command, frame)
        return self._final(pending, command, frame)

    def _final(self, pending: Pending, command: Command, frame: Frame | None) -> bytes:
        """The frame for the client for an answer that is not a redirect; `frame` is None if another broker answered."""
        response, selection, record = command.lookup_response, pending.selection, pending.record
        status, changed = 200, frame is None
        if response.response == commands.FAILED:
            status = commands.status_of(response.error)
            refusal = lacks_listener(500, response.message, selection.listener)
            if refusal is not None:
                record.miss_reason = refusal.code
                if not pending.selection.shadow:
                    return self._refused(pending, refusal)
        elif selection.listener is not None:
            decided = answers.decide_found(response, selection, pending.decisions)
            record.broker = decided.broker
            if decided.leak is not None:
                record.leaked("binary", decided.leak)
            if decided.refusal is not None:
                return self._refused(pending, decided.refusal)
            changed |= decided.changed
        data = write(command) if frame is None else frame.with_command(command) if changed else frame.raw
        self._finish(pending, status, len(data))
        is_usual = response.response == commands.FOUND and record.leak is None and not record.redirects
        if pending.template is not None and is_usual and frame is not None and frame.is_plain:
            self._client.server.fast_paths.learn_answer(pending.template, frame.raw, data, record)
        return data

    def push(self, frame: Frame) -> bytes | None:
        """Rewrite addresses that answer no lookup in flight. Returns the frame for the client, or None to drop it."""
        decisions, endpoint = self._context.decisions, self._client.endpoint
        selection = decide(endpoint, decisions, LOOKUP, self._named).decision.selection
        if selection.listener is None:
            selection = decide(endpoint, decisions).decision.selection
        if selection.listener is None:
            return frame.raw
        command = frame.command()
        decided = answers.decide_pushed(command, selection, self._client.server.bind.scheme, decisions)
        if decided.leak is not None:
            record = self._client.other_record(decisions, 200 if decided.refusal is None else decided.refusal.status)
            record.selection = selection
            record.listener = decisions.snapshot.listener_label(selection.listener)
            record.broker = decided.broker
            record.leaked("binary", decided.leak)
            self._context.recorder.record(record)
        if decided.refusal is not None:
            refusal = decided.refusal
            log.warning("dropped a command of type %d: %s: %s", frame.type, refusal.text, refusal.detail)
            return None
        return frame.with_command(command) if decided.changed else frame.raw

    # The fast path.

    def ask_fast(self, data: bytes) -> bytes | None:
        """The frame for the broker, made from a cached lookup; None: take the slow path."""
        path = self._fast_path
        if path.decisions is not self._context.decisions:
            path = self._fast_path = self._client.fast_path()
        try:
            at = BODY if len(data) < BRIEF else BODY + 1
            length = data[at + 1]
            if length > 127:
                length += (data[at + 2] << 7) - 127
            first = last = at + 3 + length
            while data[last] > 127:
                last += 1
        except IndexError:
            return None
        last += 1
        topic = path.topics.get(data[:first])
        if topic is None or topic.end != last or topic.template.received_tail != data[last:]:
            topic = path.learn_topic(data)
        number = data[first:last]
        if topic is None or self._in_flight[0] >= path.most or self.is_closing:
            return None
        if not data[last - 1] and last - first > 1:  # not a canonical varint
            return None
        self._begin(number, (topic, data, perf_counter()))
        template = topic.template
        self._named = template.named
        if self._watch is None:
            self._start_timeout(template.decisions.snapshot)
        return topic.start + number + template.tail

    def answer_fast(self, data: bytes) -> bytes | None:
        """The frame for the client, made from a cached answer; None: take the slow path."""
        try:
            at = BODY if len(data) < BRIEF else BODY + 1
            first = at + 5 + data[at + 1]
            if data[first - 3] == URL_TLS:
                first += 2 + data[first - 2]
            last = first
            while data[last] > 127:
                last += 1
        except IndexError:
            return None
        last += 1
        number = data[first:last]
        lookup = self._open.get(number)
        if lookup.__class__ is not tuple or self.is_closing:
            return None
        topic, sent, started = lookup
        answer = topic.template.answers.get(data[:first])
        if answer is None or answer.end != last or answer.said != data[last:]:
            return None
        self._end(number)
        if not self._client_line:
            self._client_line = event_lines.client(self._client.peer, self._client.user_agent)
        duration = perf_counter() - started
        made, recorder = answer.start + number + answer.rest, self._context.recorder
        recorder.add(
            answer, recorder.new_id(), time() - duration, topic.names, event_lines.NO_REDIRECT, duration, duration,
            len(sent), len(made), self._client_line,
        )  # fmt: skip
        return made

    def _to_slow_path(self, number: bytes, lookup: FastLookup) -> Pending:
        topic, data, started = lookup
        template = topic.template
        command = Frame(commands.LOOKUP, data).command()
        decisions = template.decisions
        record = self._record(command, len(data), template.decided, decisions.snapshot)
        record.time -= perf_counter() - started
        lookups.prepare(command.lookup, template.decided.decision.selection, decisions.snapshot)
        pending = self._open[number] = Pending(record, decisions, template.decided, command, started, template)
        return pending

    # Lookups of both paths begin and end here.

    def _begin(self, number: bytes, lookup: FastLookup | Pending) -> None:
        """Put a lookup in flight. An earlier one with the same id is abandoned.

        Clients must not reuse an id before it is answered. Brokers answer both lookups (ServerCnx.handleLookup does not
        compare ids), and clients keep only the later one (ClientCnx.pendingRequests). Refusing the later one would
        change the traffic under `shadow`.
        """
        if number in self._open:
            self._finish(self._pending(number), _CLIENT_LEFT)
        self._open[number] = lookup
        self._in_flight[0] += 1

    def _end(self, number: bytes) -> None:
        """Remove a lookup; the caller records it."""
        del self._open[number]
        self._in_flight[0] -= 1

    def _pending(self, number: bytes) -> Pending:
        """The lookup in flight with this id, moved to the slow path."""
        lookup = self._open[number]
        return lookup if isinstance(lookup, Pending) else self._to_slow_path(number, lookup)

    def _all(self) -> list[Pending]:
        return [self._pending(number) for number in list(self._open)]

    def _start_timeout(self, snapshot: Snapshot) -> None:
        """Start the timeout of lookups, unless it runs."""
        if self._watch is None:
            self._watch = asyncio.get_running_loop().call_later(snapshot.config.timeouts.lookup, self._expire)

    def _expire(self) -> None:
        within, now = self._context.decisions.config.timeouts.lookup, perf_counter()
        self._watch = None
        for number, lookup in list(self._open.items()):
            if _started(lookup) + within <= now + _TICK:
                error = TimedOut(f"the broker gave no answer within {within:g} s")
                self._send(self._failed(self._pending(number), error))
        if self._open:
            oldest = min(map(_started, self._open.values()))
            self._watch = asyncio.get_running_loop().call_later(max(oldest + within - now, _TICK), self._expire)

    # Redirects.

    def _redirected(self, pending: Pending, command: Command, frame: Frame) -> bytes | None:
        """Rewrite or follow a redirect. Returns the frame for the client, or None if the answer comes later."""
        response, record = command.lookup_response, pending.record
        if pending.selection.listener is None:
            record.redirects.append("passed")
            record.redirect_from = record.redirect_to = _shown(response)
            self._finish(pending, 307, len(frame.raw))
            return frame.raw
        who = self._client.connect_info
        hops: Hops = set()
        redirect = self._decide_redirect(pending, response, who is not None and who.can_repeat, hops)
        if redirect.action == "followed" and not pending.selection.shadow:
            pending.following = self._start(self._follow(pending, response, redirect, hops))
            return None
        return self._redirect(pending, redirect, command, frame.raw)

    def _redirect(self, pending: Pending, redirect: RedirectDecision, command: Command, raw: bytes) -> bytes:
        """The frame for the client: the redirect, or a refusal."""
        response, record, snapshot = command.lookup_response, pending.record, pending.snapshot
        data = raw
        if not pending.selection.shadow:
            if redirect.refusal is not None:
                return self._refused(pending, redirect.refusal)
            is_put = redirect.action in ("kept", "rewritten")
            if is_put and answers.put_redirect(response, pending.selection, snapshot):
                data = write(command)
            if not redirect.unmapped:
                record.redirect_to = _shown(response)
        self._finish(pending, 307, len(data))
        return data

    def _decide_redirect(
        self, pending: Pending, response: LookupResponse, can_follow: bool, hops: Hops
    ) -> RedirectDecision:
        """Decide about one redirect and record it; `hops` are the redirects followed before."""
        record, snapshot = pending.record, pending.snapshot
        scheme = self._client.server.bind.scheme
        redirect, named = answers.decide_redirect(response, pending.selection, scheme, pending.decisions, can_follow)
        record.redirect_from, record.redirect_to = named, None
        if redirect.broker is not None and not redirect.unmapped:
            record.redirect_to = str(dial_url(redirect.broker, snapshot, BINARY_SCHEMES))
        if redirect.action == "followed" and redirect.broker is not None:
            hop = (redirect.broker.name, response.authoritative)
            refusal = refuse_hop(hop, hops, snapshot.config.redirects.max_hops)
            if refusal is not None:
                redirect = RedirectDecision("refused", refusal=refusal, unmapped=redirect.unmapped)
        record.redirects.append(redirect.action)
        record.unmapped += redirect.unmapped
        if redirect.leak:
            record.leaked("binary", "passed")
        return redirect

    async def _follow(self, pending: Pending, response: LookupResponse, redirect: RedirectDecision, hops: Hops) -> None:
        who, record, config = self._client.connect_info, pending.record, pending.snapshot.config
        assert who is not None
        lookup = Command()
        lookup.CopyFrom(pending.command)
        try:
            while redirect.action == "followed":
                assert redirect.broker is not None
                record.broker = redirect.broker.name
                lookup.lookup.authoritative = response.authoritative
                url = dial_url(redirect.broker, pending.snapshot, BINARY_SCHEMES)
                answer = await ask(url, who.connect, lookup, self._context.brokers, config.timeouts.lookup)
                record.upstream_duration = perf_counter() - pending.started
                response = answer.lookup_response
                response.request_id = pending.request_id
                if not _is_redirect(response):
                    self._send(self._final(pending, answer, None))
                    return
                redirect = self._decide_redirect(pending, response, True, hops)
            self._send(self._redirect(pending, redirect, answer, write(answer)))
        except NeedsChallenge:
            who.can_repeat = False
            record.redirects.pop()
            command = Command(type=commands.LOOKUP_RESPONSE, lookup_response=response)
            redirect = self._decide_redirect(pending, response, False, hops)
            self._send(self._redirect(pending, redirect, command, write(command)))
        except UpstreamError as error:
            self._send(self._failed(pending, error))

    # Ending a lookup.

    def _finish(self, pending: Pending, status: int, size: int = 0) -> None:
        """Remove and record a lookup, and stop following its redirects."""
        self._end(encode_id(pending.request_id))
        if pending.following is not None and pending.following is not asyncio.current_task():
            pending.following.cancel()
        self._context.buffers.give_back(pending.charged)
        record = pending.record
        record.status, record.response_bytes = status, size
        record.duration = perf_counter() - pending.started
        self._context.recorder.record(record)

    def _refused(self, pending: Pending, refusal: Refusal) -> bytes:
        """End a lookup with a refusal; returns the frame for the client."""
        data = commands.lookup_failed(pending.request_id, refusal)
        if refusal.detail:
            log.warning("%s lookup: %s: %s", pending.record.id, refusal.text, refusal.detail)
        self._finish(pending, refusal.status, len(data))
        return data

    def _failed(self, pending: Pending, error: UpstreamError) -> bytes:
        """End a lookup that no broker answered; returns the frame for the client."""
        log.warning("%s lookup: %s", pending.record.id, error)
        pending.record.upstream_errors.append(error.code)
        return self._refused(pending, Refusal(504 if isinstance(error, TimedOut) else 502, error.code, error.text))


def _started(lookup: FastLookup | Pending) -> float:
    return lookup.started if isinstance(lookup, Pending) else lookup[2]


def _is_redirect(response: LookupResponse) -> bool:
    return response.response == commands.REDIRECT and response.HasField("response")


def _shown(response: LookupResponse) -> str:
    return (response.url or response.url_tls).decode("utf-8", "replace")
