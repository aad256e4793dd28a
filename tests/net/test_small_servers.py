"""Malformed requests to the servers for operators: metrics and probes, and the console."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Literal

import pytest
from raw import RawBroker, Served, Start, Wire

GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
POST = b"POST /api/what-if HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"

MALFORMED = {
    "garbage": b"\x00\x01\x02garbage\r\n\r\n",
    "words": b"hello there\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "a binary command": b"\x00\x00\x00\x10\x00\x00\x00\x0c\x08\x02" + bytes(10) + b"\r\n\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
    "a version of the future": b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "a long request line": b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a long field": GET + b"X-A: " + b"a" * 9000 + b"\r\n\r\n",
    "many fields": GET + b"X-A: b\r\n" * 200 + b"\r\n",
    "a field without a colon": GET + b"X-A\r\n\r\n",
    "bare LFs": b"GET / HTTP/1.1\nHost: localhost\n\n",
    "no Host": b"GET / HTTP/1.1\r\n\r\n",
    "a target that is no URL": b"GET http://[::1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a target that is not ASCII": b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "two lengths": POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nx",
    "a length and chunks": POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "a bad chunk": POST + b"Transfer-Encoding: chunked\r\n\r\nx\r\n",
}

CODED = {
    "gzip": POST + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
    "deflate": POST + b"Content-Encoding: deflate\r\nContent-Length: 4\r\n\r\nabcd",
    "br": POST + b"Content-Encoding: br\r\nContent-Length: 4\r\n\r\nabcd",
}

Server = Literal["metrics", "console"]


@pytest.fixture(params=["metrics", "console"])
def server(request: pytest.FixtureRequest) -> Server:
    chosen: Server = request.param
    return chosen


@pytest.fixture
async def served(start: Start, broker: RawBroker) -> Served:
    return await start(broker.url, console={"address": "127.0.0.1:0"})


async def connect(served: Served, server: Server, data: bytes) -> Wire:
    port = served.sidecar.metrics_port if server == "metrics" else served.sidecar.console_port
    return await served.client(data, port=port)


async def still_serves(served: Served, server: Server) -> bool:
    wire = await connect(served, server, GET.replace(b"/livez", b"/" if server == "console" else b"/livez") + b"\r\n")
    return (await wire.message()).status == 200


@pytest.fixture
def quiet(served: Served, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing is logged."""
    caplog.set_level(logging.INFO)
    caplog.clear()
    yield
    assert not caplog.records


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
async def test_malformed_request_to_metrics_or_console_gets_400_and_is_not_logged(
    served: Served, server: Server, data: bytes
) -> None:
    wire = await connect(served, server, data)
    assert (await wire.message()).status == 400
    await wire.end()
    assert await still_serves(served, server)


@pytest.mark.usefixtures("quiet")
async def test_malformed_pipelined_request_to_metrics_or_console_is_not_logged(served: Served, server: Server) -> None:
    upgrade = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    wire = await connect(served, server, upgrade + MALFORMED["garbage"])
    await wire.message()
    assert (await wire.message()).status == 400


@pytest.mark.usefixtures("quiet")
async def test_oversized_head_to_metrics_or_console_closes_connection_and_is_not_logged(
    served: Served, server: Server
) -> None:
    """The answer may be lost: the server closes the connection while the client still sends."""
    wire = await connect(served, server, GET + b"X-A: " + b"a" * (4 << 20))
    await wire.end()
    assert not wire.buffer or wire.buffer.startswith(b"HTTP/1.0 400 ")
    assert await still_serves(served, server)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("data", CODED.values(), ids=CODED.keys())
async def test_metrics_and_console_do_not_decode_compressed_bodies(served: Served, server: Server, data: bytes) -> None:
    wire = await connect(served, server, data)
    assert (await wire.message()).status == (400 if server == "console" else 404)
    await wire.end()


@pytest.mark.usefixtures("quiet")
async def test_console_logs_nothing_when_client_leaves_mid_request(served: Served) -> None:
    before = asyncio.all_tasks()
    wire = await connect(served, "console", POST + b"Content-Length: 100\r\nExpect: 100-continue\r\n\r\n")
    await wire.take_until(b"100 Continue\r\n\r\n")
    wire.send(b"{")
    wire.close()
    await asyncio.wait(asyncio.all_tasks() - before)
    assert await still_serves(served, "console")


async def test_internal_error_of_console_gets_500_and_is_logged(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = served.sidecar._console
    assert console is not None
    monkeypatch.setattr(console.view, "status", lambda: 1 / 0)
    wire = await connect(served, "console", GET.replace(b"/livez", b"/api/status") + b"\r\n")
    assert (await wire.message()).status == 500
    (record,) = (record for record in caplog.records if record.levelno >= logging.ERROR)
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ZeroDivisionError)
    caplog.clear()
