"""Lookups at the simulated brokers: bodies, topic names, who is chosen, and where redirects lead."""

from collections.abc import AsyncIterator

import pytest
from broker_client import HEADER, LOOKUP, STATS, TOPIC, TWO_URLS, Client, both_families, broker_client, named, web
from simulated.cluster import Listener, SimulatedCluster, Topic
from simulated.metadata import Family, LoadManager


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with broker_client() as one:
        yield one


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
