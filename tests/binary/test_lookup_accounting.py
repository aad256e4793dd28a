"""Every lookup that the sidecar takes up ends once: in the gauge, in the counters and in the event log.

All of it is seen from the sockets, the metrics and the event files, whatever the code behind them looks like.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from playbooks import BROKER, CLIENT, FOLLOW, HELLO, FrameWire, ScriptedBroker, Stage, Start, answered, staged
from running_sidecar import events_in
from wires import opened
from words import (
    LOOKUP_RESPONSE,
    METADATA_ERROR,
    PARTITIONS,
    SERVICE_NOT_READY,
    body,
    challenge,
    command,
    connect,
    connected,
    error,
    failed,
    found,
    lookup,
    message,
    ping,
    redirect,
)

NO_FRAME = b"HTTP/1.1 400 Bad Request\r\n\r\n"
MIDDLE = 20
"""Where frames are cut: behind their sizes and their type."""
UNKNOWN = 4
"""An id with which nothing is asked."""

Step = tuple[Any, ...]
"""A method of Conversation, and what it is given."""

CONFIGS: dict[str, dict[str, Any]] = {
    "the same": {},
    "another listener": {"bindAddresses": ["partner:pulsar://127.0.0.1:0"]},
    "one lookup at a time": {"limits": {"inFlight": 1}},
}


class Conversation:
    """One client after the other with the sidecar. Each step ends when the sidecar has dealt with it."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.brokers = stage.brokers
        self.taken_up = 0
        """Lookups that were sent whole, and that the sidecar has read."""
        self.uncertain = 0
        """Lookups that were sent whole just before a connection ended."""

    async def have(self, steps: list[Step], end: str | None) -> None:
        """All steps, after a lookup and its answer, from which the sidecar may have learned what to do with others."""
        await self.begin()
        await self.let_in()
        await self.ask(1, "whole")
        await self.answer(1, "found", False)
        for verb, *how in steps:
            await getattr(self, verb)(*how)
        if end is not None:
            await self.leave(end)

    async def begin(self, early: bytes = b"") -> None:
        self.client = await self.stage.connect()
        self.client.send(connect() + early)
        self.broker = await self.brokers["broker"].accept()
        assert await self.broker.hear() == connect()
        self.followed: dict[int, FrameWire] = {}
        """The connections on which the sidecar asks another broker, by the id of the lookup."""

    async def let_in(self) -> None:
        self.broker.send(connected())
        assert await self.client.hear() == connected()
        await self._reach_broker()

    async def _reach_broker(self) -> None:
        """Wait until all that the client has said is dealt with."""
        self.client.send(ping())
        while await self.broker.hear() != ping():
            pass

    async def _reach_client(self) -> list[int]:
        """Wait until all that the broker has said is dealt with; the ids of lookups whose answers the client got."""
        self.broker.send(ping())
        heard: list[int] = []
        while (frame := await self.client.hear()) != ping():
            heard += _answered(frame)
        return heard

    # Steps.

    async def ask(self, request: int, how: str) -> None:
        frame = lookup(request, "internal" if how == "not allowed" else None)
        if how == "in pieces":
            self.client.send(ping() + frame[:MIDDLE])
            assert await self.broker.hear() == ping()
            frame = frame[MIDDLE:]
        elif how == "twice":
            self.client.send(frame)
            self.taken_up += 1
        self.client.send(frame)
        self.taken_up += 1
        await self._reach_client()  # in this order, so that the lookup is read without the ping
        await self._reach_broker()
        if older := self.followed.pop(request, None):
            await older.end()

    async def ask_partitions(self, request: int) -> None:
        """Which is no lookup, and has ids of its own."""
        self.client.send(command(PARTITIONS, message(f1="t", f2=request)))
        await self._reach_broker()

    async def answer(self, request: int, how: str, in_pieces: bool) -> None:
        frame = self._response(request, how, self.brokers["other"])
        if in_pieces:
            self.broker.send(ping() + frame[:MIDDLE])
            assert await self.client.hear() == ping()
            frame = frame[MIDDLE:]
        self.broker.send(frame)
        await self._reach_broker()
        if await self._reach_client() == []:
            await self._follow(request, self.brokers["other"])

    async def _follow(self, request: int, to: ScriptedBroker) -> None:
        """The client was not answered, so the sidecar asks that broker."""
        assert request not in self.followed
        self.followed[request] = wire = await to.accept()
        assert await wire.hear() == connect()

    async def answer_elsewhere(self, request: int, how: str) -> None:
        """What a broker says that a redirect led to."""
        wire = self.followed.pop(request, None)
        if wire is None:
            return
        if how == "leaves":
            wire.close()
            while _answered(await self.client.hear()) != [request]:
                pass
            return
        if how == "does not accept the client":
            wire.send(error(SERVICE_NOT_READY, "starting"))
        elif how == "wants proof":
            wire.send(challenge())
        else:
            wire.send(connected())
            await wire.hear()
            wire.send(self._response(request, how, self.brokers["broker"]))
        await wire.end()
        if await self._reach_client() == []:
            await self._follow(request, self.brokers["broker"])

    def _response(self, request: int, how: str, to: ScriptedBroker) -> bytes:
        if how == "failed":
            return failed(request, METADATA_ERROR, "later")
        return redirect(request, to.inner()) if how == "redirect" else found(request, self.brokers["broker"].inner())

    async def reload(self, config: str) -> None:
        await self.stage.reload(redirects=FOLLOW, **CONFIGS[config])

    async def come_again(self, leaving: str, coming: str) -> None:
        await self.leave(leaving)
        if coming == "before the broker is gone":
            self.uncertain += 1
            await self.begin(lookup(1))
            await self.leave("broker leaves")
        if coming == "with a lookup at once":
            self.taken_up += 1
            await self.begin(lookup(1))
        else:
            await self.begin()
        await self.let_in()

    async def leave(self, how: str) -> None:
        """Both connections end, and with them those on which redirects are followed."""
        match how:
            case "client leaves":
                self.client.close()
            case "client is cut off":
                self.client.abort()
            case "client leaves in the middle of a lookup":
                self.client.send(lookup(1)[:MIDDLE])
                self.client.close()
            case "client leaves after lookups":
                self.client.send(lookup(1) + lookup(1))
                self.client.close()
                self.uncertain += 2
            case "client breaks the protocol":
                self.client.send(lookup(1) + connect())
                self.uncertain += 1
            case "client sends too large a lookup":
                self.client.send(lookup(1, topic="t" * 70_000))
            case "broker leaves":
                self.broker.close()
            case "broker leaves in the middle of an answer":
                self.broker.send(found(1, self.brokers["broker"].inner())[:MIDDLE])
                self.broker.close()
            case "broker breaks the protocol":
                self.broker.send(NO_FRAME)
            case "sidecar stops":
                await self.stage.sidecar.stop()
        for wire in (self.client, self.broker, *self.followed.values()):
            await wire.end()


