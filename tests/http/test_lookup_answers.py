"""Lookup answers: addresses of the client's listener, content codings, errors, and shadow mode that changes nothing."""

from __future__ import annotations

import asyncio
import gzip

import pytest
from aiohttp.web import Request, Response, StreamResponse
from clusters import (
    BOTH,
    EXTERNAL,
    HEADER,
    HOST,
    LOOKUP,
    PARTNER,
    PARTNERS,
    PUBLIC,
    STATS,
    Simulate,
    as_sent,
    book,
    both_families,
    both_kinds,
    in_full,
    in_partner,
    named,
)
from multidict import CIMultiDict
from simulated.cluster import (
    Answer,
    Received,
    SimulatedBroker,
    SimulatedCluster,
    Step,
    always,
    says,
    wrong_listener,
)
from simulated.metadata import Family, LoadManager


def coded(coding: str, body: bytes) -> Step:
    """A lookup's answer in a content coding, whether it was asked for or not; `; ` stands between two headers."""

    async def answer(broker: SimulatedBroker, request: Request, received: Received) -> StreamResponse:
        headers = CIMultiDict([("Content-Type", "application/json")])
        headers.extend(("Content-Encoding", part) for part in coding.split("; "))
        return Response(headers=headers, body=body)

    return answer


@both_families
async def test_lookup_answer_on_tls_only_listener_has_tls_urls_in_plain_keys_too(
    simulate: Simulate, family: Family
) -> None:
    # C++ clients call an answer without brokerUrl malformed, so the plain keys take the TLS URL.
    _, client = await simulate(owner=2, family=family)
    reply = await client.send(LOOKUP)
    assert reply.json == in_full(2, broker_id=family == "5.x")
    assert reply.headers["Content-Type"] == "application/json"
    assert client.counted("leaks_total") == {}
    assert client.counted("requests_total") == {("lookup", "http", "200"): 1}


async def test_tls_keys_of_lookup_answer_never_get_plain_urls(simulate: Simulate) -> None:
    plain = [url for url in PARTNER if "+ssl" not in url and "https" not in url]
    _, client = await simulate(owner=0, **{**BOTH, "urls": plain})
    answer = (await client.send(LOOKUP, host="partner.example")).json
    assert answer == {key: url for key, url in in_partner(0).items() if not key.endswith("Tls")}


async def test_unknown_keys_of_lookup_answer_are_kept(simulate: Simulate) -> None:
    sent = b'{"brokerUrl":"pulsar://%b:6650","zone":{"a":[1,null]},"brokerUrlSsl":""}' % named(1).encode()
    _, client = await simulate(script=[says(Answer(body=sent))])
    assert (await client.send(LOOKUP)).json == {**in_full(1), "zone": {"a": [1, None]}}


@pytest.mark.parametrize("body", [b"", b"[]", b"not json", b"\xff\xfe"])
async def test_lookup_answer_that_is_not_a_json_object_is_forwarded_unchanged(simulate: Simulate, body: bytes) -> None:
    _, client = await simulate(script=[says(Answer(body=body))])
    reply = await client.send(LOOKUP)
    assert (reply.status, reply.body) == (200, body)


async def test_lookup_uses_default_listener_when_owner_has_no_address_on_selected_one(simulate: Simulate) -> None:
    def lines(cluster: SimulatedCluster) -> list[dict[str, str]]:
        return [*book(cluster, *EXTERNAL, *PARTNER)[:2], *book(cluster, *EXTERNAL)[2:]]

    _, client = await simulate(owner=2, **BOTH, advertisedListeners=lines, lookupListenerName="external")
    assert (await client.send(LOOKUP, host="partner.example")).json == in_full(2)
    assert client.counted("leaks_total") == {}


