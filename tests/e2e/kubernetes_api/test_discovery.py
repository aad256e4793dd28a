"""The sidecar beside a real API server: ingresses and brokers that come, change and go, and a server that does too."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from apiclient import Api, Object
from apiserver import ApiServer
from custom_resources import gateway_api
from gates import HOST, Gate, broker_name, broker_objects, gate, ingress, running_pod, tags, topic
from processes import BIN, run
from simulated.cluster import SimulatedCluster

RBAC = Path(__file__).parents[3] / "deploy/rbac.yaml"
BUILT_IN = ("Ingress", "Service", "Pod", "EndpointSlice")


@pytest.fixture
def kubeconfig(api_server: ApiServer, namespace: str, tmp_path: Path) -> Path:
    """Of one who may do everything."""
    return api_server.kubeconfig(tmp_path / "kubeconfig", api_server.token("admin"), namespace)


@pytest.fixture
async def cluster(namespace: str) -> AsyncIterator[SimulatedCluster]:
    async with SimulatedCluster(brokers=2, name=broker_name(namespace)) as one:
        one.own(topic("orders"), 0)
        yield one


async def in_sync(gate: Gate, *kinds: str) -> None:
    """Wait until all is seen, and the first that was concluded from it is in force."""
    await gate.sidecar.says("generation 2 is in force")
    for kind in kinds or BUILT_IN:
        await gate.until(1, "discovery_synced", kind)


def say(what: str, seconds: list[float]) -> None:
    """For those who run it with -rP; what a busy machine takes is no fault."""
    sys.stdout.write(f"{what} {', '.join(f'{1000 * one:.0f} ms' for one in seconds)}\n")


class Load:
    """Lookups, one after another, until it is ended, and what came of them."""

    def __init__(self) -> None:
        self.answers: Counter[tuple[str, int]] = Counter()
        self.failures: list[object] = []


@asynccontextmanager
async def lookups(gate: Gate, host: str) -> AsyncIterator[Load]:
    load = Load()

    async def ask() -> None:
        while True:
            status, body = await gate.lookup(host)
            load.answers[host, status] += 1
            if status != 200:
                load.failures.append(body)

    tasks = [asyncio.create_task(ask()) for _ in range(2)]
    try:
        yield load
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    load.failures += [error for error in ended if not isinstance(error, asyncio.CancelledError)]


async def test_sidecar_follows_added_changed_and_deleted_ingresses(
    admin: Api,
    namespace: str,
    kubeconfig: Path,
    cluster: SimulatedCluster,
    tmp_path: Path,
) -> None:
    async with gate(tmp_path, kubeconfig, cluster.brokers) as at:
        await in_sync(at)
        assert await at.readiness() == "ok"
        assert (await at.lookup())[0] == 200
        assert tags(cluster) == [[]]

        public = ingress(namespace, "public", HOST, "external")
        delays = [await at.after(admin.apply(public))]
        assert (await at.lookup())[0] == 200
        assert tags(cluster) == [["external"]]

        delays.append(await at.after(admin.apply(ingress(namespace, "public", "second.example.com", "internal"))))
        assert (await at.lookup("second.example.com"))[0] == 200
        assert (await at.lookup())[0] == 200
        assert tags(cluster) == [[], ["internal"]]

        generation = at.generation
        await admin.patch(public, {"metadata": {"labels": {"team": "messaging"}}})
        delays.append(await at.after(admin.delete(public)))
        assert (await at.lookup("second.example.com"))[0] == 200
        assert tags(cluster) == [[]]
        assert at.generation == generation + 1  # a label makes none
        assert await at.sidecar.end(signal.SIGTERM) == 0
    assert "Traceback" not in at.sidecar.output
    say("an ingress is in force after", delays)


async def test_discovery_works_without_a_forbidden_kind_and_reads_it_once_allowed(
    api_server: ApiServer, admin: Api, namespace: str, cluster: SimulatedCluster, tmp_path: Path
) -> None:
    role, binding = (place(each, namespace) for each in list(yaml.safe_load_all(RBAC.read_text()))[:2])
    less = {**role, "rules": [rule for rule in role["rules"] if rule["apiGroups"] != ["discovery.k8s.io"]]}
    (subject,) = binding["subjects"]
    metadata = {"name": subject["name"], "namespace": namespace}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    await admin.apply(account, less, binding, ingress(namespace, "public", HOST, "external"))
    token = await admin.service_account_token(namespace, subject["name"])
    kubeconfig = api_server.kubeconfig(tmp_path / "kubeconfig", token, namespace)
    async with gate(tmp_path, kubeconfig, cluster.brokers) as at:
        await in_sync(at, "Ingress", "Service", "Pod")
        await at.until(0, "discovery_synced", "EndpointSlice")
        assert (await at.lookup())[0] == 200
        assert tags(cluster) == [["external"]]
        await admin.apply(role)
        await in_sync(at, "EndpointSlice")
        await at.after(admin.apply(ingress(namespace, "second", "second.example.com", "external")))
    assert at.sidecar.output.count("see deploy/rbac.yaml") == 1
    assert "endpointslices.discovery.k8s.io is forbidden" in at.sidecar.output


def place(each: Object, namespace: str) -> Object:
    """An object of a manifest, in another namespace."""
    text = yaml.safe_dump(each).replace("namespace: pulsar\n", f"namespace: {namespace}\n")
    placed: Object = yaml.safe_load(text)
    return placed


async def test_no_lookup_fails_while_the_api_server_is_killed_and_comes_back(
    api_server: ApiServer, admin: Api, namespace: str, kubeconfig: Path, cluster: SimulatedCluster, tmp_path: Path
) -> None:
    await admin.apply(ingress(namespace, "public", HOST, "external"))
    async with gate(tmp_path, kubeconfig, cluster.brokers) as at:
        await in_sync(at)
        async with lookups(at, HOST) as load:
            await admin.apply(ingress(namespace, "second", "second.example.com", "external"))
            await api_server.kill()
            for kind in BUILT_IN:
                await at.until(0, "discovery_synced", kind)
            assert await at.readiness() == "ok"
            await api_server.start()
            # It knows no history, so that watches expire: what happened meanwhile is found in a list.
            await at.after(admin.apply(ingress(namespace, "third", "third.example.com", "external")))
            await in_sync(at)
        assert load.failures == []
        assert load.answers[HOST, 200] > 100
        assert await at.restarts("unreachable") > 0
        assert await at.restarts("expired") > 0
        assert set(map(tuple, tags(cluster))) == {("external",)}
        assert (await at.lookup("third.example.com"))[0] == 200
        assert tags(cluster) == [["external"]]
    assert at.sidecar.output.count("keeping the known objects") == 1
    assert at.sidecar.output.count("the API server is back") == 1


async def test_sidecar_starts_from_saved_state_while_the_api_server_is_down(
    api_server: ApiServer, admin: Api, namespace: str, kubeconfig: Path, cluster: SimulatedCluster, tmp_path: Path
) -> None:
    await admin.apply(ingress(namespace, "public", HOST, "external"))
    keys = {"statePath": str(tmp_path / "state")}
    async with gate(tmp_path, kubeconfig, cluster.brokers, kubernetes=keys) as at:
        await in_sync(at)
        assert (await at.lookup())[0] == 200
        assert await at.sidecar.end(signal.SIGTERM) == 0
    assert tags(cluster) == [["external"]]
    await api_server.kill()
    async with gate(tmp_path, kubeconfig, cluster.brokers, kubernetes=keys) as at:
        assert await at.readiness() == "ok"
        assert (await at.lookup())[0] == 200
        assert tags(cluster) == [["external"]]
        await at.sidecar.says("keeping the known objects")
        await api_server.start()
        await in_sync(at)
        await at.after(admin.delete(ingress(namespace, "public", HOST)))
        assert (await at.lookup())[0] == 200
        assert tags(cluster) == [[]]


async def test_discovery_follows_gateway_api_kinds_that_are_defined_and_removed_later(
    admin: Api, namespace: str, kubeconfig: Path, cluster: SimulatedCluster, tmp_path: Path
) -> None:
    section = {"name": "https", "hostname": HOST, "port": 443, "protocol": "HTTPS"}
    tls = {"mode": "Terminate", "certificateRefs": [{"name": "certificate"}]}
    listener = {"pulsar-ingress-proxy/listener": "external"}
    public = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"namespace": namespace, "name": "public", "annotations": listener},
        "spec": {"gatewayClassName": "any", "listeners": [{**section, "tls": tls}]},
    }
    async with gate(tmp_path, kubeconfig, cluster.brokers) as at:
        await in_sync(at)
        await at.until(None, "discovery_synced", "Gateway")
        definitions = gateway_api()
        await admin.define(definitions)
        try:
            await admin.apply(public)
            await in_sync(at, "Gateway", "ListenerSet", "HTTPRoute", "TLSRoute", "TCPRoute")
            await at.sidecar.says("generation 3 is in force")
            assert (await at.lookup())[0] == 200
            assert tags(cluster) == [["external"]]
        finally:
            await admin.undefine(definitions)
        await at.until(None, "discovery_synced", "Gateway")
        await at.sidecar.says("generation 4 is in force")
        assert (await at.lookup())[0] == 200
        assert tags(cluster) == [[]]
    absent = "the cluster does not serve Gateway, ListenerSet, HTTPRoute, TLSRoute, TCPRoute, IstioGateway, "
    assert at.sidecar.output.count(absent) == 1


async def test_hosts_of_a_listener_set_follow_what_its_gateway_allows(
    admin: Api, namespace: str, kubeconfig: Path, cluster: SimulatedCluster, tmp_path: Path
) -> None:
    """With the defaults that the API server fills in, and the status that the gateway's controller would write."""
    version = {"apiVersion": "gateway.networking.k8s.io/v1"}
    meta = {"namespace": namespace, "name": "public"}
    section = {"name": "https", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "certificate"}]}}
    public = {
        **version,
        "kind": "Gateway",
        "metadata": {**meta, "annotations": {"pulsar-ingress-proxy/listener": "external"}},
        "spec": {"gatewayClassName": "any", "listeners": [{**section, "hostname": HOST}]},
    }
    more = {
        **version,
        "kind": "ListenerSet",
        "metadata": meta,
        "spec": {"parentRef": {"name": "public"}, "listeners": [{**section, "hostname": "more.example.com"}]},
    }

    async def tag(gate: Gate) -> list[list[str]]:
        assert (await gate.lookup("more.example.com"))[0] == 200
        return tags(cluster)

    def allowed(**namespaces: Any) -> Object:
        return {"spec": {"allowedListeners": {"namespaces": namespaces}}}

    definitions = gateway_api()
    await admin.define(definitions)
    try:
        await admin.apply(public, more)
        async with gate(tmp_path, kubeconfig, cluster.brokers) as at:
            await in_sync(at, "Gateway", "ListenerSet")
            assert await tag(at) == [[]]
            await at.after(admin.patch(public, allowed(**{"from": "Same"})))
            assert await tag(at) == [["external"]]
            await at.after(
                admin.patch(public, allowed(**{"from": "Selector", "selector": {"matchLabels": {"a": "b"}}}))
            )
            assert await tag(at) == [[]]
            since = "2026-01-01T00:00:00Z"
            condition = {"type": "Accepted", "status": "True", "reason": "Accepted", "message": ""}
            status = {"status": {"conditions": [{**condition, "lastTransitionTime": since}]}}
            await at.after(admin.patch(more, status, subresource="status"))
            assert await tag(at) == [["external"]]
    finally:
        await admin.undefine(definitions)


