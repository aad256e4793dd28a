"""`run`: the sidecar, kept in step with its config file.

A file is looked at every second rather than watched: Kubernetes swaps links, editors rename, and a look costs
nothing.
"""

import asyncio
import gc
import json
import logging
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from aiohttp import web
from pydantic import ValidationError

from pulsar_ingress_proxy.app.sidecar import CannotStart, Sidecar, bound, prepare
from pulsar_ingress_proxy.binary.server import RefusingProtocol
from pulsar_ingress_proxy.config import Config, ConfigFaults, glean, gleaned_status_address, load
from pulsar_ingress_proxy.config import model as keys
from pulsar_ingress_proxy.net.aiohttp_servers import SETTINGS
from pulsar_ingress_proxy.net.status import StatusServer
from pulsar_ingress_proxy.net.tls import CannotLoad, ServerTls
from pulsar_ingress_proxy.observability import log as logs
from pulsar_ingress_proxy.observability.metrics import Metrics
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.authorities import parse_authority
from pulsar_ingress_proxy.syntax.listeners import TLS_SCHEMES, WEB_SCHEMES, BindAddress, parse_bind_addresses
from pulsar_ingress_proxy.tools.config_warnings import review

LOOK = 1.0
"""Seconds between looks at the config and the certificates."""
PATIENCE = 5
"""Looks after which what kept a good config from being in force, a socket or a certificate, is tried again."""

GARBAGE = 20_000
"""Objects after which circles among them are looked for: records wait in thousands, and have none."""

STRETCH = 0.0005
"""Seconds for which the thread of the event log has the interpreter while requests wait for it; Python's own are ten
times as many."""

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
    _allow_open_files()
    gc.set_threshold(GARBAGE)
    sys.setswitchinterval(STRETCH)
    said = ""
    while not signals.ended.is_set():
        text = await _text(path)
        try:
            sidecar = await _started(path)
        except (ConfigFaults, CannotStart) as fault:
            if not hold:
                raise
            await _hold(path, text, fault, str(fault) == said, signals)
            said = str(fault)
        else:
            await _serve(sidecar, path, text, signals)


async def _started(path: Path) -> Sidecar:
    config = load(path)
    logs.set_up(config.log)
    sidecar = Sidecar(config, str(path))
    await sidecar.start()
    gc.freeze()  # what is there now is there to stay
    return sidecar


async def _serve(sidecar: Sidecar, path: Path, text: str | None, signals: Signals) -> None:
    missing, looks = "", 0
    reviewed: Config | None = None
    while not signals.ended.is_set():
        if sidecar.has_looked and reviewed is not sidecar.snapshot.config:
            reviewed = sidecar.snapshot.config
            _say_doubts(sidecar.snapshot)
        asked = await signals.pause()
        if signals.ended.is_set():
            break
        sidecar.refresh_certificates()
        newest = await _text(path)
        looks += 1
        if asked or newest != text:
            text, looks = newest, 0
            missing = await _reload(sidecar, path)
        elif missing and looks % PATIENCE == 0:
            missing = await _reload(sidecar, path, missing)
    log.info("shutting down")
    await sidecar.stop()


async def _reload(sidecar: Sidecar, path: Path, known: str = "") -> str:
    """Put the file in force, or say why not; what is missing, where that may come without a change of the file.

    A fault that is known has been said and counted.
    """
    metrics = sidecar.metrics
    try:
        config = load(path)
        await sidecar.reload(config)
    except (ConfigFaults, CannotStart) as fault:
        if str(fault) != known:
            _say("not reloaded, the old config stays in force", fault)
            metrics.reloads.add("failure")
            metrics.last_reload.set(0)
        sidecar.history.reload_problem = str(fault)
        return str(fault) if isinstance(fault, CannotStart) else ""
    logs.set_up(config.log)
    metrics.reloads.add("success")
    metrics.last_reload.set(1)
    sidecar.history.reload_problem = None
    return ""


