"""Admin calls at the simulated brokers: which are redirected to whom, and which any broker answers."""

from collections.abc import AsyncIterator

import pytest
from broker_client import FAMILIES, HEADER, LOOKUP, STATS, TOPIC, Client, both_families, broker_client, named, web
from simulated.cluster import SimulatedCluster, Topic
from simulated.metadata import Family, LoadManager
from yarl import URL

LOAD_MANAGERS: tuple[LoadManager, ...] = ("modular", "extensible")


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with broker_client() as one:
        yield one


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
        ("target", "expected"),
        [
            ("/admin/v2/brokers/ready", "ok"),
            ("/status.html", "OK"),
            ("/metrics/", '# TYPE pulsar_bundles_count gauge\npulsar_bundles_count{cluster="pulsar"} 1\n'),
        ],
    )
    async def test_status_and_metrics_are_answered_with_text(self, client: Client, target: str, expected: str) -> None:
        async with SimulatedCluster() as cluster:
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
