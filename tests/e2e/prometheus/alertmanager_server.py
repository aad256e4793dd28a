"""A real Alertmanager, and somebody whom it tells."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web
from processes import free_port, started
from prometheus_programs import programs

PATIENCE = 120


class Told:
    """What came in by the webhook."""

    def __init__(self) -> None:
        self._alerts: dict[str, Mapping[str, Any]] = {}
        self._grown = asyncio.Condition()

    async def take(self, request: web.Request) -> web.Response:
        sent = await request.json()
        async with self._grown:
            for alert in sent["alerts"]:
                self._alerts[alert["labels"]["alertname"]] = alert
            self._grown.notify_all()
        return web.Response()

    async def of(self, name: str) -> Mapping[str, Any]:
        """An alert of that name, waited for."""
        try:
            async with asyncio.timeout(PATIENCE), self._grown:
                await self._grown.wait_for(lambda: name in self._alerts)
        except TimeoutError:
            raise AssertionError(f"nobody was told of {name}, but of {sorted(self._alerts)}") from None
        return self._alerts[name]

    @property
    def names(self) -> set[str]:
        return set(self._alerts)


@asynccontextmanager
async def alerting(folder: Path) -> AsyncIterator[tuple[str, Told]]:
    """Its address, and who is told at once of whatever it hears."""
    told, port = Told(), free_port()
    app = web.Application()
    app.router.add_post("/", told.take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    config = folder / "alertmanager.yaml"
    route = {"receiver": "test", "group_by": ["alertname"], "group_wait": "0s", "group_interval": "1s"}
    receiver = {"name": "test", "webhook_configs": [{"url": f"http://127.0.0.1:{runner.addresses[0][1]}/"}]}
    config.write_text(yaml.safe_dump({"route": route, "receivers": [receiver]}))
    try:
        async with started(
            *programs().alertmanager, f"--config.file={config}", f"--storage.path={folder / 'alertmanager'}",
            f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=", says="Listening on",
        ):  # fmt: skip
            yield f"127.0.0.1:{port}", told
    finally:
        await runner.cleanup()