@pytest.mark.parametrize("leaks", ["rewrite", "block"])
async def test_lookup_answers_for_wrong_listeners_are_rewritten_for_each_of_two_ingresses_pulsar_26244(
    simulate: Simulate, leaks: str
) -> None:
    # Brokers without the fix of apache/pulsar#26244 answer concurrent lookups with each other's listener.
    cluster, client = await simulate(owner=2, pool=(0, 1, 2), **BOTH, leaks=leaks)
    for broker, listener in zip(cluster.brokers, ("partner", "external", "internal"), strict=True):
        broker.script.append(always(wrong_listener(listener)))
    replies = await asyncio.gather(*(client.send(LOOKUP, host=host) for host in [HOST, "partner.example"] * 12))
    assert [reply.json for reply in replies] == [in_full(2), in_partner(2)] * 12
    assert client.counted("listener_hits_total") == {
        ("public", "external", "ingress", "http"): 12,
        ("partners", "partner", "ingress", "http"): 12,
    }
    assert client.counted("leaks_total") == {}


# Leaks.

STRANGER = b'{"brokerUrl":"pulsar://stranger.nowhere.test:6650","brokerUrlSsl":""}'


@pytest.mark.parametrize(("leaks", "action"), [("rewrite", "passed"), ("block", "blocked"), ("observe", "observed")])
@pytest.mark.parametrize("is_known", [True, False], ids=["a broker that has no address there", "a stranger"])
async def test_address_that_cannot_be_mapped_counts_as_leak_and_is_blocked_by_policy(
    simulate: Simulate, is_known: bool, leaks: str, action: str
) -> None:
    _, client = await simulate(
        owner=2,
        script=[] if is_known else [always(says(Answer(body=STRANGER)))],
        advertisedListeners=lambda cluster: book(cluster, *EXTERNAL)[:2],
        leaks=leaks,
    )
    for times in (1, 2):
        reply = await client.send(LOOKUP)
        if leaks == "block":
            assert reply.refusal == (502, "leak")
            assert not any(name in reply.body for name in (b"stranger", named(2).encode()))
        elif is_known:
            assert (reply.status, reply.json) == (200, as_sent(2, "external"))
        else:
            assert (reply.status, reply.body) == (200, STRANGER)
        assert client.counted("leaks_total") == {("external", "body", action): times}
        assert client.counted("listener_hits_total") == {("public", "external", "ingress", "http"): times}


async def test_leaks_observe_counts_leak_and_leaves_body_unchanged(simulate: Simulate) -> None:
    cluster, client = await simulate(owner=2, leaks="observe")
    assert (await client.send(LOOKUP)).json == as_sent(2, "external")
    assert client.counted("leaks_total") == {("external", "body", "observed"): 1}
    assert cluster.brokers[1].requests[0].values(HEADER) == ["external"]


async def test_leaks_observe_counts_no_leak_when_addresses_are_on_the_listener(simulate: Simulate) -> None:
    body = b'{"brokerUrlTls":"pulsar+ssl://broker-1.pulsar.example.com:6652","brokerUrlSsl":""}'
    _, client = await simulate(leaks="observe", script=[says(Answer(body=body))])
    assert (await client.send(LOOKUP)).body == body
    assert client.counted("leaks_total") == {}


# Content codings.


@both_families
@pytest.mark.parametrize("unrequested", [False, True])
async def test_lookup_is_asked_for_without_content_coding_and_a_coded_answer_is_decoded(
    simulate: Simulate, unrequested: bool, family: Family
) -> None:
    # Go asks for gzip, and brokers compress by default.
    cluster, client = await simulate(owner=2, family=family, compress_always=unrequested)
    reply = await client.send(LOOKUP, headers=[("Accept-Encoding", "gzip")])
    assert cluster.brokers[1].requests[0].values("Accept-Encoding") == ["identity"]
    assert "Content-Encoding" not in reply.headers
    assert reply.headers["Content-Length"] == str(len(reply.body))
    assert reply.json == in_full(2, broker_id=family == "5.x")


