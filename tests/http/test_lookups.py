"""Lookups through the sidecar: which listener a broker is asked for, and what the client is told.

PIP-95 and PIP-338 stand here by name.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Mapping

import pytest
from aiohttp.web import Request, Response, StreamResponse
from multidict import CIMultiDict
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
    dies,
    says,
    wrong_listener,
)
from pulsar_ingress_proxy.demo.metadata import Family, LoadManager

TOPIC = "persistent://public/default/orders"
LOOKUP = "/lookup/v2/topic/persistent/public/default/orders"
STATS = "/admin/v2/persistent/public/default/orders/stats"
FAMILIES: tuple[Family, ...] = ("4.x", "5.x")
both_families = pytest.mark.parametrize("family", FAMILIES)

LISTENERS: Mapping[str, Listener] = {
    "external": Listener(broker_service_url_tls="pulsar+ssl://broker-{n}.pulsar.example.com:{n+6651}"),
    "partner": Listener("pulsar://b{n}.partner.example:6650", "pulsar+ssl://b{n}.partner.example:6651"),
}
"""What brokers have beside `internal` in these tests: a TLS-only listener, and one with both."""

PARTNERS = {"name": "partners", "hosts": ["partner.example"], "listener": "partner"}
ELSEWHERE = "elsewhere.example.org"

Fields = list[tuple[str, str]]


def in_full(n: int, broker_id: bool = False) -> dict[str, str]:
    """A lookup's answer on the external listener, which has TLS URLs only."""
    binary, web = f"pulsar+ssl://broker-{n}.pulsar.example.com:{6651 + n}", external(n)
    answer = {"brokerUrl": binary, "brokerUrlTls": binary, "nativeUrl": binary, "httpUrl": web, "httpUrlTls": web}
    return {**answer, "brokerUrlSsl": "", **({"brokerId": f"{named(n)}:8080"} if broker_id else {})}


def in_partner(n: int) -> dict[str, str]:
    at = f"b{n}.partner.example"
    return {
        "brokerUrl": f"pulsar://{at}:6650",
        "brokerUrlTls": f"pulsar+ssl://{at}:6651",
        "nativeUrl": f"pulsar://{at}:6650",
        "httpUrl": f"http://{at}:8080",
        "httpUrlTls": f"https://{at}:8443",
        "brokerUrlSsl": "",
    }


def as_sent(n: int, listener: str | None = None) -> dict[str, str]:
    """What a broker of 4.x says by itself: the listener's binary URLs, and the web URL of the inside."""
    web = {"httpUrl": f"http://{named(n)}:8080", "brokerUrlSsl": ""}
    if listener == "external":
        return {"brokerUrlTls": f"pulsar+ssl://broker-{n}.pulsar.example.com:{6651 + n}", **web}
    return {"brokerUrl": f"pulsar://{named(n)}:6650", "nativeUrl": f"pulsar://{named(n)}:6650", **web}


def both(cluster: SimulatedCluster) -> Keys:
    """The keys of a sidecar with two doors, for two listeners."""
    return {"advertisedListeners": book(cluster, *EXTERNAL, *PARTNER), "ingresses": [PUBLIC, PARTNERS]}


def coded(coding: str, body: bytes) -> Step:
    """A lookup's answer in a content coding, whether it was asked for or not; `; ` stands between two headers."""

    async def answer(broker: SimulatedBroker, request: Request, received: Received) -> StreamResponse:
        headers = CIMultiDict([("Content-Type", "application/json")])
        headers.extend(("Content-Encoding", part) for part in coding.split("; "))
        return Response(headers=headers, body=body)

    return answer


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

    @pytest.mark.parametrize(
        ("query", "headers", "code"),
        [
            ("", [(HEADER, "external"), (HEADER, "partner")], "conflicting-names"),
            ("?listenerName=external", [(HEADER, "external"), (HEADER, "partner")], "conflicting-names"),
            ("?listenerName=a%0D%0AX-Evil:%201", [], "bad-listener-name"),
            ("?listenerName=external%20partner", [], "bad-listener-name"),
            ("?listenerName=%C3%A9", [], "bad-listener-name"),
            ("?listenerName=external,partner", [], "unknown-listener"),
            ("", [(HEADER, "external,partner")], "unknown-listener"),
        ],
    )
    async def test_conflicting_or_malformed_listener_names_get_400(
        self, query: str, headers: Fields, code: str
    ) -> None:
        async with SimulatedCluster(listeners=LISTENERS) as cluster, serving(cluster, **both(cluster)) as client:
            assert (await client.send(LOOKUP + query, headers=headers)).refusal == (400, code)
            assert cluster.brokers[1].requests == []
            assert await client.counted("listener_misses_total") == {("public", code, "http"): 1}

    @pytest.mark.parametrize(
        ("names", "status", "received"),
        [(("partner", "external"), b"400", []), (("partner", "partner"), b"200", ["partner"])],
    )
    async def test_listener_header_is_case_insensitive_and_conflicting_values_get_400(
        self, names: tuple[str, str], status: bytes, received: list[str]
    ) -> None:
        async with SimulatedCluster(listeners=LISTENERS) as cluster, serving(cluster, **both(cluster)) as client:
            cluster.own(TOPIC, 1)
            reader, writer = await asyncio.open_connection("127.0.0.1", client.sidecar.http_servers[0].port)
            fields = f"{HEADER}: {names[0]}\r\n{HEADER.upper()}: {names[1]}\r\n"
            writer.write(f"GET {LOOKUP} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n{fields}\r\n".encode())
            assert (await reader.read()).split(b" ")[1] == status
            writer.close()
            await writer.wait_closed()
            assert [value for asked in cluster.brokers[1].requests for value in asked.values(HEADER)] == received


