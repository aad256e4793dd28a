"""Lookups through the sidecar: which listener a broker is asked for, by the client's word, host or bind address."""

from __future__ import annotations

import pytest
from cluster_cases import (
    ELSEWHERE,
    LISTENERS,
    LOOKUP,
    PARTNERS,
    STATS,
    TOPIC,
    Fields,
    as_sent,
    both,
    in_full,
    in_partner,
)
from sidecars import HEADER, HOST, PUBLIC, Keys, named, serving

from pulsar_ingress_proxy.demo.cluster import Listener, SimulatedCluster


class TestTagging:
    """A lookup leaves with exactly one X-Pulsar-ListenerName, and with the query that it came with."""

    @pytest.mark.parametrize(
        ("query", "headers", "sent", "listener", "rule"),
        [
            ("", [], "", "external", "ingress"),
            ("?authoritative=false&a=%2F&&b=c+d&e&%7e=%zz", [], None, "external", "ingress"),
            # The client's own name, by header.
            ("", [(HEADER, "partner")], "", "partner", "header"),
            ("", [("x-pulsar-LISTENERname", "partner")], "", "partner", "header"),
            ("", [(HEADER, "partner"), (HEADER, "partner")], "", "partner", "header"),
            ("", [(HEADER, ""), (HEADER, "partner")], "", "partner", "header"),
            ("", [(HEADER, "external")], "", "external", "ingress"),
            # A blank is no name: apache/pulsar#14304.
            ("", [(HEADER, "")], "", "external", "ingress"),
            ("", [(HEADER, " ")], "", "external", "ingress"),
            # By query, which beats the header.
            ("?listenerName=partner", [], None, "partner", "query"),
            ("?listenerName=partner", [(HEADER, "external")], None, "partner", "query"),
            ("?a=%2f&listenerName=partner&b=+", [], None, "partner", "query"),
            ("?listenerName=%70artner", [], None, "partner", "query"),
            ("?listenerName=external", [], None, "external", "ingress"),
            # A blank parameter is removed, since a broker lets a single space hide the header.
            ("?listenerName=", [], "", "external", "ingress"),
            ("?listenerName", [], "", "external", "ingress"),
            ("?listenerName=%20", [], "", "external", "ingress"),
            ("?a=1&listenerName=+&b=%2F", [], "?a=1&b=%2F", "external", "ingress"),
            ("?listenerName=%20", [(HEADER, "partner")], "", "partner", "header"),
            # Of several, the first that is not blank counts, and the others go.
            ("?listenerName=&listenerName=partner", [], "?listenerName=partner", "partner", "query"),
            ("?listenerName=partner&listenerName=external", [], "?listenerName=partner", "partner", "query"),
            ("?listenerName=external&a&listenerName=partner", [], "?listenerName=external&a", "external", "ingress"),
            # An encoded parameter name is still the parameter.
            ("?listener%4Eame=partner", [], None, "partner", "query"),
            ("?%6cistenerName=%20", [], "", "external", "ingress"),
            ("?listener%4eame=external&listenerName=partner", [], "?listener%4eame=external", "external", "ingress"),
            # Other names are other parameters.
            ("?listenername=partner&xlistenerName=partner", [], None, "external", "ingress"),
        ],
    )
    async def test_lookup_gets_exactly_one_listener_header_and_keeps_other_query_parameters(
        self, query: str, headers: Fields, sent: str | None, listener: str, rule: str
    ) -> None:
        async with SimulatedCluster(listeners=LISTENERS) as cluster, serving(cluster, **both(cluster)) as client:
            cluster.own(TOPIC, 2)
            reply = await client.send(LOOKUP + query, headers=headers)
            (received,) = cluster.brokers[1].requests
            assert received.target == LOOKUP + (query if sent is None else sent)
            assert received.values(HEADER) == [listener]
            assert received.listener_name == listener  # as the broker understands it
            assert reply.json == (in_partner(2) if listener == "partner" else in_full(2))
            assert await client.counted("listener_hits_total") == {("public", listener, rule, "http"): 1}
            assert await client.counted("listener_misses_total") == {}

    @pytest.mark.parametrize(
        "path",
        [
            "/lookup/v2/topic/persistent/public/default/a%2Fb",
            "/lookup/v2/topic/persistent/public/default/a%2fb%252Fc",
            "/lookup/v2/topic/non-persistent/t/n/~a*+%20%C3%A9",
            "/lookup/v2/destination/persistent/prop/cluster/ns/a%2Fb",
        ],
    )
    async def test_lookup_path_is_forwarded_byte_for_byte(self, path: str) -> None:
        async with SimulatedCluster(load_manager="extensible") as cluster, serving(cluster) as client:
            assert (await client.send(path)).status == 200
            (received,) = cluster.brokers[1].requests
            assert (received.target, received.values(HEADER)) == (path, ["external"])
            assert await client.counted("listener_hits_total") == {("public", "external", "ingress", "http"): 1}

    async def test_head_request_to_lookup_path_is_tagged_as_lookup(self) -> None:
        async with SimulatedCluster(load_manager="extensible") as cluster, serving(cluster) as client:
            reply = await client.send(LOOKUP, method="HEAD")
            assert (reply.status, reply.body) == (200, b"")
            assert "Content-Length" not in reply.headers  # the broker's is of another body (RFC 9110 8.6)
            assert cluster.brokers[1].requests[0].values(HEADER) == ["external"]
            assert await client.counted("listener_hits_total") == {("public", "external", "ingress", "http"): 1}

    @pytest.mark.parametrize(
        ("target", "expected"),
        [
            # What clients ask for beside lookups: partitions, topics of a namespace, schemas.
            ("/admin/v2/persistent/public/default/a%2Fb/partitions?checkAllowAutoCreation=true", 200),
            ("/admin/persistent/prop/cluster/ns/topic/partitions?checkAllowAutoCreation=true", 404),
            ("/admin/v2/namespaces/public/default/topics?mode=PERSISTENT", 200),
            ("/admin/v2/schemas/public/default/orders/schema", 307),
            ("/admin/v2/schemas/public/default/orders/schema/3", 307),
            # A lookup's bundle is no lookup.
            (f"{LOOKUP}/bundle", 200),
            ("/lookup/v2/destination/persistent/prop/cluster/ns/topic/bundle", 200),
        ],
    )
    async def test_requests_other_than_lookups_are_not_tagged(self, target: str, expected: int) -> None:
        async with SimulatedCluster() as cluster, serving(cluster) as client:
            assert (await client.send(target)).status == expected
            (received,) = cluster.brokers[1].requests
            assert (received.target, received.values(HEADER)) == (target, [])
            assert await client.counted("listener_hits_total") == {}
            assert await client.counted("listener_misses_total") == {}

    async def test_lookup_keeps_authorization_and_sanitizes_forwarding_headers(self) -> None:
        async with SimulatedCluster(leader=1) as cluster, serving(cluster) as client:
            headers = [
                ("X-Forwarded-For", "203.0.113.7"),
                ("X-Forwarded-Proto", "https"),
                ("X-Forwarded-Host", HOST),
                ("X-Forwarded-Port", "443"),
                ("Forwarded", "for=203.0.113.7;proto=https"),
                ("X-Original-Principal", "superuser"),
                ("Authorization", "Bearer t"),
                ("User-Agent", "Pulsar-Java-v4.2.4"),
                ("Accept-Encoding", "gzip"),
            ]
            await client.send(LOOKUP, headers=headers)
            (received,) = cluster.brokers[1].requests
            for name, values in {
                "Host": [cluster.brokers[1].web.removeprefix("http://")],
                "X-Forwarded-For": ["203.0.113.7, 127.0.0.1"],
                "X-Forwarded-Proto": ["http"],  # of our own connection: https would make a broker name TLS URLs
                "X-Forwarded-Host": [],
                "X-Forwarded-Port": [],
                "Forwarded": [],
                "X-Original-Principal": [],
                "Authorization": ["Bearer t"],
                "User-Agent": ["Pulsar-Java-v4.2.4"],
                "Accept-Encoding": ["identity"],
            }.items():
                assert received.values(name) == values, name

    async def test_original_principal_is_forwarded_with_trust_original_principal(self) -> None:
        async with SimulatedCluster(leader=1) as cluster:
            brokers = {"webServiceUrl": [cluster.brokers[1].web], "trustOriginalPrincipal": True}
            async with serving(cluster, brokers=brokers) as client:
                await client.send(LOOKUP, headers=[("X-Original-Principal", "alice")])
                assert cluster.brokers[1].requests[0].values("X-Original-Principal") == ["alice"]


