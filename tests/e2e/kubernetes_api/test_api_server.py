"""The API server that the tests of discovery stand on: real kinds, real rights, watches, and a death it survives."""

import os
import selectors
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from apiclient import Api, Object, Refused, connected
from apiserver import ApiServer
from custom_resources import gateway_api, istio


def ingress(namespace: str, name: str, host: str) -> Object:
    backend = {"service": {"name": "pulsar-broker", "port": {"number": 8080}}}
    rule = {"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {"pulsar-ingress-proxy/listener": "external"},
        },
        "spec": {"rules": [rule]},
    }


def pod(namespace: str, name: str) -> Object:
    container = {"name": "broker", "image": "pulsar"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": "broker"}},
        "spec": {"hostname": name, "subdomain": "pulsar-broker", "containers": [container]},
    }


def service(namespace: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "pulsar-broker", "namespace": namespace},
        "spec": {"clusterIP": "None", "selector": {"app": "broker"}, "ports": [{"name": "http", "port": 8080}]},
    }


def endpoints(namespace: str, **addresses: str) -> Object:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "pulsar-broker-1",
            "namespace": namespace,
            "labels": {"kubernetes.io/service-name": "pulsar-broker"},
        },
        "addressType": "IPv4",
        "endpoints": [
            {"addresses": [ip], "conditions": {"ready": True}, "targetRef": {"kind": "Pod", "name": name}}
            for name, ip in addresses.items()
        ],
        "ports": [{"name": "http", "port": 8080}],
    }


async def test_broker_pod_service_and_endpoints_can_be_created_without_controllers(admin: Api, namespace: str) -> None:
    broker = pod(namespace, "broker-0")
    await admin.apply(service(namespace), broker, endpoints(namespace, **{"broker-0": "10.1.0.7"}))
    ready = {"type": "Ready", "status": "True"}
    status = {"phase": "Running", "podIP": "10.1.0.7", "podIPs": [{"ip": "10.1.0.7"}], "conditions": [ready]}
    await admin.patch(broker, {"status": status}, subresource="status")
    assert (await admin.get(broker))["status"]["podIP"] == "10.1.0.7"
    [found] = (await admin.list("discovery.k8s.io/v1", "EndpointSlice", namespace))["items"]
    assert found["endpoints"][0]["addresses"] == ["10.1.0.7"]
    await admin.delete(broker)
    assert (await admin.list("v1", "Pod", namespace))["items"] == []


async def test_api_server_refuses_an_ingress_with_an_invalid_path_type(admin: Api, namespace: str) -> None:
    wrong = ingress(namespace, "public", "pulsar.example.com")
    wrong["spec"]["rules"][0]["http"]["paths"][0]["pathType"] = "Somehow"
    with pytest.raises(Refused, match="pathType") as refused:
        await admin.apply(wrong)
    assert refused.value.status == 422


async def test_api_server_watch_reports_changes_in_order_and_bookmarks(admin: Api, namespace: str) -> None:
    public = ingress(namespace, "public", "pulsar.example.com")
    await admin.apply(public)
    listed = await admin.list("networking.k8s.io/v1", "Ingress", namespace)
    assert [item["metadata"]["name"] for item in listed["items"]] == ["public"]
    since = listed["metadata"]["resourceVersion"]
    async with admin.watch("networking.k8s.io/v1", "Ingress", namespace, since=since, seconds=5) as events:
        await admin.patch(public, {"metadata": {"annotations": {"pulsar-ingress-proxy/listener": "partner"}}})
        await admin.apply(ingress(namespace, "second", "pulsar.example.org"))
        await admin.delete(public)
        # Until the server ends it; a bookmark comes before that.
        seen = [(event["type"], event["object"]["metadata"].get("name")) async for event in events]
    assert seen[:3] == [("MODIFIED", "public"), ("ADDED", "second"), ("DELETED", "public")]
    assert ("BOOKMARK", None) in seen[3:]


