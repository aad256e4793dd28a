"""A client's connection in every order of events: pieces, pipelining, answers, broken brokers, drain, leaving."""

import asyncio
import re
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from memory_peers import MemoryServer, StrictBroker
from memory_transport import pieces, turns
from schedules import Step, play_all

BODIES = {
    "GET": (b"\r\n",),
    "PUT": (b"Content-Length: 5\r\n\r\nhello", b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
    "POST": (b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\nhello", b"Content-Length: 0\r\n\r\n"),
}
CUTS = st.lists(st.integers(0, 400), max_size=3)


def number_of(broker: StrictBroker) -> bytes:
    """The number of the request that it was asked."""
    return broker.requests[-1][0].split(b" ")[1].rpartition(b"/")[2]


class ClientConnectionMachine(RuleBasedStateMachine):
    """Requests are numbered, and a broker answers with the number: an answer in the wrong place is seen."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.server: MemoryServer = self.loop.run_until_complete(self._start())
        self.asked = 0
        self.unsent = b""
        self.is_draining = False

    async def _start(self) -> MemoryServer:
        return MemoryServer()

    def run(self, do: Any, *arguments: Any) -> None:
        async def in_loop() -> None:
            do(*arguments)
            await turns()

        self.loop.run_until_complete(in_loop())

    def waiting(self) -> list[StrictBroker]:
        return [
            broker for broker in self.server.brokers.dialled if broker.is_asked and not broker.transport.is_closing()
        ]

    def answers(self) -> list[tuple[int, bytes]]:
        """Status and body of each final answer that the client has got whole."""
        found: list[tuple[int, bytes]] = []
        rest = bytes(self.server.received)
        while match := re.match(rb"HTTP/1\.1 (\d+) [^\r\n]*\r\n((?:[^\r\n]+\r\n)*)\r\n", rest):
            rest = rest[match.end() :]
            if match[1] == b"100":
                continue
            length = re.search(rb"content-length: (\d+)\r\n", match[2].lower())
            assert length is not None, match[0]
            if len(rest) < int(length[1]):
                return found
            found.append((int(match[1]), rest[: int(length[1])]))
            rest = rest[int(length[1]) :]
        assert not rest or b"HTTP/1.1 ".startswith(rest[:9]) or rest.startswith(b"HTTP/1.1 "), rest
        return found

    @rule(method=st.sampled_from(sorted(BODIES)), form=st.integers(0, 1))
    def ask(self, method: str, form: int) -> None:
        forms = BODIES[method]
        body = forms[form % len(forms)] or b"\r\n"
        self.unsent += b"%b /admin/v2/%d HTTP/1.1\r\nHost: pulsar.example.com\r\n%b" % (
            method.encode(),
            self.asked,
            body,
        )
        self.asked += 1

    @precondition(lambda self: self.unsent)
    @rule(cuts=CUTS)
    def send(self, cuts: list[int]) -> None:
        first, *_ = pieces(self.unsent, cuts)
        self.unsent = self.unsent[len(first) :]
        self.run(self.server.send, first)

    @precondition(lambda self: self.waiting())
    @rule(cuts=CUTS)
    def answer(self, cuts: list[int]) -> None:
        broker = self.waiting()[0]
        self.run(broker.answer, number_of(broker), *cuts)

    @precondition(lambda self: self.waiting())
    @rule()
    def break_broker(self) -> None:
        self.run(self.waiting()[0].transport.close)

    @rule()
    def drain(self) -> None:
        self.is_draining = True
        self.run(self.server.client.close)

    @rule()
    def leave(self) -> None:
        self.run(self.server.transport.close)

    @invariant()
    def answers_come_in_order_and_belong_to_their_requests(self) -> None:
        for number, (status, body) in enumerate(self.answers()):
            assert status in (200, 502), (status, body)
            assert status != 200 or body == b"%d" % number
        assert len(self.answers()) <= self.asked

    @invariant()
    def one_request_is_in_flight_at_most(self) -> None:
        assert self.server.in_flight <= 1
        assert len(self.waiting()) <= 1

    @invariant()
    def draining_connection_closes_after_its_request(self) -> None:
        assert not self.is_draining or self.server.in_flight or self.server.transport.is_closing()

    def teardown(self) -> None:
        self.loop.run_until_complete(self.server.close())
        counted = sum(
            sample.value
            for family in self.server.metrics.collect()
            for sample in family.samples
            if sample.name == "pulsar_ingress_requests_total"
        )
        assert len(self.answers()) <= counted <= self.asked
        self.loop.close()


TestClientConnection = ClientConnectionMachine.TestCase
TestClientConnection.settings = settings(max_examples=150, stateful_step_count=25)


class Case:
    """Two pipelined requests in five pieces, their answers in two, and one event at any moment."""

    def __init__(self, methods: tuple[str, str], event: str) -> None:
        self.machine, self._event = ClientConnectionMachine(), event
        for method in methods:
            self.machine.ask(method, 1)
        fifth = len(self.machine.unsent) // 5
        self._to_send = pieces(self.machine.unsent, range(fifth, 5 * fifth, fifth))
        self._rest = b""
        """Of the answer that a broker is sending."""

    def steps(self) -> list[Step]:
        server, can = self.machine.server, list[Step]()
        if self._to_send and not server.transport.is_closing():
            can.append(lambda: self._do(server.send, self._to_send.pop(0)))
        if self._rest or self.machine.waiting():
            can.append(self._answer)
        if self._event and not server.transport.is_closing():
            can.append(self._interrupt)
        return can

    def _do(self, do: Callable[..., None], *arguments: object) -> None:
        self.machine.run(do, *arguments)
        self._check()

    def _check(self) -> None:
        self.machine.answers_come_in_order_and_belong_to_their_requests()
        self.machine.one_request_is_in_flight_at_most()
        self.machine.draining_connection_closes_after_its_request()

    def _answer(self) -> None:
        broker = self.machine.server.brokers.dialled[-1]
        if self._rest:
            data, self._rest = self._rest, b""
        else:
            whole = broker.begin_answer(number_of(broker))
            data, self._rest = whole[:30], whole[30:]
        self._do(broker.send, data)

    def _interrupt(self) -> None:
        event, self._event = self._event, ""
        if event != "broker leaves":
            getattr(self.machine, event)()
            self._check()
        elif brokers := self.machine.server.brokers.dialled:
            self._rest = b""
            self._do(brokers[-1].transport.close)


def test_every_order_of_two_requests_their_answers_and_an_event_is_answered_in_order() -> None:
    """There are 339 orders."""
    orders = 0
    for methods, event in product(
        [("GET", "GET"), ("PUT", "GET"), ("POST", "PUT")], ["", "leave", "drain", "broker leaves"]
    ):
        orders += play_all(partial(Case, methods, event), Case.steps, lambda case: case.machine.teardown())
    assert orders > 300
