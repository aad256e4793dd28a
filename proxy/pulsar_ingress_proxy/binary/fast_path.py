"""The fast path for lookups that differ from an earlier one only in topic and request id.

The next lookup of a client usually has a new topic and id, and the next answer of a broker only a new id. The fast path
copies these into the bytes made for the earlier one, without parsing or deciding again. Everything else takes the slow
path, which parses each command.
"""

from dataclasses import dataclass, field
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
"""The start of a lookup's command: its type, and the tag of its own field."""
TYPE, SHORTEST = 9, 16
"""Offset of the command's type, and the minimum size of a frame on the fast path."""
BODY, BRIEF = 13, 141
"""Offset of the command's own field in frames of less than BRIEF bytes; in others it is one more."""
_TOPIC, _ID, URL_TLS = 0x0A, 0x10, 0x12

_NAMES, _ENTRY = 1024, 1024
"""Maximum number of server names, and the overhead of a cache entry in bytes."""
_LONG = 1024
"""Frames of this size or more take the slow path."""


@dataclass(slots=True, eq=False)
class LookupTemplate:
    """Lookups that differ only in topic and id, and how they are forwarded."""

    received_tail: bytes
    """The bytes after topic and id as the client sends them."""
    tail: bytes
    """The same bytes as the broker gets them."""
    decided: DecidedRequest
    decisions: DecisionCache
    named: str | None
    answers: "dict[bytes, CachedAnswer]" = field(default_factory=dict)
    """By the bytes before the id."""


class CachedAnswer(Outcome):
    """A broker's answer to such lookups, for ids of one length, and what the client gets."""

    __slots__ = ("end", "rest", "said", "start")

    def __init__(
        self, said: bytes, end: int, start: bytes, rest: bytes, record: AccessRecord, metrics: Metrics
    ) -> None:
        super().__init__(record, metrics)
        self.said, self.end = said, end
        """The bytes after the id as the broker sends them, and their offset."""
        self.start, self.rest = start, rest
        """The bytes that the client gets before and after the id."""


@dataclass(slots=True, eq=False)
class CachedTopic:
    """Lookups of one topic with ids of one length: they differ only in the id."""

    template: LookupTemplate
    names: str
    """The names of the topic, as events have them."""
    start: bytes
    """What the broker gets, up to the id."""
    end: int
    """Where the id ends in the client's frame."""


FastLookup = tuple[CachedTopic, bytes, float]
"""A lookup in flight on the fast path: its topic, its frame, and its start by `perf_counter`."""


@dataclass(slots=True, eq=False)
class FastPath:
    """The templates for one socket and server name, valid as long as their snapshot is in force."""

    _cache: "FastPathCache"
    decisions: DecisionCache | None
    """None: no longer valid."""
    most: int
    """limits.inFlight"""
    templates: dict[bytes, LookupTemplate] = field(default_factory=dict)
    """By the bytes after topic and id."""
    topics: dict[bytes, CachedTopic] = field(default_factory=dict)
    """By the bytes before the id."""

    def learn_lookup(self, sent: bytes, made: bytes, decided: DecidedRequest) -> LookupTemplate | None:
        """Make a template from a forwarded lookup, if its form allows that."""
        before, after = split_lookup(sent), split_lookup(made)
        if before is None or after is None or before[0] != after[0] or self.decisions is None:
            return None
        said = before[3]
        found = self.templates.get(said)
        if found is None and not _has_duplicates(said):
            found = LookupTemplate(said, after[3], decided, self.decisions, decided.decision.selection.client_named)
            self._cache.reserve(2 * _ENTRY + 4 * len(said))
            self.templates[said] = found
        return found

    def learn_topic(self, sent: bytes) -> CachedTopic | None:
        """Add a topic, if a template matches its lookup."""
        parts = split_lookup(sent)
        template = self.templates.get(parts[3]) if parts is not None else None
        if parts is None or template is None:
            return None
        core, topic, number, said = parts
        end = len(sent) - len(said)
        start = join_lookup(core, template.tail)[: -len(number + template.tail)]
        target = about(topic)
        names = event_lines.names(target.tenant, target.namespace, target.topic)
        self._cache.reserve(_ENTRY + 2 * len(sent) + len(names))
        cached = CachedTopic(template, names, start, end)
        self.topics[sent[: end - len(number)]] = cached
        return cached


