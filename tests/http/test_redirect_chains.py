"""Redirects through the sidecar, as whole chains: client, redirect, rewritten host, and the broker that it means."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import count

import pytest
from aiohttp.web import Request, Response, StreamResponse
from sidecars import EXTERNAL, HEADER, HOST, INGRESS, PARTNER, PUBLIC, Keys, book, external, named, serving

from pulsar_ingress_proxy.demo.cluster import (
    Answer,
    Listener,
    Received,
    SimulatedBroker,
    SimulatedCluster,
    Step,
    Topic,
    always,
    redirects,
    says,
)
from pulsar_ingress_proxy.demo.metadata import Family, LoadManager

TOPIC = "persistent://public/default/orders"
LOOKUP = "/lookup/v2/topic/persistent/public/default/orders"
LOOKUP_V1 = "/lookup/v2/destination/persistent/prop/cluster/ns/a%2Fb"
ADMIN = "/admin/v2/persistent/public/default/orders"
STATS = f"{ADMIN}/stats"
PRODUCE = "/topics/persistent/public/default/orders"
FAMILIES: tuple[Family, ...] = ("4.x", "5.x")
both_families = pytest.mark.parametrize("family", FAMILIES)
both_kinds = pytest.mark.parametrize(("kind", "target"), [("lookup", LOOKUP), ("admin", STATS)])

FOLLOW = {"lookup": "follow", "admin": "follow"}
PARTNERS = {"name": "partners", "hosts": ["partner.example"], "listener": "partner"}
ELSEWHERE = "elsewhere.example.org"


def inside(n: int) -> str:
    return f"http://{named(n)}:8080"


def load(cluster: SimulatedCluster, *brokers: int) -> None:
    """Give these brokers bundles, so that a new one goes to another."""
    for n, bounds in zip(brokers, ("0x00000000_0x40000000", "0x40000000_0x80000000"), strict=False):
        cluster.own(f"t/n/{bounds}", n)


def asked(cluster: SimulatedCluster) -> list[int]:
    """How many requests each broker got."""
    return [len(broker.requests) for broker in cluster.brokers]


def named_in(location: str) -> list[str | None]:
    """The listeners that a Location names."""
    query = location.partition("?")[2]
    return [Received("GET", f"/?{part}").parameter("listenerName") for part in query.split("&") if "istener" in part]


def pointing(*locations: str, status: int = 307) -> Iterable[Step]:
    return [says(Answer(status, location=location)) for location in locations]


class TestLookupChains:
    @pytest.mark.parametrize(
        ("family", "target"), [("4.x", LOOKUP), ("5.x", LOOKUP), ("4.x", LOOKUP_V1), ("5.x", LOOKUP + "%252fa+b%20")]
    )
    async def test_lookup_redirects_lead_via_leader_to_the_broker_that_takes_the_bundle(
        self, family: Family, target: str
    ) -> None:
        async with SimulatedCluster(family=family) as cluster, serving(cluster) as client:
            load(cluster, 0, 1)
            walk = await client.walk(INGRESS + target)
            assert walk.origins == [INGRESS, external(0), external(2)]
            assert asked(cluster) == [1, 1, 1]
            to_leader, taken = cluster.brokers[0].requests[0], cluster.brokers[2].requests[0]
            assert (to_leader.parameter("authoritative"), taken.parameter("authoritative")) == ("false", "true")
            (bundle,) = [bundle for bundle in cluster.metadata.owners if not bundle.startswith("t/n/")]
            assert cluster.owner(bundle) == 2  # who got authoritative=true owns it now, so it must be the one meant
            assert walk.reply.json["httpUrl"] == external(2)
            for broker in cluster.brokers:
                assert broker.requests[0].values(HEADER) == ["external"]
                assert broker.requests[0].listener_name == "external"
            assert await client.counted("redirects_total") == {("external", "lookup", "rewritten"): 2}
            assert await client.counted("listener_hits_total") == {("public", "external", "ingress", "http"): 3}
            assert await client.counted("leaks_total") == {}
            assert await client.counted("unmapped_redirects_total") == {}
            assert (await client.walk(INGRESS + target)).origins == [INGRESS]

    @both_families
    async def test_lookup_reaches_the_owner_from_any_broker_of_the_pool(self, family: Family) -> None:
        async with SimulatedCluster(family=family) as cluster, serving(cluster, pool=(0, 1, 2)) as client:
            owners = {}
            for n in range(6):
                topic = f"persistent://public/ns-{n}/orders"
                walk = await client.walk(f"{INGRESS}/lookup/v2/topic/persistent/public/ns-{n}/orders")
                owners[topic] = cluster.owner(topic)
                assert walk.reply.json["httpUrl"] == external(owners[topic] or 0)
            assert sorted(map(str, owners.values())) == ["0", "0", "1", "1", "2", "2"]
            assert await client.counted("leaks_total") == {}

    @pytest.mark.parametrize(
        ("family", "query", "expected"),
        [
            # 4.x rebuilds path and query, and does not encode the name.
            ("4.x", "", "?authoritative=false&listenerName=external"),
            ("4.x", "?a=%2F&b", "?authoritative=false&listenerName=external"),
            ("4.x", "?listenerName=external", "?authoritative=false&listenerName=external"),
            ("4.x", "?listenerName=%20", "?authoritative=false&listenerName=external"),
            ("4.x", "?listenerName=partner", "?authoritative=false&listenerName=partner"),
            # 5.x keeps the query, built anew.
            ("5.x", "", "?authoritative=false&listenerName=external"),
            ("5.x", "?a=%2f&b&c=+%7E", "?a=%2f&b=&c=+%7E&authoritative=false&listenerName=external"),
            ("5.x", "?listener%4Eame=external&a", "?a=&authoritative=false&listenerName=external"),
            ("5.x", "?listenerName=partner", "?authoritative=false&listenerName=partner"),
        ],
    )
    async def test_lookup_redirect_location_names_the_listener_exactly_once(
        self, family: Family, query: str, expected: str
    ) -> None:
        partner = Listener("pulsar://b{n}.partner.example:6650")
        listeners = {"external": Listener(broker_service_url_tls="pulsar+ssl://b{n}:6651"), "partner": partner}
        async with SimulatedCluster(family=family, listeners=listeners) as cluster:
            urls = [*EXTERNAL, "partner:https://b{n}.partner.example"]
            async with serving(cluster, advertisedListeners=book(cluster, *urls)) as client:
                location = (await client.send(LOOKUP + query)).location
                host = "b0.partner.example" if "partner" in expected else "broker-0.pulsar.example.com"
                assert location == f"https://{host}{LOOKUP}{expected}"
                assert len(named_in(location)) == 1

    @pytest.mark.parametrize(
        ("sent", "expected"),
        [
            ("", "?listenerName=external"),
            ("?listenerName=internal", "?listenerName=external"),
            ("?authoritative=true&listenerName=", "?authoritative=true&listenerName=external"),
            ("?listenerName=external&x=%2f", "?listenerName=external&x=%2f"),
            ("?listenerName=external&listenerName=internal", "?listenerName=external"),
            ("?listener%4eame=internal&&y", "?&y&listenerName=external"),
        ],
    )
    async def test_listener_names_in_broker_location_are_replaced_by_the_selected_one(
        self, sent: str, expected: str
    ) -> None:
        async with SimulatedCluster() as cluster, serving(cluster) as client:
            cluster.brokers[1].script.extend(pointing(f"{inside(2)}{LOOKUP}{sent}"))
            assert (await client.send(LOOKUP)).location == f"{external(2)}{LOOKUP}{expected}"

    @both_families
    async def test_listener_name_in_redirect_location_is_percent_encoded(self, family: Family) -> None:
        # Brokers of 4.x take such names for listeners, and put them into a Location as they are.
        odd = Listener("pulsar://odd-{n}.example.com:6650")
        async with SimulatedCluster(family=family, listeners={"a&b=c": odd}) as cluster:
            keys: Keys = {"unknownListener": "forward", "lookupListenerName": "external"}
            async with serving(cluster, **keys) as client:
                load(cluster, 0, 1)
                walk = await client.walk(f"{INGRESS}{LOOKUP}?listenerName=a%26b%3Dc")
                assert walk.origins == [INGRESS, external(0), external(2)]
                for url in walk.urls[1:]:
                    assert url.count("listenerName=a%26b%3Dc") == 1
                    assert named_in(url) == ["a&b=c"]
                assert cluster.owner(TOPIC) == 2
                assert walk.reply.json["httpUrl"] == external(2)

    async def test_lookup_redirect_keeps_listener_name_that_the_next_broker_lacks(self) -> None:
        # 5.x falls back to the web port's listener without a word; the next broker would answer with that.
        async with SimulatedCluster(family="5.x") as cluster, serving(cluster) as client:
            del cluster.brokers[0].listeners["external"]
            walk = await client.walk(INGRESS + LOOKUP)
            assert walk.origins == [INGRESS, external(0)]
            assert named_in(walk.urls[1]) == ["external"]
            assert walk.reply.refusal == (400, "broker-lacks-listener")
            assert await client.counted("listener_misses_total") == {("public", "broker-lacks-listener", "http"): 1}

    async def test_client_named_listener_survives_lookup_redirects(self) -> None:
        partner = Listener("pulsar://b{n}.partner.example:6650")
        async with SimulatedCluster(listeners={"partner": partner}) as cluster:
            keys: Keys = {
                "advertisedListeners": book(cluster, *EXTERNAL, *PARTNER),
                "ingresses": [PUBLIC, {**PARTNERS, "hosts": ["partner.example", "*.partner.example"]}],
                "reachable": [f"https://b{n}.partner.example:8443" for n in range(3)],
            }
            async with serving(cluster, **keys) as client:
                load(cluster, 0, 1)
                walk = await client.walk(f"{INGRESS}{LOOKUP}?listenerName=partner")
                assert walk.origins[1:] == ["https://b0.partner.example:8443", "https://b2.partner.example:8443"]
                assert walk.reply.json["brokerUrl"] == "pulsar://b2.partner.example:6650"
                assert cluster.owner(TOPIC) == 2
                assert await client.counted("listener_hits_total") == {
                    ("public", "partner", "query", "http"): 1,
                    ("partners", "partner", "ingress", "http"): 2,
                }

    async def test_lookup_redirect_uses_default_listener_when_selected_one_has_no_web_address(self) -> None:
        # PIP-338: and the broker that it leads to is the one meant, though it is not on the selected listener.
        partner = Listener("pulsar://b{n}.partner.example:6650")
        async with SimulatedCluster(listeners={"partner": partner}) as cluster:
            partner_binary = "partner:pulsar://b{n}.partner.example:6650"
            keys: Keys = {
                "advertisedListeners": book(cluster, *EXTERNAL, partner_binary),
                "ingresses": [PUBLIC, PARTNERS],
                "lookupListenerName": "external",
                "reachable": ["https://partner.example"],
            }
            async with serving(cluster, **keys) as client:
                load(cluster, 0, 1)
                walk = await client.walk(f"https://partner.example{LOOKUP}")
                assert walk.origins == ["https://partner.example", external(0), external(2)]
                assert named_in(walk.urls[2]) == ["partner"]
                assert (asked(cluster), cluster.owner(TOPIC)) == ([1, 1, 1], 2)
                assert walk.reply.json["brokerUrl"] == "pulsar://b2.partner.example:6650"
                assert await client.counted("redirects_total") == {("partner", "lookup", "rewritten"): 2}
                assert await client.counted("unmapped_redirects_total") == {}


class TestAdminChains:
    """Every admin call that brokers redirect, to the owner in one hop: methods, bodies and queries survive."""

    @pytest.mark.parametrize(
        ("method", "target", "body"),
        [
            ("GET", f"{STATS}?getPreciseBacklog=true&x=%2F", b""),
            ("GET", f"{ADMIN}%2fa/internalStats", b""),
            ("PUT", f"{ADMIN}/subscription/a%2Fb", b'{"ledgerId":-1,"entryId":-1}'),
            ("POST", f"{ADMIN}/subscription/s/resetcursor", b'{"ledgerId":1,"entryId":2}'),
            ("DELETE", f"{ADMIN}/subscription/s?force=true", b""),
            ("PUT", ADMIN, b""),
            ("DELETE", f"{ADMIN}?force=true", b'{"reason":"x"}'),
            ("POST", f"{ADMIN}/subscription/s/resetcursor", bytes(range(256)) * 4096),
            ("POST", PRODUCE, b'{"messages":[]}'),
            ("POST", f"{PRODUCE}/partitions/3", b'{"messages":[]}'),
        ],
    )
    @both_families
    async def test_admin_redirect_leads_to_owner_with_method_body_and_query(
        self, family: Family, method: str, target: str, body: bytes
    ) -> None:
        async with SimulatedCluster(family=family) as cluster, serving(cluster) as client:
            for topic in (TOPIC, f"{TOPIC}/a"):
                cluster.own(topic, 2)
            walk = await client.walk(INGRESS + target, method=method, body=body or None)
            assert walk.origins == [INGRESS, external(2)]
            assert asked(cluster) == [0, 1, 1]
            (received,) = cluster.brokers[2].requests
            assert (received.method, received.body) == (method, body)
            path, _, query = received.target.partition("?")
            assert path == target.partition("?")[0]
            assert set(query.split("&")) >= set(target.partition("?")[2].split("&")) - {""}
            assert "listenerName" not in received.target
            assert received.values(HEADER) == []
            if method == "GET" or body:
                assert (walk.reply.status, walk.reply.json["broker"]) == (200, f"{named(2)}:8080")
            else:
                assert walk.reply.status == 204
            kind = "other" if target.startswith("/topics") else "admin"
            assert await client.counted("redirects_total") == {("external", kind, "rewritten"): 1}
            assert await client.counted("listener_hits_total") == {}
            assert await client.counted("leaks_total") == {}

    @pytest.mark.parametrize(
        ("family", "method", "target", "body"),
        [
            ("4.x", "GET", STATS, b""),
            ("5.x", "GET", STATS, b""),
            ("4.x", "PUT", f"{ADMIN}/subscription/s", b'"earliest"'),
            ("5.x", "PUT", f"{ADMIN}/subscription/s", b'"earliest"'),
            ("5.x", "POST", PRODUCE, b'{"messages":[]}'),
        ],
    )
    async def test_admin_redirects_lead_via_leader_to_the_broker_that_takes_the_bundle(
        self, family: Family, method: str, target: str, body: bytes
    ) -> None:
        async with SimulatedCluster(family=family) as cluster, serving(cluster) as client:
            load(cluster, 0, 1)
            walk = await client.walk(INGRESS + target, method=method, body=body or None)
            assert walk.origins == [INGRESS, external(0), external(2)]
            assert (asked(cluster), cluster.owner(TOPIC)) == ([1, 1, 1], 2)
            assert cluster.brokers[2].requests[0].authoritative
            assert [broker.requests[0].body for broker in cluster.brokers] == [body] * 3
            assert walk.reply.json == {"broker": f"{named(2)}:8080", "method": method, "body": body.decode()}
            kind = "other" if target == PRODUCE else "admin"
            assert await client.counted("redirects_total") == {("external", kind, "rewritten"): 2}

    @pytest.mark.parametrize("load_manager", ["modular", "extensible"])
    @both_families
    async def test_bundle_unload_is_redirected_to_the_owner(self, family: Family, load_manager: LoadManager) -> None:
        async with SimulatedCluster(family=family, load_manager=load_manager) as cluster, serving(cluster) as client:
            bundle = Topic.parse(TOPIC).bundle
            target = f"/admin/v2/namespaces/{bundle}/unload"
            cluster.own(bundle, 2)
            walk = await client.walk(INGRESS + target, method="PUT")
            assert (walk.origins, walk.reply.status) == ([INGRESS, external(2)], 204)
            assert cluster.owner(bundle) is None
            # With a destination it is the leader's to say first.
            cluster.own(bundle, 2)
            walk = await client.walk(f"{INGRESS}{target}?destinationBroker={named(1)}:8080", method="PUT")
            hops = [external(0), external(2)] if load_manager == "modular" else [external(2)]
            assert (walk.origins[1:], walk.reply.status) == (hops, 204)
            assert cluster.owner(bundle) is None

    @both_families
    async def test_health_check_of_another_broker_is_redirected_to_that_broker(self, family: Family) -> None:
        async with SimulatedCluster(family=family) as cluster, serving(cluster) as client:
            target = f"/admin/v2/brokers/health?topicVersion=V2&brokerId={named(2)}%3A8080"
            walk = await client.walk(INGRESS + target)
            assert walk.urls == [INGRESS + target, external(2) + target]
            assert (walk.reply.body, asked(cluster)) == (b"ok", [0, 1, 1])

    @both_families
    async def test_request_for_owned_namespaces_is_redirected_to_the_named_broker(self, family: Family) -> None:
        async with SimulatedCluster(family=family) as cluster, serving(cluster) as client:
            cluster.own(TOPIC, 2)
            target = f"/admin/v2/brokers/pulsar/{named(2)}:8080/ownedNamespaces"
            walk = await client.walk(INGRESS + target)
            assert walk.urls == [INGRESS + target, external(2) + target]
            assert list(walk.reply.json) == [Topic.parse(TOPIC).bundle]

    async def test_function_update_is_redirected_to_its_worker_with_its_body(self) -> None:
        async with SimulatedCluster() as cluster, serving(cluster) as client:
            function = next(name for n in count() if cluster.worker(name := f"t/n/f{n}") == 2)
            upload = b'--x\r\nContent-Disposition: form-data; name="data"\r\n\r\n\x00\xff\r\n--x--\r\n'
            target = f"/admin/v3/functions/{function}?x=%2F"
            headers = [("Content-Type", "multipart/form-data; boundary=x")]
            walk = await client.walk(INGRESS + target, method="PUT", body=upload, headers=headers)
            assert walk.urls == [INGRESS + target, external(2) + target]
            (received,) = cluster.brokers[2].requests
            assert (received.body, received.header("Content-Type")) == (upload, "multipart/form-data; boundary=x")

    async def test_rest_produce_redirect_loop_of_4x_brokers_gets_502(self) -> None:
        # The brokers' own fault (the query is left alone, so nobody takes the bundle): followed, it ends in an answer.
        async with SimulatedCluster() as cluster, serving(cluster, redirects=FOLLOW) as client:
            load(cluster, 0, 1)
            reply = await client.send(PRODUCE, method="POST", body=b"{}")
            assert reply.refusal == (502, "redirect-loop")
            assert await client.counted("redirects_total") == {
                ("external", "other", "followed"): 2,
                ("external", "other", "refused"): 1,
            }

    async def test_admin_redirect_is_passed_unchanged_when_no_ingress_matches(self) -> None:
        async with SimulatedCluster() as cluster, serving(cluster) as client:
            reply = await client.send(STATS, host=ELSEWHERE)
            assert reply.location == f"{inside(0)}{STATS}?authoritative=false"
            assert await client.counted("redirects_total") == {("", "admin", "passed"): 1}
            assert await client.counted("listener_misses_total") == {}  # only lookups count

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    async def test_location_is_rewritten_for_every_redirect_status(self, status: int) -> None:
        async with SimulatedCluster() as cluster, serving(cluster) as client:
            cluster.brokers[1].script.extend(pointing(f"{inside(2)}/a%2Fb?x=%2f&#top", status=status))
            reply = await client.send(STATS)
            assert (reply.status, reply.location) == (status, f"{external(2)}/a%2Fb?x=%2f&#top")


class TestPinnedBrokers:
    """A broker's own host leads to that broker and to no other."""

    @pytest.mark.parametrize("host", ["broker-2.pulsar.example.com", "BROKER-2.pulsar.example.com.:443"])
    async def test_host_of_a_broker_selects_that_broker(self, host: str) -> None:
        async with SimulatedCluster() as cluster, serving(cluster, pool=(0, 1)) as client:
            for _ in range(3):
                reply = await client.send("/admin/v2/brokers/ready", host=host)
                assert reply.headers["broker-address"] == named(2)

    async def test_x_forwarded_host_of_a_broker_selects_that_broker(self) -> None:
        async with SimulatedCluster() as cluster, serving(cluster, lookupListenerName="external") as client:
            headers = [("X-Forwarded-Host", "broker-2.pulsar.example.com")]
            reply = await client.send("/admin/v2/brokers/ready", host="sidecar", headers=headers)
            assert reply.headers["broker-address"] == named(2)

    @pytest.mark.parametrize(("trusted", "host"), [("127.0.0.0/8", HOST), ("10.0.0.0/8", "sidecar")])
    async def test_x_forwarded_host_selects_no_broker_if_untrusted_or_host_matches_ingress(
        self, trusted: str, host: str
    ) -> None:
        keys: Keys = {"lookupListenerName": "external", "trustedProxies": [trusted]}
        async with SimulatedCluster() as cluster, serving(cluster, **keys) as client:
            headers = [("X-Forwarded-Host", "broker-2.pulsar.example.com")]
            reply = await client.send("/admin/v2/brokers/ready", host=host, headers=headers)
            assert reply.headers["broker-address"] == named(1)

    @both_kinds
    async def test_no_other_broker_is_asked_when_pinned_broker_is_down(self, kind: str, target: str) -> None:
        async with SimulatedCluster() as cluster, serving(cluster, pool=(0, 1, 2)) as client:
            await cluster.brokers[2].stop()
            reply = await client.send(f"{target}?authoritative=true", host="broker-2.pulsar.example.com")
            assert reply.refusal == (502, "broker-unreachable")
            assert asked(cluster) == [0, 0, 0]
            assert cluster.owner(TOPIC) is None
            assert await client.counted("upstream_errors_total") == {("broker-unreachable",): 1}
            assert await client.counted("requests_total") == {(kind, "http", "502"): 1}

    async def test_address_shared_by_brokers_selects_no_particular_broker(self) -> None:
        async with (
            SimulatedCluster() as cluster,
            serving(cluster, advertisedListeners=book(cluster, f"external:https://{HOST}")) as client,
        ):
            reply = await client.send("/admin/v2/brokers/ready")
            assert reply.headers["broker-address"] == named(1)


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


