"""The cost of the binary protocol: our sidecar beside HAProxy in tcp mode, which parses nothing.

    python -m bench.binary [--rounds N] [--seconds N] [--quick] [--new-topics] [--json FILE]

CPU time of the proxy process per lookup, and per gigabyte of messages both ways, in turns, in one run; and the memory
that a connection takes which says nothing.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import uvloop
import yaml

from bench import binary_ends as ends
from bench.broker import inside
from bench.places import Place
from bench.processes import CannotMeasure, Child, Cores, free_ports, program, started
from bench.traffic import HOST, LISTENER, outside

OURS, HAPROXY = "pulsar-ingress-proxy", "HAProxy, tcp"
CONNECTIONS, IDLE = 32, 1000
KIB = 1024


def sidecar(place: Place) -> list[str]:
    """A realistic config, with an address book, metrics and events."""
    metrics, console = free_ports(2)
    (place.folder / "events").mkdir()
    config = {
        "bindAddresses": [f"{LISTENER}:pulsar://127.0.0.1:{place.port}"],
        "brokers": {"brokerServiceUrl": [f"pulsar://127.0.0.1:{place.broker}"]},
        "ingresses": [{"name": "public", "hosts": [HOST], "listener": LISTENER}],
        "advertisedListeners": [
            {"broker": inside("{n}"), "listeners": f"{LISTENER}:pulsar://{outside('{n}')}:6650"},
        ],
        "events": {"path": str(place.folder / "events")},
        "metrics": {"address": f"127.0.0.1:{metrics}"},
        "console": {"address": f"127.0.0.1:{console}"},
        "drainSeconds": 0,
        "log": {"level": "error"},
    }
    return [
        sys.executable,
        "-m",
        "pulsar_ingress_proxy",
        "run",
        "--config",
        place.write("config.yaml", yaml.safe_dump(config)),
    ]


def haproxy(place: Place) -> list[str]:
    config = f"""\
global
  nbthread 1
  maxconn 4000
defaults
  mode tcp
  timeout connect 5s
  timeout client 600s
  timeout server 600s
listen gateway
  bind 127.0.0.1:{place.port}
  server broker 127.0.0.1:{place.broker}
"""
    return [program("haproxy"), "-db", "-q", "-f", place.write("haproxy.cfg", config)]


Work = Callable[[int, float, Callable[[], None]], Awaitable[int]]
"""Takes a port, seconds, and a callback for when all are connected; returns the amount of work done."""


def _stream(how: Callable[[int, int, float, Callable[[], None]], Awaitable[int]], size: int) -> Work:
    return lambda port, seconds, begun: how(port, size, seconds, begun)


WORKLOADS: dict[str, tuple[Work, float, str]] = {
    "lookups": (lambda port, seconds, begun: ends.look_up(port, CONNECTIONS, seconds, begun), 1e-6, "µs each"),
    "produce, 64 KiB": (_stream(ends.produce, 64 * KIB), 1e-9, "s per GB"),
    "produce, 1 KiB": (_stream(ends.produce, KIB), 1e-9, "s per GB"),
    "consume, 64 KiB": (_stream(ends.consume, 64 * KIB), 1e-9, "s per GB"),
    "consume, 1 KiB": (_stream(ends.consume, KIB), 1e-9, "s per GB"),
}
"""The work, and the unit of its CPU time: microseconds per lookup, or seconds per gigabyte."""


NEW_TOPICS: dict[str, tuple[Work, float, str]] = {
    "of new topics": (
        lambda port, seconds, begun: ends.look_up(port, CONNECTIONS, seconds, begun, is_new=True),
        1e-6,
        "µs each",
    ),
}
"""Measured separately, as it would evict the topics of the other workloads from the sidecar's cache."""


