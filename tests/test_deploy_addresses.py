"""Every address that an example's address book hands out is opened by that example, and leads where it should.

What is open follows from the routes and Services in deploy/. The chart's are tested in tests/e2e/chart.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from deployed import DEPLOY, Object, config, documents, every_config

from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.routing.snapshot import build
from pulsar_ingress_proxy.syntax.authorities import Authority
from pulsar_ingress_proxy.syntax.listeners import WEB_SCHEMES

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
    "ingress-nginx": ingress_nginx,
    "compose": compose,
}


def handed_out(gateway: str, config: Config) -> list[tuple[str, str, str, int]]:
    """What clients are told: a broker's pod, and scheme, host and port of an address of its."""
    snapshot = build(config)
    name = "broker-{n}" if gateway == "compose" else "pulsar-broker-{n}.pulsar-broker.pulsar.svc.cluster.local"
    told = []
    for n in range(2 if gateway == "compose" else 3):
        broker = snapshot.book.resolve(Authority(name.format(n=n), None), 8080)
        assert broker is not None
        for ingress in snapshot.ingresses:
            urls = broker.listeners[ingress.listener].values()
            told += [(broker.name.partition(".")[0], url.scheme, url.host, int(url.port)) for url in urls]
    return told


@every_config
def test_every_address_handed_out_is_open_and_leads_to_its_broker(place: str) -> None:
    gateway = Path(place).parts[0]
    told = handed_out(gateway, config(place))
    assert {scheme in WEB_SCHEMES for _, scheme, _, _ in told} == {True, False}, "web and binary addresses"
    openings = list(OPENINGS[gateway]())
    for broker, scheme, host, port in told:
        targets = {
            each.target
            for each in openings
            if (each.scheme, each.port) == (scheme, port) and re.fullmatch(each.hosts, host)
        }
        assert targets == {SIDECAR if scheme in WEB_SCHEMES else broker}, f"{scheme}://{host}:{port}"
