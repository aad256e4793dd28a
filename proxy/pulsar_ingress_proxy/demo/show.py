"""`demo`: three simulated brokers, the sidecar, a client that looks topics up with and without it, and the console.

The demo plays the gateway and its DNS: every name on the listener `external` leads to the sidecar, with the
name as Host and https as the scheme. Names of the cluster's inside are looked up for real, and fail as they would.
"""

import asyncio
import importlib.util
import json
import shlex
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import yaml

from pulsar_ingress_proxy.app.sidecar import Sidecar
from pulsar_ingress_proxy.config import load
from pulsar_ingress_proxy.demo.brokers import DemoCluster, bundle
from pulsar_ingress_proxy.demo.load import Load, ask
from pulsar_ingress_proxy.tools.terminal import Palette

HOST = "pulsar.example.com"
TOPICS = ("orders", "payments", "shipments", "returns")
PARTNERS = "partners.example.net"
_PORT, _METRICS_PORT, _CONSOLE_PORT = 18080, 19090, 19091


@dataclass(frozen=True, slots=True)
class Journey:
    """The requests of a client for one topic and their answers, as lines of text, and the result."""

    lines: list[str]
    reached: str | None
    problem: str | None


async def _journey(session: aiohttp.ClientSession, gateway: str, path: str) -> Journey:
    """An external client: it asks the ingress's host, then follows redirects whose host it can resolve."""
    url = f"https://{HOST}{path}"
    lines: list[str] = []
    for _ in range(6):
        status, location, body = await ask(session, gateway, url)
        if status == 307 and location is not None:
            lines += (f"GET {url}", f"    {status} Location: {location}")
            if problem := await _unresolvable(urlsplit(location).hostname or ""):
                return Journey(lines, None, problem)
            url = location
            continue
        address, said = _address(status, body)
        lines += (f"GET {url}", f"    {status} {said}")
        problem = await _unresolvable(urlsplit(address).hostname or "") if address else None
        return Journey(lines, None if problem else address or "answered", problem)
    return Journey(lines, None, "it is sent in a circle")


def _address(status: int, body: bytes) -> tuple[str | None, str]:
    """The broker address in a lookup's answer, and the answer in a line."""
    try:
        answer = json.loads(body)
    except ValueError:
        return None, body.decode("utf-8", "replace")[:100]
    address = answer.get("brokerUrlTls") or answer.get("brokerUrl") if status == 200 else None
    return address, f"brokerUrlTls: {address}" if address else json.dumps(answer)[:100]


async def _unresolvable(host: str) -> str | None:
    """Why an external client cannot use this name; names of the listener lead to the gateway."""
    if host == HOST or host.endswith("." + HOST):
        return None
    try:
        async with asyncio.timeout(3):
            await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError):
        return f"{host} does not resolve outside the cluster"
    return None


def _config(cluster: DemoCluster, ports: tuple[int, int, int], events: Path | None) -> dict[str, Any]:
    return {
        "clusterName": "demo",
        "bindAddresses": [f"http://127.0.0.1:{ports[0]}"],
        "brokers": {"webServiceUrl": [broker.web for broker in cluster.brokers]},
        "ingresses": [{"name": "public", "hosts": [HOST, f"*.{HOST}"], "listener": "external"}],
        "advertisedListeners": [
            {"broker": broker.name, "listeners": f"internal:{broker.web}, {_addresses('external', number, HOST)}"}
            for number, broker in enumerate(cluster.brokers)
        ],
        "events": {"path": None if events is None else str(events.resolve())},
        "metrics": {"address": f"127.0.0.1:{ports[1]}"},
        "console": {"address": f"127.0.0.1:{ports[2]}"},
        "log": {"level": "warning"},
    }


def _addresses(listener: str, number: int, domain: str) -> str:
    host = f"broker-{number}.{domain}"
    return f"{listener}:https://{host}, {listener}:pulsar+ssl://{host}:{6651 + number}"


def _add_partners(file: Path) -> None:
    """Write a second ingress into the config."""
    config = yaml.safe_load(file.read_text())
    partners = {
        "name": "partners",
        "hosts": [PARTNERS, f"*.{PARTNERS}"],
        "listener": "partners",
        "expose": ["lookup", "client"],
        "allowedListeners": ["partners"],
    }
    config["ingresses"].append(partners)
    for number, line in enumerate(config["advertisedListeners"]):
        line["listeners"] += f", {_addresses('partners', number, PARTNERS)}"
    _write(file, config)


@asynccontextmanager
async def _stage(events: Path | None) -> AsyncIterator[tuple[DemoCluster, Sidecar, Path, str]]:
    """Brokers, sidecar and its config file, for as long as the demo lasts."""
    with tempfile.TemporaryDirectory(prefix="pulsar-ingress-demo-") as folder:
        async with DemoCluster({"external": HOST, "partners": PARTNERS}) as cluster:
            file = Path(folder) / "config.yaml"
            ports = (_free(_PORT), _free(_METRICS_PORT), _free(_CONSOLE_PORT))
            _write(file, _config(cluster, ports, events))
            sidecar = Sidecar(load(file, {}), str(file))
            await sidecar.start()
            try:
                yield cluster, sidecar, file, f"http://127.0.0.1:{ports[0]}"
            finally:
                await sidecar.stop()


def _write(file: Path, config: dict[str, Any]) -> None:
    file.write_text(yaml.safe_dump(config, sort_keys=False, width=1000))


