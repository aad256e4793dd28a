"""A request is answered, recorded and counted alike, whether it goes straight through or has to be waited for."""

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from raw import Message, RawBroker, Served, answer_all, serving
from running_sidecar import events_in, while_running
from wires import opened

LOOKUP = "/lookup/v2/topic/persistent/t/n/x"
PATHS = (LOOKUP, LOOKUP + "?listenerName=external", LOOKUP + "?listenerName=nobody", "/admin/v2/clusters", "/other")
HOSTS = ("pulsar.example.com", "b.pulsar.example.com", "elsewhere.example.com", "a/b")
OWNER = {"brokerUrl": "pulsar://{broker}", "httpUrl": "http://{broker}", "nativeUrl": "pulsar://{broker}"}


def answer(status: str, body: bytes = b"", *fields: str) -> bytes:
    head = "".join(f"{field}\r\n" for field in (f"HTTP/1.1 {status}", *fields, f"Content-Length: {len(body)}"))
    return head.encode() + b"\r\n" + body


@dataclass(frozen=True)
class Case:
    method: str
    path: str
    host: str
    fields: tuple[str, ...]
    answer: str
    config: dict[str, Any]


def answers(broker: str) -> dict[str, bytes]:
    """What a broker may say; `broker` is what it calls itself."""
    owner = json.dumps({key: url.replace("{broker}", broker) for key, url in OWNER.items()}).encode()
    return {
        "an answer": answer("200 OK", owner, "Content-Type: application/json"),
        "an answer of nobody": answer("200 OK", b'{"brokerUrl":"pulsar://10.0.0.1:6650"}'),
        "no listener": answer("500 Oops", b"the broker do not have external listener"),
        "not found": answer("404 Not Found", b"no such topic"),
        "a redirect": answer("307 Moved", b"", f"Location: http://{broker}{LOOKUP}?authoritative=true"),
        "a redirect to nobody": answer("307 Moved", b"", "Location: http://10.0.0.1:8080/x"),
        "a relative redirect": answer("302 Found", b"", "Location: /x"),
        "a coded answer": answer("200 OK", b"???", "Content-Encoding: br"),
    }


cases = st.builds(
    Case,
    st.sampled_from(["GET", "PUT", "DELETE"]),
    st.sampled_from(PATHS),
    st.sampled_from(HOSTS),
    st.lists(st.sampled_from(["X-Forwarded-For: 8.8.8.8", "X-A: a", "X-Pulsar-ListenerName: external"])).map(tuple),
    st.sampled_from(sorted(answers("b:80"))),
    st.fixed_dictionaries(
        {},
        optional={
            "shadow": st.just(True),
            "leaks": st.sampled_from(["block", "observe"]),
            "miss": st.just("reject"),
            "redirects": st.sampled_from([{"lookup": "follow", "admin": "follow"}, {"unmapped": "refuse"}]),
            "clientListenerName": st.sampled_from(["ignore", "reject"]),
        },
    ),
)


def request(case: Case, *fields: str) -> bytes:
    lines = (f"{case.method} {case.path} HTTP/1.1", f"Host: {case.host}", *case.fields, *fields)
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n"


async def asked(served: Served, *pieces: bytes) -> tuple[Message, dict[str, float], float]:
    """The answer, what was added to counters, and how many tasks it took."""

    def counters() -> dict[str, float]:
        families = served.sidecar.metrics.collect()
        found = {f"{one.name}{one.labels}": one.value for family in families for one in family.samples}
        return {key: value for key, value in found.items() if "_total" in key or "_count" in key}

    before, client = counters(), await served.client()
    for piece in pieces:
        client.send(piece)
        for _ in range(4):
            await asyncio.sleep(0)
    async with asyncio.timeout(10):
        message = await client.message()
    client.close()
    added = {key: value - before.get(key, 0) for key, value in counters().items() if value != before.get(key, 0)}
    tasks = sum(added.pop(key) for key in list(added) if "task_requests" in key)
    return message, {key: value for key, value in added.items() if "event" not in key}, tasks


async def compare(case: Case) -> None:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        broker = await stack.enter_async_context(opened(RawBroker()))
        own = f"127.0.0.1:{broker.port}"
        listeners = f"internal:http://{own},external:https://b.pulsar.example.com,external:pulsar://b.example.com:6650"
        config = {
            "ingresses": [{"name": "public", "hosts": ["*.example.com"], "listener": "external"}],
            "advertisedListeners": [{"broker": own, "listeners": listeners}],
            "events": {"path": folder, "compress": "none"},
            **case.config,
        }
        said, final = answers(own)[case.answer], answers(own)["an answer"]
        answering = answer_all(broker, lambda got: final if b"authoritative" in got.head.target else said)
        await stack.enter_async_context(while_running(answering))
        async with serving(f"http://{own}", **config) as served:
            await served.ask(b"GET /admin HTTP/1.1\r\nHost: b.example.com\r\n\r\n")  # there is a connection now
            straight = await asked(served, request(case))
            waiting = await asked(served, request(case, "Content-Length: 1"), b"x")
        events = events_in(Path(folder))
    assert straight[2] == 0
    assert waiting[2] == any("upstream" in counter for counter in waiting[1])
    # Where the answer does not wait for the body, the connection ends with it.
    heads = [message.head.raw.replace(b"\r\nConnection: close", b"") for message, *_ in (straight, waiting)]
    assert heads[0] == heads[1]
    assert straight[0].body == waiting[0].body
    assert straight[1] == waiting[1]
    one, two = ({**event, **dict.fromkeys(OWN)} for event in events[-2:])
    assert one == two


OWN = ("id", "time", "durationMs", "upstreamMs", "requestBytes")
"""What is each request's own."""


@given(cases)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_a_request_that_is_waited_for_is_answered_recorded_and_counted_like_one_that_is_not(case: Case) -> None:
    with asyncio.Runner() as runner:
        runner.run(compare(case))
