"""WebSockets go through byte for byte after their handshake, and end on both sides together."""

import asyncio

import pytest
from aiohttp import ClientSession, WSServerHandshakeError
from raw import GET, HANDSHAKE, OK, SWITCH, Begin, Start, Wire
from simulated.cluster import SimulatedCluster
from standstill import settled

PATH = "/ws/v2/producer/persistent/public/default/a%2Fb?token=x"


async def switched(begin: Begin) -> tuple[Wire, Wire]:
    """Both ends of a tunnel."""
    _, client, wire = await begin(HANDSHAKE)
    wire.send(SWITCH)
    assert (await client.head()).status == 101
    return client, wire


async def test_websocket_messages_pass_in_both_directions_and_in_order(start: Start) -> None:
    async with SimulatedCluster(1) as cluster, ClientSession() as session:
        served = await start(cluster.brokers[0].web)
        async with session.ws_connect(served.url + PATH, max_msg_size=0) as socket:
            await socket.send_str("hello")
            assert await socket.receive_str() == "hello"
            large = bytes(range(256)) * 4096 * 3  # 3 MiB, beyond what is held on the way
            await socket.send_bytes(large)
            assert await socket.receive_bytes() == large
            await socket.ping()
            for number in range(500):
                await socket.send_str(f"{number}" * 100)
            for number in range(500):
                assert await socket.receive_str() == f"{number}" * 100
            assert served.number("in_flight_requests") == 1
        assert socket.close_code == 1000
        assert cluster.brokers[0].requests[0].target == PATH
        await served.sidecar.stop()
        assert served.number("requests_total", code="101", kind="other") == 1
        assert served.number("in_flight_requests") == 0


async def test_broker_refusal_of_websocket_reaches_the_client(start: Start) -> None:
    async with SimulatedCluster(1, token="secret") as cluster, ClientSession() as session:
        served = await start(cluster.brokers[0].web)
        with pytest.raises(WSServerHandshakeError) as refused:
            await session.ws_connect(served.url + PATH)
        assert refused.value.status == 401
        async with session.ws_connect(served.url + PATH, headers={"Authorization": "Bearer secret"}) as socket:
            await socket.send_str("in")
            assert await socket.receive_str() == "in"


async def test_websocket_handshake_headers_pass_in_both_directions(begin: Begin) -> None:
    _, client, wire = await begin(HANDSHAKE)
    head = wire.last
    assert head.one(b"upgrade") == b"websocket"
    assert head.one(b"connection") == b"Upgrade"
    assert head.one(b"sec-websocket-key") == b"dGhlIHNhbXBsZSBub25jZQ=="
    wire.send(SWITCH)
    answer = await client.head()
    assert answer.start == b"HTTP/1.1 101 Switching Protocols"
    assert answer.one(b"upgrade").lower() == b"websocket"
    assert answer.one(b"connection") == b"Upgrade"
    assert answer.one(b"sec-websocket-accept") == b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


async def test_frames_sent_with_websocket_handshake_are_not_lost(begin: Begin) -> None:
    _, client, wire = await begin(HANDSHAKE + b"early from client")
    wire.send(SWITCH + b"early from broker")
    assert (await client.head()).status == 101
    assert await client.take(17) == b"early from broker"
    assert await wire.take(17) == b"early from client"
    client.send(b"GET / HTTP/1.1\r\n\r\n")
    assert await wire.take(18) == b"GET / HTTP/1.1\r\n\r\n"
    wire.send(OK)
    assert await client.take(len(OK)) == OK


async def test_frames_sent_before_101_answer_reach_the_broker_after_it(begin: Begin) -> None:
    """They are neither read without end nor taken for requests."""
    _, client, wire = await begin(HANDSHAKE)
    client.send(b"x" * 5_000_000)
    wire.send(SWITCH)
    await client.head()
    assert await wire.take(5_000_000) == b"x" * 5_000_000


@pytest.mark.parametrize("direction", ["up", "down"])
async def test_websocket_sender_is_paused_while_receiver_does_not_read(begin: Begin, direction: str) -> None:
    client, wire = await switched(begin)
    source, sink = (client, wire) if direction == "up" else (wire, client)
    sink.stall()
    sent = 0

    async def pour() -> None:
        nonlocal sent
        for _ in range(1024):
            await source.send_slowly(bytes(65536))
            sent += 1

    sender = asyncio.create_task(pour())
    await settled(lambda: sent)
    assert not sender.done()
    sink.resume()
    await sink.take(1024 * 65536)
    await sender


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("leaver", ["client", "broker"])
async def test_websocket_of_one_side_closes_when_the_other_closes(begin: Begin, leaver: str, how: str) -> None:
    client, wire = await switched(begin)
    leaving, left = (client, wire) if leaver == "client" else (wire, client)
    leaving.send(b"last words")
    assert await left.take(10) == b"last words"
    getattr(leaving, how)()
    await left.end()


async def test_bytes_sent_before_websocket_close_all_reach_the_broker(begin: Begin) -> None:
    client, wire = await switched(begin)
    wire.stall()
    client.send(b"x" * 3_000_000)
    client.close()
    wire.resume()
    assert len(await wire.rest()) == 3_000_000


async def test_client_connection_closes_when_broker_closes_right_after_101(begin: Begin) -> None:
    served, client, wire = await begin(HANDSHAKE)
    wire.send(SWITCH)
    wire.close()
    assert (await client.head()).status == 101
    assert await client.rest() == b""
    await settled(lambda: int(served.number("in_flight_requests")))
    assert served.number("in_flight_requests") == 0
    assert served.number("requests_total", code="101") == served.number("requests_total") == 1
    assert served.number("upstream_errors_total") == 0


async def test_client_connection_continues_with_http_after_refused_websocket(begin: Begin) -> None:
    _, client, wire = await begin(HANDSHAKE + GET)
    wire.send(b"HTTP/1.1 426 Upgrade Required\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n")
    refused = await client.head()
    assert refused.status == 426
    assert not {b"upgrade", b"connection"} & {*refused.names}
    await wire.head()
    wire.send(OK)
    assert (await client.message()).body == b"ok"


NO_HANDSHAKES = {
    "another protocol": HANDSHAKE.replace(b"Upgrade: websocket", b"Upgrade: h2c"),
    "no Connection": HANDSHAKE.replace(b"Connection: keep-alive, Upgrade\r\n", b""),
    "Connection names something like it": HANDSHAKE.replace(b"keep-alive, Upgrade", b"keep-alive, Upgraded"),
    "a POST": HANDSHAKE.replace(b"GET", b"POST"),
    "HTTP/1.0": HANDSHAKE.replace(b"HTTP/1.1", b"HTTP/1.0"),
}


@pytest.mark.parametrize("data", NO_HANDSHAKES.values(), ids=NO_HANDSHAKES.keys())
async def test_incomplete_websocket_handshake_is_forwarded_as_ordinary_request(begin: Begin, data: bytes) -> None:
    _, client, wire = await begin(data)
    head = wire.last
    assert not {b"upgrade", b"connection"} & {*head.names}
    wire.send(SWITCH)
    assert (await client.message()).refusal == (502, "bad-answer")
    await wire.end()


async def test_101_answer_without_upgrade_header_becomes_502(begin: Begin) -> None:
    _, client, wire = await begin(HANDSHAKE)
    wire.send(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
    assert (await client.message()).status == 502
