"""A client's bytes reach the broker in the order in which they were sent, whatever their cuts and their timing.

Everything here is seen from the two sockets: what the client sends, what the broker gets, what the client gets back.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import pytest
import trustme
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from raw import Message, RawBroker, Wire, serve_all, serving
from running_sidecar import while_running
from tls_helpers import client_context, https, pair_files
from wires import opened

NewLoop = Callable[[], asyncio.AbstractEventLoop]

SMUGGLED = b"GET /admin/v2/smuggled HTTP/1.1\r\nHost: evil\r\n\r\n"
"""What bodies are made of: a body that is taken for a request asks the broker for this."""

Move = Literal["client", "broker", "turn"]
"""The client sends its next piece; the broker sends the next piece of an answer; the event loop takes a few turns."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One request of a client, and the bytes of the broker's answer to it."""

    method: str
    target: str
    body: bytes = b""
    chunked: bool = False
    answer: bytes = b"ok"

    @property
    def raw(self) -> bytes:
        start = f"{self.method} {self.target} HTTP/1.1\r\n".encode()
        head = start + b"Host: pulsar.example.com\r\nAuthorization: Bearer t\r\n"
        if self.chunked:
            half = len(self.body) // 2
            parts = [part for part in (self.body[:half], self.body[half:]) if part]
            chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
            return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
        if self.body:
            return head + b"Content-Length: %d\r\n\r\n" % len(self.body) + self.body
        return head + b"\r\n"


@dataclass(frozen=True, slots=True)
class Conversation:
    requests: Sequence[Sent]
    cuts: Sequence[float]
    """Where the client's bytes are cut, as shares of their length."""
    answer_cuts: Sequence[float]
    moves: Sequence[Move]


def pieces(data: bytes, cuts: Sequence[float]) -> list[bytes]:
    places = sorted({int(cut * len(data)) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(places)]


class Broker:
    """Reads requests off all its connections, and answers in pieces, each when it is told to."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self.got: list[Message] = []
        self.may_send = asyncio.Semaphore(0)
        self.is_unbound = False

    async def converse(self, wire: Wire) -> None:
        while True:
            request = await wire.message()
            self.got.append(request)
            body = self._answer_to(request)
            answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
            for piece in pieces(answer, self._conversation.answer_cuts):
                if not self.is_unbound:
                    await self.may_send.acquire()
                wire.send(piece)

    def _answer_to(self, request: Message) -> bytes:
        target = request.head.target.decode()
        return next((sent.answer for sent in self._conversation.requests if sent.target == target), b"stranger")


async def hold(conversation: Conversation, **listening: Any) -> tuple[list[tuple[str, str, bytes]], list[bytes]]:
    """What the broker got, and the answers that the client got, both in their order."""
    tls = listening.pop("client_tls", None)
    async with AsyncExitStack() as stack:
        raw, broker = await stack.enter_async_context(opened(RawBroker())), Broker(conversation)
        served = await stack.enter_async_context(serving(raw.url, drainSeconds=0, **listening))
        await stack.enter_async_context(while_running(serve_all(raw, broker.converse)))
        client = await served.client(tls=tls, server_name="pulsar.example.com" if tls else None)
        to_send = pieces(b"".join(sent.raw for sent in conversation.requests), conversation.cuts)
        for move in conversation.moves:
            if move == "client" and to_send:
                client.send(to_send.pop(0))
            elif move == "broker":
                broker.may_send.release()
            else:
                for _ in range(4):
                    await asyncio.sleep(0)
        broker.is_unbound = True
        for _ in range(100):  # for all that have begun to wait
            broker.may_send.release()
        for piece in to_send:
            client.send(piece)
            await asyncio.sleep(0)
        async with asyncio.timeout(20):  # a body that waits for bytes that were taken for a request waits for ever
            answers = [await client.message() for _ in conversation.requests]
        assert [answer.status for answer in answers] == [200] * len(answers), answers
        assert not client.buffer
        got = [(got.head.start.split()[0].decode(), got.head.target.decode(), got.body) for got in broker.got]
        return got, [answer.body for answer in answers]


def check(conversation: Conversation, new_loop: NewLoop, **listening: Any) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        got, answers = runner.run(hold(conversation, **listening))
    assert got == [(sent.method, sent.target, sent.body) for sent in conversation.requests]
    assert answers == [sent.answer for sent in conversation.requests]


@st.composite
def conversations(draw: st.DrawFn) -> Conversation:
    requests = []
    for number in range(draw(st.integers(1, 5))):
        answer = b"answer %d" % number * draw(st.sampled_from([1, 1, 200]))
        match draw(st.sampled_from(["lookup", "get", "post", "chunked"])):
            case "lookup":
                requests.append(Sent("GET", f"/lookup/v2/topic/persistent/t/n/{number}", answer=answer))
            case "get":
                requests.append(Sent("GET", f"/admin/v2/tenants/{number}?a={number}", answer=answer))
            case framing:
                body = SMUGGLED * draw(st.sampled_from([1, 1, 3, 400]))
                requests.append(Sent("POST", f"/admin/v2/tenants/{number}", body, framing == "chunked", answer))
    share = st.floats(0, 1)
    return Conversation(
        requests,
        draw(st.lists(share, max_size=8)),
        draw(st.lists(share, max_size=3)),
        draw(st.lists(st.sampled_from(["client", "client", "broker", "turn"]), max_size=30)),
    )


LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
SCHEMES = pytest.mark.parametrize("scheme", ["http", "https"])


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """For each scheme, the settings of a sidecar that is asked by it, and the client's side of TLS."""
    ca = trustme.CA()
    files = pair_files(tmp_path_factory.mktemp("tls"), ca.issue_cert("pulsar.example.com"))
    return {"http": {}, "https": {**https(files), "client_tls": client_context(ca)}}


@LOOPS
@SCHEMES
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(conversation=conversations())
def test_requests_reach_broker_in_order_and_intact_however_bytes_are_split(
    listening: dict[str, dict[str, Any]], scheme: str, new_loop: NewLoop, conversation: Conversation
) -> None:
    check(conversation, new_loop, **listening[scheme])


@LOOPS
@SCHEMES
@pytest.mark.parametrize("first", ["/lookup/v2/topic/persistent/t/n/0", "/admin/v2/clusters"])
def test_a_body_sent_while_another_request_is_answered_is_never_taken_for_a_request(
    listening: dict[str, dict[str, Any]], scheme: str, new_loop: NewLoop, first: str
) -> None:
    """The head of a POST arrives while a GET is being answered, its body with the end of that answer."""
    post = Sent("POST", "/admin/v2/tenants/1", SMUGGLED)
    requests = [Sent("GET", first, answer=b"first"), post, Sent("GET", "/admin/v2/tenants/2", answer=b"last")]
    total = len(b"".join(sent.raw for sent in requests))
    ends = [len(requests[0].raw), len(requests[0].raw + post.raw) - len(SMUGGLED), len(requests[0].raw + post.raw)]
    turns: list[Move] = ["turn"] * 10
    moves: list[Move] = ["client", *turns, "broker", *turns, "client", *turns, "broker", "client", *turns, "client"]
    cuts = [end / total for end in ends]
    check(Conversation(requests, cuts, [0.5], moves), new_loop, **listening[scheme])
