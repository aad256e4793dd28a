"""What each peer made of a stream of bytes: the requests that reached its origin, and how the connection ended."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from framing_peers import Peer
from jetty_origin import Seen
from wires import ByteWire

CONNECTIONS = 200
"""That are open at once."""

_ANSWER = re.compile(rb"HTTP/1\.[01] (\d{3})(.*?)\r\n\r\n", re.DOTALL)
_SEEN = re.compile(rb"\r\nseen: (\d+)")
_OUT_OF_TIME = (408, 502, 503, 504)
_addresses = count()


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    target: str
    body: bytes
    fields: frozenset[str] = field(compare=False)
    """Their names."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How a peer divided a stream."""

    requests: tuple[Request | None, ...]
    """Those that arrived whole; None for one that was answered with an error while the connection went on."""
    end: str
    """`refused`, `closed` after an answer that said so, or `waits` for more bytes."""
    numbers: tuple[int, ...]
    """Of the requests that arrived whole, as the origin counts them."""
    answered: tuple[int, ...]
    """The numbers in the answers that the client got."""
    received: bytes
    """All that the client got."""

    @property
    def arrived(self) -> list[Request]:
        return [request for request in self.requests if request is not None]


def differ(one: Reading, other: Reading) -> bool:
    """Whether both accept a request that begins at the same byte, but end it at different ones."""
    shorter, longer = sorted((one, other), key=lambda reading: len(reading.requests))
    if len(shorter.requests) < len(longer.requests) and shorter.end == "waits":
        return True
    pairs = zip(shorter.requests, longer.requests, strict=False)
    return any(None not in pair and pair[0] != pair[1] for pair in pairs)


async def readings(peers: Sequence[Peer], streams: Sequence[bytes]) -> tuple[list[dict[str, Reading]], list[Seen]]:
    """Send every stream to every peer, each on a connection of its own.

    Returns, for each stream, how each peer divided it; and the requests that arrived without a client's address: what
    a peer forwarded as something else.
    """
    sent = [(peer, _unused_address(), stream) for stream in streams for peer in peers]
    slots = asyncio.Semaphore(CONNECTIONS)
    received = await asyncio.gather(*(_send(peer.port, address, stream, slots) for peer, address, stream in sent))
    arrived: dict[tuple[int, str], list[Seen]] = {}
    direct = {peer.port for peer in peers if peer.is_origin}
    for origin in {peer.origin for peer in peers}:
        for seen in origin.new_requests():
            arrived.setdefault((seen.port, seen.peer if seen.port in direct else seen.client), []).append(seen)
    rows: list[dict[str, Reading]] = [{} for _ in streams]
    for place, (peer, address, _) in enumerate(sent):
        requests = arrived.pop((peer.origin_port, address), [])
        rows[place // len(peers)][peer.name] = _reading([seen for seen in requests if seen.is_whole], *received[place])
    return rows, [seen for strays in arrived.values() for seen in strays]


def _unused_address() -> str:
    """A client's address on loopback, by which its requests are known."""
    number = next(_addresses)
    return f"127.{1 + number // 62500}.{number // 250 % 250}.{2 + number % 250}"


async def _send(port: int, address: str, stream: bytes, slots: asyncio.Semaphore) -> tuple[bytes, bool]:
    """What comes back until the peer ends the connection, and whether it did so with RST."""
    async with slots:
        loop = asyncio.get_running_loop()
        _, wire = await loop.create_connection(ByteWire, "127.0.0.1", port, local_addr=(address, 0))
        wire.send(stream)
        received = await wire.end()
        wire.close()
        return received, wire.error is not None


def _reading(whole: Sequence[Seen], received: bytes, was_reset: bool) -> Reading:
    answers = [(int(status), fields.lower()) for status, fields in _ANSWER.findall(received) if status != b"100"]
    status, fields = answers[-1] if answers else (0, b"")
    if b"\r\nconnection: close" in fields and status < 400:
        end = "closed"
    elif (was_reset or status >= 400) and status not in _OUT_OF_TIME:
        end = "refused"
    else:
        end = "waits"
    left = {seen.number: Request(seen.method, seen.target, seen.body, seen.fields) for seen in whole}
    requests: list[Request | None] = []
    answered = []
    for _, fields in answers:
        if match := _SEEN.search(fields):
            answered.append(int(match[1]))
        requests.append(left.pop(answered[-1], None) if match else None)
    if answers and requests[-1] is None:  # nothing follows it
        requests.pop()
    return Reading((*requests, *left.values()), end, tuple(seen.number for seen in whole), tuple(answered), received)
