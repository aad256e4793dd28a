"""Every address that an example's address book hands out is opened by that example, and leads where it should.

The examples are the configs in deploy/ and the chart's values for the same gateways; what is open follows from the
gateways, routes and Services in deploy/.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import chart_model
import pytest
import yaml
from deployed import CONFIGS, DEPLOY, ROOT, Object, documents, manifests, one

from pulsar_ingress_proxy.config import Config, load_mapping
from pulsar_ingress_proxy.discovery.manifests import read_store
from pulsar_ingress_proxy.routing.discovered import NOTHING
from pulsar_ingress_proxy.routing.snapshot import build
from pulsar_ingress_proxy.syntax.authorities import Authority
from pulsar_ingress_proxy.syntax.listeners import WEB_SCHEMES

CHART_EXAMPLES = ROOT / "helm/pulsar-ingress-proxy/ci"
CHART_README = "helm/pulsar-ingress-proxy/README.md"
SIDECAR = "the sidecar"


class Opening(NamedTuple):
    """A port that clients can connect to, the hosts it is for as a regular expression, and what it leads to."""

    scheme: str
    hosts: str
    port: int
    target: str


def hosts(pattern: str) -> str:
    return re.escape(pattern).replace(r"\*", r"[^.]+")


def brokers_behind(services: Iterable[Object]) -> dict[str, str]:
    """By `service:port`: the pod that the Service selects."""
    return {
        f"{each['metadata']['name']}:{port['port']}": each["spec"]["selector"]["statefulset.kubernetes.io/pod-name"]
        for each in services
        if each["kind"] == "Service"
        for port in each["spec"]["ports"]
    }


def istio() -> Iterator[Opening]:
    objects = [each for file in ("gateway", "routes", "binary") for each in documents(f"istio/{file}.yaml")]
    pods = brokers_behind(objects)
    (entry,) = (host for each in objects if each["kind"] == "ServiceEntry" for host in each["spec"]["hosts"])
    patch = one("istio/gateway-service.patch.yaml", "Service")
    open_ports = {80, 443, *(port["port"] for port in patch["spec"]["ports"])}  # of Istio's chart, and ours
    for gateway in (each for each in objects if each["kind"] == "Gateway"):
        namespace = gateway["metadata"]["namespace"]
        names = {gateway["metadata"]["name"], f"{namespace}/{gateway['metadata']['name']}"}
        for server in gateway["spec"]["servers"]:
            scheme = {"HTTPS": "https", "TLS": "pulsar+ssl"}[server["port"]["protocol"]]
            for allowed, _, host in (each.partition("/") for each in server["hosts"]):
                for route in (each for each in objects if each["kind"] == "VirtualService"):
                    is_allowed = route["metadata"]["namespace"] == (namespace if allowed == "." else allowed)
                    if not is_allowed or not names & {*route["spec"]["gateways"]} or host not in route["spec"]["hosts"]:
                        continue
                    (rule,) = route["spec"]["http" if scheme == "https" else "tcp"]
                    (destination,) = (each["destination"] for each in rule["route"])
                    service = f"{destination['host'].partition('.')[0]}:{destination['port']['number']}"
                    target = SIDECAR if destination["host"] == entry else pods[service]
                    if server["port"]["number"] in open_ports:
                        yield Opening(scheme, hosts(host), server["port"]["number"], target)


def envoy_gateway() -> Iterator[Opening]:
    objects = [each for file in ("gateway", "routes", "binary") for each in documents(f"envoy-gateway/{file}.yaml")]
    pods = brokers_behind(objects)
    (gateway,) = (each for each in objects if each["kind"] == "Gateway")
    for listener in gateway["spec"]["listeners"]:
        parent = {"name": gateway["metadata"]["name"], "sectionName": listener["name"]}
        scheme, kind = {"HTTPS": ("https", "HTTPRoute"), "TLS": ("pulsar+ssl", "TLSRoute")}[listener["protocol"]]
        for route in (each for each in objects if each["kind"] == kind and parent in each["spec"]["parentRefs"]):
            (rule,) = route["spec"]["rules"]
            first = rule["backendRefs"][0]
            target = SIDECAR if first["name"] == "pulsar-ingress-proxy" else pods[f"{first['name']}:{first['port']}"]
            for host in route["spec"]["hostnames"]:
                if re.fullmatch(hosts(listener["hostname"]), host.replace("*", "any")) or host == listener["hostname"]:
                    yield Opening(scheme, hosts(host), listener["port"], target)


def traefik() -> Iterator[Opening]:
    (values,) = documents("traefik/traefik-values.yaml")
    ports = {name: port["exposedPort"] for name, port in values["ports"].items() if port["expose"]["default"]}
    web, binary = one("traefik/ingressroute.yaml", "IngressRoute"), one("traefik/binary.yaml", "IngressRouteTCP")
    pods = brokers_behind(documents("traefik/binary.yaml"))
    assert web["spec"]["entryPoints"] == ["websecure"]  # 443, of Traefik's chart
    for route in web["spec"]["routes"]:
        assert [service["name"] for service in route["services"]] == ["pulsar@file"]
        for host in re.findall(r"Host\(`(.*?)`\)", route["match"]):
            yield Opening("https", hosts(host), 443, SIDECAR)
        for pattern in re.findall(r"HostRegexp\(`(.*?)`\)", route["match"]):
            yield Opening("https", pattern, 443, SIDECAR)
    for route in binary["spec"]["routes"]:
        (service,) = route["services"]
        (host,) = re.findall(r"^HostSNI\(`(.*?)`\)$", route["match"])
        for name in binary["spec"]["entryPoints"]:
            yield Opening("pulsar+ssl", hosts(host), ports[name], pods[f"{service['name']}:{service['port']}"])


def ingress_nginx() -> Iterator[Opening]:
    (values,) = documents("ingress-nginx/ingress-nginx-values.yaml")
    pods = brokers_behind(documents("ingress-nginx/binary.yaml"))
    snippet = values["controller"]["config"]["http-snippet"]
    (port,), (names,) = re.findall(r"listen (\d+) ssl;", snippet), re.findall(r"server_name (.*);", snippet)
    for name in names.split():
        yield Opening("https", hosts(name), int(port), SIDECAR)
    for port, service in values["tcp"].items():
        assert service.startswith("pulsar/")
        yield Opening("pulsar+ssl", ".*", int(port), pods[service.removeprefix("pulsar/")])


def compose() -> Iterator[Opening]:
    (services,) = (each["services"] for each in documents("compose/compose.yaml"))
    published = {int(port.split(":")[1]) for port in services["gateway"]["ports"]}
    text = (DEPLOY / "compose/gateway/nginx.conf").read_text()
    for port, names in re.findall(r"listen (\d+);\s+server_name (.*);", text):
        for name in names.split() if int(port) in published else ():
            yield Opening("http", hosts(name), int(port), SIDECAR)
    for port, broker in re.findall(r"(\d+) (broker-\d+):6650;", text):
        if int(port) in published and f"listen {port};" in text:
            yield Opening("pulsar", ".*", int(port), broker)


OPENINGS: dict[str, Callable[[], Iterator[Opening]]] = {
    "istio": istio,
    "envoy-gateway": envoy_gateway,
    "traefik": traefik,
    "ingress-nginx": ingress_nginx,
    "compose": compose,
}


def chart_examples() -> Iterator[tuple[str, str, str]]:
    """Gateway, file and config of the chart's examples that have an address book."""
    for path in sorted(CHART_EXAMPLES.glob("*-values.yaml")):
        values = yaml.safe_load(path.read_text())
        gateway = values.get("gateway", {}).get("type", "").removesuffix("-injection")
        if gateway in OPENINGS and "advertisedListeners" in values["config"]:
            yield gateway, path.name, yaml.safe_dump(chart_model.with_defaults(values["config"], "sidecar"))