class TestDoors:
    """Which door a lookup came through, where the client named nothing."""

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
                assert (await client.send(LOOKUP, host=host, door=1)).json == in_partner(1)
                assert await client.counted("listener_hits_total") == {expected: 1}
                assert (await client.send(LOOKUP, door=0)).json == in_full(1)

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


class TestAnswers:
    @both_families
    async def test_lookup_answer_on_tls_only_listener_has_tls_urls_in_plain_keys_too(self, family: Family) -> None:
        # C++ clients call an answer without brokerUrl malformed, so the plain keys take the TLS URL.
        async with SimulatedCluster(family=family) as cluster, serving(cluster) as client:
            cluster.own(TOPIC, 2)
            reply = await client.send(LOOKUP)
            assert reply.json == in_full(2, broker_id=family == "5.x")
            assert reply.headers["Content-Type"] == "application/json"
            assert await client.counted("leaks_total") == {}
            assert await client.counted("requests_total") == {("lookup", "http", "200"): 1}

    async def test_lookup_answer_has_plain_and_tls_urls_when_listener_has_both(self) -> None:
        async with SimulatedCluster(listeners=LISTENERS) as cluster, serving(cluster, **both(cluster)) as client:
            cluster.own(TOPIC, 0)
            assert (await client.send(LOOKUP, host="partner.example")).json == in_partner(0)
            assert await client.counted("leaks_total") == {}

    async def test_tls_keys_of_lookup_answer_never_get_plain_urls(self) -> None:
        plain = [url for url in PARTNER if "+ssl" not in url and "https" not in url]
        async with SimulatedCluster(listeners=LISTENERS) as cluster:
            cluster.own(TOPIC, 0)
            keys: Keys = {**both(cluster), "advertisedListeners": book(cluster, *plain)}
            async with serving(cluster, **keys) as client:
                answer = (await client.send(LOOKUP, host="partner.example")).json
                assert answer == {key: url for key, url in in_partner(0).items() if not key.endswith("Tls")}

    async def test_unknown_keys_of_lookup_answer_are_kept(self) -> None:
        sent = b'{"brokerUrl":"pulsar://%b:6650","zone":{"a":[1,null]},"brokerUrlSsl":""}' % named(1).encode()
        async with SimulatedCluster() as cluster, serving(cluster) as client:
            cluster.brokers[1].script.append(says(Answer(body=sent)))
            assert (await client.send(LOOKUP)).json == {**in_full(1), "zone": {"a": [1, None]}}

    @pytest.mark.parametrize("body", [b"", b"[]", b'"external"', b"not json", b"{", b"\xff\xfe"])
    async def test_lookup_answer_that_is_not_a_json_object_is_forwarded_unchanged(self, body: bytes) -> None:
        async with SimulatedCluster() as cluster, serving(cluster) as client:
            cluster.brokers[1].script.append(says(Answer(body=body)))
            reply = await client.send(LOOKUP)
            assert (reply.status, reply.body) == (200, body)

    async def test_lookup_uses_default_listener_when_owner_has_no_address_on_selected_one(self) -> None:
        async with SimulatedCluster(listeners=LISTENERS) as cluster:
            cluster.own(TOPIC, 2)
            lines = [*book(cluster, *EXTERNAL, *PARTNER)[:2], *book(cluster, *EXTERNAL)[2:]]
            keys: Keys = {**both(cluster), "advertisedListeners": lines, "lookupListenerName": "external"}
            async with serving(cluster, **keys) as client:
                reply = await client.send(LOOKUP, host="partner.example")
                assert reply.json == in_full(2)
                assert await client.counted("leaks_total") == {}

    @pytest.mark.parametrize("leaks", ["rewrite", "block"])
    async def test_lookup_answer_for_wrong_listener_is_rewritten_pulsar_26244(self, leaks: str) -> None:
        # Brokers without the fix of apache/pulsar#26244 answer concurrent lookups with each other's listener.
        async with SimulatedCluster(listeners=LISTENERS) as cluster:
            cluster.own(TOPIC, 2)
            cluster.brokers[1].script.append(always(wrong_listener("partner")))
            async with serving(cluster, **both(cluster), leaks=leaks) as client:
                assert (await client.send(LOOKUP)).json == in_full(2)
                assert await client.counted("leaks_total") == {}

    async def test_lookup_answer_for_wrong_listener_counts_as_observed_leak_pulsar_26244(self) -> None:
        async with SimulatedCluster(listeners=LISTENERS) as cluster:
            cluster.own(TOPIC, 2)
            cluster.brokers[1].script.append(wrong_listener("partner"))
            async with serving(cluster, **both(cluster), leaks="observe") as client:
                assert (await client.send(LOOKUP)).json["brokerUrl"] == "pulsar://b2.partner.example:6650"
                assert await client.counted("leaks_total") == {("external", "body", "observed"): 1}

    async def test_concurrent_lookups_via_two_ingresses_each_get_their_listener_pulsar_26244(self) -> None:
        async with SimulatedCluster(listeners=LISTENERS) as cluster:
            cluster.own(TOPIC, 2)
            for broker, listener in zip(cluster.brokers, ("partner", "external", "internal"), strict=True):
                broker.script.append(always(wrong_listener(listener)))
            async with serving(cluster, pool=(0, 1, 2), **both(cluster)) as client:
                hosts = [HOST, "partner.example"] * 12
                replies = await asyncio.gather(*(client.send(LOOKUP, host=host) for host in hosts))
                answers = [in_full(2), in_partner(2)] * 12
                assert [reply.json for reply in replies] == answers
                assert await client.counted("listener_hits_total") == {
                    ("public", "external", "ingress", "http"): 12,
                    ("partners", "partner", "ingress", "http"): 12,
                }

    @pytest.mark.parametrize(
        ("leaks", "status", "action"),
        [("rewrite", 200, "passed"), ("block", 502, "blocked"), ("observe", 200, "observed")],
    )
    async def test_broker_address_that_cannot_be_mapped_counts_as_leak(
        self, leaks: str, status: int, action: str
    ) -> None:
        async with SimulatedCluster() as cluster:
            cluster.own(TOPIC, 2)
            async with serving(cluster, advertisedListeners=book(cluster, *EXTERNAL)[:2], leaks=leaks) as client:
                reply = await client.send(LOOKUP)
                if leaks == "block":
                    assert reply.refusal == (502, "leak")
                    assert named(2).encode() not in reply.body
                else:
                    assert (reply.status, reply.json) == (status, as_sent(2, "external"))
                assert await client.counted("leaks_total") == {("external", "body", action): 1}
                assert await client.counted("listener_hits_total") == {("public", "external", "ingress", "http"): 1}

    @pytest.mark.parametrize(
        ("leaks", "action"), [("rewrite", "passed"), ("block", "blocked"), ("observe", "observed")]
    )
    async def test_unknown_public_address_in_lookup_answer_counts_as_leak(self, leaks: str, action: str) -> None:
        body = b'{"brokerUrl":"pulsar://stranger.nowhere.test:6650","brokerUrlSsl":""}'
        async with SimulatedCluster() as cluster, serving(cluster, leaks=leaks) as client:
            cluster.brokers[1].script.append(always(says(Answer(body=body))))
            for times in (1, 2):
                reply = await client.send(LOOKUP)
                if leaks == "block":
                    assert reply.refusal == (502, "leak")
                    assert b"stranger" not in reply.body
                else:
                    assert (reply.status, reply.body) == (200, body)
                assert await client.counted("leaks_total") == {("external", "body", action): times}

    async def test_leaks_block_still_rewrites_addresses_that_can_be_mapped(self) -> None:
        async with SimulatedCluster() as cluster, serving(cluster, leaks="block") as client:
            cluster.own(TOPIC, 2)
            assert (await client.send(LOOKUP)).json == in_full(2)
            assert await client.counted("leaks_total") == {}

    async def test_leaks_observe_counts_leak_and_leaves_body_unchanged(self) -> None:
        async with SimulatedCluster() as cluster, serving(cluster, leaks="observe") as client:
            cluster.own(TOPIC, 2)
            assert (await client.send(LOOKUP)).json == as_sent(2, "external")
            assert await client.counted("leaks_total") == {("external", "body", "observed"): 1}
            assert cluster.brokers[1].requests[0].values(HEADER) == ["external"]

    async def test_leaks_observe_counts_no_leak_when_addresses_are_on_the_listener(self) -> None:
        async with SimulatedCluster() as cluster, serving(cluster, leaks="observe") as client:
            body = b'{"brokerUrlTls":"pulsar+ssl://broker-1.pulsar.example.com:6652","brokerUrlSsl":""}'
            cluster.brokers[1].script.append(says(Answer(body=body)))
            assert (await client.send(LOOKUP)).body == body
            assert await client.counted("leaks_total") == {}


