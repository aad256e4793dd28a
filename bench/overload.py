"""What proxies do with more requests than they can handle: ours beside nginx and Envoy, each with the same CPU limit.

    python -m bench.overload [--quick] [--share S] [--seed N] [--write]

Each proxy gets a share of a core by a control group, so that it and not the load generator is the limit. Its capacity
is measured first; then requests come at 0.5, 1, 2 and 5 times that rate, and at 0.5 again. Takes root.
"""

import argparse
import os
import platform
import random
import signal
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.envoy import envoy_command
from bench.figures import markdown
from bench.open_loop import percentile
from bench.overload_load import CUT, FULL, TIMED_OUT, Gateway, Result, Stage
from bench.peers import ENVOY, NGINX, OURS, Peer, nginx_command
from bench.performance_figures import replace_block
from bench.processes import CannotMeasure, Cores
from bench.running import Proxy, running
from bench.sidecar import address, sidecar_command
from bench.throttle import throttled
from bench.traffic import ANSWERS, Traffic

PAGE = Path("docs/overload.md")
SHARE = 0.2
"""Of a core, for each proxy."""
MOST = 256
"""Requests at a time that nginx and Envoy allow."""
LOADS = (0.5, 1.0, 2.0, 5.0, 0.5)
"""Times the capacity."""
IN_FLIGHT = 100
"""Requests at a time that the capacity is measured with."""
CLIENTS = 1000
_WINDOW = 0.1

LIMITED_NGINX = Peer("nginx, limit_conn", partial(nginx_command, most=MOST), NGINX.version)
LIMITED_ENVOY = Peer("Envoy, circuit breaker", partial(envoy_command, most=MOST), ENVOY.version)
UNLIMITED = Peer(f"{OURS.name}, never refusing", partial(sidecar_command, limits={"waitMillis": 10**9}), OURS.version)
PEERS = (LIMITED_NGINX, LIMITED_ENVOY, OURS, UNLIMITED)


@dataclass(frozen=True, slots=True)
class Mode:
    """How a gateway uses connections."""

    name: str
    connections: int
    keeps: bool


KEPT = Mode("1,024 kept", 1024, True)  # Envoy's default for a cluster
NEW = Mode("a new one for each", 4000, False)
MODES = (KEPT, NEW)

Probes = Mapping[str, Sequence[tuple[float, float | None]]]
"""By path: when each was sent, and how long its answer took; None if there was none within ten seconds."""


@dataclass(frozen=True, slots=True)
class Run:
    """One proxy under all loads."""

    capacity: float
    stages: Sequence[Stage]
    results: Sequence[Result]
    probes: Probes

    def recovery(self) -> float | None:
        """Seconds from the end of the largest load until nine of ten requests within a tenth of a second are accepted
        as fast as before it; None if they never were."""
        before, last = self.stages[0].of(self.results), self.stages[-1]
        usual = 2 * percentile([one.latency for one in before if one.status == 200], 99)
        after = sorted(last.of(self.results))
        for place in range(int((last.ended - last.began) / _WINDOW)):
            begin = last.began + place * _WINDOW
            window = [one for one in after if begin <= one.due < begin + _WINDOW]
            usuals = sum(one.status == 200 and one.latency <= usual for one in window)
            if window and usuals >= 0.9 * len(window):
                return place * _WINDOW
        return None


def main() -> None:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that children are terminated and the folder is removed
    busy = os.getloadavg()[0]
    print(f"The load average before the run is {busy:.1f}.", file=sys.stderr)
    try:
        runs = measure(PEERS, MODES, options.share, 1 if options.quick else 4, options.seed)
        versions = ", ".join(f"{peer.name} {peer.version()}" for peer in (NGINX, ENVOY))
    except CannotMeasure as fault:
        sys.exit(f"bench: {fault}")
    tables = {
        "machine": f"Measured on {os.cpu_count()} cores, {platform.machine()}, with {options.share:.0%} of a core for "
        f"each proxy, Python {platform.python_version()}, {versions}. The load average before the run was {busy:.1f}.",
        "loads": loads_table(runs),
        "probes": probes_table(runs),
    }
    for name, text in tables.items():
        print(f"\n{name}\n{text}")
    if options.write:
        page = PAGE.read_text()
        for name, text in tables.items():
            page = replace_block(page, name, text)
        PAGE.write_text(page)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="stages of one second instead of four: does it run?")
    parser.add_argument("--share", type=float, default=SHARE, help=f"of a core, for each proxy (default {SHARE})")
    parser.add_argument("--seed", type=int, default=7, help="what fields, topics and moments are drawn by")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE}")
    options = parser.parse_args()
    if options.quick and options.write:
        parser.error("figures of --quick are not for the page")
    return options


