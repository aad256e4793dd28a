"""A layer 4 gateway: python tcp_routes.py LISTEN=TO…, each host:port. What comes in at one goes out at the other."""

import asyncio
import sys
from contextlib import suppress


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


async def serve(listen: str, to: str) -> asyncio.Server:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = to.rsplit(":", 1)
        try:
            onward_reader, onward_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        await asyncio.gather(copy(reader, onward_writer), copy(onward_reader, writer))
        writer.close()
        onward_writer.close()

    host, port = listen.rsplit(":", 1)
    return await asyncio.start_server(connected, host, int(port))


async def main() -> None:
    servers = [await serve(*route.split("=")) for route in sys.argv[1:]]
    sys.stderr.write("forwarding\n")
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    asyncio.run(main())
