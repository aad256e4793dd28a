"""Redirects of lookups and admin calls as whole chains: client, redirect, rewritten host, and the broker it means."""

from __future__ import annotations

import pytest
from clusters import (
    ADMIN,
    ELSEWHERE,
    EXTERNAL,
    FOLLOW,
    HEADER,
    INGRESS,
    LOOKUP,
    PARTNER,
    PARTNERS,
    PRODUCE,
    PUBLIC,
    STATS,
    TOPIC,
    Keys,
    Simulate,
    asked,
    both_families,
    external,
    inside,
    named,
)
from simulated.cluster import Answer, Listener, Received, Topic, says
from simulated.metadata import Family, LoadManager

LOOKUP_V1 = "/lookup/v2/destination/persistent/prop/cluster/ns/a%2Fb"


def named_in(location: str) -> list[str | None]:
    """The listeners that a Location names."""
    query = location.partition("?")[2]
    return [Received("GET", f"/?{part}").parameter("listenerName") for part in query.split("&") if "istener" in part]


# Lookups.


@pytest.mark.parametrize(
    ("family", "target"), [("4.x", LOOKUP), ("5.x", LOOKUP), ("4.x", LOOKUP_V1), ("5.x", LOOKUP + "%252fa+b%20")]
)
async def test_lookup_redirects_lead_via_leader_to_the_broker_that_takes_the_bundle(
    simulate: Simulate, family: Family, target: str
) -> None:
    cluster, client = await simulate(family=family, loaded=(0, 1))
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
    assert client.counted("redirects_total") == {("external", "lookup", "rewritten"): 2}
    assert client.counted("listener_hits_total") == {("public", "external", "ingress", "http"): 3}
    assert client.counted("leaks_total") == {}
    assert client.counted("unmapped_redirects_total") == {}
    assert (await client.walk(INGRESS + target)).origins == [INGRESS]


@both_families
async def test_lookup_reaches_the_owner_from_any_broker_of_the_pool(simulate: Simulate, family: Family) -> None:
    cluster, client = await simulate(family=family, pool=(0, 1, 2))
    owners = {}
    for n in range(6):
        topic = f"persistent://public/ns-{n}/orders"
        walk = await client.walk(f"{INGRESS}/lookup/v2/topic/persistent/public/ns-{n}/orders")
        owners[topic] = cluster.owner(topic)
        assert walk.reply.json["httpUrl"] == external(owners[topic] or 0)
    assert sorted(map(str, owners.values())) == ["0", "0", "1", "1", "2", "2"]
    assert client.counted("leaks_total") == {}


@pytest.mark.parametrize(
    ("family", "query", "expected"),
    [
        # 4.x rebuilds path and query, and does not encode the name.
        ("4.x", "", "?authoritative=false&listenerName=external"),
        ("4.x", "?a=%2F&b", "?authoritative=false&listenerName=external"),
        ("4.x", "?listenerName=external", "?authoritative=false&listenerName=external"),
        ("4.x", "?listenerName=%20", "?authoritative=false&listenerName=external"),
        ("4.x", "?listenerName=partner", "?authoritative=false&listenerName=partner"),
        # 5.x keeps the query, written again.
        ("5.x", "", "?authoritative=false&listenerName=external"),
        ("5.x", "?a=%2f&b&c=+%7E", "?a=%2f&b=&c=+%7E&authoritative=false&listenerName=external"),
        ("5.x", "?listener%4Eame=external&a", "?a=&authoritative=false&listenerName=external"),
        ("5.x", "?listenerName=partner", "?authoritative=false&listenerName=partner"),
    ],
)
async def test_lookup_redirect_location_names_the_listener_exactly_once(
    simulate: Simulate, family: Family, query: str, expected: str
) -> None:
    partner = Listener("pulsar://b{n}.partner.example:6650")
    listeners = {"external": Listener(broker_service_url_tls="pulsar+ssl://b{n}:6651"), "partner": partner}
    urls = [*EXTERNAL, "partner:https://b{n}.partner.example"]
    _, client = await simulate(family=family, listeners=listeners, urls=urls)
    location = (await client.send(LOOKUP + query)).location
    host = "b0.partner.example" if "partner" in expected else "broker-0.pulsar.example.com"
    assert location == f"https://{host}{LOOKUP}{expected}"
    assert len(named_in(location)) == 1


