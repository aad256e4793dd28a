"""A sidecar as a process of its own, and clients that fill all that it holds for them: it stays within its bound."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from raw import RawBroker
from wires import unused_port

from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.memory import MIB
from pulsar_ingress_proxy.tools.check import most_memory

FILLED = ("limits.connections", "limits.inFlight", "limits.bufferBytes")
FIELDS = b"".join(b"X-%d: %b\r\n" % (number, b"a" * 300) for number in range(90))


def resident(pid: int) -> int:
    """Bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


@pytest.fixture
async def silent(tidy: None) -> AsyncIterator[RawBroker]:
    """A broker that accepts, reads, and never says a word."""
    one = RawBroker()
    await one.open()
    yield one
    await one.close()


async def test_process_memory_stays_within_configured_limits_under_flood(silent: RawBroker, tmp_path: Path) -> None:
    port, metrics = unused_port(), unused_port()
    settings = {
        "bindAddresses": [f"http://127.0.0.1:{port}"],
        "brokers": {"webServiceUrl": [silent.url]},
        "metrics": {"address": f"127.0.0.1:{metrics}"},
        "console": {"address": None},
        "events": {"path": str(tmp_path / "events")},
        "limits": {"connections": 1000, "inFlight": 1000, "bufferBytes": 32 * MIB},
    }
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(settings))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pulsar_ingress_proxy", "run", "--config", str(file)
    )
    try:
        at_start = await started(process.pid, port)
        head = b"GET /lookup/v2/topic/persistent/t/n/%b HTTP/1.1\r\nHost: pulsar\r\n" + FIELDS
        floods = (
            lambda number: head % (b"%d" % number),  # a head that never ends
            lambda number: head % (b"%d" % number) + b"\r\n",  # a request whose answer never comes
            lambda number: (head % b"x" + b"\r\n") * 8,  # and more of them behind it
            lambda number: (
                b"POST /topics/persistent/t/n/x HTTP/1.1\r\nHost: a\r\nContent-Length: 999999\r\n\r\n" + b"x" * 400_000
            ),
        )
        writers = []
        for number in range(900):
            with suppress(ConnectionError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writers.append(writer)
                writer.write(floods[number % len(floods)](number))
        # The sidecar answers probes in the order in which it reads: all that was sent before has been read by then.
        for _ in range(3):
            await probe(metrics)
        held, parts = resident(process.pid) - at_start, most_memory(load_mapping(settings))
        filled = sum(parts[key] for key in FILLED)
        assert held <= filled, f"{held / MIB:.0f} MiB of {filled / MIB:.0f}"
        for writer in writers:
            writer.transport.abort()
    finally:
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def started(pid: int, port: int) -> int:
    """Wait until it accepts; what it takes then."""
    while True:
        with suppress(ConnectionError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return resident(pid)
        await asyncio.sleep(0.05)


async def probe(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert b" 200 " in await reader.readline()
    writer.close()
