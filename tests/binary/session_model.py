"""What the peers of one session must hear, by the documentation of the binary protocol alone.

The model reads whole frames, and every frame that a peer hears is one that it expects.
"""

from collections import Counter
from dataclasses import dataclass, field

from memory_session import MemoryBroker, MemorySidecar, Peer, inner, kind_of, outer, split
from words import (
    AUTH_CHALLENGE,
    CONNECT,
    CONNECTED,
    ERROR,
    FAILED,
    FOUND,
    LOOKUP,
    LOOKUP_RESPONSE,
    METADATA_ERROR,
    NOT_ALLOWED,
    PARTITIONS,
    PRODUCER,
    body,
    failed,
    found,
    lookup,
    redirect,
)

PARTITIONS_RESPONSE = 22
LOOP = "redirect-loop: brokers redirect in a circle"
NOT_REPLAYABLE = (
    "auth-not-replayable: a redirect must be followed, and the client's authentication cannot be repeated to another "
    "broker"
)
REJECTED = "broker-rejected: the broker that was redirected to does not accept the client"
CLOSED = "broker-closed: the broker closed the connection without an answer"
TIMED_OUT = "broker-timeout: the broker gave no answer in time"


@dataclass(eq=False)
class Asked:
    """A lookup in flight."""

    request: int
    topic: str
    hops: list[int] = field(default_factory=list)
    """The brokers whose redirects to were followed, in their order."""
    elsewhere: MemoryBroker | None = None
    """The connection to the last of them."""
    is_accepted: bool = False
    """Whether that one has answered CONNECT."""