@both_families
async def test_listener_name_in_redirect_location_is_percent_encoded(simulate: Simulate, family: Family) -> None:
    # Brokers of 4.x take such names for listeners, and put them into a Location as they are.
    odd = Listener("pulsar://odd-{n}.example.com:6650")
    keys: Keys = {"unknownListener": "forward", "lookupListenerName": "external"}
    cluster, client = await simulate(family=family, listeners={"a&b=c": odd}, **keys, loaded=(0, 1))
    walk = await client.walk(f"{INGRESS}{LOOKUP}?listenerName=a%26b%3Dc")
    assert walk.origins == [INGRESS, external(0), external(2)]
    for url in walk.urls[1:]:
        assert url.count("listenerName=a%26b%3Dc") == 1
        assert named_in(url) == ["a&b=c"]
    assert cluster.owner(TOPIC) == 2
    assert walk.reply.json["httpUrl"] == external(2)


async def test_lookup_redirect_keeps_listener_name_that_the_next_broker_lacks(simulate: Simulate) -> None:
    # 5.x falls back to the web port's listener without a word; the next broker would answer with that.
    cluster, client = await simulate(family="5.x")
    del cluster.brokers[0].listeners["external"]
    walk = await client.walk(INGRESS + LOOKUP)
    assert walk.origins == [INGRESS, external(0)]
    assert named_in(walk.urls[1]) == ["external"]
    assert walk.reply.refusal == (400, "broker-lacks-listener")
    assert client.counted("listener_misses_total") == {("public", "broker-lacks-listener", "http"): 1}


async def test_client_named_listener_survives_lookup_redirects(simulate: Simulate) -> None:
    partner = Listener("pulsar://b{n}.partner.example:6650")
    keys: Keys = {
        "urls": [*EXTERNAL, *PARTNER],
        "ingresses": [PUBLIC, {**PARTNERS, "hosts": ["partner.example", "*.partner.example"]}],
        "reachable": [f"https://b{n}.partner.example:8443" for n in range(3)],
    }
    cluster, client = await simulate(listeners={"partner": partner}, **keys, loaded=(0, 1))
    walk = await client.walk(f"{INGRESS}{LOOKUP}?listenerName=partner")
    assert walk.origins[1:] == ["https://b0.partner.example:8443", "https://b2.partner.example:8443"]
    assert walk.reply.json["brokerUrl"] == "pulsar://b2.partner.example:6650"
    assert cluster.owner(TOPIC) == 2
    assert client.counted("listener_hits_total") == {
        ("public", "partner", "query", "http"): 1,
        ("partners", "partner", "ingress", "http"): 2,
    }


async def test_lookup_redirect_uses_default_listener_when_selected_one_has_no_web_address(simulate: Simulate) -> None:
    # PIP-338: and the broker that it leads to is the one meant, though it is not on the selected listener.
    partner = Listener("pulsar://b{n}.partner.example:6650")
    keys: Keys = {
        "urls": [*EXTERNAL, "partner:pulsar://b{n}.partner.example:6650"],
        "ingresses": [PUBLIC, PARTNERS],
        "lookupListenerName": "external",
        "reachable": ["https://partner.example"],
    }
    cluster, client = await simulate(listeners={"partner": partner}, **keys, loaded=(0, 1))
    walk = await client.walk(f"https://partner.example{LOOKUP}")
    assert walk.origins == ["https://partner.example", external(0), external(2)]
    assert named_in(walk.urls[2]) == ["partner"]
    assert (asked(cluster), cluster.owner(TOPIC)) == ([1, 1, 1], 2)
    assert walk.reply.json["brokerUrl"] == "pulsar://b2.partner.example:6650"
    assert client.counted("redirects_total") == {("partner", "lookup", "rewritten"): 2}
    assert client.counted("unmapped_redirects_total") == {}


