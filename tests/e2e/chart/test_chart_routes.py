"""The routes that the chart renders: they open every address of the address book, and let through what is needed."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from apiclient import Object
from broker_manifests import brokers
from helm_programs import CHART, Helm, documents
from processes import BIN, run

from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.routing.paths import classify
from pulsar_ingress_proxy.routing.snapshot import build
from pulsar_ingress_proxy.syntax.authorities import Authority
from pulsar_ingress_proxy.syntax.listeners import WEB_SCHEMES

TYPES = ("istio", "istio-injection", "gateway-api", "envoy-gateway", "traefik")
SIDECAR = "the sidecar"
NAME = "pulsar-ingress-proxy"
OWN_NAME = "pulsar-broker-{n}.pulsar-broker.pulsar.svc.cluster.local"
TOPIC = "persistent/public/default/a%2Fb"
CALLS = [
    ("GET", f"/lookup/v2/topic/{TOPIC}"),
    ("GET", f"/admin/v2/{TOPIC}/partitions"),
    ("GET", f"/admin/v2/non-{TOPIC}/partitions"),
    ("GET", "/admin/v2/namespaces/public/default/topics"),
    ("GET", "/admin/v2/schemas/public/default/orders/schema"),
    ("GET", "/admin/v2/schemas/public/default/orders/schema/3"),
    ("PUT", f"/admin/v2/{TOPIC}/partitions"),
    ("POST", "/admin/v2/schemas/public/default/orders/schema"),
    ("DELETE", "/admin/v2/schemas/public/default/orders/schema"),
    ("GET", f"/admin/v2/{TOPIC}/stats"),
    ("GET", "/admin/v2/clusters"),
    ("GET", "/admin/v2/namespaces/public/default/more/topics"),
    ("DELETE", f"/admin/v2/{TOPIC}"),
    ("GET", "/admin/v3/functions/public/default"),
    ("GET", "/topics/persistent/public/default/orders"),
    ("GET", "/ws/v2/producer/persistent/public/default/orders"),
    ("GET", "/metrics/"),
    ("GET", "/"),
]

types = pytest.mark.parametrize("kind", TYPES)


async def rendered(folder: Path, kind: str, routes: Object | None = None, config: Object | None = None) -> list[Object]:
    helm = Helm("helm4", folder)
    values = {
        "gateway": {"type": kind, "serviceAccount": "gateway"},
        "routes": {"create": True, "host": "pulsar.example.com", "brokers": 3} | (routes or {}),
        "config": {"brokers": {"webServiceUrl": ["http://pulsar-broker.pulsar.svc.cluster.local:8080"]}}
        | (config or {}),
    }
    return documents(
        await helm("template", NAME, CHART, "--namespace", "edge", "-f", helm.values("values", values), "--no-hooks")
    )


def config_of(objects: list[Object]) -> Any:
    (found,) = (each for each in objects if each["metadata"]["name"] == f"{NAME}-config")
    return yaml.safe_load(found["data"]["config.yaml"])


class Opening(NamedTuple):
    """A port that clients can connect to, the hosts it is for as a regular expression, and what it leads to."""

    scheme: str
    hosts: str
    port: int
    target: str


def hosts(pattern: str) -> str:
    return re.escape(pattern).replace(r"\*", r"[^.]+")


class Cluster:
    """What was rendered, by kind."""

    def __init__(self, objects: list[Object]) -> None:
        self.objects = objects

    def of(self, kind: str) -> list[Object]:
        return [each for each in self.objects if each["kind"] == kind]

    def pod(self, service: str) -> str:
        """That a Service selects."""
        (found,) = (each for each in self.of("Service") if each["metadata"]["name"] == service)
        return str(found["spec"]["selector"]["statefulset.kubernetes.io/pod-name"])

    def target(self, host: str) -> str:
        """Of a name in the cluster: the sidecar, or the pod behind a Service."""
        return SIDECAR if host.startswith(f"{NAME}.sidecar.") else self.pod(host.partition(".")[0])

    def backend(self, ref: Object) -> str:
        if ref["kind"] == "Hostname":
            return self.target(ref["name"])
        (found,) = (each for each in self.of("Backend") if each["metadata"]["name"] == ref["name"])
        (endpoint,) = found["spec"]["endpoints"]
        host = str(endpoint["fqdn"]["hostname"])
        return SIDECAR if host.startswith(f"{NAME}.sidecar.") else host.partition(".")[0]


def istio(cluster: Cluster) -> Iterator[Opening]:
    (gateway,) = cluster.of("Gateway")
    for server in gateway["spec"]["servers"]:
        scheme, rules = {"HTTPS": ("https", "http"), "TLS": ("pulsar+ssl", "tcp")}[server["port"]["protocol"]]
        for host in (each.removeprefix("./") for each in server["hosts"]):
            for route in (each["spec"] for each in cluster.of("VirtualService")):
                if host in route["hosts"] and route["gateways"] == [f"edge/{NAME}"] and rules in route:
                    (rule,) = route[rules]
                    (destination,) = (each["destination"] for each in rule["route"])
                    yield Opening(scheme, hosts(host), server["port"]["number"], cluster.target(destination["host"]))


def gateway_api(cluster: Cluster) -> Iterator[Opening]:
    (gateway,) = cluster.of("Gateway")
    for listener in gateway["spec"]["listeners"]:
        parent = {"name": NAME, "sectionName": listener["name"]}
        scheme, kind = {"HTTPS": ("https", "HTTPRoute"), "TLS": ("pulsar+ssl", "TLSRoute")}[listener["protocol"]]
        for route in (each["spec"] for each in cluster.of(kind)):
            if parent in route["parentRefs"] and listener["hostname"] in route["hostnames"]:
                target = cluster.backend(route["rules"][0]["backendRefs"][0])
                yield Opening(scheme, hosts(listener["hostname"]), listener["port"], target)


def traefik(cluster: Cluster) -> Iterator[Opening]:
    (fragment,) = (each for each in cluster.of("ConfigMap") if "traefik-values.yaml" in each["data"])
    values = yaml.safe_load(fragment["data"]["traefik-values.yaml"])
    services = values["providers"]["file"]["content"]["http"]["services"]
    (web,), (binary,) = cluster.of("IngressRoute"), cluster.of("IngressRouteTCP")
    (route,) = web["spec"]["routes"]
    (service,) = (each["name"].removesuffix("@file") for each in route["services"])
    assert services[service]["loadBalancer"]["servers"] == [{"url": "http://127.0.0.1:18080"}]
    for host in re.findall(r"Host\(`(.*?)`\)", route["match"]):
        yield Opening("https", hosts(host), 443, SIDECAR)
    for pattern in re.findall(r"HostRegexp\(`(.*?)`\)", route["match"]):
        yield Opening("https", pattern, 443, SIDECAR)
    (entry_point,) = binary["spec"]["entryPoints"]
    for route in binary["spec"]["routes"]:
        (host,) = re.findall(r"^HostSNI\(`(.*?)`\)$", route["match"])
        (named,) = route["services"]
        port = values["ports"][entry_point]["exposedPort"]
        yield Opening("pulsar+ssl", hosts(host), port, cluster.pod(named["name"]))


OPENINGS = {
    "istio": istio,
    "istio-injection": istio,
    "gateway-api": gateway_api,
    "envoy-gateway": gateway_api,
    "traefik": traefik,
}


@types
async def test_every_address_of_the_book_is_open_and_leads_to_its_broker(kind: str, tmp_path: Path) -> None:
    objects = await rendered(tmp_path, kind)
    snapshot = build(load_mapping(config_of(objects)))
    openings = list(OPENINGS[kind](Cluster(objects)))
    (ingress,) = snapshot.ingresses
    for n in range(3):
        broker = snapshot.book.resolve(Authority(OWN_NAME.format(n=n), None), 8080)
        assert broker is not None
        urls = [*broker.listeners[ingress.listener].values()]
        assert {url.scheme for url in urls} == {"https", "pulsar+ssl"}
        for url in urls:
            targets = {
                each.target
                for each in openings
                if (each.scheme, each.port) == (url.scheme, int(url.port)) and re.fullmatch(each.hosts, url.host)
            }
            assert targets == {SIDECAR if url.scheme in WEB_SCHEMES else f"pulsar-broker-{n}"}, url


def matches(objects: list[Object]) -> Iterator[tuple[str | None, str]]:
    """Method and pattern of every match of an HTTP route."""
    cluster = Cluster(objects)
    for rule in (rule for each in cluster.of("VirtualService") for rule in each["spec"].get("http", ())):
        for match in rule["match"]:
            uri = match["uri"]
            yield match.get("method", {}).get("exact"), uri.get("regex") or re.escape(uri["prefix"]) + ".*"
    for rule in (rule for each in cluster.of("HTTPRoute") for rule in each["spec"]["rules"]):
        for match in rule["matches"]:
            value, is_prefix = match["path"]["value"], match["path"]["type"] == "PathPrefix"
            yield match.get("method"), re.escape(value) + "(/.*)?" if is_prefix else value
    for rule in (rule for each in cluster.of("IngressRoute") for rule in each["spec"]["routes"]):
        assert "&& Method(`GET`) &&" in rule["match"]
        yield from (("GET", re.escape(prefix) + ".*") for prefix in re.findall(r"PathPrefix\(`(.*?)`\)", rule["match"]))
        yield from (("GET", pattern) for pattern in re.findall(r"PathRegexp\(`(.*?)`\)", rule["match"]))


@pytest.mark.parametrize(
    ("kind", "key"),
    [*((kind, "bypass") for kind in TYPES), ("envoy-gateway", "failOpen"), ("traefik", "failOpen")],
)
async def test_routes_past_the_sidecar_let_through_only_what_clients_need(kind: str, key: str, tmp_path: Path) -> None:
    found = list(matches(await rendered(tmp_path, kind, {key: True})))
    assert found
    for method, path in CALLS:
        passes = any(verb in (None, method) and re.fullmatch(pattern, path) for verb, pattern in found)
        assert passes == (classify(method, path).area in ("lookup", "client")), (method, path)


@pytest.mark.parametrize(
    ("kind", "route"), [("istio", "virtualservice"), ("gateway-api", "httproute"), ("envoy-gateway", "httproute")]
)
async def test_discovery_finds_ingress_and_brokers_by_the_routes(kind: str, route: str, tmp_path: Path) -> None:
    objects = await rendered(tmp_path, kind, config={"kubernetes": {"enabled": True}})
    config, folder = tmp_path / "config.yaml", tmp_path / "manifests"
    config.write_text(yaml.safe_dump(config_of(objects)))
    folder.mkdir()
    (folder / "ours.yaml").write_text(yaml.safe_dump_all(objects))
    (folder / "brokers.yaml").write_text(brokers(3))
    arguments = ("--config", config, "--manifests", folder)
    code, out, err = await run(BIN / "pulsar-ingress-proxy", "check", "--no-files", *arguments)
    assert code == 0, out + err
    ingress = f"{route}/edge/{NAME}"
    lines = out.splitlines()
    assert [line for line in lines if line.startswith("ingress")] == [
        f"ingress   {ingress}: pulsar.example.com, *.pulsar.example.com -> external"
    ]
    assert not [line for line in lines if line.startswith(("conflict", "warning"))]
    for n in range(3):
        place = lines.index(f"broker    {OWN_NAME.format(n=n)}")
        said_of_it = "\n".join(lines[place : place + 4])
        assert f"external: pulsar+ssl://broker-{n}.pulsar.example.com:6651, https://broker-{n}." in said_of_it
    url = "https://broker-1.pulsar.example.com/lookup/v2/topic/persistent/public/default/orders"
    inside = f"http://{OWN_NAME.format(n=2)}:8080/lookup/v2/topic/persistent/a/b/c"
    options = (*arguments, url, "--location", inside, "--json")
    code, out, err = await run(BIN / "pulsar-ingress-proxy", "explain", *options)
    assert code == 0, err
    said = json.loads(out)
    assert (said["ingress"], said["listener"], said["hit"]) == (ingress, "external", True)
    assert "//pulsar-broker-1." in said["upstream"]
    assert said["location"]["to"].startswith("https://broker-2.pulsar.example.com/lookup/")


async def explained(config: Path, url: str, location: str) -> Any:
    code, out, err = await run(
        BIN / "pulsar-ingress-proxy", "explain", "--json", "--config", config, url, "--location", location
    )
    assert code == 0, err
    return json.loads(out)


async def test_hosts_of_no_ingress_pass_unchanged_while_one_ingress_is_switched_on(tmp_path: Path) -> None:
    """The third step of the rollout in docs/install.md."""
    objects = await rendered(tmp_path, "istio", {"hosts": ["mq.example.org", "*.mq.example.org"]}, {"shadow": False})
    (route,) = (each["spec"] for each in Cluster(objects).of("VirtualService") if "http" in each["spec"])
    assert {"pulsar.example.com", "mq.example.org", "*.mq.example.org"} <= {*route["hosts"]}
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(config_of(objects)))
    lookup = "lookup/v2/topic/persistent/public/default/orders"
    inside = f"http://{OWN_NAME.format(n=2)}:8080/{lookup}"
    on = await explained(config, f"https://pulsar.example.com/{lookup}", inside)
    assert (on["hit"], on["location"]["action"]) == (True, "rewritten")
    off = await explained(config, f"https://mq.example.org/{lookup}", inside)
    assert (off["hit"], off["reason"], off["location"]["to"]) == (False, "no-rule", inside)


@types
async def test_through_the_sidecar_the_config_is_good_and_has_one_binary_socket(kind: str, tmp_path: Path) -> None:
    objects = await rendered(tmp_path, kind, {"brokers": 0, "binary": {"throughSidecar": True}})
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(config_of(objects)))
    code, out, err = await run(BIN / "pulsar-ingress-proxy", "check", "--strict", "--no-files", "--config", config)
    assert code == 0, out + err
    scheme, port = ("pulsar+ssl", 16651) if kind == "traefik" else ("pulsar", 16650)
    assert f"socket    internal:{scheme}://127.0.0.1:{port}" in out.splitlines()
    assert not Cluster(objects).of("HTTPRoute")
    assert not Cluster(objects).of("IngressRoute")
