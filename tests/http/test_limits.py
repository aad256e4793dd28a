"""Timeouts and limits: what each one ends, and that nobody else notices."""

import asyncio
import socket
import tracemalloc
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from raw import GET, LOOKUP, OK, POST, PUT, Begin, RawBroker, Served, Start, Wire, answer_all
from running_sidecar import while_running
from standstill import settled

TINY, HOUR = 0.2, 3600


async def probes(served: Served) -> list[int]:
    """What the server for operators answers meanwhile."""
    paths, port = (b"/metrics", b"/livez", b"/readyz"), served.sidecar.metrics_port
    return [(await served.ask(GET.replace(b"/admin/v2/clusters", path), port)).status for path in paths]


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what only the system's own timers bring about."""
    while not condition():  # noqa: ASYNC110 - it has no event that could be waited for
        await asyncio.sleep(0.01)


# Brokers that keep us waiting.


async def test_connect_timeout_gets_502_when_broker_does_not_accept(start: Start) -> None:
    """Its queue of connections is full, as that of a process that hangs."""
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for filler in (first, second):
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        served = await start(f"http://127.0.0.1:{full.getsockname()[1]}", timeouts={"connect": TINY})
        assert (await served.ask(POST)).refusal == (502, "broker-unreachable")
        assert served.number("upstream_errors_total", reason="broker-unreachable") == 1


async def test_connect_timeout_gets_502_when_broker_does_not_complete_tls_handshake(
    start: Start, broker: RawBroker
) -> None:
    served = await start(broker.url.replace("http", "https"), timeouts={"connect": TINY})
    client = await served.client(GET)
    wire = await broker.accept()
    assert (await client.message()).refusal == (502, "broker-unreachable")
    await wire.end()


@pytest.mark.parametrize("kept", [False, True], ids=["new", "kept"])
@pytest.mark.parametrize(
    ("data", "timeouts"),
    [
        (LOOKUP, {"lookup": TINY, "request": HOUR}),
        (GET, {"lookup": HOUR, "request": TINY}),
        (PUT, {"lookup": HOUR, "request": TINY}),
    ],
    ids=["lookup", "GET", "PUT"],
)
async def test_lookup_and_request_timeouts_get_504_and_keep_client_connection(
    begin: Begin, broker: RawBroker, data: bytes, timeouts: dict[str, float], kept: bool
) -> None:
    served, client, wire = await begin(data, timeouts=timeouts)
    if kept:
        wire.send(OK)
        await client.message()
        client.send(data)
        await wire.head()
    assert (await client.message()).refusal == (504, "broker-timeout")
    await wire.end()
    assert served.number("upstream_errors_total", reason="broker-timeout") == 1
    client.send(data)  # its own connection stays
    await broker.answer()
    assert (await client.message()).body == b"ok"


# Clients that keep us waiting.


@pytest.mark.parametrize("earlier", [b"", GET, POST], ids=["nothing", "GET", "POST"])
async def test_idle_client_connection_closes_after_client_idle_timeout(
    start: Start, broker: RawBroker, earlier: bytes
) -> None:
    served = await start(broker.url, timeouts={"clientIdle": TINY})
    client = await served.client(earlier)
    if earlier:
        await broker.answer()
        assert (await client.message()).body == b"ok"
    assert await client.rest() == b""


@pytest.mark.parametrize("data", [GET, POST], ids=["GET", "POST"])
async def test_client_waiting_for_answer_is_not_closed_by_client_idle_timeout(begin: Begin, data: bytes) -> None:
    served, client, wire = await begin(data, timeouts={"clientIdle": TINY})
    for _ in range(2):
        idle = await served.client()
        await idle.end()
    wire.send(OK)
    assert (await client.message()).body == b"ok"
    assert await client.rest() == b""


@pytest.mark.parametrize("earlier", [b"", GET, POST], ids=["first", "after GET", "after POST"])
async def test_slowly_sent_head_gets_408_after_head_timeout(start: Start, broker: RawBroker, earlier: bytes) -> None:
    served = await start(broker.url, timeouts={"head": TINY})
    client = await served.client(earlier)
    if earlier:
        await broker.answer()
        await client.message()
    answer = asyncio.ensure_future(client.message())
    letters = iter(GET)
    while not answer.done():  # as slowly as it takes
        client.send(bytes([next(letters)]))
        await asyncio.wait([answer], timeout=TINY / 10)
    assert (await answer).refusal == (408, "head-timeout")
    assert (await answer).head.one(b"connection") == b"close"
    assert await client.rest() == b""
    assert served.number("requests_total", code="408") == 1
    assert len(broker.wires) == bool(earlier)


