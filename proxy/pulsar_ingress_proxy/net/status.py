"""/metrics, /livez and /readyz on their own address, so that load on the other sockets does not block them."""

import logging
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client.aiohttp import make_aiohttp_handler

from pulsar_ingress_proxy.observability.metrics import Metrics, registry


def _is_ours(record: logging.LogRecord) -> bool:
    """Drop parse errors from the log: they are the client's fault, and get a 400."""
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


_log = logging.getLogger("proxy.servers")
_log.addFilter(_is_ours)

SETTINGS: dict[str, Any] = {"access_log": None, "logger": _log, "auto_decompress": False}
"""Arguments of all our aiohttp servers: this one, the console, and those of `run --hold`."""


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
