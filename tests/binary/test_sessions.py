"""A client's connection gets one to a broker, and everything that is not a lookup passes, byte for byte."""

import asyncio
from typing import Any

import pytest
from playbooks import BROKER, CLIENT, HELLO, KEEPALIVE, OTHER, ScriptedBroker, Start, hello
from words import (
    AUTH_RESPONSE,
    NOT_ALLOWED,
    SERVICE_NOT_READY,
    body,
    challenge,
    command,
    connect,
    connected,
    error,
    found,
    lookup,
    message,
    ping,
    pong,
    producer,
    send,
)


async def test_keepalive_is_end_to_end(start: Start) -> None:
    stage = await start()
    await stage.play(
        *HELLO,
        *KEEPALIVE,
        BROKER.says(ping()),
        CLIENT.hears(ping()),
        CLIENT.says(pong()),
        BROKER.hears(pong()),
    )
    assert stage.events == []


async def test_messages_unknown_commands_and_newer_connects_pass_unchanged(start: Start) -> None:
    stage = await start()
    newer = connect(f4=99, f12="a field of tomorrow")
    tomorrow = command(4711, message(f1="what", f2=7), b"a payload")
    large = send(bytes(range(256)) * 4096)
    await stage.play(
        *hello(newer),
        CLIENT.says(producer() + tomorrow + large),
        BROKER.hears(producer()),
        BROKER.hears(tomorrow),
        BROKER.hears(large),
        BROKER.says(tomorrow + large),
        CLIENT.hears(tomorrow),
        CLIENT.hears(large),
    )


async def test_closing_either_side_closes_the_other(start: Start) -> None:
    stage = await start()
    await stage.play(*HELLO, BROKER.says(pong()), BROKER.leaves, CLIENT.hears(pong()), CLIENT.is_left)
    await stage.connect()
    await stage.play(*HELLO, CLIENT.says(ping()), CLIENT.leaves, BROKER.hears(ping()), BROKER.is_left)
    assert stage.number("connections", protocol="binary") == 0


async def test_next_broker_is_tried_when_one_is_unreachable(
    start: Start, broker: ScriptedBroker, other: ScriptedBroker
) -> None:
    broker.refuse()
    stage = await start(brokers={"brokerServiceUrl": [broker.url, other.url]})
    for _ in range(3):
        await stage.connect()
        await stage.play(*hello(to=OTHER))
    assert stage.number("upstream_errors_total", reason="broker-unreachable") == 1  # after which it is asked last


@pytest.mark.parametrize("answer", [None, error(SERVICE_NOT_READY, "starting")], ids=["hangs up", "is not ready"])
async def test_next_broker_is_tried_when_one_hangs_up_or_is_not_ready(
    start: Start, broker: ScriptedBroker, other: ScriptedBroker, answer: bytes | None
) -> None:
    """Whichever is asked first: the other gets the CONNECT too, and the client notices nothing."""
    stage = await start(brokers={"brokerServiceUrl": [broker.url, other.url]})
    client = await stage.connect()
    client.send(connect())
    accepting = [asyncio.create_task(one.accept()) for one in (broker, other)]
    (first,), (second,) = await asyncio.wait(accepting, return_when=asyncio.FIRST_COMPLETED)
    wire = first.result()
    assert await wire.hear() == connect()
    if answer is not None:
        wire.send(answer)
    else:
        wire.close()
    next_wire = await second
    assert await next_wire.hear() == connect()
    next_wire.send(connected())
    assert await client.hear() == connected()


async def test_next_broker_is_tried_when_one_does_not_answer_in_time(
    start: Start, broker: ScriptedBroker, other: ScriptedBroker
) -> None:
    stage = await start(brokers={"brokerServiceUrl": [broker.url, other.url]}, timeouts={"connect": 0.05})
    client = await stage.connect()
    client.send(connect())
    accepting = [asyncio.create_task(one.accept()) for one in (broker, other)]
    _, (second,) = await asyncio.wait(accepting, return_when=asyncio.FIRST_COMPLETED)
    wire = await second
    assert await wire.hear() == connect()
    wire.send(connected())
    assert await client.hear() == connected()
    assert stage.number("upstream_errors_total", reason="broker-timeout") == 1


async def test_broker_refusal_of_a_connect_is_passed_on_to_the_client(
    start: Start, broker: ScriptedBroker, other: ScriptedBroker
) -> None:
    stage = await start(brokers={"brokerServiceUrl": [broker.url]})
    refused = error(3, "Failed to authenticate")
    await stage.play(
        CLIENT.says(connect()),
        BROKER.hears(connect()),
        BROKER.says(refused),
        BROKER.leaves,
        CLIENT.hears(refused),
        CLIENT.is_left,
    )
    assert other.wires == []


