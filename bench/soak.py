"""A soak test: a sidecar process under mixed load for minutes, and a check that its counts add up afterwards.

    python -m bench.soak [--minutes N] [--seed N]

Every lookup ends as a hit or a miss, once, and with one event; nothing is in flight when nobody asks; memory stays what
it was after the warm-up. Exits 1 where one of these does not hold.
"""

import argparse
import asyncio
import gzip
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from bench.processes import START_SECONDS, CannotMeasure, Child, free_ports, started
from bench.soak_ends import BROKERS, HOST, Tally, binary_session, brokers, described, http_session, inside, sessions
from pulsar_ingress_proxy.demo.brokers import DemoCluster

HTTP_CLIENTS, BINARY_CLIENTS = 24, 12
MOST_SESSIONS = 100_000  # of each client
RELOAD_SECONDS, UNLOAD_SECONDS, SAMPLE_SECONDS = 10.0, 0.5, 1.0
QUIET_SECONDS = 15
"""Seconds after which nothing may be in flight."""
WARM_UP = 1 / 3
"""Share of the time: caches fill, and the interpreter allocates its arenas."""
GROWTH_PERCENT, GROWTH_BYTES = 5, 8 << 20
"""What memory may have grown by since the warm-up, whichever is more: less than 100 bytes for each lookup of five
minutes on a slow machine."""


