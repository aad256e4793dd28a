"""Lookup answers: addresses of the client's listener, content codings, errors, and shadow mode that changes nothing."""

from __future__ import annotations

import asyncio
import gzip

import pytest
from aiohttp.web import Request, Response, StreamResponse
from cluster_cases import LISTENERS, LOOKUP, STATS, TOPIC, as_sent, both, both_families, in_full, in_partner
from multidict import CIMultiDict
from sidecars import EXTERNAL, HEADER, HOST, PARTNER, PUBLIC, Keys, book, named, serving

from pulsar_ingress_proxy.demo.cluster import (
    Answer,
    Received,
    SimulatedBroker,
    SimulatedCluster,
    Step,
    always,
    dies,
    says,
    wrong_listener,
)
from pulsar_ingress_proxy.demo.metadata import Family, LoadManager


def coded(coding: str, body: bytes) -> Step:
    """A lookup's answer in a content coding, whether it was asked for or not; `; ` stands between two headers."""

    async def answer(broker: SimulatedBroker, request: Request, received: Received) -> StreamResponse:
        headers = CIMultiDict([("Content-Type", "application/json")])
        headers.extend(("Content-Encoding", part) for part in coding.split("; "))
        return Response(headers=headers, body=body)

    return answer


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