class TestClientsThatName:
    @pytest.mark.parametrize(
        ("policy", "query", "headers", "expected"),
        [
            ("honor", "?listenerName=partner", [], "partner"),
            ("honor", "", [(HEADER, "partner")], "partner"),
            ("ignore", "?listenerName=partner", [], "external"),
            ("ignore", "?a=1&listenerName=partner&listener%4Eame=nowhere", [], "external"),
            ("ignore", "", [(HEADER, "partner")], "external"),
            ("ignore", "?listenerName=external", [], "external"),
            ("reject", "?listenerName=partner", [], None),
            ("reject", "", [(HEADER, "partner")], None),
            # Our own redirects carry the name, so what the rules give anyway is never refused.
            ("reject", "?listenerName=external", [], "external"),
            ("reject", "", [(HEADER, "external")], "external"),
            ("reject", "?listenerName=%20", [], "external"),
        ],
    )
    async def test_client_named_listener_is_honored_ignored_or_rejected_by_policy(
        self, policy: str, query: str, headers: Fields, expected: str | None
    ) -> None:
        async with SimulatedCluster(listeners=LISTENERS) as cluster:
            cluster.own(TOPIC, 1)
            async with serving(cluster, **both(cluster), clientListenerName=policy) as client:
                reply = await client.send(LOOKUP + query, headers=headers)
                if expected is None:
                    assert reply.refusal == (400, "client-named")
                    assert cluster.brokers[1].requests == []
                    assert await client.counted("listener_misses_total") == {("public", "client-named", "http"): 1}
                    return
                (received,) = cluster.brokers[1].requests
                assert (received.values(HEADER), received.listener_name) == ([expected], expected)
                if policy == "ignore" and "partner" in query:
                    assert "partner" not in received.target
                    assert "nowhere" not in received.target
                assert reply.json == (in_partner(1) if expected == "partner" else in_full(1))

    @pytest.mark.parametrize(
        ("allowed", "name", "refusal"),
        [
            (None, "partner", None),
            (None, "internal", (403, "not-allowed")),
            (None, "nowhere", (400, "unknown-listener")),
            (["external", "partner"], "partner", None),
            (["external"], "partner", (403, "not-allowed")),
            (["external"], "nowhere", (403, "not-allowed")),  # tested first
            (["external", "nowhere"], "nowhere", (400, "unknown-listener")),
            (["external", "internal"], "internal", None),
            ([], "partner", (403, "not-allowed")),
            ([], "external", None),  # what the ingress gives anyway
        ],
    )
    @pytest.mark.parametrize("by", ["query", "header"])
    async def test_client_may_name_only_allowed_and_known_listeners(
        self, allowed: list[str] | None, name: str, refusal: tuple[int, str] | None, by: str
    ) -> None:
        async with SimulatedCluster(listeners=LISTENERS) as cluster:
            cluster.own(TOPIC, 1)
            keys: Keys = {**both(cluster), "ingresses": [{**PUBLIC, "allowedListeners": allowed}]}
            async with serving(cluster, **keys) as client:
                query = f"?listenerName={name}" if by == "query" else ""
                reply = await client.send(LOOKUP + query, headers=[] if by == "query" else [(HEADER, name)])
                if refusal is None:
                    assert reply.status == 200
                    assert cluster.brokers[1].requests[0].values(HEADER) == [name]
                    rule = "ingress" if name == "external" else by
                    assert await client.counted("listener_hits_total") == {("public", name, rule, "http"): 1}
                else:
                    assert reply.refusal == refusal
                    assert cluster.brokers[1].requests == []
                    assert await client.counted("listener_hits_total") == {}
                    assert await client.counted("listener_misses_total") == {("public", refusal[1], "http"): 1}

    async def test_internal_listener_is_served_when_ingress_allows_it(self) -> None:
        async with SimulatedCluster(listeners=LISTENERS) as cluster:
            cluster.own(TOPIC, 1)
            keys: Keys = {**both(cluster), "ingresses": [{**PUBLIC, "allowedListeners": ["internal"]}]}
            async with serving(cluster, **keys) as client:
                reply = await client.send(LOOKUP + "?listenerName=internal")
                assert reply.json["httpUrl"] == cluster.brokers[1].web

    async def test_unknown_listener_is_forwarded_when_unknown_listener_is_forward(self) -> None:
        listeners = {**LISTENERS, "new": Listener("pulsar://new-{n}.example.com:6650")}
        async with SimulatedCluster(listeners=listeners) as cluster:
            cluster.own(TOPIC, 1)
            async with serving(cluster, **both(cluster), unknownListener="forward") as client:
                reply = await client.send(LOOKUP + "?listenerName=new")
                assert reply.status == 200
                assert cluster.brokers[1].requests[0].values(HEADER) == ["new"]
                assert reply.json["brokerUrl"] == "pulsar://new-1.example.com:6650"
                # A name that no config has is no label.
                assert await client.counted("listener_hits_total") == {("public", "other", "query", "http"): 1}
                assert (await client.send(LOOKUP + "?listenerName=nowhere")).refusal == (400, "broker-lacks-listener")
                assert await client.counted("listener_misses_total") == {("public", "broker-lacks-listener", "http"): 1}

    async def test_client_may_name_any_listener_when_advertised_listeners_are_empty(self) -> None:
        async with SimulatedCluster(listeners=LISTENERS) as cluster:
            cluster.own(TOPIC, 1)
            async with serving(cluster, advertisedListeners=[]) as client:
                assert (await client.send(LOOKUP + "?listenerName=partner")).status == 200
                assert cluster.brokers[1].requests[0].values(HEADER) == ["partner"]