async def test_client_gets_service_not_ready_when_no_broker_is_reachable(start: Start, broker: ScriptedBroker) -> None:
    """ServiceNotReady is right here: the client should come again."""
    broker.refuse()
    stage = await start()
    text = "broker-unreachable: no connection to a broker could be made"
    await stage.play(CLIENT.says(connect()), CLIENT.hears(error(SERVICE_NOT_READY, text)), CLIENT.is_left)
    assert stage.number("requests_total", kind="other", protocol="binary", code="502") == 1
    assert stage.number("upstream_errors_total", reason="broker-unreachable") == 1


async def test_multi_step_authentication_passes_between_client_and_broker(start: Start) -> None:
    stage = await start()
    asked = challenge("sasl", version=21)
    proof = command(AUTH_RESPONSE, message(f1="c", f2=message(f1="sasl", f2="proof"), f3=21))
    await stage.play(
        CLIENT.says(connect(method="sasl")),
        BROKER.hears(connect(method="sasl")),
        BROKER.says(asked),
        CLIENT.hears(asked),
        CLIENT.says(proof),
        BROKER.hears(proof),
        BROKER.says(connected()),
        CLIENT.hears(connected()),
    )


async def test_frames_sent_before_connected_reach_the_broker_in_order(start: Start) -> None:
    stage = await start()
    await stage.play(
        CLIENT.says(connect() + ping() + producer()),
        BROKER.hears(connect()),
        BROKER.says(connected() + pong()),
        CLIENT.hears(connected()),
        CLIENT.hears(pong()),
        BROKER.hears(ping()),
        BROKER.hears(producer()),
    )


async def test_connection_closes_when_first_command_is_not_connect(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    stage = await start()
    await stage.play(
        CLIENT.says(ping()),
        CLIENT.hears(error(NOT_ALLOWED, "bad-frame: the first command is not CONNECT")),
        CLIENT.is_left,
    )
    assert "the first command is not CONNECT" in caplog.text


async def test_connection_closes_when_client_sends_second_connect(start: Start) -> None:
    stage = await start()
    await stage.play(
        *HELLO,
        CLIENT.says(connect(f7="admin")),
        CLIENT.hears(error(NOT_ALLOWED, "bad-frame: a second CONNECT")),
        CLIENT.is_left,
        BROKER.is_left,
    )


@pytest.mark.parametrize(
    "keys", [{"shadow": True}, {"ingresses": [{"name": "public", "listener": "external", "shadow": True}]}]
)
async def test_shadow_mode_counts_decisions_but_tags_no_lookup_and_rewrites_no_answer(
    start: Start, broker: ScriptedBroker, keys: dict[str, Any]
) -> None:
    stage = await start(**keys)
    await stage.play(
        *HELLO,
        CLIENT.says(lookup(1, "nobody")),
        BROKER.hears(lookup(1, "nobody")),
        BROKER.says(found(1, broker.inner())),
        CLIENT.hears(found(1, broker.inner())),
        CLIENT.says(lookup(2, f4="admin")),
        BROKER.hears(lookup(2)),
        BROKER.says(found(2, broker.inner())),
        CLIENT.hears(found(2, broker.inner())),
    )
    assert stage.number("listener_misses_total", reason="unknown-listener", protocol="binary") == 1
    assert stage.number("listener_hits_total", listener="external", protocol="binary") == 1
    assert stage.number("leaks_total", where="binary", action="observed") == 1


async def test_refusal_by_the_sidecar_follows_directly_after_the_brokers_current_frame(start: Start) -> None:
    stage = await start(clientListenerName="reject")
    whole = send(b"x" * 1000)
    await stage.play(*HELLO, BROKER.says(whole[:500]))
    assert await stage.client.take(500) == whole[:500]
    await stage.play(CLIENT.says(lookup(1, "partner") + ping()), BROKER.hears(ping()), BROKER.says(whole[500:]))
    assert await stage.client.take(len(whole) - 500) == whole[500:]
    assert body(await stage.client.hear())[4] == [1]


async def test_all_brokers_are_asked_until_one_answers(start: Start, broker: ScriptedBroker) -> None:
    nobody = [f"pulsar://127.0.0.1:{port}" for port in (1, 2, 3, 4, 5)]
    for _ in range(3):  # in whichever order
        stage = await start(brokers={"brokerServiceUrl": [*nobody, broker.url]})
        await stage.play(*HELLO)


@pytest.mark.parametrize("keys", [{"shadow": True}, {"leaks": "observe"}], ids=["shadow", "observe"])
async def test_connect_that_names_a_broker_passes_unchanged_in_shadow_and_observe_modes(
    start: Start, keys: dict[str, Any]
) -> None:
    """A proxy behind us has told the client whom to name to it."""
    stage = await start(**keys)
    named = connect(to="broker-9.pulsar.svc.cluster.local:6650")
    await stage.play(*hello(named))
