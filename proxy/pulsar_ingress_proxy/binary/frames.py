"""Frames of Pulsar's wire protocol: where each begins and ends in a stream that comes in any pieces. Pure.

A frame is its size (four bytes), its command's size (four bytes), the command, and perhaps a message. Of most frames
nothing is read but that and the command's type; they are given back in the pieces they came in, uncopied. Only frames
of the types that were asked for are put together whole.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from google.protobuf.message import DecodeError

from pulsar_ingress_proxy.binary.commands_pb2 import Command

MESSAGE_LIMIT = 5 * 1024 * 1024
"""Bytes of a message until a broker names another limit (Commands.DEFAULT_MAX_MESSAGE_SIZE)."""
PADDING = 10 * 1024
"""Bytes that a frame may have beyond its message (Commands.MESSAGE_SIZE_FRAME_PADDING)."""

PASS, NOTE, COUNT, TAKE, _WAIT = range(5)
"""What becomes of frames of a type: they pass, they pass and are noticed or counted, they are taken out whole; or more
of a frame has to come before that can be said."""

# Both sizes, then of the command: the tag of its type, the type, and what follows. Every encoder that there is writes
# the type first, then the command's own field, whose number is the type, and nothing else.
_HEAD = Struct("!IQ")
_SIZES = Struct("!II")
_TYPE_TAG = 0x08
_ENOUGH = 24
"""Bytes from which all of that can be read, however many bytes each number takes."""
_BRIEF = 128
"""Where sizes and the tags of fields begin to take two bytes."""
_NEVER = 1 << 32
"""More bytes than a frame can have."""


class BadFrame(ValueError):
    """The stream is not frames, or has one that is larger than it may be: nothing after it can be made out."""


@dataclass(slots=True)
class Frame:
    """A whole frame, as it came."""

    type: int
    raw: bytes
    is_plain: bool = True
    """Whether its command is written as encoders write it, so that it means the same to everybody."""

    def command(self) -> Command:
        """Raises BadFrame where it is none."""
        return _parse(self.raw[8 : 8 + self._command_size])

    def with_command(self, command: Command) -> bytes:
        """The frame with another command, and the same message, if it has one: no checksum covers commands."""
        return write(command, self.raw[8 + self._command_size :])

    @property
    def _command_size(self) -> int:
        size: int = _SIZES.unpack_from(self.raw)[1]
        return size


def write(command: Command, message: bytes = b"") -> bytes:
    """A frame of a command."""
    data = command.SerializeToString()
    return _SIZES.pack(len(data) + len(message) + 4, len(data)) + data + message


class Table(NamedTuple):
    """What becomes of frames, for a FrameDecoder."""

    actions: bytes
    """By type."""
    passing: dict[int, int]
    """The least size of frames that pass, by what follows that size: the command's, and the command's first four bytes.
    Only of commands that take one byte for each number there; they are nearly all that there are."""


def wanted(take: Iterable[int], note: Iterable[int] = (), count: Iterable[int] = ()) -> Table:
    """A table of what these types are to become; others pass."""
    actions = bytearray(256)
    for action, kinds in ((NOTE, note), (COUNT, count), (TAKE, take)):
        for kind in kinds:
            actions[kind] = action
    passing = {
        length << 32 | _TYPE_TAG << 24 | kind << 16 | (kind << 3 | 2) << 8 | length - 4: length + 4
        for kind in range(_BRIEF >> 3)
        for length in range(4, 4 + _BRIEF)
        if actions[kind] == PASS
    }
    return Table(bytes(actions), passing)


class FrameDecoder:
    """Finds the frames in one direction of a connection."""

    __slots__ = ("_is_strict", "_most_command", "_most_frame", "_table", "counted", "held", "left", "noted")

    def __init__(self, table: Table, most_command: int | None, is_strict: bool) -> None:
        self._table = table
        self._most_command = most_command
        """Bytes of a command that has to be read; None: as many as a frame may have."""
        self._most_frame = MESSAGE_LIMIT + PADDING
        self._is_strict = is_strict
        """Whether the sender may mean to hide one command in another, so that a type is only believed where it is
        certain that no second one follows."""
        self.left = 0
        """Bytes to come of a frame of which some were given back: at 0, another frame may be put in between."""
        self.held = b""
        """The beginning of a frame of which none was given back: with neither, the next byte is a frame's first."""
        self.noted = False
        self.counted = 0

    @property
    def is_between(self) -> bool:
        """Whether all frames that were begun have come to their end."""
        return not self.left and not self.held

    def allow_messages(self, size: int) -> None:
        """Let frames have messages of so many bytes."""
        self._most_frame = size + PADDING

    def feed(self, data: bytes) -> list[bytes | memoryview | Frame] | None:
        """What to do with these bytes: None where all of them pass as they are; else pieces and frames, in order.

        Raises BadFrame.
        """
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
                if head != seen:  # mostly it is that of the frame before
                    seen, least = head, passing.get(head, _NEVER)
                if least <= total <= most:
                    at += total + 4
                    continue
                length = head >> 32
                if total > most or length + 4 > total:
                    raise self._raise_bad_frame(total, length)
                end = at + 4 + total
                if not self._is_strict and head >> 24 & 0xFF == _TYPE_TAG:
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
        """A frame of which few bytes are here: all of it, or not enough."""
        if len(data) - at < 8:
            return _WAIT, 0, False, at
        total, length = _SIZES.unpack_from(data, at)
        if total > self._most_frame or length + 4 > total:
            raise self._raise_bad_frame(total, length)
        end = at + 4 + total
        if end > len(data):
            return _WAIT, 0, False, at
        return *self._read(data, at + 8, length), end

    def _read(self, data: bytes, at: int, length: int) -> tuple[int, int, bool]:
        """What becomes of a command, its type, and whether that is sure by its first bytes."""
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
        return actions[kind] if kind < len(actions) else PASS

    def _refuse_large(self, kind: int | None, size: int) -> None:
        if self._most_command is not None and size > self._most_command:
            what = f"of type {kind}" if kind is not None else "that does not begin with its type"
            raise BadFrame(f"a command {what} has {size} bytes; limits.commandBytes allows {self._most_command}")

    def _raise_bad_frame(self, total: int, length: int) -> BadFrame:
        if total > self._most_frame:
            return BadFrame(f"a frame says that it has {total} bytes; {self._most_frame} are allowed")
        return BadFrame(f"a frame of {total} bytes says that its command has {length}")


def _plain_type(data: bytes, at: int, end: int) -> int | None:
    """A command's type, if it is written first and followed by one field of that number and nothing else.

    Of two types the last counts, so one that could be followed by another says nothing.
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
    """A varint of at most five bytes, and where it ends; one that is not whole is -1."""
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
