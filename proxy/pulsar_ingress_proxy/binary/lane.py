"""The short way of a lookup that is like one before it.

Clients and brokers repeat themselves: of the next lookup only the topic and the id are new, of the next answer nothing
but the id. So what a session made of the first is made of those that follow, by putting the old words around the new
ones, and nothing is parsed or decided again. Whatever is not like anything before goes the long way, as if it had come
by that from the start.
"""

from struct import Struct

from pulsar_ingress_proxy.binary import commands
from pulsar_ingress_proxy.binary.commands_pb2 import Lookup, LookupResponse
from pulsar_ingress_proxy.binary.frames import Frame, write
from pulsar_ingress_proxy.binary.lookups import about
from pulsar_ingress_proxy.memory import FAST_PATH
from pulsar_ingress_proxy.net.context import ServerContext
from pulsar_ingress_proxy.observability import event_lines
from pulsar_ingress_proxy.observability.access_record import AccessRecord
from pulsar_ingress_proxy.observability.metrics import Metrics
from pulsar_ingress_proxy.observability.outcome import Outcome
from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.decisions import DecidedRequest

_SIZES = Struct("!II")
_MARK = b"\x08\x17\xba\x01"
"""How a lookup's command begins: its type, and the tag of its own field."""
TYPE, SHORTEST = 9, 16
"""Where a frame has its command's type, and bytes that one on the short way has at least."""
BODY, BRIEF = 13, 141
"""Where a command's own field begins whose size takes one byte, as it does in frames of fewer bytes than that; with
two it is one further."""
_TOPIC, _ID, URL_TLS = 0x0A, 0x10, 0x12

_NAMES, _ENTRY = 1024, 1024
"""Server names that are told apart; and bytes of an entry beyond the text in it."""
_LONG = 1024
"""Bytes of a frame that are too many for the short way: clients choose them."""


class Alike:
    """Lookups that are alike in all but topic and id, and what is made of them."""

    __slots__ = ("answers", "decided", "decisions", "named", "said", "tail")

    def __init__(self, said: bytes, tail: bytes, decided: DecidedRequest, decisions: DecisionCache) -> None:
        self.said, self.tail = said, tail
        """What follows topic and id as the client sends it, and on the way to the broker."""
        self.decided, self.decisions = decided, decisions
        self.named = decided.decision.selection.client_named
        self.answers: dict[bytes, Answer] = {}
        """By all that comes before the id."""


class Answer(Outcome):
    """A broker's answer to them, with an id of one size, and what is made of it."""

    __slots__ = ("end", "rest", "said", "start")

    def __init__(
        self, said: bytes, end: int, start: bytes, rest: bytes, record: AccessRecord, metrics: Metrics
    ) -> None:
        super().__init__(record, metrics)
        self.said, self.end = said, end
        """What follows the id as the broker says it, and where that begins."""
        self.start, self.rest = start, rest
        """What the client gets, before the id and after it."""


class Asked:
    """Such a lookup of one topic, with an id of one size: they are the same in all but that id."""

    __slots__ = ("alike", "end", "names", "start")

    def __init__(self, alike: Alike, names: str, start: bytes, end: int) -> None:
        self.alike = alike
        self.names = names
        """What events say of the topic."""
        self.start = start
        """What goes to the broker, up to the id."""
        self.end = end
        """Where the id ends as the client sends it."""


Run = tuple[Asked, bytes, float]
"""One lookup on the short way: what it asks, as it came, and when by `perf_counter`."""


