"""The short way of a lookup that is like one before it.

Clients and brokers repeat themselves. Of the next lookup's head only the path is new, and the ids that a gateway gave
it; of the next answer, nothing but the path. So what an exchange made of the first is made of those that follow, by
putting the new path into the old bytes, and nothing is parsed or decided again. Whatever is not like anything before
goes to an exchange, as if that had been there from the start.
"""

import re
from time import perf_counter, time

from aiohttp.http_parser import RawRequestMessage

from pulsar_ingress_proxy import memory
from pulsar_ingress_proxy.http import forwarding, headers
from pulsar_ingress_proxy.http.client import ClientConnection
from pulsar_ingress_proxy.http.connection_pool import ConnectionPool
from pulsar_ingress_proxy.http.request_cycle import RequestCycle
from pulsar_ingress_proxy.http.upstream import UpstreamConnection
from pulsar_ingress_proxy.net.context import ServerContext
from pulsar_ingress_proxy.observability import event_lines
from pulsar_ingress_proxy.observability.access_record import AccessRecord, BriefRecord
from pulsar_ingress_proxy.observability.batches import Outcome
from pulsar_ingress_proxy.observability.metrics import Metrics
from pulsar_ingress_proxy.routing.paths import BadPath, read_target
from pulsar_ingress_proxy.syntax.listeners import BindAddress, ServiceUrl

# Letters that mean themselves wherever a path may stand: in a head, in a URL, in JSON.
_PATH = re.compile(rb"/lookup/v2/topic/[A-Za-z0-9/._~:@!$'()*+,=-]{1,512}")
_VERSION = b" HTTP/1.1"

# What gateways give each request anew: its id, in Envoy's spelling and nginx's, and its place in a trace.
_OWN = re.compile(
    rb"\r\n(x-request-id|X-Request-ID|traceparent|tracestate|b3|x-b3-traceid|x-b3-spanid|x-b3-parentspanid"
    rb"|x-datadog-trace-id|x-datadog-parent-id|x-cloud-trace-context): ([!-~]{1,256})(?=\r\n)"
)

_SEEN, _ENTRY = 8192, 1024
"""Heads that were seen once, of which a hash is kept; and bytes of an entry beyond the text in it."""
_LONG = 4096
"""Bytes of a head, or of an answer, that are too many to be remembered: clients choose them."""
_ALIKE = frozenset((200, 301, 302, 307, 308))


class Answer(Outcome):
    """What clients get whose lookups are answered alike: it differs in the path and the request's id alone."""

    __slots__ = ("rest", "start")

    def __init__(
        self, start: list[bytes], rest: bytes, record: AccessRecord, words: list[str], metrics: Metrics
    ) -> None:
        super().__init__(record, words, metrics)
        self.start = start
        """Up to the id; between its parts stands the path."""
        self.rest = rest


class Asker:
    """Those who send the same fields, and how they are served."""

    def __init__(
        self, cycle: RequestCycle, client: ClientConnection, bind: BindAddress, names: list[bytes], own: list[bytes]
    ) -> None:
        self.bind = bind
        self._message = cycle.message
        self.decisions = decisions = cycle.decisions
        self.number = cycle.number
        self.patience = decisions.config.timeouts.lookup
        self.decision_words = event_lines.decision_words(cycle.record)
        self.client = event_lines.client(cycle.record)
        url = cycle.decision.route.url
        self.urls = (url,) if url is not None else decisions.config.web_pool
        self._head, self._trusted = cycle.head, cycle.trusted
        self._listener = cycle.decision.selection.listener
        self._peer = client.peer_field
        self._own = dict(zip(names, own, strict=True))
        self._requests: dict[ServiceUrl, list[bytes]] = {}

    def request(self, path: bytes, own: list[bytes], url: ServiceUrl) -> bytes:
        """The head as this broker gets it."""
        parts = (self._requests.get(url) or self._learn_request(url)).copy()
        parts[1] = path
        parts[3::2] = own
        return b"".join(parts)

    def message(self, path: str, own: list[bytes]) -> RawRequestMessage:
        """The head as the parser would have given it."""
        values = dict(zip(self._own, own, strict=True))
        raw = tuple((name, values.get(name, value)) for name, value in self._message.raw_headers)
        return self._message._replace(path=path, raw_headers=raw)

    def _learn_request(self, url: ServiceUrl) -> list[bytes]:
        """A head in parts, with room for the path, and after it for what is each request's own."""
        fields = forwarding.fields(
            self._head, url, self.decisions.config, self._trusted, self._peer, True, self._listener
        )
        head = headers.write_head(b" HTTP/1.1", fields)
        parts, end = [b"GET ", b""], 0
        for name, value in self._own.items():
            start = head.index(b"\r\n%b: %b\r\n" % (name, value), end) + len(name) + len(b"\r\n: ")
            parts += [head[end:start], b""]
            end = start + len(value)
        known = self._requests[url] = [*parts, head[end:]]
        return known


