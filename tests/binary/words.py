"""Pulsar's commands as bytes, written by hand: what the sidecar makes of them is held against this, not against itself.

Numbers are those of PulsarApi.proto. A text, bytes or a nested message take their length, an integer or a flag none.
"""

import struct
from collections.abc import Callable, Sequence

Value = str | bytes | int | bool | None | Sequence["str | bytes | int | bool"]

CONNECT, CONNECTED, SUBSCRIBE, PRODUCER, SEND, MESSAGE, ERROR = 2, 3, 4, 5, 6, 9, 14
CLOSE_PRODUCER, CLOSE_CONSUMER, PING, PONG = 15, 16, 18, 19
PARTITIONS, LOOKUP, LOOKUP_RESPONSE = 21, 23, 24
AUTH_CHALLENGE, AUTH_RESPONSE, TOPIC_MIGRATED, TC_ASSIGNMENTS = 36, 37, 68, 80
SCALABLE_TOPIC_LOOKUP, SCALABLE_TOPIC_UPDATE, SCALABLE_TOPIC_CLOSE = 70, 71, 72
SCALABLE_TOPIC_SUBSCRIBE, SCALABLE_TOPIC_SUBSCRIBE_RESPONSE, SCALABLE_TOPIC_ASSIGNMENT_UPDATE = 73, 74, 75

REDIRECT, FOUND, FAILED = 0, 1, 2
METADATA_ERROR, SERVICE_NOT_READY, TOO_MANY_REQUESTS, NOT_ALLOWED = 1, 6, 14, 22
NOBODY = 2**64 - 1
TOPIC = "persistent://public/default/orders"
SCALABLE_TOPIC = "topic://public/default/orders"

MALFORMED = {
    "a command larger than its frame": b"\x00\x00\x00\x06\x00\x00\x00\x07\x08\x12",
    "a frame of four gigabytes": b"\xff\xff\xff\xff\x00\x00\x00\x05\x08\x12",
    "HTTP": b"GET / HTTP/1.1\r\nHost: pulsar.example.com\r\n\r\n",
}
"""What is no frame, whoever sends it."""


def number(value: int) -> bytes:
    """A varint."""
    data = b""
    while value > 0x7F:
        data += bytes([value & 0x7F | 0x80])
        value >>= 7
    return data + bytes([value])


def message(**fields: Value) -> bytes:
    """`f3="text"` is field 3. None is left out, a list is repeated."""
    data = b""
    for name, given in fields.items():
        field = int(name[1:])
        for value in given if isinstance(given, list | tuple) else [given]:
            if value is None:
                continue
            if isinstance(value, int):
                data += number(field << 3) + number(int(value))
            else:
                content = value.encode() if isinstance(value, str) else bytes(value)  # type: ignore[arg-type]
                data += number(field << 3 | 2) + number(len(content)) + content
    return data


def read(data: bytes) -> dict[int, list[int | bytes]]:
    """A message's fields by number."""
    found: dict[int, list[int | bytes]] = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        value, at = _varint(data, at)
        if tag & 7 == 2:
            found.setdefault(tag >> 3, []).append(data[at : at + value])
            at += value
        else:
            found.setdefault(tag >> 3, []).append(value)
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def framed(command: bytes, payload: bytes = b"") -> bytes:
    return struct.pack("!II", len(command) + 4 + len(payload), len(command)) + command + payload


def command(kind: int, body: bytes = b"", payload: bytes = b"") -> bytes:
    return framed(message(f1=kind, **{f"f{kind}": body}), payload)


def body(frame: bytes) -> dict[int, list[int | bytes]]:
    """The fields of a frame's own message."""
    size = struct.unpack_from("!I", frame, 4)[0]
    fields = read(frame[8 : 8 + size])
    (kind,) = fields[1]
    assert isinstance(kind, int)
    (content,) = fields[kind]
    assert isinstance(content, bytes)
    return read(content)


def connect(*, method: str | None = None, data: bytes | None = None, to: str | None = None, **more: Value) -> bytes:
    fields: dict[str, Value] = {"f1": "Pulsar-Test-v1", "f3": data, "f4": 21, "f5": method, "f6": to, **more}
    return command(CONNECT, message(**fields))


def connected(largest: int | None = 5 * 1024 * 1024) -> bytes:
    return command(CONNECTED, message(f1="Pulsar Broker", f2=21, f3=largest))


def error(code: int, text: str, request: int = NOBODY) -> bytes:
    return command(ERROR, message(f1=request, f2=code, f3=text))


def challenge(method: str = "x", data: str = "prove it", version: int | None = None) -> bytes:
    """What a broker sends that wants more of a client than its CONNECT."""
    return command(AUTH_CHALLENGE, message(f1="b", f2=message(f1=method, f2=data), f3=version))


def ping() -> bytes:
    return command(PING)


def pong() -> bytes:
    return command(PONG)


