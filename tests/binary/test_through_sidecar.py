"""`throughSidecar`: clients are told to stay with this ingress, and are joined to the broker that they then name."""

from typing import Any

import pytest
from aiohttp import ClientSession
from playbooks import (
    BROKER,
    CLIENT,
    FOLLOW,
    HELLO,
    OTHER,
    ScriptedBroker,
    Start,
    followed,
    hello,
    looked_up,
    redirected,
)
from words import (
    CLOSE_PRODUCER,
    METADATA_ERROR,
    NOT_ALLOWED,
    PUSHES,
    Push,
    challenge,
    closed,
    connect,
    connected,
    error,
    failed,
    found,
    lookup,
    migrated,
    ping,
    pong,
    producer,
    redirect,
    rewritten,
    send,
)

THROUGH = {"ingresses": [{"name": "public", "listener": "external", "throughSidecar": True}]}
STRANGERS = {
    "public": "pulsar://stranger.nowhere.test:6650",
    "inside": "pulsar://nobody.pulsar.svc.cluster.local:6650",
    "no URL": "pulsar://broker_7:6650",
    "of the web": "http://stranger.nowhere.test:6650",
}
strangers = pytest.mark.parametrize("stranger", STRANGERS.values(), ids=STRANGERS)
KEYS: dict[str, dict[str, Any]] = {
    "as it is by default": {},
    "leaks: block": {"leaks": "block"},
    "leaks: observe": {"leaks": "observe"},
    "redirects: pass": {"redirects": {"lookup": "pass", "unmapped": "pass"}},
    "redirects: follow": {"redirects": FOLLOW},
    "peers": {"redirects": {"peers": ["*.nowhere.test", "*.pulsar.svc.cluster.local", "*.external.example"]}},
    "no book": {"advertisedListeners": []},
}
whatever_is_set = pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
LEAK = "leak: the broker's answer has an address that leads past this sidecar, and the ingress has throughSidecar"
UNKNOWN_AUTHORITY = (
    "unknown-authority: a broker redirects to an address that advertisedListeners lacks, "
    "and the ingress has throughSidecar"
)
CANNOT_REPEAT = (
    "auth-not-replayable: a redirect must be followed, "
    "and the client's authentication cannot be repeated to another broker"
)


def host_and_port(url: str) -> str:
    return url.partition("://")[2]


def both_schemes(name: str) -> tuple[str, str]:
    """A broker's name as URLs, for clients with and without TLS alike."""
    return f"pulsar://{name}", f"pulsar+ssl://{name}"


def through(request: int, name: str) -> bytes:
    """The answer that lets a client come to this broker through the sidecar."""
    return found(request, *both_schemes(name), through=True)