class TestSchemes:
    """Where the listener has http and https, the client's own scheme decides."""

    @pytest.mark.parametrize(
        ("trusted", "forwarded", "expected"),
        [
            ("127.0.0.0/8", "https", "https://broker-0.pulsar.example.com:8443"),  # TLS ends at the gateway
            ("127.0.0.0/8", "HTTPS", "https://broker-0.pulsar.example.com:8443"),
            ("127.0.0.0/8", "http, https", "https://broker-0.pulsar.example.com:8443"),
            ("127.0.0.0/8", "http", "http://broker-0.pulsar.example.com"),
            ("127.0.0.0/8", None, "http://broker-0.pulsar.example.com"),
            ("127.0.0.0/8", "gopher", "http://broker-0.pulsar.example.com"),
            ("10.0.0.0/8", "https", "http://broker-0.pulsar.example.com"),
        ],
    )
    async def test_trusted_x_forwarded_proto_selects_scheme_of_redirect(
        self, trusted: str, forwarded: str | None, expected: str
    ) -> None:
        async with SimulatedCluster() as cluster:
            urls = [
                "external:http://broker-{n}.pulsar.example.com",
                "external:https://broker-{n}.pulsar.example.com:8443",
            ]
            keys: Keys = {"advertisedListeners": book(cluster, *urls), "trustedProxies": [trusted]}
            async with serving(cluster, **keys) as client:
                headers = [("X-Forwarded-Proto", forwarded)] if forwarded else []
                assert (await client.send(STATS, headers=headers)).location.startswith(expected + STATS)
                assert cluster.brokers[1].requests[0].values("X-Forwarded-Proto") == ["http"]

    @pytest.mark.parametrize("scheme", ["http", "https"])
    async def test_redirect_chain_keeps_the_clients_scheme(self, scheme: str) -> None:
        async with SimulatedCluster() as cluster:
            urls = [
                "external:http://broker-{n}.pulsar.example.com:8080",
                "external:https://broker-{n}.pulsar.example.com",
            ]
            port = ":8080" if scheme == "http" else ""
            reachable = [f"http://{HOST}", *(f"http://broker-{n}.pulsar.example.com:8080" for n in range(3))]
            keys: Keys = {"advertisedListeners": book(cluster, *urls), "reachable": reachable}
            async with serving(cluster, **keys) as client:
                load(cluster, 0, 1)
                walk = await client.walk(f"{scheme}://{HOST}{STATS}")
                assert walk.origins[1:] == [f"{scheme}://broker-{n}.pulsar.example.com{port}" for n in (0, 2)]
                assert cluster.owner(TOPIC) == 2

    @pytest.mark.parametrize("forwarded", ["http", "https"])
    async def test_redirect_uses_the_only_scheme_that_the_listener_has(self, forwarded: str) -> None:
        async with SimulatedCluster() as cluster, serving(cluster) as client:
            reply = await client.send(STATS, headers=[("X-Forwarded-Proto", forwarded)])
            assert reply.location.startswith(external(0))


