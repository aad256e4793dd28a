"""What the chart lets discovery do, asked of the API server by acting as the ServiceAccount; and that it is enough."""

import secrets
from pathlib import Path
from typing import Any

import envoy_gateway
import fragments
import pytest
from apiclient import Api, Object, Refused
from apiserver import ApiServer
from custom_resources import named
from helm_programs import CHART, EXAMPLES, Helm, documents
from node import node
from releases import HOST, TOPIC, Client, broker_address, config, config_map, in_force
from simulated.cluster import SimulatedCluster

from pulsar_ingress_proxy.discovery.reconciler.kinds import KINDS

pytestmark = pytest.mark.timeout(180)

LABELS = {"istio": "ingress"}
DEFINITIONS = (  # whatever the examples have beside Kubernetes' own
    *(f"{kind}.monitoring.coreos.com" for kind in ("podmonitors", "prometheusrules")),
    *(f"{kind}.gateway.envoyproxy.io" for kind in ("envoyproxies", "backends", "backendtrafficpolicies")),
    *(f"{kind}.gateway.networking.k8s.io" for kind in ("gateways", "httproutes", "tlsroutes")),
    *(f"{kind}.networking.istio.io" for kind in ("gateways", "virtualservices", "serviceentries", "destinationrules")),
    *(f"{kind}.traefik.io" for kind in ("ingressroutes", "ingressroutetcps")),
)
READ = {(verb, kind.group, kind.plural) for verb in ("list", "watch") for kind in KINDS}


@pytest.fixture
def helm(api_server: ApiServer, namespace: str, tmp_path: Path) -> Helm:
    kubeconfig = api_server.kubeconfig(tmp_path / "kubeconfig", api_server.token("admin"), namespace)
    return Helm("helm4", tmp_path, kubeconfig, namespace)


@pytest.fixture
async def brokers_namespace(admin: Api) -> str:
    name = f"brokers-{secrets.token_hex(4)}"
    await admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


def values(mode: str, namespaces: list[str], **keys: Any) -> dict[str, Any]:
    discovering = {"enabled": True, "namespaces": namespaces, "gateways": [f"ingress/{namespaces[0]}/public"], **keys}
    gateway = {"type": "istio", "serviceAccount": "gateway", "podLabels": LABELS}
    return {
        "mode": mode,
        "preStopSeconds": 0,
        **({"gateway": gateway} if mode == "sidecar" else {}),
        "config": config(ingresses=[], kubernetes=discovering),
    }