async def test_broker_without_an_external_address_is_named_and_reached_by_its_internal_one(
    start: Start, other: ScriptedBroker
) -> None:
    """Its own name stands in both fields: it is not for resolving, but for saying again."""
    line = {"broker": "b.pulsar.svc.cluster.local", "listeners": f"internal:{other.url}"}
    stage = await start(**THROUGH, advertisedListeners=[line])
    name = host_and_port(other.url)
    await stage.play(
        *HELLO,
        *looked_up(1),
        BROKER.says(found(1, "pulsar://b.pulsar.svc.cluster.local:6650")),
        CLIENT.hears(through(1, name)),
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


async def test_broker_with_an_external_address_is_named_and_reached_by_it(start: Start, other: ScriptedBroker) -> None:
    """So that no name of the inside gets out."""
    stage = await start(**THROUGH)
    name = host_and_port(other.outer())
    await stage.play(
        *HELLO,
        *looked_up(1),
        BROKER.says(found(1, other.outer(), other.outer("pulsar+ssl"))),
        CLIENT.hears(through(1, name)),
    )
    await stage.connect()
    await stage.play(CLIENT.says(connect(to=name)), OTHER.hears(connect()))


async def test_brokers_sharing_an_external_address_are_named_by_their_internal_one(
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
        *looked_up(1),
        BROKER.says(found(1, other.url)),
        CLIENT.hears(through(1, name)),
    )


async def test_close_producer_names_the_new_broker_by_its_external_address(start: Start, other: ScriptedBroker) -> None:
    stage = await start(**THROUGH)
    name = host_and_port(other.outer())
    await stage.play(
        *HELLO,
        BROKER.says(closed(CLOSE_PRODUCER, other.inner())),
        CLIENT.hears(closed(CLOSE_PRODUCER, *both_schemes(name))),
    )


async def test_redirects_are_followed_by_default_with_through_sidecar(start: Start, other: ScriptedBroker) -> None:
    """Whatever `redirects` says: clients go straight to where a redirect leads, and could not get there."""
    stage = await start(**THROUGH)
    name = host_and_port(other.outer())
    await stage.play(
        *HELLO,
        *redirected(1, other),
        *followed(1),
        OTHER.says(found(1, other.inner())),
        CLIENT.hears(through(1, name)),
    )


async def test_connect_with_an_empty_broker_name_goes_to_a_configured_broker(start: Start) -> None:
    """What clients of 5.x mean by an empty name."""
    stage = await start(**THROUGH)
    await stage.play(CLIENT.says(connect(to="")), BROKER.hears(connect(to="")))


UNKNOWN = ("nobody.example:6650", "169.254.169.254:80", "broker-1.external.example", "b:1:2", "localhost:22")


@pytest.mark.parametrize("name", UNKNOWN)
async def test_connect_that_names_an_unknown_broker_is_refused(start: Start, name: str) -> None:
    stage = await start(**THROUGH)
    text = "unknown-broker: the broker that was asked for is not one that is known here"
    await stage.play(CLIENT.says(connect(to=name)), CLIENT.hears(error(NOT_ALLOWED, text)), CLIENT.is_left)
    assert stage.number("requests_total", kind="other", protocol="binary", code="403") == 1


async def test_connect_that_names_a_broker_is_refused_without_through_sidecar(
    start: Start, other: ScriptedBroker
) -> None:
    stage = await start()
    text = "not-through-here: brokers are not reached through this socket: throughSidecar is not set"
    await stage.play(
        CLIENT.says(connect(to=host_and_port(other.outer()))), CLIENT.hears(error(NOT_ALLOWED, text)), CLIENT.is_left
    )
    assert other.wires == []


async def test_connect_falls_back_to_no_other_broker_when_the_named_one_is_unreachable(
    start: Start, broker: ScriptedBroker, other: ScriptedBroker
) -> None:
    other.refuse()
    stage = await start(**THROUGH, brokers={"brokerServiceUrl": [broker.url, other.url]})
    client = await stage.connect()
    client.send(connect(to=host_and_port(other.outer())))
    assert b"broker-unreachable" in await client.hear()
    assert broker.wires == []


async def test_proxy_flag_in_a_brokers_answer_is_cleared_without_through_sidecar(
    start: Start, other: ScriptedBroker
) -> None:
    """As a standalone broker does, or Pulsar Proxy: the address is one that the client can reach."""
    stage = await start()
    await stage.play(
        *HELLO,
        *looked_up(1),
        BROKER.says(found(1, other.inner(), through=True)),
        CLIENT.hears(found(1, other.outer(), other.outer("pulsar+ssl"))),
    )


# No address leads past the socket, known or not, whatever `leaks` and `redirects` say.


@whatever_is_set
@strangers
async def test_an_answer_with_an_unknown_address_fails_and_is_a_leak(
    start: Start, stranger: str, keys: dict[str, Any]
) -> None:
    stage = await start(**THROUGH, **keys)
    await stage.play(
        *HELLO,
        *looked_up(1),
        BROKER.says(found(1, stranger)),
        CLIENT.hears(failed(1, METADATA_ERROR, LEAK)),
        CLIENT.says(ping()),  # it keeps its connection
        BROKER.hears(ping()),
    )
    assert stage.number("leaks_total") == stage.number("leaks_total", where="binary", action="blocked") == 1
    (event,) = stage.events
    assert (event["status"], event["leak"]) == (502, "binary")


@whatever_is_set
@strangers
async def test_a_redirect_to_an_unknown_address_fails(start: Start, stranger: str, keys: dict[str, Any]) -> None:
    stage = await start(**THROUGH, **keys)
    await stage.play(
        *HELLO,
        *looked_up(1),
        BROKER.says(redirect(1, stranger, stranger)),
        CLIENT.hears(failed(1, METADATA_ERROR, UNKNOWN_AUTHORITY)),
        CLIENT.says(ping()),
        BROKER.hears(ping()),
    )
    assert stage.number("redirects_total", action="refused") == stage.number("unmapped_redirects_total") == 1
    assert stage.number("leaks_total") == 0
    (event,) = stage.events
    assert (event["status"], event["redirectAction"], event["redirectTo"]) == (502, "refused", None)


KNOWN = {name: keys for name, keys in KEYS.items() if name != "no book"}


@pytest.mark.parametrize("keys", KNOWN.values(), ids=KNOWN)
async def test_redirects_to_known_addresses_are_followed_and_answers_name_the_broker(
    start: Start, other: ScriptedBroker, keys: dict[str, Any]
) -> None:
    stage = await start(**THROUGH, **keys)
    name = host_and_port(other.outer())
    await stage.play(
        *HELLO,
        *looked_up(1),
        BROKER.says(redirect(1, STRANGERS["public"], other.outer("pulsar+ssl"))),
        *followed(1),
        OTHER.says(found(1, other.inner(), STRANGERS["public"])),
        CLIENT.hears(through(1, name)),
    )
    assert stage.number("leaks_total") == 0


@pytest.mark.parametrize("keys", KNOWN.values(), ids=KNOWN)
async def test_redirect_fails_when_the_clients_authentication_cannot_be_replayed(
    start: Start, other: ScriptedBroker, keys: dict[str, Any]
) -> None:
    stage = await start(**THROUGH, **keys)
    await stage.play(
        *hello(connect(method="sasl")),
        *looked_up(1),
        BROKER.says(redirect(1, other.outer(), other.outer("pulsar+ssl"))),
        CLIENT.hears(failed(1, METADATA_ERROR, CANNOT_REPEAT)),
    )
    assert other.wires == []
    assert stage.number("redirects_total", action="refused") == 1


async def test_redirect_fails_when_the_next_broker_sends_an_auth_challenge(start: Start, other: ScriptedBroker) -> None:
    stage = await start(**THROUGH)
    await stage.play(
        *HELLO,
        *redirected(1, other),
        OTHER.hears(connect()),
        OTHER.says(challenge()),
        OTHER.is_left,
        CLIENT.hears(failed(1, METADATA_ERROR, CANNOT_REPEAT)),
    )
    assert stage.events[0]["redirectAction"] == "refused"


async def test_redirect_chain_that_ends_at_an_unknown_address_fails(start: Start, other: ScriptedBroker) -> None:
    stage = await start(**THROUGH)
    await stage.play(
        *HELLO,
        *redirected(1, other),
        *followed(1),
        OTHER.says(redirect(1, STRANGERS["public"])),
        CLIENT.hears(failed(1, METADATA_ERROR, UNKNOWN_AUTHORITY)),
    )


REWRITTEN = {name: push for name, push in PUSHES.items() if push is not migrated}
"""What reaches clients, without or with other addresses."""


@whatever_is_set
@pytest.mark.parametrize("push", REWRITTEN.values(), ids=REWRITTEN)
async def test_unknown_addresses_are_removed_from_commands_pushed_to_clients(
    start: Start, push: Push, keys: dict[str, Any]
) -> None:
    stage = await start(**THROUGH, **keys)
    left = rewritten(push, None, None)
    await stage.play(*HELLO, BROKER.says(push(STRANGERS["public"], None)), CLIENT.hears(left))
    assert stage.number("leaks_total") == stage.number("leaks_total", where="binary", action="blocked") == 1


@pytest.mark.parametrize("keys", KNOWN.values(), ids=KNOWN)
@pytest.mark.parametrize("push", REWRITTEN.values(), ids=REWRITTEN)
async def test_known_addresses_in_pushed_commands_become_the_brokers_external_name(
    start: Start, other: ScriptedBroker, push: Push, keys: dict[str, Any]
) -> None:
    """Clients that came through a proxy go there through it (ConnectionHandler, WatchTcAssignmentsDiscovery)."""
    stage = await start(**THROUGH, **keys)
    named = rewritten(push, *both_schemes(host_and_port(other.outer())))
    await stage.play(*HELLO, BROKER.says(push(other.inner(), None)), CLIENT.hears(named))
    assert stage.number("leaks_total") == 0


@whatever_is_set
@pytest.mark.parametrize("kind", ["unknown", "known"])
async def test_topic_migration_is_withheld_from_clients_and_counted_as_a_blocked_leak(
    start: Start, other: ScriptedBroker, kind: str, keys: dict[str, Any]
) -> None:
    """Clients look the topic up straight at the URL that it names, even where they came through a proxy."""
    stage = await start(**THROUGH, **keys)
    url = other.outer() if kind == "known" else STRANGERS["public"]
    await stage.play(*HELLO, BROKER.says(migrated(url, None) + ping()), CLIENT.hears(ping()))
    assert stage.number("leaks_total", where="binary", action="blocked") == 1


async def test_unsolicited_lookup_answers_lead_through_the_sidecar_or_are_blocked(
    start: Start, other: ScriptedBroker
) -> None:
    stage = await start(**THROUGH)
    name = host_and_port(other.outer())
    await stage.play(
        *HELLO,
        BROKER.says(found(4, other.inner())),
        CLIENT.hears(through(4, name)),
        BROKER.says(found(5, STRANGERS["public"])),
        CLIENT.hears(found(5)),
        BROKER.says(redirect(6, other.inner()) + redirect(7, STRANGERS["public"]) + ping()),
        CLIENT.hears(ping()),
    )
    assert stage.number("leaks_total", where="binary", action="blocked") == 3


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])
async def test_console_what_if_predicts_what_happens_to_a_redirect(
    start: Start, other: ScriptedBroker, is_known: bool
) -> None:
    stage = await start(**THROUGH)
    location = other.outer() if is_known else STRANGERS["public"]
    question = {"url": "pulsar://pulsar.example.com:6650", "location": location}
    url = f"http://127.0.0.1:{stage.sidecar.console_port}/api/what-if"
    async with ClientSession() as session, session.post(url, json=question) as answer:
        said = (await answer.json())["location"]
    await stage.play(*HELLO, *looked_up(1), BROKER.says(redirect(1, location)))
    if is_known:
        await stage.play(*followed(1), OTHER.says(found(1, other.inner())))
    await stage.client.hear()
    (event,) = stage.events
    assert (said["action"], said["to"]) == (event["redirectAction"], event["redirectTo"])
    assert said["action"] == ("followed" if is_known else "refused")


async def test_shadow_mode_passes_every_answer_unchanged_and_counts_decisions(
    start: Start, other: ScriptedBroker
) -> None:
    stage = await start(**THROUGH, shadow=True)
    passed = [
        found(2, STRANGERS["public"]),
        redirect(3, STRANGERS["public"]),
        redirect(4, other.inner()),
        closed(CLOSE_PRODUCER, STRANGERS["public"]),
        migrated(STRANGERS["public"], None),
        pong(),
    ]
    for request in (2, 3, 4):
        await stage.play(*(HELLO if request == 2 else ()), CLIENT.says(lookup(request)), BROKER.hears(lookup(request)))
    await stage.play(BROKER.says(b"".join(passed)), *(CLIENT.hears(frame) for frame in passed))
    assert stage.number("leaks_total", action="observed") == 3
    assert stage.number("redirects_total", action="refused") == 1
    assert stage.number("redirects_total", action="followed") == 1
