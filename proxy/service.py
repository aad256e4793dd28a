"""The sidecar's life: start, serve, shut down."""

import asyncio
import logging
import signal
import ssl
from collections.abc import Awaitable

from proxy.authorities import parse_authority
from proxy.config import Config
from proxy.listeners import WEB_SCHEMES
from proxy.observe.metrics import Metrics
from proxy.snapshot import Snapshot, build
from proxy.web.exchange import Rim
from proxy.web.pool import Pool
from proxy.web.server import Door
from proxy.web.status import StatusServer

log = logging.getLogger("proxy")


class CannotStart(Exception):
    """A socket or a certificate that the config names cannot be had."""


class Sidecar:
    """All sockets of one process, and the snapshot they share."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.metrics = Metrics(config.cluster_name)
        self._not_ready: str | None = "starting"
        self._status = StatusServer(self.metrics, lambda: self._not_ready)
        self._pool: Pool | None = None
        self.doors: list[Door] = []

    @property
    def snapshot(self) -> Snapshot:
        return self._rim.snapshot

    @property
    def metrics_port(self) -> int:
        return self._status.port

    async def start(self) -> None:
        """Bind everything; raises CannotStart, and leaves nothing bound, where that fails."""
        config = self._config
        try:
            self._pool = Pool(config.timeouts.connect, config.timeouts.upstream_idle, _towards_brokers(config))
            self._rim = Rim(build(config), self._pool, self.metrics)
            metrics = parse_authority(config.metrics.address)
            assert metrics is not None
            assert metrics.port is not None
            await _bound(f"metrics.address {metrics}", self._status.open(metrics.host, metrics.port))
            for bind in config.bind_addresses:
                if bind.scheme in WEB_SCHEMES:
                    door = Door(self._rim, bind)
                    await _bound(f"bindAddresses {bind}", door.open(_towards_clients(config, bind.scheme)))
                    self.doors.append(door)
        except CannotStart:
            await self.stop()
            raise
        self.metrics.last_reload.set(1)
        self._not_ready = None
        log.info("serving %s; metrics on %s", ", ".join(str(door.bind) for door in self.doors), metrics)

    async def stop(self) -> None:
        """Stop accepting, let what runs finish, and close everything."""
        self._not_ready = "shutting down"
        await asyncio.gather(*(door.close(self._config.drain_seconds) for door in self.doors))
        if self._pool is not None:
            self._pool.close()
        await self._status.close()


async def run(config: Config) -> None:
    """Serve until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    sidecar = Sidecar(config)
    await sidecar.start()
    await ended.wait()
    log.info("shutting down")
    await sidecar.stop()


async def _bound(what: str, opening: Awaitable[None]) -> None:
    try:
        await opening
    except OSError as error:
        raise CannotStart(f"{what}: cannot be bound: {error.strerror or error}") from None


def _towards_clients(config: Config, scheme: str) -> ssl.SSLContext | None:
    if scheme != "https":
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls = config.tls
    assert tls.certificate is not None
    try:
        context.load_cert_chain(tls.certificate, tls.key)
        if tls.client_ca is not None:
            context.load_verify_locations(tls.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise CannotStart(f"tls: {tls.certificate}, {tls.key} cannot be used: {error}") from None
    context.set_alpn_protocols(["http/1.1"])
    return context


def _towards_brokers(config: Config) -> ssl.SSLContext:
    tls = config.brokers.tls
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.certificate is not None:
            context.load_cert_chain(tls.certificate, tls.key)
    except (OSError, ssl.SSLError) as error:
        raise CannotStart(f"brokers.tls cannot be used: {error}") from None
    context.set_alpn_protocols(["http/1.1"])
    return context
