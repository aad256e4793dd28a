"""Answers that name the broker to ask next: rewritten, or followed by the sidecar in the client's own name."""

from typing import Any

import pytest
from playbooks import (
    BROKER,
    CLIENT,
    FOLLOW,
    HELLO,
    KEEPALIVE,
    OTHER,
    ScriptedBroker,
    Start,
    answered,
    followed,
    hello,
    looked_up,
    redirected,
)
from words import (
    AUTH_RESPONSE,
    METADATA_ERROR,
    SERVICE_NOT_READY,
    challenge,
    command,
    connect,
    connected,
    error,
    failed,
    found,
    lookup,
    message,
    redirect,
)


async def test_redirect_to_an_internal_address_is_rewritten_to_the_listener(
    start: Start, other: ScriptedBroker
) -> None:
    stage = await start()
    await stage.play(
        *HELLO,
        *redirected(1, other),
        CLIENT.hears(redirect(1, other.outer(), other.outer("pulsar+ssl"))),
    )
    assert stage.number("redirects_total", listener="external", kind="lookup", action="rewritten") == 1
    event = stage.events[0]
    assert (event["status"], event["redirectAction"], event["hops"]) == (307, "rewritten", 0)
    assert (event["redirectFrom"], event["redirectTo"]) == (other.inner(), other.outer())


async def test_redirect_already_on_the_listener_is_kept(start: Start, other: ScriptedBroker) -> None:
    stage = await start()
    kept = redirect(1, other.outer(), other.outer("pulsar+ssl"))
    await stage.play(*HELLO, *looked_up(1), BROKER.says(kept), CLIENT.hears(kept))
    assert stage.number("redirects_total", action="kept") == 1


async def test_redirect_passed_unchanged_is_counted_as_a_leak(start: Start, other: ScriptedBroker) -> None:
    stage = await start(redirects={"lookup": "pass"})
    passed = redirect(1, other.inner())
    await stage.play(*HELLO, *looked_up(1), BROKER.says(passed), CLIENT.hears(passed))
    assert stage.number("redirects_total", action="passed") == 1
    assert stage.number("leaks_total", listener="external", where="binary", action="passed") == 1


async def test_redirect_to_an_unknown_internal_name_is_refused(start: Start) -> None:
    stage = await start()
    text = "unknown-authority: a broker redirects to a name that neither advertisedListeners nor redirects.peers has"
    await stage.play(
        *HELLO,
        *looked_up(1),
        BROKER.says(redirect(1, "pulsar://nobody.pulsar.svc.cluster.local:6650")),
        CLIENT.hears(failed(1, METADATA_ERROR, text)),
    )
    assert stage.number("unmapped_redirects_total", listener="external") == 1
    assert stage.events[0]["redirectTo"] is None


async def test_redirect_is_followed_with_the_clients_own_credentials(start: Start, other: ScriptedBroker) -> None:
    stage = await start(redirects=FOLLOW)
    token = connect(method="token", data=b"secret")
    await stage.play(
        *hello(token),
        CLIENT.says(lookup(9, properties=[("rack", "a")])),
        BROKER.hears(lookup(9, "external", properties=[("rack", "a")])),
        BROKER.says(redirect(9, other.inner(), authoritative=True)),
        OTHER.hears(token),
        OTHER.says(connected()),
        OTHER.hears(lookup(9, "external", authoritative=True, properties=[("rack", "a")])),
        *answered(9, other, by=OTHER),
        OTHER.is_left,
    )
    assert stage.number("redirects_total", action="followed") == 1
    event = stage.events[0]
    assert (event["status"], event["hops"], event["redirectTo"]) == (200, 1, other.url)
    assert event["broker"] == "broker-1.pulsar.svc.cluster.local"


async def test_redirect_is_followed_with_the_renewed_token(start: Start, other: ScriptedBroker) -> None:
    stage = await start(redirects=FOLLOW)
    refresh = challenge("token", "PulsarAuthRefresh", 21)
    renewed = command(AUTH_RESPONSE, message(f1="c", f2=message(f1="token", f2="new"), f3=21))
    await stage.play(
        *hello(connect(method="token", data=b"old")),
        BROKER.says(refresh),
        CLIENT.hears(refresh),
        CLIENT.says(renewed),
        BROKER.hears(renewed),
        *redirected(1, other),
        OTHER.hears(connect(method="token", data=b"new")),
    )


async def test_redirect_is_rewritten_when_the_clients_authentication_cannot_be_replayed(
    start: Start, other: ScriptedBroker
) -> None:
    stage = await start(redirects=FOLLOW)
    await stage.play(
        *hello(connect(method="sasl")),
        *redirected(1, other),
        CLIENT.hears(redirect(1, other.outer(), other.outer("pulsar+ssl"))),
    )
    assert other.wires == []


async def test_redirect_is_rewritten_when_the_next_broker_sends_an_auth_challenge(
    start: Start, other: ScriptedBroker
) -> None:
    """A broker that wants proof of its own is told nothing more, and the client goes there itself."""
    stage = await start(redirects=FOLLOW)
    await stage.play(
        *HELLO,
        *redirected(1, other),
        OTHER.hears(connect()),
        OTHER.says(challenge()),
        OTHER.is_left,
        CLIENT.hears(redirect(1, other.outer(), other.outer("pulsar+ssl"))),
    )
    assert stage.events[0]["redirectAction"] == "rewritten"
    assert stage.number("redirects_total", action="followed") == 0