def first_yaml(page: str) -> str:
    return str(re.findall(r"```yaml\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)[0])


EXAMPLES = [
    *((Path(place).parts[0], place, text) for place, text in CONFIGS.items()),
    *chart_examples(),
    ("istio", "docs/start.md", first_yaml("docs/start.md")),
    ("istio", "the chart's README", yaml.safe_dump(yaml.safe_load(first_yaml(CHART_README))["config"])),
]


def handed_out(gateway: str, config: Config, folder: Path) -> list[tuple[str, str, str, int]]:
    """What clients are told: a broker's pod, and scheme, host and port of an address of its."""
    discovers = config.kubernetes.enabled
    discovered = read_store(manifests(gateway, folder)[-1], config).discovered() if discovers else NOTHING
    snapshot = build(config, discovered=discovered)
    name = "broker-{n}" if gateway == "compose" else "pulsar-broker-{n}.pulsar-broker.pulsar.svc.cluster.local"
    told = []
    for n in range(2 if gateway == "compose" else 3):
        broker = snapshot.book.resolve(Authority(name.format(n=n), None), 8080)
        assert broker is not None
        for ingress in snapshot.ingresses:
            urls = broker.listeners[ingress.listener].values()
            told += [(broker.name.partition(".")[0], url.scheme, url.host, int(url.port)) for url in urls]
    return told


@pytest.mark.parametrize(("gateway", "text"), [(each[0], each[2]) for each in EXAMPLES], ids=[e[1] for e in EXAMPLES])
def test_every_address_handed_out_is_open_and_leads_to_its_broker(gateway: str, text: str, tmp_path: Path) -> None:
    told = handed_out(gateway, load_mapping(yaml.safe_load(text)), tmp_path)
    assert {scheme in WEB_SCHEMES for _, scheme, _, _ in told} == {True, False}, "web and binary addresses"
    openings = list(OPENINGS[gateway]())
    for broker, scheme, host, port in told:
        targets = {
            each.target
            for each in openings
            if (each.scheme, each.port) == (scheme, port) and re.fullmatch(each.hosts, host)
        }
        assert targets == {SIDECAR if scheme in WEB_SCHEMES else broker}, f"{scheme}://{host}:{port}"


def test_install_page_uses_only_examples_whose_addresses_are_tested() -> None:
    named = re.findall(r"/ci/([\w-]+\.yaml)", (ROOT / "docs/install.md").read_text())
    assert named
    assert {*named} <= {place for _, place, _ in EXAMPLES}