class TestFunctionWorkers:
    async def test_function_requests_go_to_separate_function_workers(self) -> None:
        async with (
            SimulatedCluster() as cluster,
            SimulatedCluster(brokers=2, name="worker-{n}.functions.svc.cluster.local") as workers,
        ):
            lines = [*book(cluster, *EXTERNAL), *book(workers, f"external:https://worker-{{n}}.{HOST}")]
            keys: Keys = {
                "advertisedListeners": lines,
                "functionWorkers": {"webServiceUrl": [workers.brokers[0].web]},
                "reachable": [f"https://worker-{n}.{HOST}" for n in range(2)],
            }
            async with serving(cluster, **keys) as client:
                function = next(name for n in count() if workers.worker(name := f"t/n/f{n}") == 1)
                target = f"/admin/v3/functions/{function}/restart"
                walk = await client.walk(INGRESS + target, method="POST", body=b"{}")
                assert walk.urls == [INGRESS + target, f"https://worker-1.{HOST}{target}"]
                assert walk.reply.json == {"broker": f"{workers.brokers[1].id}", "method": "POST", "body": "{}"}
                assert (asked(cluster), asked(workers)) == ([0, 0, 0], [1, 1])
                assert await client.counted("redirects_total") == {("external", "admin", "rewritten"): 1}

    @pytest.mark.parametrize(
        ("target", "to_workers"),
        [
            ("/admin/v3/functions/t/n", True),
            ("/admin/v2/functions/t/n", True),
            ("/admin/functions/t/n", True),
            ("/admin/v3/sources/t/n", True),
            ("/admin/v2/source/t/n", True),
            ("/admin/source/t/n", True),
            ("/admin/v3/sinks/builtinsinks", True),
            ("/admin/v2/sink/t/n", True),
            ("/admin/sink/t/n", True),
            ("/admin/v2/worker/cluster", True),
            ("/admin/v2/worker-stats/metrics", True),
            ("/admin/worker/cluster", True),
            ("/admin/worker-stats/metrics", True),
            ("/admin/v2/brokers", False),
            ("/admin/v3/transactions/coordinators", False),
            (LOOKUP, False),
        ],
    )
    async def test_only_function_worker_path_prefixes_go_to_function_workers(
        self, target: str, to_workers: bool
    ) -> None:
        async with (
            SimulatedCluster() as cluster,
            SimulatedCluster(brokers=1) as workers,
            serving(cluster, functionWorkers={"webServiceUrl": [workers.brokers[0].web]}) as client,
        ):
            await client.send(target)
            assert (asked(cluster), asked(workers)) == (([0, 0, 0], [1]) if to_workers else ([0, 1, 0], [0]))

    async def test_function_requests_go_to_brokers_without_separate_workers(self) -> None:
        async with SimulatedCluster() as cluster, serving(cluster) as client:
            assert (await client.send("/admin/v3/functions/t/n")).json == []
            assert asked(cluster) == [0, 1, 0]


