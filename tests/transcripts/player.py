"""Plays a case against a sidecar over loopback sockets, and returns all that can be seen of it from outside.

A case names scripted brokers by fixed addresses. Real ones have as many characters, so lengths stay right when one is
put for the other: in what is sent, and again in what was heard.
"""

import asyncio
import difflib
import json
import re
import socket
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any

from raw import Head, RawBroker, Served, Wire, serving
from words import CONNECT, connected, read

_NAMES = ("broker1", "broker2", "broker3", "worker")
BROKERS = {name: f"127.0.0.1:1000{number}" for number, name in enumerate(_NAMES, 1)}
BROKER1, BROKER2, BROKER3, WORKER = BROKERS.values()
REFUSING = "127.0.0.1:10009"
"""An address at which connections are refused."""

REPETITIONS = 6
"""Enough for the last ones to be answered from what the sidecar remembers of the first."""

_ID = re.compile(r"\b[0-9a-f]{12}-[0-9]+\b")
_SAMPLE = re.compile(r"pulsar_ingress_(\w+)(?:\{(.*)\})? (\S+)")
_OTHER_SAMPLES = re.compile(
    r".*_(bucket|sum|created)|event_loop_lag_.*|events_written_total|task_requests_total"
    r"|asyncio_tasks|snapshot_generation|address_book_entries|config_last_reload_successful|build_info"
)
"""Times; events, which are in the transcript, and are counted when the disk has them; and what no request changes."""
_GAUGES = ("in_flight_requests", "connections", "buffered_bytes")


class Do(Enum):
    """What an end of a connection does, besides sending bytes and, for a number, reading as many."""

    HEAR = auto()
    """Read a message: an HTTP response or a frame."""
    WAIT = auto()
    """Wait until brokers have got all that they have answers for."""
    END = auto()
    """Read to the end of the connection."""
    CLOSE = auto()
    EARLY = auto()
    """First in a broker's answer: do not wait for the request's body."""


