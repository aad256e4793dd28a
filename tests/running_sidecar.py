"""A sidecar in the test's own process: how it is started, what it counts, and how it is stopped."""

import asyncio
import copy
import json
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pytest
from wires import ByteWire, W, dialed

from pulsar_ingress_proxy.app.sidecar import Sidecar
from pulsar_ingress_proxy.config import load_mapping

LOOPBACK: Mapping[str, Any] = {
    "metrics": {"address": "127.0.0.1:0"},
    "console": {"address": None},
    "drainSeconds": 0.05,
}
"""What most tests set, besides bind addresses and brokers."""


def merged(config: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """A config with other settings; what is a mapping in both is merged in turn."""
    result = copy.deepcopy(dict(config))
    for key, value in settings.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(value, dict) and isinstance(old, dict) else value
    return result


def skip_system_cas(environment: pytest.MonkeyPatch) -> None:
    """To load the system's CAs takes 30 ms, longer than most tests, and on loopback none is needed."""
    environment.setenv("SSL_CERT_FILE", os.devnull)


class RunningSidecar:
    """A sidecar, the connections that a test has made to it, and its metrics."""

    def __init__(self, sidecar: Sidecar) -> None:
        self.sidecar = sidecar
        self._dialed: list[ByteWire] = []

    async def dial(
        self, wire_type: Callable[[], W], port: int, tls: ssl.SSLContext | None, server_name: str | None
    ) -> W:
        """A connection to the sidecar that ends with it at the latest."""
        wire = await dialed(wire_type, port, tls, server_name)
        self._dialed.append(wire)
        return wire

    def number(self, name: str, /, **labels: str) -> float:
        """A sample as /metrics shows it; 0 where it is not there."""
        return sum(value for sample, value in self.samples(name).items() if dict(sample).items() >= labels.items())

    def samples(self, name: str) -> dict[tuple[tuple[str, str], ...], float]:
        name = f"pulsar_ingress_{name}"
        return {
            tuple(sorted(sample.labels.items())): sample.value
            for family in self.sidecar.metrics.collect()
            for sample in family.samples
            if sample.name == name
        }

    async def stop(self) -> None:
        for wire in self._dialed:
            wire.abort()
        await self.sidecar.stop()
        assert not self.number("buffered_bytes"), "what connections held was not given back"


R = TypeVar("R", bound=RunningSidecar)
P = ParamSpec("P")
T = TypeVar("T")


@asynccontextmanager
async def running(sidecar_type: Callable[[Sidecar], R], config: Mapping[str, Any]) -> AsyncIterator[R]:
    """A sidecar with this config, from its start to its stop."""
    sidecar = Sidecar(load_mapping(dict(config)))
    await sidecar.start()
    one = sidecar_type(sidecar)
    try:
        yield one
    finally:
        await one.stop()


@asynccontextmanager
async def starter(
    context: Callable[P, AbstractAsyncContextManager[T]],
) -> AsyncIterator[Callable[P, Awaitable[T]]]:
    """Enters as many of these contexts as a test wants, and leaves them all in the end."""
    async with AsyncExitStack() as stack:

        async def start(*arguments: P.args, **settings: P.kwargs) -> T:
            return await stack.enter_async_context(context(*arguments, **settings))

        yield start


@asynccontextmanager
async def while_running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Something that goes on in a task of its own meanwhile, and is cancelled in the end."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        await task  # which failed


def events_in(folder: Path) -> list[dict[str, Any]]:
    """The event log that a sidecar wrote there, uncompressed."""
    return [json.loads(line) for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]
