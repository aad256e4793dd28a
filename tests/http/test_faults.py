"""When much goes wrong at once, and when the fault is our own."""

import asyncio
import json
import random

import pytest
from raw import Begin, RawBroker, Served, Start, Wire

from pulsar_ingress_proxy.http import headers
from pulsar_ingress_proxy.http.request_cycle import RequestCycle

GET = b"GET /admin/v2/clusters HTTP/1.1\r\nHost: pulsar\r\n\r\n"
PUT = b"PUT /admin/v2/x HTTP/1.1\r\nHost: pulsar\r\nContent-Length: 5\r\n\r\nhello"


async def test_internal_error_gets_500_and_is_logged_and_counted_once(
    start: Start, broker: RawBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    served = await start(broker.url)
    monkeypatch.setattr(headers, "RequestHead", lambda *_: 1 / 0)
    client = await served.client(GET + GET)
    answer = await client.message()
    assert answer.status == 500
    assert str(json.loads(answer.body)["reason"]).startswith("internal-error: ")
    assert await client.rest() == b""
    assert "ZeroDivisionError" in caplog.text
    assert served.number("requests_total", code="500") == served.number("requests_total") == 1
    assert served.number("in_flight_requests") == 0
    caplog.clear()


async def test_internal_error_during_answer_cuts_it_off_without_a_second_answer(
    start: Start, broker: RawBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A second answer inside the first would be the worst of all."""
    served = await start(broker.url)
    monkeypatch.setattr(RequestCycle, "dismiss", lambda self, connection: 1 / 0)
    client = await served.client(GET)
    wire = await broker.accept()
    await wire.head()
    wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n")
    assert (await client.head()).status == 200
    await client.take_until(b"some\r\n")
    wire.send(b"0\r\n\r\n")
    await client.end()
    assert b"500" not in client.buffer
    await wire.end()
    assert "ZeroDivisionError" in caplog.text
    caplog.clear()


async def test_upload_beyond_replay_bytes_gets_502_when_broker_resets(begin: Begin, broker: RawBroker) -> None:
    _, client, wire = await begin(
        PUT.replace(b"Content-Length: 5", b"Content-Length: 50000005"), redirects={"replayBytes": 1000}
    )
    wire.stall()
    client.send(bytes(50_000_000))
    wire.reset()
    answer = await client.message()
    assert answer.status == 502
    assert answer.head.one(b"connection") == b"close"
    assert len(broker.wires) == 1


class Unruly:
    """Answers every request with its own path, in any framing, unless it prefers to die."""

    def __init__(self, broker: RawBroker, seed: int) -> None:
        self._broker = broker
        self._dice = random.Random(seed)
        self._serving: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        try:
            while True:
                wire = await self._broker.accept()
                task = asyncio.create_task(self._converse(wire))
                self._serving.add(task)
                task.add_done_callback(self._serving.discard)
        finally:
            for task in self._serving:
                task.cancel()

    async def _converse(self, wire: Wire) -> None:
        try:
            while True:
                request = await wire.message()
                body = request.head.target + b"|" + request.body
                match self._dice.randrange(12):
                    case 0:
                        wire.close()
                        return
                    case 1:
                        wire.reset()
                        return
                    case 2:
                        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body[:-1]))
                        wire.close()
                        return
                    case 3:
                        wire.send(b"HTTP/1.1 200 OK\r\n\r\n" + body)
                        wire.close()
                        return
                    case 4:
                        whole = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
                        wire.send(whole + whole)
                    case 5:
                        wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b" % (len(body), body))
                        wire.reset()
                        return
                    case 6 | 7:
                        wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                        for place in range(len(body)):
                            wire.send(b"1\r\n%b\r\n" % body[place : place + 1])
                            await asyncio.sleep(0)
                        wire.send(b"0\r\n\r\n")
                    case _:
                        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        except EOFError:
            pass


async def asks(served: Served, name: int, seed: int) -> int:
    """Ask many times, and see that every whole answer is the one to its request; how many there were."""
    dice, whole = random.Random(seed), 0
    client = await served.client()
    for turn in range(30):
        body = b"body-%d-%d" % (name, turn)
        path = b"/admin/%d/%d" % (name, turn)
        method = dice.choice((b"PUT", b"POST", b"DELETE"))
        client.send(b"%b %b HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (method, path, len(body), body))
        try:
            answer = await client.message()
        except EOFError:
            client = await served.client()
            continue
        if answer.status == 200:
            assert answer.body == path + b"|" + body
            whole += 1
        else:
            assert answer.status == 502
        if answer.head.all(b"connection"):
            client = await served.client()
        if dice.randrange(10) == 0:  # leave while a request is under way
            client.send(b"GET /gone HTTP/1.1\r\nHost: a\r\n\r\n")
            client.reset()
            client = await served.client()
    return whole


@pytest.mark.parametrize("seed", range(3))
async def test_answers_never_reach_the_wrong_request_under_random_failures(
    start: Start, broker: RawBroker, other: RawBroker, seed: int
) -> None:
    served = await start(broker.url, other.url)
    serving = [asyncio.create_task(Unruly(each, seed + place).serve()) for place, each in enumerate((broker, other))]
    counts = await asyncio.gather(*(asks(served, name, seed) for name in range(20)))
    assert sum(counts) > 200
    await served.stop()
    assert served.number("in_flight_requests") == 0
    assert served.number("connections") == 0
    for task in serving:
        task.cancel()


async def test_client_leaving_as_answer_begins_is_counted_as_499(begin: Begin) -> None:
    """Its end is on its way when the rest of its request is put into a task, which then never begins."""
    served, client, wire = await begin()
    wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    assert (await client.message()).status == 200
    client.send(GET)
    await wire.head()
    (connection,) = served.sidecar.http_servers[0]._clients
    ongoing = connection._request
    assert isinstance(ongoing, RequestCycle)
    upstream = ongoing.connection
    assert upstream is not None
    connection.break_off(gently=False)
    upstream.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
    await wire.end()
    await client.end()
    assert served.number("in_flight_requests") == 0
    assert served.number("requests_total", code="499") == 1