def service_account(namespace: str, name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": namespace, "name": name}}


@pytest.mark.parametrize(("mode", "account"), [("sidecar", "gateway"), ("gateway", "ingress-pulsar-ingress-proxy")])
async def test_service_account_may_only_list_and_watch_the_kinds_that_discovery_reads(
    api_server: ApiServer, admin: Api, namespace: str, brokers_namespace: str, helm: Helm, mode: str, account: str
) -> None:
    nobody = service_account(namespace, "nobody")
    await admin.apply(nobody, service_account(namespace, "gateway"))
    watched = [namespace, brokers_namespace]
    await helm("install", "ingress", CHART, "-f", helm.values("values", values(mode, watched)))
    async with (
        api_server.connected(await admin.service_account_token(namespace, "nobody")) as anybody,
        api_server.connected(await admin.service_account_token(namespace, account)) as sidecar,
    ):
        everybodys = await anybody.rights(namespace)
        for place in watched:
            assert await sidecar.rights(place) - everybodys == READ
            for kind in KINDS:
                assert await sidecar.may("list", kind.group, kind.plural, place)
                assert await sidecar.may("watch", kind.group, kind.plural, place)
                for verb in ("get", "create", "update", "patch", "delete", "deletecollection"):
                    assert not await sidecar.may(verb, kind.group, kind.plural, place)
            for resource in ("secrets", "configmaps", "serviceaccounts"):
                for verb in ("get", "list", "watch", "create"):
                    assert not await sidecar.may(verb, "", resource, place)
        assert await sidecar.rights("default") == everybodys
        for kind in KINDS:
            assert not await sidecar.may("list", kind.group, kind.plural)  # in all namespaces
        assert not await sidecar.may("get", "", "nodes")
        await sidecar.list("networking.k8s.io/v1", "Ingress", brokers_namespace)
        with pytest.raises(Refused, match=f"system:serviceaccount:{namespace}:{account}"):
            await sidecar.list("v1", "Secret", namespace)

        zone = helm.values("zone", values(mode, watched, zoneProperty="rack"))
        await helm("upgrade", "ingress", CHART, "-f", zone, "--no-hooks")
        assert await sidecar.rights("default") - everybodys == {("get", "", "nodes")}

        off = values(mode, watched)
        off["config"]["kubernetes"]["enabled"] = False
        await helm("upgrade", "ingress", CHART, "-f", helm.values("off", off), "--no-hooks")
        assert await sidecar.rights(brokers_namespace) == everybodys
    await helm("uninstall", "ingress")


@pytest.mark.parametrize("mode", ["sidecar", "gateway"])
async def test_sidecar_discovers_an_ingress_with_the_token_mounted_in_its_pod(
    api_server: ApiServer, admin: Api, namespace: str, brokers_namespace: str, helm: Helm, tmp_path: Path, mode: str
) -> None:
    async with (
        node(api_server, admin, namespace, tmp_path / "node") as at,
        SimulatedCluster(brokers=2) as cluster,
        at.network.client() as session,
    ):
        await at.reachable(cluster)
        cluster.own(TOPIC, 0)
        file = helm.values("values", values(mode, [namespace, brokers_namespace]))
        if mode == "gateway":
            await helm("install", "ingress", CHART, "-f", file, "--set", "replicas=1")
            (pod,) = await at.ready("ingress-")
            client = Client(session, "http://ingress-pulsar-ingress-proxy:8080")
        else:
            await admin.apply(*envoy_gateway.objects(namespace, "gateway", LABELS))
            await helm("install", "ingress", CHART, "-f", file)
            (before,) = await at.ready("gateway-")
            found = await admin.get(config_map(namespace, "ingress-pulsar-ingress-proxy-sidecar"))
            (*_, deployment) = envoy_gateway.objects(namespace, "gateway", LABELS)
            change = {"spec": {"template": fragments.change(found)}}
            await admin.patch(deployment, change, how="strategic-merge-patch")
            await before.over()
            (pod,) = await at.ready("gateway-")
            client = Client(session, "http://gateway")
        await in_force(2, [pod])  # the cluster has been seen
        # Nobody knows the ingress, so brokers answer by their own names.
        assert await client.address() != broker_address(0)
        await admin.apply(public_ingress(namespace))
        await in_force(3, [pod])
        assert await client.address() == broker_address(0)
        assert "forbidden" not in pod.output
        await helm("uninstall", "ingress")


def public_ingress(namespace: str) -> Object:
    backend = {"service": {"name": "gateway", "port": {"number": 80}}}
    rule = {"host": HOST, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}
    annotations = {"pulsar-ingress-proxy/listener": "external"}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": "public", "namespace": namespace, "annotations": annotations},
        "spec": {"rules": [rule]},
    }


async def test_api_server_accepts_every_chart_object_in_a_strict_dry_run(
    admin: Api, namespace: str, helm: Helm
) -> None:
    """Strictly, with the definitions of all kinds in place and their rules in force; nothing is kept."""
    definitions = named(*DEFINITIONS)
    assert EXAMPLES
    await admin.define(definitions)
    try:
        for example in EXAMPLES:
            objects = documents(await helm("template", "ingress", CHART, "-f", example, "--validate"))
            assert objects, example
            for each in objects:
                metadata = each["metadata"]
                if each["kind"] not in ("ClusterRole", "ClusterRoleBinding"):
                    place = metadata.setdefault("namespace", namespace)
                    await admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}})
                accepted = await admin.create(each, dry_run=True)
                assert (accepted["kind"], accepted["metadata"]["name"]) == (each["kind"], metadata["name"])
    finally:
        await admin.undefine(definitions)
