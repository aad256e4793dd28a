"""A soak test: a sidecar under mixed load while everything around it changes, and whether it adds up and stays level.

    python -m bench.soak [--minutes N] [--seed N] [--write]

Every lookup ends as a hit or a miss, once, and with one event; nothing is in flight when nobody asks; memory,
descriptors and tasks stay what they were after the warm-up. Exits 1 if one of these does not hold. With --write it
replaces the tables of docs/soak.md, between the comments that name them, and draws the plot.
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic

import yaml

from bench import soak_page
from bench.processes import CannotMeasure, free_ports, started
from bench.soak_brokers import CONFIGURED, Brokers
from bench.soak_checks import Sample, Totals, checks, table
from bench.soak_churn import Certificates, Churn, Pace
from bench.soak_clients import Socket, binary_session, described, http_session, sessions
from bench.soak_kubernetes import ApiServer, Objects
from bench.soak_sidecar import Ports, View, config, written
from bench.soak_tally import Tally

HTTP_CLIENTS, BINARY_CLIENTS = 24, 12
MOST_SESSIONS = 100_000  # of each client
SAMPLE_SECONDS = 1.0


async def soak(seconds: float, seed: int, pace: Pace) -> Totals:
    dice, tally, api = random.Random(seed), Tally(), ApiServer()
    ports = Ports(*free_ports(9))
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        events, path, said = folder / "events", folder / "config.yaml", folder / "log"
        certificates, objects = Certificates(folder / "certificates"), Objects(api, ports.pods, dice)
        async with api, Brokers(dice, tally, ports.pods) as brokers:
            for broker in brokers.cluster.brokers[CONFIGURED:]:
                objects.add_route(f"broker-{broker.index}")
                objects.add_pod(f"broker-{broker.index}", broker.name)

            def write_config(is_following: bool) -> None:
                new = folder / "new.yaml"
                new.write_text(yaml.safe_dump(config(ports, brokers, certificates, events, is_following)))
                new.replace(path)  # the sidecar may read it at any moment

            write_config(False)
            command = ["env", f"KUBECONFIG={api.kubeconfig(folder)}"]
            command += [sys.executable, "-m", "pulsar_ingress_proxy", "run", "--config", str(path)]
            with started(command, ports.metrics, None, said) as child:
                view = View(child, ports, objects, certificates)
                await view.ready()
                before, began = await view.sample(0), monotonic()
                churn = Churn(child, pace, dice, brokers, api, objects, certificates, write_config)
                clients = _load(ports, certificates, dice, tally, began + seconds)
                try:
                    samples = await _sampled(clients, churn, view, began)
                except ConnectionRefusedError as fault:
                    raise CannotMeasure(f"the sidecar is gone: {fault}\n{said.read_text(errors='replace')}") from None
                differences = await view.at_rest(before)
                after, shown = await view.sample(0), await view.metrics()
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
            tracebacks=tuple(log.split("Traceback (most recent call last)")[1:]),
            failed_reloads=tuple(line for line in log.splitlines() if "not reloaded" in line),
            differences=differences,
            samples=tuple(samples),
            before=before,
            after=after,
            changes=tuple((when - began, kind) for when, kind in churn.changes),
            tally=tally,
        )


async def _load(ports: Ports, certificates: Certificates, dice: random.Random, tally: Tally, until: float) -> None:
    """Until then. A third of the clients come through TLS; of the binary ones, another third has no listener."""
    tls = certificates.client_context()
    http = [Socket(ports.http)] * (HTTP_CLIENTS * 2 // 3) + [Socket(ports.https, tls)] * (HTTP_CLIENTS // 3)
    binary = [Socket(ports.named), Socket(ports.unnamed, has_listener=False), Socket(ports.secure, tls)]
    each = [partial(http_session, socket, dice, tally, until) for socket in http]
    each += [partial(binary_session, socket, dice, tally, until) for socket in binary * (BINARY_CLIENTS // 3)]
    await asyncio.gather(*(sessions(session, tally, until, MOST_SESSIONS) for session in each))


async def _sampled(clients: Coroutine[None, None, None], churn: Churn, view: View, began: float) -> list[Sample]:
    """Run the clients and the churn beside them to their ends, and look at the sidecar every second."""
    samples: list[Sample] = []
    loading, churning = asyncio.create_task(clients), churn.run()
    while not any(task.done() for task in (loading, *churning)):  # churn ends before it is stopped only if it fails
        samples.append(await view.sample(monotonic() - began))
        await asyncio.wait([loading, *churning], timeout=SAMPLE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    churn.stop()
    try:
        await asyncio.gather(loading, *churning)
    finally:
        for task in (loading, *churning):
            task.cancel()
    return samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0, help="of load (default 5)")
    parser.add_argument("--seed", type=int, default=7, help="of chance (default 7)")
    parser.add_argument("--write", action="store_true", help="into docs/soak.md, with a plot")
    options = parser.parse_args()
    busy = os.getloadavg()[0]
    try:
        totals = asyncio.run(soak(options.minutes * 60, options.seed, Pace()))
    except CannotMeasure as fault:
        sys.exit(f"soak: {fault}")
    rows, tally = checks(totals), totals.tally
    with suppress(BrokenPipeError):
        print(soak_page.summary(totals, options.minutes, options.seed, busy))
        print(table(rows))
        if tally.wrong:
            print(described(tally.wrong))
        print(*totals.differences, *totals.failed_reloads[:5], *totals.tracebacks[:1], sep="\n")
    if options.write:
        soak_page.write(totals, options.minutes, options.seed, busy)
    sys.exit(0 if all(row.holds for row in rows) else 1)


if __name__ == "__main__":
    main()
