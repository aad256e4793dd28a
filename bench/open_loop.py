"""Latency under an open-loop load: requests are sent when they are due, whether or not earlier ones were answered.

A request's latency is counted from the moment it was due, so a proxy that stalls is charged for every request that had
to wait. Requests are due at random moments (a Poisson process), at a fixed average rate.
"""

import asyncio
import math
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from selectors import SelectSelector
from typing import Any, cast

from httptools import HttpResponseParser

from bench.figures import Spread, markdown
from bench.peers import OURS, RIVALS
from bench.processes import CannotMeasure, Cores
from bench.running import running
from bench.traffic import ANSWERS, LISTENER, Traffic

RATES = (200, 1000)
"""Requests a second."""
PERCENTILES = (50, 90, 99, 99.9)
DIRECT = "no proxy"
CONNECTIONS = 64
"""Maximum number of connections. If all are busy, a request waits for one, and its latency includes that."""
CLIENTS = 10_000
PATIENCE = 10
"""Seconds to wait for the last answers."""

Latencies = Mapping[int, Mapping[str, Sequence[Sequence[float]]]]
"""Latencies in seconds, by rate, proxy and round."""


class Connection(asyncio.Protocol):
    """A connection with one request at a time."""

    def __init__(self) -> None:
        self._parser = HttpResponseParser(self)
        self._answered: asyncio.Future[int] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    async def ask(self, request: bytes) -> int:
        """Send a request; returns the status of its answer."""
        self._answered = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._answered

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        if self._answered and not self._answered.done():
            self._answered.set_result(self._parser.get_status_code())

    def connection_lost(self, fault: Exception | None) -> None:
        if self._answered and not self._answered.done():
            self._answered.set_exception(CannotMeasure("a connection was closed before its request was answered"))


def run(port: int, requests: Iterator[bytes], rate: int, seconds: float, seed: int) -> list[float]:
    """Send requests at this average rate; returns their latencies."""
    # select() is the one wait in Python's event loops that is not rounded up to a millisecond.
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(SelectSelector())) as runner:
        return runner.run(send(port, requests, rate, seconds, seed))


async def send(port: int, requests: Iterator[bytes], rate: int, seconds: float, seed: int) -> list[float]:
    loop, dice = asyncio.get_running_loop(), random.Random(seed)
    connections = [(await loop.create_connection(Connection, "127.0.0.1", port))[1] for _ in range(CONNECTIONS)]
    idle: asyncio.LifoQueue[Connection] = asyncio.LifoQueue()
    for connection in connections:
        idle.put_nowait(connection)
    refused: list[int] = []

    async def one(request: bytes, due: float) -> float:
        connection = await idle.get()
        if (status := await connection.ask(request)) >= 400:
            refused.append(status)
        idle.put_nowait(connection)
        return loop.time() - due

    asked = []
    due, end = loop.time(), loop.time() + seconds
    while (due := due + dice.expovariate(rate)) < end:
        await asyncio.sleep(due - loop.time())
        asked.append(asyncio.create_task(one(next(requests), due)))
    try:
        async with asyncio.timeout(PATIENCE):
            latencies = await asyncio.gather(*asked)
    except TimeoutError:
        raise CannotMeasure(f"not all requests were answered within {PATIENCE} s") from None
    finally:
        for connection in connections:
            connection.transport.abort()
    if refused:
        raise CannotMeasure(f"{len(refused)} of {len(asked)} requests were refused, the first with {refused[0]}")
    return latencies


def compare(rounds: int, seconds: float, seed: int, cores: Cores) -> Latencies:
    """All proxies in turns, and the broker without one, at each rate."""
    names = [DIRECT, *(peer.name for peer in (*RIVALS, OURS))]
    found: dict[int, dict[str, list[list[float]]]] = {rate: {name: [] for name in names} for rate in RATES}
    requests = list(Traffic(CLIENTS, seed).requests(ANSWERS, math.ceil(max(RATES) * seconds * 1.5)))
    with (
        tempfile.TemporaryDirectory(prefix="bench-open-loop-") as folder,
        running(Path(folder), (*RIVALS, OURS), seed, cores) as proxies,
    ):
        ports = {DIRECT: proxies[OURS.name].place.broker} | {name: one.place.port for name, one in proxies.items()}
        for turn in range(rounds):
            for rate, by_proxy in found.items():
                for place in range(len(names)):
                    name = names[(place + turn) % len(names)]
                    sent = map(tagged, requests) if name == DIRECT else iter(requests)
                    by_proxy[name].append(run(ports[name], sent, rate, seconds, seed + turn))
                    what = f"round {turn + 1}  open loop, {rate}/s"
                    print(f"{what:<42} {name:<24} {cells(by_proxy[name][-1:])}", file=sys.stderr)
    return found


def tagged(request: bytes) -> bytes:
    """A lookup as a proxy would send it: the broker refuses one without the listener."""
    return request.replace(b"\r\n", f"\r\nX-Pulsar-ListenerName: {LISTENER}\r\n".encode(), 1)


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that this percentage of all values does not exceed (nearest rank)."""
    return sorted(values)[max(math.ceil(len(values) * percent / 100), 1) - 1]


def spreads(rounds: Sequence[Sequence[float]]) -> dict[str, Spread]:
    """The percentiles of each round in milliseconds, so that one round with a stalled machine does not decide."""
    return {
        f"p{percent}": Spread.of([percentile(latencies, percent) * 1000 for latencies in rounds])
        for percent in PERCENTILES
    }


def cells(rounds: Sequence[Sequence[float]]) -> list[str]:
    return [spread.text(2) for spread in spreads(rounds).values()]


def table(latencies: Latencies) -> str:
    lines = [
        [f"{rate:,}/s", name, *cells(found)] for rate, by_proxy in latencies.items() for name, found in by_proxy.items()
    ]
    return markdown(["rate", "open loop, through", *(f"p{percent}, ms" for percent in PERCENTILES)], lines)


def as_json(latencies: Latencies) -> dict[str, Any]:
    """Percentiles in milliseconds, by rate and proxy."""
    return {
        str(rate): {
            name: {percent: asdict(spread) for percent, spread in spreads(found).items()}
            for name, found in by_proxy.items()
        }
        for rate, by_proxy in latencies.items()
    }
