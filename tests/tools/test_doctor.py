"""`doctor` against real sockets: what is there, what is not, and what is there but wrong."""

import asyncio
import io
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trustme
from address_books import book, diagnose
from simulated.cluster import SimulatedCluster

from pulsar_ingress_proxy.binary.commands_pb2 import Command, Connected, FeatureFlags, LookupResponse
from pulsar_ingress_proxy.binary.frames import write
from pulsar_ingress_proxy.cli import main
from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.routing.snapshot import build
from pulsar_ingress_proxy.tools.doctor import Finding, as_lines, in_order
from pulsar_ingress_proxy.tools.terminal import Palette


@asynccontextmanager
async def answering(answer: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server that answers whatever it is sent, and closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.read(1000):
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def keeping_open(answer: Callable[[bytes], bytes]) -> AsyncIterator[int]:
    """A server that leaves it to its clients to close connections."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1000):
                writer.write(answer(data))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_pool_and_brokers_that_answer_200_are_reachable() -> None:
    async with SimulatedCluster(brokers=2) as cluster:
        lines = [(broker.name, f"internal:{broker.web}") for broker in cluster.brokers]
        findings = await diagnose(book(*lines, pool=cluster.brokers[0].web), None)
    assert [(finding.listener, finding.answers) for finding in findings] == [
        ("(pool)", "200"),
        ("internal", "200"),
        ("internal", "200"),
    ]
    assert all(finding.reachable for finding in findings)


async def test_a_broker_that_wants_a_token_is_reachable() -> None:
    async with SimulatedCluster(brokers=1, token="secret") as cluster:
        [finding] = await diagnose(book(("b", f"internal:{cluster.brokers[0].web}")), "internal")
    assert (finding.reachable, finding.answers) == (True, "401")


async def test_closed_port_resolves_but_does_not_connect() -> None:
    async with SimulatedCluster(brokers=1) as cluster:
        web = cluster.brokers[0].web
        await cluster.brokers[0].stop()
        [finding] = await diagnose(book(("b", f"internal:{web}")), "internal")
    assert (finding.resolves, finding.connects, finding.reachable) == (True, False, False)
    assert finding.problem is not None
    assert "does not open" in finding.problem


@pytest.mark.parametrize("host", ["broker.invalid", "b" * 64 + ".example.com"])
async def test_unresolvable_name_is_reported_without_connecting(host: str) -> None:
    [finding] = await diagnose(book(("b", f"external:https://{host}")), "external")
    assert (finding.resolves, finding.connects) == (False, None)
    assert finding.problem is not None
    assert finding.problem.startswith(f"{host} does not resolve")


async def test_broker_that_answers_503_is_reported_as_a_problem() -> None:
    async with answering(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n") as port:
        [finding] = await diagnose(book(("b", f"internal:http://127.0.0.1:{port}")), "internal")
    assert finding.problem == "the broker answers 503"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", id="length"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", id="chunks"),
        pytest.param(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", id="interim"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", id="a body that never comes"),
    ],
)
async def test_answer_is_read_by_its_framing_when_the_connection_stays_open(answer: bytes) -> None:
    """The answer's own framing says when it is whole; a gateway may keep the connection for the next request."""
    async with keeping_open(lambda _: answer) as port:
        [finding] = await diagnose(book(("b", f"internal:http://127.0.0.1:{port}")), "internal")
    assert (finding.problem, finding.answers) == (None, "200")


async def test_doctor_sends_http_1_1_with_the_host_of_the_address() -> None:
    """As Envoy does, the server refuses HTTP/1.0 with a 426."""
    asked: list[bytes] = []

    def answer(data: bytes) -> bytes:
        asked.append(data)
        status = b"200 OK" if data.startswith(b"GET /admin/v2/brokers/ready HTTP/1.1\r\n") else b"426 Upgrade Required"
        return b"HTTP/1.1 %b\r\nContent-Length: 0\r\n\r\n" % status

    async with keeping_open(answer) as port:
        [finding] = await diagnose(book(("b", f"external:http://localhost:{port}")), "external")
    assert (finding.problem, finding.answers) == (None, "200")
    [request] = asked
    assert request.endswith(b"\r\n\r\n")
    assert {f"Host: localhost:{port}".encode(), b"Connection: close"} <= set(request.split(b"\r\n"))


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        pytest.param(b"SSH-2.0-OpenSSH_9.9\r\n", "no answer: the broker's answer is not HTTP", id="another protocol"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000, "no answer: the head of", id="a head without end"),
    ],
)
async def test_web_port_that_does_not_speak_http_is_reported_as_a_problem(answer: bytes, problem: str) -> None:
    async with keeping_open(lambda _: answer) as port:
        [finding] = await diagnose(book(("b", f"internal:http://127.0.0.1:{port}")), "internal")
    assert finding.connects
    assert finding.problem is not None
    assert finding.problem.startswith(problem)