class TestCodings:
    @both_families
    async def test_lookup_asks_broker_for_identity_and_answers_gzip_client_uncompressed(self, family: Family) -> None:
        # Go asks for it, and brokers compress by default.
        async with SimulatedCluster(family=family) as cluster, serving(cluster) as client:
            cluster.own(TOPIC, 2)
            reply = await client.send(LOOKUP, headers=[("Accept-Encoding", "gzip")])
            assert cluster.brokers[1].requests[0].values("Accept-Encoding") == ["identity"]
            assert "Content-Encoding" not in reply.headers
            assert reply.json == in_full(2, broker_id=family == "5.x")

    async def test_unrequested_gzip_lookup_answer_is_decompressed_and_rewritten(self) -> None:
        async with SimulatedCluster(compress_always=True) as cluster, serving(cluster) as client:
            cluster.own(TOPIC, 2)
            reply = await client.send(LOOKUP)
            assert "Content-Encoding" not in reply.headers
            assert reply.headers["Content-Length"] == str(len(reply.body))
            assert reply.json == in_full(2)

    async def test_unrequested_gzip_lookup_answer_is_decompressed_even_if_not_rewritten(self) -> None:
        body = b'{"brokerUrlTls":"pulsar+ssl://unknown.example.com:6651","brokerUrlSsl":""}'
        async with SimulatedCluster(compress_always=True) as cluster, serving(cluster) as client:
            cluster.brokers[1].script.append(says(Answer(body=body)))
            reply = await client.send(LOOKUP)
            assert (reply.body, "Content-Encoding" in reply.headers) == (body, False)

    async def test_gzip_error_answer_is_recognized_as_broker_lacks_listener(self) -> None:
        async with SimulatedCluster(compress_always=True) as cluster, serving(cluster) as client:
            cluster.own(TOPIC, 2)
            del cluster.brokers[2].listeners["external"]
            assert (await client.send(LOOKUP)).refusal == (400, "broker-lacks-listener")

    @pytest.mark.parametrize(
        ("coding", "body"),
        [
            ("gzip", b"this is not gzip"),
            ("gzip", gzip.compress(b'{"brokerUrl":"pulsar://b:6650"}')[:-9]),
            ("gzip", b""),
            ("br", b"\x0b\x02\x80{}\x03"),
            ("zstd", b"{}"),
            ("gzip, br", b"{}"),
            ("identity; gzip", gzip.compress(b"{}")),
            ("nonsense", b"{}"),
        ],
    )
    async def test_lookup_answer_that_cannot_be_decoded_becomes_502_bad_answer(self, coding: str, body: bytes) -> None:
        async with SimulatedCluster() as cluster, serving(cluster) as client:
            cluster.brokers[1].script.append(coded(coding, body))
            assert (await client.send(LOOKUP)).refusal == (502, "bad-answer")
            assert await client.counted("upstream_errors_total") == {("bad-answer",): 1}

    @pytest.mark.parametrize("compressed", [False, True])
    async def test_oversized_lookup_answer_becomes_502_bad_answer(self, compressed: bool) -> None:
        body = b'{"a":"' + b"x" * (1 << 21) + b'"}'
        async with SimulatedCluster(compress_always=compressed) as cluster, serving(cluster) as client:
            cluster.brokers[1].script.append(says(Answer(body=body)))
            assert (await client.send(LOOKUP)).refusal == (502, "bad-answer")
            cluster.own(TOPIC, 1)
            assert (await client.send(LOOKUP)).json == in_full(1)  # and the next one is not hurt by it

    async def test_answers_other_than_lookups_keep_their_content_encoding(self) -> None:
        async with SimulatedCluster() as cluster, serving(cluster) as client:
            cluster.own(TOPIC, 1)
            reply = await client.send(STATS, headers=[("Accept-Encoding", "gzip;q=1.0, br")])
            assert cluster.brokers[1].requests[0].values("Accept-Encoding") == ["gzip;q=1.0, br"]
            assert reply.headers["Content-Encoding"] == "gzip"
            assert b'"method":"GET"' in gzip.decompress(reply.body)


