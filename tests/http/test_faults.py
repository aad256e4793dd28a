"""When much goes wrong at once, and when the fault is our own."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from raw import GET, LOOKUP, OK, POST, PUT, Begin, RawBroker, Served, Start, Wire, serve_all
from standstill import settled

from pulsar_ingress_proxy.net.pool import BrokerPool

SECRET = "s3cr3t"


async def test_internal_error_gets_500_is_counted_once_and_logged_by_request_id_without_secrets(
    start: Start, broker: RawBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    served = await start(broker.url)
    monkeypatch.setattr(BrokerPool, "in_turn", lambda self, urls: 1 / 0)
    fields = f"\r\nAuthorization: Bearer {SECRET}\r\nCookie: token={SECRET}\r\n\r\n".encode()
    client = await served.client(GET.replace(b"\r\n\r\n", fields).replace(b" HTTP", b"?token=s3cr3t HTTP") + GET)
    identity = (await client.head()).one(b"x-request-id").decode()
    assert client.last.status == 500
    assert (await client.rest()).startswith(b'{"reason": "internal-error: ')
    assert identity in caplog.text
    assert "ZeroDivisionError" in caplog.text
    assert SECRET not in caplog.text
    assert served.number("requests_total", code="500") == served.number("requests_total") == 1
    assert served.number("in_flight_requests") == 0
    caplog.clear()


async def test_internal_error_during_answer_cuts_it_off_without_a_second_answer(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A second answer inside the first would be the worst of all."""
    monkeypatch.setattr(BrokerPool, "succeeded", lambda self, url: 1 / 0)
    _, client, wire = await begin()
    wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n")
    assert (await client.head()).status == 200
    await client.take_until(b"some\r\n")
    wire.send(b"0\r\n\r\n")
    assert b"500" not in await client.end()
    await wire.end()
    assert "ZeroDivisionError" in caplog.text
    caplog.clear()


@pytest.mark.parametrize("turns", range(6))
async def test_client_leaving_as_answer_begins_is_counted_once(begin: Begin, turns: int) -> None:
    """Its end may be on its way when the rest of its request is put into a task, which then never begins."""
    served, client, wire = await begin()
    wire.send(OK)
    assert (await client.message()).status == 200
    client.send(GET)
    await wire.head()
    client.reset()
    for _ in range(turns):
        await asyncio.sleep(0)
    wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
    await wire.end()
    await served.stop()
    assert served.number("in_flight_requests") == 0
    assert served.number("requests_total") == 2
    assert served.number("requests_total", code="499") + served.number("requests_total", code="200") == 2


# Brokers that do as they please.


def unruly(dice: random.Random) -> Callable[[Wire], Awaitable[None]]:
    """Answers every request with its own path, in any framing, unless it prefers to die."""

    async def converse(wire: Wire) -> None:
        while True:
            request = await wire.message()
            body = request.head.target + b"|" + request.body
            whole = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
            match dice.randrange(12):
                case 0:
                    wire.close()
                case 1:
                    wire.reset()
                case 2:
                    wire.send(whole[:-1])
                    wire.close()
                case 3:
                    wire.send(b"HTTP/1.1 200 OK\r\n\r\n" + body)
                    wire.close()
                case 4:
                    wire.send(whole + whole)
                case 5:
                    wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b" % (len(body), body))
                    wire.reset()
                case 6 | 7:
                    wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                    for place in range(len(body)):
                        wire.send(b"1\r\n%b\r\n" % body[place : place + 1])
                        await asyncio.sleep(0)
                    wire.send(b"0\r\n\r\n")
                case _:
                    wire.send(whole)

    return converse


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
    serving = [
        asyncio.create_task(serve_all(each, unruly(random.Random(seed + place))))
        for place, each in enumerate((broker, other))
    ]
    counts = await asyncio.gather(*(asks(served, name, seed) for name in range(20)))
    assert sum(counts) > 200
    await served.stop()
    assert served.number("in_flight_requests") == 0
    assert served.number("connections") == 0
    for task in serving:
        task.cancel()


# Brokers that close idle connections just as the next request is on its way.

DELETE = GET.replace(b"GET", b"DELETE")
BARE_POST = b"POST /admin/v2/x HTTP/1.1\r\nHost: pulsar\r\nContent-Length: 0\r\n\r\n"
LARGE = b"PUT /admin/v2/x HTTP/1.1\r\nHost: pulsar\r\nContent-Length: 50000\r\n\r\n" + b"x" * 50_000


class Awkward:
    """Answers what comes first on a connection; any later request may find it closed, or have it closed on arrival."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self.late: list[bytes] = []
        """Methods of the requests that came by a connection used before."""
        self.closed = 0
        self.largest = 0

    async def converse(self, wire: Wire) -> None:
        await wire.message()
        while True:
            wire.send(OK)
            match self._dice.randrange(6):
                case 0:  # right behind the answer
                    wire.close()
                case 1:  # while the sidecar thinks that it is idle
                    await asyncio.sleep(0)
                    wire.close()
                case 2:
                    await asyncio.sleep(0)
                    wire.reset()
                case 3:  # when the first bytes of the next request are here
                    await wire.take(4)
                    wire.reset()
                case _:
                    request = await wire.message()
                    self.late.append(request.head.start.partition(b" ")[0])
                    self.largest = max(self.largest, len(request.body))
                    if self._dice.randrange(2):
                        continue
                    wire.close()  # it has been read, and is not answered
            self.closed += 1
            return


async def load(served: Served, seed: int, count: int) -> None:
    dice, client = random.Random(seed), await served.client()
    for _ in range(count):
        data = dice.choice((GET, LOOKUP, DELETE, POST, BARE_POST, PUT, LARGE))
        client.send(data)
        answer = await client.message()
        assert (answer.status, answer.body) == (200, b"ok"), data[:40]
        assert not answer.head.all(b"connection")


@pytest.mark.parametrize("seed", range(3))
async def test_no_request_fails_when_broker_closes_idle_connections(start: Start, broker: RawBroker, seed: int) -> None:
    served = await start(broker.url, redirects={"replayBytes": 100})
    awkward = Awkward(seed)
    serving = asyncio.create_task(serve_all(broker, awkward.converse))
    await asyncio.gather(*(load(served, 1000 * seed + name, 60) for name in range(20)))
    assert awkward.closed > 100
    # A POST never takes its chances, nor a body beyond replayBytes.
    assert {*awkward.late} == {b"GET", b"DELETE", b"PUT"}
    assert awkward.largest <= 100
    assert served.number("requests_total") == served.number("requests_total", code="200") == 1200
    assert served.number("upstream_errors_total") == 0
    serving.cancel()


async def test_a_request_counts_as_a_task_while_it_waits_and_no_longer(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    idle = served.number("asyncio_tasks")
    client = await served.client(POST[:-1])
    wire = await broker.accept()
    await wire.head()
    assert served.number("asyncio_tasks") > idle
    client.close()
    await wire.end()
    await settled(lambda: int(served.number("asyncio_tasks")))
    assert served.number("asyncio_tasks") == idle
