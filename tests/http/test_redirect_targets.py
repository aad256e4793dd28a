"""Redirects by where they lead: kept on the listener, passed, followed or refused; nobody unknown is ever dialled."""

from __future__ import annotations

import pytest
from cluster_cases import (
    FOLLOW,
    LOOKUP,
    PARTNERS,
    STATS,
    TOPIC,
    asked,
    both_families,
    both_kinds,
    inside,
    load,
    pointing,
)
from sidecars import EXTERNAL, HOST, INGRESS, PUBLIC, Keys, book, external, named, serving

from pulsar_ingress_proxy.demo.cluster import SimulatedCluster, redirects
from pulsar_ingress_proxy.demo.metadata import Family


class TestPassing:
    @both_kinds
    async def test_pass_policy_forwards_location_byte_for_byte_and_counts_leak(self, kind: str, target: str) -> None:
        keys: Keys = {"redirects": {"lookup": "pass", "admin": "pass"}}
        async with SimulatedCluster() as cluster, serving(cluster, **keys) as client:
            location = f"http://{named(2).upper()}:8080{target}?listenerName=a&x=%2f&&#y"
            cluster.brokers[1].script.extend(pointing(location))
            assert (await client.send(target)).location == location
            assert await client.counted("redirects_total") == {("external", kind, "passed"): 1}
            assert await client.counted("leaks_total") == {("external", "location", "passed"): 1}
            assert await client.counted("unmapped_redirects_total") == {}

    @both_kinds
    async def test_pass_policy_counts_no_leak_for_location_on_the_listener(self, kind: str, target: str) -> None:
        keys: Keys = {"redirects": {"lookup": "pass", "admin": "pass"}}
        async with SimulatedCluster() as cluster, serving(cluster, **keys) as client:
            cluster.brokers[1].script.extend(pointing(external(2) + target))
            assert (await client.send(target)).location == external(2) + target
            assert await client.counted("leaks_total") == {}

    @both_families
    async def test_pip_338_redirect_keeps_internal_address_if_client_listener_not_preferred(
        self, family: Family
    ) -> None:
        keys: Keys = {"preferHttpClientListenerOverInternalListener": False, "redirects": FOLLOW}
        async with SimulatedCluster(family=family) as cluster, serving(cluster, **keys) as client:
            assert (await client.send(STATS)).location == f"{inside(0)}{STATS}?authoritative=false"
            assert asked(cluster) == [0, 1, 0]
            assert await client.counted("leaks_total") == {("external", "location", "passed"): 1}


class TestKeeping:
    @pytest.mark.parametrize(
        "location",
        [
            f"{external(2)}{LOOKUP}?authoritative=true",
            f"{external(2)}{LOOKUP}?listenerName=&listenerName=internal&x=%2f",
            f"https://BROKER-2.Pulsar.example.com.:443{LOOKUP}?x=%7e&#top",
            f"{external(2)}",
        ],
    )
    @both_kinds
    async def test_a_location_on_the_listener_stays_byte_for_byte(self, kind: str, target: str, location: str) -> None:
        async with SimulatedCluster() as cluster, serving(cluster) as client:
            cluster.brokers[1].script.extend(pointing(location))
            assert (await client.send(target)).location == location
            assert await client.counted("redirects_total") == {("external", kind, "kept"): 1}
            assert await client.counted("leaks_total") == {}

    @pytest.mark.parametrize("location", [f"{STATS}?x=%2f", "/", "/a%2Fb#c"])
    @pytest.mark.parametrize("policy", ["rewrite", "follow"])
    async def test_relative_location_is_forwarded_unchanged(self, policy: str, location: str) -> None:
        keys: Keys = {"redirects": {"admin": policy}}
        async with SimulatedCluster() as cluster, serving(cluster, **keys) as client:
            cluster.brokers[1].script.extend(pointing(location))
            assert (await client.send(STATS)).location == location
            assert await client.counted("redirects_total") == {("external", "admin", "kept"): 1}
            assert await client.counted("leaks_total") == {}

    async def test_relative_location_leads_client_back_to_the_same_broker(self) -> None:
        async with SimulatedCluster() as cluster, serving(cluster) as client:
            cluster.own(TOPIC, 2)
            cluster.brokers[2].script.extend(pointing(f"{STATS}?again"))
            walk = await client.walk(external(2) + STATS)
            assert walk.urls == [external(2) + STATS, f"{external(2)}{STATS}?again"]
            assert (walk.reply.status, asked(cluster)) == (200, [0, 0, 2])