async def test_silent_server_is_given_up_after_the_connect_timeout() -> None:
    keys = {"brokers": {"webServiceUrl": ["http://127.0.0.1:1"]}, "timeouts": {"connect": 1}}
    async with keeping_open(lambda _: b"") as port:
        line = {"broker": "b", "listeners": f"internal:http://127.0.0.1:{port}"}
        [finding] = await diagnose(build(load_mapping({**keys, "advertisedListeners": [line]})), "internal")
    assert finding.problem == "no answer: nothing within 1 s"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(bytes.fromhex("0000000a 00000006 0803 1a02 0a00"), "CONNECTED", id="welcome"),
        pytest.param(bytes.fromhex("0000000a 00000006 080e 7202 0800"), "ERROR", id="authentication-refused"),
        pytest.param(bytes.fromhex("0000000a 00000006 0824 a202 0100"), "AUTH_CHALLENGE", id="challenge"),
    ],
)
async def test_binary_port_that_answers_connect_is_reachable_whatever_the_answer(answer: bytes, said: str) -> None:
    async with answering(answer) as port:
        [finding] = await diagnose(book(("b", f"external:pulsar://127.0.0.1:{port}")), "external")
    assert (finding.answers, finding.reachable) == (said, True)


NEWEST = {"protocol_version": 21, "feature_flags": FeatureFlags(topic_watchers=True, tc_metadata_discovery=True)}
NEWER = {
    "protocol version 22": {**NEWEST, "protocol_version": 22},
    "feature flag 10": {**NEWEST, "feature_flags": FeatureFlags.FromString(b"\x20\x01\x50\x01")},
    "feature flag 17": {**NEWEST, "feature_flags": FeatureFlags.FromString(b"\x88\x01\x00")},
}


@pytest.mark.parametrize(("what", "greeting"), [(None, NEWEST), (None, {}), *NEWER.items()])
async def test_broker_that_is_newer_than_the_sidecar_gets_a_warning(what: str | None, greeting: dict[str, Any]) -> None:
    async with answering(write(Command(type=3, connected=Connected(server_version=b"b", **greeting)))) as port:
        [finding] = await diagnose(book(("b", f"internal:pulsar://127.0.0.1:{port}")), "internal")
    assert (finding.reachable, finding.answers) == (True, "CONNECTED")
    assert finding.warning is None if what is None else f"does not know its {what}" in str(finding.warning)


@pytest.mark.parametrize(
    ("reported", "is_warned"),
    [
        ("pulsar://b.svc:6650", True),
        ("pulsar://10.9.9.9:6650", True),
        ("pulsar://127.0.0.1:{port}", False),
        ("pulsar://elsewhere.example.org:6650", True),
        (None, False),
    ],
)
async def test_binary_port_that_reports_an_off_listener_address_gets_a_warning(
    reported: str | None, is_warned: bool
) -> None:
    """Its clients would get internal addresses when topics move: reachable, but not right."""
    connected = write(Command(type=3, connected=Connected(server_version=b"b")))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.read(1000):
            writer.write(connected)
            if await reader.read(1000) and reported is not None:
                answer = LookupResponse(url=reported.format(port=port).encode(), response=1, request_id=1)
                writer.write(write(Command(type=24, lookup_response=answer)))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        snapshot = book(("b.svc", f"internal:pulsar://b.svc:6650,external:pulsar://127.0.0.1:{port}"))
        [finding] = await diagnose(snapshot, "external")
    assert (finding.reachable, finding.answers) == (True, "CONNECTED")
    assert bool(finding.warning) == is_warned
    if is_warned:
        assert finding.warning is not None
        assert f"told {reported}, which is not on 'external'" in finding.warning


async def test_binary_pools_are_tried_too() -> None:
    async with answering(bytes.fromhex("0000000a 00000006 0803 1a02 0a00")) as port:
        url = f"pulsar://127.0.0.1:{port}"
        config = load_mapping({"bindAddresses": ["pulsar://127.0.0.1:0"], "brokers": {"brokerServiceUrl": [url]}})
        [finding] = await diagnose(build(config), None)
    assert (finding.listener, finding.broker, finding.answers) == ("(pool)", "brokers.brokerServiceUrl", "CONNECTED")


async def test_binary_port_that_speaks_another_protocol_is_not_reachable() -> None:
    async with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        [finding] = await diagnose(book(("b", f"external:pulsar://127.0.0.1:{port}")), "external")
    assert not finding.reachable