async def test_lookup_fails_when_brokers_redirect_in_a_loop(
    start: Start, broker: ScriptedBroker, other: ScriptedBroker
) -> None:
    stage = await start(redirects=FOLLOW)
    await stage.play(
        *HELLO,
        *redirected(1, other),
        *followed(1),
        OTHER.says(redirect(1, other.inner())),
        CLIENT.hears(failed(1, METADATA_ERROR, "redirect-loop: brokers redirect in a circle")),
    )
    actions = [stage.number("redirects_total", action=action) for action in ("followed", "refused")]
    event = stage.events[0]
    assert (actions, event["redirectAction"], event["hops"], event["redirectTo"]) == ([1, 1], "refused", 1, other.url)


async def test_lookup_fails_after_more_redirects_than_max_hops(
    start: Start, broker: ScriptedBroker, other: ScriptedBroker
) -> None:
    stage = await start(redirects={**FOLLOW, "maxHops": 1})
    text = "too-many-redirects: more than 1 redirects (redirects.maxHops)"
    await stage.play(
        *HELLO,
        *redirected(1, other),
        *followed(1),
        OTHER.says(redirect(1, broker.inner(), authoritative=False)),
        CLIENT.hears(failed(1, METADATA_ERROR, text)),
    )


async def test_lookup_fails_when_the_redirect_target_is_unreachable(start: Start, other: ScriptedBroker) -> None:
    other.refuse()
    stage = await start(redirects=FOLLOW)
    await stage.play(
        *HELLO,
        *redirected(1, other),
        CLIENT.hears(failed(1, METADATA_ERROR, "broker-unreachable: no connection to a broker could be made")),
    )
    assert stage.number("upstream_errors_total", reason="broker-unreachable") == 1
    assert stage.events[0]["status"] == 502


async def test_lookup_fails_when_the_redirect_target_rejects_the_client(start: Start, other: ScriptedBroker) -> None:
    stage = await start(redirects=FOLLOW)
    text = "broker-rejected: the broker that was redirected to does not accept the client"
    await stage.play(
        *HELLO,
        *redirected(1, other),
        OTHER.hears(connect()),
        OTHER.says(error(SERVICE_NOT_READY, "starting")),
        CLIENT.hears(failed(1, METADATA_ERROR, text)),
    )


async def test_other_lookups_are_answered_while_a_redirect_is_followed(
    start: Start, broker: ScriptedBroker, other: ScriptedBroker
) -> None:
    stage = await start(redirects=FOLLOW)
    await stage.play(
        *HELLO,
        CLIENT.says(lookup(1) + lookup(2)),
        BROKER.hears(lookup(1, "external")),
        BROKER.hears(lookup(2, "external")),
        BROKER.says(redirect(1, other.inner()) + found(2, broker.inner())),
        CLIENT.hears(found(2, broker.outer(), broker.outer("pulsar+ssl"))),
        *followed(1),
        *answered(1, other, by=OTHER),
    )


@pytest.mark.parametrize("leaks", ["rewrite", "block"])
async def test_redirect_of_a_lookup_without_a_listener_passes_unchanged(
    start: Start, other: ScriptedBroker, leaks: str
) -> None:
    stage = await start(bindAddresses=["pulsar://127.0.0.1:0"], redirects=FOLLOW, leaks=leaks)
    passed = redirect(1, other.inner())
    await stage.play(*HELLO, CLIENT.says(lookup(1)), BROKER.hears(lookup(1)), BROKER.says(passed), CLIENT.hears(passed))


async def test_redirect_passes_and_counts_as_a_leak_when_leaks_are_only_observed(
    start: Start, other: ScriptedBroker
) -> None:
    stage = await start(leaks="observe", redirects=FOLLOW)
    passed = redirect(1, other.inner())
    await stage.play(*HELLO, *looked_up(1), BROKER.says(passed), CLIENT.hears(passed))
    assert stage.number("leaks_total", where="binary", action="passed") == 1


@pytest.mark.parametrize(
    "keys",
    [{"leaks": "observe"}, {"redirects": {"lookup": "pass"}}, {"redirects": {"unmapped": "pass"}}, {"shadow": True}],
    ids=["observed", "passed", "unmapped passes", "shadow"],
)
async def test_redirect_with_an_invalid_url_passes_in_modes_that_pass_redirects(
    start: Start, keys: dict[str, Any]
) -> None:
    stage = await start(**keys)
    odd = redirect(1, "pulsar://broker_7:6650")
    sent = lookup(1) if "shadow" in keys else lookup(1, "external")
    await stage.play(*HELLO, CLIENT.says(lookup(1)), BROKER.hears(sent), BROKER.says(odd), CLIENT.hears(odd))


async def test_auth_challenge_after_the_lookup_timeout_causes_no_second_answer(
    start: Start, other: ScriptedBroker
) -> None:
    stage = await start(redirects=FOLLOW, timeouts={"lookup": 0.1})
    await stage.play(
        *HELLO,
        *redirected(1, other),
        OTHER.hears(connect()),
        CLIENT.hears(failed(1, METADATA_ERROR, "broker-timeout: the broker gave no answer in time")),
        OTHER.says(challenge()),
        OTHER.is_left,
        *KEEPALIVE,
    )