async def test_no_lookup_gets_the_address_of_a_broker_that_was_replaced(
    admin: Api, namespace: str, kubeconfig: Path, tmp_path: Path
) -> None:
    """Three brokers are replaced one after another. Others still name those that are gone, as they do in reality."""
    old, new = (0, 1, 2), (3, 4, 5)
    async with SimulatedCluster(brokers=6, name=broker_name(namespace)) as cluster:
        for n in new:
            await cluster.brokers[n].stop()
            cluster.expire(n)
        for n in old:
            await begin(admin, namespace, n)
            cluster.own(topic(f"live-{n}"), n)
        await admin.apply(ingress(namespace, "public", HOST, "external"))
        async with gate(tmp_path, kubeconfig, cluster.brokers, leaks="block") as at:
            await in_sync(at)
            assert await answered(at, "live-0") == "https://broker-0.pulsar.example.com"
            gone: set[str] = set()
            wrong: list[tuple[str, str]] = []
            told: Counter[str] = Counter()

            async def ask(name: str) -> None:
                while True:
                    forbidden = frozenset(gone)
                    address = await answered(at, name)
                    told[address] += 1
                    if address in forbidden or not address.startswith("https://broker-"):
                        wrong.append((name, address))

            tasks = [asyncio.create_task(ask(f"live-{n}")) for n in old]
            delays = []
            for before, after in zip(old, new, strict=True):
                await cluster.brokers[after].start()
                await at.after(begin(admin, namespace, after))
                while await answered(at, f"probe-{after}", cluster, after) != external(after):
                    pass
                cluster.own(topic(f"live-{before}"), after)
                cluster.own(topic(f"stale-{before}"), before)
                await cluster.brokers[before].stop()
                assert await answered(at, f"stale-{before}") == external(before)
                await end(admin, namespace, before)
                began = time.monotonic()
                async with asyncio.timeout(10):
                    while await answered(at, f"stale-{before}") == external(before):
                        pass
                delays.append(time.monotonic() - began)
                gone.add(external(before))
            for before in old:
                assert (await at.lookup(name=f"stale-{before}"))[0] == 502
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert [error for error in ended if not isinstance(error, asyncio.CancelledError)] == []
    assert wrong == []
    assert told.keys() == {external(n) for n in (*old, *new)}
    say("a replaced broker is forgotten after", delays)


