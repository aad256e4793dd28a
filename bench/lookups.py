"""CPU time of the proxy process per request: ours beside nginx, HAProxy and Envoy with Lua.

    python -m bench.lookups [--clients N...] [--rounds N] [--seconds N] [--quick] [--seed N] [--json FILE]

All do the same job, in turns, in one run, under a load like production's. Compare ratios between machines, not seconds:
those depend on the machine.
"""

import argparse
import json
import os
import platform
import random
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import load, open_loop
from bench.figures import Sample, as_json, table
from bench.peers import BLOCKING, FOLLOWING, NGINX, OURS, PEERS, RIVALS, Peer
from bench.processes import CannotMeasure, Cores, program
from bench.running import Proxy, running
from bench.sidecar import events_folder, share_with_tasks
from bench.traffic import ANSWERS, MIXED, NEW_TOPICS, PUTS, REDIRECTS, Traffic, Workload

REQUESTS = 30_000
"""Made for each row, and sent in turn."""
MOST_CLIENTS = 10_000

Samples = dict[str, dict[str, list[Sample]]]
"""By row and proxy: one sample per round."""


@dataclass(frozen=True, slots=True)
class Row:
    """A load, and the proxies that it is measured with."""

    name: str
    workload: Workload
    clients: int
    peers: tuple[Peer, ...] = (*RIVALS, OURS)
    connections: int = load.CONNECTIONS


def plan(clients: Sequence[int]) -> list[Row]:
    """Each kind of load for each number of clients; then those that are measured for the largest number only."""
    rows = [
        Row(f"{workload.name}, {number:,} client{'s' if number > 1 else ''}", workload, number)
        for workload in (ANSWERS, REDIRECTS, MIXED)
        for number in clients
    ]
    most = max(clients)
    return [
        *rows,
        Row(NEW_TOPICS.name, NEW_TOPICS, most),
        Row(PUTS.name, PUTS, most),
        Row("redirects, followed by the sidecar", REDIRECTS, most, (*RIVALS, FOLLOWING)),
        Row("answers, the sidecar with leaks: block", ANSWERS, most, (*RIVALS, BLOCKING)),
    ]


def main() -> None:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that children are terminated and the folder is removed
    cores, busy = Cores.of_this_machine(), os.getloadavg()[0]
    cores.stay_on_load()
    rows = plan(options.clients)
    try:
        program("wrk")
        versions = {peer.name: peer.version() for peer in PEERS}
        samples, shares, event_bytes = compare(rows, options.rounds, options.seconds, options.seed, cores)
        latencies = open_loop.compare(options.rounds, 2 * options.seconds, options.seed, cores)
    except CannotMeasure as fault:
        sys.exit(f"bench: {fault}")
    print(table({row.name: samples[row.name] for row in rows}, NGINX.name))
    print(f"\n{open_loop.table(latencies)}")
    print(f"\nThe fields and topics of this run were drawn by --seed {options.seed}.")
    for name, share in shares.items():
        print(f"{share:.2%} of the requests to {name} needed a task.")
    if not event_bytes:
        print(f"{OURS.name} wrote no events: it was measured without what an event costs.")
    if busy > 0.5:
        print(f"The machine was busy before this began (load average {busy:.1f}): look at the spread.")
    if options.json:
        report = {
            "base": NGINX.name,
            "rounds": options.rounds,
            "seconds": options.seconds,
            "seed": options.seed,
            "connections": load.CONNECTIONS,
            "machine": {
                "cpus": os.cpu_count(),
                "pinned": cores.proxy is not None,
                "load_average_before": busy,
                "kernel": platform.release(),
                "python": platform.python_version(),
            },
            "versions": versions,
            "event_bytes": event_bytes,
            "shares_with_tasks": shares,
            "open_loop": open_loop.as_json(latencies),
            "rows": {name: as_json(rounds, NGINX.name) for name, rounds in samples.items()},
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 100, 1000, MOST_CLIENTS], help="how many")
    parser.add_argument("--rounds", type=int, default=3, help="after one that warms up (default 3)")
    parser.add_argument("--seconds", type=int, default=2, help="for each proxy, row and round (default 2)")
    parser.add_argument("--quick", action="store_true", help="1 round of 1 second with 1,000 clients: does it run?")
    parser.add_argument("--seed", type=int, help="what fields and topics are drawn by (default: another each time)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    options = parser.parse_args()
    if options.quick:
        options.clients, options.rounds, options.seconds = [1000], 1, 1
    if options.rounds < 1 or options.seconds < 1 or min(options.clients) < 1:
        parser.error("--rounds, --seconds and --clients should be 1 or more")
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(10**6)
    return options


def compare(
    rows: Sequence[Row], rounds: int, seconds: int, seed: int, cores: Cores
) -> tuple[Samples, dict[str, float], int]:
    """Measure all proxies; also returns the share of our requests that needed a task, and the least bytes of events."""
    peers = list(dict.fromkeys(peer for row in rows for peer in row.peers))
    with tempfile.TemporaryDirectory(prefix="bench-lookups-") as name:
        with running(Path(name), peers, seed, cores) as proxies:
            samples = _measure(rows, proxies, Path(name), rounds, seconds, seed)
            ours = {peer.name: proxies[peer.name].place for peer in peers if peer not in RIVALS}
            shares = {name: share_with_tasks(place) for name, place in ours.items()}
        written = [sum(file.stat().st_size for file in events_folder(place).iterdir()) for place in ours.values()]
        return samples, shares, min(written)


def _measure(
    rows: Sequence[Row], proxies: Mapping[str, Proxy], folder: Path, rounds: int, seconds: int, seed: int
) -> Samples:
    """Alternate between the proxies, in another order each round, so that other load affects all of them."""
    samples: Samples = {row.name: {peer.name: [] for peer in row.peers} for row in rows}
    scripts: dict[tuple[str, int], Path] = {}
    for row in rows:
        if (kind := (row.workload.name, row.clients)) not in scripts:
            requests = Traffic(row.clients, seed).requests(row.workload, REQUESTS)
            scripts[kind] = load.write(requests, folder / f"{len(scripts)}.requests")
    for turn in range(rounds + 1):  # the first round warms up, with one row
        for row in rows if turn else rows[:1]:
            script = scripts[row.workload.name, row.clients]
            for place in range(len(row.peers)):
                peer = row.peers[(place + turn) % len(row.peers)].name
                try:
                    sample = _sample(proxies[peer], script, seconds if turn else 1, row.connections)
                except CannotMeasure as fault:
                    raise CannotMeasure(f"{peer}, {row.name}: {fault}") from None
                if turn:
                    samples[row.name][peer].append(sample)
                what = f"round {turn}" if turn else "warm-up"
                print(f"{what}  {row.name:<32} {peer:<34} {sample}", file=sys.stderr)
    return samples


def _sample(proxy: Proxy, script: Path, seconds: int, connections: int) -> Sample:
    """The time includes opening the connections, so it is longer for thousands of them."""
    before = proxy.child.cpu_seconds()
    answered = load.put(proxy.place.port, script, seconds + connections // 1000, connections)
    spent = proxy.child.cpu_seconds() - before
    return Sample(spent / answered.requests * 1e6, answered.requests / answered.seconds)


if __name__ == "__main__":
    main()