def main() -> None:
    options = _options()
    workloads = NEW_TOPICS if options.new_topics else WORKLOADS
    cores, busy = Cores.of_this_machine(), os.getloadavg()[0]
    cores.stay_on_load()
    try:
        figures, memory = uvloop.run(compare(workloads, options.rounds, options.seconds, cores))
    except CannotMeasure as fault:
        sys.exit(f"bench: {fault}")
    print(f"{'':<18} {OURS:>22} {HAPROXY:>16} {'ratio':>7} {'spread':>14}")
    for workload, rounds in figures.items():
        ratios = [ours / theirs for ours, theirs in rounds]
        ours, theirs = (statistics.median(column) for column in zip(*rounds, strict=True))
        unit = workloads[workload][2]
        spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
        print(f"{workload:<18} {ours:>12.2f} {unit:>9} {theirs:>16.2f} {statistics.median(ratios):>7.2f} {spread:>14}")
    for name, kilobytes in memory.items():
        print(f"{IDLE} idle connections: {kilobytes:.1f} KB each ({name})")
    if busy > 0.5:
        print(f"The machine was busy before this began (load average {busy:.1f}): look at the spread.")
    if options.json:
        Path(options.json).write_text(json.dumps({"cpu": figures, "kilobytes_per_connection": memory}, indent=2))


async def compare(
    workloads: dict[str, tuple[Work, float, str]], rounds: int, seconds: float, cores: Cores
) -> tuple[dict[str, list[tuple[float, float]]], dict[str, float]]:
    """By workload, ours and theirs for each round; and kilobytes per connection."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder, (broker, *ports) = Path(name), free_ports(3)
        command = [sys.executable, "-m", "bench.binary_ends", str(broker)]
        stack.enter_context(started(command, broker, cores.load, folder / "broker.log"))
        proxies: dict[str, tuple[Child, int]] = {}
        for (peer, make), port in zip({OURS: sidecar, HAPROXY: haproxy}.items(), ports, strict=True):
            (own := folder / peer.partition(",")[0]).mkdir()
            child = stack.enter_context(started(make(Place(own, port, broker)), port, cores.proxy, own / "log"))
            proxies[peer] = child, port
        if (told := await ends.told(ports[0])) != ends.EXPECTED:
            raise CannotMeasure(f"the sidecar answers {told} and not {ends.EXPECTED}")
        memory = {peer: await _idle(port, child) for peer, (child, port) in proxies.items()}
        figures: dict[str, list[tuple[float, float]]] = {name: [] for name in workloads}
        for place in range(rounds + 1):
            for workload, (work, unit, _) in workloads.items():
                taken = {}
                for peer in list(proxies)[:: 1 if place % 2 else -1]:
                    child, port = proxies[peer]
                    readings: list[float] = []
                    done = await work(port, seconds, partial(_read, child, readings))
                    spent = child.cpu_seconds() - readings[0]
                    if not done:
                        raise CannotMeasure(f"{peer} passes nothing on: {workload}")
                    taken[peer] = spent / done / unit
                if place:  # the first round warms up
                    figures[workload].append((taken[OURS], taken[HAPROXY]))
                    print(f"{workload}: {taken}", file=sys.stderr)
    return figures, memory


def _read(child: Child, readings: list[float]) -> None:
    readings.append(child.cpu_seconds())


async def _idle(port: int, child: Child) -> float:
    """Kilobytes per connection that has sent only CONNECT."""
    before = child.resident_bytes()
    clients = [await ends.client(port) for _ in range(IDLE)]
    await asyncio.sleep(0.5)
    taken = (child.resident_bytes() - before) / KIB
    for one in clients:
        one.transport.abort()
    return taken / IDLE


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="CPU time and memory of the binary protocol.")
    # Many short rounds, because the speed of shared cores changes between measurements.
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.7)
    parser.add_argument("--quick", action="store_const", const=(1, 1.0), help="one round of a second")
    parser.add_argument("--new-topics", action="store_true", help="lookups of topics that nobody has asked for")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = options.quick
    return options


if __name__ == "__main__":
    main()
