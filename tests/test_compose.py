"""deploy/compose: everything that is mounted is there, and all speak of the same addresses."""

import re
from collections.abc import Iterator

from deployed import DEPLOY, Object, config, documents

from pulsar_ingress_proxy import __version__
from pulsar_ingress_proxy.routing.snapshot import build


def compose() -> Object:
    (document,) = documents("compose/compose.yaml")
    return dict(document)


def binds(service: Object) -> Iterator[tuple[str, str]]:
    """Source and target of what a service mounts."""
    for volume in service.get("volumes", []):
        source, target, mode = volume.split(":")
        assert mode == "ro"
        yield source, target


def test_everything_that_compose_mounts_is_there() -> None:
    services = compose()["services"]
    sources = [source for service in services.values() for source, _ in binds(service)]
    assert sources
    for source in sources:
        assert (DEPLOY / "compose" / source).exists(), source


def test_compose_sidecar_is_unprivileged_and_ports_are_published_on_loopback_only() -> None:
    services = compose()["services"]
    sidecar = services["pulsar-ingress-proxy"]
    assert sidecar["network_mode"] == "service:gateway"
    assert sidecar["read_only"] is True
    assert sidecar["user"] == "10001:10001"
    assert sidecar["cap_drop"] == ["ALL"]
    assert sidecar["security_opt"] == ["no-new-privileges:true"]
    assert f":-pulsar-ingress-proxy:{__version__}" in sidecar["image"]
    ports = [port.rpartition(":")[0] for service in services.values() for port in service.get("ports", [])]
    assert len(ports) == len(set(ports))
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_compose_brokers_gateway_and_sidecar_use_the_same_addresses() -> None:
    services, read = compose()["services"], config("compose/sidecar/config.yaml")
    nginx = (DEPLOY / "compose/gateway/nginx.conf").read_text()
    (socket,) = read.bind_addresses
    assert f"server {socket.address};" in nginx
    book = build(read).book
    for number in range(2):
        broker = book.describing(f"broker-{number}")
        assert broker is not None
        filled = broker.fill({})
        assert filled is not None
        binary = str(filled.listeners["external"]["pulsar"])
        settings = services[f"broker-{number}"]["environment"]
        assert f"external:{binary}" in settings["advertisedListeners"].split(",")
        assert re.search(rf"{binary.rpartition(':')[2]} broker-{number}:6650;", nginx)


def test_compose_prometheus_and_grafana_use_mounted_files_and_existing_services() -> None:
    services, read = compose()["services"], config("compose/sidecar/config.yaml")
    (prometheus,) = documents("compose/prometheus/prometheus.yaml")
    targets = dict(binds(services["prometheus"])).values()
    assert set(prometheus["rule_files"]) <= set(targets)
    scraped = {
        job["job_name"]: target
        for job in prometheus["scrape_configs"]
        for static in job["static_configs"]
        for target in static["targets"]
    }
    assert scraped["pulsar-ingress-proxy"] == f"gateway:{read.metrics.address.rpartition(':')[2]}"
    assert {target.partition(":")[0] for target in scraped.values()} <= services.keys()
    (provisioning,) = documents("compose/grafana/dashboards/pulsar-ingress-proxy.yaml")
    mounted = dict(binds(services["grafana"])).values()
    assert {provider["options"]["path"] for provider in provisioning["providers"]} <= set(mounted)
    assert "../../dashboards" in dict(binds(services["grafana"]))
