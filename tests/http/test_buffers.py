"""What connections hold is charged to one budget (limits.bufferBytes): beyond it new work is refused, not taken on.

That all of it is given back in the end is asserted wherever a sidecar is stopped.
"""

import pytest
from raw import GET, HANDSHAKE, OK, POST, SWITCH, Begin, RawBroker, Served, Start, Wire, answer_all
from running_sidecar import while_running
from standstill import settled

from pulsar_ingress_proxy.memory import KIB, MIB, TRANSFER

CHUNKED = b"POST /topics/persistent/t/n/x HTTP/1.1\r\nHost: pulsar\r\nTransfer-Encoding: chunked\r\n\r\n"
BUDGET = 256 * KIB
LIMITS = {"bufferBytes": BUDGET}


def used(served: Served) -> int:
    return int(served.number("buffered_bytes"))


async def overloaded(wire: Wire) -> bool:
    return (await wire.message()).refusal == (503, "overloaded")


@pytest.mark.parametrize(
    "data",
    [GET[:-2] + b"X-A: " + b"a" * 20_000, GET[:-2] + b"".join(b"X-%d: a\r\n" % n for n in range(90)) + b"\r\n"],
    ids=["unfinished heads", "requests without an answer"],
)
async def test_requests_are_refused_beyond_buffer_budget_until_others_leave(
    start: Start, broker: RawBroker, data: bytes
) -> None:
    served = await start(broker.url, limits=LIMITS)
    clients = [await served.client(data) for _ in range(8)]
    await settled(lambda: used(served), lambda: sum(client.total for client in clients))
    assert 0 < used(served) <= BUDGET
    refused = [client for client in clients if client.total]
    assert 0 < len(refused) < len(clients)
    assert all([await overloaded(client) for client in refused])
    for client in clients:
        client.close()
    await settled(lambda: used(served))
    assert used(served) == 0
    async with while_running(answer_all(broker)):
        assert (await served.ask(GET)).status == 200


async def test_pipelined_bytes_beyond_buffer_budget_are_dropped_and_connection_closes(begin: Begin) -> None:
    """What cannot be held is lost, and the answer under way says that the connection ends."""
    served, client, wire = await begin(limits={"bufferBytes": 16 * KIB})
    client.send(GET * 1000)
    await settled(lambda: used(served))
    assert used(served) <= 16 * KIB
    wire.send(OK)
    answer = await client.message()
    assert (answer.status, answer.head.one(b"connection")) == (200, b"close")
    await client.end()


async def test_bytes_sent_after_refusal_are_not_buffered(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url, limits=LIMITS)
    client = await served.client(b"GET / HTTP/9.9\r\n\r\n")
    assert (await client.message()).status == 400
    await client.send_slowly(b"x" * 1_000_000)
    await settled(lambda: used(served))
    assert used(served) < 16 * KIB


async def test_buffers_are_released_when_client_leaves_with_pipelined_requests_waiting(begin: Begin) -> None:
    served, client, wire = await begin(POST + 3 * GET + GET[:-10], limits=LIMITS)
    assert used(served) > 0
    client.reset()
    await wire.end()
    await settled(lambda: used(served))
    assert used(served) == 0


async def test_second_upload_gets_503_until_first_releases_its_transfer_buffer(begin: Begin, broker: RawBroker) -> None:
    served, first, wire = await begin(CHUNKED, limits={"bufferBytes": TRANSFER + 64 * KIB})
    assert await overloaded(await served.client(CHUNKED))
    first.send(b"0\r\n\r\n")
    wire.send(OK)
    assert (await first.message()).status == 200
    again = await served.client(CHUNKED + b"0\r\n\r\n")
    await broker.answer()
    assert (await again.message()).status == 200


async def test_large_answer_becomes_503_when_buffer_budget_has_no_room(begin: Begin) -> None:
    _, client, wire = await begin(limits=LIMITS)
    wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1000)
    assert await overloaded(client)
    await wire.end()


async def test_client_that_does_not_read_is_cut_off_when_buffer_budget_is_exhausted(begin: Begin) -> None:
    served, client, wire = await begin()
    wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 20000000\r\n\r\n")
    await client.head()
    client.stall()
    config = served.sidecar.snapshot.config
    limits = config.limits.model_copy(update={"buffer_bytes": used(served)})
    await served.sidecar.reload(config.model_copy(update={"limits": limits}))  # what is used now, and no more
    wire.send(b"x" * 20_000_000)  # more than the system takes
    await wire.end()
    client.resume()
    await client.end()


async def test_idle_websocket_holds_at_most_16_kib_of_buffers(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url, limits=LIMITS)
    for number in range(1, 9):
        client = await served.client(HANDSHAKE)
        wire = await broker.accept()
        await wire.head()
        wire.send(SWITCH)
        assert (await client.head()).status == 101
        assert used(served) <= number * 16 * KIB


@pytest.mark.parametrize("who", ["client", "broker"])
async def test_unread_websocket_bytes_are_charged_to_buffer_budget_until_read(begin: Begin, who: str) -> None:
    served, client, wire = await begin(HANDSHAKE)
    wire.send(SWITCH)
    await client.head()
    reader, writer = (client, wire) if who == "client" else (wire, client)
    before, size = used(served), 20_000_000  # more than the system takes
    reader.stall()
    writer.send(b"x" * size)
    await settled(lambda: used(served), lambda: reader.total)
    assert before < used(served) < before + MIB
    reader.resume()
    await reader.take(size)
    await settled(lambda: used(served))
    assert used(served) == before
