"""Trace context passes as it is; with the extra, and where the environment says where to, every request is a span."""

import logging
import sys
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from raw import OK, Head, RawBroker, Served, Start, Wire

from pulsar_ingress_proxy.observability import tracing

pytestmark = pytest.mark.usefixtures("tidy")

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CONTEXT = (f"traceparent: 00-{TRACE}-{PARENT}-01", "tracestate: rojo=1,congo=t61rcWkgMzE")
SETTINGS = {"ingresses": [{"name": "public", "hosts": ["pulsar.example.com"], "listener": "external"}]}
LOOKUP = "/lookup/v2/topic/persistent/public/default/orders"


def get(target: str, *fields: str, host: str = "pulsar.example.com") -> bytes:
    return "\r\n".join([f"GET {target} HTTP/1.1", f"Host: {host}", *fields, "", ""]).encode()


class Asking:
    """A client and a broker that keep their connections."""

    def __init__(self, served: Served, broker: RawBroker) -> None:
        self._served, self._broker = served, broker
        self._wire: Wire | None = None

    async def ask(self, *requests: bytes, answer: bytes = OK) -> list[Head]:
        """What the broker got."""
        client = await self._served.client(requests[0])
        self._wire = wire = self._wire or await self._broker.accept()
        heads = []
        for number, request in enumerate(requests):
            if number:
                client.send(request)
            heads.append((await wire.message()).head)
            wire.send(answer)
            await client.message()
        return heads


async def test_trace_context_headers_are_forwarded_unchanged_without_tracing(start: Start, broker: RawBroker) -> None:
    """The first lookup, one that is known by now (the short way), and another request."""
    asking = Asking(await start(broker.url, **SETTINGS), broker)
    heads = await asking.ask(*[get(LOOKUP, *CONTEXT)] * 4, get("/admin/v2/clusters", *CONTEXT))
    for head in heads:
        assert [head.one(b"traceparent"), head.one(b"tracestate")] == [
            field.partition(": ")[2].encode() for field in CONTEXT
        ]


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
    start: Start, broker: RawBroker, spans: InMemorySpanExporter
) -> None:
    served = await start(broker.url, **SETTINGS)
    heads = await Asking(served, broker).ask(*[get(LOOKUP, *CONTEXT)] * 4)
    finished = spans.get_finished_spans()
    assert len(finished) == 4  # none goes the short way, on which nobody would tell of it
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


async def test_spans_report_lookup_misses_and_broker_failures(
    start: Start, broker: RawBroker, spans: InMemorySpanExporter
) -> None:
    served = await start(broker.url, **SETTINGS)
    asking = Asking(served, broker)
    (head,) = await asking.ask(get(LOOKUP, host="elsewhere.example.org"))
    (failed,) = await asking.ask(get("/admin/v2/clusters"), answer=OK.replace(b"200 OK", b"500 Oh"))
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


async def test_conflicting_traceparent_headers_are_ignored(
    start: Start, broker: RawBroker, spans: InMemorySpanExporter
) -> None:
    served = await start(broker.url, **SETTINGS)
    (head,) = await Asking(served, broker).ask(get(LOOKUP, *CONTEXT, f"Traceparent: 00-{TRACE}-{'1' * 16}-01"))
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
    collector: tuple[str, list[ExportTraceServiceRequest]],
    start: Start,
    broker: RawBroker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    endpoint, got = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=gateway-0")
    served = await start(broker.url, **SETTINGS)
    await Asking(served, broker).ask(get(LOOKUP, *CONTEXT))
    await served.stop()  # which sends what is left
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
