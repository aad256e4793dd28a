"""Measures the figures of docs/performance.md: CPU time, latency, memory and reloads, beside nginx, HAProxy and Envoy.

    python -m bench.performance [--quick] [--seed N] [--write]

Prints the tables. With --write it replaces them in the page, between the comments that name them, and draws the plots.
"""

import argparse
import os
import platform
import random
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Timer

from bench import load, open_loop
from bench import performance_figures as figures
from bench.figures import Rounds
from bench.lookups import MOST_CLIENTS, REQUESTS, Row, compare, plan
from bench.peers import ENVOY, NGINX, OURS, RIVALS, Peer
from bench.performance_figures import Memory, Reload
from bench.processes import CannotMeasure, Cores, program
from bench.running import Proxy, running
from bench.sidecar import counted, sidecar_command
from bench.traffic import ANSWERS, NEW_TOPICS, Traffic

DOCS = Path(__file__).parents[1] / "docs"
IDLE = 1000
"""Connections whose memory is measured."""
RELOAD_RATE, RELOAD_SECONDS, RELOAD_AFTER = 200, 1.5, 0.3
LARGE = (1000, 300)
"""Ingresses and brokers of the config that is reloaded."""


@dataclass(frozen=True, slots=True)
class Effort:
    """The extent of the measurement: loads and points of the curves, rounds, and seconds per proxy and round."""

    rows: int = 7
    clients: Sequence[int] = (1, 10, 100, 1000, 10_000)
    connections: Sequence[int] = (1, 10, 32, 100, 1000, 4000)
    sizes: Sequence[int] = (1, 10, 100, 1000)
    rounds: int = 3
    seconds: int = 2
    curve_rounds: int = 3
    latency_rounds: int = 5
    latency_seconds: float = 4
    topics_seconds: int = 15
    reloads: int = 4


QUICK = Effort(1, (1000,), (100,), (100,), 1, 1, 1, 1, 0.3, 1, 1)


def main() -> None:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that children are terminated and the folder is removed
    cores, busy = Cores.of_this_machine(), os.getloadavg()[0]
    cores.stay_on_load()
    try:
        program("wrk")
        machine = _machine(busy)
        tables, plots = measure(QUICK if options.quick else Effort(), options.seed, cores)
    except CannotMeasure as fault:
        sys.exit(f"bench: {fault}")
    tables["machine"] = machine
    for name, text in tables.items():
        print(f"{name}\n{text}\n")
    if options.write:
        pages = {
            DOCS / "performance.md": tables,
            DOCS.parent / "README.md": {"costs": figures.costs(tables["lookups"])},
        }
        for page, blocks in pages.items():
            written = page.read_text()
            for name, text in blocks.items():
                written = figures.replace_block(written, name, text)
            page.write_text(written)
        for name, svg in plots.items():
            (DOCS / f"performance-{name}.svg").write_text(svg)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few points, 1 round of 1 second: does it run?")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="of the load")
    parser.add_argument("--write", action="store_true", help="into docs/performance.md and the README, with plots")
    options = parser.parse_args()
    if options.quick and options.write:
        parser.error("figures of --quick are not for the page")
    return options


def _machine(busy: float) -> str:
    versions = ", ".join(f"{peer.name.removesuffix(' with Lua')} {peer.version()}" for peer in RIVALS)
    return (
        f"Measured on {os.cpu_count()} cores, {platform.machine()}, Linux {platform.release()}, "
        f"with Python {platform.python_version()}, {versions}. The load average before the run was {busy:.1f}."
    )


def measure(effort: Effort, seed: int, cores: Cores) -> tuple[dict[str, str], dict[str, str]]:
    """The tables and the plots, by name."""
    lookups, _, _ = compare(plan([MOST_CLIENTS])[: effort.rows], effort.rounds, effort.seconds, seed, cores)
    clients, connections = measure_curves(effort, seed, cores)
    config = measure_config(effort, seed, cores)
    latencies = open_loop.compare(effort.latency_rounds, effort.latency_seconds, seed, cores)
    memory = measure_memory(effort.topics_seconds, seed, cores)
    reloads = measure_reloads(effort.reloads, seed, cores)
    tables = {
        "lookups": figures.ratios("load", lookups, NGINX.name),
        "clients": figures.ratios("clients", clients, NGINX.name),
        "connections": figures.ratios("connections", connections, NGINX.name),
        "config": figures.config_table(config),
        "latency": open_loop.table(latencies),
        "memory": figures.memory_table(memory),
        "reload": figures.reload_table(reloads),
    }
    plots = {
        "clients": figures.curve("clients", clients, NGINX.name),
        "connections": figures.curve("connections", connections, NGINX.name),
        "config": figures.config_plot(config),
    }
    return tables, plots