class TestUnmapped:
    """Brokers that have no address on the listener, nor on the default one."""

    @both_kinds
    async def test_redirect_is_followed_when_broker_has_no_address_of_its_own_on_listener(
        self, kind: str, target: str
    ) -> None:
        async with SimulatedCluster() as cluster:
            lines = [*book(cluster)[:1], *book(cluster, *EXTERNAL)[1:]]
            async with serving(cluster, advertisedListeners=lines) as client:
                load(cluster, 0, 1)
                walk = await client.walk(INGRESS + target)
                assert walk.origins == [INGRESS, external(2)]  # past the leader, which the client cannot reach
                assert (asked(cluster), cluster.owner(TOPIC)) == ([1, 1, 1], 2)
                assert await client.counted("redirects_total") == {
                    ("external", kind, "followed"): 1,
                    ("external", kind, "rewritten"): 1,
                }
                assert await client.counted("unmapped_redirects_total") == {("external",): 1}
                assert await client.counted("leaks_total") == {}

    @both_kinds
    async def test_redirect_to_unmapped_broker_gets_502_when_unmapped_is_refuse(self, kind: str, target: str) -> None:
        async with SimulatedCluster() as cluster:
            keys: Keys = {"advertisedListeners": book(cluster), "redirects": {"unmapped": "refuse"}}
            async with serving(cluster, **keys) as client:
                reply = await client.send(target)
                assert reply.refusal == (502, "unmapped")
                assert named(0) not in reply.json["reason"]  # the log has it
                assert asked(cluster) == [0, 1, 0]
                assert await client.counted("redirects_total") == {("external", kind, "refused"): 1}
                assert await client.counted("unmapped_redirects_total") == {("external",): 1}
                assert await client.counted("leaks_total") == {}

    @both_kinds
    async def test_redirect_to_unmapped_broker_is_passed_when_unmapped_is_pass(self, kind: str, target: str) -> None:
        async with SimulatedCluster() as cluster:
            keys: Keys = {"advertisedListeners": book(cluster), "redirects": {"unmapped": "pass"}}
            async with serving(cluster, **keys) as client:
                location = (await client.send(target)).location
                assert location.startswith(f"{inside(0)}{target}?authoritative=false")
                assert await client.counted("redirects_total") == {("external", kind, "passed"): 1}
                assert await client.counted("unmapped_redirects_total") == {("external",): 1}
                assert await client.counted("leaks_total") == {("external", "location", "passed"): 1}

    async def test_broker_with_address_on_default_listener_is_not_unmapped(self) -> None:
        async with SimulatedCluster() as cluster:
            keys: Keys = {"ingresses": [PUBLIC, PARTNERS], "lookupListenerName": "external"}
            async with serving(cluster, **keys) as client:
                reply = await client.send(STATS, host="partner.example")
                assert reply.location == f"{external(0)}{STATS}?authoritative=false"
                assert await client.counted("redirects_total") == {("partner", "admin", "rewritten"): 1}
                assert await client.counted("unmapped_redirects_total") == {}


