"""CPU time of the proxy process per lookup: ours beside nginx, HAProxy, Envoy with Lua and a plain aiohttp proxy.

    python -m bench.lookups [--rounds N] [--seconds N] [--quick] [--unlike] [--json FILE]

All do the same job, in turns, in one run. The figure that travels between machines is the ratio: seconds depend on the
machine, the ratio hardly.
"""

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from bench import load
from bench.broker import broker
from bench.figures import Sample, as_json, table
from bench.job import ANSWERS, WORKLOADS, ask, verify
from bench.peers import NGINX, OURS, PEERS
from bench.places import Place
from bench.processes import CannotMeasure, Child, Cores, free_ports, program, started
from bench.sidecar import events_folder

Samples = dict[str, dict[str, list[Sample]]]
"""By workload, by proxy, a sample for each round."""


def main() -> None:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the children are ended and the folder removed
    cores, busy = Cores.of_this_machine(), os.getloadavg()[0]
    cores.stay_on_load()
    try:
        program("wrk")
        versions = {peer.name: peer.version() for peer in PEERS}
        samples, event_bytes = compare(options.rounds, options.seconds, options.unlike, cores)
    except CannotMeasure as fault:
        sys.exit(f"bench: {fault}")
    for workload in WORKLOADS:
        print(table(workload.name, samples[workload.name], NGINX.name), end="\n\n")
    if not event_bytes:
        print(f"{OURS.name} wrote no events: it was measured without what an event costs.")
    if busy > 0.5:
        print(f"The machine was busy before this began (load average {busy:.1f}): look at the spread.")
    if options.json:
        report = {
            "base": NGINX.name,
            "rounds": options.rounds,
            "seconds": options.seconds,
            "unlike": options.unlike,
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
            "workloads": {name: as_json(rounds, NGINX.name) for name, rounds in samples.items()},
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="after one that warms up (default 7)")
    parser.add_argument("--seconds", type=int, default=2, help="for each proxy, workload and round (default 2)")
    parser.add_argument("--quick", action="store_true", help="2 rounds of 1 second: does it run?")
    parser.add_argument("--unlike", action="store_true", help="give every lookup a field that none had before")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 2, 1
    if options.rounds < 1 or options.seconds < 1:
        parser.error("--rounds and --seconds should be 1 or more")
    return options


def compare(rounds: int, seconds: int, unlike: bool, cores: Cores) -> tuple[Samples, int]:
    """Measure all proxies; also gives how many bytes of events ours wrote."""
    with tempfile.TemporaryDirectory(prefix="bench-lookups-") as name:
        folder = Path(name)
        broker_port, *ports = free_ports(1 + len(PEERS))
        places = {
            peer.name: Place(folder / str(port), port, broker_port) for peer, port in zip(PEERS, ports, strict=True)
        }
        with ExitStack() as running:
            running.enter_context(started(broker(folder, broker_port), broker_port, cores.load, folder / "said"))
            if (status := ask(broker_port, ANSWERS.path(1, 1))[0]) != 403:
                raise CannotMeasure(f"the broker should refuse a lookup that nobody tagged, and answered {status}")
            proxies: dict[str, Child] = {}
            for peer in PEERS:
                place = places[peer.name]
                place.folder.mkdir()
                command = peer.command(place)
                proxies[peer.name] = running.enter_context(
                    started(command, place.port, cores.proxy, place.folder / "said")
                )
                verify(peer.name, place.port)
            samples = _measure(proxies, places, folder, rounds, seconds, unlike)
        return samples, sum(file.stat().st_size for file in events_folder(places[OURS.name]).iterdir())


def _measure(
    proxies: Mapping[str, Child], places: Mapping[str, Place], folder: Path, rounds: int, seconds: int, unlike: bool
) -> Samples:
    """Alternate between the proxies, each round in another order: what else the machine does falls on all."""
    samples: Samples = {workload.name: {proxy: [] for proxy in proxies} for workload in WORKLOADS}
    order = list(proxies)
    for turn in range(rounds + 1):  # the first warms up, with one workload
        for workload in WORKLOADS if turn else WORKLOADS[:1]:
            script = folder / f"{workload.name}.lua"
            script.write_text(load.script(workload, unlike))
            for proxy in order:
                try:
                    sample = _sample(proxies[proxy], places[proxy].port, script, seconds if turn else 1)
                except CannotMeasure as fault:
                    raise CannotMeasure(f"{proxy}, {workload.name}: {fault}") from None
                if turn:
                    samples[workload.name][proxy].append(sample)
                what = f"round {turn}" if turn else "warm-up"
                print(f"{what}  {workload.name:<10} {proxy:<22} {sample}", file=sys.stderr)
        order = [*order[1:], order[0]]
    return samples


def _sample(proxy: Child, port: int, script: Path, seconds: int) -> Sample:
    before = proxy.cpu_seconds()
    answered = load.put(port, script, seconds)
    return Sample((proxy.cpu_seconds() - before) / answered.requests * 1e6, answered.requests / answered.seconds)


if __name__ == "__main__":
    main()
