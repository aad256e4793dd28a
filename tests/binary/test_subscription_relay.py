"""A subscription to a scalable topic that comes on a connection to any broker is relayed to the topic's controller."""

from typing import Any

import pytest
from playbooks import AGAIN, BROKER, CLIENT, KEEPALIVE, OTHER, Line, Role, ScriptedBroker, Start, hello
from standstill import settled
from words import (
    METADATA_ERROR,
    TOO_MANY_REQUESTS,
    assigned,
    challenge,
    connect,
    connected,
    error,
    layout_answered,
    layout_question,
    not_subscribed,
    ping,
    pong,
    scalable,
    subscribe,
    subscribed,
)

from pulsar_ingress_proxy.binary import subscription_relay

THROUGH: dict[str, Any] = {"ingresses": [{"name": "public", "listener": "external", "throughSidecar": True}]}
ANY = connect(to="")
"""As V5 clients say that any broker will do."""


def joined(who: Role) -> tuple[Line, ...]:
    """The sidecar comes to a broker in the client's name."""
    return (who.hears(ANY), who.says(connected()))


def asked(session: int, controller: str | None, tls: str | None = None) -> tuple[Line, ...]:
    """The sidecar asks the broker that the client is joined to for the topic's controller."""
    return (
        AGAIN.hears(layout_question(session)),
        AGAIN.says(scalable(controller, tls, session=session)),
        AGAIN.hears(layout_answered(session)),
    )


async def test_subscription_goes_to_the_controller_and_its_assignments_come_back(
    start: Start, other: ScriptedBroker
) -> None:
    stage = await start(**THROUGH)
    await stage.play(
        *hello(ANY),
        CLIENT.says(subscribe(5)),
        *joined(AGAIN),
        *asked(1, other.inner()),
        *joined(OTHER),
        OTHER.hears(subscribe(5)),
        OTHER.says(subscribed(5) + assigned(5)),
        CLIENT.hears(subscribed(5)),
        CLIENT.hears(assigned(5)),
        *KEEPALIVE,
    )
    assert stage.number("in_flight_requests", protocol="binary") == 0


@pytest.mark.parametrize("field", ["plain", "TLS"])
async def test_controller_is_known_by_either_address(start: Start, other: ScriptedBroker, field: str) -> None:
    stage = await start(**THROUGH)
    addresses = (other.inner(), None) if field == "plain" else (None, other.inner("pulsar+ssl"))
    await stage.play(
        *hello(ANY), CLIENT.says(subscribe(5)), *joined(AGAIN), *asked(1, *addresses), *joined(OTHER),
        OTHER.hears(subscribe(5)),
    )  # fmt: skip


@pytest.mark.parametrize("is_elected", [True, False], ids=["it is the controller", "there is no controller yet"])
async def test_subscription_stays_with_the_joined_broker(
    start: Start, broker: ScriptedBroker, is_elected: bool
) -> None:
    """A broker becomes the controller of a topic that has none by being subscribed at."""
    stage = await start(**THROUGH)
    await stage.play(
        *hello(ANY),
        CLIENT.says(subscribe(5)),
        *joined(AGAIN),
        *asked(1, broker.inner() if is_elected else None),
        AGAIN.hears(subscribe(5)),
        AGAIN.says(subscribed(5)),
        CLIENT.hears(subscribed(5)),
    )


async def test_subscriptions_share_the_connections_to_brokers(start: Start, other: ScriptedBroker) -> None:
    stage = await start(**THROUGH)
    await stage.play(
        *hello(ANY),
        CLIENT.says(subscribe(5)),
        *joined(AGAIN),
        *asked(1, other.inner()),
        *joined(OTHER),
        OTHER.hears(subscribe(5)),
        CLIENT.says(subscribe(6)),
        *asked(2, other.inner()),
        OTHER.hears(subscribe(6)),
        OTHER.says(subscribed(6) + subscribed(5)),
        CLIENT.hears(subscribed(6)),
        CLIENT.hears(subscribed(5)),
    )


