"""The short way of a lookup that is like one before it.

Clients and brokers repeat themselves: of the next lookup only the topic and the id are new, of the next answer nothing
but the id. So what a session made of the first is made of those that follow, by putting the old words around the new
ones, and nothing is parsed or decided again. Whatever is not like anything before goes the long way, as if it had come
by that from the start.
"""

from struct import Struct

from proxy.binary import commands
from proxy.binary.commands_pb2 import Lookup
from proxy.binary.frames import Frame, write
from proxy.listeners import BindAddress
from proxy.observe import lines
from proxy.observe.records import Brief, Record
from proxy.requests import Request
from proxy.snapshot import Snapshot
from proxy.verdicts import Verdict
from proxy.web.rim import Outcome, Rim

_SIZES = Struct("!II")
_MARK = b"\x08\x17\xba\x01"
"""How a lookup's command begins: its type, and the tag of its own field."""
TYPE, SHORTEST = 9, 16
"""Where a frame has its command's type, and bytes that one on the short way has at least."""
_BODY = 13
"""Where a command's own field begins whose size takes one byte; with two it is one further."""
_TOPIC, _ID, _URL_TLS = 0x0A, 0x10, 0x12

_ASKED, _ANSWERED, _TOPICS = 1024, 1024, 8192
_LONG = 1024
"""Bytes of a frame that are too many for the short way: clients choose them."""


class Alike:
    """Lookups that are alike in all but topic and id, and what is made of them."""

    __slots__ = ("answers", "decision", "named", "request", "snapshot", "tail", "verdict")

    def __init__(self, tail: bytes, decision: str, request: Request, verdict: Verdict, snapshot: Snapshot) -> None:
        self.tail = tail
        """What follows topic and id on the way to the broker."""
        self.decision, self.request, self.verdict, self.snapshot = decision, request, verdict, snapshot
        self.named = verdict.selection.client_named
        self.answers: dict[tuple[bytes, bytes, int], Outcome] = {}
        """By what stands before and after the id of a broker's answer, and by the size of it all."""


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
        self.in_flight = rim.metrics.in_flight.cell("binary")
        self._forget(bind)

    def _forget(self, bind: BindAddress) -> None:
        self.rules, self.bind = self._rim.rules, bind
        self.most = self.rules.config.limits.in_flight
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
        before, after = cut_answer(said), cut_answer(made)
        if before is None or after is None or before[1] != after[1] or not (is_plain(said) and is_plain(made)):
            return
        if len(alike.answers) >= _ANSWERED:
            alike.answers.clear()
        words = [lines.result(record)]
        outcome = Outcome([after[0]], after[2], record, words, self._rim.metrics)
        alike.answers[before[0], before[2], len(said)] = outcome

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
    try:
        start = _STARTS[len(data)]
        at = len(start)
        length, begin = data[at + 1], at + 2
        if length > 127:
            if data[begin] > 127:
                return None
            length, begin = length + (data[begin] << 7) - 128, begin + 1
        end = begin + length
        if data[end] != _ID or data[at] != _TOPIC or data[:at] != start:
            return None
        first = last = end + 1
        while data[last] > 127:
            last += 1
    except IndexError:
        return None
    if last > first and (not data[last] or last > end + 9):  # not as encoders write it
        return None
    last += 1
    return data[at:last], data[begin:end], data[first:last], data[last:]


def cut_answer(data: bytes) -> tuple[bytes, bytes, bytes] | None:
    """What stands before an answer's id, the id's bytes, and what follows.

    Taken to be a URL, perhaps another for TLS, what it is, and the id. Whether it is so was seen when it was learned:
    what is cut in the wrong places is like nothing before it.
    """
    try:
        at = _BODY if len(data) < _BODY + 128 else _BODY + 1
        at += 2 + data[at + 1]
        if data[at] == _URL_TLS:
            at += 2 + data[at + 1]
        first = last = at + 3
        while data[last] > 127:
            last += 1
    except IndexError:
        return None
    last += 1
    return data[:first], data[first:last], data[last:]


def is_plain(answer: bytes) -> bool:
    """Whether it is as encoders write it, and of the form that `cut_answer` takes it to have."""
    command = Frame(commands.LOOKUP_RESPONSE, answer).command()
    found = command.lookup_response
    has_form = found.HasField("url") and found.HasField("response") and len(answer) < _LONG
    is_short = len(found.url) < 128 and len(found.url_tls) < 128 and found.response < 128
    return has_form and is_short and write(command) == answer


def join_lookup(core: bytes, tail: bytes) -> bytes:
    """A lookup of topic and id as they stood in another, and what follows."""
    return _STARTS_BY_BODY[len(core) + len(tail)] + core + tail


def _start(body: int) -> bytes:
    """How a lookup begins whose command's own field has so many bytes: up to that field."""
    length = bytes((body,)) if body < 128 else bytes((body & 127 | 128, body >> 7))
    command = len(_MARK) + len(length) + body
    return _SIZES.pack(command + 4, command) + _MARK + length


_STARTS_BY_BODY = [_start(body) for body in range(3 * _LONG)]
_BY_SIZE = {len(start) + body: start for body, start in enumerate(_STARTS_BY_BODY)}
_STARTS = [_BY_SIZE.get(size, bytes(_LONG)) for size in range(_LONG)]
"""By the size of the frame; where there is none of that size, a start that is longer than it."""


def number_of(request_id: int) -> bytes:
    """An id as encoders write it."""
    data = b""
    while request_id > 127:
        data += bytes((request_id & 127 | 128,))
        request_id >>= 7
    return data + bytes((request_id,))