INSIDE = [
    "http://10.1.2.3:8080",
    "http://192.168.0.1",
    "http://127.0.0.1:9",
    "http://127.1:9",
    "http://2130706433:9",
    "http://0x7f.1:9",
    "http://169.254.169.254",
    "http://[::1]:8080",
    "http://[fd00::1]:8080",
    "http://[::ffff:10.0.0.1]",
    "http://localhost:8080",
    "https://pulsar-broker",
    "http://pulsar-broker.pulsar.svc:8080",
    "http://printer.local",
    "http://metadata.google.internal",
    "http://other.pulsar.svc.cluster.local:8080",
    f"http://{named(7)}:8080",
]
NO_AUTHORITY = [
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
]


class TestUnknownAuthorities:
    """Whom nobody knows is never dialled: it passes where clients may reach it, and is refused where none could."""

    @pytest.mark.parametrize("origin", INSIDE)
    @pytest.mark.parametrize("policy", ["rewrite", "follow"])
    async def test_redirect_to_unknown_internal_address_gets_502(self, policy: str, origin: str) -> None:
        keys: Keys = {"redirects": {"lookup": policy, "admin": policy}}
        async with SimulatedCluster() as cluster, serving(cluster, **keys) as client:
            cluster.brokers[1].script.append(redirects(origin))
            assert (await client.send(LOOKUP)).refusal == (502, "unknown-authority")
            assert await client.counted("redirects_total") == {("external", "lookup", "refused"): 1}
            assert await client.counted("unmapped_redirects_total") == {("external",): 1}
            assert await client.counted("leaks_total") == {}

    @pytest.mark.parametrize("location", NO_AUTHORITY)
    async def test_redirect_without_usable_authority_gets_502(self, location: str) -> None:
        async with SimulatedCluster() as cluster, serving(cluster) as client:
            cluster.brokers[1].script.extend(pointing(location))
            assert (await client.send(STATS)).refusal == (502, "unknown-authority")
            assert await client.counted("redirects_total") == {("external", "admin", "refused"): 1}

    async def test_unknown_host_in_domain_of_known_brokers_is_treated_as_internal(self) -> None:
        async with SimulatedCluster(name="b{n}.brokers.example.net") as cluster, serving(cluster) as client:
            cluster.brokers[1].script.append(redirects("http://b7.brokers.example.net:8080"))
            assert (await client.send(LOOKUP)).refusal == (502, "unknown-authority")

    @pytest.mark.parametrize("origin", ["https://peer.example.org:8443", "http://8.8.8.8", "http://[2600::1]:8080"])
    @pytest.mark.parametrize("policy", ["rewrite", "follow"])
    @both_kinds
    async def test_redirect_to_unknown_public_host_is_passed_and_counted_as_leak(
        self, kind: str, target: str, policy: str, origin: str
    ) -> None:
        keys: Keys = {"redirects": {"lookup": policy, "admin": policy}}
        async with SimulatedCluster() as cluster, serving(cluster, **keys) as client:
            cluster.brokers[1].script.append(redirects(origin))
            assert (await client.send(f"{target}?x=%2f&")).location == f"{origin}{target}?x=%2f&"
            assert await client.counted("redirects_total") == {("external", kind, "passed"): 1}
            assert await client.counted("unmapped_redirects_total") == {("external",): 1}
            assert await client.counted("leaks_total") == {("external", "location", "passed"): 1}

    @pytest.mark.parametrize(("unmapped", "status"), [("refuse", 502), ("pass", 307)])
    @pytest.mark.parametrize("origin", ["https://peer.example.org:8443", "http://10.1.2.3:8080"])
    async def test_unmapped_policy_applies_to_unknown_hosts(self, unmapped: str, status: int, origin: str) -> None:
        keys: Keys = {"redirects": {"unmapped": unmapped}}
        async with SimulatedCluster() as cluster, serving(cluster, **keys) as client:
            cluster.brokers[1].script.append(redirects(origin))
            reply = await client.send(STATS)
            assert reply.status == status
            if status == 502:
                assert reply.refusal == (502, "unknown-authority")
            else:
                assert reply.location == origin + STATS
            assert await client.counted("unmapped_redirects_total") == {("external",): 1}

    @pytest.mark.parametrize(
        "origin", ["http://pulsar.peer.internal:8080", "http://b1.eu.peer.internal", "http://peer"]
    )
    @pytest.mark.parametrize("unmapped", ["follow", "refuse"])
    async def test_redirect_to_configured_peer_is_passed_unchanged(self, unmapped: str, origin: str) -> None:
        keys: Keys = {"redirects": {**FOLLOW, "unmapped": unmapped, "peers": ["*.peer.internal", "peer"]}}
        async with SimulatedCluster() as cluster, serving(cluster, **keys) as client:
            cluster.brokers[1].script.append(redirects(origin))
            assert (await client.send(f"{LOOKUP}?x=%2f")).location == f"{origin}{LOOKUP}?x=%2f"
            assert await client.counted("redirects_total") == {("external", "lookup", "passed"): 1}
            assert await client.counted("unmapped_redirects_total") == {}

    @pytest.mark.parametrize("unmapped", ["follow", "refuse", "pass"])
    @pytest.mark.parametrize("policy", ["rewrite", "follow", "pass"])
    @both_kinds
    async def test_addresses_that_are_not_configured_are_never_dialled(
        self, kind: str, target: str, policy: str, unmapped: str
    ) -> None:
        keys: Keys = {"redirects": {"lookup": policy, "admin": policy, "unmapped": unmapped, "peers": ["localhost"]}}
        async with (
            SimulatedCluster() as cluster,
            SimulatedCluster(brokers=1) as others,
            serving(cluster, **keys) as client,
        ):
            port = others.brokers[0].web.rpartition(":")[2]
            for origin in (f"http://127.0.0.1:{port}", f"http://localhost:{port}", f"http://127.1:{port}"):
                cluster.brokers[1].script.append(redirects(origin))
                assert (await client.send(target)).status in (307, 502)
            await client.send(target, host=f"127.0.0.1:{port}")
            await client.send(target, host=HOST, headers=[("X-Forwarded-Host", f"127.0.0.1:{port}")])
            assert asked(others) == [0]

    async def test_follow_gets_502_when_second_redirect_leads_to_unknown_address(self) -> None:
        async with (
            SimulatedCluster() as cluster,
            SimulatedCluster(brokers=1) as others,
            serving(cluster, redirects=FOLLOW) as client,
        ):
            cluster.brokers[1].script.append(redirects(inside(2)))
            cluster.brokers[2].script.append(redirects(others.brokers[0].web))
            assert (await client.send(STATS)).refusal == (502, "unknown-authority")
            assert (asked(cluster), asked(others)) == ([0, 1, 1], [0])
            assert await client.counted("redirects_total") == {
                ("external", "admin", "followed"): 1,
                ("external", "admin", "refused"): 1,
            }


class TestSharedAddresses:
    """Where brokers share one web address, a redirect to it would reach any: it is followed, never rewritten."""

    @both_kinds
    @both_families
    async def test_redirect_is_followed_when_broker_has_no_address_of_its_own_on_listener(
        self, family: Family, kind: str, target: str
    ) -> None:
        async with SimulatedCluster(family=family) as cluster:
            urls = [f"external:https://{HOST}", EXTERNAL[1]]
            async with serving(cluster, advertisedListeners=book(cluster, *urls)) as client:
                load(cluster, 0, 1)
                walk = await client.walk(INGRESS + target)
                assert walk.urls == [INGRESS + target]
                assert (asked(cluster), cluster.owner(TOPIC)) == ([1, 1, 1], 2)
                assert await client.counted("redirects_total") == {("external", kind, "followed"): 2}
                assert await client.counted("unmapped_redirects_total") == {}
                assert await client.counted("leaks_total") == {}
                if kind == "lookup":
                    assert walk.reply.json["httpUrl"] == INGRESS
                    assert walk.reply.json["brokerUrl"] == "pulsar+ssl://broker-2.pulsar.example.com:6653"