def test_gateway_api_and_istio_crds_serve_the_expected_kinds_and_versions() -> None:
    def served(crds: list[Object]) -> set[str]:
        return {
            f"{crd['spec']['group']}/{version['name']} {crd['spec']['names']['kind']}"
            for crd in crds
            for version in crd["spec"]["versions"]
            if version["served"]
        }

    gateway = "gateway.networking.k8s.io"
    stable = {f"{gateway}/v1 {kind}" for kind in ("Gateway", "ListenerSet", "HTTPRoute", "TLSRoute", "TCPRoute")}
    early = {f"{gateway}/v1alpha2 {kind}" for kind in ("TLSRoute", "TCPRoute")}
    assert stable <= served(gateway_api())
    assert stable | early <= served(gateway_api("experimental"))
    assert {f"networking.istio.io/v1 {kind}" for kind in ("Gateway", "VirtualService")} <= served(istio())


async def test_custom_kinds_can_be_defined_used_and_removed_at_run_time(admin: Api, namespace: str) -> None:
    with pytest.raises(Refused) as refused:
        await admin.list("gateway.networking.k8s.io/v1", "HTTPRoute", namespace)
    assert refused.value.status == 404

    crds = [*gateway_api(), *istio()]
    await admin.define(crds)
    listener = {"name": "https", "hostname": "*.pulsar.example.com", "port": 443, "protocol": "HTTPS"}
    tls = {"mode": "Terminate", "certificateRefs": [{"name": "certificate"}]}
    backend = {"backendRefs": [{"name": "broker-0", "port": 8080}]}
    parent = {"parentRefs": [{"name": "public"}]}
    meta = {"namespace": namespace, "name": "public"}
    server = {"port": {"number": 443, "name": "https", "protocol": "HTTPS"}, "hosts": ["pulsar.example.com"]}
    destination = {"destination": {"host": "broker-0", "port": {"number": 8080}}}
    await admin.apply(
        {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "Gateway",
            "metadata": meta,
            "spec": {"gatewayClassName": "any", "listeners": [{**listener, "tls": tls}]},
        },
        *(
            {
                "apiVersion": "gateway.networking.k8s.io/v1",
                "kind": kind,
                "metadata": meta,
                "spec": {**parent, **hosts, "rules": [backend]},
            }
            for kind, hosts in (
                ("HTTPRoute", {"hostnames": ["broker-0.pulsar.example.com"]}),
                ("TLSRoute", {"hostnames": ["broker-0.pulsar.example.com"]}),
                ("TCPRoute", {}),
            )
        ),
        {
            "apiVersion": "networking.istio.io/v1",
            "kind": "Gateway",
            "metadata": meta,
            "spec": {
                "selector": {"istio": "ingressgateway"},
                "servers": [{**server, "tls": {"mode": "SIMPLE", "credentialName": "certificate"}}],
            },
        },
        {
            "apiVersion": "networking.istio.io/v1",
            "kind": "VirtualService",
            "metadata": meta,
            "spec": {
                "hosts": ["broker-0.pulsar.example.com"],
                "gateways": ["public"],
                "http": [{"route": [destination]}],
            },
        },
    )
    routes = await admin.list("gateway.networking.k8s.io/v1", "HTTPRoute", namespace)
    assert routes["items"][0]["spec"]["hostnames"] == ["broker-0.pulsar.example.com"]

    await admin.undefine(crds)
    with pytest.raises(Refused) as refused:
        await admin.list("networking.istio.io/v1", "VirtualService", namespace)
    assert refused.value.status == 404