class TestErrors:
    @pytest.mark.parametrize(
        ("family", "load_manager"),
        [("4.x", "modular"), ("4.x", "extensible"), ("5.x", "modular"), ("5.x", "extensible")],
    )
    async def test_lookup_gets_400_when_broker_lacks_the_listener(
        self, family: Family, load_manager: LoadManager
    ) -> None:
        async with SimulatedCluster(family=family, load_manager=load_manager) as cluster:
            cluster.own(TOPIC, 2)
            del cluster.brokers[2].listeners["external"]
            async with serving(cluster) as client:
                reply = await client.send(LOOKUP)
                assert reply.refusal == (400, "broker-lacks-listener")
                assert b"Stacktrace" not in reply.body
                assert await client.counted("listener_hits_total") == {}
                assert await client.counted("listener_misses_total") == {("public", "broker-lacks-listener", "http"): 1}

    async def test_unrelated_500_of_a_lookup_is_passed_on(self) -> None:
        body = b'{"reason":"Namespace bundle is being unloaded"}'
        async with SimulatedCluster() as cluster, serving(cluster) as client:
            cluster.brokers[1].script.append(says(Answer(500, body)))
            reply = await client.send(LOOKUP)
            assert (reply.status, reply.body) == (500, body)
            assert await client.counted("listener_hits_total") == {("public", "external", "ingress", "http"): 1}
            assert await client.counted("requests_total") == {("lookup", "http", "500"): 1}

    async def test_401_of_a_lookup_is_passed_on(self) -> None:
        async with SimulatedCluster(token="s3cret") as cluster, serving(cluster) as client:
            cluster.own(TOPIC, 1)
            reply = await client.send(LOOKUP)
            assert (reply.status, reply.headers["Content-Type"]) == (401, "text/html")
            assert reply.body == b"<html><body>Authentication required</body></html>"
            assert (await client.send(LOOKUP, headers=[("Authorization", "Bearer s3cret")])).json == in_full(1)

    async def test_404_of_a_lookup_is_passed_on(self) -> None:
        async with SimulatedCluster(missing_namespaces=["public/default"]) as cluster, serving(cluster) as client:
            reply = await client.send(LOOKUP)
            assert (reply.status, reply.json) == (404, {"reason": "Namespace not found"})

    async def test_503_of_a_lookup_without_body_is_passed_on(self) -> None:
        async with SimulatedCluster(brokers=1) as cluster, serving(cluster, pool=(0,)) as client:
            cluster.expire(0)
            reply = await client.send(LOOKUP)
            assert (reply.status, reply.body, reply.headers["Content-Length"]) == (503, b"", "0")
            assert await client.counted("requests_total") == {("lookup", "http", "503"): 1}

    @pytest.mark.parametrize("status", [403, 409, 412, 429])
    async def test_other_4xx_statuses_of_a_lookup_are_passed_on(self, status: int) -> None:
        async with SimulatedCluster() as cluster, serving(cluster) as client:
            cluster.brokers[1].script.append(says(Answer(status, b'{"reason":"as the broker says"}')))
            reply = await client.send(LOOKUP)
            assert (reply.status, reply.json) == (status, {"reason": "as the broker says"})

    async def test_truncated_lookup_answer_becomes_502_broker_truncated(self) -> None:
        async with SimulatedCluster() as cluster, serving(cluster) as client:
            cluster.own(TOPIC, 1)
            cluster.brokers[1].script.append(dies(after=20))
            assert (await client.send(LOOKUP)).refusal == (502, "broker-truncated")
            assert await client.counted("upstream_errors_total") == {("broker-truncated",): 1}


