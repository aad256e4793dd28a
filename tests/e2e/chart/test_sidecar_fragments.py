"""The container that the chart writes for each gateway, run in a gateway's pod: same arguments, files and variables."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import envoy_gateway
import fragments
import pytest
from apiclient import Api, Object
from apiserver import ApiServer
from custom_resources import named
from helm_programs import CHART, Helm
from node import Node, Pod, node
from releases import BROKEN, HOST, TOPIC, Client, broker_address, config, config_map, in_force
from simulated.cluster import Hold, SimulatedCluster

pytestmark = pytest.mark.timeout(180)

LABELS = {"istio": "ingress"}


@dataclass
class Beside:
    """A gateway with a node for it, brokers, and Helm to bring the sidecar."""

    at: Node
    api: Api
    helm: Helm
    cluster: SimulatedCluster
    client: Client
    namespace: str

    def values(self, kind: str, keys: dict[str, Any]) -> Path:
        gateway = {"type": kind, "serviceAccount": "gateway", "podLabels": LABELS}
        test = {"url": f"http://gateway.{self.namespace}.svc", "headers": [f"Host: {HOST}"], "topic": TOPIC}
        return self.helm.values("values", {"gateway": gateway, "preStopSeconds": 1, "config": keys, "test": test})

    async def merge(self, kind: str) -> Pod:
        """Let the gateway's pods have the container, and wait for the new one."""
        (old,) = await self.at.ready("gateway-")
        holder = config_map(self.namespace, "beside-pulsar-ingress-proxy-sidecar")
        if kind == "envoy-gateway":
            metadata = {"namespace": self.namespace, "name": "beside-pulsar-ingress-proxy"}
            holder = {"apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "EnvoyProxy", "metadata": metadata}
        found = await self.api.get(holder)
        change = {"spec": {"template": fragments.change(found)}}
        await self.api.patch(deployment(self.namespace), change, how="strategic-merge-patch")
        await old.over()
        (new,) = await self.at.ready("gateway-")
        return new

    async def restarted(self, pod: Pod) -> Pod:
        await self.api.delete(pod.seen, grace_seconds=30)
        await pod.over()
        (new,) = await self.at.ready("gateway-")
        return new


@asynccontextmanager
async def beside(api_server: ApiServer, api: Api, namespace: str, folder: Path, version: str) -> AsyncIterator[Beside]:
    kubeconfig = api_server.kubeconfig(folder / "kubeconfig", api_server.token("admin"), namespace)
    async with (
        node(api_server, api, namespace, folder / "node") as at,
        SimulatedCluster(brokers=2) as cluster,
        at.network.client() as session,
    ):
        await at.reachable(cluster)
        cluster.own(TOPIC, 0)
        await api.apply(*envoy_gateway.objects(namespace, "gateway", LABELS))
        helm = Helm(version, folder, kubeconfig, namespace)
        yield Beside(at, api, helm, cluster, Client(session, "http://gateway"), namespace)


def deployment(namespace: str) -> Object:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": namespace, "name": "gateway"}}


@pytest.mark.parametrize(
    ("kind", "version"),
    [("istio", "helm3"), ("gateway-api", "helm4"), ("envoy-gateway", "helm3"), ("traefik", "helm4")],
)
async def test_sidecar_in_the_gateway_pod_serves_lookups_from_install_to_uninstall(
    api_server: ApiServer, admin: Api, namespace: str, tmp_path: Path, kind: str, version: str
) -> None:
    if kind == "envoy-gateway":
        await admin.define(named("envoyproxies.gateway.envoyproxy.io"))
    async with beside(api_server, admin, namespace, tmp_path, version) as here:
        await here.at.ready("gateway-")
        before = await admin.everything()
        await here.helm("install", "beside", CHART, "-f", here.values(kind, config()))
        pod = await here.merge(kind)
        sidecar = pod.containers["pulsar-ingress-proxy"]
        assert await here.client.address() == broker_address(0)
        assert await sidecar.run("python3", "-c", "import os; assert os.getuid() == os.getgid() == 10001") == 0
        assert await sidecar.run("python3", "-c", "open('/written', 'w')") != 0  # its root is read-only
        assert await sidecar.run("python3", "-c", "open('/var/lib/pulsar-ingress-proxy/written', 'w')") == 0

        tested = await here.helm.run("test", "beside")
        assert tested.code == 0, tested.said
        assert f"broker-0.{HOST}" in here.at.output("beside-pulsar-ingress-proxy-test-lookup")

        await here.helm("upgrade", "beside", CHART, "-f", here.values(kind, config("pulsar.example.org")))
        await in_force(2, [pod])
        assert await here.client.address() == broker_address(0, "pulsar.example.org")

        # A lookup is under way when the pod is deleted: it is answered, and the sidecar ends by itself.
        hold = Hold()
        here.cluster.brokers[0].script.append(hold)
        async with pod.client() as inside:
            lookup = asyncio.create_task(Client(inside, "http://127.0.0.1:18080").address())
            await hold.reached.wait()
            await admin.delete(pod.seen, grace_seconds=30)
            await sidecar.process.says("shutting down")
            hold.release.set()
            assert await lookup == broker_address(0, "pulsar.example.org")
            await pod.over()
        assert sidecar.code == 0

        await here.helm("uninstall", "beside")
        (pod,) = await here.at.ready("gateway-")
        pod = await here.restarted(pod)  # the gateway starts without the ConfigMap that is gone
        status, body = await here.client.lookup()
        assert (status, body["reason"].partition(":")[0]) == (503, "bad-config")
        assert without_pods(await admin.everything()) == without_pods(before)


def without_pods(found: set[str]) -> set[str]:
    """Those of the gateway have names that nobody knows beforehand."""
    return {each for each in found if not each.startswith("Pod ")}


@pytest.mark.parametrize("kind", ["istio", "traefik"])
async def test_broken_config_does_not_prevent_the_gateway_pod_from_starting(
    api_server: ApiServer, admin: Api, namespace: str, tmp_path: Path, kind: str
) -> None:
    async with beside(api_server, admin, namespace, tmp_path, "helm4") as here:
        await here.helm("install", "beside", CHART, "-f", here.values(kind, BROKEN))
        pod = await here.merge(kind)  # which waits for the startup probe, and for the gateway's readiness
        assert pod.containers["istio-proxy"].code is None
        async with pod.client() as inside, inside.get("http://127.0.0.1:19090/livez") as answer:
            assert answer.status == 200
        status, body = await here.client.lookup()
        assert status == 503
        assert body["reason"].startswith("bad-config: ")
        assert "advertisedListeners" in body["reason"]
        tested = await here.helm.run("test", "beside")
        assert tested.code == 1
        assert "advertisedListeners" in tested.said  # by `check`, from the pod's log

        await here.helm("upgrade", "beside", CHART, "-f", here.values(kind, config()))
        await pod.containers["pulsar-ingress-proxy"].process.says("serving http://127.0.0.1:18080")
        assert await here.client.address() == broker_address(0)
        assert here.at.alive() == [pod]


async def test_only_the_metrics_port_of_the_sidecar_is_reachable_from_outside_the_pod(
    api_server: ApiServer, admin: Api, namespace: str, tmp_path: Path
) -> None:
    async with beside(api_server, admin, namespace, tmp_path, "helm4") as here:
        await here.helm("install", "beside", CHART, "-f", here.values("istio", config()))
        pod = await here.merge("istio")
        for port in (18080, 19091):
            with pytest.raises(ConnectionRefusedError):
                await here.at.network.dial(pod.address, port)
        (await here.at.network.dial(pod.address, 19090)).close()
