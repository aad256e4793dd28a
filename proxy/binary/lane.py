"""The short way of a lookup that is like one before it.

Clients and brokers repeat themselves: of the next lookup only the topic and the id are new, of the next answer nothing
but the id. So what a session made of the first is made of those that follow, by putting the old words around the new
ones, and nothing is parsed or decided again. Whatever is not like anything before goes the long way, as if it had come
by that from the start.
"""

from struct import Struct

from proxy.binary.commands_pb2 import Lookup
from proxy.listeners import BindAddress
from proxy.observe import lines
from proxy.observe.recent import sorts_of
from proxy.observe.records import Brief, Record
from proxy.requests import Request
from proxy.snapshot import Snapshot
from proxy.verdicts import Verdict
from proxy.web.rim import Outcome, Rim

_SIZES = Struct("!II")
LOOKUP_MARK, ANSWER_MARK = b"\x08\x17\xba\x01", b"\x08\x18\xc2\x01"
"""How the commands begin: their type, and the tag of their own field."""
MARKED = slice(8, 12)
_TOPIC, _ID, _ANSWER_ID, _URLS = 0x0A, 0x10, 0x20, (0x0A, 0x12)
_FLAGS = frozenset((0x18, 0x28, 0x40))
"""Fields of an answer whose value is one byte: what it is, whether with authority, whether through the proxy."""

_ASKED, _ANSWERED, _TOPICS = 1024, 1024, 8192
_LONG = 1024
"""Bytes of a frame that are too many for the short way: clients choose them."""


class Alike:
    """Lookups that are alike in all but topic and id, and what is made of them."""

    __slots__ = ("answers", "decision", "request", "snapshot", "tail", "verdict")

    def __init__(self, tail: bytes, decision: str, request: Request, verdict: Verdict, snapshot: Snapshot) -> None:
        self.tail = tail
        """What follows topic and id on the way to the broker."""
        self.decision, self.request, self.verdict, self.snapshot = decision, request, verdict, snapshot
        self.answers: dict[tuple[bytes, bytes], Outcome] = {}
        """By what stands before and after the id of a broker's answer."""


class Run(Brief):
    """One lookup on the short way."""

    __slots__ = ("alike", "data", "started")

    alike: Alike
    data: bytes
    """As it came."""
    started: float


class Lane:
    """The short way through one door, for as long as the rules and the door are the same."""

    def __init__(self, rim: Rim, bind: BindAddress) -> None:
        self._rim = rim
        self._forget(bind)

    def _forget(self, bind: BindAddress) -> None:
        self.rules, self.bind = self._rim.rules, bind
        self.alike: dict[tuple[str | None, bytes], Alike] = {}
        """By server name, and by what follows topic and id."""
        self.topics: dict[bytes, str] = {}
        """What an event says of each."""

    def learn_lookup(
        self, bind: BindAddress, server_name: str | None, sent: bytes, made: bytes, record: Record, verdict: Verdict
    ) -> Alike | None:
        """Remember what was made of a lookup, if lookups like it can be made from it."""
        if self.rules is not self._rim.rules or self.bind is not bind:
            self._forget(bind)
        before, after = split_lookup(sent), split_lookup(made)
        if before is None or after is None or before[0] != after[0] or record.request is None:
            return None
        if _says_more(before[3]):
            return None
        key = (server_name, before[3])
        found = self.alike.get(key)
        if found is None:
            if len(self.alike) >= _ASKED:
                self.alike.clear()
            found = self.alike[key] = Alike(
                after[3], lines.decision(record), record.request, verdict, self.rules.snapshot
            )
        return found

    def learn_answer(self, alike: Alike, said: bytes, made: bytes, record: Record) -> None:
        """Remember what was made of a broker's answer to one of these."""
        before, after = split_answer(said), split_answer(made)
        if before is None or after is None or before[1] != after[1]:
            return
        if len(alike.answers) >= _ANSWERED:
            alike.answers.clear()
        tallies, words = self._rim.metrics.tallies(record), [lines.result(record)]
        alike.answers[before[0], before[2]] = Outcome([after[0]], after[2], tallies, words, "", sorts_of(record))

    def about(self, topic: bytes, words: str) -> str:
        if len(self.topics) >= _TOPICS:
            self.topics.clear()
        self.topics[topic] = words
        return words