class Lane:
    """The short way through one door."""

    def __init__(self, context: ServerContext, pool: ConnectionPool) -> None:
        self._context = context
        self.pool = pool
        self._forget()

    def _forget(self) -> None:
        self._decisions = self._context.decisions
        self._seen: set[int] = set()
        self._askers: dict[tuple[str | bytes, ...], Asker] = {}
        self._paths: dict[bytes, tuple[str, str]] = {}
        """Each as text, and what an event says of it."""
        self._size = 0

    def make_room(self, size: int) -> None:
        """So many bytes more are to be remembered: clients choose what."""
        if self._size + size > memory.FAST_PATH:
            self._decisions.outcomes.clear()
            self._forget()
        self._size += size

    def begin(self, client: ClientConnection, data: bytes) -> "Run | None":
        """Ask for a lookup that is like one before; None where it is not, or there is no kept connection for it."""
        path, fields, own = _split(data)
        asker = self._askers.get((client.peer, *fields))
        context = self._context
        if asker is None or asker.decisions is not context.decisions:
            return None
        place = self._paths.get(path) or self._learn_path(path)
        if place is None or len(data) > client.max_line_size or context.is_full:
            return None
        connection = self.pool.kept_in_turn(asker.urls)
        if connection is None:
            return None
        context.begin()
        run = Run(context, self, asker, client, connection, path, place, own)
        run.ask()
        return run

    def _learn_path(self, path: bytes) -> tuple[str, str] | None:
        """A path's words, if it is a lookup's and plain enough."""
        if _PATH.fullmatch(path) is None:
            return None
        text = path.decode()
        try:
            target = read_target("GET", text)
        except BadPath:
            return None
        if target.kind != "lookup":
            return None
        self.make_room(_ENTRY + 4 * len(path))
        place = self._paths[path] = (text, event_lines.names(target))
        return place

    def learn(self, client: ClientConnection, data: bytes, cycle: RequestCycle, bind: BindAddress) -> None:
        """See whether lookups like this one, the second of its kind, may go the short way from now on."""
        if self._decisions is not self._context.decisions:
            self._forget()
        if len(data) > _LONG or cycle.decisions is not self._decisions or not cycle.is_plain_lookup:
            return
        path, fields, own = _split(data)
        key: tuple[str | bytes, ...] = (client.peer, *fields)
        if key in self._askers or _PATH.fullmatch(path) is None or not _are_single(fields[1::2], cycle.message):
            return
        if hash(key) not in self._seen:  # most that come once never come again
            if len(self._seen) >= _SEEN:
                self._seen.clear()
            self._seen.add(hash(key))
            return
        asker = Asker(cycle, client, bind, fields[1::2], own)
        copies = memory.HEAD + 2 + len(asker.urls)
        self.make_room(_ENTRY + copies * len(data) + memory.FIELD * len(cycle.message.raw_headers))
        self._askers[key] = asker


