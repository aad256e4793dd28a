"""Every answer that carries a broker's address is put on the listener, or is a leak and treated as `leaks` says."""

import pytest
from playbooks import BROKER, CLIENT, HELLO, ScriptedBroker, Start, looked_up
from words import (
    CLOSE_CONSUMER,
    CLOSE_PRODUCER,
    FAILED,
    METADATA_ERROR,
    PUSHES,
    Push,
    closed,
    command,
    coordinators,
    failed,
    found,
    lookup,
    message,
    migrated,
    ping,
    pong,
    rewritten,
)

from pulsar_ingress_proxy.binary.commands import CARRIERS

STRANGER = "pulsar://nobody.pulsar.svc.cluster.local:6650"
PUBLIC_STRANGER = "pulsar://stranger.nowhere.test:6650"
both_strangers = pytest.mark.parametrize("stranger", [STRANGER, PUBLIC_STRANGER], ids=["inside", "public"])
every_push = pytest.mark.parametrize("push", PUSHES.values(), ids=PUSHES)


def test_carriers_table_lists_every_command_that_carries_a_broker_address() -> None:
    """Those that PulsarApi.proto of 5.0 has, and the lookup's own."""
    assert sorted(CARRIERS) == [15, 16, 24, 68, 71, 80]


@every_push
async def test_pushed_internal_addresses_are_rewritten_to_the_listener(
    start: Start, other: ScriptedBroker, push: Push
) -> None:
    stage = await start()
    expected = rewritten(push, other.outer(), other.outer("pulsar+ssl"))
    await stage.play(*HELLO, BROKER.says(push(other.inner(), None)), CLIENT.hears(expected))
    assert stage.number("leaks_total") == 0
    assert stage.events == []


@every_push
async def test_pushed_addresses_already_on_the_listener_are_kept(
    start: Start, other: ScriptedBroker, push: Push
) -> None:
    stage = await start()
    said = push(other.outer(), other.outer("pulsar+ssl"))
    await stage.play(*HELLO, BROKER.says(said), CLIENT.hears(said))


@both_strangers
@every_push
async def test_pushed_address_that_cannot_be_mapped_passes_and_counts_as_a_leak(
    start: Start, push: Push, stranger: str
) -> None:
    stage = await start()
    said = push(stranger, None)
    await stage.play(*HELLO, BROKER.says(said), CLIENT.hears(said))
    assert stage.number("leaks_total", listener="external", where="binary", action="passed") == 1
    (event,) = stage.events
    assert (event["kind"], event["protocol"], event["leak"]) == ("other", "binary", "binary")


BLOCKED: dict[str, tuple[Push, bytes | None]] = {
    "CloseProducer": (PUSHES["CloseProducer"], closed(CLOSE_PRODUCER)),
    "CloseConsumer": (PUSHES["CloseConsumer"], closed(CLOSE_CONSUMER)),
    "TopicMigrated": (migrated, None),
    "WatchTcAssignmentsUpdate": (coordinators, coordinators(None, None)),
}


@both_strangers
@pytest.mark.parametrize(("push", "left"), BLOCKED.values(), ids=BLOCKED)
async def test_unmapped_pushed_address_is_removed_or_withheld_when_leaks_are_blocked(
    start: Start, push: Push, left: bytes | None, stranger: str
) -> None:
    """Without an address the client looks the topic up again; without a migration it stays."""
    stage = await start(leaks="block")
    heard = [CLIENT.hears(left)] if left is not None else []
    await stage.play(*HELLO, BROKER.says(push(stranger, None)), *heard, BROKER.says(ping()), CLIENT.hears(ping()))
    assert stage.number("leaks_total", where="binary", action="blocked") == 1


@every_push
async def test_pushed_internal_address_passes_and_is_counted_when_leaks_are_observed(
    start: Start, other: ScriptedBroker, push: Push
) -> None:
    stage = await start(leaks="observe")
    said = push(other.inner(), None)
    await stage.play(*HELLO, BROKER.says(said), CLIENT.hears(said))
    assert stage.number("leaks_total", where="binary", action="observed") == 1


async def test_close_producer_without_an_address_passes_unchanged(start: Start) -> None:
    stage = await start()
    await stage.play(*HELLO, BROKER.says(closed(CLOSE_PRODUCER)), CLIENT.hears(closed(CLOSE_PRODUCER)))


async def test_pushed_addresses_are_on_the_listener_that_the_client_named(start: Start, other: ScriptedBroker) -> None:
    stage = await start()
    await stage.play(
        *HELLO,
        CLIENT.says(lookup(1, "partner")),
        BROKER.hears(lookup(1, "partner")),
        BROKER.says(closed(CLOSE_PRODUCER, other.inner())),
        CLIENT.hears(closed(CLOSE_PRODUCER, other.outer("pulsar", "partner"), other.outer("pulsar+ssl", "partner"))),
    )