def _says_more(tail: bytes) -> bool:
    """Whether it has another topic or id, which would count instead of the first."""
    rest = Lookup.FromString(tail)
    return rest.HasField("topic") or rest.HasField("request_id")


def split_lookup(data: bytes) -> tuple[bytes, bytes, bytes, bytes] | None:
    """Topic and id as they stand in a lookup, the topic, the id's bytes, and what follows; None if it has another form.

    Only what can be read in one way: one command in one frame, the topic first, then the id.
    """
    start = _LOOKUP_STARTS[len(data) if len(data) < _LONG else 0]
    if not data.startswith(start):
        return None
    at = len(start)
    try:
        length, begin = data[at + 1], at + 2
        if length > 127:
            if data[begin] > 127:
                return None
            length, begin = length + (data[begin] << 7) - 128, begin + 1
        end = begin + length
        if data[at] != _TOPIC or data[end] != _ID:
            return None
        last = end + 1
        while data[last] > 127:
            last += 1
    except IndexError:
        return None
    if (data[last] == 0 and last > end + 1) or last > end + 9:  # not as encoders write it
        return None
    last += 1
    return data[at:last], data[begin:end], data[end + 1 : last], data[last:]


def split_answer(data: bytes) -> tuple[bytes, bytes, bytes] | None:
    """What stands before an answer's id, the id's bytes, and what follows; None if it has another form."""
    start = _ANSWER_STARTS[len(data) if len(data) < _LONG else 0]
    if not data.startswith(start):
        return None
    at = begin = len(start)
    try:
        while (tag := data[at]) != _ANSWER_ID:
            value = data[at + 1]
            if value > 127:
                return None
            if tag in _URLS:
                at += 2 + value
            elif tag in _FLAGS:
                at += 2
            else:
                return None
        at += 1
        last = at
        while data[last] > 127:
            last += 1
    except IndexError:
        return None
    last += 1
    return data[begin:at], data[at:last], data[last:]


def join_lookup(core: bytes, tail: bytes) -> bytes:
    """A lookup of topic and id as they stood in another, and what follows."""
    return _LOOKUP_STARTS_BY_BODY[len(core) + len(tail)] + core + tail


def join_answer(before: bytes, number: bytes, after: bytes) -> bytes:
    return _ANSWER_STARTS_BY_BODY[len(before) + len(number) + len(after)] + before + number + after


def _start(mark: bytes, body: int) -> bytes:
    """How a frame begins whose command's own field has so many bytes: up to that field."""
    length = bytes((body,)) if body < 128 else bytes((body & 127 | 128, body >> 7))
    command = len(mark) + len(length) + body
    return _SIZES.pack(command + 4, command) + mark + length


def _starts(mark: bytes) -> tuple[list[bytes], list[bytes]]:
    """All that there are, by the size of the frame and by that of the field."""
    by_body = [_start(mark, body) for body in range(3 * _LONG)]
    by_size = [b"\xff"] * (3 * _LONG + 16)  # as no frame begins
    for body, start in enumerate(by_body):
        by_size[len(start) + body] = start
    return by_size, by_body


_LOOKUP_STARTS, _LOOKUP_STARTS_BY_BODY = _starts(LOOKUP_MARK)
_ANSWER_STARTS, _ANSWER_STARTS_BY_BODY = _starts(ANSWER_MARK)


def number_of(request_id: int) -> bytes:
    """An id as encoders write it."""
    data = b""
    while request_id > 127:
        data += bytes((request_id & 127 | 128,))
        request_id >>= 7
    return data + bytes((request_id,))
