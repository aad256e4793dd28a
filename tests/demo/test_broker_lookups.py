"""The simulated brokers behave as Apache Pulsar's do: seen through a plain client that follows nothing."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import ClientConnectionError, ClientPayloadError, ClientSession, DummyCookieJar, WSMsgType
from yarl import URL

from pulsar_ingress_proxy.demo.cluster import (
    Answer,
    Hold,
    Listener,
    SimulatedBroker,
    SimulatedCluster,
    Topic,
    always,
    dies,
    redirects,
    says,
    wrong_listener,
)
from pulsar_ingress_proxy.demo.metadata import Family, LoadManager

TOPIC = "persistent://public/default/orders"
LOOKUP = "/lookup/v2/topic/persistent/public/default/orders"
STATS = "/admin/v2/persistent/public/default/orders/stats"
HEADER = "X-Pulsar-ListenerName"
FAMILIES: tuple[Family, ...] = ("4.x", "5.x")
LOAD_MANAGERS: tuple[LoadManager, ...] = ("modular", "extensible")
TWO_URLS = Listener("pulsar://b{n}.partner.example:6650", "pulsar+ssl://b{n}.partner.example:6651")
both_families = pytest.mark.parametrize("family", FAMILIES)


def named(n: int) -> str:
    return f"pulsar-broker-{n}.pulsar-broker.pulsar.svc.cluster.local"


def web(n: int) -> str:
    return f"http://{named(n)}:8080"


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Sends targets byte for byte, follows no redirect, decodes nothing."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session

    async def send(
        self,
        broker: SimulatedBroker,
        target: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        url = URL(broker.web + target, encoded=True)
        async with self.session.request(method, url, data=body, headers=headers, allow_redirects=False) as response:
            return Reply(response.status, response.headers, await response.read())

    async def location(self, broker: SimulatedBroker, target: str, **options: Any) -> str:
        reply = await self.send(broker, target, **options)
        assert reply.status == 307, reply
        return reply.headers["Location"]

    async def json(self, broker: SimulatedBroker, target: str, **options: Any) -> Any:
        reply = await self.send(broker, target, **options)
        assert reply.status == 200, reply
        return reply.json


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with ClientSession(
        auto_decompress=False, cookie_jar=DummyCookieJar(), skip_auto_headers=["Accept-Encoding"]
    ) as session:
        yield Client(session)


class TestLookupBodies:
    @pytest.mark.parametrize(
        ("family", "listener", "expected"),
        [
            (
                "4.x",
                None,
                {
                    "brokerUrl": f"pulsar://{named(1)}:6650",
                    "httpUrl": web(1),
                    "nativeUrl": f"pulsar://{named(1)}:6650",
                    "brokerUrlSsl": "",
                },
            ),
            (
                "5.x",
                None,
                {
                    "brokerId": f"{named(1)}:8080",
                    "brokerUrl": f"pulsar://{named(1)}:6650",
                    "httpUrl": web(1),
                    "nativeUrl": f"pulsar://{named(1)}:6650",
                    "brokerUrlSsl": "",
                },
            ),
            # A TLS-only listener: no brokerUrl, and the web URL stays the internal one.
            (
                "4.x",
                "external",
                {
                    "brokerUrlTls": "pulsar+ssl://broker-1.pulsar.example.com:6652",
                    "httpUrl": web(1),
                    "brokerUrlSsl": "",
                },
            ),
            (
                "5.x",
                "external",
                {
                    "brokerId": f"{named(1)}:8080",
                    "brokerUrlTls": "pulsar+ssl://broker-1.pulsar.example.com:6652",
                    "httpUrl": web(1),
                    "brokerUrlSsl": "",
                },
            ),
        ],
    )
    async def test_lookup_body_depends_on_family_and_listener(
        self, client: Client, family: Family, listener: str | None, expected: dict[str, str]
    ) -> None:
        async with SimulatedCluster(family=family) as cluster:
            cluster.own(TOPIC, 1)
            query = f"?listenerName={listener}" if listener else ""
            assert await client.json(cluster.brokers[2], LOOKUP + query) == expected

    async def test_lookup_body_has_both_urls_of_a_listener_with_plain_and_tls(self, client: Client) -> None:
        async with SimulatedCluster(listeners={"partner": TWO_URLS}) as cluster:
            cluster.own(TOPIC, 2)
            body = await client.json(cluster.brokers[0], LOOKUP + "?listenerName=partner")
            assert body["brokerUrl"] == body["nativeUrl"] == "pulsar://b2.partner.example:6650"
            assert body["brokerUrlTls"] == "pulsar+ssl://b2.partner.example:6651"

    @pytest.mark.parametrize(
        ("query", "header", "answered"),
        [
            ("", None, "internal"),
            ("", "external", "external"),
            ("?listenerName=external", None, "external"),
            ("?listenerName=external", "internal", "external"),
            ("?listenerName=", "external", "external"),
            ("?listenerName=%20", "external", "internal"),  # a blank is not empty, and is no name
            ("?listenerName=external&listenerName=internal", None, "external"),
            ("?listener%4Eame=external", None, "external"),
        ],
    )
    @both_families
    async def test_nonempty_listener_name_in_the_query_beats_the_header(
        self, client: Client, family: Family, query: str, header: str | None, answered: str
    ) -> None:
        async with SimulatedCluster(family=family) as cluster:
            cluster.own(TOPIC, 0)
            body = await client.json(cluster.brokers[0], LOOKUP + query, headers={HEADER: header} if header else None)
            assert ("brokerUrlTls" in body) == (answered == "external")

    @pytest.mark.parametrize(
        ("family", "load_manager", "wording"),
        [
            ("4.x", "modular", "the broker do not have nowhere listener"),
            ("4.x", "extensible", "the broker do not have nowhere listener"),
            ("5.x", "modular", f"The broker '{named(1)}:8080' does not have 'nowhere' listener configured."),
            ("5.x", "extensible", "the broker do not have nowhere listener"),
        ],
    )
    async def test_lookup_for_an_unknown_listener_is_500(
        self, client: Client, family: Family, load_manager: LoadManager, wording: str
    ) -> None:
        async with SimulatedCluster(family=family, load_manager=load_manager) as cluster:
            cluster.own(TOPIC, 1)
            response = await client.send(cluster.brokers[0], LOOKUP, headers={HEADER: "nowhere"})
            assert response.status == 500
            reason = response.json["reason"]
            assert f"Message: {wording}\n" in reason
            assert "\n\tat org.apache.pulsar." in reason

    async def test_lookup_for_a_listener_that_the_owner_lacks_is_500(self, client: Client) -> None:
        async with SimulatedCluster() as cluster:
            cluster.own(TOPIC, 1)
            del cluster.brokers[1].listeners["external"]
            assert (await client.send(cluster.brokers[0], LOOKUP + "?listenerName=external")).status == 500

    async def test_lookup_and_admin_calls_for_a_missing_namespace_are_404(self, client: Client) -> None:
        async with SimulatedCluster(missing_namespaces=["public/default"]) as cluster:
            for target, reason in (
                (LOOKUP, "Namespace not found"),
                (STATS, "Namespace not found"),
                ("/admin/v2/namespaces/public/default/topics", "Namespace does not exist"),
            ):
                response = await client.send(cluster.brokers[0], target)
                assert (response.status, response.json) == (404, {"reason": reason})

    async def test_brokers_are_named_by_the_configured_pattern(self, client: Client) -> None:
        async with SimulatedCluster(brokers=2, name="b{n}.example.internal") as cluster:
            cluster.own(TOPIC, 1)
            assert [broker.name for broker in cluster.brokers] == ["b0.example.internal", "b1.example.internal"]
            assert (await client.json(cluster.brokers[0], LOOKUP))["httpUrl"] == "http://b1.example.internal:8080"

    async def test_brokers_advertise_loopback_urls_when_configured(self, client: Client) -> None:
        async with SimulatedCluster(advertise_loopback=True) as cluster:
            cluster.own(TOPIC, 2)
            body = await client.json(cluster.brokers[0], LOOKUP)
            assert body["httpUrl"] == cluster.brokers[2].web
            assert await client.location(cluster.brokers[0], STATS) == (
                f"{cluster.brokers[2].web}{STATS}?authoritative=true"
            )


class TestTopicNames:
    @pytest.mark.parametrize(
        ("segment", "name"), [("a%2Fb", "a/b"), ("a%252Fb", "a%2Fb"), ("a+b", "a b"), ("a%20b", "a b"), ("%C3%A9", "é")]
    )
    async def test_topic_name_segment_is_decoded_once(self, client: Client, segment: str, name: str) -> None:
        async with SimulatedCluster() as cluster:
            cluster.own(f"non-persistent://t/n/{name}", 2)
            target = f"/lookup/v2/topic/non-persistent/t/n/{segment}"
            assert (await client.json(cluster.brokers[1], target))["httpUrl"] == web(2)
            assert cluster.brokers[1].requests[-1].target == target

    async def test_bundles_are_four_ranges_of_crc32(self, client: Client) -> None:
        async with SimulatedCluster() as cluster:
            ranges = set()
            for n in range(40):
                response = await client.send(cluster.brokers[0], f"/lookup/v2/topic/persistent/t/n/{n}/bundle")
                ranges.add(response.text)
                assert f"t/n/{response.text}" == Topic("persistent", "t/n", str(n)).bundle
            assert sorted(ranges) == [
                "0x00000000_0x40000000",
                "0x40000000_0x80000000",
                "0x80000000_0xc0000000",
                "0xc0000000_0xffffffff",
            ]
            assert cluster.owner("persistent://t/n/0") is None  # asking for the bundle assigns nothing

    async def test_own_accepts_a_bundle_as_well_as_a_topic(self, client: Client) -> None:
        async with SimulatedCluster() as cluster:
            cluster.own(Topic.parse(TOPIC).bundle, 2)
            assert cluster.owner(TOPIC) == 2

    async def test_4x_serves_v1_topic_names(self, client: Client) -> None:
        async with SimulatedCluster() as cluster:
            target = "/lookup/v2/destination/persistent/prop/cluster/ns/a%2Fb"
            location = await client.location(cluster.brokers[1], target + "?x=1", headers={HEADER: "external"})
            assert location == f"{web(0)}{target}?authoritative=false&listenerName=external"
            assert (await client.send(cluster.brokers[1], target + "/bundle")).status == 200
            cluster.own(Topic("persistent", "prop/cluster/ns", "a/b"), 1)
            assert (await client.json(cluster.brokers[0], target))["httpUrl"] == web(1)

    async def test_5x_answers_404_to_v1_topic_names(self, client: Client) -> None:
        async with SimulatedCluster(family="5.x") as cluster:
            target = "/lookup/v2/destination/persistent/prop/cluster/ns/topic"
            assert (await client.send(cluster.brokers[0], target)).status == 404


class TestAssignment:
    @both_families
    async def test_lookup_is_redirected_to_the_leader_and_then_to_the_least_loaded_broker(
        self, client: Client, family: Family
    ) -> None:
        async with SimulatedCluster(family=family, leader=1) as cluster:
            assert cluster.leader == 1
            cluster.own("t/n/0x00000000_0x40000000", 0)
            cluster.own("t/n/0x40000000_0x80000000", 1)
            to_leader = await client.location(cluster.brokers[0], LOOKUP)
            assert to_leader.startswith(f"{web(1)}{LOOKUP}?authoritative=false")
            to_chosen = await client.location(cluster.brokers[1], to_leader.removeprefix(web(1)))
            assert to_chosen.startswith(f"{web(2)}{LOOKUP}?authoritative=true")
            assert cluster.owner(TOPIC) is None
            body = await client.json(cluster.brokers[2], to_chosen.removeprefix(web(2)))
            assert (body["httpUrl"], cluster.owner(TOPIC)) == (web(2), 2)

    @both_families
    async def test_the_leader_may_choose_itself(self, client: Client, family: Family) -> None:
        async with SimulatedCluster(family=family) as cluster:
            assert (await client.json(cluster.brokers[0], LOOKUP))["httpUrl"] == web(0)
            assert cluster.owner(TOPIC) == 0

    @both_families
    async def test_authoritative_makes_a_broker_take_the_bundle(self, client: Client, family: Family) -> None:
        async with SimulatedCluster(family=family) as cluster:
            body = await client.json(cluster.brokers[2], LOOKUP + "?authoritative=true")
            assert body["httpUrl"] == web(2)
            assert cluster.owner(TOPIC) == 2
            assert (await client.json(cluster.brokers[1], LOOKUP))["httpUrl"] == web(2)

    @both_families
    async def test_the_extensible_load_manager_never_redirects_a_lookup(self, client: Client, family: Family) -> None:
        async with SimulatedCluster(family=family, load_manager="extensible") as cluster:
            cluster.own("t/n/0x00000000_0x40000000", 0)
            body = await client.json(cluster.brokers[2], LOOKUP)
            assert body["httpUrl"] == web(1)

    async def test_a_dead_leader_is_still_named_until_its_session_expires(self, client: Client) -> None:
        async with SimulatedCluster() as cluster:
            cluster.own(TOPIC, 0)
            other = "/lookup/v2/topic/persistent/t/n/x"
            await cluster.brokers[0].stop()
            assert (await client.json(cluster.brokers[1], LOOKUP))["httpUrl"] == web(0)
            assert (await client.location(cluster.brokers[1], other)).startswith(web(0))
            cluster.expire(0)
            assert cluster.leader == 1
            assert cluster.owner(TOPIC) is None
            assert (await client.json(cluster.brokers[1], LOOKUP))["httpUrl"] == web(1)

    async def test_lookup_is_503_without_a_body_when_no_broker_is_left(self, client: Client) -> None:
        async with SimulatedCluster(brokers=1) as cluster:
            cluster.expire(0)
            response = await client.send(cluster.brokers[0], LOOKUP)
            assert (response.status, response.body) == (503, b"")
            assert (await client.send(cluster.brokers[0], STATS)).status == 412


class TestLookupLocations:
    @pytest.mark.parametrize(
        ("family", "query", "header", "expected"),
        [
            ("4.x", "", None, "?authoritative=false"),
            ("4.x", "?authoritative=FALSE&a=1&b=%2F", None, "?authoritative=false"),
            ("4.x", "?listenerName=external&a=1", None, "?authoritative=false&listenerName=external"),
            ("4.x", "", "external", "?authoritative=false&listenerName=external"),
            ("4.x", "?listenerName=", None, "?authoritative=false&listenerName="),
            ("5.x", "", None, "?authoritative=false&listenerName=internal"),
            ("5.x", "?b=%2F&authoritative=false&a", None, "?a=&b=%2F&authoritative=false&listenerName=internal"),
            ("5.x", "?listenerName=external&a=1", None, "?a=1&authoritative=false&listenerName=external"),
            ("5.x", "", "external", "?authoritative=false&listenerName=external"),
            # What the target lacks is no error here, it gives way to the listener of the web port.
            ("5.x", "", "nowhere", "?authoritative=false&listenerName=internal"),
            ("5.x", "?listenerName=%20", None, "?authoritative=false&listenerName=internal"),
        ],
    )
    async def test_query_of_a_lookup_redirect_depends_on_family_and_listener_name(
        self, client: Client, family: Family, query: str, header: str | None, expected: str
    ) -> None:
        async with SimulatedCluster(family=family) as cluster:
            headers = {HEADER: header} if header else {}
            assert (
                await client.location(cluster.brokers[1], LOOKUP + query, headers=headers) == web(0) + LOOKUP + expected
            )

    @pytest.mark.parametrize(
        ("family", "sent", "expected"),
        [
            ("4.x", "a%20b", "a+b"),
            ("4.x", "~a*", "%7Ea*"),
            ("5.x", "a%20b", "a%20b"),
            ("5.x", "~a*", "~a*"),
        ],
    )
    async def test_4x_rebuilds_the_path_and_5x_keeps_it(
        self, client: Client, family: Family, sent: str, expected: str
    ) -> None:
        async with SimulatedCluster(family=family) as cluster:
            path = "/lookup/v2/topic/persistent/t/n/"
            assert (await client.location(cluster.brokers[1], path + sent)).split("?")[0] == web(0) + path + expected

    async def test_4x_does_not_encode_the_listener_name_in_redirects(self, client: Client) -> None:
        listeners = {"a&authoritative=true": TWO_URLS, "a b": TWO_URLS}
        async with SimulatedCluster(listeners=listeners) as cluster:
            location = await client.location(cluster.brokers[1], LOOKUP + "?listenerName=a%26authoritative%3Dtrue")
            assert location.endswith("?authoritative=false&listenerName=a&authoritative=true")
            # java.net.URI refuses what is no URI.
            assert (await client.send(cluster.brokers[1], LOOKUP + "?listenerName=a%20b")).status == 412

    async def test_5x_encodes_the_listener_name_in_redirects(self, client: Client) -> None:
        async with SimulatedCluster(family="5.x", listeners={"a b&c": TWO_URLS}) as cluster:
            location = await client.location(cluster.brokers[1], LOOKUP, headers={HEADER: "a b&c"})
            assert location.endswith("&listenerName=a+b%26c")

    async def test_4x_fails_for_a_listener_that_the_target_lacks(self, client: Client) -> None:
        async with SimulatedCluster() as cluster:
            assert (await client.send(cluster.brokers[1], LOOKUP, headers={HEADER: "nowhere"})).status == 500

    @pytest.mark.parametrize(
        ("family", "said"),
        [
            ("4.x", "Redirected cluster's service url is not configured."),
            ("5.x", f"No http URL configured for broker {named(0)}:8080"),
        ],
    )
    async def test_lookup_redirect_to_a_broker_without_http_url_is_412(
        self, client: Client, family: Family, said: str
    ) -> None:
        tls_only = Listener(broker_service_url_tls="pulsar+ssl://b{n}:6651", broker_https_url="https://b{n}:8443")
        async with SimulatedCluster(family=family, listeners={"internal": tls_only}) as cluster:
            response = await client.send(cluster.brokers[1], LOOKUP)
            assert response.status == 412
            assert said in response.text


class TestAdminRedirects:
    @pytest.mark.parametrize(
        ("family", "asked", "owner", "query", "expected"),
        [
            ("4.x", 1, 2, "", "?authoritative=false"),
            ("4.x", 0, 2, "", "?authoritative=true"),  # the leader marks
            ("4.x", 1, 2, "?a=%2F&authoritative=true&b", "?a=%2F&b=&authoritative=false"),
            ("4.x", 1, None, "", "?authoritative=false"),
            ("5.x", 1, 2, "", ""),
            ("5.x", 0, 2, "?authoritative=true&a=%2F", "?a=%2F"),  # an owned bundle needs no mark
            ("5.x", 1, None, "?a=1", "?a=1&authoritative=false"),
        ],
    )
    async def test_topic_admin_call_is_redirected_to_the_owner_or_the_leader(
        self, client: Client, family: Family, asked: int, owner: int | None, query: str, expected: str
    ) -> None:
        async with SimulatedCluster(family=family) as cluster:
            if owner is not None:
                cluster.own(TOPIC, owner)
            location = await client.location(cluster.brokers[asked], STATS + query, headers={HEADER: "external"})
            assert location == web(owner or 0) + STATS + expected

    @pytest.mark.parametrize("family", FAMILIES)
    @pytest.mark.parametrize("load_manager", LOAD_MANAGERS)
    async def test_following_admin_redirects_ends_at_the_owner(
        self, client: Client, family: Family, load_manager: LoadManager
    ) -> None:
        async with SimulatedCluster(family=family, load_manager=load_manager) as cluster:
            cluster.own("t/n/0x00000000_0x40000000", 0)
            at, target = 2, STATS
            for _ in range(3):
                response = await client.send(cluster.brokers[at], target)
                if response.status == 200:
                    break
                url = URL(response.headers["Location"], encoded=True)
                at, target = [named(n) for n in range(3)].index(str(url.host)), url.raw_path_qs
            assert (response.status, at, cluster.owner(TOPIC)) == (200, 1, 1)

    @pytest.mark.parametrize(
        ("method", "rest", "body"),
        [
            ("PUT", "/subscription/s", b'"earliest"'),
            ("POST", "/subscription/s/resetcursor", b'{"ledgerId":1,"entryId":2}'),
            ("PUT", "/partitions", b"4"),
            ("DELETE", "/subscription/s", b""),
            ("PUT", "", b""),
            ("DELETE", "", b'{"reason":"x"}'),
            ("GET", "/ledger/1/entry/2", b""),
        ],
    )
    async def test_admin_calls_of_any_method_are_redirected_and_keep_their_body(
        self, client: Client, method: str, rest: str, body: bytes
    ) -> None:
        async with SimulatedCluster() as cluster:
            cluster.own(TOPIC, 1)
            target = f"/admin/v2/persistent/public/default/orders{rest}"
            response = await client.send(cluster.brokers[0], target, method, body)
            assert response.headers["Location"] == f"{web(1)}{target}?authoritative=true"
            response = await client.send(cluster.brokers[1], target + "?authoritative=true", method, body)
            if method == "GET" or body:
                echoed = {"broker": f"{named(1)}:8080", "method": method, "body": body.decode()}
                assert (response.status, response.json) == (200, echoed)
            else:
                assert response.status == 204
            assert [broker.requests[-1].body for broker in cluster.brokers[:2]] == [body, body]

    @pytest.mark.parametrize(
        ("family", "load_manager", "asked", "query", "expected"),
        [
            ("4.x", "modular", 1, "", (2, "?authoritative=false")),
            ("4.x", "modular", 0, "?destinationBroker=x", (2, "?authoritative=true")),
            ("4.x", "modular", 1, "?destinationBroker=x", (0, "?destinationBroker=x&authoritative=false")),
            ("4.x", "extensible", 1, "?destinationBroker=x", (2, "?destinationBroker=x&authoritative=true")),
            ("5.x", "modular", 1, "", (2, "")),
            ("5.x", "modular", 0, "?destinationBroker=x", (2, "")),
            ("5.x", "modular", 1, "?destinationBroker=x", (0, "?destinationBroker=x&authoritative=false")),
            ("5.x", "extensible", 1, "?destinationBroker=x", (2, "?destinationBroker=x")),
        ],
    )
    async def test_bundle_unload_is_redirected_to_owner_or_leader_and_frees_the_bundle(
        self,
        client: Client,
        family: Family,
        load_manager: LoadManager,
        asked: int,
        query: str,
        expected: tuple[int, str],
    ) -> None:
        async with SimulatedCluster(family=family, load_manager=load_manager) as cluster:
            cluster.own(TOPIC, 2)
            target = f"/admin/v2/namespaces/{Topic.parse(TOPIC).bundle}/unload"
            to, changed = expected
            assert (
                await client.location(cluster.brokers[asked], target + query, method="PUT")
                == web(to) + target + changed
            )
            assert (await client.send(cluster.brokers[2], target, "PUT")).status == 204
            assert cluster.owner(TOPIC) is None
            assert (await client.send(cluster.brokers[1], target, "PUT")).status == 204  # nobody's: nothing to do

    @both_families
    async def test_health_check_of_another_broker_is_redirected_to_it(self, client: Client, family: Family) -> None:
        async with SimulatedCluster(family=family) as cluster:
            health = "/admin/v2/brokers/health"
            other = f"{health}?topicVersion=V2&brokerId={named(1)}:8080"
            assert await client.location(cluster.brokers[0], other) == f"{web(1)}{other[:-5]}%3A8080"
            for target in (health, other):
                response = await client.send(cluster.brokers[1], target)
                assert (response.status, response.text) == (200, "ok")
            assert (await client.send(cluster.brokers[0], f"{health}?brokerId=nobody:8080")).status == 404

    async def test_owned_namespaces_call_for_another_broker_is_redirected_to_it(self, client: Client) -> None:
        async with SimulatedCluster() as cluster:
            cluster.own(TOPIC, 1)
            target = f"/admin/v2/brokers/pulsar/{named(1)}:8080/ownedNamespaces"
            assert await client.location(cluster.brokers[0], target) == web(1) + target
            assert list(await client.json(cluster.brokers[1], target)) == [Topic.parse(TOPIC).bundle]

    @pytest.mark.parametrize(
        ("family", "owner", "query", "expected"),
        [
            ("4.x", 2, "?a=1", (2, "?a=1")),
            ("4.x", None, "", (0, "")),
            ("5.x", 2, "?authoritative=false", (2, "")),
            ("5.x", None, "", (0, "?authoritative=false")),
        ],
    )
    @pytest.mark.parametrize("rest", ["", "/partitions/3"])
    async def test_rest_produce_is_redirected_to_the_owner_or_the_leader(
        self, client: Client, family: Family, owner: int | None, query: str, expected: tuple[int, str], rest: str
    ) -> None:
        async with SimulatedCluster(family=family) as cluster:
            if owner is not None:
                cluster.own(TOPIC, owner)
            target = f"/topics/persistent/public/default/orders{rest}"
            response = await client.send(cluster.brokers[1], target + query, "POST", b'{"messages":[]}')
            to, changed = expected
            assert (response.status, response.headers["Location"]) == (307, web(to) + target + changed)
            if owner is not None:
                echoed = await client.json(cluster.brokers[owner], target, method="POST", body=b'{"messages":[]}')
                assert echoed["body"] == '{"messages":[]}'

    async def test_function_calls_are_redirected_to_their_worker(self, client: Client) -> None:
        async with SimulatedCluster() as cluster:
            worker = cluster.worker("t/n/wordcount")
            other = (worker + 1) % 3
            target = "/admin/v3/functions/t/n/wordcount/0/restart?x=%2F"
            assert await client.location(cluster.brokers[other], target, method="POST") == web(worker) + target
            assert (await client.send(cluster.brokers[worker], target, "POST")).status == 204
            upload = await client.json(
                cluster.brokers[worker], "/admin/v3/functions/t/n/wordcount", method="PUT", body=b"--x"
            )
            assert upload == {"broker": f"{named(worker)}:8080", "method": "PUT", "body": "--x"}


class TestLocalAnswers:
    @pytest.mark.parametrize(
        ("target", "expected"),
        [
            ("/admin/v2/persistent/public/default/orders/partitions", {"partitions": 0, "deleted": False}),
            ("/admin/v2/namespaces/public/default/topics?mode=PERSISTENT", []),
            ("/admin/v2/brokers", [f"{named(n)}:8080" for n in range(3)]),
            ("/admin/v2/brokers/pulsar", [f"{named(n)}:8080" for n in range(3)]),
            ("/admin/v2/brokers/leaderBroker", {"brokerId": f"{named(0)}:8080", "serviceUrl": web(0)}),
            ("/admin/v3/functions/public/default", []),
        ],
    )
    async def test_calls_that_need_no_owner_are_answered_locally_with_json(
        self, client: Client, target: str, expected: object
    ) -> None:
        async with SimulatedCluster() as cluster:
            cluster.own(TOPIC, 2)
            assert await client.json(cluster.brokers[1], target) == expected

    @pytest.mark.parametrize("rest", ["", "/3"])
    async def test_owner_answers_schema_calls(self, client: Client, rest: str) -> None:
        async with SimulatedCluster() as cluster:
            cluster.own(TOPIC, 1)
            target = f"/admin/v2/schemas/public/default/orders/schema{rest}"
            assert (await client.json(cluster.brokers[1], target))["type"] == "BYTES"

    @pytest.mark.parametrize(
        ("family", "target", "expected"),
        [
            ("4.x", "/admin/v2/brokers/ready", "ok"),
            ("4.x", "/admin/v2/brokers/version", "4.0.8"),
            ("5.x", "/admin/v2/brokers/version", "5.0.0-M1"),
            ("4.x", "/status.html", "OK"),
            ("4.x", "/metrics/", '# TYPE pulsar_bundles_count gauge\npulsar_bundles_count{cluster="pulsar"} 1\n'),
        ],
    )
    async def test_status_version_and_metrics_are_answered_with_text(
        self, client: Client, family: Family, target: str, expected: str
    ) -> None:
        async with SimulatedCluster(family=family) as cluster:
            cluster.own(TOPIC, 0)
            response = await client.send(cluster.brokers[0], target)
            assert (response.status, response.text) == (200, expected)

    async def test_runtime_configuration_lists_the_advertised_listeners(self, client: Client) -> None:
        async with SimulatedCluster(family="5.x") as cluster:
            configuration = await client.json(cluster.brokers[1], "/admin/v2/brokers/configuration/runtime")
            assert configuration["internalListenerName"] == "internal"
            assert configuration["advertisedListeners"].split(",") == [
                f"internal:pulsar://{named(1)}:6650",
                f"internal:{web(1)}",
                "external:pulsar+ssl://broker-1.pulsar.example.com:6652",
                "external:https://broker-1.pulsar.example.com",
            ]

    async def test_load_report_lists_listeners_on_modular_and_is_500_on_extensible(self, client: Client) -> None:
        report = "/admin/v2/broker-stats/load-report"
        async with SimulatedCluster() as cluster:
            listeners = (await client.json(cluster.brokers[1], report))["advertisedListeners"]
            assert listeners["external"] == {"brokerServiceUrlTls": "pulsar+ssl://broker-1.pulsar.example.com:6652"}
        async with SimulatedCluster(load_manager="extensible") as cluster:
            assert (await client.send(cluster.brokers[1], report)).status == 500

    @pytest.mark.parametrize("target", ["/", "/nothing", "/lookup/v2/topic/persistent/t/n"])
    async def test_unknown_paths_are_404(self, client: Client, target: str) -> None:
        async with SimulatedCluster() as cluster:
            assert (await client.send(cluster.brokers[0], target)).status == 404

    async def test_head_is_a_get_without_body(self, client: Client) -> None:
        async with SimulatedCluster() as cluster:
            response = await client.send(cluster.brokers[0], "/status.html", "HEAD")
            assert (response.status, response.headers["Content-Length"], response.body) == (200, "2", b"")

    async def test_every_answer_names_the_broker(self, client: Client) -> None:
        async with SimulatedCluster() as cluster:
            for target in (LOOKUP, "/nothing"):
                assert (await client.send(cluster.brokers[1], target)).headers["broker-address"] == named(1)


class TestTokens:
    @pytest.mark.parametrize(
        ("target", "authorization", "status"),
        [
            (LOOKUP, "Bearer s3cret", 200),
            (LOOKUP, "Bearer other", 401),
            (LOOKUP, None, 401),
            ("/ws/v2/producer/persistent/t/n/topic", None, 401),
            ("/status.html", None, 200),
            ("/metrics/", None, 200),
        ],
    )
    async def test_bearer_token_is_required_except_for_status_and_metrics(
        self, client: Client, target: str, authorization: str | None, status: int
    ) -> None:
        async with SimulatedCluster(token="s3cret") as cluster:
            headers = {"Authorization": authorization} if authorization else {}
            assert (await client.send(cluster.brokers[0], target, headers=headers)).status == status


class TestCompression:
    @pytest.mark.parametrize(
        ("always_on", "accepted", "target", "compressed"),
        [
            (False, "gzip, deflate", LOOKUP, True),
            (False, "identity", LOOKUP, False),
            (False, None, LOOKUP, False),
            (False, "gzip", "/admin/v2/brokers/ready", False),  # too short to be worth it
            (True, "identity", LOOKUP, True),
            (True, None, "/admin/v2/brokers/ready", True),
        ],
    )
    async def test_answers_are_gzipped_when_accepted_and_long_enough_or_when_forced(
        self, client: Client, always_on: bool, accepted: str | None, target: str, compressed: bool
    ) -> None:
        async with SimulatedCluster(compress_always=always_on) as cluster:
            plain = await client.send(cluster.brokers[0], target)
            response = await client.send(
                cluster.brokers[0], target, headers={"Accept-Encoding": accepted} if accepted else None
            )
            assert ("gzip" in response.headers.get("Content-Encoding", "")) == compressed
            unpacked = gzip.decompress(response.body) if compressed else response.body
            assert unpacked == (gzip.decompress(plain.body) if always_on else plain.body)


class TestStreams:
    @pytest.mark.parametrize("n", [0, 1, 65536, 1_000_001])
    @pytest.mark.parametrize("chunked", [True, False])
    async def test_bytes_endpoint_sends_the_requested_size_chunked_or_with_content_length(
        self, client: Client, n: int, chunked: bool
    ) -> None:
        async with SimulatedCluster(brokers=1) as cluster:
            response = await client.send(cluster.brokers[0], f"/static/bytes?n={n}&chunked={str(chunked).lower()}")
            assert len(response.body) == n
            assert response.headers.get("Content-Length") == (None if chunked else str(n))

    async def test_web_sockets_echo_until_the_broker_stops(self, client: Client) -> None:
        async with SimulatedCluster(brokers=1) as cluster:
            url = cluster.brokers[0].web + "/ws/v2/producer/persistent/t/n/topic"
            async with client.session.ws_connect(url) as connection:
                await connection.send_str('{"payload":""}')
                assert (await connection.receive_str()) == '{"payload":""}'
                await connection.send_bytes(b"\x00\xff")
                assert (await connection.receive_bytes()) == b"\x00\xff"
                await cluster.brokers[0].stop()
                assert (await connection.receive()).type in (WSMsgType.CLOSED, WSMsgType.ERROR)


class TestRequests:
    async def test_requests_are_recorded_byte_for_byte(self) -> None:
        async with SimulatedCluster(brokers=1) as cluster:
            url = URL(cluster.brokers[0].web)
            reader, writer = await asyncio.open_connection(url.host, url.port)
            writer.write(
                b"POST /topics/persistent/t/n/a%2fb%zz?x=%7e&&y HTTP/1.1\r\nhost: b0\r\nX-Pulsar-ListenerName: one\r\n"
                b"x-pulsar-listenername: two\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n"
                b"Connection: close\r\n\r\n\x00\xff\n"
            )
            await reader.read()
            writer.close()
            await writer.wait_closed()
            (received,) = cluster.brokers[0].requests
            assert received.method == "POST"
            assert received.target == "/topics/persistent/t/n/a%2fb%zz?x=%7e&&y"
            assert received.headers[:3] == (("host", "b0"), (HEADER, "one"), ("x-pulsar-listenername", "two"))
            assert received.values("X-PULSAR-LISTENERNAME") == ["one", "two"]
            assert received.header("Accept") is None
            assert received.body == b"\x00\xff\n"


class TestLife:
    async def test_stopped_broker_refuses_connections_and_restarts_on_its_port(self, client: Client) -> None:
        async with SimulatedCluster() as cluster:
            broker = cluster.brokers[1]
            where = broker.web
            await client.send(broker, "/status.html")
            await broker.stop()
            await broker.stop()
            assert broker.web == where
            with pytest.raises(ClientConnectionError):
                await client.send(broker, "/status.html")
            await broker.start()
            assert (await client.send(broker, "/status.html")).status == 200
            assert len(broker.requests) == 2

    async def test_stopping_a_broker_drops_its_pending_requests(self, client: Client) -> None:
        async with SimulatedCluster() as cluster:
            hold = Hold()
            cluster.brokers[0].script.append(hold)
            asked = asyncio.create_task(client.send(cluster.brokers[0], LOOKUP))
            await hold.reached.wait()
            await cluster.brokers[0].stop()
            with pytest.raises(ClientConnectionError):
                await asked

    async def test_closing_the_cluster_drops_held_requests(self, client: Client) -> None:
        async with SimulatedCluster() as cluster:
            hold = Hold()
            cluster.brokers[0].script.append(hold)
            asked = asyncio.create_task(client.send(cluster.brokers[0], LOOKUP))
            await hold.reached.wait()
        with pytest.raises(ClientConnectionError):
            await asked

    async def test_brokers_listen_on_loopback_only(self) -> None:
        async with SimulatedCluster() as cluster:
            assert {URL(broker.web).host for broker in cluster.brokers} == {"127.0.0.1"}


class TestFaults:
    async def test_script_step_applies_to_one_request(self, client: Client) -> None:
        async with SimulatedCluster() as cluster:
            cluster.brokers[0].script.append(says(Answer(429, b'{"reason":"slow down"}')))
            first = await client.send(cluster.brokers[0], LOOKUP)
            assert (first.status, first.json) == (429, {"reason": "slow down"})
            assert (await client.send(cluster.brokers[0], LOOKUP)).status == 200
            assert len(cluster.brokers[0].requests) == 2

    async def test_wrong_listener_step_answers_one_lookup_with_another_listeners_urls(self, client: Client) -> None:
        async with SimulatedCluster(listeners={"external": TWO_URLS}) as cluster:
            cluster.brokers[0].script.append(wrong_listener("internal"))
            urls = [
                (await client.json(cluster.brokers[0], LOOKUP + "?listenerName=external"))["brokerUrl"] for _ in "ab"
            ]
            assert urls == [f"pulsar://{named(0)}:6650", "pulsar://b0.partner.example:6650"]

    async def test_always_redirects_steps_make_a_loop_until_cleared(self, client: Client) -> None:
        async with SimulatedCluster(brokers=2) as cluster:
            first, second = cluster.brokers
            first.script.append(always(redirects(web(1))))
            second.script.append(always(redirects(web(0))))
            for _ in range(3):
                assert await client.location(first, LOOKUP + "?a=%2F") == f"{web(1)}{LOOKUP}?a=%2F"
                assert await client.location(second, LOOKUP + "?a=%2F") == f"{web(0)}{LOOKUP}?a=%2F"
            first.script.clear()
            assert (await client.send(first, LOOKUP)).status == 200

    async def test_redirects_step_can_lead_to_any_host(self, client: Client) -> None:
        async with SimulatedCluster() as cluster:
            cluster.brokers[0].script.append(redirects("https://elsewhere.example:8443"))
            assert await client.location(cluster.brokers[0], STATS) == f"https://elsewhere.example:8443{STATS}"

    async def test_hold_step_holds_one_request_until_released(self, client: Client) -> None:
        async with SimulatedCluster() as cluster:
            hold = Hold()
            cluster.brokers[0].script.append(hold)
            asked = asyncio.create_task(client.send(cluster.brokers[0], LOOKUP))
            await hold.reached.wait()
            assert (await client.send(cluster.brokers[0], LOOKUP)).status == 200  # only that one waits
            assert not asked.done()
            hold.release.set()
            assert (await asked).status == 200

    async def test_dies_step_breaks_the_connection_after_the_given_bytes(self, client: Client) -> None:
        async with SimulatedCluster() as cluster:
            cluster.brokers[0].script.append(dies(after=10))
            async with client.session.get(cluster.brokers[0].web + LOOKUP) as response:
                assert (response.status, response.content_type) == (200, "application/json")
                assert await response.content.readexactly(10) == b'{"brokerUr'
                with pytest.raises(ClientPayloadError):
                    await response.read()
            assert (await client.send(cluster.brokers[0], LOOKUP)).status == 200

    async def test_dies_step_breaks_the_connection_before_an_answer_by_default(self, client: Client) -> None:
        async with SimulatedCluster() as cluster:
            cluster.brokers[0].script.append(dies())
            with pytest.raises(ClientConnectionError):
                await client.send(cluster.brokers[0], LOOKUP, "POST", b"not sent again")
            assert len(cluster.brokers[0].requests) == 1
