"""What one client can cost, and what becomes of connections on which malformed frames come."""

import asyncio
import logging

import pytest
from playbooks import (
    BROKER,
    CLIENT,
    FOLLOW,
    HELLO,
    OTHER,
    ScriptedBroker,
    Stage,
    Start,
    followed,
    looked_up,
    redirected,
)
from words import (
    MALFORMED,
    METADATA_ERROR,
    NOT_ALLOWED,
    SCALABLE_TOPIC_UPDATE,
    TOO_MANY_REQUESTS,
    body,
    command,
    connect,
    connected,
    error,
    failed,
    found,
    lookup,
    message,
    ping,
    send,
)

from pulsar_ingress_proxy.config.model import Log
from pulsar_ingress_proxy.observability import log


async def test_connections_beyond_the_limit_are_refused_until_one_closes(start: Start) -> None:
    stage = await start(limits={"connections": 1})
    await stage.play(*HELLO)
    text = "too-many-connections: more connections are open than limits.connections allows"
    first = stage.client
    await stage.connect()
    await stage.play(CLIENT.hears(error(NOT_ALLOWED, text)), CLIENT.is_left)
    first.close()
    await stage.brokers["broker"].wires[0].end()
    await stage.connect()
    await stage.play(*HELLO)


async def test_connection_closes_when_no_connect_arrives_within_head_timeout(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    stage = await start(timeouts={"head": 0.05})
    text = "too-slow: no CONNECT came within 0.05 s (timeouts.head)"
    await stage.connect()
    await stage.play(CLIENT.says(connect()[:9]), CLIENT.hears(error(NOT_ALLOWED, text)), CLIENT.is_left)
    assert stage.number("requests_total", protocol="binary", code="408") == 1
    assert "no CONNECT came within 0.05 s" in caplog.text


async def test_lookups_beyond_the_in_flight_limit_fail_with_too_many_requests(start: Start) -> None:
    stage = await start(limits={"inFlight": 1})
    text = "overloaded: more is under way than limits.inFlight and limits.bufferBytes allow"
    await stage.play(
        *HELLO,
        CLIENT.says(lookup(1) + lookup(2)),
        BROKER.hears(lookup(1, "external")),
        CLIENT.hears(failed(2, TOO_MANY_REQUESTS, text)),
        BROKER.says(found(1)),
        CLIENT.hears(found(1)),
        *looked_up(3),
    )
    assert stage.number("listener_misses_total", reason="overloaded", protocol="binary") == 1


async def test_connection_closes_when_a_lookup_exceeds_command_bytes(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    stage = await start(limits={"commandBytes": 200})
    await stage.play(*HELLO, CLIENT.says(send(b"x" * 1000)), BROKER.hears(send(b"x" * 1000)))
    large = lookup(1, topic="persistent://public/default/" + "x" * 300)
    text = f"a command of type 23 has {len(large) - 8} bytes; limits.commandBytes allows 200"
    await stage.play(
        CLIENT.says(large), CLIENT.hears(error(NOT_ALLOWED, f"bad-frame: {text}")), CLIENT.is_left, BROKER.is_left
    )
    assert f"invalid frame from the client; closing the connection: {text}" in caplog.text


async def test_lookup_fails_when_a_broker_does_not_answer_within_lookup_timeout(
    start: Start, other: ScriptedBroker
) -> None:
    """A broker that does not answer, and a second one that a redirect led to."""
    stage = await start(timeouts={"lookup": 0.1}, redirects=FOLLOW)
    text = "broker-timeout: the broker gave no answer in time"
    await stage.play(
        *HELLO,
        *looked_up(1),
        CLIENT.hears(failed(1, METADATA_ERROR, text)),
        *redirected(2, other),
        *followed(2),
        CLIENT.hears(failed(2, METADATA_ERROR, text)),
        OTHER.is_left,
        CLIENT.says(ping()),
        BROKER.hears(ping()),
    )
    assert stage.number("requests_total", kind="lookup", protocol="binary", code="504") == 2
    assert stage.number("in_flight_requests", protocol="binary") == 0


@pytest.mark.parametrize("malformed", MALFORMED.values(), ids=MALFORMED)
@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "later"])
async def test_connection_closes_when_client_sends_a_malformed_frame(
    start: Start, malformed: bytes, is_late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    stage = await start()
    await stage.connect()
    if is_late:
        await stage.play(*HELLO, CLIENT.says(ping()), BROKER.hears(ping()))
    stage.client.send(malformed)
    assert b"bad-frame: a frame" in await stage.client.end()
    if is_late:
        assert await stage.broker.end() == b""
    assert "invalid frame from the client; closing the connection: a frame" in caplog.text
    assert stage.number("requests_total", protocol="binary", code="400") == 1


async def test_connection_closes_when_broker_sends_a_malformed_frame(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    stage = await start()
    await stage.play(*HELLO, BROKER.says(MALFORMED["HTTP"]))
    assert b"bad-frame" in await stage.client.end()
    assert "invalid frame from the broker; closing the connection" in caplog.text
    assert stage.number("upstream_errors_total", reason="bad-answer") == 1


async def test_client_gets_bad_answer_when_connect_is_answered_with_http(start: Start) -> None:
    stage = await start()
    client = await stage.connect()
    client.send(connect())
    wire = await stage.brokers["broker"].accept()
    wire.send(MALFORMED["HTTP"])
    assert b"bad-answer" in await client.hear()


async def test_connection_closes_when_a_message_far_exceeds_the_brokers_max_message_size(start: Start) -> None:
    stage = await start()
    await stage.play(
        CLIENT.says(connect()),
        BROKER.hears(connect()),
        BROKER.says(connected(1000)),
        CLIENT.hears(connected(1000)),
        CLIENT.says(send(b"x" * 10_000)),
        BROKER.hears(send(b"x" * 10_000)),
        CLIENT.says(send(b"x" * 20_000)),
    )
    assert b"bad-frame: a frame says that it has" in await stage.client.end()


async def test_broker_connections_close_when_client_leaves_before_they_answer(
    start: Start, broker: ScriptedBroker, other: ScriptedBroker
) -> None:
    stage = await start(redirects=FOLLOW)
    client = await stage.connect()
    client.send(connect())
    wire = await broker.accept()
    await wire.hear()
    client.abort()
    await wire.end()
    await stage.connect()
    await stage.play(
        *HELLO,
        *redirected(1, other),
        OTHER.hears(connect()),
        CLIENT.leaves,
        OTHER.is_left,
        BROKER.is_left,
    )
    assert stage.number("in_flight_requests", protocol="binary") == 0
    assert stage.number("requests_total", kind="lookup", protocol="binary", code="499") == 1


async def test_two_lookups_with_one_request_id_are_both_forwarded_and_answered(start: Start) -> None:
    stage = await start()
    await stage.play(
        *HELLO,
        CLIENT.says(lookup(1) + lookup(1)),
        BROKER.hears(lookup(1, "external")),
        BROKER.hears(lookup(1, "external")),
        BROKER.says(found(1) + found(1)),
        CLIENT.hears(found(1)),
        CLIENT.hears(found(1)),
    )
    assert stage.number("in_flight_requests", protocol="binary") == 0


@pytest.mark.parametrize("begun", [b"", send(b"x" * 1000)[:500]], ids=["between frames", "in the midst of one"])
async def test_client_that_does_not_read_its_refusals_is_not_read_from_until_it_does(
    start: Start, begun: bytes
) -> None:
    """It is read no more once half a megabyte waits for it, and is served again when it takes that."""
    stage = await start(clientListenerName="reject")
    await stage.play(*HELLO)
    stage.broker.send(begun)
    await stage.client.take(len(begun))
    stage.client.stall()
    questions = b"".join(lookup(number, "partner") for number in range(1000))
    said = 0
    while stage.client.transport.get_write_buffer_size() < len(questions):
        stage.client.send(questions)
        said += 1
        await asyncio.sleep(0)
        assert said < 2000, "all of it is read"
    assert stage.number("in_flight_requests", protocol="binary") == 0
    stage.client.resume()
    if begun:
        stage.broker.send(send(b"x" * 1000)[500:])
        assert await stage.client.take(len(send(b"x" * 1000)) - 500) == send(b"x" * 1000)[500:]
    async with asyncio.timeout(30):
        for number in range(said * 1000):
            answer = body(await stage.client.hear())
            assert answer[4] == [number % 1000]


async def test_broker_command_larger_than_command_bytes_is_passed_on(start: Start, other: ScriptedBroker) -> None:
    """As one that tells of the many segments of a topic."""
    stage = await start(limits={"commandBytes": 1000})
    segments = [message(f1=number, f2=other.outer(), f3=other.outer("pulsar+ssl")) for number in range(100)]
    update = command(SCALABLE_TOPIC_UPDATE, message(f1=7, f2=message(f3=segments)))
    assert len(update) > 1000
    await stage.play(*HELLO, BROKER.says(update), CLIENT.hears(update))


async def test_client_version_and_broker_name_cannot_forge_or_flood_log_lines(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = await start()
    root = logging.getLogger()
    handlers = root.handlers[:]
    try:
        log.set_up(Log(format="text", level="warning"))
        await stage.connect()
        await stage.play(CLIENT.says(connect(f1="a\nWARNING forged \x1b[31m", to="nobody:1\n" + "x" * 60_000)))
        await stage.client.end()
    finally:
        root.handlers[:] = handlers
    (line,) = capsys.readouterr().err.splitlines()
    assert r"(a\x0aWARNING forged \x1b[31m)" in line
    assert len(line) < 5000


def overload(stage: Stage) -> None:
    """Every command has waited for too long, for a long time."""
    state = stage.sidecar.binary_servers[0].overload
    state.is_overloaded, state.limit = True, -1


OVERLOADED = "overloaded: requests wait for longer than limits.waitMillis allows"


async def test_overload_refuses_lookups_and_passes_all_else(start: Start) -> None:
    stage = await start()
    await stage.play(*HELLO, *looked_up(1), *looked_up(2))  # so that lookups take the fast path
    overload(stage)
    await stage.play(
        CLIENT.says(lookup(3)),
        CLIENT.hears(failed(3, TOO_MANY_REQUESTS, OVERLOADED)),
        CLIENT.says(lookup(4) + ping() + lookup(5)),
        CLIENT.hears(failed(4, TOO_MANY_REQUESTS, OVERLOADED)),
        CLIENT.hears(failed(5, TOO_MANY_REQUESTS, OVERLOADED)),
        BROKER.hears(ping()),
        *looked_up(6),
    )
    assert stage.number("shed_requests_total", protocol="binary") == 3
    assert stage.number("requests_total", protocol="binary", kind="other", code="503") == 3


async def test_overload_refuses_new_connections(start: Start) -> None:
    stage = await start()
    overload(stage)
    await stage.connect()
    await stage.play(CLIENT.says(connect()), CLIENT.hears(error(TOO_MANY_REQUESTS, OVERLOADED)), CLIENT.is_left)
    assert stage.number("shed_requests_total", protocol="binary") == 1