async def test_client_is_disconnected_when_its_controller_leaves(start: Start, other: ScriptedBroker) -> None:
    """So that it subscribes again, at the next controller."""
    stage = await start(**THROUGH)
    await stage.play(
        *hello(ANY), CLIENT.says(subscribe(5)), *joined(AGAIN), *asked(1, other.inner()), *joined(OTHER),
        OTHER.hears(subscribe(5)), OTHER.leaves, CLIENT.is_left, AGAIN.is_left, BROKER.is_left,
    )  # fmt: skip


async def test_controllers_are_left_when_the_client_leaves(start: Start, other: ScriptedBroker) -> None:
    stage = await start(**THROUGH)
    await stage.play(
        *hello(ANY), CLIENT.says(subscribe(5)), *joined(AGAIN), *asked(1, other.inner()), *joined(OTHER),
        OTHER.hears(subscribe(5)), CLIENT.leaves, OTHER.is_left, AGAIN.is_left,
    )  # fmt: skip


async def test_keepalive_of_a_controller_is_answered_without_the_client(start: Start, other: ScriptedBroker) -> None:
    stage = await start(**THROUGH)
    await stage.play(
        *hello(ANY), CLIENT.says(subscribe(5)), *joined(AGAIN), *asked(1, other.inner()), *joined(OTHER),
        OTHER.hears(subscribe(5)), OTHER.says(ping()), OTHER.hears(pong()), AGAIN.says(ping()), AGAIN.hears(pong()),
        *KEEPALIVE,
    )  # fmt: skip


