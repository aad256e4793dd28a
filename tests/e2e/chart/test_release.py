"""A release from its first day to its last, by real Helm on a real API server; the pods run on our own node."""

from pathlib import Path

import pytest
from apiclient import Api
from apiserver import ApiServer
from helm_programs import CHART, VERSIONS, Helm
from node import node
from releases import BROKEN, TOPIC, Client, broker_address, config, config_map, in_force, load
from simulated.cluster import SimulatedCluster

pytestmark = pytest.mark.timeout(180)

NEW = "pulsar.example.org"


@pytest.fixture
def helm(api_server: ApiServer, namespace: str, tmp_path: Path, request: pytest.FixtureRequest) -> Helm:
    kubeconfig = api_server.kubeconfig(tmp_path / "kubeconfig", api_server.token("admin"), namespace)
    return Helm(request.param, tmp_path, kubeconfig, namespace)


@pytest.mark.parametrize("helm", VERSIONS, indirect=True)
async def test_no_lookup_fails_while_a_release_is_upgraded_rolled_back_and_replaced(
    api_server: ApiServer, admin: Api, namespace: str, helm: Helm, tmp_path: Path
) -> None:
    restricted = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await admin.patch({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}, restricted)
    values = {"mode": "gateway", "preStopSeconds": 1, "test": {"topic": TOPIC}}
    first = helm.values("first", {**values, "config": config()})
    second = helm.values("second", {**values, "config": config(NEW)})
    renamed = helm.values("renamed", {**values, "config": config(clusterName="renamed")})
    broken = helm.values("broken", {**values, "config": BROKEN})
    running = config_map(namespace, "edge-pulsar-ingress-proxy-config")

    async with (
        node(api_server, admin, namespace, tmp_path / "node") as at,
        SimulatedCluster(brokers=2) as cluster,
        at.network.client() as session,
    ):
        await at.reachable(cluster)
        cluster.own(TOPIC, 0)
        before = await admin.everything()

        await helm("install", "edge", CHART, "-f", first)
        pods = await at.ready("edge-pulsar-ingress-proxy-", 2)
        client = Client(session, "http://edge-pulsar-ingress-proxy:8080")
        assert await client.address() == broker_address(0)

        tested = await helm("test", "edge")
        assert "Phase:          Succeeded" in tested
        assert broker_address(0) in at.output("edge-pulsar-ingress-proxy-test-lookup")

        async with load(client) as lookups:
            await helm("upgrade", "edge", CHART, "-f", second)
            await in_force(2, pods)
            await lookups.more(broker_address(0, NEW))
        assert lookups.answers.keys() == {broker_address(0), broker_address(0, NEW)}
        assert "valid" in at.output("edge-pulsar-ingress-proxy-check")
        assert at.alive() == pods  # as they were: nothing was restarted

        known = (await admin.get(running))["data"]
        async with load(client) as lookups:
            done = await helm.run("upgrade", "edge", CHART, "-f", broken)
        assert done.code == 1
        assert "pre-upgrade hooks failed" in done.err
        assert "advertisedListeners" in done.said  # what the check says, from the pod's log
        assert (await admin.get(running))["data"] == known
        assert [each for each in await admin.everything() if "-check" in each and not each.startswith("Pod ")] == []
        assert lookups.answers.keys() == {broker_address(0, NEW)}

        async with load(client) as lookups:
            await helm("rollback", "edge", "1")
            await in_force(3, pods)
            await lookups.more(broker_address(0))
        assert lookups.answers.keys() == {broker_address(0), broker_address(0, NEW)}
        assert at.alive() == pods

        # What only a new process takes up: pods are replaced one after another, and nobody notices.
        async with load(client) as lookups:
            await helm("upgrade", "edge", CHART, "-f", renamed)
            for pod in pods:
                await pod.over()
            await lookups.more(broker_address(0))
        assert lookups.answers.keys() == {broker_address(0)}
        assert [pod.containers["pulsar-ingress-proxy"].code for pod in pods] == [0, 0]
        pods = await at.ready("edge-pulsar-ingress-proxy-", 2)

        await helm("uninstall", "edge")
        await at.empty()
        assert [pod.containers["pulsar-ingress-proxy"].code for pod in pods] == [0, 0]
        assert await admin.everything() == before