class TestIngresses:
    """Which ingress a lookup came through, where the client named no listener."""

    @pytest.mark.parametrize(
        ("host", "expected"),
        [
            (HOST, ("public", "external", "ingress")),
            (f"{HOST}:8443", ("public", "external", "ingress")),
            (HOST.upper() + ".", ("public", "external", "ingress")),
            (f"a.b.{HOST}", ("public", "external", "ingress")),
            (f"eu.{HOST}", ("eu", "partner", "ingress")),
            (f"x.eu.{HOST}", ("eu", "partner", "ingress")),
            ("partner.example", ("partners", "partner", "ingress")),
            (ELSEWHERE, None),
            ("example.com", None),
            (f"not{HOST}", None),
        ],
    )
    async def test_host_selects_ingress_and_listener(self, host: str, expected: tuple[str, str, str] | None) -> None:
        async with SimulatedCluster(listeners=LISTENERS) as cluster:
            cluster.own(TOPIC, 1)
            eu = {"name": "eu", "hosts": [f"eu.{HOST}", f"*.eu.{HOST}"], "listener": "partner"}
            keys: Keys = {**both(cluster), "ingresses": [PUBLIC, PARTNERS, eu]}
            async with serving(cluster, **keys) as client:
                assert (await client.send(LOOKUP, host=host)).status == 200
                hits = {(*expected, "http"): 1} if expected else {}
                assert await client.counted("listener_hits_total") == hits
                assert cluster.brokers[1].requests[0].values(HEADER) == ([expected[1]] if expected else [])

    @pytest.mark.parametrize(
        ("trusted", "host", "forwarded", "expected"),
        [
            ("127.0.0.0/8", ELSEWHERE, [HOST], "external"),
            ("127.0.0.0/8", ELSEWHERE, [f"partner.example, {HOST}:443"], "external"),
            ("127.0.0.0/8", ELSEWHERE, [HOST, "partner.example"], "partner"),
            # Gateways pass a client's own on, so it never beats a Host that matches.
            ("127.0.0.0/8", HOST, ["partner.example"], "external"),
            ("127.0.0.0/8", ELSEWHERE, [f"{HOST}, {ELSEWHERE}"], None),
            ("127.0.0.0/8", ELSEWHERE, ["not a host"], None),
            ("10.0.0.0/8", ELSEWHERE, [HOST], None),
        ],
    )
    async def test_x_forwarded_host_selects_ingress_only_if_peer_is_trusted_and_host_unknown(
        self, trusted: str, host: str, forwarded: list[str], expected: str | None
    ) -> None:
        async with SimulatedCluster(listeners=LISTENERS) as cluster:
            cluster.own(TOPIC, 1)
            async with serving(cluster, **both(cluster), trustedProxies=[trusted]) as client:
                headers = [("X-Forwarded-Host", value) for value in forwarded]
                assert (await client.send(LOOKUP, host=host, headers=headers)).status == 200
                assert cluster.brokers[1].requests[0].values(HEADER) == ([expected] if expected else [])
                misses = {} if expected else {("", "no-rule", "http"): 1}
                assert await client.counted("listener_misses_total") == misses

    @pytest.mark.parametrize(
        ("host", "expected"),
        [
            # The socket beats the host; the ingress is found by host all the same, else by the socket's listener.
            (HOST, ("public", "partner", "bind", "http")),
            ("partner.example", ("partners", "partner", "bind", "http")),
            (ELSEWHERE, ("partners", "partner", "bind", "http")),
        ],
    )
    async def test_listener_of_bind_address_beats_host(self, host: str, expected: tuple[str, ...]) -> None:
        async with SimulatedCluster(listeners=LISTENERS) as cluster:
            cluster.own(TOPIC, 1)
            binds = ["http://127.0.0.1:0", "partner:http://127.0.0.2:0"]
            async with serving(cluster, **both(cluster), bindAddresses=binds) as client:
                assert (await client.send(LOOKUP, host=host, bind=1)).json == in_partner(1)
                assert await client.counted("listener_hits_total") == {expected: 1}
                assert (await client.send(LOOKUP, bind=0)).json == in_full(1)

    async def test_allowed_listeners_apply_on_bind_address_with_listener(self) -> None:
        async with SimulatedCluster(listeners=LISTENERS) as cluster:
            keys: Keys = {**both(cluster), "ingresses": [{**PARTNERS, "allowedListeners": ["partner"]}]}
            async with serving(cluster, **keys, bindAddresses=["partner:http://127.0.0.1:0"]) as client:
                reply = await client.send(LOOKUP + "?listenerName=external", host=ELSEWHERE)
                assert reply.refusal == (403, "not-allowed")
                assert await client.counted("listener_misses_total") == {("partners", "not-allowed", "http"): 1}

    async def test_default_listener_is_used_when_no_ingress_matches(self) -> None:
        async with SimulatedCluster(listeners=LISTENERS) as cluster:
            cluster.own(TOPIC, 1)
            async with serving(cluster, **both(cluster), lookupListenerName="partner") as client:
                assert (await client.send(LOOKUP, host=ELSEWHERE)).json == in_partner(1)
                assert (await client.send(LOOKUP)).json == in_full(1)
                assert await client.counted("listener_hits_total") == {
                    ("", "partner", "default", "http"): 1,
                    ("public", "external", "ingress", "http"): 1,
                }

    async def test_lookup_without_matching_rule_is_forwarded_unchanged(self) -> None:
        async with SimulatedCluster() as cluster, serving(cluster) as client:
            cluster.own(TOPIC, 2)
            reply = await client.send(LOOKUP + "?a=%2F", host=ELSEWHERE)
            assert reply.json == as_sent(2)
            (received,) = cluster.brokers[1].requests
            assert (received.target, received.values(HEADER)) == (LOOKUP + "?a=%2F", [])
            assert await client.counted("listener_misses_total") == {("", "no-rule", "http"): 1}
            assert await client.counted("leaks_total") == {}

    async def test_redirect_of_lookup_without_matching_rule_is_passed_unchanged(self) -> None:
        async with SimulatedCluster() as cluster, serving(cluster) as client:
            reply = await client.send(LOOKUP, host=ELSEWHERE)
            assert reply.location == f"http://{named(0)}:8080{LOOKUP}?authoritative=false"
            assert await client.counted("redirects_total") == {("", "lookup", "passed"): 1}

    async def test_lookup_without_matching_rule_gets_400_when_miss_is_reject(self) -> None:
        async with SimulatedCluster() as cluster, serving(cluster, miss="reject") as client:
            assert (await client.send(LOOKUP, host=ELSEWHERE)).refusal == (400, "no-rule")
            assert cluster.brokers[1].requests == []
            assert (await client.send(STATS, host=ELSEWHERE)).status == 307  # not a lookup: no miss
            assert await client.counted("listener_misses_total") == {("", "no-rule", "http"): 1}

    async def test_client_that_names_a_listener_needs_no_matching_ingress(self) -> None:
        async with SimulatedCluster() as cluster, serving(cluster, miss="reject") as client:
            cluster.own(TOPIC, 1)
            assert (await client.send(LOOKUP, host=ELSEWHERE, headers=[(HEADER, "external")])).json == in_full(1)
            assert await client.counted("listener_hits_total") == {("", "external", "header", "http"): 1}