async def test_unrequested_gzip_lookup_answer_is_decompressed_even_if_not_rewritten(simulate: Simulate) -> None:
    body = b'{"brokerUrlTls":"pulsar+ssl://unknown.example.com:6651","brokerUrlSsl":""}'
    _, client = await simulate(compress_always=True, script=[says(Answer(body=body))])
    reply = await client.send(LOOKUP)
    assert (reply.body, "Content-Encoding" in reply.headers) == (body, False)


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
async def test_lookup_answer_that_cannot_be_decoded_becomes_502_bad_answer(
    simulate: Simulate, coding: str, body: bytes
) -> None:
    _, client = await simulate(script=[coded(coding, body)])
    assert (await client.send(LOOKUP)).refusal == (502, "bad-answer")
    assert client.counted("upstream_errors_total") == {("bad-answer",): 1}


@pytest.mark.parametrize("compressed", [False, True])
async def test_oversized_lookup_answer_becomes_502_bad_answer(simulate: Simulate, compressed: bool) -> None:
    body = b'{"a":"' + b"x" * (1 << 21) + b'"}'
    _, client = await simulate(owner=1, compress_always=compressed, script=[says(Answer(body=body))])
    assert (await client.send(LOOKUP)).refusal == (502, "bad-answer")
    assert (await client.send(LOOKUP)).json == in_full(1)  # and the next one is not hurt by it


async def test_answers_other_than_lookups_keep_their_content_encoding(simulate: Simulate) -> None:
    cluster, client = await simulate(owner=1)
    reply = await client.send(STATS, headers=[("Accept-Encoding", "gzip;q=1.0, br")])
    assert cluster.brokers[1].requests[0].values("Accept-Encoding") == ["gzip;q=1.0, br"]
    assert reply.headers["Content-Encoding"] == "gzip"
    assert b'"method":"GET"' in gzip.decompress(reply.body)


# Errors.


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("load_manager", ["modular", "extensible"])
@both_families
async def test_lookup_gets_400_when_broker_lacks_the_listener(
    simulate: Simulate, family: Family, load_manager: LoadManager, compressed: bool
) -> None:
    cluster, client = await simulate(owner=2, family=family, load_manager=load_manager, compress_always=compressed)
    del cluster.brokers[2].listeners["external"]
    reply = await client.send(LOOKUP)
    assert reply.refusal == (400, "broker-lacks-listener")
    assert b"Stacktrace" not in reply.body
    assert client.counted("listener_hits_total") == {}
    assert client.counted("listener_misses_total") == {("public", "broker-lacks-listener", "http"): 1}


@pytest.mark.parametrize(
    "answer",
    [
        Answer(500, b'{"reason":"Namespace bundle is being unloaded"}'),
        Answer(401, b"<html><body>Authentication required</body></html>", "text/html"),
        Answer(404, b'{"reason":"Namespace not found"}'),
        Answer(503),
        *(Answer(status, b'{"reason":"as the broker says"}') for status in (403, 409, 412, 429)),
    ],
    ids=lambda answer: str(answer.status),
)
async def test_other_error_of_a_lookup_is_passed_on(simulate: Simulate, answer: Answer) -> None:
    _, client = await simulate(script=[says(answer)])
    reply = await client.send(LOOKUP)
    assert (reply.status, reply.body) == (answer.status, answer.body)
    assert reply.headers["Content-Length"] == str(len(answer.body))
    assert client.counted("listener_hits_total") == {("public", "external", "ingress", "http"): 1}
    assert client.counted("requests_total") == {("lookup", "http", str(answer.status)): 1}


# Shadow: `shadow: true` decides, counts and records, but changes nothing.


async def test_shadow_mode_counts_lookup_but_changes_neither_request_nor_answer(simulate: Simulate) -> None:
    cluster, client = await simulate(owner=2, shadow=True)
    reply = await client.send(LOOKUP + "?listenerName=%20&a")
    assert reply.json == as_sent(2)
    (received,) = cluster.brokers[1].requests
    assert (received.target, received.values(HEADER)) == (LOOKUP + "?listenerName=%20&a", [])
    assert client.counted("listener_hits_total") == {("public", "external", "ingress", "http"): 1}


