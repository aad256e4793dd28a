"""A broker as a process that writes down every request it receives, and misbehaves as a file says.

    python observed_broker.py NUMBER LOG BEHAVIOUR [CERTIFICATE KEY]

BEHAVIOUR is a file with one word, read at each request, of those that `Behaviour` has. Requests are written before they
are answered, so a broker that is killed has written all that it received.
"""

import asyncio
import json
import os
import random
import ssl
import sys
from enum import StrEnum
from pathlib import Path

import pulsar_commands as pulsar
from histories import Receipt, checksum, inside, number_of, owner, partitions, redirects, write

HTTP, HTTPS, PULSAR = 8080, 8443, 6650
GARBAGE = bytes(range(255, -1, -1))
REQUESTS = 8
"""Of one connection on average, so that there are always new ones to be made."""


class Behaviour(StrEnum):
    USUAL = "usual"
    SILENT = "silent"
    """Accepts, reads and never answers."""
    SLOW = "slow"
    GARBAGE = "garbage"
    HALF = "half"
    """Half an answer, then the connection ends."""
    TOO_LONG = "too-long"
    """More bytes than the answer's Content-Length, or its frame's size, says."""
    TOO_SHORT = "too-short"
    """Fewer bytes, and nothing more comes."""
    ASTRAY = "astray"
    """Names a broker that nobody knows."""


