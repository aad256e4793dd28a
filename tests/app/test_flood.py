"""A sidecar as a process of its own, and clients that fill all that it holds for them: it stays within its bound."""

import signal
from contextlib import suppress
from pathlib import Path

from raw import RawBroker
from runs import Place, apart

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


async def test_process_memory_stays_within_configured_limits_under_flood(broker: RawBroker, tmp_path: Path) -> None:
    """The broker accepts, reads, and never says a word."""
    place = Place(tmp_path / "config.yaml", broker.url)
    place.values |= {
        "events": {"path": str(tmp_path / "events")},
        "drainSeconds": 0,
        "limits": {"connections": 1000, "inFlight": 1000, "bufferBytes": 32 * MIB},
    }
    place.write()
    head = b"GET /lookup/v2/topic/persistent/t/n/%b HTTP/1.1\r\nHost: pulsar\r\n" + FIELDS
    floods = (
        lambda number: head % (b"%d" % number),  # a head that never ends
        lambda number: head % (b"%d" % number) + b"\r\n",  # a request whose answer never comes
        lambda number: (head % b"x" + b"\r\n") * 8,  # and more of them behind it
        lambda number: (
            b"POST /topics/persistent/t/n/x HTTP/1.1\r\nHost: a\r\nContent-Length: 999999\r\n\r\n" + b"x" * 400_000
        ),
    )
    async with apart(place.path) as process:
        await process.said("serving ")
        at_start = resident(process.pid)
        wires = []
        for number in range(900):
            with suppress(ConnectionError):
                wires.append(await place.connect(floods[number % len(floods)](number)))
        # The sidecar answers probes in the order in which it reads: all that was sent before has been read by then.
        for _ in range(3):
            assert await place.probe("/livez") == (200, "ok\n")
        held, parts = resident(process.pid) - at_start, most_memory(load_mapping(place.values))
        filled = sum(parts[key] for key in FILLED)
        assert held <= filled, f"{held / MIB:.0f} MiB of {filled / MIB:.0f}"
        for wire in wires:
            wire.abort()
        process.send(signal.SIGTERM)
        assert await process.ended() == 0