async def test_shadow_mode_forwards_client_listener_names_unchanged(simulate: Simulate) -> None:
    cluster, client = await simulate(owner=2, **BOTH, shadow=True)
    query = "?listenerName=&listenerName=partner"
    await client.send(LOOKUP + query, headers=[(HEADER, "external"), (HEADER, "internal")])
    (received,) = cluster.brokers[1].requests
    assert (received.target, received.values(HEADER)) == (LOOKUP + query, ["external", "internal"])
    await client.send(STATS, headers=[(HEADER, "external")])
    assert cluster.brokers[1].requests[1].values(HEADER) == ["external"]


@pytest.mark.parametrize(
    ("query", "code"), [("?listenerName=internal", "not-allowed"), ("?listenerName=nowhere", "unknown-listener")]
)
async def test_shadow_mode_counts_misses_without_refusing(simulate: Simulate, query: str, code: str) -> None:
    _, client = await simulate(owner=2, shadow=True)
    reply = await client.send(LOOKUP + query)
    assert reply.status == (200 if code == "not-allowed" else 500)
    assert client.counted("listener_misses_total") == {("public", code, "http"): 1}


@pytest.mark.parametrize("everywhere", [True, False])
async def test_shadow_mode_of_an_ingress_overrides_the_one_of_the_config(simulate: Simulate, everywhere: bool) -> None:
    ingresses = [{**PUBLIC, "shadow": not everywhere}, PARTNERS]
    _, client = await simulate(owner=2, **{**BOTH, "ingresses": ingresses}, shadow=everywhere)
    assert ((await client.send(LOOKUP)).json == as_sent(2)) is not everywhere
    assert ((await client.send(LOOKUP, host=PARTNERS["hosts"][0])).json == as_sent(2)) is everywhere


async def test_shadow_mode_does_not_enforce_expose(simulate: Simulate) -> None:
    ingress = {**PUBLIC, "expose": []}
    _, client = await simulate(shadow=True, ingresses=[ingress])
    assert (await client.send("/admin/v2/brokers/ready")).body == b"ok"


@both_kinds
@pytest.mark.parametrize(("policy", "action"), [("rewrite", "rewritten"), ("follow", "followed")])
async def test_shadow_mode_counts_redirects_but_leaves_them_unchanged(
    simulate: Simulate, kind: str, target: str, policy: str, action: str
) -> None:
    redirects = {"lookup": policy, "admin": policy}
    cluster, client = await simulate(shadow=True, redirects=redirects)
    reply = await client.send(target)
    assert reply.location == f"http://{named(0)}:8080{target}?authoritative=false"
    assert cluster.brokers[0].requests == []
    assert client.counted("redirects_total") == {("external", kind, action): 1}


async def test_shadow_mode_passes_on_broker_error_about_missing_listener(simulate: Simulate) -> None:
    cluster, client = await simulate(owner=2, shadow=True)
    del cluster.brokers[2].listeners["external"]
    reply = await client.send(LOOKUP, headers=[(HEADER, "external")])
    assert reply.status == 500
    assert "Stacktrace" in reply.json["reason"]
    assert client.counted("listener_misses_total") == {("public", "broker-lacks-listener", "http"): 1}


async def test_shadow_mode_keeps_content_encoding_of_lookup_answers(simulate: Simulate) -> None:
    _, client = await simulate(owner=2, shadow=True, leaks="observe")
    reply = await client.send(LOOKUP, headers=[("Accept-Encoding", "gzip")])
    assert reply.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(reply.body).startswith(b'{"brokerUrl":"pulsar://' + named(2).encode())
    assert client.counted("leaks_total") == {("external", "body", "observed"): 1}


@pytest.mark.parametrize(
    ("coding", "body"), [("br", b"\x0b\x02\x80{}\x03"), ("gzip", b"not gzip"), ("identity", b"x" * (3 << 20))]
)
async def test_shadow_mode_passes_on_undecodable_or_oversized_lookup_answers(
    simulate: Simulate, coding: str, body: bytes
) -> None:
    _, client = await simulate(shadow=True, script=[coded(coding, body)])
    reply = await client.send(LOOKUP)
    assert (reply.status, reply.headers["Content-Encoding"]) == (200, coding)
    assert reply.body == body
