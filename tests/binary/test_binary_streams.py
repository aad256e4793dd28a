"""Streams as they are: any frames, in any order and any pieces, pass byte for byte, no faster than they are taken."""

import asyncio
import random

import pytest
from playbooks import BROKER, CLIENT, FOLLOW, HELLO, OTHER, FrameWire, ScriptedBroker, Start, followed, looked_up
from standstill import settled
from words import (
    PARTITIONS,
    TOPIC,
    command,
    failed,
    found,
    framed,
    lookup,
    message,
    ping,
    producer,
    read,
    redirect,
    send,
)

MIB = 1 << 20


def untouched(choose: random.Random) -> bytes:
    """A frame that is nobody's business."""
    kind = choose.choice([6, 9, 7, 10, 11, 18, 19, 20, 30, 33, 35, 40, 100, 4711])
    body = choose.randbytes(choose.choice([0, 1, 20, 127, 128, 300, 70_000]))
    payload = choose.randbytes(choose.choice([0, 0, 1, 1000, 100_000])) if kind in (6, 9) else b""
    return command(kind, body, payload)


async def send_in_pieces(wire: FrameWire, stream: bytes, choose: random.Random) -> None:
    at = 0
    while at < len(stream):
        size = choose.choice([1, 2, 3, 7, 8, 9, 13, 100, 1000, 50_000, 300_000])
        await wire.send_slowly(stream[at : at + size])
        at += size
        if choose.random() < 0.3:
            await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(6))
async def test_frames_other_than_lookups_pass_byte_for_byte_in_both_directions(
    start: Start, broker: ScriptedBroker, seed: int
) -> None:
    """Both ways at once, with lookups and their answers in between."""
    choose = random.Random(seed)
    stage = await start()
    await stage.play(*HELLO)
    said, heard_by_broker, answered, heard_by_client = b"", b"", b"", b""
    for number in range(40):
        frame = untouched(choose)
        said, heard_by_broker = said + frame, heard_by_broker + frame
        if choose.random() < 0.3:
            said, heard_by_broker = said + lookup(number), heard_by_broker + lookup(number, "external")
        frame = untouched(choose)
        answered, heard_by_client = answered + frame, heard_by_client + frame
        if choose.random() < 0.3:
            answered += found(number, broker.inner())
            heard_by_client += found(number, broker.outer(), broker.outer("pulsar+ssl"))
    speaking = (send_in_pieces(stage.client, said, choose), send_in_pieces(stage.broker, answered, choose))
    hearing = (stage.broker.take(len(heard_by_broker)), stage.client.take(len(heard_by_client)))
    _, _, at_broker, at_client = await asyncio.gather(*speaking, *hearing)
    assert at_broker == heard_by_broker
    # A lookup's answer may be known to have been asked for by now, or not yet; either way it is put on the listener.
    assert at_client == heard_by_client


async def send_to_stalled(sender: FrameWire, receiver: FrameWire, frame: bytes, count: int) -> None:
    """Send more than is taken while the other side does not read, and then let it read all of that."""
    receiver.stall()
    sent = 0

    async def send_all() -> None:
        nonlocal sent
        for _ in range(count):
            await sender.send_slowly(frame)
            sent += len(frame)

    sending = asyncio.create_task(send_all())
    await settled(lambda: sent)
    assert sent < 40 * MIB  # the system's own buffers take the most of it
    receiver.resume()
    for _ in range(count):
        assert await receiver.hear() == frame
    await sending


@pytest.mark.parametrize("size", [1000, 5 * MIB])
async def test_sender_is_held_back_while_the_receiver_does_not_read(start: Start, size: int) -> None:
    """Both ways: what waits in between is bounded, and all of it comes in the end."""
    stage = await start()
    await stage.play(*HELLO, CLIENT.says(producer()), BROKER.hears(producer()))
    frame, count = send(random.randbytes(size)), 60 * MIB // size
    await send_to_stalled(stage.client, stage.broker, frame, count)
    await send_to_stalled(stage.broker, stage.client, frame, count)


async def test_refusal_of_a_lookup_waits_for_the_end_of_the_brokers_frame(start: Start) -> None:
    """A lookup is refused while the broker is in the midst of a message, and others follow that."""
    stage = await start()
    large = send(random.randbytes(100_000))
    await stage.play(*HELLO, BROKER.says(large[:50_000]))
    begun = await stage.client.take(50_000)
    await stage.play(CLIENT.says(lookup(3, "internal") + ping()), BROKER.hears(ping()))
    stage.broker.send(large[50_000:] + large[:10])
    assert begun + await stage.client.take(50_000 + len(large) - 100_000) == large
    text = "not-allowed: listener 'internal' may not be named through this socket"
    assert await stage.client.hear() == failed(3, 22, text)
    stage.broker.send(large[10:])
    assert await stage.client.hear() == large


async def test_answer_of_a_followed_redirect_waits_for_the_end_of_the_brokers_frame(
    start: Start, other: ScriptedBroker
) -> None:
    stage = await start(redirects=FOLLOW)
    large = send(random.randbytes(100_000))
    await stage.play(
        *HELLO,
        *looked_up(1),
        BROKER.says(redirect(1, other.inner()) + large[:60_000]),
        *followed(1),
        OTHER.says(found(1, other.inner())),
        OTHER.is_left,
        BROKER.says(large[60_000:] + large),
        CLIENT.hears(large),
        CLIENT.hears(found(1, other.outer(), other.outer("pulsar+ssl"))),
        CLIENT.hears(large),
    )


async def test_lookup_hidden_behind_another_command_type_is_tagged_and_loses_its_principal(start: Start) -> None:
    """Of two types the last counts, and what is left of the other is put in order."""
    stage = await start()
    hidden = framed(message(f1=6, f6=message(f1=1, f2=2)) + lookup(4, f4="admin")[8:])
    await stage.play(*HELLO, CLIENT.says(hidden))
    heard = await stage.broker.hear()
    assert b"admin" not in heard
    assert b"external" in heard


async def test_principal_hidden_behind_another_command_type_is_removed(start: Start) -> None:
    stage = await start()
    asked = command(PARTITIONS, message(f1=TOPIC, f2=1, f3="admin"))
    await stage.play(*HELLO, CLIENT.says(framed(message(f1=18) + asked[8:])))
    heard = await stage.broker.hear()
    assert b"admin" not in heard
    assert read(heard[8:])[1] == [PARTITIONS]
