"""Brokers that close idle connections just as the next request is on its way: no request fails because of it."""

import asyncio
import random

import pytest
from raw import OK, RawBroker, Served, Start, Wire

GET = b"GET /admin/v2/clusters HTTP/1.1\r\nHost: pulsar\r\n\r\n"
LOOKUP = b"GET /lookup/v2/topic/persistent/t/n/x HTTP/1.1\r\nHost: pulsar\r\n\r\n"
DELETE = GET.replace(b"GET", b"DELETE")
POST = b"POST /admin/v2/x HTTP/1.1\r\nHost: pulsar\r\nContent-Length: 5\r\n\r\nhello"
BARE_POST = b"POST /admin/v2/x HTTP/1.1\r\nHost: pulsar\r\nContent-Length: 0\r\n\r\n"
PUT = POST.replace(b"POST", b"PUT")
LARGE = b"PUT /admin/v2/x HTTP/1.1\r\nHost: pulsar\r\nContent-Length: 50000\r\n\r\n" + b"x" * 50_000


class Awkward:
    """Answers what comes first on a connection; any later request may find it closed, or have it closed on arrival."""

    def __init__(self, broker: RawBroker, seed: int) -> None:
        self._broker = broker
        self._dice = random.Random(seed)
        self.late: list[bytes] = []
        """Methods of the requests that came by a connection used before."""
        self.closed = 0
        self.largest = 0

    async def serve(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._converse(await self._broker.accept()))

    async def _converse(self, wire: Wire) -> None:
        try:
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
        except EOFError:
            pass


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
    awkward = Awkward(broker, seed)
    serving = asyncio.create_task(awkward.serve())
    await asyncio.gather(*(load(served, 1000 * seed + name, 60) for name in range(20)))
    assert awkward.closed > 100
    assert {*awkward.late} == {
        b"GET",
        b"DELETE",
        b"PUT",
    }  # a POST never takes its chances, nor a body beyond replayBytes
    assert awkward.largest <= 100
    assert served.number("requests_total") == served.number("requests_total", code="200") == 1200
    assert served.number("upstream_errors_total") == 0
    serving.cancel()
