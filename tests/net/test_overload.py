"""Overload: requests are refused only if all have waited for too long, for a second."""

import asyncio
import socket
import time
from collections.abc import Iterable

import pytest

from pulsar_ingress_proxy.net.overload import BETWEEN, LOOKS, SERVED, Overload

LIMIT, SHORT, LONG = 0.1, 0.05, 0.5


def decided(overload: Overload, waits: Iterable[float], start: float = 0.0, gap: float = 1.01 * BETWEEN) -> list[bool]:
    """What becomes of requests that begin at this distance."""
    return [overload.decide(start + number * gap, waited) for number, waited in enumerate(waits)]


def overloaded() -> Overload:
    overload = Overload(LIMIT)
    decided(overload, [LONG] * LOOKS)
    assert overload.is_overloaded
    return overload


def test_requests_that_wait_briefly_are_never_refused() -> None:
    assert not any(decided(Overload(LIMIT), [LIMIT] * 1000))


def test_no_request_is_refused_before_all_have_waited_too_long_for_a_second() -> None:
    overload = Overload(LIMIT)
    assert not any(decided(overload, [LONG] * (LOOKS - 1)))
    assert not overload.is_overloaded
    assert LOOKS * BETWEEN >= 1


@pytest.mark.parametrize("pause", [0.3, 3.0, 30.0])
def test_one_pause_of_the_process_refuses_nothing(pause: float) -> None:
    """Requests that came meanwhile have all waited, but are all read within the time of one look."""
    waits = [pause * place / 5000 for place in range(5000, 0, -1)]
    assert not any(decided(Overload(LIMIT), waits, gap=BETWEEN / 5000))


def test_regular_pauses_refuse_nothing_while_some_requests_wait_briefly() -> None:
    """As under a CPU limit: the process halts for most of each period of the kernel's scheduler."""
    assert not any(decided(Overload(LIMIT), ([LONG] * (LOOKS - 1) + [SHORT]) * 20))


def test_a_crowd_of_requests_within_a_moment_counts_as_one() -> None:
    assert not any(decided(Overload(LIMIT), [LONG] * 10 * LOOKS, gap=BETWEEN / 1000 / LOOKS))


def test_overload_refuses_late_requests_but_serves_one_of_several() -> None:
    refused = decided(overloaded(), [LONG] * 20 * SERVED, start=10)
    assert refused.count(False) == 20
    assert all(not all(refused[place : place + SERVED]) for place in range(len(refused) - SERVED))


def test_overload_serves_requests_that_wait_briefly() -> None:
    overload = overloaded()
    assert not any(decided(overload, [SHORT] * (LOOKS - 1), start=10))
    assert overload.is_overloaded


def test_overload_ends_when_all_requests_have_waited_briefly_for_a_second() -> None:
    overload = overloaded()
    decided(overload, [SHORT] * (LOOKS - 1) + [LONG] + [SHORT] * (LOOKS - 1), start=10)
    before = overload.is_overloaded
    decided(overload, [SHORT], start=20)
    assert (before, overload.is_overloaded) == (True, False)
    assert not any(decided(overload, [LONG] * (LOOKS - 1), start=30))


class Receiver(asyncio.Protocol):
    """Asks at once about all that it receives."""

    def __init__(self, overload: Overload) -> None:
        self._overload = overload
        self.refused: asyncio.Queue[bool] = asyncio.Queue()
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.refused.put_nowait(self._overload.refuses(self._transport))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


async def test_time_that_bytes_wait_in_a_socket_is_what_counts() -> None:
    overload = Overload(0.1)
    receiver = Receiver(overload)
    server = await asyncio.get_running_loop().create_server(lambda: receiver, "127.0.0.1", 0)
    overload.is_overloaded = True
    with socket.create_connection(server.sockets[0].getsockname()) as client:
        client.sendall(b"first")
        assert not await receiver.refused.get()
        client.sendall(b"second")
        time.sleep(0.3)  # noqa: ASYNC251 - what a busy process does
        assert await receiver.refused.get()
        client.sendall(b"third")
        assert not await receiver.refused.get()
    await receiver.lost.wait()
    server.close()
    await server.wait_closed()


def test_log_says_when_an_overload_begins_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    overload = overloaded()
    assert "overloaded: for a second, requests have waited for more than 100 ms (limits.waitMillis)" in caplog.text
    decided(overload, [SHORT] * LOOKS, start=10)
    assert "no longer overloaded: requests wait for less than 100 ms again" in caplog.text