LOOKUPS_ONLY: Keys = {"ingresses": [{**PUBLIC, "expose": ["lookup", "client"]}]}


class TestExposure:
    @pytest.mark.parametrize(
        ("method", "target"),
        [
            ("GET", "/admin/v2/brokers"),
            ("GET", STATS),
            ("POST", f"{ADMIN}/partitions"),
            ("DELETE", "/admin/v2/namespaces/public/default/topics"),
            ("POST", PRODUCE),
            ("GET", "/ws/v2/producer/persistent/public/default/orders"),
            ("GET", "/admin/v3/functions/public/default"),
            ("GET", "/metrics"),
            ("GET", "/status.html"),
            ("GET", "/"),
        ],
    )
    async def test_request_kind_not_exposed_by_ingress_gets_403(self, method: str, target: str) -> None:
        async with SimulatedCluster() as cluster, serving(cluster, **LOOKUPS_ONLY) as client:
            assert (await client.send(target, method=method)).refusal == (403, "not-exposed")
            assert asked(cluster) == [0, 0, 0]

    @pytest.mark.parametrize(
        "target",
        [
            LOOKUP,
            f"{LOOKUP}/bundle",
            f"{ADMIN}/partitions?checkAllowAutoCreation=true",
            "/admin/v2/namespaces/public/default/topics?mode=ALL",
            "/admin/v2/schemas/public/default/orders/schema/1",
        ],
    )
    async def test_request_kind_exposed_by_ingress_is_forwarded(self, target: str) -> None:
        async with SimulatedCluster() as cluster, serving(cluster, **LOOKUPS_ONLY) as client:
            cluster.own(TOPIC, 1)
            assert (await client.send(target)).status == 200

    @pytest.mark.parametrize(
        ("target", "refusal"),
        [
            ("/%61dmin/v2/brokers", (400, "bad-path")),
            ("/%61%64%6D%69%6e/v2/brokers", (400, "bad-path")),
            ("//admin/v2/brokers", (400, "bad-path")),
            ("/;/admin/v2/brokers", (400, "bad-path")),
            ("/admin;lookup/v2/brokers", (400, "bad-path")),
            ("/admin%2Fv2%2Fbrokers", (400, "bad-path")),
            ("/%2Fadmin/v2/brokers", (400, "bad-path")),
            ("/ADMIN/v2/brokers", (403, "not-exposed")),
            ("/lookup%2F/v2/brokers", (400, "bad-path")),
            ("/lookup/%u002e%u002e/admin/v2/brokers", (400, "bad-path")),
            ("/lookup/.%u002e/admin/v2/brokers", (400, "bad-path")),
            ("/lookup/..%u002fadmin/v2/brokers", (400, "bad-path")),
            ("/admin/v2;brokers/persistent/a/b/c/partitions", (400, "bad-path")),
            ("/lookup;v2/topic/persistent/public/default/orders", (400, "bad-path")),
            ("/lookup/../admin/v2/brokers", (400, "bad-path")),
            ("/lookup/%2e%2e/admin/v2/brokers", (400, "bad-path")),
            ("/lookup/.%2E/admin/v2/brokers", (400, "bad-path")),
            ("/lookup/..;a=b/admin/v2/brokers", (400, "bad-path")),
            ("/lookup/..%2Fadmin/v2/brokers", (400, "bad-path")),
            ("/lookup%2F..%2Fadmin/v2/brokers", (400, "bad-path")),
            ("/lookup/..%5Cadmin/v2/brokers", (400, "bad-path")),
            ("/./admin/v2/brokers", (400, "bad-path")),
            (f"{LOOKUP}/../../../../../../../admin/v2/brokers", (400, "bad-path")),
            (f"{ADMIN}/x/../partitions", (400, "bad-path")),
            (f"{ADMIN}%2F../partitions", (400, "bad-path")),
        ],
    )
    async def test_obfuscated_path_cannot_bypass_expose(self, target: str, refusal: tuple[int, str]) -> None:
        async with SimulatedCluster() as cluster, serving(cluster, **LOOKUPS_ONLY) as client:
            assert (await client.send(target)).refusal == refusal
            assert asked(cluster) == [0, 0, 0]

    async def test_absolute_target_cannot_bypass_expose(self) -> None:
        async with SimulatedCluster() as cluster, serving(cluster, **LOOKUPS_ONLY) as client:
            reader, writer = await asyncio.open_connection("127.0.0.1", client.sidecar.http_servers[0].port)
            target = f"http://{HOST}/admin/v2/brokers"
            writer.write(f"GET {target} HTTP/1.1\r\nHost: {ELSEWHERE}\r\nConnection: close\r\n\r\n".encode())
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
            assert (answer.split(b" ")[1], b"not-exposed" in answer) == (b"403", True)
            assert asked(cluster) == [0, 0, 0]

    async def test_a_lookup_that_is_not_exposed_is_a_miss(self) -> None:
        async with SimulatedCluster() as cluster, serving(cluster, ingresses=[{**PUBLIC, "expose": ["ws"]}]) as client:
            assert (await client.send(LOOKUP)).refusal == (403, "not-exposed")
            assert await client.counted("listener_misses_total") == {("public", "not-exposed", "http"): 1}
            assert await client.counted("requests_total") == {("lookup", "http", "403"): 1}

    async def test_exposing_admin_includes_client_calls_but_not_functions(self) -> None:
        async with (
            SimulatedCluster() as cluster,
            serving(cluster, ingresses=[{**PUBLIC, "expose": ["admin"]}]) as client,
        ):
            assert (await client.send(f"{ADMIN}/partitions")).status == 200
            assert (await client.send("/admin/v2/brokers")).status == 200
            assert (await client.send("/admin/v3/functions/public/default")).refusal == (403, "not-exposed")

    async def test_expose_applies_per_ingress(self) -> None:
        async with SimulatedCluster() as cluster:
            everything = {"name": "operators", "hosts": ["ops.example.org"], "listener": "external"}
            async with serving(cluster, ingresses=[*LOOKUPS_ONLY["ingresses"], everything]) as client:
                assert (await client.send("/admin/v2/brokers", host="ops.example.org")).status == 200
                assert (await client.send("/admin/v2/brokers")).refusal == (403, "not-exposed")


async def test_body_of_a_rewritten_redirect_is_forwarded() -> None:
    async def point(broker: SimulatedBroker, request: Request, received: Received) -> StreamResponse:
        return Response(status=307, headers={"Location": f"{inside(2)}/x"}, body=b"moved")

    async with SimulatedCluster() as cluster, serving(cluster) as client:
        cluster.brokers[1].script.append(point)
        reply = await client.send(STATS)
        assert (reply.location, reply.body) == (f"{external(2)}/x", b"moved")
