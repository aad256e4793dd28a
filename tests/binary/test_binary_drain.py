"""The end of a sidecar: who has nothing to lose goes at once, who has is told at the deadline."""

import asyncio
from pathlib import Path

import pytest
from playbooks import BROKER, CLIENT, HELLO, ScriptedBroker, Start, answered, looked_up
from words import (
    PARTITIONS,
    SERVICE_NOT_READY,
    command,
    connect,
    error,
    message,
    ping,
    producer,
    send,
)

GOODBYE = error(SERVICE_NOT_READY, "shutting-down: this sidecar is shutting down")
LONG = 60


async def test_connection_without_producers_closes_at_once_on_shutdown(start: Start) -> None:
    stage = await start(drainSeconds=LONG)
    await stage.play(*HELLO)
    async with asyncio.timeout(5):
        await stage.sidecar.stop()
    await stage.play(CLIENT.hears(GOODBYE), CLIENT.is_left, BROKER.is_left)


async def test_connection_closes_on_shutdown_once_its_pending_lookup_is_answered(
    start: Start, broker: ScriptedBroker
) -> None:
    stage = await start(drainSeconds=LONG)
    await stage.play(*HELLO, *looked_up(1))
    stopping = asyncio.create_task(stage.sidecar.stop())
    await stage.play(
        CLIENT.says(ping()),
        BROKER.hears(ping()),
        *answered(1, broker),
        CLIENT.hears(GOODBYE),
        CLIENT.is_left,
    )
    async with asyncio.timeout(5):
        await stopping


async def test_connection_without_a_finished_handshake_closes_at_once_on_shutdown(start: Start) -> None:
    stage = await start(drainSeconds=LONG)
    await stage.connect()
    await stage.play(CLIENT.says(connect()), BROKER.hears(connect()))
    async with asyncio.timeout(5):
        await stage.sidecar.stop()
    await stage.play(CLIENT.hears(GOODBYE), CLIENT.is_left, BROKER.is_left)


async def test_producer_connection_stays_open_on_shutdown_until_the_client_leaves(start: Start) -> None:
    stage = await start(drainSeconds=LONG)
    port = stage.port
    await stage.play(*HELLO, CLIENT.says(producer()), BROKER.hears(producer()))
    stopping = asyncio.create_task(stage.sidecar.stop())
    await stage.play(CLIENT.says(send()), BROKER.hears(send()), BROKER.says(ping()), CLIENT.hears(ping()))
    assert not stopping.done()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    stage.client.close()
    async with asyncio.timeout(5):
        await stopping


async def test_producer_connection_is_closed_with_a_reason_after_drain_seconds(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    stage = await start(drainSeconds=0.05)
    await stage.play(*HELLO, CLIENT.says(producer()), BROKER.hears(producer()))
    await stage.sidecar.stop()
    await stage.play(CLIENT.hears(GOODBYE), CLIENT.is_left, BROKER.is_left)
    assert "external:pulsar://127.0.0.1:0: closing 1 connections that did not drain within drainSeconds" in caplog.text


async def test_shutdown_error_is_not_sent_in_the_middle_of_a_frame(start: Start) -> None:
    stage = await start(drainSeconds=0.05)
    await stage.play(*HELLO, CLIENT.says(producer()), BROKER.hears(producer()), BROKER.says(send(b"x" * 1000)[:500]))
    assert await stage.client.take(500) == send(b"x" * 1000)[:500]
    await stage.sidecar.stop()
    await stage.play(CLIENT.is_left, BROKER.is_left)


async def test_client_that_does_not_read_does_not_delay_shutdown(start: Start) -> None:
    stage = await start(drainSeconds=0.05)
    await stage.play(*HELLO, CLIENT.says(producer()), BROKER.hears(producer()))
    stage.client.stall()
    for _ in range(16):
        stage.broker.send(send(bytes(1 << 20)))
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await stage.sidecar.stop()
    await stage.broker.end()


async def test_connections_of_a_bind_address_removed_by_reload_are_drained(start: Start, tmp_path: Path) -> None:
    stage = await start(bindAddresses=["external:pulsar://127.0.0.1:0", "partner:pulsar://localhost:0"])
    await stage.connect(bind=1)
    await stage.play(*HELLO)
    await stage.reload(bindAddresses=["external:pulsar://127.0.0.1:0"])
    await stage.play(CLIENT.hears(GOODBYE), CLIENT.is_left)


ASKED = {
    "partitions": (command(PARTITIONS, message(f1="t", f2=9)), command(22, message(f1=3, f2=9))),
    "topics": (command(32, message(f1=9, f2="public/default")), command(33, message(f1=9, f2=["t"] * 1000))),
    "a schema": (command(34, message(f1=9, f2="t")), command(35, message(f1=9))),
    "a new schema": (command(39, message(f1=9, f2="t")), command(40, message(f1=9))),
    "what fails": (command(32, message(f1=9, f2="public/default")), error(1, "no", request=9)),
}


@pytest.mark.parametrize(("question", "answer"), ASKED.values(), ids=ASKED)
async def test_connection_closes_on_shutdown_once_other_pending_requests_are_answered(
    start: Start, question: bytes, answer: bytes
) -> None:
    stage = await start(drainSeconds=LONG)
    await stage.play(*HELLO, CLIENT.says(question), BROKER.hears(question))
    stopping = asyncio.create_task(stage.sidecar.stop())
    half = len(answer) // 2
    await stage.play(CLIENT.says(ping()), BROKER.hears(ping()), BROKER.says(answer[:half]))
    stage.broker.send(answer[half:])
    await stage.play(CLIENT.hears(answer), CLIENT.hears(GOODBYE), CLIENT.is_left)
    async with asyncio.timeout(5):
        await stopping