def _answered(frame: bytes) -> list[int]:
    """The id of an answer to a lookup."""
    is_answer = frame[8:10] == bytes((8, LOOKUP_RESPONSE))
    return [int(request) for request in body(frame)[4]] if is_answer else []


@asynccontextmanager
async def before_two_brokers(**keys: Any) -> AsyncIterator[Stage]:
    async with (
        opened(ScriptedBroker("broker-0")) as broker,
        opened(ScriptedBroker("broker-1")) as other,
        staged(broker, other, **keys) as stage,
    ):
        yield stage


IDS = st.integers(1, UNKNOWN - 1)
LEAVING = st.sampled_from(
    [
        "client leaves",
        "client is cut off",
        "client leaves in the middle of a lookup",
        "client leaves after lookups",
        "client breaks the protocol",
        "client sends too large a lookup",
        "broker leaves",
        "broker leaves in the middle of an answer",
        "broker breaks the protocol",
    ]
)
COMING = st.sampled_from(["as usual", "with a lookup at once", "before the broker is gone"])
ASKING = st.sampled_from(["whole", "whole", "whole", "in pieces", "in pieces", "twice", "not allowed"])
ANSWERING = st.sampled_from(["found", "found", "failed", "redirect", "redirect"])
ELSEWHERE = st.sampled_from(["found", "failed", "redirect", "leaves", "does not accept the client", "wants proof"])
STEP = st.one_of(
    st.tuples(st.just("ask"), IDS, ASKING),
    st.tuples(st.just("ask"), IDS, ASKING),
    st.tuples(st.just("answer"), st.integers(1, UNKNOWN), ANSWERING, st.booleans()),
    st.tuples(st.just("answer"), st.integers(1, UNKNOWN), ANSWERING, st.booleans()),
    st.tuples(st.just("answer_elsewhere"), IDS, ELSEWHERE),
    st.tuples(st.just("ask_partitions"), IDS),
    st.tuples(st.just("reload"), st.sampled_from([*CONFIGS])),
    st.tuples(st.just("come_again"), LEAVING, COMING),
)


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("tidy")
@given(steps=st.lists(STEP, max_size=30), end=LEAVING | st.just("sidecar stops"))
@example([("ask", 1, "in pieces"), ("ask", 1, "whole")], "client leaves")
@example([("ask", 1, "whole"), ("answer", 1, "redirect", False), ("ask", 1, "whole")], "client leaves")
@example([("ask", 1, "twice"), ("answer", 1, "redirect", False), ("answer", 1, "redirect", True)], "broker leaves")
@settings(max_examples=60, suppress_health_check=[*HealthCheck])
async def test_every_lookup_taken_up_is_counted_and_recorded_exactly_once(steps: list[Step], end: str) -> None:
    """In any order, with any ids, however they are answered, and whichever side leaves."""
    with tempfile.TemporaryDirectory() as folder:
        async with before_two_brokers(events={"path": folder, "compress": "none"}, redirects=FOLLOW) as stage:
            conversation = Conversation(stage)
            async with asyncio.timeout(30):
                await conversation.have(steps, end)
            assert stage.number("in_flight_requests", protocol="binary") == 0
            await stage.sidecar.stop()
        written = [event for event in events_in(Path(folder)) if event["kind"] == "lookup"]
    hits, misses = stage.number("listener_hits_total"), stage.number("listener_misses_total")
    assert hits + misses == stage.number("requests_total", kind="lookup") == len(written)
    assert [event["hit"] for event in written].count(True) == hits
    assert len({event["id"] for event in written}) == len(written)
    assert conversation.taken_up <= len(written) <= conversation.taken_up + conversation.uncertain


