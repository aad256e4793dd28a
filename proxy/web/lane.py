"""The short way of a lookup that is like one before it.

Clients and brokers repeat themselves. Of the next lookup's head only the path is new, and the id that a gateway gave
it; of the next answer, nothing but the path. So what an exchange made of the first is made of those that follow, by
putting the new path into the old bytes, and nothing is parsed or decided again. Whatever is not like anything before
goes to an exchange, as if that had been there from the start.
"""

import re
from time import perf_counter, time

from proxy.listeners import BindAddress, ServiceUrl
from proxy.observe import lines
from proxy.observe.records import Brief, Record
from proxy.requests import BadPath, read_target
from proxy.web import forwarding, heads
from proxy.web.client import ClientConnection
from proxy.web.exchange import Exchange
from proxy.web.rim import Outcome, Rim
from proxy.web.upstream import UpstreamConnection

# Letters that mean themselves wherever a path may stand: in a head, in a URL, in JSON.
_PATH = re.compile(rb"/lookup/v2/topic/[A-Za-z0-9/._~:@!$'()*+,=-]{1,512}")
_VERSION = b" HTTP/1.1\r\n"

# Envoy's spelling and nginx's.
_ID_FIELDS = (b"\r\nx-request-id: ", b"\r\nX-Request-ID: ")
_ID = re.compile(rb"[A-Za-z0-9-]{1,64}")

_SEEN, _ASKERS, _PATHS, _OUTCOMES = 8192, 1024, 8192, 1024
_LONG = 4096
"""Bytes of a head, or of an answer, that are too many to be remembered: clients choose them."""
_ALIKE = frozenset((200, 301, 302, 307, 308))


class Asker:
    """Those who send the same fields, and how they are served."""

    def __init__(
        self, exchange: Exchange, client: ClientConnection, bind: BindAddress, fields: bytes, own_id: bytes
    ) -> None:
        self.bind = bind
        self.message = exchange.message
        self.rules = rules = exchange.rules
        self.outcomes = exchange.outcomes
        self.patience = rules.config.timeouts.lookup
        self.decision, self.client = lines.decision(exchange.record), lines.client(exchange.record)
        url = exchange.verdict.route.url
        self.urls = (url,) if url is not None else rules.config.web_pool
        self._head, self._trusted = exchange.head, exchange.trusted
        self._listener = exchange.verdict.selection.listener
        self._peer = client.peer_field
        self._id_line = fields[fields.rindex(b"\r\n") :] + own_id if own_id else b""
        self._id_size = len(own_id)
        self._requests: dict[ServiceUrl, tuple[bytes, bytes]] = {}

    def request(self, path: bytes, own_id: bytes, url: ServiceUrl) -> bytes:
        """The head as this broker gets it."""
        before, after = self._requests.get(url) or self._learn_request(url)
        return b"GET %b%b%b%b" % (path, before, own_id, after)

    def _learn_request(self, url: ServiceUrl) -> tuple[bytes, bytes]:
        """A head without path and id: what stands before the id, and what after it."""
        fields = forwarding.fields(self._head, url, self.rules.config, self._trusted, self._peer, True, self._listener)
        head = heads.write_head(b" HTTP/1.1", fields)
        place = head.index(self._id_line) + len(self._id_line) if self._id_line else len(head)
        known = self._requests[url] = (head[: place - self._id_size], head[place:])
        return known


class Lane:
    """The short way through one door."""

    def __init__(self, rim: Rim) -> None:
        self._rim = rim
        self._forget()

    def _forget(self) -> None:
        self._rules = self._rim.rules
        self._seen: set[int] = set()
        self._askers: dict[tuple[str, bytes, bytes], Asker] = {}
        self._paths: dict[bytes, tuple[str, str]] = {}
        """Each as text, and what an event says of it."""

    def begin(self, client: ClientConnection, data: bytes) -> "Run | None":
        """Ask for a lookup that is like one before; None where it is not, or there is no kept connection for it."""
        path, fields, own_id, rest = _split(data)
        asker = self._askers.get((client.peer, fields, rest))
        rim = self._rim
        if asker is None or asker.rules is not rim.rules or (own_id and not _ID.fullmatch(own_id)):
            return None
        place = self._paths.get(path) or self._learn_path(path)
        if place is None or len(data) > client.max_line_size:
            return None
        connection = rim.pool.kept_in_turn(asker.urls)
        if connection is None:
            return None
        if not rim.begin():
            rim.let_go()
            rim.pool.give_back(connection)
            return None
        run = Run(rim, asker, client, connection, path, place)
        run.ask(own_id)
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
        if len(self._paths) >= _PATHS:
            self._paths.clear()
        place = self._paths[path] = (text, lines.names(target))
        return place

    def learn(self, client: ClientConnection, data: bytes, exchange: Exchange, bind: BindAddress) -> None:
        """See whether lookups like this one, the second of its kind, may go the short way from now on."""
        if self._rules is not self._rim.rules:
            self._forget()
        if len(data) > _LONG or exchange.rules is not self._rules or not exchange.is_plain_lookup:
            return
        path, fields, own_id, rest = _split(data)
        key = (client.peer, fields, rest)
        if key in self._askers or _PATH.fullmatch(path) is None or (own_id and not _ID.fullmatch(own_id)):
            return
        if hash(key) not in self._seen:  # most that come once never come again
            if len(self._seen) >= _SEEN:
                self._seen.clear()
            self._seen.add(hash(key))
            return
        if len(self._askers) >= _ASKERS:
            self._askers.clear()
        self._askers[key] = Asker(exchange, client, bind, fields, own_id)