def measure_curves(effort: Effort, seed: int, cores: Cores) -> tuple[dict[str, Rounds], dict[str, Rounds]]:
    """Measured by number of clients, and of connections."""
    peers = (NGINX, ENVOY, OURS)
    by_clients = {
        f"{number:,}": Row(f"answers, clients: {number}", ANSWERS, number, peers) for number in effort.clients
    }
    by_connections = {
        # Envoy's default circuit breaker allows 1,024 connections to a cluster.
        f"{number:,}": Row(
            f"answers, connections: {number}", ANSWERS, MOST_CLIENTS, peers if number <= 1024 else (NGINX, OURS), number
        )
        for number in effort.connections
    }
    rows = [*by_clients.values(), *by_connections.values()]
    samples, _, _ = compare(rows, effort.curve_rounds, 1, seed, cores)
    return (
        {number: samples[row.name] for number, row in by_clients.items()},
        {number: samples[row.name] for number, row in by_connections.items()},
    )


def measure_config(effort: Effort, seed: int, cores: Cores) -> dict[str, Rounds]:
    """Only ours, with growing numbers of ingresses and of brokers; by kind and number."""
    ingresses = tuple(_configured(f"{size:,} ingresses", ingresses=size) for size in effort.sizes)
    brokers = tuple(_configured(f"{size:,} brokers", brokers=size) for size in effort.sizes)
    rows = [Row("ingresses", ANSWERS, MOST_CLIENTS, ingresses), Row("brokers", ANSWERS, MOST_CLIENTS, brokers)]
    samples, _, _ = compare(rows, effort.curve_rounds, 1, seed, cores)
    return {kind: {name.split()[0]: found for name, found in rounds.items()} for kind, rounds in samples.items()}


def _configured(name: str, ingresses: int = 1, brokers: int = 1) -> Peer:
    return Peer(name, partial(sidecar_command, ingresses=ingresses, brokers=brokers), OURS.version)


def measure_memory(topics_seconds: int, seed: int, cores: Cores) -> dict[str, Memory]:
    """Connections are measured on processes without earlier load, as they would reuse memory that load has freed."""
    peers = (*RIVALS, OURS)
    with tempfile.TemporaryDirectory(prefix="bench-performance-") as name:
        folder = Path(name)
        with running(folder, peers, seed, cores) as proxies:
            connections = {name: _connection_bytes(proxy, seed) for name, proxy in proxies.items()}
        traffic = Traffic(MOST_CLIENTS, seed)
        clients = load.write(traffic.requests(ANSWERS, REQUESTS), folder / "clients.requests")
        topics = load.write(traffic.requests(NEW_TOPICS, 10_000 * topics_seconds), folder / "topics.requests")
        with running(folder, peers, seed, cores) as proxies:
            return {
                name: Memory(
                    proxy.start_cpu,
                    proxy.start_bytes,
                    _bytes_after(proxy, clients, min(3, topics_seconds)),
                    _bytes_after(proxy, topics, topics_seconds),
                    *connections[name],
                )
                for name, proxy in proxies.items()
            }


def _bytes_after(proxy: Proxy, script: Path, seconds: int) -> int:
    load.put(proxy.place.port, script, seconds)
    return proxy.child.resident_bytes()


def _connection_bytes(proxy: Proxy, seed: int) -> tuple[float, float]:
    """Per connection: before it has sent anything, and after one request was answered."""
    request = Traffic(1, seed).one(ANSWERS, 1)
    before = proxy.child.resident_bytes()
    sockets = [socket.create_connection(("127.0.0.1", proxy.place.port), 10) for _ in range(IDLE)]
    time.sleep(0.5)  # until the last ones are accepted
    idle = proxy.child.resident_bytes() - before
    for one in sockets:
        one.sendall(request)
        if not one.recv(65536).startswith(b"HTTP/1.1 200"):
            raise CannotMeasure("a lookup on an idle connection was not answered")
    asked = proxy.child.resident_bytes() - before
    for one in sockets:
        one.close()
    return idle / IDLE, asked / IDLE


def measure_reloads(times: int, seed: int, cores: Cores) -> dict[str, Reload]:
    """The largest latency of an open-loop load in short runs, half of them with a reload."""
    ingresses, brokers = LARGE
    large = _configured(f"{ingresses:,} ingresses, {brokers} brokers", ingresses=ingresses, brokers=brokers)
    requests = list(Traffic(MOST_CLIENTS, seed).requests(ANSWERS, int(RELOAD_RATE * RELOAD_SECONDS * 1.5)))
    measured = {}
    with (
        tempfile.TemporaryDirectory(prefix="bench-performance-") as folder,
        running(Path(folder), (_configured("1 ingress, 1 broker"), large), seed, cores) as proxies,
    ):
        for name, proxy in proxies.items():
            largest: dict[bool, list[float]] = {False: [], True: []}
            for turn in range(2 * times):
                reloads = turn % 2 == 1
                if reloads:
                    Timer(RELOAD_AFTER, os.kill, (proxy.child.pid, signal.SIGHUP)).start()
                port = proxy.place.port
                latencies = open_loop.run(port, iter(requests), RELOAD_RATE, RELOAD_SECONDS, seed + turn)
                largest[reloads].append(max(latencies))
            if counted(proxy.place, "config_reloads") != times:
                raise CannotMeasure(f"{name}: not every SIGHUP led to a reload")
            measured[name] = Reload(largest[False], largest[True])
    return measured


if __name__ == "__main__":
    main()