def _allow_open_files() -> None:
    """As many as the system lets us have: some still allow 1,024 unless asked, less than limits.connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _say(what: str, fault: Exception) -> None:
    for line in str(fault).splitlines():
        log.error("%s: %s", what, line)


def _say_doubts(snapshot: Snapshot) -> None:
    for doubt in review(snapshot):
        log.warning("%s", doubt)


async def _text(path: Path) -> str | None:
    """The file as it is now; None where it cannot be read."""
    try:
        return await asyncio.to_thread(path.read_text, encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


async def _hold(path: Path, text: str | None, fault: Exception, is_known: bool, signals: Signals) -> None:
    """Say the reason on all sockets, over HTTP with 503, until the file is another, or a while if that is not it."""
    body = json.dumps({"reason": f"bad-config: {fault}"}).encode()

    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        headers = {"Retry-After": "5", "Cache-Control": "no-store"}
        return web.Response(status=503, body=body, content_type="application/json", headers=headers)

    runner = web.ServerRunner(web.Server(answer, **SETTINGS))
    metrics = Metrics("")
    metrics.last_reload.set(0)
    status = StatusServer(metrics, lambda: str(fault))
    values = glean(text)
    address = parse_authority(gleaned_status_address(values))
    assert address is not None
    assert address.port is not None
    tls = _tls(values)
    await runner.setup()
    problems = [await _problem(f"metrics.address {address}", status.open(address.host, address.port))]
    places = [(address.host, address.port)]
    refusing: list[asyncio.Server] = []

    async def refuse(bind: BindAddress, context: ssl.SSLContext | None) -> None:
        loop, reason = asyncio.get_running_loop(), f"bad-config: {fault}"
        host = bind.host.strip("[]")
        refusing.append(await loop.create_server(lambda: RefusingProtocol(reason), host, bind.port, ssl=context))

    for bind in _sockets(values):
        context = tls if bind.scheme in TLS_SCHEMES else None
        if bind.scheme in WEB_SCHEMES:
            site = web.TCPSite(runner, bind.host.strip("[]"), bind.port, ssl_context=context, reuse_address=True)
            opening = site.start()
        else:
            opening = refuse(bind, context)
        problems.append(await _problem(f"bindAddresses {bind}", opening))
        places.append((bind.host, bind.port))
    taken = [place for place, problem in zip(places, problems, strict=True) if problem is not None]
    if not is_known:
        _say("holding", fault)
        for problem in filter(None, problems):
            _say("holding, but not there", problem)
    looks = 0
    while not await signals.pause() and await _text(path) == text:
        looks += 1
        if looks % PATIENCE or not isinstance(fault, CannotStart):
            continue
        if all(_is_free(host, port) for host, port in taken) and _may_start(path, fault):
            break
    for server in refusing:
        server.close()
    await runner.cleanup()
    await status.close()


def _is_free(host: str, port: int) -> bool:
    """Whether a socket that somebody else had can be had now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host.strip("[]"), port), family=family).close()
    except OSError:
        return False
    return True


def _may_start(path: Path, fault: CannotStart) -> bool:
    """Whether it is worth trying, for which the sockets have to be let go: not while the same file is missing."""
    try:
        prepare(load(path))
    except (ConfigFaults, CannotStart) as found:
        return str(found) != str(fault)
    return True


async def _problem(what: str, opening: Awaitable[None]) -> CannotStart | None:
    try:
        await bound(what, opening)
    except CannotStart as problem:
        return problem
    return None


# Where a config that is no good means to be served, as far as that can be made out.


def _sockets(values: dict[str, Any]) -> tuple[BindAddress, ...]:
    try:
        return parse_bind_addresses(values["bindAddresses"])
    except (KeyError, TypeError, ValueError):
        binds: tuple[BindAddress, ...] = Config.model_fields["bind_addresses"].default
        return binds


def _tls(values: dict[str, Any]) -> ssl.SSLContext | None:
    """What clients of https sockets expect to be shown; where there is none, they are told in plain HTTP."""
    try:
        tls = keys.ServerTls.model_validate(values.get("tls") or {})
        return ServerTls(tls).context if tls.certificate and tls.key else None
    except (ValidationError, CannotLoad):
        return None
