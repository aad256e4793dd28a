"""The peers of a measurement: a broker that answers at once, and the proxy that a textbook would write."""

import asyncio
import json
import socket
import sys

import aiohttp
from aiohttp import web

ANSWER = json.dumps(
    {
        "brokerUrlTls": "pulsar+ssl://broker-1.pulsar.example.com:6652",
        "httpUrl": "http://pulsar-broker-1.pulsar-broker.pulsar.svc.cluster.local:8080",
        "brokerUrlSsl": "",
    }
).encode()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class InstantBroker(asyncio.Protocol):
    """Answers every head with the same lookup answer."""

    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(ANSWER)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write((self.head + ANSWER) * data.count(b"\r\n\r\n"))


async def serve_broker(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(InstantBroker, "127.0.0.1", port)
    await server.serve_forever()


async def serve_plain(port: int, broker: int) -> None:
    """A router, a client session, a Response: tags the lookup and puts the answer's URL on the listener."""
    async with aiohttp.ClientSession() as session:

        async def forward(request: web.Request) -> web.Response:
            headers = {**request.headers, "X-Pulsar-ListenerName": "external"}
            url = f"http://127.0.0.1:{broker}{request.path_qs}"
            async with session.request(request.method, url, headers=headers, allow_redirects=False) as answer:
                body = json.loads(await answer.read())
                body["httpUrl"] = "https://broker-1.pulsar.example.com"
                return web.json_response(body, status=answer.status)

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", forward)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    what, *ports = sys.argv[1:]
    asyncio.run(serve_broker(int(ports[0])) if what == "broker" else serve_plain(int(ports[0]), int(ports[1])))
