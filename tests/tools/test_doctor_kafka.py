"""`doctor` on Kafka listeners: the addresses that they name to clients, and peers that answer anything else."""

import asyncio
import ssl
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme
from address_books import book, diagnose
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_listeners import API_VERSIONS, METADATA, Answer, api_versions, framed, kafka_listener, metadata, naming
from kio.schema.errors import ErrorCode

from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.routing.snapshot import build
from pulsar_ingress_proxy.tools.doctor import Finding

HUGE = 0x7FFFFFFF.to_bytes(4)


async def asked(answer: Answer, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> list[Finding]:
    """What is found of one broker's Kafka listener."""
    scheme = "kafka" if tls is None else "kafka+ssl"
    async with kafka_listener(answer, tls) as port:
        return await diagnose(book(("b.svc", f"external:{scheme}://{host}:{port}")), "external")


def answering(versions: bytes | None = None, told: bytes | None = None) -> Answer:
    """One of the answers is these bytes and no others."""

    def answer(key: int, number: bytes) -> bytes:
        if key == API_VERSIONS:
            return framed(number, api_versions()) if versions is None else versions
        return framed(number, metadata(("h", 1))) if told is None else told

    return answer


async def test_kafka_listener_that_names_the_addresses_of_its_listener_is_reachable() -> None:
    ports: list[int] = []

    def both(key: int, number: bytes) -> bytes | None:
        return naming(*(("LOCALHOST.", port) for port in ports))(key, number)

    async with kafka_listener(both) as one, kafka_listener(both) as other:
        ports += [one, other]
        lines = [(f"b-{port}", f"external:kafka://localhost:{port},internal:kafka://b-{port}:9092") for port in ports]
        findings = await diagnose(book(*lines), "external")
    assert [(finding.answers, finding.problem, finding.warning) for finding in findings] == [
        ("Metadata", None, None)
    ] * 2


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        pytest.param(("b.svc", 9092), "b.svc:9092", id="on another listener"),
        pytest.param(("127.0.0.1", 9094), "127.0.0.1:9094", id="on the listener for TLS clients only"),
        pytest.param(("127.0.0.1", 9093), "127.0.0.1:9093", id="another port"),
        pytest.param(("10.9.9.9", 9092), "10.9.9.9:9092", id="unknown"),
        pytest.param(("fd00::9", 9092), "[fd00::9]:9092", id="unknown IPv6"),
        pytest.param(("", 9092), ":9092", id="no host"),
        pytest.param(("127.0.0.1", -1), "127.0.0.1:-1", id="negative port"),
        pytest.param(("127.0.0.1", 70000), "127.0.0.1:70000", id="port out of range"),
        pytest.param(("h/x@\x1b[31m\u202e", 1), r"h/x@\x1b[31m\u202e:1", id="not a host"),
        pytest.param(("h" * 300, 1), "h" * 255, id="a host too long to print"),
    ],
)
async def test_address_that_a_kafka_listener_names_off_its_listener_is_reported(
    named: tuple[str, int], shown: str
) -> None:
    def answer(key: int, number: bytes) -> bytes | None:
        return naming(("127.0.0.1", port), named)(key, number)

    async with kafka_listener(answer) as port:
        urls = f"internal:kafka://b.svc:9092,external:kafka://127.0.0.1:{port},external:kafka+ssl://127.0.0.1:9094"
        findings = await diagnose(book(("b.svc", urls)), "external")
    url = f"kafka://127.0.0.1:{port}"
    by_url = {finding.url: finding for finding in findings if not finding.url.startswith("kafka+ssl")}
    assert by_url.keys() == {url, f"kafka://{shown}"}
    assert by_url[url].problem is None
    assert by_url[f"kafka://{shown}"].problem == (
        f"Kafka clients of {url} are told to connect to {shown}, which is not on 'external': "
        "correct the broker's kafkaAdvertisedListeners, or advertisedListeners here"
    )


async def test_doctor_does_not_connect_to_an_address_only_because_a_peer_names_it() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.append(writer.get_extra_info("peername"))
        writer.close()

    connected: list[object] = []
    elsewhere = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with elsewhere:
        findings = await asked(naming(("127.0.0.1", elsewhere.sockets[0].getsockname()[1])))
        assert [finding.reachable for finding in findings].count(False) == 1
    assert connected == []


async def test_brokers_that_only_a_kafka_listener_names_are_tried_by_the_template() -> None:
    """The template is counted from 0 until nothing answers, and so the brokers 8 and 9 are not found."""

    def answer(key: int, number: bytes) -> bytes | None:
        return naming(*((f"127.0.77.{broker}", port) for broker in (0, 8, 9)))(key, number)

    async with kafka_listener(answer, host="127.0.77.0") as port, kafka_listener(answer, host="127.0.77.8", port=port):
        findings = await diagnose(book(("b-{n}", f"external:kafka://127.0.77.{{n}}:{port}")), "external")
    assert [(finding.url.partition(":" + str(port))[0], finding.answers) for finding in findings] == [
        ("kafka://127.0.77.0", "Metadata"),
        ("kafka://127.0.77.8", "Metadata"),
        ("kafka://127.0.77.9", None),
    ]
    assert (findings[-1].problem or "").startswith(f"port {port} does not open")


