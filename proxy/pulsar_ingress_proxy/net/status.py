"""/metrics, /livez and /readyz on their own address, so that load on the other sockets does not block them."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client.aiohttp import make_aiohttp_handler

from pulsar_ingress_proxy.net.aiohttp_servers import SETTINGS
from pulsar_ingress_proxy.observability.metrics import Metrics, registry


class StatusServer:
    """Live: the process answers. Ready: its config is valid and its sockets are bound.

    Readiness does not depend on brokers: without brokers, clients should still get an error from the sidecar.
    """

    def __init__(self, metrics: Metrics, not_ready: Callable[[], str | None]) -> None:
        self._not_ready = not_ready
        app = web.Application()
        app.router.add_get("/metrics", make_aiohttp_handler(registry(metrics)))
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        self._runner = web.AppRunner(app, **SETTINGS)

    async def open(self, host: str, port: int) -> None:
        """Bind; raises OSError."""
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
