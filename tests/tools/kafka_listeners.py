"""TCP servers that speak as much of Kafka's protocol as a client needs to learn brokers' addresses, encoded by kio."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from io import BytesIO

from kio.schema.api_versions.v0 import ApiVersionsResponse
from kio.schema.api_versions.v0.response import ApiVersion
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v1 import MetadataResponse
from kio.schema.metadata.v1.response import MetadataResponseBroker
from kio.schema.request_header.v1.header import RequestHeader
from kio.schema.types import BrokerId
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32

API_VERSIONS, METADATA = 18, 3
Answer = Callable[[int, bytes], bytes | None]
"""The bytes for a request, by its API's key and its correlation id; None closes the connection."""


def framed(number: bytes, body: bytes) -> bytes:
    return (len(number + body)).to_bytes(4) + number + body


def api_versions(lowest: int = 0, highest: int = 13, error: ErrorCode = ErrorCode.none) -> bytes:
    keys = (ApiVersion(api_key=i16(METADATA), min_version=i16(lowest), max_version=i16(highest)),)
    body = BytesIO()
    entity_writer(ApiVersionsResponse)(body, ApiVersionsResponse(error_code=error, api_keys=keys))
    return body.getvalue()


def metadata(*addresses: tuple[str, int]) -> bytes:
    brokers = tuple(
        MetadataResponseBroker(node_id=BrokerId(number), host=host, port=i32(port), rack=None)
        for number, (host, port) in enumerate(addresses)
    )
    body = BytesIO()
    answer = MetadataResponse(brokers=brokers, controller_id=BrokerId(0), topics=())
    entity_writer(MetadataResponse)(body, answer)
    return body.getvalue()


def naming(*addresses: tuple[str, int], versions: bytes | None = None) -> Answer:
    """A broker that names these."""
    bodies = {API_VERSIONS: versions or api_versions(), METADATA: metadata(*addresses)}
    return lambda key, number: framed(number, bodies[key])


@asynccontextmanager
async def kafka_listener(
    answer: Answer, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[int]:
    """The port of a listener that answers each request like this, and leaves it to its clients to close."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                request = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
                header, _ = entity_reader(RequestHeader)(request, 0)
                data = answer(header.request_api_key, request[4:8])
                if data is None:
                    break
                writer.write(data)
        writer.close()

    server = await asyncio.start_server(serve, host, port, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1]