# Every admin call that brokers redirect, to the owner in one hop: methods, bodies and queries survive.


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
    simulate: Simulate, family: Family, method: str, target: str, body: bytes
) -> None:
    cluster, client = await simulate(family=family)
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
    assert client.counted("redirects_total") == {("external", kind, "rewritten"): 1}
    assert client.counted("listener_hits_total") == {}
    assert client.counted("leaks_total") == {}


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
    simulate: Simulate, family: Family, method: str, target: str, body: bytes
) -> None:
    cluster, client = await simulate(family=family, loaded=(0, 1))
    walk = await client.walk(INGRESS + target, method=method, body=body or None)
    assert walk.origins == [INGRESS, external(0), external(2)]
    assert (asked(cluster), cluster.owner(TOPIC)) == ([1, 1, 1], 2)
    assert cluster.brokers[2].requests[0].authoritative
    assert [broker.requests[0].body for broker in cluster.brokers] == [body] * 3
    assert walk.reply.json == {"broker": f"{named(2)}:8080", "method": method, "body": body.decode()}
    kind = "other" if target == PRODUCE else "admin"
    assert client.counted("redirects_total") == {("external", kind, "rewritten"): 2}


@pytest.mark.parametrize("load_manager", ["modular", "extensible"])
@both_families
async def test_bundle_unload_is_redirected_to_the_owner(
    simulate: Simulate, family: Family, load_manager: LoadManager
) -> None:
    cluster, client = await simulate(family=family, load_manager=load_manager)
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
@pytest.mark.parametrize(
    ("target", "body"),
    [
        (f"/admin/v2/brokers/health?topicVersion=V2&brokerId={named(2)}%3A8080", b"ok"),
        (f"/admin/v2/brokers/pulsar/{named(2)}:8080/ownedNamespaces", Topic.parse(TOPIC).bundle.encode()),
    ],
)
async def test_call_for_another_broker_is_redirected_to_that_broker(
    simulate: Simulate, family: Family, target: str, body: bytes
) -> None:
    cluster, client = await simulate(owner=2, family=family)
    walk = await client.walk(INGRESS + target)
    assert walk.urls == [INGRESS + target, external(2) + target]
    assert body in walk.reply.body
    assert asked(cluster) == [0, 1, 1]


async def test_rest_produce_redirect_loop_of_4x_brokers_gets_502(simulate: Simulate) -> None:
    # The brokers' own fault (the query is left alone, so nobody takes the bundle): followed, it ends in an answer.
    _, client = await simulate(redirects=FOLLOW, loaded=(0, 1))
    reply = await client.send(PRODUCE, method="POST", body=b"{}")
    assert reply.refusal == (502, "redirect-loop")
    assert client.counted("redirects_total") == {
        ("external", "other", "followed"): 2,
        ("external", "other", "refused"): 1,
    }


async def test_admin_redirect_is_passed_unchanged_when_no_ingress_matches(simulate: Simulate) -> None:
    _, client = await simulate()
    reply = await client.send(STATS, host=ELSEWHERE)
    assert reply.location == f"{inside(0)}{STATS}?authoritative=false"
    assert client.counted("redirects_total") == {("", "admin", "passed"): 1}
    assert client.counted("listener_misses_total") == {}  # only lookups count


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_location_is_rewritten_and_body_kept_for_every_redirect_status(simulate: Simulate, status: int) -> None:
    sent = Answer(status, b"moved", location=f"{inside(2)}/a%2Fb?x=%2f&#top")
    _, client = await simulate(script=[says(sent)])
    reply = await client.send(STATS)
    assert (reply.status, reply.body) == (status, b"moved")
    assert reply.location == f"{external(2)}/a%2Fb?x=%2f&#top"


# Where the listener has http and https, the client's own scheme decides.


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
    simulate: Simulate, trusted: str, forwarded: str | None, expected: str
) -> None:
    urls = [
        "external:http://broker-{n}.pulsar.example.com",
        "external:https://broker-{n}.pulsar.example.com:8443",
    ]
    cluster, client = await simulate(urls=urls, trustedProxies=[trusted])
    headers = [("X-Forwarded-Proto", forwarded)] if forwarded else []
    assert (await client.send(STATS, headers=headers)).location.startswith(expected + STATS)
    assert cluster.brokers[1].requests[0].values("X-Forwarded-Proto") == ["http"]