class Run(BriefRecord):
    """One lookup on the short way."""

    __slots__ = ("_asked_at", "_asker", "_client", "_connection", "_context", "_lane", "_own", "_path", "_started")

    def __init__(
        self,
        context: ServerContext,
        lane: Lane,
        asker: Asker,
        client: ClientConnection,
        connection: UpstreamConnection,
        path: bytes,
        place: tuple[str, str],
        own: list[bytes],
    ) -> None:
        self._started = perf_counter()
        self.time = time()
        self.id = context.recorder.new_id()
        self._context = context
        self._lane = lane
        self._asker = asker
        self._client = client
        self._connection = connection
        self._path = path
        self._own = own
        self.path, self.about = place

    def ask(self) -> None:
        asker, connection = self._asker, self._connection
        request = asker.request(self._path, self._own, connection.url)
        self._asked_at = perf_counter()
        connection.ask_alike(request, self, asker.patience)
        self._lane.pool.watch(connection)

    def heard(self, data: bytes) -> bool:
        """Answer as one before was answered, if the broker says the same."""
        path, client, context = self._path, self._client, self._context
        outcome = self._asker.decisions.outcomes.get((self._asker.number, *data.split(path)))
        if outcome is None or client.is_draining:
            cycle = self._cycle()
            if cycle is not None:
                cycle.learn_from(lambda *found: self._learn(data, *found))
            return cycle is None
        self.upstream_duration = perf_counter() - self._asked_at
        client.write(path.join(outcome.start) + self.id.encode() + outcome.rest)
        self._lane.pool.unwatch(self._connection)
        self._lane.pool.give_back(self._connection)
        self.decision_words, self.client = self._asker.decision_words, self._asker.client
        self.outcome = outcome.words
        self.request_bytes, self.response_bytes = outcome.sizes
        self.duration = perf_counter() - self._started
        context.recorder.record_alike(self, outcome)
        client.request_ended(keep_alive=True)
        del self._client, self._connection  # the event may have to wait for its disk, and they need not
        return True

    def hand_over(self) -> None:
        self._cycle()

    def abandon(self) -> None:
        """The client is gone."""
        cycle = self._cycle()
        if cycle is not None:
            cycle.abandon()

    def _cycle(self) -> RequestCycle | None:
        """An exchange that goes on from here; None where it has ended at once."""
        asker, context, client = self._asker, self._context, self._client
        context.let_go()
        message = asker.message(self.path, self._own)
        cycle = RequestCycle(context, self._lane.pool, asker.bind, client, message, decisions=asker.decisions)
        client.hand_on(cycle)
        goes_on = cycle.take_over(self, self._started, self._asked_at, self._connection)
        return cycle if goes_on else None

    def _learn(self, data: bytes, connection: UpstreamConnection, record: AccessRecord, sent: bytes) -> None:
        """Remember what came of what the broker said, if all of it came at once and it can be said again."""
        start, id_field, rest = sent.partition(b"X-Request-Id: %b" % self.id.encode())
        said, words = data.split(self._path), event_lines.result(record).split(self.path)
        outcomes, parts = self._asker.decisions.outcomes, (start + id_field[: -len(self.id)]).split(self._path)
        if (
            record.status in _ALIKE
            and connection.reusable
            and connection.head_bytes == len(data)
            and len(data) + len(sent) <= _LONG
            and len(parts) == len(said)
            and self._path not in rest
            and not record.upstream_errors
        ):
            self._lane.make_room(2 * _ENTRY + 4 * (len(data) + len(sent)))
            outcomes[self._asker.number, *said] = Answer(parts, rest, record, words, self._context.metrics)


def _are_single(names: list[bytes], message: RawRequestMessage) -> bool:
    """Whether there is one field of each name, in any spelling."""
    all_names = [name.lower() for name, _ in message.raw_headers]
    return all(all_names.count(name.lower()) == 1 for name in names)


def _split(data: bytes) -> tuple[bytes, list[bytes], list[bytes]]:
    """A head's path; the rest, in which names stand for the fields that are its own; and what those say."""
    start, *parts = _OWN.split(data)
    own = parts[1::3]
    del parts[1::3]
    end = start.find(_VERSION)
    return start[4:end], [start[end:], *parts], own