async def test_a_service_account_reads_what_its_role_names_and_no_more(
    api_server: ApiServer, admin: Api, namespace: str
) -> None:
    rules = [{"apiGroups": ["networking.k8s.io"], "resources": ["ingresses"], "verbs": ["get", "list", "watch"]}]
    meta = {"namespace": namespace, "name": "sidecar"}
    rbac = "rbac.authorization.k8s.io"
    await admin.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": meta, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "sidecar"},
            "subjects": [{"kind": "ServiceAccount", **meta}],
        },
    )
    async with api_server.connected(await admin.service_account_token(namespace, "sidecar")) as sidecar:
        assert (await sidecar.list("networking.k8s.io/v1", "Ingress", namespace))["items"] == []
        for api_version, kind, where in (
            ("networking.k8s.io/v1", "Ingress", None),
            ("networking.k8s.io/v1", "Ingress", "default"),
            ("v1", "Secret", namespace),
        ):
            with pytest.raises(Refused, match=f"system:serviceaccount:{namespace}:sidecar") as refused:
                await sidecar.list(api_version, kind, where)
            assert refused.value.status == 403
        with pytest.raises(Refused) as refused:
            await sidecar.apply(ingress(namespace, "public", "pulsar.example.com"))
        assert refused.value.status == 403


async def test_user_without_rights_gets_403_and_forged_token_gets_401(api_server: ApiServer, namespace: str) -> None:
    for token, status in ((api_server.token("stranger"), 403), ("forged", 401)):
        async with api_server.connected(token) as api:
            with pytest.raises(Refused) as refused:
                await api.list("v1", "Service", namespace)
        assert refused.value.status == status


async def test_generated_kubeconfig_connects_to_the_api_server(
    api_server: ApiServer, admin: Api, namespace: str, tmp_path: Path
) -> None:
    await admin.apply(service(namespace))
    file = api_server.kubeconfig(tmp_path / "kubeconfig", api_server.token("admin"), namespace)
    config = yaml.safe_load(file.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    trust = ssl.create_default_context(cafile=cluster["certificate-authority"])
    async with connected(cluster["server"], trust, user["token"]) as api:
        found = await api.list("v1", "Service", config["contexts"][0]["context"]["namespace"])
    assert [item["metadata"]["name"] for item in found["items"]] == ["pulsar-broker"]


async def test_objects_survive_a_killed_api_server_and_old_resource_versions_expire(
    api_server: ApiServer, admin: Api, namespace: str
) -> None:
    public = ingress(namespace, "public", "pulsar.example.com")
    await admin.apply(public)
    listed = await admin.list("networking.k8s.io/v1", "Ingress", namespace)
    await admin.patch(public, {"metadata": {"labels": {"changed": "yes"}}})
    url = api_server.url

    await api_server.restart()

    assert api_server.url == url
    assert (await admin.get(public))["metadata"]["labels"] == {"changed": "yes"}
    since = listed["metadata"]["resourceVersion"]
    async with admin.watch("networking.k8s.io/v1", "Ingress", namespace, since=since, seconds=5) as events:
        event = await anext(events)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


async def test_a_stopped_server_ends_its_watches(api_server: ApiServer, admin: Api, namespace: str) -> None:
    since = (await admin.list("v1", "Service", namespace))["metadata"]["resourceVersion"]
    async with admin.watch("v1", "Service", namespace, since=since) as events:
        await admin.apply(service(namespace))
        assert (await anext(events))["type"] == "ADDED"
        await api_server.stop()
        assert [event async for event in events] == []


def test_nothing_outlives_a_killed_test_run() -> None:
    imports = "import sys; from pathlib import Path; from apiserver import spawned"
    script = f"{imports}; spawned(sys.argv[1:], Path(), Path('/dev/stdout')).wait()"
    command = [sys.executable, "-c", script, "sh", "-c", "echo $$; exec sleep infinity"]
    path = os.pathsep.join(sys.path)
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}) as run:
        assert run.stdout is not None
        grandchild = os.pidfd_open(int(run.stdout.readline()))
        run.kill()
    with selectors.DefaultSelector() as ended:
        ended.register(grandchild, selectors.EVENT_READ)  # readable once it has ended
        assert ended.select(30)
    os.close(grandchild)
