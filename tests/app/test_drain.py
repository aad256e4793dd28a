"""The end of a sidecar: not ready first, nothing new, what runs finishes, and what was recorded is on disk."""

import asyncio
import gzip
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from raw import GET, HANDSHAKE, OK, PUT, SWITCH, Begin, RawBroker, Served, Start, Wire
from runs import Place, apart
from standstill import settled

HALF = PUT.replace(b"Content-Length: 5", b"Content-Length: 10")
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@asynccontextmanager
async def stopping(served: Served) -> AsyncIterator[asyncio.Task[None]]:
    """Inside, it drains; at the end, it is over."""
    task = asyncio.create_task(served.sidecar.stop())
    await settled(lambda: int(served.number("connections")))
    yield task
    await task


@pytest.mark.parametrize("data", [GET, PUT], ids=["GET", "PUT"])
async def test_draining_finishes_request_under_way_and_refuses_new_connections(begin: Begin, data: bytes) -> None:
    served, used, wire = await begin(drainSeconds=30)
    wire.send(OK)
    await used.message()
    idle, client = await served.client(), await served.client(data)
    await wire.message()
    async with stopping(served) as task:
        ready = await served.ask(b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n", served.sidecar.metrics_port)
        assert (ready.status, ready.body) == (503, b"not ready: shutting down\n")
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
    served, client, wire = await begin(HALF, drainSeconds=30)
    assert await wire.take(5) == b"hello"
    async with stopping(served):
        client.send(b"world")
        assert await wire.take(5) == b"world"
        wire.send(OK)
        assert (await client.message()).body == b"ok"


@pytest.mark.parametrize("data", [GET, PUT], ids=["GET", "PUT"])
async def test_draining_lets_answer_under_way_finish_then_closes_its_connection(begin: Begin, data: bytes) -> None:
    """Its head is out and promised to go on: nobody may wait for the deadline because of that."""
    served, client, wire = await begin(data, drainSeconds=3600)
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
    server = served.sidecar.http_servers[0]
    config = served.sidecar.snapshot.config
    bind = config.bind_addresses[0]
    await served.sidecar.reload(config.model_copy(update={"bind_addresses": (type(bind)(None, "http", "[::1]", 0),)}))
    assert server not in served.sidecar.http_servers
    await served.sidecar.stop()
    await first.end()
    assert served.number("connections") == 0


@pytest.mark.parametrize("drain", [0, 0.01])
async def test_stop_cuts_off_requests_after_drain_seconds(begin: Begin, drain: float) -> None:
    served, client, wire = await begin(drainSeconds=drain)
    await served.sidecar.stop()
    assert served.number("in_flight_requests") == served.number("connections") == 0
    await wire.end()
    assert await client.end() == b""


# A process.


@asynccontextmanager
async def terminated(
    place: Place, broker: RawBroker, data: bytes, drain: float, status: int
) -> AsyncIterator[tuple[Wire, Wire]]:
    """A process that gets SIGTERM with this request under way: it exits with 0, and the event is in a finished file."""
    folder = place.path.parent / "events"
    place.write(events={"path": str(folder)}, drainSeconds=drain)
    async with apart(place.path) as process:
        await process.said("serving ")
        client, idle = await place.connect(data), await place.connect()
        wire = await broker.accept()
        await wire.head()
        if status == 101:
            wire.send(SWITCH)
            await client.head()
        process.send(signal.SIGTERM)
        await idle.end()
        yield client, wire
        assert await process.ended() == 0
    files = list(folder.iterdir())
    assert all(path.name.endswith(".jsonl.gz") and not path.name.startswith(".") for path in files), files
    (event,) = [json.loads(line) for path in files for line in gzip.decompress(path.read_bytes()).splitlines()]
    assert (event["status"], event["id"]) == (status, client.last.one(b"x-request-id").decode())
    client.abort()
    idle.abort()


async def test_sigterm_answers_request_under_way_flushes_its_event_and_exits_0(
    broker: RawBroker, tmp_path: Path
) -> None:
    place = Place(tmp_path / "config.yaml", broker.url)
    async with terminated(place, broker, GET, 30, 200) as (client, wire):
        assert (await place.probe("/readyz"))[0] == 503
        with pytest.raises(ConnectionRefusedError):
            await place.connect()
        wire.send(OK)
        assert (await client.head()).one(b"connection") == b"close"


async def test_sigterm_closes_open_websocket_flushes_its_event_and_exits_0(broker: RawBroker, tmp_path: Path) -> None:
    place = Place(tmp_path / "config.yaml", broker.url)
    async with terminated(place, broker, HANDSHAKE, 0.2, 101) as (client, wire):
        await client.end()
        await wire.end()
