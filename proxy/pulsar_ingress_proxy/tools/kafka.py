"""What a Kafka listener tells a client that connects: the addresses of its brokers. Needs the extra `kafka`.

The versions are the oldest that ask for brokers alone. Every broker since Kafka 0.10 and every implementation of its
protocol answers them, and their structures have no tagged fields.
"""

import asyncio
from io import BytesIO
from typing import TypeVar

from kio.schema.api_versions.v0.request import ApiVersionsRequest
from kio.schema.api_versions.v0.response import ApiVersion
from kio.schema.metadata.v1.request import MetadataRequest
from kio.schema.metadata.v1.response import MetadataResponseBroker
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.serial.readers import Reader, read_int16, read_legacy_array_length
from kio.static.primitive import i32

from pulsar_ingress_proxy.net.errors import BadAnswer, ClosedEarly, Truncated, UpstreamError
from pulsar_ingress_proxy.syntax.listeners import ServiceUrl
from pulsar_ingress_proxy.tools.reach import Trust, streams

T = TypeVar("T")

_MOST_FRAME = 1 << 16
"""Maximum size of an answer; one with a thousand brokers is about as large."""


async def named_addresses(url: ServiceUrl, trust: Trust) -> list[str] | None:
    """The `host:port` of each broker, as the listener names them; None if it wants authentication first.

    Raises UpstreamError.
    """
    async with streams(url, trust) as (reader, writer):
        try:
            return await _converse(reader, writer)
        except SerialError as fault:
            raise BadAnswer(f"it does not speak Kafka's protocol: {fault}") from None


async def _converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> list[str] | None:
    answer = await _ask(reader, writer, ApiVersionsRequest(), 1)
    error, size = read_int16(answer, 0)
    if error:
        raise BadAnswer(f"it answers ApiVersions with error {error}")
    apis = _elements(answer, size, entity_reader(ApiVersion))
    version = MetadataRequest.__version__
    if not any(
        api.api_key == MetadataRequest.__api_key__ and api.min_version <= version <= api.max_version for api in apis
    ):
        raise BadAnswer(f"it does not answer Metadata {version}")
    try:
        answer = await _ask(reader, writer, MetadataRequest(topics=()), 2)
    except (ClosedEarly, ConnectionError):
        return None  # the only way that the protocol has to say so
    brokers = _elements(answer, 0, entity_reader(MetadataResponseBroker))
    if not brokers:
        raise BadAnswer("it answers Metadata, and names no broker")
    return [f"[{one.host}]:{one.port}" if ":" in one.host else f"{one.host}:{one.port}" for one in brokers]


async def _ask(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    request: ApiVersionsRequest | MetadataRequest,
    number: int,
) -> bytes:
    """The answer to a request, without its header."""
    header = request.__header_schema__(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=i32(number),
        client_id="pulsar-ingress-proxy",
    )
    frame = BytesIO()
    entity_writer(type(header))(frame, header)
    entity_writer(type(request))(frame, request)
    writer.write(len(frame.getvalue()).to_bytes(4) + frame.getvalue())
    size = int.from_bytes(await _read(reader, 4), signed=True)
    if not 4 <= size <= _MOST_FRAME:
        raise BadAnswer(f"it does not speak Kafka's protocol: its answer claims {size} bytes")
    answer = await _read(reader, size, is_first=False)
    if int.from_bytes(answer[:4]) != number:
        raise BadAnswer("it does not speak Kafka's protocol: it answers another request")
    return answer[4:]


async def _read(reader: asyncio.StreamReader, size: int, is_first: bool = True) -> bytes:
    try:
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError as short:
        error: type[UpstreamError] = ClosedEarly if is_first and not short.partial else Truncated
        raise error(error.text) from None


def _elements(answer: bytes, at: int, read: Reader[T]) -> list[T]:
    """The elements of the array there.

    One by one: kio's own reader of arrays allocates as many as the array claims to have before it reads the first, and
    aborts the process if there is not so much memory. Here the end of the answer ends it, with a SerialError.
    """
    count, size = read_legacy_array_length(answer, at)
    at += size
    elements = []
    for _ in range(count):
        element, size = read(answer, at)
        at += size
        elements.append(element)
    return elements