async def test_address_on_the_listener_that_does_not_resolve_is_reported() -> None:
    async with kafka_listener(naming(("k-7.invalid", 9092))) as port:
        lines = [("b", f"external:kafka://127.0.0.1:{port}"), ("k-{n}", "external:kafka://k-{n}.invalid:9092")]
        findings = await diagnose(book(*lines), "external")
    [seven] = [finding for finding in findings if finding.url == "kafka://k-7.invalid:9092"]
    assert (seven.resolves, (seven.problem or "").partition(":")[0]) == (False, "k-7.invalid does not resolve")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        pytest.param(answering(HUGE), "it does not speak Kafka's protocol: its answer claims 2147483647", id="huge"),
        pytest.param(answering(b"\0\1\0\1"), "it does not speak Kafka's protocol: its answer claims 65537", id="large"),
        pytest.param(answering(b"\xff" * 4), "it does not speak Kafka's protocol: its answer claims -1", id="negative"),
        pytest.param(answering(b"\0\0\0\3abc"), "it does not speak Kafka's protocol: its answer claims 3", id="small"),
        pytest.param(answering(b"HTTP/1.1 400"), "it does not speak Kafka's protocol: its answer claims", id="HTTP"),
        pytest.param(answering(framed(HUGE, b"")), "it does not speak Kafka's protocol: it answers another", id="id"),
        pytest.param(answering(b"\0\0\0\4\0\0\0\1"), "it does not speak Kafka's protocol: Buffer", id="empty"),
        pytest.param(
            answering(framed(b"\0\0\0\1", b"\0\0" + HUGE)), "it does not speak Kafka's protocol: Buffer", id="APIs"
        ),
        pytest.param(
            answering(told=framed(b"\0\0\0\2", HUGE + b"\0" * 60000)),
            "it does not speak Kafka's protocol: Buffer",
            id="brokers",
        ),
        pytest.param(
            answering(told=framed(b"\0\0\0\2", metadata(("h", 1)).replace(b"h", b"\xff"))),
            "it does not speak Kafka's protocol: Failed interpreting bytes as UTF-8",
            id="no UTF-8",
        ),
        pytest.param(naming(), "it answers Metadata, and names no broker", id="no broker"),
        pytest.param(
            answering(told=framed(b"\0\0\0\2", b"\xff" * 4)), "it answers Metadata, and names no broker", id="null"
        ),
        pytest.param(naming(("h", 1), versions=api_versions(2, 13)), "it does not answer Metadata 1", id="too new"),
        pytest.param(naming(("h", 1), versions=api_versions(0, 0)), "it does not answer Metadata 1", id="too old"),
        pytest.param(
            naming(("h", 1), versions=api_versions(error=ErrorCode.unsupported_version)),
            "it answers ApiVersions with error 35",
            id="error",
        ),
        pytest.param(lambda *_: None, "the broker closed the connection without an answer", id="closed"),
    ],
)
async def test_peer_that_does_not_answer_as_kafka_does_is_reported(answer: Answer, problem: str) -> None:
    [finding] = await asked(answer)
    assert finding.connects
    assert (finding.problem or "").startswith(f"no answer: {problem}")


@pytest.mark.parametrize("key", [API_VERSIONS, METADATA])
@pytest.mark.parametrize("size", [1, 4, 10])
async def test_peer_that_closes_within_an_answer_is_reported(key: int, size: int) -> None:
    """Only before an answer to Metadata is it what a broker does that wants authentication first."""
    whole = naming(("h", 1))
    served = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for at in (API_VERSIONS, METADATA):
            if not (request := await reader.read(1000)):
                break
            answer = whole(at, request[8:12]) or b""
            writer.write(answer[:size] if at == key else answer)
            if at == key:
                break
        writer.close()
        served.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        [finding] = await diagnose(book(("b", f"external:kafka://127.0.0.1:{port}")), "external")
        await served.wait()
    assert finding.problem == "no answer: the broker closed the connection inside its answer"


@pytest.mark.parametrize("size", [0, 2, 10])
async def test_peer_that_stops_within_an_answer_is_given_up_after_the_connect_timeout(size: int) -> None:
    def answer(key: int, number: bytes) -> bytes | None:
        return (naming(("h", 1))(key, number) or b"")[:size]

    keys = {"brokers": {"webServiceUrl": ["http://127.0.0.1:1"]}, "timeouts": {"connect": 1}}
    async with kafka_listener(answer) as port:
        line = {"broker": "b", "listeners": f"external:kafka://127.0.0.1:{port}"}
        [finding] = await diagnose(build(load_mapping({**keys, "advertisedListeners": [line]})), "external")
    assert finding.problem == "no answer: nothing within 1 s"


