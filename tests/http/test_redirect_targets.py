"""Redirects by where they lead: kept on the listener, passed, followed or refused; nobody unknown is ever dialled."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from clusters import (
    EXTERNAL,
    FOLLOW,
    HOST,
    INGRESS,
    LOOKUP,
    PARTNERS,
    PUBLIC,
    STATS,
    TOPIC,
    Simulate,
    asked,
    both_families,
    both_kinds,
    external,
    inside,
    named,
    pointing,
    without_external,
)
from raw import RawBroker
from simulated.cluster import redirects
from simulated.metadata import Family

Policy = Mapping[str, object]
PASS: Policy = {"lookup": "pass", "admin": "pass"}
REFUSE: Policy = {"unmapped": "refuse"}
PASS_UNMAPPED: Policy = {"unmapped": "pass"}
PEERS: Policy = {**FOLLOW, "peers": ["*.peer.internal", "peer"]}
Count = tuple[str, bool, bool]
"""The action that is counted, and whether it counts as unmapped and as a leak."""
KEPT: Count = ("kept", False, False)
PASSED: Count = ("passed", False, False)
PASSED_LEAK: Count = ("passed", False, True)
PASSED_UNMAPPED: Count = ("passed", True, True)
REFUSED: Count = ("refused", True, False)

REDIRECTS: list[tuple[Policy, str, Count]] = [
    # On the listener, or relative: it stays.
    ({}, f"{external(2)}{LOOKUP}?authoritative=true", KEPT),
    ({}, f"{external(2)}{LOOKUP}?listenerName=&listenerName=internal&x=%2f", KEPT),
    ({}, f"https://BROKER-2.Pulsar.example.com.:443{LOOKUP}?x=%7e&#top", KEPT),
    ({}, external(2), KEPT),
    ({}, f"{STATS}?x=%2f", KEPT),
    (FOLLOW, "/", KEPT),
    (FOLLOW, "/a%2Fb#c", KEPT),
    # Under `pass`.
    (PASS, f"http://{named(2).upper()}:8080{LOOKUP}?listenerName=a&x=%2f&&#y", PASSED_LEAK),
    (PASS, f"{external(2)}{LOOKUP}", PASSED),
    # Whom nobody knows is never dialled: it passes where clients may reach it.
    ({}, "https://peer.example.org:8443/a?x=%2f&", PASSED_UNMAPPED),
    (FOLLOW, "http://8.8.8.8/a", PASSED_UNMAPPED),
    (FOLLOW, "http://[2600::1]:8080/a", PASSED_UNMAPPED),
    (PASS_UNMAPPED, "https://peer.example.org:8443/a", PASSED_UNMAPPED),
    (PASS_UNMAPPED, "http://10.1.2.3:8080/a", PASSED_UNMAPPED),
    (PEERS, "http://pulsar.peer.internal:8080/a?x=%2f", PASSED),
    (PEERS, "http://b1.eu.peer.internal/a", PASSED),
    ({**PEERS, **REFUSE}, "http://peer/a", PASSED),
    # It is refused where none could.
    (REFUSE, "https://peer.example.org:8443/a", REFUSED),
    (REFUSE, "http://10.1.2.3:8080/a", REFUSED),
    *(
        (policy, location, REFUSED)
        for policy in ({}, FOLLOW)
        for location in (
            "http://10.1.2.3:8080/a",
            "http://127.1:9/a",
            "http://0x7f.1:9/a",
            "http://169.254.169.254/a",
            "http://[fd00::1]:8080/a",
            "http://[::ffff:10.0.0.1]/a",
            "https://pulsar-broker/a",
            "http://pulsar-broker.pulsar.svc:8080/a",
            "http://metadata.google.internal/a",
            f"http://{named(7)}:8080/a",
            # What could be read as another host than it is.
            "//10.1.2.3:8080/x",
            "/\\10.1.2.3/x",
            "http:/x",
            "http://",
            "ftp://ftp.example.org/x",
            "javascript:alert(1)",
            f"http://{named(2)}:8080@10.1.2.3/x",
            f"http://user@{named(2)}:8080/x",
            f"http://{named(2)}:8080\\@10.1.2.3/x",
            "http://peer.example.org:99999/x",
        )
    ),
]


@pytest.mark.parametrize(("policy", "location", "count"), REDIRECTS)
@both_kinds
async def test_redirect_that_is_not_rewritten_stays_byte_for_byte_or_is_refused_by_where_it_leads(
    simulate: Simulate, kind: str, target: str, policy: Policy, location: str, count: Count
) -> None:
    cluster, client = await simulate(redirects=policy, script=pointing(location))
    reply = await client.send(target)
    action, is_unmapped, is_leak = count
    if action == "refused":
        assert reply.refusal == (502, "unknown-authority")
    else:
        assert reply.location == location
    assert asked(cluster) == [0, 1, 0]
    assert client.counted("redirects_total") == {("external", kind, action): 1}
    assert client.counted("unmapped_redirects_total") == ({("external",): 1} if is_unmapped else {})
    assert client.counted("leaks_total") == ({("external", "location", "passed"): 1} if is_leak else {})


async def test_unknown_host_in_domain_of_known_brokers_is_treated_as_internal(simulate: Simulate) -> None:
    script = [redirects("http://b7.brokers.example.net:8080")]
    _, client = await simulate(name="b{n}.brokers.example.net", script=script)
    assert (await client.send(LOOKUP)).refusal == (502, "unknown-authority")


@pytest.mark.parametrize("unmapped", ["follow", "refuse", "pass"])
@pytest.mark.parametrize("policy", ["rewrite", "follow", "pass"])
@both_kinds
async def test_addresses_that_are_not_configured_are_never_dialled(
    simulate: Simulate, broker: RawBroker, kind: str, target: str, policy: str, unmapped: str
) -> None:
    policies = {"lookup": policy, "admin": policy, "unmapped": unmapped, "peers": ["localhost"]}
    cluster, client = await simulate(redirects=policies)
    for host in ("127.0.0.1", "localhost", "127.1"):
        cluster.brokers[1].script.append(redirects(f"http://{host}:{broker.port}"))
        assert (await client.send(target)).status in (307, 502)
    await client.send(target, host=f"127.0.0.1:{broker.port}")
    await client.send(target, host=HOST, headers=[("X-Forwarded-Host", f"127.0.0.1:{broker.port}")])
    assert not broker.wires


async def test_follow_gets_502_when_second_redirect_leads_to_unknown_address(
    simulate: Simulate, broker: RawBroker
) -> None:
    cluster, client = await simulate(redirects=FOLLOW, script=[redirects(inside(2))])
    cluster.brokers[2].script.append(redirects(broker.url))
    assert (await client.send(STATS)).refusal == (502, "unknown-authority")
    assert (asked(cluster), broker.wires) == ([0, 1, 1], [])
    assert client.counted("redirects_total") == {
        ("external", "admin", "followed"): 1,
        ("external", "admin", "refused"): 1,
    }


@both_families
async def test_pip_338_redirect_keeps_internal_address_if_client_listener_not_preferred(
    simulate: Simulate, family: Family
) -> None:
    cluster, client = await simulate(
        family=family, preferHttpClientListenerOverInternalListener=False, redirects=FOLLOW
    )
    assert (await client.send(STATS)).location == f"{inside(0)}{STATS}?authoritative=false"
    assert asked(cluster) == [0, 1, 0]
    assert client.counted("leaks_total") == {("external", "location", "passed"): 1}


async def test_relative_location_leads_client_back_to_the_same_broker(simulate: Simulate) -> None:
    cluster, client = await simulate(owner=2)
    cluster.brokers[2].script.extend(pointing(f"{STATS}?again"))
    walk = await client.walk(external(2) + STATS)
    assert walk.urls == [external(2) + STATS, f"{external(2)}{STATS}?again"]
    assert (walk.reply.status, asked(cluster)) == (200, [0, 0, 2])


# Brokers that have no address on the listener, nor on the default one.


@both_kinds
async def test_redirect_is_followed_when_broker_has_no_address_of_its_own_on_listener(
    simulate: Simulate, kind: str, target: str
) -> None:
    cluster, client = await simulate(advertisedListeners=without_external(0), loaded=(0, 1))
    walk = await client.walk(INGRESS + target)
    assert walk.origins == [INGRESS, external(2)]  # past the leader, which the client cannot reach
    assert (asked(cluster), cluster.owner(TOPIC)) == ([1, 1, 1], 2)
    assert client.counted("redirects_total") == {
        ("external", kind, "followed"): 1,
        ("external", kind, "rewritten"): 1,
    }
    assert client.counted("unmapped_redirects_total") == {("external",): 1}
    assert client.counted("leaks_total") == {}


@both_kinds
async def test_redirect_to_unmapped_broker_gets_502_when_unmapped_is_refuse(
    simulate: Simulate, kind: str, target: str
) -> None:
    cluster, client = await simulate(urls=(), redirects={"unmapped": "refuse"})
    reply = await client.send(target)
    assert reply.refusal == (502, "unmapped")
    assert named(0) not in reply.json["reason"]  # the log has it
    assert asked(cluster) == [0, 1, 0]
    assert client.counted("redirects_total") == {("external", kind, "refused"): 1}
    assert client.counted("unmapped_redirects_total") == {("external",): 1}
    assert client.counted("leaks_total") == {}


@both_kinds
async def test_redirect_to_unmapped_broker_is_passed_when_unmapped_is_pass(
    simulate: Simulate, kind: str, target: str
) -> None:
    _, client = await simulate(urls=(), redirects={"unmapped": "pass"})
    location = (await client.send(target)).location
    assert location.startswith(f"{inside(0)}{target}?authoritative=false")
    assert client.counted("redirects_total") == {("external", kind, "passed"): 1}
    assert client.counted("unmapped_redirects_total") == {("external",): 1}
    assert client.counted("leaks_total") == {("external", "location", "passed"): 1}


async def test_broker_with_address_on_default_listener_is_not_unmapped(simulate: Simulate) -> None:
    _, client = await simulate(ingresses=[PUBLIC, PARTNERS], lookupListenerName="external")
    reply = await client.send(STATS, host="partner.example")
    assert reply.location == f"{external(0)}{STATS}?authoritative=false"
    assert client.counted("redirects_total") == {("partner", "admin", "rewritten"): 1}
    assert client.counted("unmapped_redirects_total") == {}


# Where brokers share one web address, a redirect to it would reach any: it is followed, never rewritten.


@both_kinds
@both_families
async def test_redirect_to_an_address_that_brokers_share_is_followed_never_rewritten(
    simulate: Simulate, family: Family, kind: str, target: str
) -> None:
    urls = [f"external:https://{HOST}", EXTERNAL[1]]
    cluster, client = await simulate(family=family, urls=urls, loaded=(0, 1))
    walk = await client.walk(INGRESS + target)
    assert walk.urls == [INGRESS + target]
    assert (asked(cluster), cluster.owner(TOPIC)) == ([1, 1, 1], 2)
    assert client.counted("redirects_total") == {("external", kind, "followed"): 2}
    assert client.counted("unmapped_redirects_total") == {}
    assert client.counted("leaks_total") == {}
    if kind == "lookup":
        assert walk.reply.json["httpUrl"] == INGRESS
        assert walk.reply.json["brokerUrl"] == "pulsar+ssl://broker-2.pulsar.example.com:6653"