class Broker:
    def __init__(self, number: int, log: Path, behaviour: Path) -> None:
        self._number, self._behaviour = number, behaviour
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def serve(self, certificate: list[str]) -> None:
        servers = [
            await asyncio.start_server(self._web, "0.0.0.0", HTTP, backlog=1024),
            await asyncio.start_server(self._binary, "0.0.0.0", PULSAR, backlog=1024),
        ]
        if certificate:
            tls = _context(certificate)

            def certify(connection: ssl.SSLObject, *_: object) -> None:
                connection.context = _context(certificate)  # which may have been replaced

            tls.sni_callback = certify
            servers.append(await asyncio.start_server(self._web, "0.0.0.0", HTTPS, backlog=1024, ssl=tls))
        sys.stderr.write("listening\n")
        sys.stderr.flush()
        await asyncio.gather(*(server.serve_forever() for server in servers))

    @property
    def _now(self) -> Behaviour:
        return Behaviour(self._behaviour.read_text())

    def _received(self, receipt: Receipt) -> None:
        os.write(self._log, write(receipt))

    # HTTP

    async def _web(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the sidecar has gone: what came of its last request is not whole
        finally:
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Receive and answer one request; whether another may follow."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        start, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
        fields = [(name.lower(), value) for name, value in (line.split(": ", 1) for line in lines)]
        body = await read_body(reader, dict(fields))
        method, target, _ = start.split(" ")
        mark = dict(fields).get("x-mark", "")
        is_lookup = target.startswith("/lookup/v2/topic/")
        behaviour, number = self._now, self._number
        status, extra, answer = 200, "", b""
        if is_lookup:
            if redirects(mark, number):
                status, extra = 307, f"Location: {self._web_url(mark, behaviour)}{target}\r\n"
            else:
                answer = self._lookup_data(mark, behaviour)
        elif method == "PUT" and redirects(mark, number):
            status, extra = 307, f"Location: {self._web_url(mark, behaviour)}{target}\r\n"
        else:
            answer = b"%b of %b at %d " % (body, mark.encode(), number) + random.randbytes(number_of(mark) % 3000)
        closes = random.randrange(REQUESTS) == 0
        length, sent, ends = len(answer), answer, closes
        match behaviour:
            case Behaviour.TOO_LONG:
                sent = answer + b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong"
            case Behaviour.TOO_SHORT:
                length += 10
        said = (
            f"HTTP/1.1 {status} Said\r\nX-Mark: {mark}\r\nContent-Type: application/json\r\n{extra}"
            f"Content-Length: {length}\r\n{'Connection: close' if closes else 'X-Filler: 1'}\r\n\r\n"
        ).encode() + sent
        match behaviour:
            case Behaviour.GARBAGE:
                said, ends = GARBAGE, False
            case Behaviour.HALF:
                said, ends = said[: len(said) // 2], True
        is_whole = behaviour in (Behaviour.USUAL, Behaviour.SLOW, Behaviour.TOO_LONG, Behaviour.ASTRAY)
        self._received(
            Receipt(
                mark,
                number,
                "http",
                "lookup" if is_lookup else "admin",
                method,
                tuple(value for name, value in fields if name == "x-pulsar-listenername"),
                checksum(body),
                " ".join(value for name, value in fields if name == "authorization"),
                checksum(answer) if is_whole else None,
            )
        )
        if behaviour is Behaviour.SILENT:
            await asyncio.Event().wait()
        if behaviour is Behaviour.SLOW:
            await asyncio.sleep(number_of(mark) % 1000 / 1000)
        writer.write(said)
        await writer.drain()
        return not ends

    def _named(self, mark: str, behaviour: Behaviour) -> str:
        return inside(owner(mark) + 7 if behaviour is Behaviour.ASTRAY else owner(mark))

    def _web_url(self, mark: str, behaviour: Behaviour) -> str:
        return f"http://{self._named(mark, behaviour)}:{HTTP}"

    def _lookup_data(self, mark: str, behaviour: Behaviour) -> bytes:
        pulsar_url = f"pulsar://{self._named(mark, behaviour)}:{PULSAR}"
        urls = {"brokerUrl": pulsar_url, "nativeUrl": pulsar_url, "httpUrl": self._web_url(mark, behaviour)}
        return json.dumps({**urls, "mark": mark}).encode()

    # The binary protocol

    async def _binary(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await self._command(await pulsar.read_command(reader), writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the sidecar has gone
        finally:
            writer.close()

    async def _command(self, command: pulsar.Command, writer: asyncio.StreamWriter) -> None:
        behaviour = self._now
        match command.kind:
            case pulsar.CONNECT:
                said = pulsar.frame(pulsar.CONNECTED, [(1, b"observed"), (2, 21)])
            case pulsar.LOOKUP:
                mark = command.text(1).rpartition("/")[2]
                self._noted(mark, "lookup", tuple(filter(None, [command.text(7)])))
                url = f"pulsar://{self._named(mark, behaviour)}:{PULSAR}".encode()
                found = pulsar.REDIRECT if redirects(mark, self._number) else pulsar.FOUND
                said = pulsar.frame(pulsar.LOOKUP_RESPONSE, [(1, url), (3, found), (4, command.number(2)), (5, 1)])
            case pulsar.METADATA:
                mark = command.text(1).rpartition("/")[2]
                self._noted(mark, "metadata", ())
                said = pulsar.frame(pulsar.METADATA_RESPONSE, [(1, partitions(mark)), (2, command.number(2)), (3, 0)])
            case pulsar.SEND:
                mark = command.payload.partition(b" ")[0].decode()
                self._noted(mark, "message", (), command.payload)
                said = pulsar.frame(pulsar.MESSAGE, [(1, command.number(2))], command.payload)
            case _:
                raise pulsar.NotPulsar(f"a command of type {command.kind}")
        match behaviour:
            case Behaviour.SILENT:
                await asyncio.Event().wait()
            case Behaviour.SLOW:
                await asyncio.sleep(random.random())
            case Behaviour.GARBAGE:
                said = GARBAGE
            case Behaviour.HALF:
                writer.write(said[: len(said) // 2])
                raise ConnectionResetError
            case Behaviour.TOO_LONG:
                said += b"wrong"
            case Behaviour.TOO_SHORT:
                said = said[:-2]
        writer.write(said)
        await writer.drain()

    def _noted(self, mark: str, kind: str, listeners: tuple[str, ...], body: bytes = b"") -> None:
        self._received(Receipt(mark, self._number, "binary", kind, "", listeners, checksum(body)))


def _context(certificate: list[str]) -> ssl.SSLContext:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*certificate)
    return tls


async def read_body(reader: asyncio.StreamReader, fields: dict[str, str]) -> bytes:
    """The body that these fields announce."""
    if fields.get("transfer-encoding") == "chunked":
        body = b""
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readuntil(b"\r\n")
        return body
    return await reader.readexactly(int(fields.get("content-length", "0")))


if __name__ == "__main__":
    asyncio.run(Broker(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])).serve(sys.argv[4:6]))