async def test_command_of_an_unknown_type_passes_and_is_counted_by_its_sender_and_type(start: Start) -> None:
    stage = await start()
    later, much_later = command(82, message(f1="pulsar://inside:6650")), command(4711)
    await stage.play(
        *HELLO,
        BROKER.says(later + much_later + later + ping()),
        *(CLIENT.hears(frame) for frame in (later, much_later, later, ping())),
        CLIENT.says(later + much_later + pong()),
        *(BROKER.hears(frame) for frame in (later, much_later, pong())),
    )
    assert {
        (sender, kind): stage.number("unknown_commands_total", sender=sender, type=kind)
        for sender in ("broker", "client")
        for kind in ("82", "other")
    } == {("broker", "82"): 2, ("broker", "other"): 1, ("client", "82"): 1, ("client", "other"): 1}
    assert stage.number("unknown_commands_total") == 5


# The answer to a lookup.


async def test_lookup_answer_on_another_listener_is_rewritten_to_the_right_one(
    start: Start, other: ScriptedBroker
) -> None:
    """As concurrent lookups of some versions get it (apache/pulsar#26244)."""
    stage = await start()
    wrong = found(1, other.outer("pulsar", "partner"), other.outer("pulsar+ssl", "partner"))
    await stage.play(
        *HELLO,
        *looked_up(1),
        BROKER.says(wrong),
        CLIENT.hears(found(1, other.outer(), other.outer("pulsar+ssl"))),
    )
    assert stage.number("leaks_total") == 0


LEAKS = {"rewrite": "passed", "observe": "observed", "block": "blocked"}


@both_strangers
@pytest.mark.parametrize(("leaks", "action"), LEAKS.items(), ids=LEAKS)
async def test_unmapped_lookup_answer_is_passed_observed_or_blocked_as_leaks_says(
    start: Start, leaks: str, action: str, stranger: str
) -> None:
    stage = await start(leaks=leaks)
    text = "leak: the broker's answer has an address that is not on listener 'external'"
    refused = failed(1, METADATA_ERROR, text)
    await stage.play(
        *HELLO,
        *looked_up(1),
        BROKER.says(found(1, stranger)),
        CLIENT.hears(refused if leaks == "block" else found(1, stranger)),
    )
    assert stage.number("leaks_total", listener="external", where="binary", action=action) == 1
    assert stage.events[0]["leak"] == "binary"


async def test_lookup_answer_passes_unchanged_when_leaks_are_only_observed(start: Start, other: ScriptedBroker) -> None:
    stage = await start(leaks="observe")
    await stage.play(
        *HELLO,
        *looked_up(1),
        BROKER.says(found(1, other.inner())),
        CLIENT.hears(found(1, other.inner())),
    )
    assert stage.number("leaks_total", where="binary", action="observed") == 1


async def test_plain_url_field_may_take_the_tls_address_but_tls_field_never_a_plain_one(
    start: Start, broker: ScriptedBroker
) -> None:
    """A plain field takes the TLS address, as over HTTP; a TLS field never takes a plain one."""
    tls, plain = "pulsar+ssl://b.tls.example:6651", "pulsar://b.plain.example:6650"
    line = {"broker": "b.svc", "listeners": f"internal:{broker.url},tls:{tls},plain:{plain}"}
    stage = await start(bindAddresses=["tls:pulsar://127.0.0.1:0"], advertisedListeners=[line])
    await stage.play(
        *HELLO,
        CLIENT.says(lookup(1) + lookup(2, "plain")),
        BROKER.hears(lookup(1, "tls")),
        BROKER.hears(lookup(2, "plain")),
        BROKER.says(found(1, broker.url) + found(2, broker.url, tls)),
        CLIENT.hears(found(1, tls, tls)),
        CLIENT.hears(found(2, plain)),
    )


async def test_unsolicited_lookup_answer_is_rewritten_to_the_listener(start: Start, other: ScriptedBroker) -> None:
    stage = await start()
    await stage.play(
        *HELLO,
        BROKER.says(found(4, other.inner())),
        CLIENT.hears(found(4, other.outer(), other.outer("pulsar+ssl"))),
        BROKER.says(found(5, kind=FAILED)),
        CLIENT.hears(found(5, kind=FAILED)),
    )


@pytest.mark.parametrize("leaks", ["rewrite", "block"])
async def test_topic_migration_to_an_allowed_peer_passes_and_is_no_leak(start: Start, leaks: str) -> None:
    stage = await start(leaks=leaks, redirects={"peers": ["*.pulsar.svc.cluster.local"]})
    said = migrated(STRANGER, None)
    await stage.play(*HELLO, BROKER.says(said), CLIENT.hears(said))
    assert stage.number("leaks_total") == 0