class TestShadow:
    """`shadow: true` decides, counts and records, but changes nothing."""

    async def test_shadow_mode_counts_lookup_but_changes_neither_request_nor_answer(self) -> None:
        async with SimulatedCluster() as cluster, serving(cluster, shadow=True) as client:
            cluster.own(TOPIC, 2)
            reply = await client.send(LOOKUP + "?listenerName=%20&a")
            assert reply.json == as_sent(2)
            (received,) = cluster.brokers[1].requests
            assert (received.target, received.values(HEADER)) == (LOOKUP + "?listenerName=%20&a", [])
            assert await client.counted("listener_hits_total") == {("public", "external", "ingress", "http"): 1}

    async def test_shadow_mode_forwards_client_listener_names_unchanged(self) -> None:
        async with SimulatedCluster(listeners=LISTENERS) as cluster:
            cluster.own(TOPIC, 2)
            async with serving(cluster, **both(cluster), shadow=True) as client:
                query = "?listenerName=&listenerName=partner"
                await client.send(LOOKUP + query, headers=[(HEADER, "external"), (HEADER, "internal")])
                (received,) = cluster.brokers[1].requests
                assert (received.target, received.values(HEADER)) == (LOOKUP + query, ["external", "internal"])
                await client.send(STATS, headers=[(HEADER, "external")])
                assert cluster.brokers[1].requests[1].values(HEADER) == ["external"]

    @pytest.mark.parametrize(
        ("query", "code"), [("?listenerName=internal", "not-allowed"), ("?listenerName=nowhere", "unknown-listener")]
    )
    async def test_shadow_mode_counts_misses_without_refusing(self, query: str, code: str) -> None:
        async with SimulatedCluster() as cluster, serving(cluster, shadow=True) as client:
            cluster.own(TOPIC, 2)
            reply = await client.send(LOOKUP + query)
            assert reply.status == (200 if code == "not-allowed" else 500)
            assert await client.counted("listener_misses_total") == {("public", code, "http"): 1}

    async def test_shadow_mode_does_not_enforce_expose(self) -> None:
        ingress = {**PUBLIC, "expose": []}
        async with SimulatedCluster() as cluster, serving(cluster, shadow=True, ingresses=[ingress]) as client:
            assert (await client.send("/admin/v2/brokers/ready")).body == b"ok"

    @pytest.mark.parametrize(("kind", "target"), [("lookup", LOOKUP), ("admin", STATS)])
    @pytest.mark.parametrize(("policy", "action"), [("rewrite", "rewritten"), ("follow", "followed")])
    async def test_shadow_mode_counts_redirects_but_leaves_them_unchanged(
        self, kind: str, target: str, policy: str, action: str
    ) -> None:
        redirects = {"lookup": policy, "admin": policy}
        async with SimulatedCluster() as cluster, serving(cluster, shadow=True, redirects=redirects) as client:
            reply = await client.send(target)
            assert reply.location == f"http://{named(0)}:8080{target}?authoritative=false"
            assert cluster.brokers[0].requests == []
            assert await client.counted("redirects_total") == {("external", kind, action): 1}

    async def test_shadow_mode_passes_on_broker_error_about_missing_listener(self) -> None:
        async with SimulatedCluster() as cluster, serving(cluster, shadow=True) as client:
            cluster.own(TOPIC, 2)
            del cluster.brokers[2].listeners["external"]
            reply = await client.send(LOOKUP, headers=[(HEADER, "external")])
            assert reply.status == 500
            assert "Stacktrace" in reply.json["reason"]
            assert await client.counted("listener_misses_total") == {("public", "broker-lacks-listener", "http"): 1}

    async def test_shadow_mode_keeps_content_encoding_of_lookup_answers(self) -> None:
        async with SimulatedCluster() as cluster, serving(cluster, shadow=True, leaks="observe") as client:
            cluster.own(TOPIC, 2)
            reply = await client.send(LOOKUP, headers=[("Accept-Encoding", "gzip")])
            assert reply.headers["Content-Encoding"] == "gzip"
            assert gzip.decompress(reply.body).startswith(b'{"brokerUrl":"pulsar://' + named(2).encode())
            assert await client.counted("leaks_total") == {("external", "body", "observed"): 1}

    @pytest.mark.parametrize(
        ("coding", "body"), [("br", b"\x0b\x02\x80{}\x03"), ("gzip", b"not gzip"), ("identity", b"x" * (3 << 20))]
    )
    async def test_shadow_mode_passes_on_undecodable_or_oversized_lookup_answers(
        self, coding: str, body: bytes
    ) -> None:
        async with SimulatedCluster() as cluster, serving(cluster, shadow=True) as client:
            cluster.brokers[1].script.append(coded(coding, body))
            reply = await client.send(LOOKUP)
            assert (reply.status, reply.headers["Content-Encoding"]) == (200, coding)
            assert reply.body == body


