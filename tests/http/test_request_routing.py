"""Which requests an ingress lets in, and whether they go to the pool, to one broker or to function workers."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest
from cluster_cases import ADMIN, ELSEWHERE, LOOKUP, PRODUCE, STATS, TOPIC, asked, both_kinds
from sidecars import EXTERNAL, HOST, INGRESS, PUBLIC, Keys, book, named, serving

from pulsar_ingress_proxy.demo.cluster import SimulatedCluster


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
            ("GET", "/ADMIN/v2/brokers"),
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
