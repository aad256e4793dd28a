"""OpenTelemetry spans, one per request: an optional extra, configured by OpenTelemetry's environment variables.

When off, `traceparent` and `tracestate` pass unchanged. When on, a request's span is a child of the client's, and the
parent of the broker's.
"""

import logging
import os
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pulsar_ingress_proxy import __version__
from pulsar_ingress_proxy.observability.access_record import AccessRecord

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span as Recorded

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
TRACE_FIELDS = frozenset((b"traceparent", b"tracestate"))
_NAME = "pulsar-ingress-proxy"

log = logging.getLogger("proxy")


class Span:
    """The span of one request."""

    __slots__ = ("_span",)

    def __init__(self, span: "Recorded") -> None:
        self._span = span

    def end(self, record: AccessRecord) -> None:
        span = self._span
        if span.is_recording():
            span.update_name(f"{record.method} {record.kind}")
            span.set_attributes(_attributes(record))
            if record.status >= 500:
                from opentelemetry.trace import StatusCode

                span.set_status(StatusCode.ERROR)
        span.end()


class Tracing:
    """Creates spans; they are exported by a separate thread."""

    def __init__(self, provider: "TracerProvider") -> None:
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer(_NAME, __version__)
        self._words = TraceContextTextMapPropagator()
        self._kind = SpanKind.SERVER

    def begin(self, fields: Iterable[tuple[bytes, bytes]]) -> tuple[Span, bytes]:
        """Start a request's span. Returns it with the fields that replace TRACE_FIELDS for the broker, encoded."""
        from opentelemetry.trace import set_span_in_context

        parent = self._words.extract(_carried(fields))
        span = self._tracer.start_span("request", parent, self._kind)
        carrier: dict[str, str] = {}
        self._words.inject(carrier, set_span_in_context(span, parent))
        return Span(span), "".join(f"{name}: {value}\r\n" for name, value in carrier.items()).encode("latin-1")

    def close(self, within: float) -> None:
        """Export the remaining spans, for at most `within` seconds."""
        sending = threading.Thread(target=self._provider.shutdown, name="tracing", daemon=True)
        sending.start()
        sending.join(within)


def wanted(environ: Mapping[str, str] = os.environ) -> Tracing | None:
    """Tracing as configured by OpenTelemetry's environment variables; None if it is off."""
    exporter = environ.get("OTEL_TRACES_EXPORTER", "otlp" if any(environ.get(name) for name in _ENDPOINTS) else "none")
    if exporter == "none" or environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    protocol = next((environ[name] for name in _PROTOCOLS if environ.get(name)), "http/protobuf")
    if exporter != "otlp" or protocol != "http/protobuf":
        log.warning("tracing is off: only OTLP over http/protobuf is supported, not %s over %s", exporter, protocol)
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ModuleNotFoundError as missing:
        log.warning("tracing is off: %s is not installed; pip install 'pulsar-ingress-proxy[otel]'", missing.name)
        return None
    try:
        return Tracing(sending(OTLPSpanExporter()))
    except ValueError as fault:  # an invalid variable, such as OTEL_BSP_MAX_QUEUE_SIZE
        log.warning("tracing is off: %s", fault)
        return None


def sending(exporter: "SpanExporter") -> "TracerProvider":
    """A provider with this exporter; OTEL_TRACES_SAMPLER and OTEL_BSP_* configure sampling and batching."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.version": __version__})
    if str(resource.attributes["service.name"]).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": _NAME}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _carried(fields: Iterable[tuple[bytes, bytes]]) -> dict[str, str | list[str]]:
    """The client's trace context; several traceparents are invalid (W3C Trace Context 3.2)."""
    found: dict[str, list[str]] = {}
    for name, value in fields:
        if (key := name.lower()) in TRACE_FIELDS:
            found.setdefault(key.decode(), []).append(value.decode("latin-1"))
    if len(found.get("traceparent", ())) != 1:
        return {}
    return dict(found)


def _attributes(record: AccessRecord) -> dict[str, str | int | bool]:
    """Span attributes: OpenTelemetry's names where they exist, else those of events."""
    selection = record.selection
    ingress = selection.ingress.name if selection is not None and selection.ingress is not None else None
    found: dict[str, str | int | bool | None] = {
        "http.request.method": record.method,
        "http.response.status_code": record.status,
        "pulsar_ingress.id": record.id,
        "pulsar_ingress.kind": record.kind,
        "pulsar_ingress.ingress": ingress,
        "pulsar_ingress.listener": record.listener or None,
        "pulsar_ingress.rule": selection.rule if selection is not None else None,
        "pulsar_ingress.broker": record.broker,
        "pulsar_ingress.generation": record.generation,
    }
    if record.kind == "lookup" and selection is not None:
        found["pulsar_ingress.hit"] = record.miss_reason is None
        found["pulsar_ingress.miss_reason"] = record.miss_reason
    return {name: value for name, value in found.items() if value is not None}