@settings(max_examples=200, deadline=None)
@given(first=st.binary(max_size=200), second=st.binary(max_size=200), is_framed=st.tuples(st.booleans(), st.booleans()))
def test_any_answer_of_a_kafka_listener_is_a_finding(first: bytes, second: bytes, is_framed: tuple[bool, bool]) -> None:
    def answer(key: int, number: bytes) -> bytes | None:
        sent = {API_VERSIONS: first, METADATA: second}[key]
        is_whole = is_framed[key == METADATA]
        # What is short of a frame is followed by the end of the connection, or this would wait for the timeout.
        return framed(number, sent) if is_whole else sent + b"\xff" * 4

    findings = asyncio.run(asked(answer))
    assert findings
    assert all(finding.connects or "told to connect to" in (finding.problem or "") for finding in findings)


async def test_array_that_claims_more_elements_than_fit_into_memory_ends_no_process(tmp_path: Path) -> None:
    """kio would allocate 16 GiB for it, and abort."""
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)); "
        "from pulsar_ingress_proxy.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    async with kafka_listener(answering(told=framed(b"\0\0\0\2", HUGE + b"\0" * 100))) as port:
        config = tmp_path / "config.yaml"
        config.write_text(
            "brokers: {webServiceUrl: ['http://127.0.0.1:1']}\n"
            f"advertisedListeners: [{{broker: b, listeners: 'external:kafka://127.0.0.1:{port}'}}]\n"
        )
        command = ["-c", program, "doctor", "--config", str(config), "--listener", "external"]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await process.communicate()
    assert (process.returncode, err) == (1, b"")
    assert b"no answer: it does not speak Kafka's protocol: Buffer is exhausted\n" in out


async def test_kafka_listener_that_wants_authentication_first_is_reachable_with_a_warning() -> None:
    def answer(key: int, number: bytes) -> bytes | None:
        return framed(number, api_versions()) if key == API_VERSIONS else None

    [finding] = await asked(answer)
    assert (finding.reachable, finding.answers) == (True, "ApiVersions")
    assert "authentication (SASL)" in (finding.warning or "")


def trusting(monkeypatch: pytest.MonkeyPatch, authority: trustme.CA) -> Callable[[str], ssl.SSLContext]:
    """Makes the authority one of the system's; returns contexts of servers by their names."""
    create = ssl.create_default_context

    def client() -> ssl.SSLContext:
        context = create()
        authority.configure_trust(context)
        return context

    def server(name: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(name).configure_cert(context)
        return context

    monkeypatch.setattr(ssl, "create_default_context", client)
    return server


async def test_kafka_listener_with_tls_needs_a_certificate_for_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    certified = trusting(monkeypatch, trustme.CA())
    good, *_ = await asked(naming(("z.invalid", 1)), certified("localhost"), "localhost")
    [other] = await asked(naming(("z.invalid", 1)), certified("broker.example.com"), "localhost")
    assert (good.certificate, good.answers) == (True, "Metadata")
    assert (other.certificate, other.answers) == (False, None)


async def test_internal_kafka_listener_is_asked_with_brokers_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)

    def answer(key: int, number: bytes) -> bytes | None:
        return naming(("localhost", port))(key, number)

    async with kafka_listener(answer, context) as port:
        line = {"broker": "b", "listeners": f"internal:kafka+ssl://localhost:{port}"}
        brokers = {"webServiceUrl": ["http://127.0.0.1:1"], "tls": {"ca": str(tmp_path / "ca.pem")}}
        snapshot = build(load_mapping({"brokers": brokers, "advertisedListeners": [line]}))
        [finding] = await diagnose(snapshot, "internal")
    assert (finding.certificate, finding.answers, finding.problem) == (True, "Metadata", None)


async def test_without_its_extra_a_kafka_listener_is_tried_but_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    certified = trusting(monkeypatch, trustme.CA())
    monkeypatch.setitem(sys.modules, "kio", None)
    monkeypatch.delitem(sys.modules, "pulsar_ingress_proxy.tools.kafka", raising=False)
    [plain] = await asked(naming(("h", 1)))
    [good] = await asked(naming(("h", 1)), certified("localhost"), "localhost")
    [other] = await asked(naming(("h", 1)), certified("broker.example.com"), "localhost")
    for finding in (plain, good):
        assert (finding.reachable, finding.answers) == (True, "accepts connections")
        assert (finding.warning or "").endswith("pip install 'pulsar-ingress-proxy[kafka]'")
    assert (good.certificate, other.certificate, other.reachable) == (True, False, False)