class FastPathCache:
    """The fast paths of one socket, by server name."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._paths: dict[str | None, FastPath] = {}
        self._size = 0

    def get(self, server_name: str | None) -> FastPath:
        decisions, path = self._context.decisions, self._paths.get(server_name)
        if path is None or path.decisions is not decisions:
            if path is not None or len(self._paths) >= _NAMES:
                self.forget()
            path = self._paths[server_name] = FastPath(self, decisions, decisions.config.limits.in_flight)
        return path

    def forget(self) -> None:
        """Invalidate all; sessions notice and ask for a new one."""
        for path in self._paths.values():
            path.decisions = None
        self._paths.clear()
        self._size = 0

    def reserve(self, size: int) -> None:
        """Count bytes of new entries, and clear everything at the limit: clients choose the contents."""
        self._size += size
        if self._size > FAST_PATH:
            self.forget()

    def learn_answer(self, template: LookupTemplate, said: bytes, made: bytes, record: AccessRecord) -> None:
        before, after = split_answer(said), split_answer(made)
        if before is None or after is None or before[1] != after[1]:
            return
        self.reserve(2 * _ENTRY + 4 * (len(said) + len(made)))
        start, end = before[0], len(said) - len(before[2])
        template.answers[start] = CachedAnswer(before[2], end, after[0], after[2], record, self._context.metrics)


def _has_duplicates(tail: bytes) -> bool:
    """Whether there is a second topic or id, which would override the first."""
    rest = Lookup.FromString(tail)
    return rest.HasField("topic") or rest.HasField("request_id")


def split_lookup(data: bytes) -> tuple[bytes, bytes, bytes, bytes] | None:
    """Split a lookup into its encoded topic and id, the topic, the id's bytes, and the rest; None for any other form.

    Accepts only the unambiguous form: one command in one frame, the topic first, then the id.
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
    if last > first and (not data[last] or last > end + 9):  # not a canonical varint
        return None
    last += 1
    return data[at:last], data[begin:end], data[first:last], data[last:]


def split_answer(answer: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Split an answer into the bytes before its id, the id's bytes, and the rest; None for any other form.

    Accepts only the canonical encoding: a URL, an optional TLS URL, the response type, the id. `answer_fast` may assume
    this form: an answer in another form is split in the wrong places and matches nothing in the cache.
    """
    command = Frame(commands.LOOKUP_RESPONSE, answer).command()
    found = command.lookup_response
    has_form = all(map(found.HasField, ("url", "response", "request_id"))) and len(answer) < _LONG
    is_short = len(found.url) < 128 and len(found.url_tls) < 128 and found.response < 128
    if not has_form or not is_short or write(command) != answer:
        return None
    rest = LookupResponse.FromString(found.SerializeToString())
    for name in ("url", "url_tls", "response"):
        rest.ClearField(name)
    number = encode_id(found.request_id)
    end = len(answer) - rest.ByteSize() + 1 + len(number)
    return answer[: end - len(number)], number, answer[end:]


def join_lookup(core: bytes, tail: bytes) -> bytes:
    """Encode a lookup from its encoded topic and id, and the rest."""
    return _STARTS_BY_BODY[len(core) + len(tail)] + core + tail


def _start(body: int) -> bytes:
    """The start of a lookup's frame, up to its own field of `body` bytes."""
    length = bytes((body,)) if body < 128 else bytes((body & 127 | 128, body >> 7))
    command = len(_MARK) + len(length) + body
    return _SIZES.pack(command + 4, command) + _MARK + length


_STARTS_BY_BODY = [_start(body) for body in range(3 * _LONG)]
_BY_SIZE = {len(start) + body: start for body, start in enumerate(_STARTS_BY_BODY)}
_STARTS = [_BY_SIZE.get(size, bytes(_LONG)) for size in range(_LONG)]
"""By frame size; for impossible sizes, a start that is longer than the frame."""


def encode_id(request_id: int) -> bytes:
    """A request id as a varint."""
    data = b""
    while request_id > 127:
        data += bytes((request_id & 127 | 128,))
        request_id >>= 7
    return data + bytes((request_id,))