class Run(Brief):
    """One lookup on the short way."""

    __slots__ = ("_asked_at", "_asker", "_client", "_connection", "_path", "_rim", "_started")

    def __init__(
        self,
        rim: Rim,
        asker: Asker,
        client: ClientConnection,
        connection: UpstreamConnection,
        path: bytes,
        place: tuple[str, str],
    ) -> None:
        self._started = perf_counter()
        self.time = time()
        self.id = rim.new_id()
        self._rim = rim
        self._asker = asker
        self._client = client
        self._connection = connection
        self._path = path
        self.path, self.about = place

    def ask(self, own_id: bytes) -> None:
        asker, connection = self._asker, self._connection
        request = asker.request(self._path, own_id, connection.url)
        self._asked_at = perf_counter()
        connection.ask_alike(request, self, asker.patience)
        self._rim.pool.watch(connection)

    def heard(self, data: bytes) -> bool:
        """Answer as one before was answered, if the broker says the same."""
        path, client, rim = self._path, self._client, self._rim
        said = tuple(data.split(path))
        outcome = self._asker.outcomes.get(said)
        if outcome is None or client.is_draining:
            self._exchange().learn_from(lambda *found: self._learn(data, *found))
            return False
        self.upstream_duration = perf_counter() - self._asked_at
        client.write(path.join(outcome.start) + self.id.encode() + outcome.rest)
        rim.pool.unwatch(self._connection)
        rim.pool.give_back(self._connection)
        self.decision, self.client = self._asker.decision, self._asker.client
        self.outcome, self.sizes = outcome.words, outcome.sizes
        self.duration = perf_counter() - self._started
        rim.finish_alike(self, outcome)
        client.exchange_ended(keep_alive=True)
        return True

    def hand_over(self) -> None:
        self._exchange()

    def abandon(self) -> None:
        """The client is gone."""
        self._exchange().abandon()

    def _exchange(self) -> Exchange:
        """An exchange that goes on from here."""
        asker, rim, client = self._asker, self._rim, self._client
        rim.let_go()
        exchange = Exchange(rim, asker.bind, client, asker.message._replace(path=self.path), rules=asker.rules)
        client.hand_on(exchange)
        exchange.take_over(self, self._started, self._asked_at, self._connection)
        return exchange

    def _learn(self, data: bytes, connection: UpstreamConnection, record: Record, sent: bytes) -> None:
        """Remember what came of what the broker said, if all of it came at once and it can be said again."""
        start, id_field, rest = sent.partition(b"X-Request-Id: %b" % self.id.encode())
        said, words = data.split(self._path), lines.result(record).split(self.path)
        outcomes, parts = self._asker.outcomes, (start + id_field[: -len(self.id)]).split(self._path)
        if (
            record.status in _ALIKE
            and connection.reusable
            and connection.head_bytes == len(data)
            and len(data) + len(sent) <= _LONG
            and len(parts) == len(said)
            and self._path not in rest
            and not record.upstream_errors
        ):
            if len(outcomes) >= _OUTCOMES:
                outcomes.clear()
            tallies = self._rim.metrics.tallies(record)
            outcomes[tuple(said)] = Outcome(parts, rest, tallies, words, lines.sizes(record))


def _split(data: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """A head in four: the path, the fields up to the id that a gateway gave the request, the id, and the rest."""
    end = data.find(_VERSION)
    for field in _ID_FIELDS:
        place = data.find(field, end)
        if place >= 0:
            place += len(field)
            stop = data.find(b"\r\n", place)
            return data[4:end], data[end:place], data[place:stop], data[stop:]
    return data[4:end], data[end:], b"", b""