async def test_incomplete_pipelined_head_gets_408_after_previous_answer(start: Start, broker: RawBroker) -> None:
    """Its time begins when the one before is answered."""
    served = await start(broker.url, timeouts={"head": TINY})
    client = await served.client()
    await settled(lambda: 0)
    client.send(GET + GET[:9])
    await broker.answer()
    assert (await client.message()).body == b"ok"
    assert (await client.message()).refusal == (408, "head-timeout")
    assert await client.rest() == b""


async def test_a_finished_head_never_times_out(start: Start, broker: RawBroker) -> None:
    """Neither while the broker thinks, nor while the body comes, nor while the connection idles."""
    served = await start(broker.url, timeouts={"head": TINY})
    idle, thinking, sending = await served.client(GET), await served.client(), await served.client()
    await broker.answer()
    await idle.message()
    for place, client, data in ((20, thinking, LOOKUP), (30, sending, POST[:-3])):
        client.send(data[:place])  # in two pieces, so that time is taken
        await settled(lambda: 0)
        client.send(data[place:])
    wires = {(await wire.head()).start: wire for wire in (broker.wires[0], await broker.accept())}
    assert (await (await served.client(b"GET / HT")).message()).status == 408
    sending.send(POST[-3:])
    for start_line, wire in wires.items():
        if start_line.startswith(b"POST"):
            assert await wire.take(5) == b"hello"
        wire.send(OK)
    for client in (thinking, sending):
        assert (await client.message()).body == b"ok"
    assert not idle.ended


# Heads that are too large.


def get(size: int, headers: int) -> bytes:
    """A head of so many bytes."""
    names = [b"X-%04d: " % n for n in range(headers)]
    room = size - len(GET) - sum(len(name) + 2 for name in names)
    fill, rest = divmod(room, headers)
    lines = [name + b"x" * (fill + (rest if not place else 0)) for place, name in enumerate(names)]
    data = GET.removesuffix(b"\r\n") + b"".join(line + b"\r\n" for line in lines) + b"\r\n"
    assert len(data) == size
    return data


TOO_LARGE = {
    "one line": get(3000, 1),
    "many lines": get(2100, 10),
    "many lines before a body": get(2200, 10).replace(b"GET", b"PUT")[:-2] + b"Content-Length: 2\r\n\r\nok",
    "a target": GET.replace(b"clusters", b"x" * 2100),
    "a query": GET.replace(b" HTTP", b"?" + b"x" * 2100 + b" HTTP"),
    "a target and lines": get(1500, 5).replace(b"clusters", b"x" * 1000),
    "headers": get(1000, 21),
    "a name": GET.replace(b"Host", b"X" * 2100 + b": a\r\nHost"),
}
PIECES = pytest.mark.parametrize("piece", [1, 700, 100_000], ids=["in bytes", "in pieces", "at once"])


async def send_in_pieces(client: Wire, data: bytes, piece: int) -> None:
    for place in range(0, len(data), piece):
        client.send(data[place : place + piece])
        await asyncio.sleep(0)


@PIECES
@pytest.mark.parametrize("data", TOO_LARGE.values(), ids=TOO_LARGE.keys())
async def test_head_beyond_head_bytes_or_headers_limit_gets_431(
    start: Start, broker: RawBroker, data: bytes, piece: int
) -> None:
    served = await start(broker.url, limits={"headBytes": 2048, "headers": 20})
    client = await served.client()
    await send_in_pieces(client, data, piece)
    assert (await client.message()).refusal == (431, "head-too-large")
    await client.end()
    assert broker.untouched
    assert served.number("requests_total", code="431") == served.number("requests_total") == 1


