"""Decisions as they are made: sent once, in order, and nobody waits for a reader."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from consoles import LOOKUP, Place

from pulsar_ingress_proxy.console import stream


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "TURN", 0.01)


class Events:
    """Server-sent events, as a browser reads them."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def next(self, name: str = "decision") -> tuple[str, Any]:
        """The id and data of the next event of that name."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(10):
            async for line in self._answer.content:
                if line == b"\n":
                    if fields.get("event") == name:
                        return fields.get("id", ""), json.loads(fields["data"])
                    fields = {}
                else:
                    key, _, value = line.decode().rstrip("\n").partition(": ")
                    fields[key] = value
        raise EOFError


@asynccontextmanager
async def listening(place: Place, query: str = "", **headers: str) -> AsyncIterator[Events]:
    async with place.session.get(f"/api/decisions/stream{query}", headers=headers) as answer:
        assert answer.content_type == "text/event-stream"
        yield Events(answer)


async def test_stream_pushes_each_decision_as_it_is_made(place: Place) -> None:
    await place.hit("before")
    async with listening(place) as events:
        await events.next("beat")
        for topic in ("a", "b"):
            await place.hit(topic)
            cursor, decision = await events.next()
            assert decision["topic"] == f"persistent://public/default/{topic}"
            assert decision["cursor"] == cursor


async def test_only_parameter_filters_the_streamed_decisions(place: Place) -> None:
    async with listening(place, "?only=miss,leak") as events:
        await events.next("beat")
        await place.hit()
        await place.redirect()
        await place.miss()
        assert (await events.next())[1]["missReason"] == "no-rule"
        await place.hit()
        await place.leak()
        assert (await events.next())[1]["leak"] == "body"


@pytest.mark.parametrize("query", ["?find=B-TOPIC", "?ingress=public&only=miss", "?status=403&kind=lookup"])
async def test_stream_obeys_the_filters_of_decisions(place: Place, query: str) -> None:
    async with listening(place, query) as events:
        await events.next("beat")
        await place.hit("a-topic")
        await place.miss("a-topic")
        assert await place.ask(f"{LOOKUP}b-topic?listenerName=internal") == 403
        await place.hit("c-topic")
        assert (await events.next())[1]["topic"] == "persistent://public/default/b-topic"


@pytest.mark.parametrize("by_header", [True, False], ids=["Last-Event-ID", "since"])
async def test_reconnecting_stream_client_resumes_after_its_last_event(place: Place, by_header: bool) -> None:
    async with listening(place) as events:
        await events.next("beat")
        await place.hit("a")
        cursor, _ = await events.next()
    await place.hit("b")
    again = listening(place, **{"Last-Event-ID": cursor}) if by_header else listening(place, f"?since={cursor}")
    async with again as events:
        assert (await events.next())[1]["topic"] == "persistent://public/default/b"


async def test_oldest_decisions_beyond_one_batch_are_dropped_and_counted(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "BATCH", 2)
    start = (await place.api("decisions"))["cursor"]
    for topic in "abcde":
        await place.hit(topic)
    async with listening(place, f"?since={start}") as events:
        assert await events.next("left-out") == ("", {"count": 3})
        told = [(await events.next())[1]["topic"][-1] for _ in range(2)]
        assert told == ["d", "e"]


async def test_beat_is_pushed_at_once_when_generation_or_reload_status_changes(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "BEAT", 1_000_000)
    async with listening(place) as events:
        assert (await events.next("beat"))[1] == {"generation": 1, "ready": True, "reloaded": True}
        await place.reload(shadow=True)
        assert (await events.next("beat"))[1] == {"generation": 2, "ready": True, "reloaded": True}
        place.sidecar.history.reload_problem = "a fault"
        assert (await events.next("beat"))[1] == {"generation": 2, "ready": True, "reloaded": False}


async def test_stream_client_that_does_not_read_is_disconnected(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "PATIENCE", 0.05)
    console = place.sidecar._console
    assert console is not None
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    slow.connect(("127.0.0.1", place.sidecar.console_port))
    slow.sendall(b"GET /api/decisions/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
    async with asyncio.timeout(30):
        while not console._streams.open:
            await place.hit()
        while console._streams.open:  # the system buffers a few megabytes before it refuses more
            await asyncio.gather(*(place.hit(f"{number}-{'x' * 2000}") for number in range(50)))
    assert (await place.get("/api/status")).status == 200
    slow.close()


async def test_stream_is_closed_when_its_client_disconnects(place: Place) -> None:
    console = place.sidecar._console
    assert console is not None
    async with listening(place) as events:
        await events.next("beat")
        assert console._streams.open == 1
    async with asyncio.timeout(10):
        while console._streams.open:
            await place.ask(LOOKUP + "t")


async def test_stream_that_has_nothing_to_send_is_closed_too_when_its_client_disconnects(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "BEAT", 1_000_000)
    for number in range(3 * stream.CLIENTS):
        async with listening(place, f"?find=nothing-{number}") as events:
            await events.next("beat")
        console = place.sidecar._console
        assert console is not None
        async with asyncio.timeout(10):
            while console._streams.open:
                await place.ask(LOOKUP + "t")


async def test_stream_ends_when_the_sidecar_stops(place: Place) -> None:
    async with listening(place) as events:
        await events.next("beat")
        async with asyncio.timeout(5):
            await place.sidecar.stop()
            with pytest.raises(EOFError):
                await events.next("never")
