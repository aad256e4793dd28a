"""Which requests an ingress lets in, and whether they go to the pool, to one broker or to function workers."""

from __future__ import annotations

from itertools import count

import pytest
from clusters import (
    ADMIN,
    ELSEWHERE,
    EXTERNAL,
    HOST,
    INGRESS,
    LOOKUP,
    PRODUCE,
    PUBLIC,
    STATS,
    Keys,
    Simulate,
    asked,
    book,
    named,
)
from raw import RawBroker, Start, answer_all
from running_sidecar import while_running
from simulated.cluster import SimulatedCluster

BROKER_2 = "broker-2.pulsar.example.com"

# A broker's own host leads to that broker and to no other.


@pytest.mark.parametrize(
    ("host", "forwarded", "trusted", "broker"),
    [
        (BROKER_2, None, "127.0.0.0/8", 2),
        (f"{BROKER_2.upper()}.:443", None, "127.0.0.0/8", 2),
        ("sidecar", BROKER_2, "127.0.0.0/8", 2),
        ("sidecar", BROKER_2, "10.0.0.0/8", 1),  # by whom nobody trusts
        (HOST, BROKER_2, "127.0.0.0/8", 1),  # gateways pass a client's own on: it never beats a Host that matches
    ],
)
async def test_host_of_a_broker_or_trusted_x_forwarded_host_selects_that_broker(
    simulate: Simulate, host: str, forwarded: str | None, trusted: str, broker: int
) -> None:
    _, client = await simulate(lookupListenerName="external", trustedProxies=[trusted])
    headers = [("X-Forwarded-Host", forwarded)] if forwarded else []
    for _ in range(3):
        reply = await client.send("/admin/v2/brokers/ready", host=host, headers=headers)
        assert reply.headers["broker-address"] == named(broker)


async def test_address_shared_by_brokers_selects_no_particular_broker(simulate: Simulate) -> None:
    _, client = await simulate(urls=[f"external:https://{HOST}"])
    reply = await client.send("/admin/v2/brokers/ready")
    assert reply.headers["broker-address"] == named(1)


# Function workers.


async def test_function_requests_go_to_separate_function_workers(simulate: Simulate) -> None:
    name = "worker-{n}.functions.svc.cluster.local"
    async with SimulatedCluster(brokers=2, name=name) as workers:
        cluster, client = await simulate(
            advertisedListeners=lambda cluster: [
                *book(cluster, *EXTERNAL),
                *book(workers, f"external:https://worker-{{n}}.{HOST}"),
            ],
            functionWorkers={"webServiceUrl": [workers.brokers[0].web]},
            reachable=[f"https://worker-{n}.{HOST}" for n in range(2)],
        )
        function = next(name for n in count() if workers.worker(name := f"t/n/f{n}") == 1)
        target = f"/admin/v3/functions/{function}/restart"
        walk = await client.walk(INGRESS + target, method="POST", body=b"{}")
        assert walk.urls == [INGRESS + target, f"https://worker-1.{HOST}{target}"]
        assert walk.reply.json == {"broker": f"{workers.brokers[1].id}", "method": "POST", "body": "{}"}
        assert (asked(cluster), asked(workers)) == ([0, 0, 0], [1, 1])
        assert client.counted("redirects_total") == {("external", "admin", "rewritten"): 1}


@pytest.mark.parametrize(
    ("target", "to_workers"),
    [
        ("/admin/v3/functions/t/n", True),
        ("/admin/v2/worker/cluster", True),
        ("/admin/worker-stats/metrics", True),
        ("/admin/v2/brokers", False),
        ("/admin/v3/transactions/coordinators", False),
        (LOOKUP, False),
    ],
)
async def test_only_function_worker_path_prefixes_go_to_function_workers(
    simulate: Simulate, broker: RawBroker, target: str, to_workers: bool
) -> None:
    cluster, client = await simulate(functionWorkers={"webServiceUrl": [broker.url]})
    async with while_running(answer_all(broker)):
        await client.send(target)
    assert (asked(cluster), broker.untouched) == ([0, int(not to_workers), 0], not to_workers)


async def test_function_request_at_a_brokers_own_host_goes_to_the_function_workers(
    simulate: Simulate, broker: RawBroker
) -> None:
    cluster, client = await simulate(functionWorkers={"webServiceUrl": [broker.url]})
    async with while_running(answer_all(broker)):
        await client.send("/admin/v3/functions/t/n", host=BROKER_2)
    assert (asked(cluster), broker.untouched) == ([0, 0, 0], False)


async def test_function_requests_go_to_brokers_without_separate_workers(simulate: Simulate) -> None:
    cluster, client = await simulate()
    assert (await client.send("/admin/v3/functions/t/n")).json == []
    assert asked(cluster) == [0, 1, 0]


LOOKUPS_ONLY: Keys = {"ingresses": [{**PUBLIC, "expose": ["lookup", "client"]}]}


# What an ingress exposes.


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
async def test_request_kind_not_exposed_by_ingress_gets_403(simulate: Simulate, method: str, target: str) -> None:
    cluster, client = await simulate(**LOOKUPS_ONLY)
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
async def test_request_kind_exposed_by_ingress_is_forwarded(simulate: Simulate, target: str) -> None:
    _, client = await simulate(owner=1, **LOOKUPS_ONLY)
    assert (await client.send(target)).status == 200


async def test_absolute_target_cannot_bypass_expose(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url, **LOOKUPS_ONLY)
    target = f"http://{HOST}/admin/v2/brokers"
    answer = await served.ask(f"GET {target} HTTP/1.1\r\nHost: {ELSEWHERE}\r\n\r\n".encode())
    assert answer.refusal == (403, "not-exposed")
    assert broker.untouched


async def test_a_lookup_that_is_not_exposed_is_a_miss(simulate: Simulate) -> None:
    _, client = await simulate(ingresses=[{**PUBLIC, "expose": ["ws"]}])
    assert (await client.send(LOOKUP)).refusal == (403, "not-exposed")
    assert client.counted("listener_misses_total") == {("public", "not-exposed", "http"): 1}
    assert client.counted("requests_total") == {("lookup", "http", "403"): 1}


async def test_expose_applies_per_ingress(simulate: Simulate) -> None:
    everything = {"name": "operators", "hosts": ["ops.example.org"], "listener": "external"}
    _, client = await simulate(ingresses=[*LOOKUPS_ONLY["ingresses"], everything])
    assert (await client.send("/admin/v2/brokers", host="ops.example.org")).status == 200
    assert (await client.send("/admin/v2/brokers")).refusal == (403, "not-exposed")
