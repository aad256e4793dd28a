"""What operators see: /metrics, /livez and /readyz, and numbers that add up and stay bounded."""

import random
import string

import pytest
from prometheus_client.parser import text_string_to_metric_families
from raw import CLOSING, GET, OK, RawBroker, Served, Start
from wires import free_port

from pulsar_ingress_proxy.observability.catalogue import Sidecar as Catalogue

LOOKUP = b"GET /lookup/v2/topic/persistent/t/n/%b HTTP/1.1\r\nHost: %b\r\nX-Pulsar-ListenerName: %b\r\n\r\n"

# The contract's names, as the exposition has them.
CONTRACT = {
    "listener_hits": ["ingress", "listener", "rule", "protocol"],
    "listener_misses": ["ingress", "reason", "protocol"],
    "redirects": ["listener", "kind", "action"],
    "leaks": ["listener", "where", "action"],
    "unmapped_redirects": ["listener"],
    "requests": ["kind", "protocol", "code"],
    "request_duration_seconds": ["kind", "protocol"],
    "upstream_duration_seconds": ["kind", "protocol"],
    "in_flight_requests": ["protocol"],
    "connections": ["protocol"],
    "upstream_errors": ["reason"],
    "snapshot_generation": [],
    "address_book_entries": ["source"],
    "config_reloads": ["result"],
    "config_last_reload_successful": [],
    "certificate_not_after_seconds": ["use"],
    "discovery_synced": ["kind"],
    "discovery_restarts": ["kind", "reason"],
    "discovery_conflicts": [],
    "events_written": [],
    "events_dropped": ["reason"],
    "build_info": None,
}


async def fetch(served: Served, path: str) -> tuple[int, str]:
    answer = await served.ask(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode(), served.sidecar.metrics_port)
    return answer.status, answer.body.decode()


async def test_metrics_are_exactly_those_of_the_catalogue_with_the_contracts_labels(
    start: Start, broker: RawBroker
) -> None:
    served = await start(broker.url)
    client = await served.client(GET)
    await broker.answer()
    await client.message()
    status, text = await fetch(served, "/metrics")
    assert status == 200
    families = {family.name: family for family in text_string_to_metric_families(text)}
    ours = {name for name in families if name.startswith("pulsar_ingress_")}
    catalogue = {metric.name.removesuffix("_total"): metric for metric in Catalogue.every()}
    assert ours == catalogue.keys()
    for name, labels in CONTRACT.items():
        metric = catalogue[f"pulsar_ingress_{name}"]
        assert labels is None or list(metric.labels) == labels
    assert "process_open_fds" in families
    assert served.number("requests_total", kind="admin", protocol="http", code="200") == 1
    (generation,) = families["pulsar_ingress_snapshot_generation"].samples
    (reloaded,) = families["pulsar_ingress_config_last_reload_successful"].samples
    assert (generation.value, reloaded.value) == (1, 1)


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
async def test_probes_succeed_while_brokers_are_unreachable(start: Start, path: str) -> None:
    served = await start(f"http://127.0.0.1:{free_port()}")
    assert (await served.ask(GET)).status == 502
    assert await fetch(served, path) == (200, "ok\n")


@pytest.mark.parametrize(
    "path", ["/", "/metrics/", "/admin/v2/clusters", "/lookup/v2/topic/persistent/t/n/x", "/debug"]
)
async def test_metrics_server_answers_404_on_other_paths(start: Start, broker: RawBroker, path: str) -> None:
    served = await start(broker.url)
    assert (await fetch(served, path))[0] == 404
    assert broker.untouched


async def test_in_flight_and_connection_gauges_rise_and_return_to_zero(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    clients = [await served.client(GET) for _ in range(3)]
    wires = [await broker.accept() for _ in clients]
    idle = await served.client()
    for wire in wires:
        await wire.head()
    assert served.number("in_flight_requests", protocol="http") == 3
    assert served.number("connections", protocol="http") == 4
    for wire in wires:  # in the order in which they were accepted, which need not be that of the clients
        wire.send(OK)
    for client in clients:
        await client.message()
    idle.close()
    clients[0].reset()
    assert served.number("requests_total", kind="admin", code="200") == 3
    await served.sidecar.stop()
    assert served.number("in_flight_requests") == 0
    assert served.number("connections") == 0


async def test_request_and_upstream_durations_are_counted_by_kind(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url, lookupListenerName="external")
    for data in (GET, LOOKUP % (b"x", b"a", b""), GET.replace(b"/admin", b"/metrics")):
        client = await served.client(data)
        await broker.answer(CLOSING)
        await client.message()
    for kind in ("admin", "lookup", "other"):
        for name in ("request_duration_seconds", "upstream_duration_seconds"):
            assert served.number(f"{name}_count", kind=kind, protocol="http") == 1
            assert served.number(f"{name}_bucket", kind=kind, protocol="http", le="+Inf") == 1
            assert served.number(f"{name}_sum", kind=kind, protocol="http") > 0


async def test_refused_requests_have_no_upstream_duration(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    assert (await served.ask(GET.replace(b"/v2", b"/.."))).status == 400
    assert (await served.ask(b"nonsense\r\n\r\n")).status == 400
    assert served.number("request_duration_seconds_count") == 2
    assert served.number("upstream_duration_seconds_count") == 0


async def test_clients_cannot_add_metric_label_values(start: Start, broker: RawBroker) -> None:
    """Nobody outside can make up a label: not by hosts, listener names, topics, methods or paths."""
    ingress = {"name": "public", "hosts": ["*.example.com"], "listener": "external", "allowedListeners": ["external"]}
    served = await start(f"http://127.0.0.1:{free_port()}", ingresses=[ingress], unknownListener="forward")
    letters = random.Random(338)
    client = await served.client()

    def word() -> bytes:
        return "".join(letters.choices(string.ascii_letters, k=12)).encode()

    for turn in range(1000):
        host = word() + (b".example.com" if turn % 2 else b".elsewhere.org")
        client.send(LOOKUP % (word(), host, word()))
        assert (await client.message()).status in (403, 502)
    labels = {
        (sample.name, name, value)
        for family in served.sidecar.metrics.collect()
        for sample in family.samples
        for name, value in sample.labels.items()
        if name not in ("le", "version")
    }
    assert {value for _, name, value in labels if name == "listener"} <= {"", "external", "internal", "other"}
    assert {value for _, name, value in labels if name == "ingress"} <= {"", "public"}
    assert {value for _, name, value in labels if name == "code"} == {"403", "502"}
    assert {value for _, name, value in labels if name == "reason"} == {"not-allowed", "broker-unreachable"}
    assert len(labels) < 60
