"""Redirects that the sidecar follows itself: which brokers it asks, what it sends them, and when it gives up."""

from __future__ import annotations

import pytest
from clusters import (
    ADMIN,
    FOLLOW,
    HEADER,
    INGRESS,
    LOOKUP,
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
from simulated.cluster import always, redirects
from simulated.metadata import Family

# `follow`: the sidecar asks the broker that was named, and the client gets one answer.


@both_families
async def test_follow_resolves_lookup_redirects_within_one_client_request(simulate: Simulate, family: Family) -> None:
    cluster, client = await simulate(family=family, redirects=FOLLOW, loaded=(0, 1))
    walk = await client.walk(INGRESS + LOOKUP)
    assert walk.urls == [INGRESS + LOOKUP]
    assert (asked(cluster), cluster.owner(TOPIC)) == ([1, 1, 1], 2)
    assert cluster.brokers[2].requests[0].authoritative
    for broker in cluster.brokers:
        (received,) = broker.requests
        assert (received.values(HEADER), received.listener_name) == (["external"], "external")
        assert received.values("Host") == [broker.web.removeprefix("http://")]
    assert walk.reply.json["httpUrl"] == external(2)
    assert client.counted("redirects_total") == {("external", "lookup", "followed"): 2}
    assert client.counted("listener_hits_total") == {("public", "external", "ingress", "http"): 1}
    assert client.counted("requests_total") == {("lookup", "http", "200"): 1}
    assert client.counted("leaks_total") == {}


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("GET", STATS, b""),
        ("PUT", f"{ADMIN}/subscription/s", b'"earliest"'),
        ("POST", f"{ADMIN}/subscription/s/resetcursor", b'{"ledgerId":1}' * 70_000),
    ],
)
@both_families
async def test_follow_resends_admin_call_with_method_and_body(
    simulate: Simulate, family: Family, method: str, target: str, body: bytes
) -> None:
    cluster, client = await simulate(family=family, redirects=FOLLOW, loaded=(0, 1))
    reply = await client.send(target, method=method, body=body or None)
    assert reply.json == {"broker": f"{named(2)}:8080", "method": method, "body": body.decode()}
    assert [broker.requests[0].body for broker in cluster.brokers] == [body] * 3
    assert client.counted("redirects_total") == {("external", "admin", "followed"): 2}


@pytest.mark.parametrize("policy", [{}, FOLLOW], ids=["by default", "follow"])
@both_kinds
async def test_redirects_of_requests_with_authorization_are_followed_and_every_broker_gets_it(
    simulate: Simulate, kind: str, target: str, policy: dict[str, str]
) -> None:
    # C++ clients do not send it to another host, so for them this is the only way that works.
    cluster, client = await simulate(token="s3cret", redirects=policy, loaded=(0, 1))
    assert (await client.send(target, headers=[("Authorization", "Bearer s3cret")])).status == 200
    for broker in cluster.brokers:
        assert broker.requests[0].values("Authorization") == ["Bearer s3cret"]
    assert client.counted("redirects_total") == {("external", kind, "followed"): 2}


@pytest.mark.parametrize(("size", "followed"), [(0, True), (100, True), (101, False), (300_000, False)])
async def test_follow_rewrites_redirect_when_body_exceeds_replay_bytes(
    simulate: Simulate, size: int, followed: bool
) -> None:
    cluster, client = await simulate(owner=2, redirects={**FOLLOW, "replayBytes": 100})
    body = b"x" * size
    walk = await client.walk(f"{INGRESS}{ADMIN}/subscription/s", method="PUT", body=body)
    assert walk.origins == ([INGRESS] if followed else [INGRESS, external(2)])
    assert [broker.requests[0].body for broker in cluster.brokers[1:]] == [body, body]
    action = "followed" if followed else "rewritten"
    assert client.counted("redirects_total") == {("external", "admin", action): 1}


async def test_follow_gets_502_when_body_is_not_replayable_and_broker_is_unmapped(simulate: Simulate) -> None:
    policies = {**FOLLOW, "replayBytes": 10}
    cluster, client = await simulate(owner=2, advertisedListeners=without_external(2), redirects=policies)
    reply = await client.send(f"{ADMIN}/subscription/s", method="PUT", body=b"x" * 11)
    assert reply.refusal == (502, "body-not-replayable")
    assert asked(cluster) == [0, 1, 0]
    assert client.counted("redirects_total") == {("external", "admin", "refused"): 1}
    assert client.counted("unmapped_redirects_total") == {("external",): 1}


@pytest.mark.parametrize("status", [303, 307])
async def test_follow_releases_replay_budget_after_each_request(simulate: Simulate, status: int) -> None:
    cluster, client = await simulate(owner=2, redirects=FOLLOW, limits={"replayTotalBytes": 10})
    for n in range(1, 4):
        cluster.brokers[1].script.extend(pointing(f"{inside(2)}{STATS}", status=status))
        reply = await client.send(STATS, method="POST", body=b"x" * 10)
        assert reply.json["method"] == ("GET" if status == 303 else "POST")
        assert cluster.brokers[2].requests[-1].body == (b"" if status == 303 else b"x" * 10)
        assert client.counted("redirects_total") == {("external", "admin", "followed"): n}


@both_kinds
async def test_follow_gets_502_on_redirect_loop(simulate: Simulate, kind: str, target: str) -> None:
    cluster, client = await simulate(redirects=FOLLOW)
    cluster.brokers[0].script.append(always(redirects(inside(1))))
    cluster.brokers[1].script.append(always(redirects(inside(0))))
    assert (await client.send(target)).refusal == (502, "redirect-loop")
    assert sum(asked(cluster)) == 3
    assert client.counted("redirects_total") == {
        ("external", kind, "followed"): 2,
        ("external", kind, "refused"): 1,
    }


@pytest.mark.parametrize(("hops", "status"), [(1, 200), (3, 200), (4, 502)])
async def test_follow_gets_502_beyond_max_hops(simulate: Simulate, hops: int, status: int) -> None:
    script = pointing(*(f"{inside(1)}{STATS}?n={n}" for n in range(hops)))
    cluster, client = await simulate(owner=1, redirects={**FOLLOW, "maxHops": 3}, script=script)
    reply = await client.send(STATS)
    assert reply.status == status
    expected = {("external", "admin", "followed"): min(hops, 3)}
    if status == 502:
        assert reply.refusal == (502, "too-many-redirects")
        expected["external", "admin", "refused"] = 1
    assert client.counted("redirects_total") == expected
    assert asked(cluster) == [0, min(hops, 3) + 1, 0]


async def test_follow_for_lookups_does_not_apply_to_admin_calls(simulate: Simulate) -> None:
    _, client = await simulate(loaded=(0, 1), redirects={"lookup": "follow"})
    assert (await client.walk(INGRESS + STATS)).origins == [INGRESS, external(0), external(2)]


async def test_follow_also_follows_location_already_on_the_listener(simulate: Simulate) -> None:
    _, client = await simulate(owner=2, redirects=FOLLOW, script=pointing(external(2) + STATS))
    assert (await client.send(STATS)).json["broker"] == f"{named(2)}:8080"


@both_kinds
async def test_follow_gets_502_when_redirect_target_is_down(simulate: Simulate, kind: str, target: str) -> None:
    cluster, client = await simulate(redirects=FOLLOW)
    await cluster.brokers[0].stop()
    assert (await client.send(target)).refusal == (502, "broker-unreachable")
    assert client.counted("redirects_total") == {("external", kind, "followed"): 1}