Step = bytes | int | Do
Script = Sequence[Step]
Transcript = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the client does, and how brokers answer: the same in every repetition."""

    client: Script
    brokers: Mapping[str, Sequence[Script]]
    """By name, an answer to each message; one message more or less is a fault."""
    config: Mapping[str, Any]
    """The whole of it, but for what `serving` adds."""
    times: int = REPETITIONS
    binary: bool = False
    opening: Script = ()
    """What the client does first on every connection."""
    welcome: Mapping[str, Script] = field(default_factory=dict)
    """How brokers answer CONNECT; those not named here say CONNECTED."""


@dataclass
class _Round:
    """One repetition, or the opening of a connection."""

    brokers: list[list[str]]
    client: list[list[str]]
    counters: dict[str, int] | None
    """What was added to them; None: as in the first round of its kind."""
    is_opening: bool


async def play(case: Case) -> Transcript:
    """What is seen of one repetition, as all must be alike, and of the opening of a connection, if there is one."""
    async with asyncio.timeout(20), AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        brokers = {name: _Broker(name, case) for name in BROKERS}
        for broker in brokers.values():
            await broker.open()
            stack.push_async_callback(broker.close)
        refusing = stack.enter_context(socket.socket())
        refusing.bind(("127.0.0.1", 0))  # and does not listen
        ports = {BROKERS[name]: broker.port for name, broker in brokers.items()}
        addresses = _Addresses({**ports, REFUSING: refusing.getsockname()[1]})
        settings = {**case.config, "events": {"path": folder, "compress": "none"}}
        async with serving(**json.loads(addresses.to_real(json.dumps(settings).encode()))) as served:
            rounds = await _Player(case, served, brokers, addresses).play()
        events = [json.loads(addresses.to_named(line)) for line in _event_lines(Path(folder))]
    connections = {name: len(broker.wires) for name, broker in brokers.items() if broker.wires}
    return _transcript(rounds, events, connections)


class _Addresses:
    def __init__(self, ports: Mapping[str, int]) -> None:
        self._pairs = [(address.encode(), b"127.0.0.1:%d" % port) for address, port in ports.items()]
        assert all(len(address) == len(real) for address, real in self._pairs), self._pairs

    def to_real(self, data: bytes) -> bytes:
        for address, real in self._pairs:
            data = data.replace(address, real)
        return data

    def to_named(self, data: bytes) -> bytes:
        for address, real in self._pairs:
            data = data.replace(real, address)
        return data

    def lines(self, data: bytes) -> list[str]:
        """As text: what was between line ends, each byte a character."""
        return self.to_named(data).decode("latin-1").split("\r\n")


class _Broker(RawBroker):
    """Answers what a case says, on any of its connections."""

    addresses: _Addresses

    def __init__(self, name: str, case: Case) -> None:
        super().__init__()
        self.name = name
        self._case = case
        self.answers: list[Script] = []
        self.heard: list[list[str]] = []
        """Shared by all brokers."""
        self.changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self, port: int = 0, tls: Any = None) -> None:
        await super().open(port, tls)
        self._tasks.append(asyncio.create_task(self._accept()))

    async def close(self) -> None:
        await super().close()
        for task in self._tasks:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    async def _accept(self) -> None:
        while True:
            self._tasks.append(asyncio.create_task(self._serve(await self.accept())))

    async def _serve(self, wire: Wire) -> None:
        try:
            while True:
                await (self._frame(wire) if self._case.binary else self._request(wire))
        except EOFError:
            pass  # nobody uses the connection any more
        except AssertionError:
            wire.transport.abort()  # or the client would wait
            raise

    async def _request(self, wire: Wire) -> None:
        head = await wire.head()
        answer = self._next_answer(head.raw)
        body = b""
        if answer[0] is not Do.EARLY:
            if head.all(b"expect"):
                wire.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            is_bodiless = not {b"content-length", b"transfer-encoding"} & {*head.names}
            body = b"" if is_bodiless else await _body(wire, head)
        await self._answer(wire, head.raw + body, answer)

    async def _frame(self, wire: Wire) -> None:
        frame = await _frame(wire)
        if read(frame[8 : 8 + int.from_bytes(frame[4:8])])[1] == [CONNECT]:
            answer = self._case.welcome.get(self.name, (connected(),))
        else:
            answer = self._next_answer(frame)
        await self._answer(wire, frame, answer)

    def _next_answer(self, message: bytes) -> Script:
        assert self.answers, f"{self.name} has no answer to {message!r}"
        return self.answers[0]

    async def _answer(self, wire: Wire, message: bytes, answer: Script) -> None:
        self._note(message)
        for step in answer:
            match step:
                case bytes():
                    wire.send(self.addresses.to_real(step))
                case int():
                    self._note(await wire.take(step))
                case Do.CLOSE:
                    wire.close()
        if self.answers and answer is self.answers[0]:
            del self.answers[0]
        self.changed.set()

    def _note(self, data: bytes) -> None:
        self.heard.append([self.name, *self.addresses.lines(data)])


class _Player:
    """The client, and the one who looks at /metrics."""

    def __init__(self, case: Case, served: Served, brokers: Mapping[str, _Broker], addresses: _Addresses) -> None:
        self._case = case
        self._served = served
        self._brokers = brokers
        self._addresses = addresses
        self._changed = asyncio.Event()
        self._metrics: Wire | None = None
        for broker in brokers.values():
            broker.addresses, broker.changed = addresses, self._changed

    async def play(self) -> list[_Round]:
        """All rounds; counters are looked at after the first of each kind, and once more at the end."""
        case, rounds = self._case, list[_Round]()
        self._samples = dict[str, float]()
        wire: Wire | None = None
        for number in range(case.times):
            if wire is None or wire.ended:
                if wire is not None:
                    wire.close()
                wire = await self._connect()
                if case.opening:
                    rounds.append(await self._round(wire, case.opening, {}, is_opening=True, is_first=not number))
            rounds.append(await self._round(wire, case.client, case.brokers, is_opening=False, is_first=not number))
        assert wire is not None
        wire.close()
        after = await self._samples_when_zero(*_GAUGES)
        counted = {one.is_opening: one.counters for one in rounds if one.counters is not None}
        total = sum((Counter(counted[one.is_opening]) for one in rounds), Counter[str]())
        assert _increases({}, after) == total, "repetitions are not counted alike"
        return rounds

    async def _connect(self) -> Wire:
        sidecar = self._served.sidecar
        bound = sidecar.binary_servers[0] if self._case.binary else sidecar.http_servers[0]
        return await self._served.client(port=bound.port)

    async def _round(
        self, wire: Wire, script: Script, answers: Mapping[str, Sequence[Script]], *, is_opening: bool, is_first: bool
    ) -> _Round:
        asked: list[list[str]] = []
        for name, broker in self._brokers.items():
            broker.heard, broker.answers = asked, list(answers.get(name, ()))
        heard = [self._addresses.lines(data) async for data in self._follow(wire, script)]
        await self._all_asked()
        counters = None
        if is_first:
            before, self._samples = self._samples, await self._samples_when_zero("in_flight_requests")
            counters = _increases(before, self._samples)
        return _Round(asked, heard, counters, is_opening)

    async def _follow(self, wire: Wire, script: Script) -> AsyncIterator[bytes]:
        """Do what a script says; yields what is heard."""
        is_head = False
        for step, following in zip(script, (*script[1:], None), strict=True):
            match step:
                case bytes():
                    is_head = step.startswith(b"HEAD ")
                    wire.send(self._addresses.to_real(step))
                case int():
                    yield await wire.take(step)
                case Do.HEAR if self._case.binary:
                    yield await _frame(wire)
                case Do.HEAR:
                    head = await wire.head()
                    is_bodiless = is_head or head.status in (204, 304) or head.status < 200
                    yield head.raw + (b"" if is_bodiless else await _body(wire, head))
                    if b"close" in head.all(b"connection") and following is not Do.CLOSE:
                        await wire.end()
                        yield b"{end}"
                case Do.WAIT:
                    await self._all_asked()
                case Do.END:
                    await wire.end()
                    yield bytes(wire.buffer) + b"{end}"
                    wire.buffer.clear()
                case Do.CLOSE:
                    wire.close()
                    await wire.end()
        assert not wire.buffer, f"the client got more: {bytes(wire.buffer)!r}"

    async def _all_asked(self) -> None:
        while any(broker.answers for broker in self._brokers.values()):
            self._changed.clear()
            await self._changed.wait()

    async def _samples_when_zero(self, *gauges: str) -> dict[str, float]:
        """What /metrics says as soon as these gauges are back at zero."""
        if self._metrics is None:
            self._metrics = await self._served.client(port=self._served.sidecar.metrics_port)
        while True:
            self._metrics.send(b"GET /metrics HTTP/1.1\r\nHost: metrics\r\n\r\n")
            samples = _samples((await self._metrics.message()).body.decode())
            if not any(value for name, value in samples.items() if name.startswith(gauges)):
                return samples


async def _frame(wire: Wire) -> bytes:
    size = await wire.take(4)
    return size + await wire.take(int.from_bytes(size))


async def _body(wire: Wire, head: Head) -> bytes:
    """A body, and what shows of how it ended. Into how many chunks it is cut depends on the moment, and is left out."""
    parts: list[bytes] = []
    try:
        if head.all(b"transfer-encoding"):
            while size := int(await wire.take_until(b"\r\n"), 16):
                parts.append(await wire.take(size))
                assert await wire.take(2) == b"\r\n"
            return b"".join(parts) + b"{chunks end}" + (await wire.take_until(b"\r\n"))[:-2]
        if length := head.all(b"content-length"):
            return await wire.take(int(length[0]))
    except EOFError:
        parts.append(bytes(wire.buffer))
    else:
        parts.append(await wire.rest())
    wire.buffer.clear()
    return b"".join(parts) + b"{end}"


def _event_lines(folder: Path) -> list[bytes]:
    return [line for file in sorted(folder.iterdir()) for line in file.read_bytes().splitlines()]


def _samples(text: str) -> dict[str, float]:
    found = {}
    for line in text.splitlines():
        if (match := _SAMPLE.fullmatch(line)) and not _OTHER_SAMPLES.fullmatch(match[1]):
            labels = ",".join(sorted(match[2].split(","))) if match[2] else ""
            found[f"{match[1]}{{{labels}}}" if labels else match[1]] = float(match[3])
    return found


def _increases(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, int]:
    changes = {name: int(value - before.get(name, 0)) for name, value in after.items() if not name.startswith(_GAUGES)}
    return {name: change for name, change in changes.items() if change}


def _transcript(rounds: list[_Round], events: list[dict[str, Any]], connections: Mapping[str, int]) -> Transcript:
    """Openings are recorded nowhere, and repetitions have as many events each."""
    per_repetition = len(events) // sum(not one.is_opening for one in rounds)
    parts: dict[bool, Transcript] = {}
    for one in rounds:
        own = 0 if one.is_opening else per_repetition
        part = _part(one, events[:own])
        events = events[own:]
        first = parts.setdefault(one.is_opening, {**part, "counters": one.counters})
        part["counters"] = first["counters"]
        assert part == first, difference(first, part, "the first time", "later")
    assert not events, "repetitions differ in their events"
    opening = {"opening": parts[True]} if True in parts else {}
    return {**parts[False], **opening, "connections": dict(connections)}


def _part(one: _Round, events: list[dict[str, Any]]) -> Transcript:
    """Ids of requests are told apart by the order of their events."""
    ids: dict[str, str] = {}
    shown = [_event(event, ids) for event in events]

    def named(lines: list[str]) -> list[str]:
        return [_ID.sub(lambda found: ids.setdefault(found[0], f"{{id {len(ids) + 1}}}"), line) for line in lines]

    return {
        "brokers": [named(lines) for lines in one.brokers],
        "client": [named(lines) for lines in one.client],
        "events": shown,
    }


def _event(event: dict[str, Any], ids: dict[str, str]) -> dict[str, Any]:
    """Without what differs from run to run; the keys of all that is null stand together."""
    ids[event["id"]] = name = f"{{id {len(ids) + 1}}}"
    shown = {key: value for key, value in event.items() if value is not None and key not in ("time", "sidecar")}
    for key in ("durationMs", "upstreamMs"):
        if key in shown:
            shown[key] = "{ms}"
    return {**shown, "id": name, "null": " ".join(sorted(key for key, value in event.items() if value is None))}


def written(transcripts: Mapping[str, Any]) -> str:
    """As they stand in the corpus."""
    return json.dumps(transcripts, indent=1, sort_keys=True) + "\n"


def difference(old: Transcript, new: Transcript, old_name: str, new_name: str) -> str:
    """For people: the lines that differ, with what stands around them."""
    before, after = written(old).splitlines(), written(new).splitlines()
    return "\n".join(difflib.unified_diff(before, after, old_name, new_name, n=5, lineterm=""))