async def test_client_is_disconnected_when_its_controller_is_silent(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked whether it is there, as clients and brokers do."""
    stage = await start(**THROUGH)
    await stage.play(*hello(ANY), CLIENT.says(subscribe(5)), *joined(AGAIN), *asked(1, None), AGAIN.hears(subscribe(5)))
    monkeypatch.setattr(subscription_relay, "_KEEP_ALIVE", 0.01)
    await stage.play(  # the time counts from the next frame on
        AGAIN.says(ping()), AGAIN.hears(pong()), AGAIN.hears(ping()), CLIENT.is_left, BROKER.is_left, AGAIN.is_left
    )


async def test_controller_is_held_back_while_the_client_does_not_read(start: Start, other: ScriptedBroker) -> None:
    stage = await start(**THROUGH)
    await stage.play(
        *hello(ANY), CLIENT.says(subscribe(5)), *joined(AGAIN), *asked(1, other.inner()), *joined(OTHER),
        OTHER.hears(subscribe(5)),
    )  # fmt: skip
    controller, frame = stage.wires["other"], assigned(5, b"x" * 1_000_000)
    stage.client.stall()
    controller.send(60 * frame)  # more than the system takes
    await settled(lambda: stage.client.total, controller.transport.get_write_buffer_size)
    assert controller.transport.get_write_buffer_size() > len(frame)
    stage.client.resume()
    assert await stage.client.take(60 * len(frame)) == 60 * frame
    await stage.play(*KEEPALIVE)


async def test_subscription_fails_when_the_controller_cannot_be_reached(start: Start, other: ScriptedBroker) -> None:
    other.refuse()
    stage = await start(**THROUGH)
    text = "broker-unreachable: no connection to a broker could be made"
    await stage.play(
        *hello(ANY),
        CLIENT.says(subscribe(5)),
        *joined(AGAIN),
        *asked(1, other.inner()),
        CLIENT.hears(not_subscribed(5, METADATA_ERROR, text)),
        *KEEPALIVE,
    )
    assert stage.number("upstream_errors_total", reason="broker-unreachable") == 1
    (event,) = stage.events
    assert (event["kind"], event["status"]) == ("other", 502)


async def test_subscription_fails_when_the_controller_rejects_the_client(start: Start, other: ScriptedBroker) -> None:
    stage = await start(**THROUGH)
    text = "broker-rejected: the broker that was redirected to does not accept the client"
    await stage.play(
        *hello(ANY),
        CLIENT.says(subscribe(5)),
        *joined(AGAIN),
        *asked(1, other.inner()),
        OTHER.hears(ANY),
        OTHER.says(error(3, "who are you")),
        CLIENT.hears(not_subscribed(5, METADATA_ERROR, text)),
        *KEEPALIVE,
    )


async def test_subscription_fails_and_nothing_is_dialled_when_the_controller_is_unknown(start: Start) -> None:
    stage = await start(**THROUGH)
    text = "unknown-authority: the topic's controller is not known here"
    await stage.play(
        *hello(ANY),
        CLIENT.says(subscribe(5)),
        *joined(AGAIN),
        *asked(1, "pulsar://stranger.nowhere.test:6650"),
        CLIENT.hears(not_subscribed(5, METADATA_ERROR, text)),
        *KEEPALIVE,
    )


async def test_subscription_fails_when_no_broker_names_the_controller_in_time(start: Start) -> None:
    stage = await start(**THROUGH, timeouts={"lookup": 1, "connect": 1})
    await stage.play(
        *hello(ANY),
        CLIENT.says(subscribe(5)),
        *joined(AGAIN),
        AGAIN.hears(layout_question(1)),
        AGAIN.hears(layout_answered(1)),
        CLIENT.hears(not_subscribed(5, METADATA_ERROR, "broker-timeout: the broker gave no answer in time")),
        AGAIN.says(scalable(None, None, session=1)),  # too late
        *KEEPALIVE,
    )


async def test_subscription_beyond_the_limit_in_flight_is_refused(start: Start) -> None:
    stage = await start(**THROUGH, limits={"inFlight": 1})
    text = "overloaded: more is under way than limits.inFlight and limits.bufferBytes allow"
    await stage.play(
        *hello(ANY),
        CLIENT.says(subscribe(5)),
        *joined(AGAIN),
        AGAIN.hears(layout_question(1)),
        CLIENT.says(subscribe(6)),
        CLIENT.hears(not_subscribed(6, TOO_MANY_REQUESTS, text)),
    )


DIRECT: dict[str, dict[str, Any]] = {
    "without throughSidecar": {},
    "in shadow mode": {**THROUGH, "shadow": True},
}


@pytest.mark.parametrize("keys", DIRECT.values(), ids=DIRECT)
async def test_subscription_passes_to_the_joined_broker(start: Start, keys: dict[str, Any]) -> None:
    stage = await start(**keys)
    await stage.play(*hello(ANY), CLIENT.says(subscribe(5)), BROKER.hears(subscribe(5)))


async def test_subscription_passes_to_the_broker_that_the_client_named(start: Start, other: ScriptedBroker) -> None:
    stage = await start(**THROUGH)
    await stage.play(
        CLIENT.says(connect(to=other.outer().partition("://")[2])),
        OTHER.hears(connect()),
        OTHER.says(connected()),
        CLIENT.hears(connected()),
        CLIENT.says(subscribe(5)),
        OTHER.hears(subscribe(5)),
    )


async def test_subscription_passes_to_the_joined_broker_when_authentication_cannot_be_repeated(start: Start) -> None:
    """Which accepts it if it happens to be the controller."""
    stage = await start(**THROUGH)
    await stage.play(*hello(connect(method="sasl", to="")), CLIENT.says(subscribe(5)), BROKER.hears(subscribe(5)))


async def test_subscription_fails_when_the_controller_sends_an_auth_challenge(
    start: Start, other: ScriptedBroker
) -> None:
    """The next one passes to the joined broker."""
    stage = await start(**THROUGH)
    text = (
        "auth-not-replayable: the topic's controller is another broker, "
        "and the client's authentication cannot be repeated to it"
    )
    await stage.play(
        *hello(ANY),
        CLIENT.says(subscribe(5)),
        *joined(AGAIN),
        *asked(1, other.inner()),
        OTHER.hears(ANY),
        OTHER.says(challenge()),
        CLIENT.hears(not_subscribed(5, METADATA_ERROR, text)),
        CLIENT.says(subscribe(6)),
        BROKER.hears(subscribe(6)),
    )
