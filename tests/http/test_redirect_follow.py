"""Redirects that the sidecar follows itself: which brokers it asks, what it sends them, and when it gives up."""

from __future__ import annotations

import asyncio

import pytest
from cluster_cases import ADMIN, FOLLOW, LOOKUP, STATS, TOPIC, asked, both_families, both_kinds, inside, load, pointing
from sidecars import EXTERNAL, HEADER, HOST, INGRESS, Keys, book, external, named, serving

from pulsar_ingress_proxy.demo.cluster import SimulatedCluster, always, redirects
from pulsar_ingress_proxy.demo.metadata import Family


class TestFollowing:
    """`follow`: the sidecar asks the broker that was named, and the client gets one answer."""

    @both_families
    async def test_follow_resolves_lookup_redirects_within_one_client_request(self, family: Family) -> None:
        async with SimulatedCluster(family=family) as cluster, serving(cluster, redirects=FOLLOW) as client:
            load(cluster, 0, 1)
            walk = await client.walk(INGRESS + LOOKUP)
            assert walk.urls == [INGRESS + LOOKUP]
            assert (asked(cluster), cluster.owner(TOPIC)) == ([1, 1, 1], 2)
            assert cluster.brokers[2].requests[0].authoritative
            for broker in cluster.brokers:
                (received,) = broker.requests
                assert (received.values(HEADER), received.listener_name) == (["external"], "external")
                assert received.values("Host") == [broker.web.removeprefix("http://")]
            assert walk.reply.json["httpUrl"] == external(2)
            assert await client.counted("redirects_total") == {("external", "lookup", "followed"): 2}
            assert await client.counted("listener_hits_total") == {("public", "external", "ingress", "http"): 1}
            assert await client.counted("requests_total") == {("lookup", "http", "200"): 1}
            assert await client.counted("leaks_total") == {}

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
        self, family: Family, method: str, target: str, body: bytes
    ) -> None:
        async with SimulatedCluster(family=family) as cluster, serving(cluster, redirects=FOLLOW) as client:
            load(cluster, 0, 1)
            reply = await client.send(target, method=method, body=body or None)
            assert reply.json == {"broker": f"{named(2)}:8080", "method": method, "body": body.decode()}
            assert [broker.requests[0].body for broker in cluster.brokers] == [body] * 3
            assert await client.counted("redirects_total") == {("external", "admin", "followed"): 2}

    @both_kinds
    async def test_follow_sends_authorization_to_every_broker(self, kind: str, target: str) -> None:
        # C++ clients do not send it to another host, so for them this is the only way that works.
        async with SimulatedCluster(token="s3cret") as cluster, serving(cluster, redirects=FOLLOW) as client:
            load(cluster, 0, 1)
            assert (await client.send(target, headers=[("Authorization", "Bearer s3cret")])).status == 200
            for broker in cluster.brokers:
                assert broker.requests[0].values("Authorization") == ["Bearer s3cret"]
            assert await client.counted("redirects_total") == {("external", kind, "followed"): 2}

    async def test_follow_gives_the_client_a_single_answer(self) -> None:
        async with SimulatedCluster() as cluster, serving(cluster, redirects=FOLLOW) as client:
            load(cluster, 0, 1)
            reader, writer = await asyncio.open_connection("127.0.0.1", client.sidecar.http_servers[0].port)
            head = f"PUT {ADMIN}/subscription/s HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\nContent-Length: 4\r\n"
            writer.write(f"{head}\r\nbody".encode())
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
            assert (answer.count(b"HTTP/1.1 "), answer.startswith(b"HTTP/1.1 200 ")) == (1, True)
            assert asked(cluster) == [1, 1, 1]

    @pytest.mark.parametrize(("size", "followed"), [(0, True), (100, True), (101, False), (300_000, False)])
    async def test_follow_rewrites_redirect_when_body_exceeds_replay_bytes(self, size: int, followed: bool) -> None:
        keys: Keys = {"redirects": {**FOLLOW, "replayBytes": 100}}
        async with SimulatedCluster() as cluster, serving(cluster, **keys) as client:
            cluster.own(TOPIC, 2)
            body = b"x" * size
            walk = await client.walk(f"{INGRESS}{ADMIN}/subscription/s", method="PUT", body=body)
            assert walk.origins == ([INGRESS] if followed else [INGRESS, external(2)])
            assert [broker.requests[0].body for broker in cluster.brokers[1:]] == [body, body]
            action = "followed" if followed else "rewritten"
            assert await client.counted("redirects_total") == {("external", "admin", action): 1}

    async def test_follow_gets_502_when_body_is_not_replayable_and_broker_is_unmapped(self) -> None:
        async with SimulatedCluster() as cluster:
            cluster.own(TOPIC, 2)
            lines = [*book(cluster, *EXTERNAL)[:2], *book(cluster)[2:]]
            keys: Keys = {"advertisedListeners": lines, "redirects": {**FOLLOW, "replayBytes": 10}}
            async with serving(cluster, **keys) as client:
                reply = await client.send(f"{ADMIN}/subscription/s", method="PUT", body=b"x" * 11)
                assert reply.refusal == (502, "body-not-replayable")
                assert asked(cluster) == [0, 1, 0]
                assert await client.counted("redirects_total") == {("external", "admin", "refused"): 1}
                assert await client.counted("unmapped_redirects_total") == {("external",): 1}

    @pytest.mark.parametrize("status", [303, 307])
    async def test_follow_releases_replay_budget_after_each_request(self, status: int) -> None:
        keys: Keys = {"redirects": FOLLOW, "limits": {"replayTotalBytes": 10}}
        async with SimulatedCluster() as cluster, serving(cluster, **keys) as client:
            cluster.own(TOPIC, 2)
            for n in range(1, 4):
                cluster.brokers[1].script.extend(pointing(f"{inside(2)}{STATS}", status=status))
                reply = await client.send(STATS, method="POST", body=b"x" * 10)
                assert reply.json["method"] == ("GET" if status == 303 else "POST")
                assert cluster.brokers[2].requests[-1].body == (b"" if status == 303 else b"x" * 10)
                assert await client.counted("redirects_total") == {("external", "admin", "followed"): n}

    @both_kinds
    async def test_follow_gets_502_on_redirect_loop(self, kind: str, target: str) -> None:
        async with SimulatedCluster() as cluster, serving(cluster, redirects=FOLLOW) as client:
            cluster.brokers[0].script.append(always(redirects(inside(1))))
            cluster.brokers[1].script.append(always(redirects(inside(0))))
            assert (await client.send(target)).refusal == (502, "redirect-loop")
            assert sum(asked(cluster)) == 3
            assert await client.counted("redirects_total") == {
                ("external", kind, "followed"): 2,
                ("external", kind, "refused"): 1,
            }

    @pytest.mark.parametrize(("hops", "status"), [(1, 200), (3, 200), (4, 502)])
    async def test_follow_gets_502_beyond_max_hops(self, hops: int, status: int) -> None:
        keys: Keys = {"redirects": {**FOLLOW, "maxHops": 3}}
        async with SimulatedCluster() as cluster, serving(cluster, **keys) as client:
            cluster.own(TOPIC, 1)
            cluster.brokers[1].script.extend(pointing(*(f"{inside(1)}{STATS}?n={n}" for n in range(hops))))
            reply = await client.send(STATS)
            assert reply.status == status
            expected = {("external", "admin", "followed"): min(hops, 3)}
            if status == 502:
                assert reply.refusal == (502, "too-many-redirects")
                expected["external", "admin", "refused"] = 1
            assert await client.counted("redirects_total") == expected
            assert asked(cluster) == [0, min(hops, 3) + 1, 0]

    async def test_follow_for_lookups_does_not_apply_to_admin_calls(self) -> None:
        async with SimulatedCluster() as cluster, serving(cluster, redirects={"lookup": "follow"}) as client:
            load(cluster, 0, 1)
            assert (await client.walk(INGRESS + LOOKUP)).origins == [INGRESS]
            cluster.metadata.owners.clear()
            load(cluster, 0, 1)
            assert (await client.walk(INGRESS + STATS)).origins == [INGRESS, external(0), external(2)]

    async def test_follow_also_follows_location_already_on_the_listener(self) -> None:
        async with SimulatedCluster() as cluster, serving(cluster, redirects=FOLLOW) as client:
            cluster.own(TOPIC, 2)
            cluster.brokers[1].script.extend(pointing(external(2) + STATS))
            assert (await client.send(STATS)).json["broker"] == f"{named(2)}:8080"

    @both_kinds
    async def test_follow_gets_502_when_redirect_target_is_down(self, kind: str, target: str) -> None:
        async with SimulatedCluster() as cluster, serving(cluster, redirects=FOLLOW) as client:
            await cluster.brokers[0].stop()
            assert (await client.send(target)).refusal == (502, "broker-unreachable")
            assert await client.counted("redirects_total") == {("external", kind, "followed"): 1}