class SessionModel:
    """A client, the broker that it is joined to, and what both must hear."""

    def __init__(self, sidecar: MemorySidecar) -> None:
        self._sidecar = sidecar
        self._session = sidecar.server()
        self.client = Peer(self._session)
        self.broker: MemoryBroker | None = None
        self.is_joined = self.is_draining = self.has_ended = self.can_repeat = False
        self._early: list[bytes] = []
        """What the client sent before the broker has answered its CONNECT."""
        self.for_broker = b""
        self.from_broker: list[bytes] = []
        """Frames of the broker, as the client hears them."""
        self.own: list[bytes] = []
        """Frames of the sidecar, which may come between any two of these."""
        self.open: dict[int, Asked] = {}
        self.ended: Counter[tuple[str, int]] = Counter()
        """Topics and statuses of lookups."""
        self.is_followed: list[Asked] = []
        """Redirects that are to be followed now."""
        self._elsewhere: list[Asked] = []
        self._owed = 0
        self._has_producer = False

    # What peers do.

    def client_sends(self, *cuts: int) -> None:
        for frame in self.client.send(*cuts):
            self._has_producer |= kind_of(frame) == PRODUCER
            if kind_of(frame) == CONNECT:
                self.can_repeat = True
                self.for_broker += frame
            elif self.is_joined:
                self._from_client(frame)
            else:
                self._early.append(frame)

    def broker_sends(self, *cuts: int) -> None:
        assert self.broker is not None
        for frame in self.broker.send(*cuts):
            self._from_broker(frame)

    def elsewhere_sends(self, asked: Asked, *cuts: int) -> None:
        assert asked.elsewhere is not None
        for frame in asked.elsewhere.send(*cuts):
            self._from_elsewhere(asked, frame)

    def client_leaves(self) -> None:
        self.has_ended = True
        self.client.transport.abort()
        self._end_all(499)

    def read_again(self) -> None:
        """Both do; a client for which the session was closed is gone after that."""
        is_leaving = not self.client.is_connected
        self.client.transport.read_again()
        if self.broker is not None:
            self.broker.transport.read_again()
        if is_leaving:
            self._end_all(499)

    def broker_leaves(self) -> None:
        """Lookups that another broker is asked for end with the client, which is gone when it has read all."""
        assert self.broker is not None
        self.has_ended = True
        has_read = not self.client.transport.get_write_buffer_size()
        self.broker.transport.abort()
        for asked in list(self.open.values()):
            if not asked.hops:
                self._end(asked, 502)
        if has_read:
            self._end_all(499)

    def elsewhere_leaves(self, asked: Asked) -> None:
        assert asked.elsewhere is not None
        asked.elsewhere.transport.abort()
        self._answer_later(asked, 502, failed(asked.request, METADATA_ERROR, CLOSED))

    def time_passes(self) -> None:
        """More than any timeout: lookups fail, and who is not joined to a broker is told to leave."""
        self.has_ended |= not self.is_joined
        for asked in list(self.open.values()):
            self._answer_later(asked, 504, failed(asked.request, METADATA_ERROR, TIMED_OUT))

    def drain(self) -> None:
        self.is_draining = True
        self._session.drain()

    @property
    def is_stalled(self) -> bool:
        return self.client.transport.is_stalled or (self.broker is not None and self.broker.transport.is_stalled)

    @property
    def has_asked(self) -> bool:
        """Whether lookups wait for the broker."""
        return self.broker is not None and self.broker.is_connected and bool(self.broker.waiting)

    @property
    def hears_broker(self) -> bool:
        return self.broker is not None and self.broker.is_connected and not self.broker.transport.is_paused

    @property
    def owes_partitions(self) -> bool:
        """Whether the broker has to answer another such request."""
        if self.broker is None:
            return False
        said = split(self.broker.sent + self.broker.unsent)[0]
        return self._owed > [kind_of(frame) for frame in said].count(PARTITIONS_RESPONSE)

    # What the sidecar does.

    def _from_client(self, frame: bytes) -> None:
        if kind_of(frame) != LOOKUP:
            self._owed += kind_of(frame) == PARTITIONS
            self.for_broker += frame
            return
        fields = body(frame)
        (topic,), (request,) = fields[1], fields[2]
        assert isinstance(topic, bytes)
        asked = Asked(int(request), topic.decode())
        if older := self.open.get(asked.request):
            self._end(older, 499)
        if b"internal" in fields.get(7, []):
            where = "ingress 'public'" if self._sidecar.mode == "through" else "this socket"
            text = f"not-allowed: listener 'internal' may not be named through {where}"
            self.own.append(failed(asked.request, NOT_ALLOWED, text))
            self.ended[asked.topic, 403] += 1
        else:
            self.open[asked.request] = asked
            self.for_broker += lookup(asked.request, "external", topic=asked.topic)

    def _from_broker(self, frame: bytes) -> None:
        kind = kind_of(frame)
        if kind != LOOKUP_RESPONSE:
            self._owed -= kind == PARTITIONS_RESPONSE
            self.from_broker.append(frame)
            if kind == CONNECTED:
                self.is_joined = True
                early, self._early = self._early, []
                for waiting in early:
                    self._from_client(waiting)
            return
        asked = self.open.get(_request(frame))
        if asked is None or asked.hops:  # of a lookup that was abandoned or timed out
            self.from_broker += self._unasked(frame)
        elif (ending := self._answered(asked, frame)) is not None:
            status, heard = ending
            self.from_broker.append(heard)
            self._end(asked, status)

    def _from_elsewhere(self, asked: Asked, frame: bytes) -> None:
        if self.open.get(asked.request) is not asked:
            return
        kind = kind_of(frame)
        if kind == CONNECTED:
            asked.is_accepted = True
        elif kind == ERROR:
            self._answer_later(asked, 502, failed(asked.request, METADATA_ERROR, REJECTED))
        elif kind == AUTH_CHALLENGE:
            self.can_repeat = False
            self._answer_later(asked, *self._not_followed(asked.request, asked.hops[-1]))
        elif kind == LOOKUP_RESPONSE and (ending := self._answered(asked, frame)) is not None:
            self._answer_later(asked, *ending)

    def _answered(self, asked: Asked, frame: bytes) -> tuple[int, bytes] | None:
        """The status and what the client hears; None: another broker is asked."""
        request, fields = asked.request, body(frame)
        if fields[3] == [FAILED]:
            return 500, frame
        owner = _broker(fields)
        if fields[3] == [FOUND]:
            return 200, self._found(request, owner)
        if self._sidecar.mode == "rewrite" or not self.can_repeat:
            return self._not_followed(request, owner)
        if owner in asked.hops:
            return 502, failed(request, METADATA_ERROR, LOOP)
        asked.hops.append(owner)
        self.is_followed.append(asked)
        return None

    def _found(self, request: int, owner: int) -> bytes:
        if self._sidecar.mode == "through":
            return found(request, outer(owner), outer(owner, "pulsar+ssl"), through=True)
        return found(request, outer(owner))

    def _not_followed(self, request: int, owner: int) -> tuple[int, bytes]:
        if self._sidecar.mode == "through":
            return 502, failed(request, METADATA_ERROR, NOT_REPLAYABLE)
        return 307, redirect(request, outer(owner))

    def _unasked(self, frame: bytes) -> list[bytes]:
        """Passes on the listener, but for a redirect that would lead a client past the sidecar."""
        fields, request = body(frame), _request(frame)
        if fields[3] == [FAILED]:
            return [frame]
        if fields[3] == [FOUND]:
            return [self._found(request, _broker(fields))]
        return [] if self._sidecar.mode == "through" else [redirect(request, outer(_broker(fields)))]

    def _answer_later(self, asked: Asked, status: int, frame: bytes) -> None:
        if self.client.is_connected:
            self.own.append(frame)
        self._end(asked, status)

    def _end(self, asked: Asked, status: int) -> None:
        del self.open[asked.request]
        self.ended[asked.topic, status] += 1

    def _end_all(self, status: int) -> None:
        for asked in list(self.open.values()):
            self._end(asked, status)

    # What was heard.

    def check_end(self) -> None:
        """A session that drains ends as soon as nothing is lost by that, and no other ends by itself."""
        owed = self._owed or (self.is_joined and self.broker is not None and self.broker.sent)
        if self.client.is_connected:
            is_producer = self._has_producer or self.client.sent[9:10] == bytes([PRODUCER])
            assert not self.is_draining or self.open or owed or is_producer
        elif not self.has_ended:
            assert self.is_draining
            assert not self.open
            assert not owed
            assert not self._has_producer

    def check_client(self) -> None:
        """The broker's frames in their order, with the sidecar's own between them, and none twice."""
        frames, rest = split(bytes(self.client.received))
        if not self.client.is_connected and frames and kind_of(frames[-1]) == ERROR:
            assert not rest
            frames.pop()  # why the session was closed
        heard = Counter(frames)
        ends = [
            place
            for place in _places(frames, self.from_broker, Counter(self.own))
            if heard - Counter(self.from_broker[:place]) <= Counter(self.own)
        ]
        assert ends, frames
        current = self.broker.sent if self.broker is not None else b""
        assert not rest or any([*self.from_broker, current][place].startswith(rest) for place in ends), rest
        if self.client.is_connected and not self.client.transport.is_stalled and not self.is_paused:
            assert len(frames) == len(self.from_broker) + len(self.own)

    def check_broker(self) -> None:
        """All that the client has sent whole, in its order and byte for byte but for the lookups."""
        if self.broker is None:
            return
        got, current = bytes(self.broker.received), self.client.sent if self.is_joined else b""
        assert (self.for_broker + current).startswith(got), got
        if self.broker.is_connected and not self.broker.transport.is_stalled:
            assert got.startswith(self.for_broker)

    def dialled(self, broker: MemoryBroker) -> None:
        """The sidecar has connected to a broker: for the client's CONNECT, or to follow a redirect."""
        if self.broker is None:
            assert broker.url == inner(0)
            self.broker = broker
            return
        asked = self.is_followed.pop(0)
        assert broker.url == inner(asked.hops[-1])
        assert asked.elsewhere is None or not asked.elsewhere.is_connected
        asked.elsewhere, asked.is_accepted = broker, False
        if asked not in self._elsewhere:
            self._elsewhere.append(asked)

    def check_elsewhere(self) -> None:
        """A redirect is followed with the client's own CONNECT and lookup, and not after the lookup has ended."""
        assert not self.is_followed
        (hello, *_), _ = split(self.for_broker) if self.for_broker else ([b""], b"")
        for asked in self._elsewhere:
            assert asked.elsewhere is not None
            is_open = self.open.get(asked.request) is asked
            assert asked.elsewhere.is_connected == is_open
            whole = hello
            if asked.is_accepted:
                whole += lookup(asked.request, "external", topic=asked.topic, authoritative=True)
            assert asked.elsewhere.received == whole or not is_open

    @property
    def is_elsewhere(self) -> list[Asked]:
        """The lookups whose redirects are being followed."""
        return [asked for asked in self._elsewhere if self.open.get(asked.request) is asked]

    @property
    def is_paused(self) -> bool:
        return self.broker is not None and self.broker.transport.is_paused


def _request(frame: bytes) -> int:
    (request,) = body(frame)[4]
    return int(request)


def _broker(fields: dict[int, list[int | bytes]]) -> int:
    """The number of the broker that an answer names."""
    (url,) = fields[1]
    return next(broker for broker in range(10) if inner(broker).encode() == url)


def _places(heard: list[bytes], ordered: list[bytes], others: Counter[bytes]) -> set[int]:
    """How many of the ordered frames may have been heard, if the rest are others."""
    places = {0}
    for frame in heard:
        after = {place + 1 for place in places if place < len(ordered) and ordered[place] == frame}
        places = after | (places if frame in others else set())
    return places
