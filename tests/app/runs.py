"""`run` with a config file that a test changes: beside the test in its process, or as a process of its own."""

import asyncio
import json
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families
from raw import LOOKUP, Message, Wire
from wires import dialed, free_port

from pulsar_ingress_proxy.app import runner


class Place:
    """A config file, and the sockets that it names."""

    def __init__(self, path: Path, broker: str) -> None:
        self.path = path
        self.port, self.metrics_port = free_port(), free_port()
        self.values: dict[str, Any] = {
            "bindAddresses": [f"http://127.0.0.1:{self.port}"],
            "metrics": {"address": f"127.0.0.1:{self.metrics_port}"},
            "console": {"address": None},
            "brokers": {"webServiceUrl": [broker]},
            "lookupListenerName": "first",
            "drainSeconds": 5,
        }

    def text(self, **changes: Any) -> str:
        return yaml.safe_dump({**self.values, **changes})

    def write(self, **changes: Any) -> None:
        self.path.write_text(self.text(**changes))

    async def connect(self, data: bytes = b"", port: int | None = None) -> Wire:
        wire = await dialed(Wire, self.port if port is None else port)
        if data:
            wire.send(data)
        return wire

    async def ask(self, data: bytes = LOOKUP, port: int | None = None) -> Message:
        wire = await self.connect(data, port)
        message = await wire.message()
        wire.transport.abort()
        return message

    async def probe(self, path: str) -> tuple[int, str]:
        answer = await self.ask(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path.encode(), self.metrics_port)
        return answer.status, answer.body.decode()

    async def number(self, name: str, /, **labels: str) -> float:
        """A sample of /metrics; -1 where it is not there."""
        _, text = await self.probe("/metrics")
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == f"pulsar_ingress_{name}" and sample.labels == labels:
                    return sample.value
        return -1


class Said(logging.Handler):
    """What is logged, for a test to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._more = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self._more.set()

    async def until(self, text: str, times: int = 1) -> str:
        """The line that has this, the so-manieth of them."""
        while len(found := [line for line in self.lines if text in line]) < times:
            self._more.clear()
            await self._more.wait()
        return found[times - 1]

    def count(self, text: str) -> int:
        return sum(text in line for line in self.lines)


class Looks:
    """How often `run` has looked at its file."""

    def __init__(self) -> None:
        self._count = 0
        self._looked = asyncio.Event()
        self._read = runner._text

    async def __call__(self, path: Path) -> str | None:
        text = await self._read(path)
        self._count += 1
        self._looked.set()
        return text

    async def more(self, count: int) -> None:
        wanted = self._count + count
        while self._count < wanted:
            self._looked.clear()
            await self._looked.wait()


@asynccontextmanager
async def beside(place: Place, hold: bool = False) -> AsyncIterator[Said]:
    """`run` in this process, from its first word to an end by SIGTERM."""
    said = Said()
    root, ours = logging.getLogger(), logging.getLogger("proxy")
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    root.setLevel("INFO")
    ours.addHandler(said)
    task = asyncio.create_task(runner.run(place.path, hold))
    try:
        await asyncio.wait([task, asyncio.ensure_future(_spoken(said))], return_when=asyncio.FIRST_COMPLETED)
        yield said
        if not task.done():
            os.kill(os.getpid(), signal.SIGTERM)
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        ours.removeHandler(said)
        root.handlers[:] = handlers
        root.setLevel(level)


async def _spoken(said: Said) -> None:
    while not (said.count("serving ") or said.count("holding: ")):
        said._more.clear()
        await said._more.wait()


class Apart:
    """`run` as a process of its own, and the lines of its log."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.pid = process.pid
        self.output = b""

    async def said(self, text: str) -> dict[str, str]:
        """The next line that has this."""
        assert self._process.stderr is not None
        while line := await self._process.stderr.readline():
            self.output += line
            if text in (entry := json.loads(line))["message"]:
                return dict(entry)
        raise EOFError(self.output.decode())

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ended(self) -> int:
        assert self._process.stderr is not None
        self.output += await self._process.stderr.read()
        return await self._process.wait()

    @property
    def lines(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in self.output.splitlines()]


@asynccontextmanager
async def apart(path: Path, *options: str, environment: Mapping[str, str] | None = None) -> AsyncIterator[Apart]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pulsar_ingress_proxy", "run", "--config", str(path), *options,
        stderr=PIPE, env={**os.environ, **(environment or {})},
    )  # fmt: skip
    try:
        yield Apart(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