def lookup(
    request: int = 1,
    listener: str | None = None,
    *,
    topic: str | bytes = TOPIC,
    authoritative: bool = False,
    properties: Sequence[tuple[str, str]] = (),
    **more: Value,
) -> bytes:
    pairs = [message(f1=key, f2=value) for key, value in properties]
    fields: dict[str, Value] = {"f1": topic, "f2": request, "f3": authoritative, **more, "f7": listener, "f8": pairs}
    return command(LOOKUP, message(**fields))


def found(
    request: int = 1, url: str | None = None, tls: str | None = None, *, through: bool | None = False, kind: int = FOUND
) -> bytes:
    """What a lookup is answered with; brokers always say whether to come through them."""
    return command(LOOKUP_RESPONSE, message(f1=url, f2=tls, f3=kind, f4=request, f5=True, f8=through))


def redirect(request: int = 1, url: str | None = None, tls: str | None = None, *, authoritative: bool = True) -> bytes:
    return command(LOOKUP_RESPONSE, message(f1=url, f2=tls, f3=REDIRECT, f4=request, f5=authoritative, f8=False))


def failed(request: int, code: int, text: str) -> bytes:
    return command(LOOKUP_RESPONSE, message(f3=FAILED, f4=request, f6=code, f7=text))


def producer(request: int = 2) -> bytes:
    return command(PRODUCER, message(f1=TOPIC, f2=7, f3=request))


def send(payload: bytes = b"payload", sequence: int = 0) -> bytes:
    """With a magic number and a checksum, which nobody but a broker looks at."""
    return command(SEND, message(f1=7, f2=sequence), b"\x0e\x01" + b"\xde\xad\xbe\xef" + payload)


def closed(kind: int, url: str | None = None, tls: str | None = None) -> bytes:
    return command(kind, message(f1=7, f2=3, f3=url, f4=tls))


def migrated(url: str | None, tls: str | None) -> bytes:
    return command(TOPIC_MIGRATED, message(f1=7, f2=0, f3=url, f4=tls))


def scalable(url: str | None, tls: str | None, *, is_rewritten: bool = False, session: int = 3) -> bytes:
    """As the sidecar writes it, the fields that it does not know come after those that it knows."""
    unknown = message(f1=9, f2=[message(f1=1)])
    known = message(f3=[message(f1=number, f2=url or "", f3=tls) for number in (1, 2)], f4=url, f5=tls)
    dag = known + unknown if is_rewritten else unknown + known
    return command(SCALABLE_TOPIC_UPDATE, message(f1=session, f2=dag, f5=SCALABLE_TOPIC))


def layout_question(session: int) -> bytes:
    """The sidecar's own: it must not create a topic."""
    return command(SCALABLE_TOPIC_LOOKUP, message(f1=session, f2=SCALABLE_TOPIC, f3=False))


def layout_answered(session: int) -> bytes:
    return command(SCALABLE_TOPIC_CLOSE, message(f1=session))


def subscribe(request: int) -> bytes:
    """To a scalable topic, with fields that the sidecar does not know."""
    return command(
        SCALABLE_TOPIC_SUBSCRIBE, message(f1=request, f2=SCALABLE_TOPIC, f3="mine", f4="me", f5=request, f6=1)
    )


def subscribed(request: int) -> bytes:
    return command(SCALABLE_TOPIC_SUBSCRIBE_RESPONSE, message(f1=request, f4=message(f1=0)))


def not_subscribed(request: int, code: int, text: str) -> bytes:
    return command(SCALABLE_TOPIC_SUBSCRIBE_RESPONSE, message(f1=request, f2=code, f3=text))


def assigned(consumer: int, more: bytes | None = None) -> bytes:
    return command(SCALABLE_TOPIC_ASSIGNMENT_UPDATE, message(f1=consumer, f2=message(f1=1), f9=more))


def coordinators(url: str | None, tls: str | None) -> bytes:
    assignments = [message(f1=number, f2=url, f3=tls) for number in (0, 1)]
    return command(TC_ASSIGNMENTS, message(f1=3, f2=message(f1=2, f2=assignments)))


Push = Callable[[str | None, str | None], bytes]
"""A command that a broker pushes to a client, of an address and one for TLS."""

PUSHES: dict[str, Push] = {
    "CloseProducer": lambda url, tls: closed(CLOSE_PRODUCER, url, tls),
    "CloseConsumer": lambda url, tls: closed(CLOSE_CONSUMER, url, tls),
    "TopicMigrated": migrated,
    "ScalableTopicUpdate": scalable,
    "WatchTcAssignmentsUpdate": coordinators,
}


def rewritten(push: Push, url: str | None, tls: str | None) -> bytes:
    """A pushed command with these addresses, as the sidecar writes it."""
    return scalable(url, tls, is_rewritten=True) if push is scalable else push(url, tls)
