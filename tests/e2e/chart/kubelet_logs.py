"""The one endpoint of a kubelet that the API server asks for logs, so that helm and others can show them."""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trustme
from aiohttp import web
from apiclient import Api, Object
from processes import free_port


@asynccontextmanager
async def serving_logs(api: Api, node: str, said: Callable[[str, str], str]) -> AsyncIterator[None]:
    """A Node of that name, whose containers have said that, by pod and container."""

    async def logs(request: web.Request) -> web.Response:
        return web.Response(text=said(request.match_info["pod"], request.match_info["container"]))

    app = web.Application()
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", logs)
    runner = web.AppRunner(app)
    await runner.setup()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(tls)
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
    this: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}
    await api.apply(this)
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    await api.patch(this, {"status": status}, subresource="status")
    try:
        yield
    finally:
        await runner.cleanup()
        await api.delete(this)