def _free(wanted: int) -> int:
    """This port if it is free, else one that the system chooses."""
    for port in (wanted, 0):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)) as probe:
            return int(probe.getsockname()[1])
    raise OSError("no free port on 127.0.0.1")


async def run(once: bool, ended: asyncio.Event, events: Path | None = None) -> bool:
    """Run the demo, with an event log if there is a folder for it; returns whether all went as expected."""
    paint = Palette(sys.stdout)
    async with _stage(events) as (cluster, sidecar, file, gateway), aiohttp.ClientSession() as session:
        journeys = await _travel(cluster, session, gateway)
        _print_screen(paint, journeys, gateway, sidecar)
        if not once:
            _add_partners(file)
            await sidecar.reload(load(file, {}))
            async with asyncio.TaskGroup() as tasks:
                load_task = tasks.create_task(Load(cluster, session, gateway).run())
                _print_next(paint, gateway, sidecar, file)
                await ended.wait()
                load_task.cancel()
    if events is not None:  # whose last file is finished now
        _print_pipeline(paint, events)
    return all(without.problem and with_it.reached for _, without, with_it in journeys)


async def _travel(
    cluster: DemoCluster, session: aiohttp.ClientSession, gateway: str
) -> list[tuple[str, Journey, Journey]]:
    """Each request twice: through a gateway that leads to a broker, and through one that leads to the sidecar."""
    journeys = []
    for topic in TOPICS:
        path = f"/lookup/v2/topic/persistent/public/default/{topic}"
        without = await _journey(session, cluster.brokers[1].web, path)
        journeys.append((f"lookup {topic}", without, await _journey(session, gateway, path)))
    path = f"/admin/v2/persistent/public/default/{TOPICS[0]}/stats"
    owner = cluster.owners[bundle(f"persistent://public/default/{TOPICS[0]}")]
    without = await _journey(session, cluster.brokers[(owner + 1) % 3].web, path)
    journeys.append((f"stats  {TOPICS[0]}", without, await _journey(session, gateway, path)))
    return journeys


def _print_screen(paint: Palette, journeys: list[tuple[str, Journey, Journey]], gateway: str, sidecar: Sidecar) -> None:
    _, without, with_it = journeys[0]
    print(paint.bold(f"client -> {HOST} (the gateway) -> sidecar on {gateway} -> three brokers\n"))
    print(paint.bold("A lookup without the sidecar"))
    _print_journey(paint, without)
    print(paint.bold("\nThe same lookup with it"))
    _print_journey(paint, with_it)
    print(paint.bold(f"\n{'request':<18} {'without':<34} with"))
    for name, plain, proxied in journeys:
        ends = "led inside the cluster" if plain.problem else "reached"
        goal = proxied.reached or proxied.problem or ""
        shown = paint.bad(f"{ends:<34}") if plain.problem else paint.good(f"{ends:<34}")
        print(f"{name:<18} {shown} {paint.good(goal) if proxied.reached else paint.bad(goal)}")
    hits = sum(sidecar.metrics.hits.values.values())
    misses = sum(sidecar.metrics.misses.values.values())
    print(f"\nlistener hits {hits:.0f}, misses {misses:.0f}", flush=True)


def _print_next(paint: Palette, gateway: str, sidecar: Sidecar, file: Path) -> None:
    print(paint.bold("\nWhere to look next"))
    lookup = "/lookup/v2/topic/persistent/public/default/anything"
    print(f"  the console   {paint.bold(f'http://127.0.0.1:{sidecar.console_port}/')}")
    print(f"  the metrics   http://127.0.0.1:{sidecar.metrics_port}/metrics")
    print("  A load runs meanwhile: hits, misses, redirects and one leak.\n")
    print(f"  curl -i -H 'Host: {HOST}' {gateway}{lookup}")
    print(f"  curl -s http://127.0.0.1:{sidecar.metrics_port}/metrics | grep ^pulsar_ingress_listener")
    print(f"  {_proxy()} explain --config {file} https://{HOST}{lookup}")
    print(paint.dim("\nRunning until Ctrl-C."), flush=True)


def _proxy() -> str:
    """How this program was started."""
    is_module = Path(sys.argv[0]).name == "__main__.py"
    return f"{sys.executable} -m pulsar_ingress_proxy" if is_module else sys.argv[0]


def _print_pipeline(paint: Palette, events: Path) -> None:
    """The commands that make tables from the events, to paste into the same shell."""
    sibling = Path(sys.argv[0]).with_name("pulsar-ingress-pipeline")
    pipeline = shlex.quote(str(sibling)) if "/" in sys.argv[0] and sibling.exists() else sibling.name
    folder, tables, report = (shlex.quote(f"{events}{suffix}") for suffix in ("", "-tables", "-report.html"))
    print(paint.bold("\nWhat the events say"))
    print(f"  {pipeline} run --events {folder} --tables {tables}")
    print(f"  {pipeline} report --tables {tables} --out {report}")
    print(f"  {pipeline} suggest --tables {tables}")
    if importlib.util.find_spec("pyspark") is None:
        print(paint.dim("  These need the extra `pipeline`: run `make setup` first."))


def _print_journey(paint: Palette, journey: Journey) -> None:
    for line in journey.lines:
        print(f"  {line}")
    if journey.problem:
        print("  " + paint.bad(f"x {journey.problem}"))
    else:
        print("  " + paint.good(f"ok {journey.reached}"))