def of_status(stage: Stage, code: str) -> float:
    return stage.number("requests_total", kind="lookup", protocol="binary", code=code)


@pytest.mark.parametrize("later", ["whole", "in pieces"])
@pytest.mark.parametrize("earlier", ["whole", "in pieces"])
async def test_reused_request_id_abandons_the_earlier_lookup(start: Start, earlier: str, later: str) -> None:
    """Both reach the broker, as they would without the sidecar, and the first answer is the later one's."""
    conversation = Conversation(await start())
    await conversation.have([("ask", 7, earlier)], None)
    stage = conversation.stage
    assert stage.number("in_flight_requests", protocol="binary") == 1
    await conversation.ask(7, later)
    assert stage.number("in_flight_requests", protocol="binary") == 1
    assert (of_status(stage, "200"), of_status(stage, "499")) == (1, 1)
    await conversation.answer(7, "found", False)
    await conversation.answer(7, "found", False)
    assert stage.number("in_flight_requests", protocol="binary") == 0
    assert (of_status(stage, "200"), of_status(stage, "499")) == (2, 1)


async def test_reused_request_id_takes_no_second_in_flight_slot(start: Start) -> None:
    """With `limits.inFlight` reached, the later one has the place of the earlier one."""
    conversation = Conversation(await start(limits={"inFlight": 1}))
    await conversation.have([("ask", 7, "whole"), ("ask", 7, "whole"), ("ask", 8, "whole")], None)
    stage = conversation.stage
    assert (of_status(stage, "200"), of_status(stage, "499"), of_status(stage, "503")) == (1, 1, 1)


async def test_timed_out_lookup_is_counted_once_even_when_the_broker_answers_later(
    start: Start, broker: ScriptedBroker
) -> None:
    """Of two with one id the later one is answered; what the broker says later passes, and is not counted."""
    stage = await start(timeouts={"lookup": 0.2})
    late = failed(1, METADATA_ERROR, "broker-timeout: the broker gave no answer in time")
    await stage.play(
        *HELLO,
        CLIENT.says(lookup(1) + lookup(1)),
        BROKER.hears(lookup(1, "external")),
        BROKER.hears(lookup(1, "external")),
        CLIENT.hears(late),
        *answered(1, broker),
    )
    assert stage.number("in_flight_requests", protocol="binary") == 0
    assert (of_status(stage, "499"), of_status(stage, "504"), of_status(stage, "200")) == (1, 1, 0)
