"""`run`: the sidecar, kept in step with its config file.

A file is looked at every second rather than watched: Kubernetes swaps links, editors rename, and a look costs
nothing.
"""

import asyncio
import gc
import logging
import resource
import signal
import sys
from pathlib import Path

from pulsar_ingress_proxy.app.hold import HoldingServers
from pulsar_ingress_proxy.app.sidecar import Sidecar
from pulsar_ingress_proxy.config import Config, ConfigFaults, load
from pulsar_ingress_proxy.observability import log as logs
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.tools.config_warnings import config_warnings
from pulsar_ingress_proxy.tools.preflight import CannotStart, prepare

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
    for doubt in config_warnings(snapshot):
        log.warning("%s", doubt)


async def _text(path: Path) -> str | None:
    """The file as it is now; None where it cannot be read."""
    try:
        return await asyncio.to_thread(path.read_text, encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


async def _hold(path: Path, text: str | None, fault: Exception, is_known: bool, signals: Signals) -> None:
    """Say the reason on all sockets until the file is another, or a while if that is not it."""
    servers = HoldingServers(text, fault)
    problems = await servers.open()
    if not is_known:
        _say("holding", fault)
        for problem in problems:
            _say("holding, but not there", problem)
    looks = 0
    while not await signals.pause() and await _text(path) == text:
        looks += 1
        if looks % PATIENCE or not isinstance(fault, CannotStart):
            continue
        if servers.may_bind() and _may_start(path, fault):
            break
    await servers.close()


def _may_start(path: Path, fault: CannotStart) -> bool:
    """Whether it is worth trying, for which the sockets have to be let go: not while the same file is missing."""
    try:
        prepare(load(path))
    except (ConfigFaults, CannotStart) as found:
        return str(found) != str(fault)
    return True
