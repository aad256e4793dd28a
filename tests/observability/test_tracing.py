"""Trace context passes as it is; with the extra, and where the environment says where to, every request is a span."""

import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from raw import OK, Head, Message, RawBroker, Start, answer_all
from running_sidecar import while_running

from pulsar_ingress_proxy.observability import tracing

pytestmark = pytest.mark.usefixtures("tidy")

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CONTEXT = (f"traceparent: 00-{TRACE}-{PARENT}-01", "tracestate: rojo=1,congo=t61rcWkgMzE")
SETTINGS = {"ingresses": [{"name": "public", "hosts": ["pulsar.example.com"], "listener": "external"}]}
LOOKUP = "/lookup/v2/topic/persistent/public/default/orders"


def get(target: str, *fields: str, host: str = "pulsar.example.com") -> bytes:
    return "\r\n".join([f"GET {target} HTTP/1.1", f"Host: {host}", *fields, "", ""]).encode()


Ask = Callable[..., Awaitable[list[Head]]]


@pytest.fixture
def ask(start: Start, broker: RawBroker) -> Ask:
    """Sends requests through a sidecar, one after another on one connection; what the broker got."""

    async def asked(*requests: bytes, answers: Sequence[bytes] = ()) -> list[Head]:
        served, heads = await start(broker.url, **SETTINGS), list[Head]()

        def keep(request: Message) -> bytes:
            heads.append(request.head)
            return answers[len(heads) - 1] if answers else OK

        client = await served.client()
        async with while_running(answer_all(broker, keep)):
            for request in requests:
                client.send(request)
                await client.message()
        await served.stop()
        return heads

    return asked


async def test_trace_context_headers_are_forwarded_unchanged_without_tracing(ask: Ask) -> None:
    for head in await ask(*[get(LOOKUP, *CONTEXT)] * 4, get("/admin/v2/clusters", *CONTEXT)):
        passed = [head.one(b"traceparent"), head.one(b"tracestate")]
        assert passed == [field.partition(": ")[2].encode() for field in CONTEXT]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    kept = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(tracing, "wanted", lambda: tracing.Tracing(provider))
    return kept


def told(span: ReadableSpan) -> dict[str, object]:
    return {
        name.removeprefix("pulsar_ingress."): value
        for name, value in (span.attributes or {}).items()
        if name != "pulsar_ingress.id"
    }


async def test_request_span_is_child_of_client_span_and_parent_for_broker(
    ask: Ask, spans: InMemorySpanExporter
) -> None:
    heads = await ask(*[get(LOOKUP, *CONTEXT)] * 4)
    finished = spans.get_finished_spans()
    assert len(finished) == 4
    for head, span in zip(heads, finished, strict=True):
        assert span.parent is not None
        assert (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, PARENT)
        assert span.context is not None
        assert head.one(b"traceparent").decode() == f"00-{TRACE}-{span.context.span_id:016x}-01"
        assert head.one(b"tracestate") == b"rojo=1,congo=t61rcWkgMzE"
        assert (span.name, span.kind, span.status.status_code) == ("GET lookup", SpanKind.SERVER, StatusCode.UNSET)
        assert told(span) == {
            "http.request.method": "GET",
            "http.response.status_code": 200,
            "kind": "lookup",
            "ingress": "public",
            "listener": "external",
            "rule": "ingress",
            "hit": True,
            "generation": 1,
        }


async def test_spans_report_lookup_misses_and_broker_failures(ask: Ask, spans: InMemorySpanExporter) -> None:
    requests = (get(LOOKUP, host="elsewhere.example.org"), get("/admin/v2/clusters"))
    head, failed = await ask(*requests, answers=(OK, OK.replace(b"200 OK", b"500 Oh")))
    miss, failure = spans.get_finished_spans()
    assert (told(miss)["hit"], told(miss)["miss_reason"]) == (False, "no-rule")
    assert "ingress" not in told(miss)
    assert miss.parent is None
    assert miss.context is not None
    begun = f"00-{miss.context.trace_id:032x}-{miss.context.span_id:016x}-{miss.context.trace_flags:02x}"
    assert head.one(b"traceparent").decode() == begun
    assert (failure.name, failure.status.status_code) == ("GET admin", StatusCode.ERROR)
    assert "hit" not in told(failure)
    assert failed.all(b"tracestate") == []


async def test_conflicting_traceparent_headers_are_ignored(ask: Ask, spans: InMemorySpanExporter) -> None:
    (head,) = await ask(get(LOOKUP, *CONTEXT, f"Traceparent: 00-{TRACE}-{'1' * 16}-01"))
    (span,) = spans.get_finished_spans()
    assert span.parent is None
    assert len(head.all(b"traceparent")) == 1


@pytest.fixture
async def collector() -> AsyncIterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """Takes spans by OTLP over HTTP."""
    got: list[ExportTraceServiceRequest] = []

    async def take(request: web.Request) -> web.Response:
        assert request.content_type == "application/x-protobuf"
        got.append(ExportTraceServiceRequest.FromString(await request.read()))
        return web.Response(content_type="application/x-protobuf")

    app = web.Application()
    app.router.add_post("/v1/traces", take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}", got
    await runner.cleanup()


async def test_spans_are_exported_to_the_otlp_endpoint_of_the_environment(
    collector: tuple[str, list[ExportTraceServiceRequest]], ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint, got = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=gateway-0")
    await ask(get(LOOKUP, *CONTEXT))  # the stop sends what is left
    (request,) = got
    (resource,) = request.resource_spans
    (span,) = resource.scope_spans[0].spans
    about = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert (about["service.name"], about["k8s.pod.name"]) == ("pulsar-ingress-proxy", "gateway-0")
    assert (span.name, span.trace_id.hex(), span.parent_span_id.hex()) == ("GET lookup", TRACE, PARENT)
    assert {each.key for each in span.attributes} >= {"pulsar_ingress.listener", "pulsar_ingress.hit"}


THERE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


@pytest.mark.parametrize(
    ("environ", "warning"),
    [
        ({}, None),
        (THERE | {"OTEL_SDK_DISABLED": "true"}, None),
        (THERE | {"OTEL_TRACES_EXPORTER": "none"}, None),
        (THERE | {"OTEL_TRACES_EXPORTER": "zipkin"}, "not zipkin over http/protobuf"),
        (THERE | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "not otlp over grpc"),
    ],
)
def test_tracing_is_off_unless_environment_configures_otlp_over_http(
    environ: dict[str, str], warning: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    assert tracing.wanted(environ) is None
    assert [record.levelno for record in caplog.records] == ([logging.WARNING] if warning else [])
    assert (warning or "") in caplog.text


def test_tracing_is_off_with_a_log_hint_when_otel_extra_is_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    assert tracing.wanted(THERE) is None
    assert "pip install 'pulsar-ingress-proxy[otel]'" in caplog.text


def test_tracing_is_off_with_a_log_line_when_opentelemetry_rejects_settings(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "0")
    assert tracing.wanted(THERE) is None
    assert "tracing is off: max_queue_size must be a positive integer" in caplog.text
