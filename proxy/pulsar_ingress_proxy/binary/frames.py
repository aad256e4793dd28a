"""Decoder for the frames of Pulsar's wire protocol. Pure.

A frame is its size (four bytes), its command's size (four bytes), the command, and an optional message. Of most frames
only the sizes and the command's type are read, and they are returned in the pieces they arrived in, without copying.
Only frames of requested types are assembled.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from google.protobuf.message import DecodeError

from pulsar_ingress_proxy.binary.commands_pb2 import Command

MESSAGE_LIMIT = 5 * 1024 * 1024
"""Maximum message size until a broker announces its own (Commands.DEFAULT_MAX_MESSAGE_SIZE)."""
PADDING = 10 * 1024
"""Bytes that a frame may have beyond its message (Commands.MESSAGE_SIZE_FRAME_PADDING)."""

PASS, NOTE, COUNT, TAKE, UNKNOWN, _WAIT = range(6)
"""How frames of a type are handled: passed, passed and noted or counted, returned whole, or passed and reported as
unknown. _WAIT: more bytes are needed to tell."""

# Both sizes, then the start of the command: the tag of its type, the type, and what follows. All known encoders write
# the type first, then the command's own field, whose number is the type, and nothing else.
_HEAD = Struct("!IQ")
_SIZES = Struct("!II")
_TYPE_TAG = 0x08
_ENOUGH = 24
"""Enough bytes to read all of that, whatever the length of each varint."""
_BRIEF = 128
"""From here on, sizes and field tags take two bytes."""
_NEVER = 1 << 32
"""Larger than any frame."""


class BadFrame(ValueError):
    """Invalid or oversized frame; the rest of the stream cannot be decoded."""


@dataclass(slots=True)
class Frame:
    """A whole frame, as received."""

    type: int
    raw: bytes
    is_plain: bool = True
    """Whether its command is encoded in the usual form, which every decoder reads the same way."""

    def command(self) -> Command:
        """Parse the command; raises BadFrame."""
        return _parse(self.raw[8 : 8 + self._command_size])

    def with_command(self, command: Command) -> bytes:
        """The frame with another command and the same message; checksums do not cover commands."""
        return write(command, self.raw[8 + self._command_size :])

    @property
    def _command_size(self) -> int:
        size: int = _SIZES.unpack_from(self.raw)[1]
        return size


def write(command: Command, message: bytes = b"") -> bytes:
    data = command.SerializeToString()
    return _SIZES.pack(len(data) + len(message) + 4, len(data)) + data + message


class Table(NamedTuple):
    """How a FrameDecoder handles each type of frame."""

    actions: bytes
    """By type."""
    passing: dict[int, int]
    """Minimum size of frames that pass, by the eight bytes after the size: the command's size and its first four bytes.
    Covers only commands with one-byte varints there, which is nearly all of them."""


def handling(known: Iterable[int], take: Iterable[int], note: Iterable[int] = (), count: Iterable[int] = ()) -> Table:
    """Build a table; known types that are not listed pass."""
    actions = bytearray([UNKNOWN]) * 256
    for action, kinds in ((PASS, known), (NOTE, note), (COUNT, count), (TAKE, take)):
        for kind in kinds:
            actions[kind] = action
    passing = {
        length << 32 | _TYPE_TAG << 24 | kind << 16 | (kind << 3 | 2) << 8 | length - 4: length + 4
        for kind in range(_BRIEF >> 3)
        for length in range(4, 4 + _BRIEF)
        if actions[kind] == PASS
    }
    return Table(bytes(actions), passing)


@dataclass(slots=True, eq=False)
class FrameDecoder:
    """Finds the frames in one direction of a connection."""

    _table: Table
    _most_command: int | None
    """Maximum size of a command that has to be read; None: that of a frame."""
    is_strict: bool
    """Whether the sender may try to hide one command in another: a type counts only if no second one can follow."""
    on_unknown: Callable[[int], None] = lambda _: None
    """Called with each unknown type; those from 128 on may not be exact."""
    _most_frame: int = MESSAGE_LIMIT + PADDING
    left: int = 0
    """Remaining bytes of a frame that was partly returned; at 0, another frame may be inserted."""
    held: bytes = b""
    """The beginning of a frame of which nothing was returned yet."""
    noted: bool = False
    counted: int = 0

    @property
    def is_between(self) -> bool:
        """Whether the stream is at a frame boundary."""
        return not self.left and not self.held

    def allow_messages(self, size: int) -> None:
        self._most_frame = size + PADDING

    def feed(self, data: bytes) -> list[bytes | memoryview | Frame] | None:
        """Decode bytes into pieces to pass on and frames, in order; None: all bytes pass unchanged. Raises BadFrame."""
        at, size = self.left, len(data)
        if at >= size:
            self.left = at - size
            return None
        found: list[bytes | memoryview | Frame] = []
        given = 0
        is_joined = bool(self.held)
        if is_joined:
            data, self.held = self.held + data, b""
            size = len(data)
        passing, most, unpack, last = self._table.passing, self._most_frame, _HEAD.unpack_from, size - _ENOUGH
        seen, least = -1, _NEVER
        while True:
            if at <= last:
                total, head = unpack(data, at)
                if head != seen:  # usually the same as in the previous frame
                    seen, least = head, passing.get(head, _NEVER)
                if least <= total <= most:
                    at += total + 4
                    continue
                length = head >> 32
                if total > most or length + 4 > total:
                    raise self._bad_frame(total, length)
                end = at + 4 + total
                if not self.is_strict and head >> 24 & 0xFF == _TYPE_TAG:
                    kind, is_plain = head >> 16 & 0xFF, True
                    action = self._table.actions[kind]
                else:
                    action, kind, is_plain = self._read(data, at + 8, length)
            elif at < size:
                action, kind, is_plain, end = self._read_short(data, at)
            else:
                break
            if action == NOTE:
                self.noted = True
            elif action == COUNT:
                self.counted += 1
            elif action == UNKNOWN:
                self.noted = True  # it may tie the client to its connection
                self.on_unknown(kind)
            elif action != PASS:
                if action == TAKE:
                    self._refuse_large(kind, end - at - 8)
                if given < at:
                    found.append(memoryview(data)[given:at])
                if action == _WAIT or end > size:
                    self.held, self.left = data[at:], 0
                    return found
                found.append(Frame(kind, data[at:end], is_plain))
                given = end
            at = end
        self.left = at - size
        if found:
            if given < size:
                found.append(memoryview(data)[given:])
            return found
        return [data] if is_joined else None

    def _read_short(self, data: bytes, at: int) -> tuple[int, int, bool, int]:
        """Read a frame near the end of the data, if all of it is here."""
        if len(data) - at < 8:
            return _WAIT, 0, False, at
        total, length = _SIZES.unpack_from(data, at)
        if total > self._most_frame or length + 4 > total:
            raise self._bad_frame(total, length)
        end = at + 4 + total
        if end > len(data):
            return _WAIT, 0, False, at
        return *self._read(data, at + 8, length), end

    def _read(self, data: bytes, at: int, length: int) -> tuple[int, int, bool]:
        """A command's action, its type, and whether it is encoded in the usual form."""
        kind = _plain_type(data, at, at + length)
        if kind is not None:
            return self._action(kind), kind, True
        self._refuse_large(None, length)
        if at + length > len(data):
            return _WAIT, 0, False
        kind = _parse(data[at : at + length]).type
        return self._action(kind), kind, False

    def _action(self, kind: int) -> int:
        actions = self._table.actions
        return actions[kind] if kind < len(actions) else UNKNOWN

    def _refuse_large(self, kind: int | None, size: int) -> None:
        if self._most_command is not None and size > self._most_command:
            what = f"of type {kind}" if kind is not None else "that does not begin with its type"
            raise BadFrame(f"a command {what} has {size} bytes; limits.commandBytes allows {self._most_command}")

    def _bad_frame(self, total: int, length: int) -> BadFrame:
        if total > self._most_frame:
            return BadFrame(f"a frame says that it has {total} bytes; {self._most_frame} are allowed")
        return BadFrame(f"a frame of {total} bytes says that its command has {length}")


def _plain_type(data: bytes, at: int, end: int) -> int | None:
    """A command's type, if it comes first and is followed only by the one field with that number.

    If the type appears twice, decoders take the last one.
    """
    if at >= end or data[at] != _TYPE_TAG:
        return None
    kind, at = _number(data, at + 1, end)
    if at == end:
        return kind
    tag, at = _number(data, at, end)
    size, at = _number(data, at, end)
    return kind if tag == kind << 3 | 2 and at + size == end else None


def _number(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A varint of at most five bytes and its end; -1 if it is incomplete."""
    value = 0
    for place in range(at, min(at + 5, end, len(data))):
        byte = data[place]
        value |= (byte & 0x7F) << 7 * (place - at)
        if byte < 0x80:
            return value, place + 1
    return -1, end + 1


def _parse(data: bytes) -> Command:
    try:
        command = Command.FromString(data)
    except DecodeError:
        raise BadFrame(f"a command of {len(data)} bytes is not one: it cannot be parsed") from None
    if not command.HasField("type"):
        raise BadFrame(f"a command of {len(data)} bytes has no type")
    return command
