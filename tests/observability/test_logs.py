"""What the sidecar writes down: one line a notable thing, under the id that the client was told, and no secrets."""

import gzip
import io
import json
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from raw import OK, SWITCH, RawBroker
from runs import Place, apart
from wires import free_port

from pulsar_ingress_proxy.config.model import Log
from pulsar_ingress_proxy.observability import log as logs

SECRET = b"s3cr3t"
FIELDS = b"Host: pulsar\r\nAuthorization: Bearer s3cr3t\r\nCookie: token=s3cr3t\r\nX-Pulsar-Auth: s3cr3t\r\n"
GET = b"GET /admin/v2/clusters?token=s3cr3t HTTP/1.1\r\n" + FIELDS + b"\r\n"
LOOKUP = b"GET /lookup/v2/topic/persistent/t/n/x?token=s3cr3t HTTP/1.1\r\n" + FIELDS + b"\r\n"
HANDSHAKE = (
    b"GET /ws/v2/consumer/persistent/t/n/x/s?token=s3cr3t HTTP/1.1\r\n" + FIELDS + b"Connection: Upgrade\r\n"
    b"Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def moved(authority: str) -> bytes:
    location = f"http://{authority}/lookup/v2/topic/persistent/t/n/x?authoritative=true&token=s3cr3t"
    return f"HTTP/1.1 307 Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()


# What brokers answer, and with what status that ends.
ANSWERS = {
    "an answer": (LOOKUP, OK, 200),
    "a redirect that is rewritten": (LOOKUP, moved("b-1.inside.svc:8080"), 307),
    "a redirect that is refused": (LOOKUP, moved("b-1.elsewhere.svc:8080"), 502),
    "a redirect to nobody": (LOOKUP, moved("b-2.inside.svc:8080"), 502),
    "nonsense": (GET, b"s3cr3t\r\n\r\n", 502),
    "half an answer": (LOOKUP, b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", 502),
    "no answer": (GET, b"", 502),
    "a WebSocket": (HANDSHAKE, SWITCH, 101),
}


async def test_log_and_events_use_the_answers_request_id_and_never_contain_tokens(
    broker: RawBroker, tmp_path: Path
) -> None:
    """Every outcome of a request with a token: the same id everywhere, the token nowhere."""
    place, folder = Place(tmp_path / "config.yaml", broker.url), tmp_path / "events"
    listeners = "internal:http://127.0.0.1:{},external:https://b-{}.example.com"
    place.write(
        lookupListenerName="external",
        advertisedListeners=[
            {"broker": "b-1.inside.svc:8080", "listeners": listeners.format(broker.port, 1)},
            {"broker": "b-2.inside.svc:8080", "listeners": f"internal:http://127.0.0.1:{free_port()}"},
        ],
        redirects={"lookup": "rewrite", "admin": "rewrite", "unmapped": "refuse"},
        events={"path": str(folder)},
        log={"level": "debug"},
        drainSeconds=1,
    )
    told: dict[str, int] = {}
    async with apart(place.path) as process:
        await process.said("serving ")
        for data, answer, status in ANSWERS.values():
            client = await place.connect(data)
            wire = await broker.accept()
            assert SECRET in (await wire.head()).raw  # brokers are to get it
            wire.send(answer.replace(b"\r\n", b"\r\nConnection: close\r\n", 1) if status != 101 else answer)
            wire.close()
            head = await client.head()
            assert head.status == status
            told[head.one(b"x-request-id").decode()] = status
            if status == 101:
                await client.end()
            client.transport.abort()
        for bad in (GET.replace(b"/v2/", b"/../"), GET.replace(b"HTTP/1.1\r\n", b"HTTP/1.1\r\nHost: s3cr3t\r\n")):
            assert (await place.ask(bad)).status == 400
        assert (await place.ask(b"s3cr3t\r\n\r\n")).status == 400
        assert (await place.ask(GET.replace(b"clusters", b"x" * 40_000))).status == 431
        place.write(lookupListenerNam="x")
        process.send(signal.SIGHUP)
        await process.said("not reloaded")
        process.send(signal.SIGTERM)
        assert await process.ended() == 0

    events = [json.loads(line) for file in folder.iterdir() for line in gzip.decompress(file.read_bytes()).splitlines()]
    assert {event["id"]: event["status"] for event in events if event["status"] != 400} == told
    assert SECRET.decode() not in json.dumps(events)
    assert sum("token=REDACTED" in (event["redirectFrom"] or "") for event in events) == 3
    assert SECRET not in process.output
    for line in process.lines:
        assert {"time", "level", "logger", "message"} <= line.keys()
        assert datetime.fromisoformat(line["time"]).utcoffset() == timedelta()
    for identity, status in told.items():
        notable = [line["message"] for line in process.lines if identity in line["message"]]
        assert bool(notable) == (status == 502), (status, notable)


# The two forms.


Form = Literal["auto", "text", "json"]
Write = Callable[[Form, bool, str], str]


class Stream(io.StringIO):
    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.fixture
def write(monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Logs a warning in this form, to a terminal or not; what is written."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def written(form: Form, is_terminal: bool, message: str) -> str:
        stream = Stream(is_terminal)
        monkeypatch.setattr(sys, "stderr", stream)
        logs.set_up(Log(format=form))
        logging.getLogger("proxy.test").warning("%s", message)
        logging.getLogger("proxy.test").debug("not at this level")
        return stream.getvalue()

    yield written
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize(
    ("form", "is_terminal", "is_json"),
    [("auto", True, False), ("auto", False, True), ("json", True, True), ("text", False, False)],
)
def test_log_format_follows_config_and_auto_is_text_only_on_a_terminal(
    write: Write, form: Form, is_terminal: bool, is_json: bool
) -> None:
    line = write(form, is_terminal, "a word")
    assert line.count("\n") == 1
    if is_json:
        assert json.loads(line)["message"] == "a word"
    else:
        assert line.endswith("WARNING a word\n")


@pytest.mark.parametrize("message", ["two\nlines", "a\u2028line\x85end\r", "\x00\x1b[31m"])
def test_text_log_entry_stays_one_printable_line_for_any_message(write: Write, message: str) -> None:
    (line,) = write("text", False, message).splitlines()
    assert line.isprintable()


@pytest.mark.parametrize("form", ["text", "json"])
def test_long_log_message_is_truncated(write: Write, form: Form) -> None:
    assert len(write(form, False, "x" * 100_000)) < 5000


@pytest.mark.parametrize(
    "message", ["two\nlines", 'a "quote"', "a\u2028line\x85end", "\udcff", "\x00\x1b[31m", "größer"]
)
def test_json_log_entry_stays_one_line_for_any_message(write: Write, message: str) -> None:
    (line,) = write("json", False, message).splitlines()
    entry: dict[str, Any] = json.loads(line.encode("ascii"))
    assert (entry["message"], entry["level"], entry["logger"]) == (message, "warning", "proxy.test")
