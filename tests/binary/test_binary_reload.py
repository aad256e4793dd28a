"""A new config on old connections: what is asked from then on is decided by it."""

import socket
from pathlib import Path

import pytest
import trustme
from playbooks import (
    BROKER,
    CLIENT,
    FOLLOW,
    HELLO,
    OTHER,
    ScriptedBroker,
    Start,
    answered,
    followed,
    looked_up,
    redirected,
)
from tls_helpers import client_context, pair_files
from wires import free_port
from words import CLOSE_PRODUCER, closed, found, lookup, producer, send

from pulsar_ingress_proxy.tools.preflight import CannotStart


async def test_reload_applies_to_the_next_lookup_and_not_to_one_under_way(start: Start, other: ScriptedBroker) -> None:
    """One that was asked before keeps what it began with."""
    stage = await start()
    await stage.play(*HELLO, *looked_up(1))
    await stage.reload(bindAddresses=["partner:pulsar://127.0.0.1:0"])
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


async def test_addresses_pushed_after_a_reload_are_on_the_new_listener(start: Start, other: ScriptedBroker) -> None:
    stage = await start()
    await stage.play(*HELLO, *looked_up(1))
    await stage.reload(bindAddresses=["partner:pulsar://127.0.0.1:0"])
    partner = other.outer("pulsar", "partner"), other.outer("pulsar+ssl", "partner")
    await stage.play(BROKER.says(closed(CLOSE_PRODUCER, other.inner())), CLIENT.hears(closed(CLOSE_PRODUCER, *partner)))


async def test_reloaded_advertised_listeners_apply_to_the_next_lookup_answer(
    start: Start, other: ScriptedBroker
) -> None:
    stage = await start()
    await stage.play(*HELLO)
    line = {"broker": f"{other.name}.pulsar.svc.cluster.local", "listeners": "external:pulsar://moved.example:6650"}
    await stage.reload(advertisedListeners=[line])
    await stage.play(
        *looked_up(1),
        BROKER.says(found(1, other.inner())),
        CLIENT.hears(found(1, "pulsar://moved.example:6650")),
    )


async def test_reloaded_limits_apply_from_the_next_connection_on(start: Start) -> None:
    stage = await start()
    await stage.play(*HELLO)
    await stage.reload(limits={"connections": 1})
    client = await stage.connect()
    assert b"too-many-connections" in await client.hear()


async def test_open_connection_can_still_look_up_after_reload_removes_the_last_binary_socket(
    start: Start, broker: ScriptedBroker, other: ScriptedBroker
) -> None:
    """It may still ask, and be redirected, though the config names no broker for that any more."""
    stage = await start()
    await stage.play(*HELLO, CLIENT.says(producer()), BROKER.hears(producer()))
    await stage.reload(
        bindAddresses=["http://127.0.0.1:0"],
        brokers={"webServiceUrl": ["http://127.0.0.1:1"]},
        redirects=FOLLOW,
        lookupListenerName="external",
        drainSeconds=60,
    )
    await stage.play(
        *redirected(1, other),
        *followed(1),
        *answered(1, other, by=OTHER),
        CLIENT.leaves,
    )


async def test_reload_can_switch_a_bind_address_to_tls_without_ending_open_connections(
    start: Start, tmp_path: Path
) -> None:
    """Who is inside stays; who comes from then on speaks TLS. Where that cannot be, all is as it was."""
    port = free_port()
    stage = await start(bindAddresses=[f"external:pulsar://127.0.0.1:{port}"])
    await stage.play(*HELLO, CLIENT.says(producer()), BROKER.hears(producer()))
    first = dict(stage.wires)
    authority = trustme.CA()
    pair = pair_files(tmp_path, authority.issue_cert("pulsar.example.com"))
    secure = f"external:pulsar+ssl://127.0.0.1:{port}"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        other = f"external:pulsar://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(CannotStart):
            await stage.reload(bindAddresses=[secure, other], tls=pair, drainSeconds=60)
    await stage.connect()
    await stage.play(*HELLO)
    await stage.reload(bindAddresses=[secure], tls=pair, drainSeconds=60)
    await stage.connect(client_context(authority), "pulsar.example.com")
    await stage.play(*HELLO)
    stage.wires = first
    await stage.play(CLIENT.says(send()), BROKER.hears(send()), CLIENT.leaves)