def measure(
    peers: Sequence[Peer], modes: Sequence[Mode], share: float, seconds: float, seed: int
) -> dict[tuple[str, str], Run]:
    """By the names of mode and proxy."""
    cores = Cores.of_this_machine()
    cores.stay_on_load()
    requests = list(Traffic(CLIENTS, seed).requests(ANSWERS, 20_000))
    runs = {}
    with tempfile.TemporaryDirectory(prefix="bench-overload-") as folder:
        for mode in modes:
            place = Path(folder, str(mode.connections))
            place.mkdir()
            with running(place, peers, seed, cores) as proxies:
                for name, proxy in proxies.items():
                    with throttled(proxy.child.pid, share):
                        runs[mode.name, name] = _run(proxy, name, mode, requests, seconds, seed)
    return runs


def _run(proxy: Proxy, name: str, mode: Mode, requests: Sequence[bytes], seconds: float, seed: int) -> Run:
    gateway = Gateway(proxy.place.port, requests, mode.connections, mode.keeps, random.Random(seed))
    try:
        capacity = gateway.saturate(IN_FLIGHT, 2)
        if not capacity:
            raise CannotMeasure(f"{name} answered nothing")
        with _probing(proxy if name.startswith(OURS.name) else None) as probes:
            stages = []
            for load in LOADS:
                used = proxy.child.cpu_seconds()
                stages.append(gateway.send(capacity * load, seconds))
                used = proxy.child.cpu_seconds() - used
                cells = "  ".join(load_cells(stages[-1], stages[-1].of(gateway.results)))
                busy = stages[-1].cpu / seconds
                print(
                    f"{mode.name:<20} {name:<38} {load:g} x  {cells}  proxy {used / seconds:.0%}, generator {busy:.0%}",
                    file=sys.stderr,
                )
        return Run(capacity, stages, gateway.results, probes)
    finally:
        gateway.close()


@contextmanager
def _probing(proxy: Proxy | None) -> Iterator[Probes]:
    """Ask a sidecar's probes and console in turn, all the time."""
    found: dict[str, list[tuple[float, float | None]]] = {}
    if proxy is None:
        yield found
        return
    urls = {path: f"http://{address(proxy.place, 'metrics')}{path}" for path in ("/livez", "/readyz", "/metrics")}
    urls["console"] = f"http://{address(proxy.place, 'console')}/"
    found.update({name: [] for name in urls})
    ended = threading.Event()

    def probe() -> None:
        while not ended.wait(0.05):
            for name, url in urls.items():
                began, took = time.monotonic(), None
                try:
                    urllib.request.urlopen(url, timeout=10).read()
                    took = time.monotonic() - began
                except OSError as fault:
                    print(f"{url}: {fault}", file=sys.stderr)
                found[name].append((began, took))

    thread = threading.Thread(target=probe)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def load_cells(stage: Stage, results: Sequence[Result]) -> list[str]:
    """A line of the table: rates per second, and latencies in milliseconds as p50 and p99."""
    seconds = stage.ended - stage.began
    counts = Counter(one.status for one in results)
    known = (200, 503, FULL, TIMED_OUT, CUT)
    if unknown := counts.keys() - set(known):
        raise CannotMeasure(f"answers that no proxy should give: {sorted(unknown)}")
    rates = [f"{counts[status] / seconds:,.0f}" for status in known]
    return [f"{stage.rate:,.0f}", rates[0], _latency(results, 200), rates[1], _latency(results, 503), *rates[2:]]


def _latency(results: Sequence[Result], status: int) -> str:
    found = [one.latency * 1000 for one in results if one.status == status]
    return f"{percentile(found, 50):,.0f} / {percentile(found, 99):,.0f}" if found else "–"


def loads_table(runs: Mapping[tuple[str, str], Run]) -> str:
    head = [
        "connections", "proxy", "load", "offered", "accepted", "their p50 / p99, ms", "503", "their p50 / p99, ms",
        "queue full", "timed out", "cut off", "recovered after",
    ]  # fmt: skip
    lines = []
    for (mode, name), run in runs.items():
        recovery = run.recovery()
        for load, stage in zip(LOADS, run.stages, strict=True):
            after = "" if stage is not run.stages[-1] else f"{recovery:.1f} s" if recovery is not None else "not"
            what = f"{load:g} ×" if stage is not run.stages[-1] else f"{load:g} × again"
            lines.append([mode, name, what, *load_cells(stage, stage.of(run.results)), after])
    return markdown(head, lines)


def probes_table(runs: Mapping[tuple[str, str], Run]) -> str:
    """The slowest answers of sidecars, in milliseconds."""
    lines = []
    for (mode, name), run in runs.items():
        for load, stage in zip(LOADS, run.stages, strict=True):
            by_path = {
                path: [took for began, took in found if stage.began <= began < stage.ended]
                for path, found in run.probes.items()
            }
            if by_path:
                lines.append([mode, name, f"{load:g} ×", *map(_slowest, by_path.values())])
    return markdown(["connections", "proxy", "load", "/livez", "/readyz", "/metrics", "console"], lines)


def _slowest(times: Sequence[float | None]) -> str:
    answered = [took for took in times if took is not None]
    failed = len(times) - len(answered)
    return (f"{max(answered) * 1000:,.0f}" if answered else "–") + (f" ({failed} failed)" if failed else "")


if __name__ == "__main__":
    main()
