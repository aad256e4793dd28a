"""The few commands of the binary protocol that both ends of the fault suite speak, by their numbers in PulsarApi.proto.

Written without the sidecar's own codec, so that both ends do not share its mistakes.
"""

import asyncio
import struct
from collections.abc import Sequence
from dataclasses import dataclass

CONNECT, CONNECTED, SEND, MESSAGE, ERROR = 2, 3, 6, 9, 14
METADATA, METADATA_RESPONSE, LOOKUP, LOOKUP_RESPONSE = 21, 22, 23, 24
REDIRECT, FOUND, FAILED = 0, 1, 2  # LookupType

_SIZES = struct.Struct("!II")
_LENGTH_DELIMITED = 2

Value = int | bytes


class NotPulsar(Exception):
    """Bytes that are no frame."""


@dataclass(frozen=True, slots=True)
class Command:
    kind: int
    fields: dict[int, Value]
    payload: bytes = b""

    def number(self, field: int) -> int:
        value = self.fields.get(field, 0)
        if not isinstance(value, int):
            raise NotPulsar(f"field {field} of command {self.kind} is no number")
        return value

    def text(self, field: int) -> str:
        value = self.fields.get(field, b"")
        if not isinstance(value, bytes):
            raise NotPulsar(f"field {field} of command {self.kind} is no text")
        return value.decode()


def frame(kind: int, fields: Sequence[tuple[int, Value]], payload: bytes = b"") -> bytes:
    """The number of a command's own field is that of its type."""
    command = _encoded([(1, kind), (kind, _encoded(fields))])
    return _SIZES.pack(4 + len(command) + len(payload), len(command)) + command + payload


async def read_command(reader: asyncio.StreamReader) -> Command:
    size, length = _SIZES.unpack(await reader.readexactly(_SIZES.size))
    if length + 4 > size:
        raise NotPulsar(f"a command of {length} bytes in a frame of {size}")
    data = await reader.readexactly(size - 4)
    outer = _decoded(data[:length])
    kind = outer.get(1)
    inner = outer.get(kind, b"") if isinstance(kind, int) else None
    if not isinstance(kind, int) or not isinstance(inner, bytes):
        raise NotPulsar("a command without a type")
    return Command(kind, _decoded(inner), data[length:])


def _encoded(fields: Sequence[tuple[int, Value]]) -> bytes:
    raw = b""
    for number, value in fields:
        if isinstance(value, bytes):
            raw += _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(value)) + value
        else:
            raw += _varint(number << 3) + _varint(value)
    return raw


def _varint(number: int) -> bytes:
    raw = b""
    while number > 0x7F:
        raw += bytes([number & 0x7F | 0x80])
        number >>= 7
    return raw + bytes([number])


def _decoded(data: bytes) -> dict[int, Value]:
    """The last value of each field counts."""
    fields: dict[int, Value] = {}
    at = 0
    while at < len(data):
        key, at = _number(data, at)
        value, at = _number(data, at)
        if key & 7 == 0:
            fields[key >> 3] = value
        elif key & 7 == _LENGTH_DELIMITED and at + value <= len(data):
            fields[key >> 3] = data[at : at + value]
            at += value
        else:
            raise NotPulsar(f"field {key >> 3} of type {key & 7} at {at} of {len(data)}")
    return fields


def _number(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data):
        number |= (data[at] & 0x7F) << shift
        at, shift, is_last = at + 1, shift + 7, data[at] < 0x80
        if is_last:
            return number, at
    raise NotPulsar("a number without an end")
