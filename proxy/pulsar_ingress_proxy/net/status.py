"""/metrics, /livez and /readyz on an address of their own, so that load on the sockets cannot hide them."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client.aiohttp import make_aiohttp_handler

from pulsar_ingress_proxy.net.aiohttp_servers import SETTINGS
from pulsar_ingress_proxy.observability.metrics import Metrics, registry


class StatusServer:
    """Alive means that the process answers; ready, that its config is good and its sockets are bound.

    Brokers are not asked: a gateway with no brokers behind it still has to say so to its clients.
    """

    def __init__(self, metrics: Metrics, not_ready: Callable[[], str | None]) -> None:
        self._not_ready = not_ready
        app = web.Application()
        app.router.add_get("/metrics", make_aiohttp_handler(registry(metrics)))
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        self._runner = web.AppRunner(app, **SETTINGS)

    async def open(self, host: str, port: int) -> None:
        """Bind; raises OSError where that cannot be."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host.strip("[]"), port).start()

    @property
    def port(self) -> int:
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        await self._runner.cleanup()

    async def _livez(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        reason = self._not_ready()
        return web.Response(text="ok\n") if reason is None else web.Response(status=503, text=f"not ready: {reason}\n")