@PIECES
async def test_head_limits_apply_per_request_and_exclude_the_body(start: Start, broker: RawBroker, piece: int) -> None:
    """Nor do requests count together, or a body with its head."""
    served = await start(broker.url, limits={"headBytes": 2048, "headers": 20})
    client = await served.client()
    body = PUT.replace(b"Content-Length: 5", b"Content-Length: 5000") + b"x" * 4995
    for data in (get(2000, 18), get(2000, 10) * 3, body):
        sending = asyncio.ensure_future(send_in_pieces(client, data, piece))
        for _ in range(3 if data.count(b"HTTP/1.1") == 3 else 1):
            is_kept = broker.wires and (data is not body or piece >= len(body))
            wire = broker.wires[-1] if is_kept else await broker.accept()
            await wire.message()
            wire.send(OK)
            assert (await client.message()).body == b"ok"
        await sending


# Too many at once.


async def test_connection_beyond_connections_limit_gets_503_until_one_closes(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url, limits={"connections": 2})
    first, second = await served.client(GET), await served.client()
    wire = await broker.accept()
    await wire.head()
    await settled(lambda: int(served.number("connections")))
    for _ in range(3):
        answer = await served.ask(GET)
        assert answer.refusal == (503, "overloaded")
        assert answer.head.one(b"retry-after") == b"1"
        assert answer.head.one(b"connection") == b"close"
    assert await probes(served) == [200, 200, 200]
    assert len(broker.wires) == 1
    second.close()
    await until(lambda: served.number("connections") == 1)
    third = await served.client(GET)
    await broker.answer()
    assert (await third.message()).body == b"ok"
    wire.send(OK)
    assert (await first.message()).body == b"ok"


async def test_silent_connection_beyond_connections_limit_closes_after_head_timeout(
    start: Start, broker: RawBroker
) -> None:
    served = await start(broker.url, limits={"connections": 1}, timeouts={"head": TINY})
    first = await served.client()
    excess = await served.client()
    assert await excess.rest() == b""
    assert not first.ended


@pytest.mark.parametrize("data", [GET, POST], ids=["GET", "POST"])
async def test_request_beyond_in_flight_limit_gets_503_until_one_finishes(
    start: Start, broker: RawBroker, data: bytes
) -> None:
    """One request too many is told so while the others still wait; its connection stays."""
    served = await start(broker.url, limits={"inFlight": 2})
    held = [await served.client(GET), await served.client(POST)]
    wires = [await broker.accept() for _ in held]
    for wire in wires:
        await wire.message()
    excess = await served.client(data)
    answer = await excess.message()
    assert answer.refusal == (503, "overloaded")
    assert answer.head.one(b"retry-after") == b"1"
    assert await probes(served) == [200, 200, 200]
    assert len(broker.wires) == 2
    wires[0].send(OK)
    await asyncio.wait([asyncio.ensure_future(client.message()) for client in held], return_when="FIRST_COMPLETED")
    if answer.head.all(b"connection"):  # its body had not come in full
        excess = await served.client()
    excess.send(POST)
    await broker.answer()
    assert (await excess.message()).body == b"ok"
    wires[1].send(OK)
    await until(lambda: served.number("in_flight_requests") == 0)


async def test_redirect_is_rewritten_instead_of_followed_beyond_replay_total_bytes(
    start: Start, broker: RawBroker, other: RawBroker
) -> None:
    """A body that there is no room to keep cannot be sent twice: the client is sent where it belongs instead."""
    served = await start(
        broker.url,
        limits={"replayTotalBytes": 9},
        redirects={"admin": "follow"},
        lookupListenerName="external",
        advertisedListeners=[
            {"broker": f"127.0.0.1:{other.port}", "listeners": f"internal:{other.url},external:https://b.example.com"}
        ],
    )
    moved = b"HTTP/1.1 307 Moved\r\nLocation: %b/admin/v2/x\r\nContent-Length: 0\r\n\r\n"
    first = await served.client(PUT)
    holding = await broker.accept()
    await holding.message()
    second = await served.client(PUT)
    await broker.answer(moved % other.url.encode())
    answer = await second.message()
    assert answer.status == 307
    assert answer.head.one(b"location") == b"https://b.example.com/admin/v2/x"
    assert other.untouched
    holding.send(OK)
    await first.message()
    third = await served.client(PUT)
    await holding.message()
    holding.send(moved % other.url.encode())
    assert (await other.answer()).body == b"hello"
    assert (await third.message()).body == b"ok"


# Clients that do not read.


BIG = b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + b"x" * 200_000


