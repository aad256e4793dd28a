"""The benchmark compares what it says: configs name the job, failures are failures, ratios are of the same round."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from bench import load
from bench.broker import answer, broker_config
from bench.envoy import envoy_config
from bench.figures import Sample, Spread, as_json, rows, table
from bench.job import verify
from bench.lookups import plan
from bench.peers import PEERS, haproxy_config, nginx_config, version_in
from bench.places import Place
from bench.processes import CannotMeasure, Child, Cores, free_ports, program
from bench.sidecar import sidecar_config
from bench.traffic import ANSWERS, BROKERS, MIXED, NEW_TOPICS, PUTS, REDIRECTS, TOPICS, Traffic, Workload, path
from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.routing.answers import put_on_listener
from pulsar_ingress_proxy.routing.snapshot import build
from pulsar_ingress_proxy.tools.explain import explain

PLACE = Place(Path("/nowhere"), port=1111, broker=2222)

REPORT = """\
Running 2s test @ http://127.0.0.1:1111
  1 threads and 32 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.42ms  663.29us  18.02ms   92.54%
    Req/Sec    23.15k     2.20k   26.09k    71.43%
  48326 requests in 2.10s, 15.24MB read
{failures}Requests/sec:  23012.38
Transfer/sec:      7.26MB
"""


@pytest.mark.parametrize("config", [nginx_config(PLACE), haproxy_config(PLACE), json.dumps(envoy_config(PLACE))])
def test_every_compared_proxy_config_tags_and_rewrites_and_has_its_ports(config: str) -> None:
    for part in ("external", "https://broker-", "pulsar.example.com/", "1111", "2222"):
        assert part in config
    assert "x-pulsar-listenername" in config.lower()


def test_sidecar_config_selects_and_rewrites_with_events_on() -> None:
    config = load_mapping(sidecar_config(PLACE))
    snapshot = build(config)
    asked = path(37, is_moved=True)
    location = f"http://pulsar-broker-7.pulsar-broker.pulsar.svc.cluster.local:8080{asked}?authoritative=true"
    said = explain(snapshot, f"http://pulsar.example.com{asked}", [], None, location).as_json()
    moved = said["location"]
    assert isinstance(moved, dict)
    assert said["listener"] == "external"
    assert moved["to"] == f"https://broker-7.pulsar.example.com{asked}?authoritative=true&listenerName=external"
    assert config.events.path == "/nowhere/events"


def test_bench_answer_has_an_internal_url_that_the_sidecar_rewrites() -> None:
    body = answer(3).encode()
    assert 250 <= len(body) <= 280
    put = put_on_listener(body, "external", build(load_mapping(sidecar_config(PLACE))))
    assert json.loads(body)["httpUrl"] == "http://pulsar-broker-3.pulsar-broker.pulsar.svc.cluster.local:8080"
    assert json.loads(put.body)["httpUrl"] == "https://broker-3.pulsar.example.com"


def test_bench_broker_refuses_strange_and_untagged_requests_before_it_answers() -> None:
    rules = [line.strip() for line in broker_config(3333, "x-mine").splitlines() if "http-request return" in line]
    assert [rule.split()[3] for rule in rules] == ["400", "403", "204", "200", "307", "200"]
    assert "unless own_address own_gateway own_token own_path" in rules[0]
    assert "pulsar-broker-%[path,word(-1,-)].pulsar-broker" in rules[4]


@contextmanager
def proxy_that_says(status: int, location: str, body: bytes) -> Iterator[tuple[int, list[str]]]:
    """Answers every lookup of a topic that has moved like this, and others as a broker would: port, and paths asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            plain, _, query = self.path.partition("?")
            broker = plain.rpartition("-")[2]
            moved = "/moved-" in plain and not query
            sent = b"" if moved else body or answer(broker).encode()
            self.send_response(status if moved else 200)
            if moved:
                self.send_header("Location", location.format(broker=broker, path=self.path))
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def do_PUT(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port, asked
        finally:
            server.shutdown()
            thread.join()


REWRITTEN = "https://broker-{broker}.pulsar.example.com{path}?authoritative=true&listenerName=external"


def test_proxy_that_answers_correctly_passes_verification() -> None:
    with proxy_that_says(307, REWRITTEN, b"") as (port, asked):
        verify("right", port, Traffic(1, seed=1))
    lookups = [path(topic, is_moved) for topic in (0, 2 * BROKERS - 1) for is_moved in (False, True)]
    assert asked[:4] == lookups
    assert asked[-1].endswith("/properties")


@pytest.mark.parametrize(
    ("status", "location", "body", "fault"),
    [
        (302, REWRITTEN, b"", "should be redirected to https://broker-0.*, not 302"),
        (307, "http://pulsar-broker-{broker}.inside:8080{path}", b"", "should be redirected to https://broker-0"),
        (307, REWRITTEN.replace("{broker}", "0"), b"", "should be redirected to https://broker-9"),
        (307, REWRITTEN, answer(4).encode(), "should be answered with broker-0"),
    ],
)
def test_proxy_that_answers_wrongly_is_not_measured(status: int, location: str, body: bytes, fault: str) -> None:
    with (
        proxy_that_says(status, location, body) as (port, _),
        pytest.raises(CannotMeasure, match=f"^wrong: .*{fault}"),
    ):
        verify("wrong", port, Traffic(1, seed=1))


def heads(traffic: Traffic, workload: Workload, number: int) -> list[tuple[str, dict[str, str]]]:
    """The request lines and fields of so many requests."""
    found = []
    for request in traffic.requests(workload, number):
        line, *fields = request.partition(b"\r\n\r\n")[0].decode().split("\r\n")
        found.append((line, dict(field.split(": ", 1) for field in fields)))
    return found


def test_every_client_of_the_load_has_its_own_address_and_token() -> None:
    traffic = Traffic(100, seed=5)
    sent = [fields for _, fields in heads(traffic, ANSWERS, 5000)]
    by_address = {fields["x-forwarded-for"]: fields["authorization"] for fields in sent}
    assert len(by_address) == len(set(by_address.values())) == 100
    assert all(by_address[fields["x-forwarded-for"]] == fields["authorization"] for fields in sent)
    assert all(fields[traffic.reference].startswith(f"{fields['x-forwarded-for']}|/lookup/") for fields in sent)
    assert len({fields["traceparent"] for fields in sent}) == 5000


def test_seed_draws_the_order_and_the_names_of_fields() -> None:
    orders = {tuple(fields) for seed in range(20) for _, fields in heads(Traffic(1, seed), ANSWERS, 1)}
    assert len(orders) == 20
    assert heads(Traffic(10, 3), MIXED, 50) == heads(Traffic(10, 3), MIXED, 50)


def test_topics_are_asked_for_by_zipf_or_all_alike() -> None:
    lines = [line for line, _ in heads(Traffic(1, seed=2), ANSWERS, 5000)]
    assert sum(f"{path(0)} " in line for line in lines) > 5000 / 20  # the first of ten thousand
    many = {line for line, _ in heads(Traffic(1, seed=2), NEW_TOPICS, 5000)}
    assert len(many) > 4900
    assert NEW_TOPICS.topics == 100 * TOPICS


def test_mixed_load_has_lookups_partitions_and_second_hops() -> None:
    sent = heads(Traffic(1, seed=2), MIXED, 2000)
    hops = [line for line, fields in sent if fields["host"].startswith("broker-")]
    partitions = [line for line, _ in sent if "/partitions?checkAllowAutoCreation=true" in line]
    assert 150 < len(hops) < 250
    assert all("?authoritative=true&listenerName=external" in line for line in hops)
    assert 800 < len(partitions) < 1000


def test_plan_has_a_row_for_each_load_and_number_of_clients() -> None:
    rows = plan([1, 10])
    assert [(row.workload, row.clients) for row in rows] == [
        *((workload, clients) for workload in (ANSWERS, REDIRECTS, MIXED) for clients in (1, 10)),
        *((workload, 10) for workload in (NEW_TOPICS, PUTS, REDIRECTS, ANSWERS)),
    ]
    assert len({row.name for row in rows}) == len(rows)


def test_requests_are_written_for_wrk_one_after_the_other(tmp_path: Path) -> None:
    script = load.write([b"GET /a", b"GET /b"], tmp_path / "requests")
    assert (tmp_path / "requests").read_bytes() == b"GET /a\0GET /b\0"
    assert f'io.open("{tmp_path / "requests"}", "rb")' in script.read_text()


def test_requests_and_seconds_are_read_from_wrks_report() -> None:
    assert load.parse(REPORT.format(failures="")) == load.Answered(48326, 2.1)
    assert load.parse(REPORT.format(failures="").replace("2.10s", "1.50m")).seconds == 90


@pytest.mark.parametrize(
    "failures",
    [
        "  Socket errors: connect 0, read 3, write 0, timeout 0\n",
        "  Non-2xx or 3xx responses: 1\n",
        "  Socket errors: connect 0, read 0, write 0, timeout 1\n  Non-2xx or 3xx responses: 48326\n",
    ],
)
def test_one_failed_lookup_fails_the_measurement(failures: str) -> None:
    with pytest.raises(CannotMeasure) as raised:
        load.parse(REPORT.format(failures=failures))
    assert str(raised.value) == "; ".join(line.strip() for line in failures.splitlines())


@pytest.mark.parametrize("report", ["", "unable to connect to 127.0.0.1:1111", "  0 requests in 2.00s, 0.00B read"])
def test_a_report_without_requests_fails_the_measurement(report: str) -> None:
    with pytest.raises(CannotMeasure, match="counted nothing"):
        load.parse(report)


def test_ratios_are_of_the_same_round() -> None:
    """A machine that was half as fast in one round was so for both."""
    rounds = {
        "nginx": [Sample(20, 100), Sample(40, 50), Sample(20, 100)],
        "ours": [Sample(50, 40), Sample(100, 20), Sample(60, 33)],
    }
    base, ours = rows(rounds, "nginx")
    assert (base.proxy, base.cpu_us, base.ratio) == ("nginx", Spread(20, 20, 40), Spread(1, 1, 1))
    assert (ours.proxy, ours.cpu_us, ours.ratio) == ("ours", Spread(60, 50, 100), Spread(2.5, 2.5, 3))
    assert ours.requests_per_second == Spread(33, 20, 40)


def test_the_table_has_a_line_for_each_load_with_ratios_to_the_base() -> None:
    rounds = {"ours": [Sample(50, 40), Sample(30, 60)], "nginx": [Sample(20, 100), Sample(20, 100)]}
    assert table({"answers": rounds}, "nginx").splitlines() == [
        "answers                          nginx  20.0 µs   ours 2.00 (1.50 to 2.50)",
    ]


def test_the_json_has_every_sample() -> None:
    written = json.loads(json.dumps(as_json({"nginx": [Sample(20, 100), Sample(30, 90)]}, "nginx")))
    assert written == {
        "nginx": {
            "cpu_us": {"median": 25, "low": 20, "high": 30},
            "ratio": {"median": 1, "low": 1, "high": 1},
            "requests_per_second": {"median": 95, "low": 90, "high": 100},
            "samples": [{"cpu_us": 20, "requests_per_second": 100}, {"cpu_us": 30, "requests_per_second": 90}],
        }
    }


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("nginx version: nginx/1.22.1\n", "1.22.1"),
        ("HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/\nStatus: long-term", "2.6.12"),
        ("\n/opt/3.11.7/bin/envoy  version: 9e5580/1.40.0/Clean/RELEASE/BoringSSL\n\n", "1.40.0"),
    ],
)
def test_version_is_read_from_the_output_of_each_proxy(said: str, version: str) -> None:
    assert version_in(said) == version


def test_a_missing_program_is_named() -> None:
    with pytest.raises(CannotMeasure, match="no-such-proxy is not installed"):
        program("no-such-proxy")


def test_cpu_time_is_summed_over_a_session_and_0_for_an_unknown_one() -> None:
    used = time.process_time()
    assert Child(os.getsid(0)).cpu_seconds() > used - 0.03  # in whole ticks, of user and of system time
    assert Child(2**31 - 1).cpu_seconds() == 0


def test_peer_names_free_ports_and_cores_are_distinct() -> None:
    assert len({peer.name for peer in PEERS}) == len(PEERS)
    assert len(set(free_ports(8))) == 8
    cores = Cores.of_this_machine()
    assert cores.proxy is None or cores.proxy != cores.load
