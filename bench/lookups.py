"""CPU time of the proxy process per lookup, ours beside a plain aiohttp proxy, alternating in one run.

    python -m bench.lookups [--requests N] [--rounds N] [--connections N] [--json FILE]

The figure that travels between machines is the ratio: seconds depend on the machine, the ratio hardly.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from pathlib import Path

import yaml

from bench import peers
from bench.processes import Child, child

LOOKUP = "/lookup/v2/topic/persistent/public/default/orders"
HOST = "pulsar.example.com"


async def measure(proxy: Child, port: int, requests: int, connections: int) -> float:
    """CPU microseconds of the proxy per request, over this many requests."""
    before = proxy.cpu_seconds()
    share = requests // connections
    await asyncio.gather(*(_ask(port, share) for _ in range(connections)))
    return (proxy.cpu_seconds() - before) / (share * connections) * 1e6


async def _ask(port: int, times: int) -> None:
    request = f"GET {LOOKUP} HTTP/1.1\r\nHost: {HOST}\r\nUser-Agent: Pulsar-Java-v4.2.4\r\nAccept: */*\r\n\r\n".encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(times):
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"a lookup failed: {head!r}")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
    writer.close()


def sidecar_config(broker: int, port: int, metrics: int) -> dict[str, object]:
    return {
        "bindAddresses": [f"http://127.0.0.1:{port}"],
        "brokers": {"webServiceUrl": [f"http://127.0.0.1:{broker}"]},
        "ingresses": [{"name": "public", "hosts": [HOST, f"*.{HOST}"], "listener": "external"}],
        "advertisedListeners": [
            {
                "broker": "pulsar-broker-{n}.pulsar-broker.pulsar.svc.cluster.local",
                "listeners": "external:https://broker-{n}.pulsar.example.com,"
                "external:pulsar+ssl://broker-{n}.pulsar.example.com:{n+6651}",
            }
        ],
        "metrics": {"address": f"127.0.0.1:{metrics}"},
        "log": {"level": "warning"},
    }


async def compare(options: argparse.Namespace) -> dict[str, list[float]]:
    """Alternate between the proxies, so that what else the machine does falls on both."""
    broker, ours, plain, metrics = (peers.free_port() for _ in range(4))
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(yaml.safe_dump(sidecar_config(broker, ours, metrics)))
        async with (
            child("-m", "bench.peers", "broker", str(broker), port=broker),
            child("-m", "bench.peers", "plain", str(plain), str(broker), port=plain) as plain_proxy,
            child("-m", "proxy", "run", "--config", str(config), port=ours) as sidecar,
        ):
            proxies = {"pulsar-ingress-proxy": (sidecar, ours), "plain aiohttp proxy": (plain_proxy, plain)}
            figures: dict[str, list[float]] = {name: [] for name in proxies}
            for _ in range(options.rounds + 1):
                for name, (process, port) in proxies.items():
                    figures[name].append(await measure(process, port, options.requests, options.connections))
                    print(f"{name:<22} {figures[name][-1]:7.1f} µs", file=sys.stderr)
            return {name: values[1:] for name, values in figures.items()}  # the first round warms up


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=8000, help="in each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    figures = asyncio.run(compare(options))
    medians = {name: statistics.median(values) for name, values in figures.items()}
    base = medians["plain aiohttp proxy"]
    print(f"{'proxy':<22} {'CPU µs/lookup':>14} {'spread':>15} {'ratio':>6}")
    for name, values in figures.items():
        spread = f"{min(values):.1f} - {max(values):.1f}"
        print(f"{name:<22} {medians[name]:>14.1f} {spread:>15} {medians[name] / base:>6.2f}")
    if options.json:
        options.json.write_text(json.dumps({"cpu_us_per_lookup": figures, "medians": medians}, indent=2) + "\n")


if __name__ == "__main__":
    main()
