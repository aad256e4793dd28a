"""What sessions hold is charged to one budget (limits.bufferBytes).

That all of it is given back in the end is asserted wherever a sidecar is stopped.
"""

import pytest
from playbooks import BROKER, CLIENT, HELLO, Stage, Start
from standstill import settled
from words import TOO_MANY_REQUESTS, connect, error, failed, found, lookup, send

from pulsar_ingress_proxy.memory import KIB, MIB

LIMITS = {"bufferBytes": 256 * KIB}
LONG = "persistent://public/default/" + "x" * 30_000
EXCESS = "overloaded: more is under way than limits.inFlight and limits.bufferBytes allow"


def used(stage: Stage) -> int:
    return stage.sidecar._context.buffers.used


async def test_lookup_beyond_buffer_bytes_fails_until_waiting_ones_are_answered(start: Start) -> None:
    stage = await start(limits=LIMITS)
    await stage.play(
        *HELLO,
        CLIENT.says(lookup(1, topic=LONG)),
        BROKER.hears(lookup(1, "external", topic=LONG)),
        CLIENT.says(lookup(2, topic=LONG)),
        BROKER.hears(lookup(2, "external", topic=LONG)),
        CLIENT.says(lookup(3, topic=LONG)),
        CLIENT.hears(failed(3, TOO_MANY_REQUESTS, EXCESS)),
    )
    assert used(stage) <= 256 * KIB
    await stage.play(
        BROKER.says(found(1)), CLIENT.hears(found(1)),
        CLIENT.says(lookup(4, topic=LONG)),
        BROKER.hears(lookup(4, "external", topic=LONG)),
        BROKER.says(found(2)), CLIENT.hears(found(2)),
        BROKER.says(found(4)), CLIENT.hears(found(4)),
    )  # fmt: skip
    assert stage.number("listener_misses_total", reason="overloaded", protocol="binary") == 1


async def test_connection_closes_when_an_incomplete_command_exceeds_buffer_bytes(start: Start) -> None:
    stage = await start(limits={"bufferBytes": 16 * KIB})
    await stage.play(*HELLO)
    stage.client.send(lookup(1, topic=LONG)[:-1])
    text = "overloaded: connections hold more bytes than limits.bufferBytes allows"
    await stage.play(CLIENT.hears(error(TOO_MANY_REQUESTS, text)), CLIENT.is_left, BROKER.is_left)


async def test_connection_closes_when_its_connect_command_exceeds_buffer_bytes(start: Start) -> None:
    """It may have to be said again to other brokers."""
    stage = await start(limits={"bufferBytes": 16 * KIB})
    await stage.connect()
    stage.client.send(connect(method="token", data=b"x" * 20_000))
    text = "overloaded: connections hold more bytes than limits.bufferBytes allows"
    await stage.play(CLIENT.hears(error(TOO_MANY_REQUESTS, text)), CLIENT.is_left)


@pytest.mark.parametrize("who", ["client", "broker"])
async def test_bytes_that_one_side_does_not_read_are_charged_until_it_reads_them(start: Start, who: str) -> None:
    stage = await start()
    await stage.play(*HELLO)
    reader, writer = (stage.client, stage.broker) if who == "client" else (stage.broker, stage.client)
    frame = send(b"x" * 1_000_000)
    before = used(stage)
    reader.stall()
    writer.send(20 * frame)  # more than the system takes
    await settled(lambda: used(stage), lambda: reader.total)
    assert before < used(stage) < before + MIB
    reader.resume()
    await reader.take(20 * len(frame))
    await settled(lambda: used(stage))
    assert used(stage) == before


async def test_connection_ends_when_client_does_not_read_and_buffer_bytes_are_used_up(start: Start) -> None:
    stage = await start(limits={"bufferBytes": 64 * KIB})
    await stage.play(*HELLO)
    stage.client.stall()
    others = 64 * KIB - used(stage)
    assert stage.sidecar._context.buffers.take(others)
    stage.broker.send(20 * send(b"x" * 1_000_000))
    await stage.broker.end()
    stage.sidecar._context.buffers.give_back(others)