@dataclass(frozen=True, slots=True)
class Totals:
    """What the sidecar counted and wrote, and what both ends saw."""

    hits: int
    misses: int
    lookups: int
    events: int
    dropped: int
    in_flight: int
    connections: int
    buffered: int
    tracebacks: int
    resident: tuple[int, ...]
    tally: Tally

    @property
    def warm_and_last(self) -> tuple[float, float]:
        """Bytes in memory: medians of the samples of as long a time after the warm-up and before the end."""
        begin = int(len(self.resident) * WARM_UP)
        several = max(1, (len(self.resident) - begin) // 4)
        return statistics.median(self.resident[begin : begin + several]), statistics.median(self.resident[-several:])


@dataclass(frozen=True, slots=True)
class Row:
    what: str
    found: str
    wanted: str
    holds: bool


def checks(totals: Totals) -> list[Row]:
    tally, counted = totals.tally, totals.hits + totals.misses
    warm, last = totals.warm_and_last
    most = max(warm * (1 + GROWTH_PERCENT / 100), warm + GROWTH_BYTES)

    def equal(what: str, found: int, wanted: int) -> Row:
        return Row(what, f"{found:,}", f"{wanted:,}", found == wanted)

    return [
        Row(
            "hits and misses",
            f"{totals.hits:,} + {totals.misses:,}",
            "some of both",
            bool(totals.hits and totals.misses),
        ),
        equal("lookups in requests_total", totals.lookups, counted),
        equal("lookup events in the log", totals.events, counted),
        Row(
            "lookups by the clients' count",
            f"{counted:,}",
            f"{tally.answered:,} answered to {tally.attempted:,} attempted",
            tally.answered <= counted <= tally.attempted,
        ),
        equal("events dropped", totals.dropped, 0),
        equal("requests in flight at the end", totals.in_flight, 0),
        equal("client connections at the end", totals.connections, 0),
        equal("bytes held for them at the end", totals.buffered, 0),
        equal("wrong answers", tally.wrong.total(), 0),
        Row(
            "connections cut off",
            f"{tally.cut:,}",
            f"{tally.hung_up:,} at most, as brokers hung up",
            tally.cut <= tally.hung_up,
        ),
        equal("tracebacks in the sidecar's log", totals.tracebacks, 0),
        Row(
            "resident memory at the end",
            f"{last / 2**20:.1f} MiB",
            f"{most / 2**20:.1f} MiB at most, after {warm / 2**20:.1f}",
            last <= most,
        ),
    ]


def table(rows: list[Row]) -> str:
    head = Row("what", "found", "wanted", True)
    widths = [max(len(getattr(row, name)) for row in [head, *rows]) for name in ("what", "found", "wanted")]
    lines = []
    for row in [head, *rows]:
        texts = (text.ljust(width) for text, width in zip((row.what, row.found, row.wanted), widths, strict=True))
        lines.append("  ".join([*texts, "" if row is head else "holds" if row.holds else "DOES NOT HOLD"]).rstrip())
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Ports:
    http: int
    named: int
    """Of the binary socket that has a listener; clients of the other miss."""
    unnamed: int
    metrics: int


def config(ports: Ports, cluster: DemoCluster, binary: list[int], events: Path, follow: bool) -> dict[str, Any]:
    """A realistic config, with metrics and events; redirects of lookups are rewritten, or followed."""
    listeners = [
        [
            f"internal:{broker.web}",
            f"internal:pulsar://127.0.0.1:{port}",
            f"external:https://broker-{broker.index}.{HOST}",
            f"external:pulsar://broker-{broker.index}.{HOST}:6650",
            f"external:pulsar+ssl://broker-{broker.index}.{HOST}:6651",
        ]
        for broker, port in zip(cluster.brokers, binary, strict=True)
    ]
    return {
        "bindAddresses": [
            f"http://127.0.0.1:{ports.http}",
            f"external:pulsar://127.0.0.1:{ports.named}",
            f"pulsar://127.0.0.1:{ports.unnamed}",
        ],
        "brokers": {
            "webServiceUrl": [broker.web for broker in cluster.brokers],
            "brokerServiceUrl": [f"pulsar://127.0.0.1:{port}" for port in binary],
        },
        "ingresses": [{"name": "public", "hosts": [HOST, f"*.{HOST}"], "listener": "external"}],
        "advertisedListeners": [
            {"broker": inside(number), "listeners": listeners[number]} for number in range(BROKERS)
        ],
        "redirects": {"lookup": "follow" if follow else "rewrite", "admin": "follow"},
        "events": {"path": str(events)},
        "metrics": {"address": f"127.0.0.1:{ports.metrics}"},
        "console": {"address": None},
        "drainSeconds": 5,
        "log": {"level": "warning", "format": "text"},
    }


async def soak(seconds: float, seed: int) -> Totals:
    dice, tally = random.Random(seed), Tally()
    ports = Ports(*free_ports(4))
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        events, path, said = folder / "events", folder / "config.yaml", folder / "log"
        async with brokers(dice, tally) as (cluster, binary):

            def write(follow: bool) -> None:
                new = folder / "new.yaml"
                new.write_text(yaml.safe_dump(config(ports, cluster, binary, events, follow)))
                new.replace(path)  # the sidecar may read it at any moment

            write(follow=False)
            command = [sys.executable, "-m", "pulsar_ingress_proxy", "run", "--config", str(path)]
            with started(command, ports.metrics, None, said) as child:
                await _ready(ports.metrics)
                until = monotonic() + seconds
                resident: list[int] = []
                beside = [
                    asyncio.ensure_future(_sample(child, resident)),
                    asyncio.ensure_future(_unload(cluster)),
                    asyncio.ensure_future(_reload(child, write)),
                ]
                try:
                    await _load(ports, dice, tally, until)
                except ConnectionRefusedError as fault:
                    raise CannotMeasure(f"the sidecar is gone: {fault}\n{said.read_text(errors='replace')}") from None
                for task in beside:
                    task.cancel()
                await asyncio.gather(*beside, return_exceptions=True)
                resident.append(child.resident_bytes())
                shown = await _quiet(ports.metrics)
        log = said.read_text(errors="replace")
        return Totals(
            hits=shown.total("listener_hits_total"),
            misses=shown.total("listener_misses_total"),
            lookups=shown.total("requests_total", kind="lookup"),
            events=sum(1 for event in written(events) if event["kind"] == "lookup"),
            dropped=shown.total("events_dropped_total"),
            in_flight=shown.total("in_flight_requests"),
            connections=shown.total("connections"),
            buffered=shown.total("buffered_bytes"),
            tracebacks=log.count("Traceback (most recent call last)"),
            resident=tuple(resident),
            tally=tally,
        )


async def _ready(port: int) -> None:
    until = monotonic() + START_SECONDS
    while monotonic() < until:
        try:
            await asyncio.to_thread(_get, port, "/readyz")
        except OSError:
            await asyncio.sleep(0.05)
        else:
            return
    raise CannotMeasure("the sidecar does not become ready")


async def _load(ports: Ports, dice: random.Random, tally: Tally, until: float) -> None:
    http = [partial(http_session, ports.http, dice, tally, until)] * HTTP_CLIENTS
    named = [partial(binary_session, ports.named, True, dice, tally, until)] * (BINARY_CLIENTS * 2 // 3)
    unnamed = [partial(binary_session, ports.unnamed, False, dice, tally, until)] * (BINARY_CLIENTS // 3)
    await asyncio.gather(*(sessions(session, tally, until, MOST_SESSIONS) for session in (*http, *named, *unnamed)))


async def _sample(child: Child, resident: list[int]) -> None:
    while True:
        resident.append(child.resident_bytes())
        await asyncio.sleep(SAMPLE_SECONDS)


async def _unload(cluster: DemoCluster) -> None:
    """Bundles lose their owners, so that lookups are redirected again."""
    while True:
        cluster.owners.clear()
        await asyncio.sleep(UNLOAD_SECONDS)


async def _reload(child: Child, write: Callable[[bool], None]) -> None:
    follow = False
    while True:
        await asyncio.sleep(RELOAD_SECONDS)
        follow = not follow
        write(follow)
        os.kill(child.pid, signal.SIGHUP)


class Shown:
    """One scrape of /metrics."""

    def __init__(self, text: str) -> None:
        self._samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def total(self, name: str, **labels: str) -> int:
        return int(
            sum(
                sample.value
                for sample in self._samples
                if sample.name == f"pulsar_ingress_{name}" and labels.items() <= sample.labels.items()
            )
        )


async def _quiet(port: int) -> Shown:
    """The metrics once nothing is in flight and no client is connected, or at the timeout."""
    until = monotonic() + QUIET_SECONDS
    while True:
        shown = Shown(await asyncio.to_thread(_get, port, "/metrics"))
        if not (shown.total("in_flight_requests") or shown.total("connections")) or monotonic() > until:
            return shown
        await asyncio.sleep(0.1)


def _get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        text: bytes = answer.read()
    return text.decode()


def written(folder: Path) -> Iterator[dict[str, Any]]:
    """Every event of the finished files."""
    for path in sorted(folder.glob("[!.]*.jsonl.gz")):
        with gzip.open(path, "rt") as lines:
            yield from map(json.loads, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Mixed load on a sidecar, and whether its counts add up afterwards.")
    parser.add_argument("--minutes", type=float, default=5.0, help="of load (default 5)")
    parser.add_argument("--seed", type=int, default=7, help="of chance (default 7)")
    options = parser.parse_args()
    busy = os.getloadavg()[0]
    try:
        totals = asyncio.run(soak(options.minutes * 60, options.seed))
    except CannotMeasure as fault:
        sys.exit(f"soak: {fault}")
    rows, tally = checks(totals), totals.tally
    with suppress(BrokenPipeError):
        print(
            f"{options.minutes:g} minutes, {tally.sessions:,} connections, {tally.answered:,} lookups and "
            f"{tally.others:,} other requests answered; load average before it {busy:.1f}"
        )
        print(table(rows))
        tenths = (totals.resident[len(totals.resident) * tenth // 10] for tenth in range(10))
        print(f"resident memory by tenths of the time: {', '.join(f'{sample / 2**20:.1f}' for sample in tenths)} MiB")
        if tally.wrong:
            print(described(tally.wrong))
    sys.exit(0 if all(row.holds for row in rows) else 1)


if __name__ == "__main__":
    main()