def external(n: int) -> str:
    return f"https://broker-{n}.{HOST}"


async def answered(at: Gate, name: str, cluster: SimulatedCluster | None = None, owner: int = 0) -> str:
    """The web address that a lookup's answer has, or what else it says."""
    if cluster is not None:
        cluster.own(topic(name), owner)
    status, body = await at.lookup(name=name)
    return str(body.get("httpUrl", body)) if status == 200 else f"{status}: {body}"


async def begin(admin: Api, namespace: str, n: int) -> None:
    """A pod starts, and has its endpoint and its way from outside."""
    ip = f"10.1.0.{n + 10}"
    objects = broker_objects(namespace, n, ip)
    await admin.apply(*objects)
    await admin.patch(objects[0], running_pod(ip), subresource="status")


async def end(admin: Api, namespace: str, n: int) -> None:
    for each in broker_objects(namespace, n, f"10.1.0.{n + 10}"):
        await admin.delete(each)


async def test_check_and_explain_read_the_cluster_and_kubeconfig_faults_exit_2(
    api_server: ApiServer, admin: Api, namespace: str, kubeconfig: Path, cluster: SimulatedCluster, tmp_path: Path
) -> None:
    await begin(admin, namespace, 0)
    await admin.apply(ingress(namespace, "public", HOST, "external"))
    config = tmp_path / "check.yaml"
    keys: dict[str, Any] = {
        "brokers": {"webServiceUrl": [cluster.brokers[0].web]},
        "kubernetes": {"enabled": True, "brokerSelector": "app=broker"},
    }
    config.write_text(yaml.safe_dump(keys))
    command = BIN / "pulsar-ingress-proxy"
    options = ("--config", config, "--kubeconfig", kubeconfig)

    code, out, err = await run(command, "check", *options)
    assert (code, err) == (0, "")
    assert f"ingress   ingress/{namespace}/public: {HOST} -> external\n" in out
    assert f"broker    pulsar-broker-0.pulsar-broker.{namespace}.svc.cluster.local\n" in out
    assert f"external: {external(0)} (derived, ingress/{namespace}/broker-0)\n" in out

    code, out, err = await run(command, "explain", *options, "--context", "tests", f"https://{HOST}/lookup/v2/topic/a")
    assert (code, err) == (0, "")
    assert f"ingress   ingress/{namespace}/public\n" in out

    stranger = api_server.kubeconfig(tmp_path / "stranger", api_server.token("stranger"), namespace)
    code, out, err = await run(command, "check", "--config", config, "--kubeconfig", stranger)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == len(BUILT_IN)
    assert all("forbidden" in line for line in err.splitlines())

    for file, said in ((tmp_path / "nowhere", "there is no such file"), (config, "current-context")):
        code, out, err = await run(command, "doctor", "--config", config, "--kubeconfig", file)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert said in err
