"""The proxy that a textbook would write: a router, a client session, a Response.

python -m bench.plain PORT BROKER_PORT
"""

import asyncio
import re
import sys

import aiohttp
from aiohttp import web

from bench.job import HOST, LISTENER

_LOCATION = re.compile(r"^http://pulsar-broker-(\d+)\.[^/:]+(?::\d+)?/")


async def serve(port: int, broker: int) -> None:
    async with aiohttp.ClientSession() as session:

        async def forward(request: web.Request) -> web.Response:
            headers = {**request.headers, "X-Pulsar-ListenerName": LISTENER}
            url = f"http://127.0.0.1:{broker}{request.path_qs}"
            async with session.request(request.method, url, headers=headers, allow_redirects=False) as answer:
                headers = {name: value for name, value in answer.headers.items() if name.lower() != "content-length"}
                if location := answer.headers.get("Location"):
                    headers["Location"] = _LOCATION.sub(rf"https://broker-\1.{HOST}/", location)
                return web.Response(body=await answer.read(), status=answer.status, headers=headers)

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", forward)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
