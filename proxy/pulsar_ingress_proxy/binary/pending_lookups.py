"""The lookups of one connection: each is decided, asked of the broker, waited for, and answered.

What goes to the broker and what to the client is given back; whoever carries it knows where in a stream it may stand.
Only what comes later, as the answer of another broker, is handed to `say`.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from time import perf_counter, time

from pulsar_ingress_proxy.binary import answers, commands, lookups
from pulsar_ingress_proxy.binary.client import ClientContext
from pulsar_ingress_proxy.binary.commands_pb2 import Command, LookupResponse
from pulsar_ingress_proxy.binary.endpoints import default_selection, lookup_selection
from pulsar_ingress_proxy.binary.frames import Frame, write
from pulsar_ingress_proxy.binary.lane import BODY, BRIEF, URL_TLS, Alike, Run, number_of
from pulsar_ingress_proxy.binary.redirects import CannotRepeat, ask
from pulsar_ingress_proxy.memory import HEAD, REQUEST
from pulsar_ingress_proxy.net.context import ServerContext
from pulsar_ingress_proxy.net.errors import ClosedEarly, TimedOut, UpstreamError
from pulsar_ingress_proxy.observability import event_lines
from pulsar_ingress_proxy.observability.access_record import AccessRecord
from pulsar_ingress_proxy.observability.outcome import Outcome
from pulsar_ingress_proxy.routing.answers import lacks_listener
from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.decisions import DecidedRequest, dial_url
from pulsar_ingress_proxy.routing.redirects import RedirectDecision, refuse_hop
from pulsar_ingress_proxy.routing.selection import OVERLOADED, Refusal, Selection
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.listeners import BINARY_SCHEMES, BindAddress

_CLIENT_LEFT = 499
_TICK = 0.001

log = logging.getLogger("proxy.binary")

Hops = set[tuple[str, object]]
"""The redirects of a lookup that were followed: whom they named, and whether with authority."""


@dataclass(slots=True)
class Pending:
    """A lookup that waits for its answer."""

    record: AccessRecord
    decisions: DecisionCache
    decided: DecidedRequest
    command: Command
    """As the broker got it."""
    started: float
    alike: Alike | None = None
    """Those that may be answered as this one is."""
    following: asyncio.Task[None] | None = None
    """Asks the brokers that redirects name."""
    charged: int = 0
    """Bytes that it holds of the budget of all connections."""

    @property
    def request_id(self) -> int:
        return self.command.lookup.request_id

    @property
    def snapshot(self) -> Snapshot:
        return self.decisions.snapshot

    @property
    def selection(self) -> Selection:
        return self.decided.decision.selection


class PendingLookups:
    """All that were asked and are not answered, and what is told without being asked."""

    __slots__ = (
        "_client",
        "_context",
        "_in_flight",
        "_known",
        "_lane",
        "_loop",
        "_named",
        "_open",
        "_say",
        "_start",
        "_track",
        "_watch",
        "_whose",
        "is_closing",
    )  # fmt: skip

    def __init__(
        self,
        context: ServerContext,
        client: ClientContext,
        say: Callable[[bytes], None],
        start: Callable[[Coroutine[None, None, None]], asyncio.Task[None]],
    ) -> None:
        self._context = context
        self._client = client
        self._say = say
        self._start = start
        """Runs something that ends with the client."""
        self._loop = asyncio.get_running_loop()
        self._open: dict[bytes, Run | Pending] = {}
        """Lookups in flight, on the short way or the long one, by the bytes of their ids."""
        self._lane, self._track = client.server.lane, client.track()
        self._in_flight = self._lane.in_flight
        self._watch: asyncio.TimerHandle | None = None
        self._named: str | None = None
        """The listener that the client named in its last lookup."""
        self._known: tuple[DecisionCache, BindAddress, bytes, DecidedRequest] | None = None
        """The last decision, and what it was made by."""
        self._whose = ""
        """What events say of the client."""
        self.is_closing = False
        """When all go the long way, which looks at what is left."""

    @property
    def are_open(self) -> bool:
        """Whether some are not answered yet."""
        return bool(self._open)

    def end(self) -> None:
        """The client is gone."""
        if self._watch is not None:
            self._watch.cancel()
        for pending in self._all():
            self._finish(pending, _CLIENT_LEFT)

    def fail(self) -> None:
        """The broker is gone, and with it the answers; those that another was asked for end with the client."""
        for pending in self._all():
            if pending.following is None:
                pending.record.upstream_errors.append(ClosedEarly.code)
                self._finish(pending, 502)

    # The long way.

    def ask(self, frame: Frame) -> bytes | None:
        """Judge a lookup; what the broker gets of it, or None, where it is answered already."""
        decisions, started = self._context.decisions, perf_counter()
        snapshot = decisions.snapshot
        command = frame.command()
        lookup = command.lookup
        decided = self._decide(command, decisions)
        decision = decided.decision
        record = self._record(command, len(frame.raw), decided, snapshot)
        pending = Pending(record, decisions, decided, command, started)
        self._begin(number_of(lookup.request_id), pending)
        size = REQUEST + HEAD * len(frame.raw)
        is_excess = self._in_flight[0] > snapshot.config.limits.in_flight or not self._context.buffers.take(size)
        if is_excess:
            record.miss_reason = OVERLOADED.code
        else:
            pending.charged = size
        refusal = OVERLOADED if is_excess else decision.refusal if not snapshot.config.shadow else None
        if refusal is not None:
            self._say(self._refused(pending, refusal))
            return None
        changed = lookups.prepare(lookup, decision.selection, snapshot)
        self._named = decision.selection.client_named
        self._watch_over(snapshot)
        made = frame.with_command(command) if changed or not frame.is_plain else frame.raw
        if frame.is_plain and not snapshot.config.shadow:
            pending.alike = self._client.track().learn_lookup(frame.raw, made, decided)
        return made

    def _decide(self, command: Command, decisions: DecisionCache) -> DecidedRequest:
        """A client asks in the same way each time, so the last decision mostly holds."""
        bind, name, known = self._client.server.bind, command.lookup.advertised_listener_name, self._known
        if known is not None and known[0] is decisions and known[1] is bind and known[2] == name:
            return known[3]
        made = lookups.decide(command.lookup, self._client.endpoint, decisions)
        self._known = (decisions, bind, name, made)
        return made

    def _record(self, command: Command, size: int, decided: DecidedRequest, snapshot: Snapshot) -> AccessRecord:
        record, decision = self._client.record(snapshot), decided.decision
        record.target, record.request = lookups.about(command.lookup.topic), decided.request
        record.selection, record.listener = decision.selection, decision.label
        record.miss_reason, record.request_bytes = decision.miss_reason, size
        return record

    def answer(self, frame: Frame) -> bytes | None:
        """What the client gets of a broker's answer; None where it has to wait for it."""
        command = frame.command()
        response = command.lookup_response
        number = number_of(response.request_id)
        pending = self._pending(number) if number in self._open else None
        if pending is None or pending.following is not None:  # a broker that was asked once answers once
            return self.tell(frame)
        pending.record.upstream_duration = perf_counter() - pending.started
        if _is_redirect(response):
            return self._redirected(pending, command, frame)
        return self._final(pending, command, frame)

    def _final(self, pending: Pending, command: Command, frame: Frame | None) -> bytes:
        """An answer that is no redirect; `frame` is how it came, if it came on this connection."""
        response, selection, record = command.lookup_response, pending.selection, pending.record
        status, changed = 200, frame is None
        if response.response == commands.FAILED:
            status = commands.status_of(response.error)
            refusal = lacks_listener(500, response.message, selection.listener)
            if refusal is not None:
                record.miss_reason = refusal.code
                if not pending.snapshot.config.shadow:
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
        if pending.alike is not None and is_usual and frame is not None and frame.is_plain:
            self._lane.learn_answer(pending.alike, frame.raw, data, record)
        return data

    def tell(self, frame: Frame) -> bytes | None:
        """What the client gets of addresses that it has not asked for, or not any more; None: nothing."""
        decisions, endpoint = self._context.decisions, self._client.endpoint
        selection = lookup_selection(endpoint, self._named, decisions).selection
        if selection.listener is None:
            selection = default_selection(endpoint, decisions).selection
        if selection.listener is None:
            return frame.raw
        command = frame.command()
        decided = answers.decide_pushed(command, selection, decisions)
        if decided.leak is not None:
            record = self._client.other_record(decisions, 200 if decided.refusal is None else decided.refusal.status)
            record.selection = selection
            record.listener = decisions.snapshot.listener_label(selection.listener)
            record.broker = decided.broker
            record.leaked("binary", decided.leak)
            self._context.recorder.record(record)
        if decided.refusal is not None:
            refusal = decided.refusal
            log.warning("a command of type %d is kept back: %s: %s", frame.type, refusal.text, refusal.detail)
            return None
        return frame.with_command(command) if decided.changed else frame.raw

    # The short way.

    def ask_alike(self, data: bytes) -> bytes | None:
        """What the broker gets of a lookup that is like one before; None where it has to go the long way."""
        track = self._track
        if track.decisions is not self._context.decisions:
            track = self._track = self._client.track()
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
        asked = track.asked.get(data[:first])
        if asked is None or asked.end != last or asked.alike.said != data[last:]:
            asked = track.learn_topic(data)
        number = data[first:last]
        if asked is None or self._in_flight[0] >= track.most or self.is_closing:
            return None
        if not data[last - 1] and last - first > 1:  # not as encoders write it
            return None
        self._begin(number, (asked, data, perf_counter()))
        alike = asked.alike
        self._named = alike.named
        if self._watch is None:
            self._watch_over(alike.decisions.snapshot)
        return asked.start + number + alike.tail

    def answer_alike(self, data: bytes) -> bytes | None:
        """What the client gets of an answer that is like one before; None where it has to go the long way."""
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
        run = self._open.get(number)
        if run.__class__ is not tuple or self.is_closing:
            return None
        asked, sent, started = run
        answer = asked.alike.answers.get(data[:first])
        if answer is None or answer.end != last or answer.said != data[last:]:
            return None
        self._end(number)
        duration, whose = perf_counter() - started, self._whose or self._say_whose()
        made, recorder = answer.start + number + answer.rest, self._context.recorder
        recorder.add(
            answer, recorder.new_id(), time() - duration, asked.names, event_lines.NO_REDIRECT, duration, duration,
            len(sent), len(made), whose,
        )  # fmt: skip
        return made

    def _say_whose(self) -> str:
        self._whose = event_lines.client(self._client.peer, self._client.user_agent)
        return self._whose

    def _take_back(self, number: bytes, run: Run) -> Pending:
        """Go on the long way with a lookup that began on the short one."""
        asked, data, started = run
        alike = asked.alike
        command = Frame(commands.LOOKUP, data).command()
        decisions = alike.decisions
        record = self._record(command, len(data), alike.decided, decisions.snapshot)
        record.time -= perf_counter() - started
        lookups.prepare(command.lookup, alike.decided.decision.selection, decisions.snapshot)
        pending = self._open[number] = Pending(record, decisions, alike.decided, command, started, alike)
        return pending

    # In flight. Lookups begin and end here alone, on the short way and on the long one.

    def _begin(self, number: bytes, lookup: Run | Pending) -> None:
        """Put a lookup in flight. An earlier one with the same id is abandoned.

        Clients must not use an id again before it is answered. A broker answers both (ServerCnx.handleLookup compares
        no ids), and a client has only the later one in its table (ClientCnx.pendingRequests): the earlier one has no
        taker. Refusing the later one instead would change what passes under `shadow`.
        """
        if number in self._open:
            self._finish(self._pending(number), _CLIENT_LEFT)
        self._open[number] = lookup
        self._in_flight[0] += 1

    def _end(self, number: bytes) -> None:
        """The caller records it."""
        del self._open[number]
        self._in_flight[0] -= 1

    def _pending(self, number: bytes) -> Pending:
        """The lookup in flight with this id, which goes the long way from now on."""
        lookup = self._open[number]
        return lookup if isinstance(lookup, Pending) else self._take_back(number, lookup)

    def _all(self) -> list[Pending]:
        return [self._pending(number) for number in list(self._open)]

    def _watch_over(self, snapshot: Snapshot) -> None:
        """See to it that no lookup waits for ever."""
        if self._watch is None:
            self._watch = self._loop.call_later(snapshot.config.timeouts.lookup, self._expire)

    def _expire(self) -> None:
        """Give up on lookups that no broker has answered."""
        within, now = self._context.decisions.config.timeouts.lookup, perf_counter()
        self._watch = None
        for number, lookup in list(self._open.items()):
            if _started(lookup) + within <= now + _TICK:
                error = TimedOut(f"the broker gave no answer within {within:g} s")
                self._say(self._given_up(self._pending(number), error))
        if self._open:
            oldest = min(map(_started, self._open.values()))
            self._watch = self._loop.call_later(max(oldest + within - now, _TICK), self._expire)

    # Redirects.

    def _redirected(self, pending: Pending, command: Command, frame: Frame) -> bytes | None:
        """Rewrite a redirect, or follow it; None where the answer comes later."""
        response, record = command.lookup_response, pending.record
        if pending.selection.listener is None:
            record.redirects.append("passed")
            record.redirect_from = record.redirect_to = _shown(response)
            self._finish(pending, 307, len(frame.raw))
            return frame.raw
        who = self._client.connect_info
        hops: Hops = set()
        redirect = self._decide_redirect(pending, response, who is not None and who.can_repeat, hops)
        if redirect.action == "followed" and not pending.snapshot.config.shadow:
            pending.following = self._start(self._follow(pending, response, redirect, hops))
            return None
        return self._redirect(pending, redirect, command, frame.raw)

    def _redirect(self, pending: Pending, redirect: RedirectDecision, command: Command, raw: bytes) -> bytes:
        """A redirect that the client gets, or its refusal."""
        response, record, snapshot = command.lookup_response, pending.record, pending.snapshot
        data = raw
        if not snapshot.config.shadow:
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
        """Decide about one redirect, and record it; `hops` are those that were followed to it."""
        record, snapshot = pending.record, pending.snapshot
        scheme = self._client.server.bind.scheme
        redirect, named = answers.decide_redirect(response, pending.selection, scheme, pending.decisions, can_follow)
        to = (
            str(dial_url(redirect.broker, snapshot, BINARY_SCHEMES))
            if redirect.broker and not redirect.unmapped
            else None
        )
        if redirect.action == "followed" and redirect.broker is not None:
            hop = (redirect.broker.name, response.authoritative)
            refusal = refuse_hop(hop, hops, snapshot.config.redirects.max_hops)
            if refusal is not None:
                redirect = RedirectDecision("refused", refusal=refusal, unmapped=redirect.unmapped)
        record.redirects.append(redirect.action)
        record.redirect_from = named
        record.redirect_to = to
        record.unmapped += redirect.unmapped
        if redirect.leak:
            record.leaked("binary", "passed")
        return redirect

    async def _follow(self, pending: Pending, response: LookupResponse, redirect: RedirectDecision, hops: Hops) -> None:
        """Ask the broker that a redirect names, and the next, until one answers with something else."""
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
                answer = await ask(url, who, lookup, self._context.brokers, config.timeouts.lookup)
                record.upstream_duration = perf_counter() - pending.started
                response = answer.lookup_response
                response.request_id = pending.request_id
                if not _is_redirect(response):
                    self._say(self._final(pending, answer, None))
                    return
                redirect = self._decide_redirect(pending, response, True, hops)
            self._say(self._redirect(pending, redirect, answer, write(answer)))
        except CannotRepeat:
            who.can_repeat = False
            record.redirects.pop()
            command = Command(type=commands.LOOKUP_RESPONSE, lookup_response=response)
            redirect = self._decide_redirect(pending, response, False, hops)
            self._say(self._redirect(pending, redirect, command, write(command)))
        except UpstreamError as error:
            self._say(self._given_up(pending, error))

    # Ends.

    def _finish(self, pending: Pending, status: int, size: int = 0) -> None:
        """A lookup is over, and so is following its redirects."""
        self._end(number_of(pending.request_id))
        if pending.following is not None and pending.following is not asyncio.current_task():
            pending.following.cancel()
        self._context.buffers.give_back(pending.charged)
        record = pending.record
        record.status, record.response_bytes = status, size
        record.duration = perf_counter() - pending.started
        self._context.recorder.record(record, self._outcome(pending))

    def _outcome(self, pending: Pending) -> Outcome:
        """What it has in common with all that went the same way."""
        record = pending.record
        question = (
            pending.decided, record.status, record.miss_reason, record.broker, tuple(record.redirects), record.unmapped,
            record.leak, record.leak_action, tuple(record.upstream_errors), record.upstream_duration is None,
        )  # fmt: skip
        found = pending.decisions.get(question)
        if isinstance(found, Outcome):
            return found
        outcome = Outcome(record, self._context.metrics)
        return pending.decisions.keep(question, outcome, sum(map(len, outcome.words)))

    def _refused(self, pending: Pending, refusal: Refusal) -> bytes:
        """A lookup's refusal, by its own id."""
        data = commands.lookup_failed(pending.request_id, refusal)
        if refusal.detail:
            log.warning("%s lookup: %s: %s", pending.record.id, refusal.text, refusal.detail)
        self._finish(pending, refusal.status, len(data))
        return data

    def _given_up(self, pending: Pending, error: UpstreamError) -> bytes:
        """A lookup that no broker could be brought to answer."""
        log.warning("%s lookup: %s", pending.record.id, error)
        pending.record.upstream_errors.append(error.code)
        return self._refused(pending, Refusal(504 if isinstance(error, TimedOut) else 502, error.code, error.text))


def _started(lookup: Run | Pending) -> float:
    return lookup.started if isinstance(lookup, Pending) else lookup[2]


def _is_redirect(response: LookupResponse) -> bool:
    return response.response == commands.REDIRECT and response.HasField("response")


def _shown(response: LookupResponse) -> str:
    return (response.url or response.url_tls).decode("utf-8", "replace")
