"""`run`: the sidecar, kept in step with its config file.

A file is looked at every second rather than watched: Kubernetes swaps links, editors rename, and a look costs
nothing.
"""

import asyncio
import json
import logging
import signal
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from proxy.authorities import parse_authority
from proxy.config import Config, ConfigFaults, load
from proxy.config.model import Metrics as MetricsConfig
from proxy.listeners import WEB_SCHEMES, BindAddress, parse_bind_addresses
from proxy.observe import log as logs
from proxy.observe.metrics import Metrics
from proxy.review import review
from proxy.service import CannotStart, Sidecar
from proxy.snapshot import build
from proxy.web.status import StatusServer

LOOK = 1.0
"""Seconds between looks at the config and the certificates."""

log = logging.getLogger("proxy.config")


class Signals:
    """What the outside asks for: to end, or to look again."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self._look = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        loop.add_signal_handler(signal.SIGHUP, self._look.set)

    def _end(self) -> None:
        self.ended.set()
        self._look.set()

    async def pause(self) -> bool:
        """Wait a while, or until asked to look; true where it was asked for."""
        try:
            async with asyncio.timeout(LOOK):
                await self._look.wait()
        except TimeoutError:
            return False
        self._look.clear()
        return True


async def run(path: Path, hold: bool) -> None:
    """Serve until SIGTERM or SIGINT; raises ConfigFaults or CannotStart unless told to hold."""
    signals = Signals()
    while not signals.ended.is_set():
        text = await _text(path)
        try:
            sidecar = await _started(path)
        except (ConfigFaults, CannotStart) as fault:
            if not hold:
                raise
            log.error("holding: %s", fault)
            await _hold(path, text, str(fault), signals)
        else:
            await _serve(sidecar, path, text, signals)


async def _started(path: Path) -> Sidecar:
    config = load(path)
    logs.set_up(config.log)
    _say_doubts(config)
    sidecar = Sidecar(config)
    await sidecar.start()
    return sidecar


async def _serve(sidecar: Sidecar, path: Path, text: str | None, signals: Signals) -> None:
    while not signals.ended.is_set():
        asked = await signals.pause()
        if signals.ended.is_set():
            break
        sidecar.refresh_certificates()
        newest = await _text(path)
        if asked or newest != text:
            text = newest
            await _reload(sidecar, path)
    log.info("shutting down")
    await sidecar.stop()


async def _reload(sidecar: Sidecar, path: Path) -> None:
    metrics = sidecar.metrics
    try:
        config = load(path)
        await sidecar.reload(config)
    except (ConfigFaults, CannotStart) as fault:
        for line in str(fault).splitlines():
            log.error("not reloaded, the old config stays in force: %s", line)
        metrics.reloads.add("failure")
        metrics.last_reload.set(0)
        return
    logs.set_up(config.log)
    _say_doubts(config)
    metrics.reloads.add("success")
    metrics.last_reload.set(1)


def _say_doubts(config: Config) -> None:
    for doubt in review(build(config)):
        log.warning("%s", doubt)


async def _text(path: Path) -> str | None:
    """The file as it is now; None where it cannot be read."""
    try:
        return await asyncio.to_thread(path.read_text, encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


async def _hold(path: Path, text: str | None, fault: str, signals: Signals) -> None:
    """Say 503 with the reason on all sockets, until the file is another or it is worth trying again."""
    body = json.dumps({"reason": f"bad-config: {fault}"}).encode()

    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        headers = {"Retry-After": "5", "Cache-Control": "no-store"}
        return web.Response(status=503, body=body, content_type="application/json", headers=headers)

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    status = StatusServer(Metrics(""), lambda: fault)
    metrics, binds = _sockets(text)
    try:
        await runner.setup()
        for bind in binds:
            await web.TCPSite(runner, bind.host.strip("[]"), bind.port).start()
        address = parse_authority(metrics)
        assert address is not None
        await status.open(address.host, address.port or 0)
    except OSError as error:
        log.error("holding, but not on all sockets: %s", error.strerror or error)
    for _ in range(5):
        asked = await signals.pause()
        if asked or await _text(path) != text:
            break
    await runner.cleanup()
    await status.close()


def _sockets(text: str | None) -> tuple[str, list[BindAddress]]:
    """Where a config that is no good means to be served, as far as that can be made out."""
    try:
        values: Any = yaml.safe_load(text or "")
    except yaml.YAMLError:
        values = None
    values = values if isinstance(values, dict) else {}
    try:
        binds = parse_bind_addresses(values["bindAddresses"])
    except (KeyError, TypeError, ValueError):
        binds = Config.model_fields["bind_addresses"].default
    metrics = values.get("metrics")
    address = metrics.get("address") if isinstance(metrics, dict) else None
    if not isinstance(address, str) or (parsed := parse_authority(address)) is None or parsed.port is None:
        address = MetricsConfig().address
    return address, [bind for bind in binds if bind.scheme in WEB_SCHEMES]
