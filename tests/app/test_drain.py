"""The end of a sidecar: not ready first, nothing new, what runs finishes, and what was recorded is on disk."""

import asyncio
import gzip
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from raw import OK, Begin, RawBroker, Served, Start
from runs import Place, apart
from standstill import settled

GET = b"GET /admin/v2/clusters HTTP/1.1\r\nHost: pulsar\r\n\r\n"
PUT = b"PUT /admin/v2/x HTTP/1.1\r\nHost: pulsar\r\nContent-Length: 10\r\n\r\nhello"
HANDSHAKE = (
    b"GET /ws/v2/consumer/persistent/t/n/x/s HTTP/1.1\r\nHost: pulsar\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@asynccontextmanager
async def stopping(served: Served) -> AsyncIterator[asyncio.Task[None]]:
    """Inside, it drains; at the end, it is over."""
    task = asyncio.create_task(served.sidecar.stop())
    await settled(lambda: int(served.number("connections")))
    yield task
    await task


async def ready(served: Served) -> tuple[int, str]:
    async with ClientSession() as session, session.get(f"{served.metrics_url}/readyz") as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize("data", [GET, PUT + b"world"], ids=["GET", "PUT"])
async def test_draining_finishes_request_under_way_and_refuses_new_connections(
    start: Start, broker: RawBroker, data: bytes
) -> None:
    served = await start(broker.url, drainSeconds=30)
    idle, used = await served.client(), await served.client(GET)
    await broker.answer()
    await used.message()
    client = await served.client()
    client.send(data)
    wire = broker.wires[0]
    await wire.message()
    async with stopping(served) as task:
        assert await ready(served) == (503, "not ready: shutting down\n")
        for done in (idle, used):
            assert await done.rest() == b""
        with pytest.raises(ConnectionRefusedError):
            await served.client()
        assert not task.done()
        wire.send(OK)
        answer = await client.message()
        assert (answer.body, answer.head.one(b"connection")) == (b"ok", b"close")
        assert await client.rest() == b""
    assert served.number("connections") == served.number("in_flight_requests") == 0


async def test_draining_lets_upload_under_way_finish(begin: Begin) -> None:
    served, client, wire = await begin(PUT, drainSeconds=30)
    assert await wire.take(5) == b"hello"
    async with stopping(served):
        client.send(b"world")
        assert await wire.take(5) == b"world"
        wire.send(OK)
        assert (await client.message()).body == b"ok"


@pytest.mark.parametrize("data", [GET, PUT + b"world"], ids=["GET", "PUT"])
async def test_draining_lets_answer_under_way_finish_then_closes_its_connection(
    start: Start, broker: RawBroker, data: bytes
) -> None:
    """Its head is out and promised to go on: nobody may wait for the deadline because of that."""
    served = await start(broker.url, drainSeconds=3600)
    client = await served.client(data)
    wire = await broker.accept()
    await wire.message()
    wire.send(HEAD)
    await client.head()
    async with stopping(served):
        wire.send(b"2\r\nok\r\n0\r\n\r\n")
        assert await client.chunks() == b"ok"
        assert await client.rest() == b""


async def test_draining_closes_websocket_at_the_deadline(begin: Begin, broker: RawBroker) -> None:
    served, client, wire = await begin(HANDSHAKE, drainSeconds=1)
    wire.send(SWITCH)
    assert (await client.head()).status == 101
    other = await served.client(GET)
    second = await broker.accept()
    await second.head()
    async with stopping(served):
        client.send(b"ping")
        assert await wire.take(4) == b"ping"
        second.send(OK)
        assert (await other.message()).body == b"ok"
        await client.end()
        await wire.end()


async def test_stop_also_drains_connections_of_sockets_closed_by_reload(start: Start, broker: RawBroker) -> None:
    """Together, not one after another: each has its own deadline, and the later is the last."""
    served = await start(broker.url, drainSeconds=0.2)
    first = await served.client(GET)
    await (await broker.accept()).head()
    door = served.sidecar.http_servers[0]
    config = served.sidecar.snapshot.config
    bind = config.bind_addresses[0]
    await served.sidecar.reload(config.model_copy(update={"bind_addresses": (type(bind)(None, "http", "[::1]", 0),)}))
    assert door not in served.sidecar.http_servers
    await served.sidecar.stop()
    await first.end()
    assert served.number("connections") == 0


# A process.


def events(folder: Path) -> list[dict[str, Any]]:
    files = list(folder.iterdir())
    assert all(path.name.endswith(".jsonl.gz") and not path.name.startswith(".") for path in files), files
    lines = b"".join(gzip.decompress(path.read_bytes()) for path in files).splitlines()
    return [json.loads(line) for line in lines]


async def test_sigterm_answers_request_under_way_flushes_its_event_and_exits_0(
    broker: RawBroker, tmp_path: Path
) -> None:
    """The request that was under way is answered, its event is in a finished file, and the exit is 0."""
    place, folder = Place(tmp_path / "config.yaml", broker.url), tmp_path / "events"
    place.write(events={"path": str(folder)}, drainSeconds=30)
    async with apart(place.path) as process:
        await process.said("serving ")
        client, idle = await place.connect(GET), await place.connect()
        wire = await broker.accept()
        await wire.head()
        process.send(signal.SIGTERM)
        await idle.end()
        assert (await place.probe("/readyz"))[0] == 503
        with pytest.raises(ConnectionRefusedError):
            await place.connect()
        wire.send(OK)
        head = await client.head()
        assert head.one(b"connection") == b"close"
        assert await process.ended() == 0
    (event,) = events(folder)
    assert (event["status"], event["id"]) == (200, head.one(b"x-request-id").decode())
    client.transport.abort()
    idle.transport.abort()


async def test_sigterm_closes_open_websocket_flushes_its_event_and_exits_0(broker: RawBroker, tmp_path: Path) -> None:
    place, folder = Place(tmp_path / "config.yaml", broker.url), tmp_path / "events"
    place.write(events={"path": str(folder)}, drainSeconds=0.2)
    async with apart(place.path) as process:
        await process.said("serving ")
        client = await place.connect(HANDSHAKE)
        wire = await broker.accept()
        await wire.head()
        wire.send(SWITCH)
        head = await client.head()
        process.send(signal.SIGTERM)
        await client.end()
        await wire.end()
        assert await process.ended() == 0
    (event,) = events(folder)
    assert (event["status"], event["id"]) == (101, head.one(b"x-request-id").decode())
    client.transport.abort()