class TestPip95:
    """PIP-95: smart listener selection with multiple bind addresses."""

    async def test_pip_95_bind_address_selects_its_listener_by_default(self) -> None:
        async with SimulatedCluster(listeners=LISTENERS) as cluster:
            cluster.own(TOPIC, 1)
            binds = "external:http://127.0.0.1:0,partner:http://127.0.0.2:0"
            async with serving(cluster, **both(cluster), bindAddresses=binds) as client:
                assert (await client.send(LOOKUP, host=ELSEWHERE, door=0)).json == in_full(1)
                assert (await client.send(LOOKUP, host=ELSEWHERE, door=1)).json == in_partner(1)
                assert await client.counted("listener_hits_total") == {
                    ("public", "external", "bind", "http"): 1,
                    ("partners", "partner", "bind", "http"): 1,
                }

    @pytest.mark.parametrize(
        ("query", "headers", "rule"),
        [("?listenerName=partner", [], "query"), ("", [(HEADER, "partner")], "header")],
    )
    async def test_pip_95_client_named_listener_beats_listener_of_bind_address(
        self, query: str, headers: Fields, rule: str
    ) -> None:
        async with SimulatedCluster(listeners=LISTENERS) as cluster:
            cluster.own(TOPIC, 1)
            async with serving(cluster, **both(cluster), bindAddresses="external:http://127.0.0.1:0") as client:
                assert (await client.send(LOOKUP + query, headers=headers)).json == in_partner(1)
                assert await client.counted("listener_hits_total") == {("public", "partner", rule, "http"): 1}

    async def test_pip_95_bind_address_without_listener_selects_none(self) -> None:
        async with SimulatedCluster(listeners=LISTENERS) as cluster:
            cluster.own(TOPIC, 1)
            keys: Keys = {**both(cluster), "ingresses": []}
            async with serving(cluster, **keys, bindAddresses="http://127.0.0.1:0") as client:
                assert (await client.send(LOOKUP)).json == as_sent(1)
                assert await client.counted("listener_misses_total") == {("", "no-rule", "http"): 1}

    async def test_pip_95_listener_header_selects_the_listener(self) -> None:
        # A gateway can inject headers, not query parameters: what clients cannot say, it says for them.
        async with SimulatedCluster(listeners=LISTENERS) as cluster:
            cluster.own(TOPIC, 1)
            async with serving(cluster, **{**both(cluster), "ingresses": []}) as client:
                assert (await client.send(LOOKUP, headers=[(HEADER, "partner")])).json == in_partner(1)

    async def test_pip_95_listener_header_counts_only_without_listener_in_query(self) -> None:
        async with SimulatedCluster(listeners=LISTENERS) as cluster:
            cluster.own(TOPIC, 1)
            async with serving(cluster, **both(cluster)) as client:
                for query, expected in (("", in_partner(1)), ("?listenerName=external", in_full(1))):
                    assert (await client.send(LOOKUP + query, headers=[(HEADER, "partner")])).json == expected

    @pytest.mark.parametrize("by", ["query", "header"])
    async def test_pip_95_unknown_listener_name_gets_400(self, by: str) -> None:
        async with SimulatedCluster() as cluster, serving(cluster) as client:
            query, headers = ("?listenerName=nowhere", []) if by == "query" else ("", [(HEADER, "nowhere")])
            reply = await client.send(LOOKUP + query, headers=headers)
            assert reply.refusal == (400, "unknown-listener")
            assert "nowhere" in reply.json["reason"]
            assert await client.counted("listener_misses_total") == {("public", "unknown-listener", "http"): 1}

    @both_families
    async def test_pip_95_tls_only_listener_gives_no_plain_urls(self, family: Family) -> None:
        async with SimulatedCluster(family=family) as cluster, serving(cluster) as client:
            cluster.own(TOPIC, 1)
            answer = (await client.send(LOOKUP)).json
            assert answer["brokerUrlTls"] == "pulsar+ssl://broker-1.pulsar.example.com:6652"
            assert not any(url.startswith(("pulsar:", "http:")) for url in answer.values())

    @both_families
    async def test_pip_95_lookup_succeeds_when_gateway_terminates_tls(self, family: Family) -> None:
        async with SimulatedCluster(family=family) as cluster, serving(cluster) as client:
            walk = await client.walk(INGRESS + LOOKUP)
            assert walk.reply.json["httpUrlTls"] == external(0)
            assert await client.counted("leaks_total") == {}

    @both_families
    async def test_pip_95_each_ingress_gets_its_own_listener_from_any_broker(self, family: Family) -> None:
        async with SimulatedCluster(family=family, listeners=LISTENERS) as cluster:
            cluster.own(Topic.parse(TOPIC), 2)
            async with serving(cluster, pool=(0, 1, 2), **both(cluster)) as client:
                for _ in range(3):
                    for host, expected in ((HOST, in_full(2)), ("partner.example", in_partner(2))):
                        answer = (await client.send(LOOKUP, host=host)).json
                        assert {key: url for key, url in answer.items() if key != "brokerId"} == expected
                assert await client.counted("listener_misses_total") == {}


