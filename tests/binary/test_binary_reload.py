"""A new config on old connections: what is asked from then on is decided by it."""

from typing import Any

from playbooks import BROKER, CLIENT, HELLO, ScriptedBroker, Stage, Start
from words import CLOSE_PRODUCER, closed, found, lookup

from proxy.config import load_mapping


async def reloaded(stage: Stage, **keys: Any) -> None:
    """Put the same config in force, with other keys."""
    broker, other = stage.brokers["broker"], stage.brokers["other"]
    config = {
        "bindAddresses": ["external:pulsar://127.0.0.1:0"],
        "metrics": {"address": "127.0.0.1:0"},
        "console": {"address": "127.0.0.1:0"},
        "brokers": {"brokerServiceUrl": [broker.url]},
        "advertisedListeners": [one.line("external", "partner") for one in (broker, other)],
        "drainSeconds": 0.05,
    }
    await stage.sidecar.reload(load_mapping({**config, **keys}))


async def test_the_next_lookup_goes_by_the_new_one(start: Start, other: ScriptedBroker) -> None:
    """One that was asked before keeps what it began with."""
    stage = await start()
    await stage.play(*HELLO, CLIENT.says(lookup(1)), BROKER.hears(lookup(1, "external")))
    await reloaded(stage, bindAddresses=["partner:pulsar://127.0.0.1:0"])
    partner = other.outer("pulsar", "partner"), other.outer("pulsar+ssl", "partner")
    await stage.play(
        CLIENT.says(lookup(2)),
        BROKER.hears(lookup(2, "partner")),
        BROKER.says(found(1, other.inner()) + found(2, other.inner())),
        CLIENT.hears(found(1, other.outer(), other.outer("pulsar+ssl"))),
        CLIENT.hears(found(2, *partner)),
        BROKER.says(closed(CLOSE_PRODUCER, other.inner())),
        CLIENT.hears(closed(CLOSE_PRODUCER, *partner)),
    )
    assert [event["generation"] for event in stage.events] == [1, 2]


async def test_so_does_what_is_told_without_a_lookup(start: Start, other: ScriptedBroker) -> None:
    stage = await start()
    await stage.play(*HELLO, CLIENT.says(lookup(1)), BROKER.hears(lookup(1, "external")))
    await reloaded(stage, bindAddresses=["partner:pulsar://127.0.0.1:0"])
    partner = other.outer("pulsar", "partner"), other.outer("pulsar+ssl", "partner")
    await stage.play(BROKER.says(closed(CLOSE_PRODUCER, other.inner())), CLIENT.hears(closed(CLOSE_PRODUCER, *partner)))


async def test_the_address_book_may_change(start: Start, other: ScriptedBroker) -> None:
    stage = await start()
    await stage.play(*HELLO)
    line = {"broker": f"{other.name}.pulsar.svc.cluster.local", "listeners": "external:pulsar://moved.example:6650"}
    await reloaded(stage, advertisedListeners=[line])
    await stage.play(
        CLIENT.says(lookup(1)),
        BROKER.hears(lookup(1, "external")),
        BROKER.says(found(1, other.inner())),
        CLIENT.hears(found(1, "pulsar://moved.example:6650")),
    )


async def test_limits_hold_from_the_next_connection_on(start: Start) -> None:
    stage = await start()
    await stage.play(*HELLO)
    await reloaded(stage, limits={"connections": 1})
    client = await stage.connect()
    assert b"too-many-connections" in await client.hear()
