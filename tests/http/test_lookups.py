"""Lookups through the sidecar: which listener a broker is asked for, by the client's word, host or bind address."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from clusters import (
    BOTH,
    ELSEWHERE,
    HEADER,
    HOST,
    LISTENERS,
    LOOKUP,
    PARTNERS,
    PUBLIC,
    STATS,
    Fields,
    Keys,
    Simulate,
    as_sent,
    both_families,
    in_full,
    in_partner,
    named,
)
from simulated.cluster import Listener
from simulated.metadata import Family

EXTERNAL_HIT = {("public", "external", "ingress", "http"): 1}

# A lookup leaves with exactly one X-Pulsar-ListenerName, and with the query that it came with.


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
    simulate: Simulate, query: str, headers: Fields, sent: str | None, listener: str, rule: str
) -> None:
    cluster, client = await simulate(owner=2, **BOTH)
    reply = await client.send(LOOKUP + query, headers=headers)
    (received,) = cluster.brokers[1].requests
    assert received.target == LOOKUP + (query if sent is None else sent)
    assert received.values(HEADER) == [listener]
    assert received.listener_name == listener  # as the broker understands it
    assert reply.json == (in_partner(2) if listener == "partner" else in_full(2))
    assert client.counted("listener_hits_total") == {("public", listener, rule, "http"): 1}
    assert client.counted("listener_misses_total") == {}


@pytest.mark.parametrize(
    "path",
    [
        "/lookup/v2/topic/persistent/public/default/a%2Fb",
        "/lookup/v2/topic/persistent/public/default/a%2fb%252Fc",
        "/lookup/v2/topic/non-persistent/t/n/~a*+%20%C3%A9",
        "/lookup/v2/destination/persistent/prop/cluster/ns/a%2Fb",
    ],
)
async def test_lookup_path_is_forwarded_byte_for_byte(simulate: Simulate, path: str) -> None:
    cluster, client = await simulate(load_manager="extensible")
    assert (await client.send(path)).status == 200
    (received,) = cluster.brokers[1].requests
    assert (received.target, received.values(HEADER)) == (path, ["external"])
    assert client.counted("listener_hits_total") == EXTERNAL_HIT


async def test_head_request_to_lookup_path_is_tagged_as_lookup(simulate: Simulate) -> None:
    cluster, client = await simulate(load_manager="extensible")
    reply = await client.send(LOOKUP, method="HEAD")
    assert (reply.status, reply.body) == (200, b"")
    assert "Content-Length" not in reply.headers  # the broker's is of another body (RFC 9110 8.6)
    assert cluster.brokers[1].requests[0].values(HEADER) == ["external"]
    assert client.counted("listener_hits_total") == EXTERNAL_HIT


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
async def test_requests_other_than_lookups_are_not_tagged(simulate: Simulate, target: str, expected: int) -> None:
    cluster, client = await simulate()
    assert (await client.send(target)).status == expected
    (received,) = cluster.brokers[1].requests
    assert (received.target, received.values(HEADER)) == (target, [])
    assert client.counted("listener_hits_total") == {}
    assert client.counted("listener_misses_total") == {}


# What PIP-95 and PIP-338 promise, by their words.


@dataclass(frozen=True)
class Promise:
    listener: str
    rule: str
    ingress: str = ""
    keys: Keys = field(default_factory=dict)
    query: str = ""
    headers: Fields = field(default_factory=list)
    bind: int = 0


NAMED = [(HEADER, "partner")]
BINDS: Keys = {"bindAddresses": "external:http://127.0.0.1:0,partner:http://127.0.0.2:0"}
NO_INGRESS: Keys = {"ingresses": []}
DEFAULT: Keys = {**NO_INGRESS, "lookupListenerName": "external"}
PROMISES = {
    "PIP-95: a bind address selects its listener": Promise("external", "bind", "public", BINDS),
    "PIP-95: another bind address selects another": Promise("partner", "bind", "partners", BINDS, bind=1),
    "PIP-95: a query beats the bind address": Promise("partner", "query", "public", BINDS, "?listenerName=partner"),
    "PIP-95: a header beats the bind address": Promise("partner", "header", "public", BINDS, headers=NAMED),
    "PIP-95: a header selects where nothing else does": Promise("partner", "header", "", NO_INGRESS, headers=NAMED),
    "PIP-95: a header counts only without a query": Promise(
        "external", "query", "", NO_INGRESS, "?listenerName=external", NAMED
    ),
    "PIP-338, case i: the default without a name": Promise("external", "default", "", DEFAULT),
    "PIP-338, case ii: a query beats the default": Promise("partner", "query", "", DEFAULT, "?listenerName=partner"),
}


@both_families
@pytest.mark.parametrize("promise", PROMISES.values(), ids=PROMISES.keys())
async def test_pips_promise_a_lookup_the_addresses_of_its_listener(
    simulate: Simulate, promise: Promise, family: Family
) -> None:
    """PIP-338, case iii: HTTP and HTTPS addresses among them. PIP-95: no plain ones of a listener with TLS alone."""
    _, client = await simulate(owner=1, family=family, pool=(0, 1, 2), **{**BOTH, **promise.keys})
    reply = await client.send(LOOKUP + promise.query, host=ELSEWHERE, headers=promise.headers, bind=promise.bind)
    expected = in_partner(1) if promise.listener == "partner" else in_full(1)
    assert {key: url for key, url in reply.json.items() if key != "brokerId"} == expected
    hit = (promise.ingress, promise.listener, promise.rule, "http")
    assert client.counted("listener_hits_total") == {hit: 1}


@both_families
async def test_pip_338_internal_web_addresses_are_kept_if_client_listener_not_preferred(
    simulate: Simulate, family: Family
) -> None:
    cluster, client = await simulate(family=family, preferHttpClientListenerOverInternalListener=False)
    location = (await client.send(LOOKUP)).location
    assert location == f"http://{named(0)}:8080{LOOKUP}?authoritative=false&listenerName=external"
    cluster.own("persistent://public/default/orders", 2)
    answer = (await client.send(LOOKUP)).json
    assert answer["httpUrl"] == f"http://{named(2)}:8080"
    assert "httpUrlTls" not in answer
    assert answer["brokerUrl"] == answer["brokerUrlTls"] == in_full(2)["brokerUrl"]
    assert client.counted("redirects_total") == {("external", "lookup", "passed"): 1}
    assert client.counted("leaks_total") == {("external", "location", "passed"): 1}


# Clients that name a listener.


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
    simulate: Simulate, policy: str, query: str, headers: Fields, expected: str | None
) -> None:
    cluster, client = await simulate(owner=1, **BOTH, clientListenerName=policy)
    reply = await client.send(LOOKUP + query, headers=headers)
    if expected is None:
        assert reply.refusal == (400, "client-named")
        assert cluster.brokers[1].requests == []
        assert client.counted("listener_misses_total") == {("public", "client-named", "http"): 1}
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
    simulate: Simulate, allowed: list[str] | None, name: str, refusal: tuple[int, str] | None, by: str
) -> None:
    ingress = {**PUBLIC, "allowedListeners": allowed}
    cluster, client = await simulate(owner=1, **{**BOTH, "ingresses": [ingress]})
    query = f"?listenerName={name}" if by == "query" else ""
    reply = await client.send(LOOKUP + query, headers=[] if by == "query" else [(HEADER, name)])
    if refusal is None:
        assert reply.status == 200
        assert cluster.brokers[1].requests[0].values(HEADER) == [name]
        if name == "internal":
            assert reply.json["httpUrl"] == cluster.brokers[1].web
        rule = "ingress" if name == "external" else by
        assert client.counted("listener_hits_total") == {("public", name, rule, "http"): 1}
    else:
        assert reply.refusal == refusal
        assert refusal[1] != "unknown-listener" or name in reply.json["reason"]
        assert cluster.brokers[1].requests == []
        assert client.counted("listener_hits_total") == {}
        assert client.counted("listener_misses_total") == {("public", refusal[1], "http"): 1}


async def test_unknown_listener_is_forwarded_when_unknown_listener_is_forward(simulate: Simulate) -> None:
    listeners = {**LISTENERS, "new": Listener("pulsar://new-{n}.example.com:6650")}
    cluster, client = await simulate(owner=1, **{**BOTH, "listeners": listeners}, unknownListener="forward")
    reply = await client.send(LOOKUP + "?listenerName=new")
    assert reply.status == 200
    assert cluster.brokers[1].requests[0].values(HEADER) == ["new"]
    assert reply.json["brokerUrl"] == "pulsar://new-1.example.com:6650"
    # A name that no config has is no label.
    assert client.counted("listener_hits_total") == {("public", "other", "query", "http"): 1}
    assert (await client.send(LOOKUP + "?listenerName=nowhere")).refusal == (400, "broker-lacks-listener")
    assert client.counted("listener_misses_total") == {("public", "broker-lacks-listener", "http"): 1}


async def test_client_may_name_any_listener_when_advertised_listeners_are_empty(simulate: Simulate) -> None:
    cluster, client = await simulate(owner=1, listeners=LISTENERS, advertisedListeners=[])
    assert (await client.send(LOOKUP + "?listenerName=partner")).status == 200
    assert cluster.brokers[1].requests[0].values(HEADER) == ["partner"]


# Ingresses: which one a lookup came through, where the client named no listener.


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (HOST, ("public", "external", "ingress")),
        (HOST.upper() + ".", ("public", "external", "ingress")),
        (f"x.eu.{HOST}", ("eu", "partner", "ingress")),
        ("partner.example", ("partners", "partner", "ingress")),
        (ELSEWHERE, None),
    ],
)
async def test_host_selects_ingress_and_listener(
    simulate: Simulate, host: str, expected: tuple[str, str, str] | None
) -> None:
    eu = {"name": "eu", "hosts": [f"eu.{HOST}", f"*.eu.{HOST}"], "listener": "partner"}
    cluster, client = await simulate(owner=1, **{**BOTH, "ingresses": [PUBLIC, PARTNERS, eu]})
    assert (await client.send(LOOKUP, host=host)).status == 200
    hits = {(*expected, "http"): 1} if expected else {}
    assert client.counted("listener_hits_total") == hits
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
    simulate: Simulate, trusted: str, host: str, forwarded: list[str], expected: str | None
) -> None:
    cluster, client = await simulate(owner=1, **BOTH, trustedProxies=[trusted])
    headers = [("X-Forwarded-Host", value) for value in forwarded]
    assert (await client.send(LOOKUP, host=host, headers=headers)).status == 200
    assert cluster.brokers[1].requests[0].values(HEADER) == ([expected] if expected else [])
    misses = {} if expected else {("", "no-rule", "http"): 1}
    assert client.counted("listener_misses_total") == misses


@pytest.mark.parametrize(("host", "ingress"), [(HOST, "public"), ("partner.example", "partners")])
async def test_listener_of_bind_address_beats_host(simulate: Simulate, host: str, ingress: str) -> None:
    """The ingress is found by host all the same."""
    _, client = await simulate(owner=1, **BOTH, bindAddresses=["http://127.0.0.1:0", "partner:http://127.0.0.2:0"])
    assert (await client.send(LOOKUP, host=host, bind=1)).json == in_partner(1)
    assert client.counted("listener_hits_total") == {(ingress, "partner", "bind", "http"): 1}
    assert (await client.send(LOOKUP, bind=0)).json == in_full(1)


async def test_allowed_listeners_apply_on_bind_address_with_listener(simulate: Simulate) -> None:
    ingresses = [{**PARTNERS, "allowedListeners": ["partner"]}]
    binds = ["partner:http://127.0.0.1:0"]
    _, client = await simulate(**{**BOTH, "ingresses": ingresses}, bindAddresses=binds)
    reply = await client.send(LOOKUP + "?listenerName=external", host=ELSEWHERE)
    assert reply.refusal == (403, "not-allowed")
    assert client.counted("listener_misses_total") == {("partners", "not-allowed", "http"): 1}


async def test_default_listener_is_used_only_when_no_ingress_matches(simulate: Simulate) -> None:
    _, client = await simulate(owner=1, **BOTH, lookupListenerName="partner")
    assert (await client.send(LOOKUP, host=ELSEWHERE)).json == in_partner(1)
    assert (await client.send(LOOKUP)).json == in_full(1)
    assert client.counted("listener_hits_total") == {("", "partner", "default", "http"): 1, **EXTERNAL_HIT}


@pytest.mark.parametrize("owner", [None, 2])
async def test_lookup_without_matching_rule_and_its_redirect_or_answer_pass_unchanged(
    simulate: Simulate, owner: int | None
) -> None:
    """PIP-95: where nothing names a listener; PIP-338, case iv: brokers' internal addresses stay."""
    cluster, client = await simulate(owner=owner)
    reply = await client.send(LOOKUP + "?a=%2F", host=ELSEWHERE)
    (received,) = cluster.brokers[1].requests
    assert (received.target, received.values(HEADER)) == (LOOKUP + "?a=%2F", [])
    assert client.counted("listener_misses_total") == {("", "no-rule", "http"): 1}
    assert client.counted("leaks_total") == {}
    if owner is None:
        assert reply.location == f"http://{named(0)}:8080{LOOKUP}?authoritative=false"
        assert client.counted("redirects_total") == {("", "lookup", "passed"): 1}
    else:
        assert reply.json == as_sent(owner)


async def test_lookup_without_matching_rule_gets_400_when_miss_is_reject(simulate: Simulate) -> None:
    cluster, client = await simulate(owner=1, miss="reject")
    assert (await client.send(LOOKUP, host=ELSEWHERE)).refusal == (400, "no-rule")
    assert cluster.brokers[1].requests == []
    assert (await client.send(STATS, host=ELSEWHERE)).status == 200  # not a lookup: no miss
    assert client.counted("listener_misses_total") == {("", "no-rule", "http"): 1}
    # A client that names a listener needs no ingress.
    assert (await client.send(LOOKUP, host=ELSEWHERE, headers=[(HEADER, "external")])).json == in_full(1)
    assert client.counted("listener_hits_total") == {("", "external", "header", "http"): 1}