async def overwhelmed(start: Start, broker: RawBroker, data: bytes, **settings: Any) -> tuple[Served, Wire]:
    """A client that sends all this and reads none of the large answers; nothing moves any more."""
    served = await start(broker.url, **settings)
    lazy = await served.client()
    lazy.stall()
    lazy.send(data)
    await broker.was_asked.wait()
    unsent = (wire.transport.get_write_buffer_size for wire in broker.wires)
    await settled(lambda: sum(wire.total for wire in broker.wires), *unsent)
    return served, lazy


@pytest.fixture
async def generous(broker: RawBroker) -> AsyncIterator[None]:
    """The broker answers everything with much."""
    async with while_running(answer_all(broker, BIG)):
        yield


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_answer_is_cut_off_when_client_does_not_read_within_request_timeout(
    start: Start, broker: RawBroker, version: bytes
) -> None:
    endless = b"x" * 30_000_000
    served = await start(broker.url, timeouts={"request": 0.5})
    lazy = await served.client()
    lazy.stall()
    lazy.send(GET.replace(b"1.1", version))
    wire = await broker.accept()
    await wire.head()
    wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
    wire.send(endless)
    other = await served.client(GET)  # nobody else waits
    await broker.answer()
    assert (await other.message()).body == b"ok"
    await wire.end()
    await until(lambda: served.number("in_flight_requests") == 0)
    lazy.resume()
    await lazy.end()
    assert lazy.total < 30_000_000


@pytest.mark.usefixtures("generous")
@pytest.mark.parametrize("data", [GET, GET.replace(b"GET", b"DELETE").replace(b"\r\n\r\n", b"\r\nA: b\r\n\r\n"), PUT])
async def test_pipelined_requests_are_not_forwarded_while_client_does_not_read(
    start: Start, broker: RawBroker, data: bytes
) -> None:
    """A pipeline of small requests for large answers would else fill the memory."""
    served, lazy = await overwhelmed(start, broker, data * 300)
    assert 0 < served.number("requests_total") < 200
    lazy.resume()
    for _ in range(300):
        assert len((await lazy.message()).body) == 200_000
    assert served.number("requests_total") == 300


@pytest.mark.usefixtures("generous")
async def test_connection_closes_when_client_leaves_answers_unread(start: Start, broker: RawBroker) -> None:
    """Also when the request is over: the system gives up on it, and its place is free."""
    served, lazy = await overwhelmed(start, broker, GET * 1000, timeouts={"request": TINY})
    await until(lambda: served.number("connections") == 0)
    lazy.resume()
    await lazy.end()
    assert lazy.total < 1000 * len(BIG)
    assert served.number("requests_total") < 1000
    assert served.number("in_flight_requests") == 0


@pytest.mark.usefixtures("generous")
async def test_stop_does_not_wait_for_client_that_does_not_read(start: Start, broker: RawBroker) -> None:
    served, _ = await overwhelmed(start, broker, GET * 1000, drainSeconds=TINY, timeouts={"request": HOUR})
    await served.sidecar.stop()
    assert served.number("connections") == 0


# Many of them.


async def test_slow_idle_and_flooding_clients_do_not_affect_other_clients(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url, limits={"headBytes": 4096}, timeouts={"head": HOUR})
    slow = [await served.client(GET[:20]) for _ in range(100)]
    idle = [await served.client() for _ in range(100)]
    floods = [await served.client() for _ in range(20)]

    async def flood(client: Wire) -> int:
        while not client.ended:
            await client.send_slowly(b"X-Flood: %b\r\n" % (b"x" * 1000))
            await asyncio.sleep(0)
        return (await client.message()).status

    for client in floods:
        client.send(GET[:-2])
    flooding = [asyncio.create_task(flood(client)) for client in floods]
    honest = await served.client(GET)
    wire = await broker.accept()
    for _ in range(50):
        await wire.head()
        wire.send(OK)
        assert (await honest.message()).body == b"ok"
        honest.send(GET)
    assert {*await asyncio.gather(*flooding)} == {431}
    assert served.number("requests_total", code="431") == 20
    assert not any(client.ended for client in (*slow, *idle))
    assert len(broker.wires) == 1
    for client in slow:
        client.send(GET[20:])
    async with while_running(answer_all(broker)):
        for client in slow:
            assert (await client.message()).body == b"ok"


