"""`run`: serves, and reloads the config file when it changes.

The file is polled every second, not watched: Kubernetes swaps symlinks, editors rename, and polling is cheap.
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
from pulsar_ingress_proxy.tools.config_warnings import config_warnings
from pulsar_ingress_proxy.tools.preflight import CannotStart, prepare

POLL_SECONDS = 1.0
"""Seconds between checks of the config and the certificates."""
RETRY_POLLS = 5
"""Checks after which a valid config is tried again that failed because of a socket or a certificate."""

GC_THRESHOLD = 20_000
"""Threshold of the garbage collector: thousands of records may be queued, and have no cycles."""

SWITCH_INTERVAL = 0.0005
"""Switch interval in seconds, a tenth of Python's default, so that the event log's thread does not delay requests."""

log = logging.getLogger("proxy.config")


class Signals:
    """Signal handlers: stop on SIGTERM and SIGINT, reload on SIGHUP."""

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
        """Wait for the next check; true if a signal asked for it."""
        try:
            async with asyncio.timeout(POLL_SECONDS):
                await self._look.wait()
        except TimeoutError:
            return False
        self._look.clear()
        return True


async def run(path: Path, hold: bool) -> None:
    """Serve until SIGTERM or SIGINT; raises ConfigFaults or CannotStart unless `hold` is set."""
    signals = Signals()
    _allow_open_files()
    gc.set_threshold(GC_THRESHOLD)
    sys.setswitchinterval(SWITCH_INTERVAL)
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
    gc.freeze()  # these objects are permanent
    return sidecar


async def _serve(sidecar: Sidecar, path: Path, text: str | None, signals: Signals) -> None:
    missing, polls = "", 0
    reviewed: Config | None = None
    while not signals.ended.is_set():
        if sidecar.is_discovered and reviewed is not sidecar.snapshot.config:
            reviewed = sidecar.snapshot.config
            for warning in config_warnings(sidecar.snapshot):
                log.warning("%s", warning)
        asked = await signals.pause()
        if signals.ended.is_set():
            break
        sidecar.refresh_certificates()
        newest = await _text(path)
        polls += 1
        if asked or newest != text:
            text, polls = newest, 0
            missing = await _reload(sidecar, path)
        elif missing and polls % RETRY_POLLS == 0:
            missing = await _reload(sidecar, path, missing)
    log.info("shutting down")
    await sidecar.stop()


async def _reload(sidecar: Sidecar, path: Path, known: str = "") -> str:
    """Reload the file. Returns the error if it may go away without a change of the file.

    A `known` error was logged and counted before.
    """
    metrics = sidecar.metrics
    try:
        config = await asyncio.to_thread(load, path)  # a config of 1,000 ingresses takes tenths of a second
        await sidecar.reload(config)
    except (ConfigFaults, CannotStart) as fault:
        if str(fault) != known:
            _log_fault("not reloaded, the old config stays in force", fault)
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
    """Raise the soft limit to the hard limit: the default may be 1,024, less than limits.connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _log_fault(what: str, fault: Exception) -> None:
    for line in str(fault).splitlines():
        log.error("%s: %s", what, line)


async def _text(path: Path) -> str | None:
    """The content of the file; None if it cannot be read."""
    try:
        return await asyncio.to_thread(path.read_text, encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


async def _hold(path: Path, text: str | None, fault: Exception, is_known: bool, signals: Signals) -> None:
    """Answer with the reason on all sockets until the file changes, or until the start may succeed."""
    servers = HoldingServers(text, fault)
    await servers.open()
    if not is_known:
        _log_fault("holding", fault)
        for problem in servers.problems:
            _log_fault("holding, but could not bind", problem)
    polls = 0
    while not await signals.pause() and await _text(path) == text:
        polls += 1
        if polls % RETRY_POLLS or not isinstance(fault, CannotStart):
            continue
        if servers.may_bind() and _may_start(path, fault):
            break
    await servers.close()


def _may_start(path: Path, fault: CannotStart) -> bool:
    """Whether to release the sockets and try to start: not while the same error remains."""
    try:
        prepare(load(path))
    except (ConfigFaults, CannotStart) as found:
        return str(found) != str(fault)
    return True
