"""The benchmark of overload: each request has one result, and recovery is where answers are as before."""

import random
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from threading import Thread

import pytest

from bench.envoy import envoy_config
from bench.overload import KEPT, LOADS, PAGE, Run, load_cells, loads_table, probes_table
from bench.overload_load import CUT, FULL, TIMED_OUT, WAITING, Gateway, Result, Stage
from bench.peers import nginx_config
from bench.performance_figures import replace_block
from bench.places import Place

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
BUSY = b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\nConnection: close\r\n\r\n"
REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.fixture
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    """Of a server that gives each connection the first of these answers, in pieces, then the next."""
    answers: list[bytes] = request.param

    def serve(connection: socket.socket) -> None:
        with connection, suppress(ConnectionError):  # a gateway closes with RST
            for answer in answers:
                if not connection.recv(65536):
                    return
                for piece in (answer[:20], answer[20:]):
                    connection.sendall(piece)
                if answer is BUSY:
                    return

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            thread = Thread(target=serve, args=(connection,))
            thread.start()
            threads.append(thread)

    threads: list[Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        accepting = Thread(target=accept)
        accepting.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        accepting.join()
        for thread in threads:
            thread.join()


def sent(port: int, connections: int, keeps: bool = True, patience: float = 5, rate: float = 200) -> Counter[int]:
    """The results of half a second, by status."""
    gateway = Gateway(port, [REQUEST], connections, keeps, random.Random(1), patience)
    stage = gateway.send(rate, 0.5)
    while len(gateway.results) < gateway.begun:
        gateway.read(1)
    gateway.close()
    assert stage.of(gateway.results) == gateway.results
    return Counter(result.status for result in gateway.results)


@pytest.mark.parametrize("port", [[OK] * 1000], indirect=True)
@pytest.mark.parametrize(("connections", "keeps"), [(1, True), (50, True), (50, False)])
def test_every_request_of_a_gateway_has_one_answer(port: int, connections: int, keeps: bool) -> None:
    assert sent(port, connections, keeps).keys() == {200}


@pytest.mark.parametrize("port", [[OK, BUSY]], indirect=True)
def test_refused_requests_are_told_from_answered_ones(port: int) -> None:
    assert sent(port, 5).keys() == {200, 503}


@pytest.mark.parametrize("port", [[OK, b""]], indirect=True)
def test_connection_closed_without_an_answer_counts_as_cut(port: int) -> None:
    assert sent(port, 5).keys() == {200, CUT}


@pytest.mark.parametrize("port", [[OK, b"HTTP/1.1 200 OK\r\n", OK]], indirect=True)
def test_request_without_a_whole_answer_times_out(port: int) -> None:
    assert sent(port, 5, patience=0.3).keys() == {200, TIMED_OUT}


@pytest.mark.parametrize("port", [[b"", OK]], indirect=True)
def test_queue_of_a_gateway_is_bounded(port: int) -> None:
    found = sent(port, 1, patience=0.4, rate=20 * WAITING)
    assert found.keys() == {FULL, TIMED_OUT}


def run(latencies: list[float], slow: float) -> Run:
    """Answers as fast as these before the overload, then slow ones for a while."""
    stages = [Stage(100, place, place + 1, 0) for place in range(len(LOADS))]
    last = stages[-1].began
    results = [Result(0.01 * number, latency, 200) for number, latency in enumerate(latencies)]
    results += [Result(last + 0.01 * number, 1.0 if 0.01 * number < slow else 0.01, 200) for number in range(100)]
    return Run(100, stages, results, {"/livez": [(0.5, 0.002), (0.6, None)]})


@pytest.mark.parametrize(("slow", "recovery"), [(0.0, 0.0), (0.295, 0.3), (1.0, None)])
def test_recovery_is_when_answers_are_as_fast_as_before(slow: float, recovery: float | None) -> None:
    assert run([0.01] * 99, slow).recovery() == (None if recovery is None else pytest.approx(recovery))


def test_recovery_waits_until_nothing_is_refused() -> None:
    made = run([0.01] * 99, 0)
    late = [Result(one.due, one.latency, 503) if 4 <= one.due < 4.2 else one for one in made.results]
    assert Run(100, made.stages, late, {}).recovery() == pytest.approx(0.2)


def test_tables_have_a_line_for_each_load_and_fit_the_page() -> None:
    runs = {(KEPT.name, "pulsar-ingress-proxy"): run([0.01] * 99, 0.3)}
    page = replace_block(PAGE.read_text(), "loads", loads_table(runs))
    page = replace_block(page, "probes", probes_table(runs))
    assert f"| {KEPT.name} | pulsar-ingress-proxy | 5 × |" in page
    assert "0.3 s" in page
    assert "| 2 (1 failed) |" in page


def test_limits_of_nginx_and_envoy_are_in_their_configs() -> None:
    place = Place(PAGE, 1111, 2222)
    assert "limit_conn all 256;" in nginx_config(place, 256)
    assert "limit_conn" not in nginx_config(place)
    assert "'max_requests': 256" in str(envoy_config(place, 256))
    assert "max_requests" not in str(envoy_config(place))


def test_stage_counts_only_its_own_requests() -> None:
    stage = Stage(10, 1.0, 2.0, 0)
    results = [Result(0.5, 1, 200), Result(1.5, 0.01, 200), Result(1.6, 0.02, 503), Result(2.0, 1, 200)]
    assert load_cells(stage, stage.of(results)) == ["10", "1", "10 / 10", "1", "20 / 20", "0", "0", "0"]
