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
from bench.broker import broker_config
from bench.envoy import envoy_config
from bench.figures import Sample, Spread, as_json, rows, table
from bench.job import ANSWERS, BROKERS, REDIRECTS, TOPICS, WORKLOADS, Workload, answer, verify
from bench.peers import PEERS, haproxy_config, nginx_config, version_in
from bench.places import Place
from bench.processes import CannotMeasure, Child, Cores, free_ports, program
from bench.sidecar import sidecar_config
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
    path = REDIRECTS.path(3, 7)
    location = f"http://pulsar-broker-7.pulsar-broker.pulsar.svc.cluster.local:8080{path}?authoritative=true"
    said = explain(snapshot, f"http://pulsar.example.com{path}", [], None, location).as_json()
    moved = said["location"]
    assert isinstance(moved, dict)
    assert said["listener"] == "external"
    assert moved["to"] == f"https://broker-7.pulsar.example.com{path}?authoritative=true&listenerName=external"
    assert config.events.path == "/nowhere/events"


def test_bench_answer_has_an_internal_url_that_the_sidecar_rewrites() -> None:
    body = answer(3).encode()
    assert 250 <= len(body) <= 280
    put = put_on_listener(body, "external", build(load_mapping(sidecar_config(PLACE))))
    assert json.loads(body)["httpUrl"] == "http://pulsar-broker-3.pulsar-broker.pulsar.svc.cluster.local:8080"
    assert json.loads(put.body)["httpUrl"] == "https://broker-3.pulsar.example.com"


def test_bench_broker_refuses_untagged_requests_before_it_answers() -> None:
    rules = [line.strip() for line in broker_config(3333).splitlines() if "http-request return" in line]
    assert [rule.split()[3] for rule in rules] == ["403", "307", "200"]
    assert "unless { req.hdr(X-Pulsar-ListenerName) -m str external }" in rules[0]
    assert "pulsar-broker-%[path,word(-1,-)].pulsar-broker" in rules[1]


@contextmanager
def proxy_that_says(status: int, location: str, body: bytes) -> Iterator[tuple[int, list[str]]]:
    """Answers every lookup of a topic that has moved like this, and others as a broker would: port, and paths asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            broker = self.path.rpartition("-")[2]
            moved = f"/{REDIRECTS.topic}-" in self.path
            sent = b"" if moved else body or answer(broker).encode()
            self.send_response(status if moved else 200)
            if moved:
                self.send_header("Location", location.format(broker=broker, path=self.path))
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

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
        verify("right", port)
    assert asked == [workload.path(1, broker) for workload in (ANSWERS, REDIRECTS) for broker in (0, BROKERS - 1)]


@pytest.mark.parametrize(
    ("status", "location", "body", "fault"),
    [
        (302, REWRITTEN, b"", "should be answered 307, and was 302"),
        (307, "http://pulsar-broker-{broker}.inside:8080{path}", b"", "should have Location https://broker-0"),
        (307, REWRITTEN.replace("{broker}", "0"), b"", "should have Location https://broker-9"),
        (307, REWRITTEN, answer(4).encode(), "should be answered with broker-0"),
    ],
)
def test_proxy_that_answers_wrongly_is_not_measured(status: int, location: str, body: bytes, fault: str) -> None:
    with (
        proxy_that_says(status, location, body) as (port, _),
        pytest.raises(CannotMeasure, match=f"^wrong: .*{fault}"),
    ):
        verify("wrong", port)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_the_load_asks_for_every_topic(workload: Workload) -> None:
    script = load.script(workload)
    assert len(set(workload.paths())) == BROKERS * TOPICS
    assert all(f'"{path}"' in script for path in workload.paths())
    assert 'wrk.headers["Host"] = "pulsar.example.com"' in script


def test_workloads_differ_in_their_topics() -> None:
    assert not set(ANSWERS.paths()) & set(REDIRECTS.paths())


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
    assert ours.lookups_per_second == Spread(33, 20, 40)


def test_the_table_has_the_cheapest_first() -> None:
    rounds = {"ours": [Sample(50, 40)], "nginx": [Sample(20, 100)]}
    assert table("answers", rounds, "nginx").splitlines() == [
        "answers                 CPU µs/lookup          spread   ratio to nginx        spread",
        "nginx                            20.0     20.0 – 20.0             1.00   1.00 – 1.00",
        "ours                             50.0     50.0 – 50.0             2.50   2.50 – 2.50",
    ]


def test_the_json_has_every_sample() -> None:
    written = json.loads(json.dumps(as_json({"nginx": [Sample(20, 100), Sample(30, 90)]}, "nginx")))
    assert written == {
        "nginx": {
            "cpu_us": {"median": 25, "low": 20, "high": 30},
            "ratio": {"median": 1, "low": 1, "high": 1},
            "lookups_per_second": {"median": 95, "low": 90, "high": 100},
            "samples": [{"cpu_us": 20, "lookups_per_second": 100}, {"cpu_us": 30, "lookups_per_second": 90}],
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
