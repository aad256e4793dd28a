"""`throughSidecar`: clients are told to stay with the door, and are joined to the broker that they then name."""

import pytest
from playbooks import BROKER, CLIENT, HELLO, OTHER, ScriptedBroker, Start
from words import (
    CLOSE_PRODUCER,
    NOT_ALLOWED,
    closed,
    connect,
    connected,
    error,
    found,
    lookup,
    producer,
    redirect,
    send,
)

THROUGH = {"ingresses": [{"name": "public", "listener": "external", "throughSidecar": True}]}


def host_and_port(url: str) -> str:
    return url.partition("://")[2]


async def test_a_broker_without_an_address_outside(start: Start, other: ScriptedBroker) -> None:
    """Its own name stands in both fields: it is not for resolving, but for saying again."""
    line = {"broker": "b.pulsar.svc.cluster.local", "listeners": f"internal:{other.url}"}
    stage = await start(**THROUGH, advertisedListeners=[line])
    name = host_and_port(other.url)
    await stage.play(
        *HELLO,
        CLIENT.says(lookup(1)),
        BROKER.hears(lookup(1, "external")),
        BROKER.says(found(1, "pulsar://b.pulsar.svc.cluster.local:6650")),
        CLIENT.hears(found(1, f"pulsar://{name}", f"pulsar+ssl://{name}", through=True)),
    )
    assert stage.number("leaks_total") == 0
    await stage.connect()
    await stage.play(
        CLIENT.says(connect(to=name)),
        OTHER.hears(connect()),
        OTHER.says(connected()),
        CLIENT.hears(connected()),
        CLIENT.says(producer() + send(b"x" * 100_000)),
        OTHER.hears(producer()),
        OTHER.hears(send(b"x" * 100_000)),
    )


async def test_a_broker_that_has_one_is_called_by_it(start: Start, other: ScriptedBroker) -> None:
    """So that no name of the inside gets out."""
    stage = await start(**THROUGH)
    name = host_and_port(other.outer())
    await stage.play(
        *HELLO,
        CLIENT.says(lookup(1)),
        BROKER.hears(lookup(1, "external")),
        BROKER.says(found(1, other.outer(), other.outer("pulsar+ssl"))),
        CLIENT.hears(found(1, f"pulsar://{name}", f"pulsar+ssl://{name}", through=True)),
    )
    await stage.connect()
    await stage.play(CLIENT.says(connect(to=name)), OTHER.hears(connect()))


async def test_brokers_that_share_one_are_told_apart(
    start: Start, broker: ScriptedBroker, other: ScriptedBroker
) -> None:
    lines = [
        {"broker": f"{one.name}.svc", "listeners": f"internal:{one.url},external:pulsar://gateway.example:6650"}
        for one in (broker, other)
    ]
    stage = await start(**THROUGH, advertisedListeners=lines)
    name = host_and_port(other.url)
    await stage.play(
        *HELLO,
        CLIENT.says(lookup(1)),
        BROKER.hears(lookup(1, "external")),
        BROKER.says(found(1, other.url)),
        CLIENT.hears(found(1, f"pulsar://{name}", f"pulsar+ssl://{name}", through=True)),
    )


async def test_a_topic_that_moves_is_told_by_the_same_name(start: Start, other: ScriptedBroker) -> None:
    stage = await start(**THROUGH)
    name = host_and_port(other.outer())
    await stage.play(
        *HELLO,
        BROKER.says(closed(CLOSE_PRODUCER, other.inner())),
        CLIENT.hears(closed(CLOSE_PRODUCER, f"pulsar://{name}", f"pulsar+ssl://{name}")),
    )


async def test_redirects_are_followed(start: Start, other: ScriptedBroker) -> None:
    """Whatever `redirects` says: clients go straight to where a redirect leads, and could not get there."""
    stage = await start(**THROUGH)
    name = host_and_port(other.outer())
    await stage.play(
        *HELLO,
        CLIENT.says(lookup(1)),
        BROKER.hears(lookup(1, "external")),
        BROKER.says(redirect(1, other.inner())),
        OTHER.hears(connect()),
        OTHER.says(connected()),
        OTHER.hears(lookup(1, "external", authoritative=True)),
        OTHER.says(found(1, other.inner())),
        CLIENT.hears(found(1, f"pulsar://{name}", f"pulsar+ssl://{name}", through=True)),
    )


async def test_any_broker_will_do(start: Start) -> None:
    """What clients of 5.x mean by an empty name."""
    stage = await start(**THROUGH)
    await stage.play(CLIENT.says(connect(to="")), BROKER.hears(connect(to="")))


UNKNOWN = ("nobody.example:6650", "169.254.169.254:80", "broker-1.external.example", "b:1:2", "localhost:22")


@pytest.mark.parametrize("name", UNKNOWN)
async def test_only_brokers_that_are_known_are_dialled(start: Start, name: str) -> None:
    stage = await start(**THROUGH)
    text = "unknown-broker: the broker that was asked for is not one that is known here"
    await stage.play(CLIENT.says(connect(to=name)), CLIENT.hears(error(NOT_ALLOWED, text)), CLIENT.is_left)
    assert stage.number("requests_total", kind="other", protocol="binary", code="403") == 1


async def test_only_through_doors_that_lead_there(start: Start, other: ScriptedBroker) -> None:
    stage = await start()
    text = "not-through-here: brokers are not reached through this door: throughSidecar is not set"
    await stage.play(
        CLIENT.says(connect(to=host_and_port(other.outer()))), CLIENT.hears(error(NOT_ALLOWED, text)), CLIENT.is_left
    )
    assert other.wires == []


async def test_the_broker_that_was_named_and_no_other(
    start: Start, broker: ScriptedBroker, other: ScriptedBroker
) -> None:
    other.refuse()
    stage = await start(**THROUGH, brokers={"brokerServiceUrl": [broker.url, other.url]})
    client = await stage.connect()
    client.say(connect(to=host_and_port(other.outer())))
    assert b"broker-unreachable" in await client.hear()
    assert broker.wires == []


async def test_a_broker_that_says_so_itself_is_corrected(start: Start, other: ScriptedBroker) -> None:
    """As a standalone broker does, or Pulsar Proxy: the address is one that the client can reach."""
    stage = await start()
    await stage.play(
        *HELLO,
        CLIENT.says(lookup(1)),
        BROKER.hears(lookup(1, "external")),
        BROKER.says(found(1, other.inner(), through=True)),
        CLIENT.hears(found(1, other.outer(), other.outer("pulsar+ssl"))),
    )