async def test_upload_goes_on_while_the_client_does_not_read_the_answer(begin: Begin) -> None:
    _, client, wire = await begin(b"POST /topics/x HTTP/1.1\r\nHost: a\r\nContent-Length: 100005\r\n\r\nhello")
    assert await wire.take(5) == b"hello"
    client.stall()
    wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 20000000\r\n\r\n" + b"x" * 19_999_999)
    await settled(wire.transport.get_write_buffer_size)
    client.send(b"y" * 100_000)
    assert await wire.take(100_000) == b"y" * 100_000
    client.resume()
    wire.send(b"x")
    assert len((await client.message()).body) == 20_000_000


async def test_decisions_about_long_header_values_are_not_cached(start: Start, broker: RawBroker) -> None:
    """Many clients with different ones of 30 kB must not own all that decisions are remembered by."""
    served = await start(broker.url)
    data = GET.replace(b"\r\n\r\n", b"\r\n%b: %05d%b\r\n\r\n")
    names = (b"X-Forwarded-Host", b"X-Forwarded-Proto", b"X-Pulsar-ListenerName")
    async with while_running(answer_all(broker)):
        client = await served.client()
        tracemalloc.start()
        for number in range(60):
            if number == 9:
                before, _ = tracemalloc.get_traced_memory()
            client.send(data % (names[number % 3], number, b"x" * 30_000))
            assert (await client.message()).status in (200, 400)  # no listener has such a name
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert after - before < 200_000


# Overload.


def overload(served: Served) -> None:
    """Every request has waited for too long, for a long time."""
    state = served.sidecar.http_servers[0].overload
    state.is_overloaded, state.limit = True, -1


async def test_overload_refuses_requests_at_once_and_keeps_their_connections(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    overload(served)
    client = await served.client()
    for data in (LOOKUP, GET, LOOKUP):
        client.send(data)
        answer = await client.message()
        assert answer.refusal == (503, "overloaded")
        assert answer.head.one(b"retry-after") == b"1"
        assert not answer.head.all(b"connection")
    assert broker.untouched
    assert await probes(served) == [200, 200, 200]
    client.send(LOOKUP)  # one of four
    await broker.answer()
    assert (await client.message()).body == b"ok"
    assert served.number("shed_requests_total", protocol="http") == 3
    assert served.number("requests_total", kind="other", code="503") == 3
    assert served.number("in_flight_requests") == 0
    assert served.number("buffered_bytes") == 0


@pytest.mark.parametrize(
    "data",
    [
        POST,
        POST[:-3],
        PUT,
        GET.replace(b"1.1", b"1.0"),
        GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
    ],
    ids=["body", "part of a body", "PUT", "HTTP/1.0", "close"],
)
async def test_overload_closes_connections_whose_next_request_could_not_be_found(
    start: Start, broker: RawBroker, data: bytes
) -> None:
    served = await start(broker.url)
    overload(served)
    client = await served.client(data)
    answer = await client.message()
    assert answer.refusal == (503, "overloaded")
    assert answer.head.one(b"retry-after") == b"1"
    assert answer.head.one(b"connection") == b"close"
    assert await client.rest() == b""
    assert broker.untouched
    assert served.number("requests_total", kind="other", code="503") == 1


async def test_overload_answers_head_without_body_and_goes_on_after_upgrade(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    overload(served)
    client = await served.client(GET.replace(b"GET", b"HEAD"))
    head = await client.head()
    assert head.start == b"HTTP/1.1 503 Service Unavailable"
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: a\r\n\r\n"
    client.send(GET[:-2] + upgrade)
    assert (await client.message()).refusal == (503, "overloaded")
    client.send(GET)
    assert (await client.message()).refusal == (503, "overloaded")
    assert broker.untouched


async def test_overload_counts_no_wait_for_an_earlier_request_of_the_client(start: Start, broker: RawBroker) -> None:
    """A pipelined request waits for the answer before it, not for the sidecar."""
    served = await start(broker.url)
    client = await served.client(GET + GET)
    wire = await broker.accept()
    await wire.head()
    overload(served)
    wire.send(OK)
    assert (await client.message()).body == b"ok"
    await wire.head()
    wire.send(OK)
    assert (await client.message()).body == b"ok"
