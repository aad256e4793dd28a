"""Where our sidecar spends its time under the benchmark's load, by cProfile.

    python -m bench.hotspots [--workload answers|redirects|mixed] [--seconds N] [--top N]

A profiler's overhead is largest for many short calls: use it to find candidates, and `make bench` to measure gains.
"""

import argparse
import pstats
import sys
import tempfile
from pathlib import Path

from bench import load
from bench.broker import broker
from bench.job import verify
from bench.peers import OURS
from bench.places import Place
from bench.processes import CannotMeasure, Cores, free_ports, started
from bench.sidecar import sidecar_command
from bench.traffic import ANSWERS, MIXED, REDIRECTS, Traffic, Workload


def main() -> None:
    workloads = {workload.name: workload for workload in (ANSWERS, REDIRECTS, MIXED)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=workloads, default=MIXED.name)
    parser.add_argument("--seconds", type=int, default=5, help="of load (default 5)")
    parser.add_argument("--top", type=int, default=40, help="functions shown (default 40)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-hotspots-") as folder:
        try:
            report = profile(Path(folder), workloads[options.workload], options.seconds)
        except CannotMeasure as fault:
            sys.exit(f"bench: {fault}")
        pstats.Stats(str(report)).strip_dirs().sort_stats("tottime").print_stats(options.top)


def profile(folder: Path, workload: Workload, seconds: int) -> Path:
    """Run the sidecar under the profiler, which writes its report when the sidecar ends."""
    report, cores, traffic = folder / "profile", Cores.of_this_machine(), Traffic(10_000, seed=1)
    cores.stay_on_load()
    script = load.write(traffic.requests(workload, 30_000), folder / "requests")
    port, broker_port = free_ports(2)
    command = sidecar_command(Place(folder, port, broker_port), "-m", "cProfile", "-o", str(report))
    with (
        started(broker(folder, broker_port, traffic.reference), broker_port, cores.load, folder / "broker.said"),
        started(command, port, cores.proxy, folder / "said"),
    ):
        verify(OURS.name, port, traffic)
        answered = load.put(port, script, seconds)
    print(f"{workload.name}: {answered.requests} requests in {answered.seconds:.1f} s, under the profiler")
    return report


if __name__ == "__main__":
    main()