class TestPip338:
    """PIP-338: a default lookup listener, and the same listener for all protocols."""

    @both_families
    async def test_pip_338_case_i_default_lookup_listener_is_used_when_none_is_named(self, family: Family) -> None:
        keys: Keys = {"ingresses": [], "lookupListenerName": "external"}
        async with SimulatedCluster(family=family) as cluster, serving(cluster, **keys) as client:
            walk = await client.walk(INGRESS + LOOKUP)
            assert walk.origins == [INGRESS, external(0)]
            assert walk.reply.json == in_full(0, broker_id=family == "5.x")
            assert await client.counted("listener_hits_total") == {("", "external", "default", "http"): 2}

    @both_families
    async def test_pip_338_case_ii_listener_in_query_beats_default_lookup_listener(self, family: Family) -> None:
        async with SimulatedCluster(family=family, listeners=LISTENERS) as cluster:
            cluster.own(TOPIC, 2)
            keys: Keys = {**both(cluster), "ingresses": [], "lookupListenerName": "external"}
            async with serving(cluster, **keys) as client:
                answer = (await client.send(LOOKUP + "?listenerName=partner")).json
                assert {key: url for key, url in answer.items() if key != "brokerId"} == in_partner(2)
                assert await client.counted("listener_hits_total") == {("", "partner", "query", "http"): 1}

    @both_families
    async def test_pip_338_case_iii_answer_has_http_and_https_urls_of_named_listener(self, family: Family) -> None:
        async with SimulatedCluster(family=family, listeners=LISTENERS) as cluster:
            cluster.own(TOPIC, 2)
            async with serving(cluster, **both(cluster)) as client:
                answer = (await client.send(LOOKUP + "?listenerName=partner")).json
                assert answer["httpUrl"] == "http://b2.partner.example:8080"
                assert answer["httpUrlTls"] == "https://b2.partner.example:8443"

    async def test_pip_338_case_iv_internal_addresses_are_kept_when_no_listener_is_selected(self) -> None:
        keys: Keys = {"ingresses": [], "preferHttpClientListenerOverInternalListener": False}
        async with SimulatedCluster() as cluster, serving(cluster, **keys) as client:
            reply = await client.send(LOOKUP)
            assert reply.location == f"http://{named(0)}:8080{LOOKUP}?authoritative=false"
            cluster.own(TOPIC, 2)
            assert (await client.send(LOOKUP)).json == as_sent(2)

    @both_families
    async def test_pip_338_internal_web_addresses_are_kept_if_client_listener_not_preferred(
        self, family: Family
    ) -> None:
        keys: Keys = {"preferHttpClientListenerOverInternalListener": False}
        async with SimulatedCluster(family=family) as cluster, serving(cluster, **keys) as client:
            location = (await client.send(LOOKUP)).location
            assert location == f"http://{named(0)}:8080{LOOKUP}?authoritative=false&listenerName=external"
            cluster.own(TOPIC, 2)
            answer = (await client.send(LOOKUP)).json
            assert answer["httpUrl"] == f"http://{named(2)}:8080"
            assert "httpUrlTls" not in answer
            assert answer["brokerUrl"] == answer["brokerUrlTls"] == in_full(2)["brokerUrl"]
            assert await client.counted("redirects_total") == {("external", "lookup", "passed"): 1}
            assert await client.counted("leaks_total") == {("external", "location", "passed"): 1}