async def test_broker_is_reachable_only_with_a_trusted_certificate_for_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that covers the name, one that covers another, and one of an authority nobody knows."""
    authority = trustme.CA()
    ready = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

    def server_context(ca: trustme.CA, name: str) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        ca.issue_cert(name).configure_cert(context)
        return context

    create = ssl.create_default_context

    def trusting() -> ssl.SSLContext:
        context = create()
        authority.configure_trust(context)
        return context

    contexts = [
        server_context(authority, "localhost"),
        server_context(authority, "broker.example.com"),
        server_context(trustme.CA(), "localhost"),
    ]
    monkeypatch.setattr(ssl, "create_default_context", trusting)
    results = []
    for context in contexts:
        async with answering(ready, context) as port:
            results += await diagnose(book(("b", f"external:https://localhost:{port}")), "external")
    good, other_name, unknown = results
    assert (good.reachable, good.certificate) == (True, True)
    assert (other_name.reachable, other_name.certificate) == (False, False)
    assert other_name.problem is not None
    assert "localhost" in other_name.problem
    assert (unknown.reachable, unknown.certificate) == (False, False)


async def test_a_template_is_filled_by_the_brokers_that_the_cluster_lists() -> None:
    ids = json.dumps([f"b-{n}.svc:8080" for n in (3, 4)]).encode()
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(ids), ids)
    async with answering(answer) as port:
        snapshot = book(("b-{n}.svc", f"external:http://127.0.0.{{n}}:{port}"), pool=f"http://127.0.0.1:{port}")
        findings = await diagnose(snapshot, "external")
    assert [finding.broker for finding in findings] == ["b-3.svc", "b-4.svc"]


async def test_a_template_is_counted_from_0_where_nobody_lists_brokers() -> None:
    async with SimulatedCluster(brokers=1) as cluster:
        port = int(cluster.brokers[0].web.rpartition(":")[2])
        snapshot = book(("b-{n}.svc", f"external:http://127.0.0.1:{{n+{port}}}"))
        findings = await diagnose(snapshot, "external")
    assert findings[0].broker == "b-0.svc"
    assert findings[0].reachable


@pytest.mark.parametrize(("scheme", "bind_scheme"), [("https", "http"), ("pulsar+ssl", "pulsar")])
async def test_pool_and_internal_addresses_are_dialled_with_brokers_tls(
    scheme: str, bind_scheme: str, tmp_path: Path
) -> None:
    """With `brokers.tls`, which clients outside do not have."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    answers = {
        "https": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "pulsar+ssl": write(Command(type=3, connected=Connected(server_version=b"b"))),
    }
    async with answering(answers[scheme], context) as port:
        url = f"{scheme}://localhost:{port}"
        pool = {"https": {"webServiceUrl": [url]}, "pulsar+ssl": {"brokerServiceUrl": [url]}}[scheme]
        keys = {
            "bindAddresses": [f"{bind_scheme}://127.0.0.1:0"],
            "advertisedListeners": [{"broker": "b", "listeners": f"internal:{url}"}],
        }

        async def found(**tls: str) -> list[tuple[bool, str | None]]:
            config = load_mapping({**keys, "brokers": {**pool, "tls": tls}})
            return [(one.reachable, one.problem) for one in await diagnose(build(config), None)]

        assert await found(ca=str(tmp_path / "ca.pem")) == [(True, None)] * 2
        wrong = "the peer has another identity: its certificate has the identity (none), not spiffe://a/b"
        assert await found(ca=str(tmp_path / "ca.pem"), peerIdentity="spiffe://a/b") == [(False, wrong)] * 2
        absent = await found(ca=str(tmp_path / "absent.pem"))
    assert [why is not None and "brokers.tls.ca" in why for _, why in absent] == [True, True]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


FINDINGS = [
    Finding("internal", "b-10", "http://b-10:8080", answers="200"),
    Finding("internal", "b-9", "http://b-9:8080", answers="401", warning="clients are told b-9"),
    Finding("external", "b-9", "https://b-9.example.com", problem="port 443 does not open"),
]


def test_lines_are_sorted_by_listener_and_broker_and_aligned() -> None:
    assert list(as_lines(sorted(FINDINGS, key=in_order), Palette(io.StringIO()))) == [
        "FAIL  external  b-9   https://b-9.example.com  port 443 does not open",
        "warn  internal  b-9   http://b-9:8080          401; clients are told b-9",
        "ok    internal  b-10  http://b-10:8080         200",
        "2 of 3 addresses reachable from here, 1 with a warning",
    ]


async def test_findings_are_returned_by_listener_then_broker_in_numeric_order() -> None:
    lines = [(f"b-{number}", f"internal:http://127.0.0.1:1,external:http://127.0.0.{number}:1") for number in (10, 9)]
    found = await diagnose(book(*lines), None)
    assert [(finding.listener, finding.broker) for finding in found] == [
        ("(pool)", "brokers.webServiceUrl"),
        *((listener, broker) for listener in ("external", "internal") for broker in ("b-9", "b-10")),
    ]


@pytest.mark.parametrize(
    ("variables", "is_coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colours_are_for_terminals_only_and_no_color_turns_them_off(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], is_coloured: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[31mFAIL\x1b[0m" in "".join(as_lines(FINDINGS, Palette(Terminal())))) == is_coloured
    assert "\x1b" not in "".join(as_lines(FINDINGS, Palette(io.StringIO())))


def test_doctor_prints_columns_and_a_summary_and_exits_1_where_something_is_unreachable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("brokers: {webServiceUrl: ['http://127.0.0.1:1']}")
    assert main(["doctor", "--config", str(path)]) == 1
    first, summary = capsys.readouterr().out.splitlines()
    assert first.startswith("FAIL  (pool)  brokers.webServiceUrl  http://127.0.0.1:1  port 1 does not open: ")
    assert summary == "0 of 1 addresses reachable from here"