class Track:
    """The short way of those who came through one door by one name, for as long as its rules are in force.

    A door's line in the config changes with the rules alone.
    """

    __slots__ = ("_lane", "alike", "asked", "decisions", "most")

    def __init__(self, lane: "Lane", decisions: DecisionCache) -> None:
        self._lane = lane
        self.decisions: DecisionCache | None = decisions
        """None: it is not to be gone any more."""
        self.most = decisions.config.limits.in_flight
        self.alike: dict[bytes, Alike] = {}
        """By what follows topic and id."""
        self.asked: dict[bytes, Asked] = {}
        """By all that comes before the id."""

    def learn_lookup(self, sent: bytes, made: bytes, decided: DecidedRequest) -> Alike | None:
        """Remember what was made of a lookup, if lookups like it can be made from it."""
        before, after = split_lookup(sent), split_lookup(made)
        if before is None or after is None or before[0] != after[0] or self.decisions is None:
            return None
        said = before[3]
        found = self.alike.get(said)
        if found is None and not _says_more(said):
            found = Alike(said, after[3], decided, self.decisions)
            self._lane.make_room(2 * _ENTRY + 4 * len(said))
            self.alike[said] = found
        return found

    def learn_topic(self, sent: bytes) -> Asked | None:
        """Remember a topic of which a lookup came that is like one before; None where it is not."""
        parts = split_lookup(sent)
        alike = self.alike.get(parts[3]) if parts is not None else None
        if parts is None or alike is None:
            return None
        core, topic, number, said = parts
        end = len(sent) - len(said)
        start = join_lookup(core, alike.tail)[: -len(number + alike.tail)]
        target = about(topic)
        names = event_lines.names(target.tenant, target.namespace, target.topic)
        self._lane.make_room(_ENTRY + 2 * len(sent) + len(names))
        asked = Asked(alike, names, start, end)
        self.asked[sent[: end - len(number)]] = asked
        return asked


class Lane:
    """The short ways through one door."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self.in_flight = context.metrics.in_flight.cell("binary")
        self._tracks: dict[str | None, Track] = {}
        self._size = 0

    def track(self, server_name: str | None) -> Track:
        """The one by the rules that are in force."""
        decisions, track = self._context.decisions, self._tracks.get(server_name)
        if track is None or track.decisions is not decisions:
            if track is not None or len(self._tracks) >= _NAMES:
                self.forget()
            track = self._tracks[server_name] = Track(self, decisions)
        return track

    def forget(self) -> None:
        """Whoever is on one of them now looks for another."""
        for track in self._tracks.values():
            track.decisions = None
        self._tracks.clear()
        self._size = 0

    def make_room(self, size: int) -> None:
        """So many bytes more are to be remembered: clients choose what."""
        self._size += size
        if self._size > FAST_PATH:
            self.forget()

    def learn_answer(self, alike: Alike, said: bytes, made: bytes, record: AccessRecord) -> None:
        """Remember what was made of a broker's answer to one of these."""
        before, after = cut_answer(said), cut_answer(made)
        if before is None or after is None or before[1] != after[1]:
            return
        self.make_room(2 * _ENTRY + 4 * (len(said) + len(made)))
        start, end = before[0], len(said) - len(before[2])
        alike.answers[start] = Answer(before[2], end, after[0], after[2], record, self._context.metrics)


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


def cut_answer(answer: bytes) -> tuple[bytes, bytes, bytes] | None:
    """What stands before an answer's id, the id's bytes, and what follows; None if it has another form.

    Only what is as encoders write it: a URL, perhaps another for TLS, what it is, and the id. Whoever looks for the id
    of the next one may take that form for granted: what is cut in the wrong places is like nothing before it.
    """
    command = Frame(commands.LOOKUP_RESPONSE, answer).command()
    found = command.lookup_response
    has_form = all(map(found.HasField, ("url", "response", "request_id"))) and len(answer) < _LONG
    is_short = len(found.url) < 128 and len(found.url_tls) < 128 and found.response < 128
    if not has_form or not is_short or write(command) != answer:
        return None
    rest = LookupResponse.FromString(found.SerializeToString())
    for field in ("url", "url_tls", "response"):
        rest.ClearField(field)
    number = number_of(found.request_id)
    end = len(answer) - rest.ByteSize() + 1 + len(number)
    return answer[: end - len(number)], number, answer[end:]


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
