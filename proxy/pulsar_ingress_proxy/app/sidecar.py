"""The sidecar's lifecycle: start, serve, reload, shut down."""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Iterable

from pulsar_ingress_proxy.binary.server import BinaryServer
from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.config.model import AT_START
from pulsar_ingress_proxy.console.history import History
from pulsar_ingress_proxy.console.models import Cause
from pulsar_ingress_proxy.console.server import Console
from pulsar_ingress_proxy.console.view import Shown
from pulsar_ingress_proxy.discovery.manager import DiscoveryManager, is_wanted
from pulsar_ingress_proxy.http.connection_pool import ConnectionPool
from pulsar_ingress_proxy.http.server import HttpServer
from pulsar_ingress_proxy.net.context import ServerContext
from pulsar_ingress_proxy.net.pool import BrokerPool
from pulsar_ingress_proxy.net.status import StatusServer
from pulsar_ingress_proxy.net.tls import ServerTls
from pulsar_ingress_proxy.observability import tracing
from pulsar_ingress_proxy.observability.event_log import EventLog
from pulsar_ingress_proxy.observability.metrics import LoopLag, Metrics
from pulsar_ingress_proxy.observability.recent import Recent
from pulsar_ingress_proxy.observability.recorder import Recorder
from pulsar_ingress_proxy.routing.decisions import dial_url
from pulsar_ingress_proxy.routing.discovered import NOTHING, Conflict, Discovered
from pulsar_ingress_proxy.routing.snapshot import Snapshot, build, in_zone
from pulsar_ingress_proxy.syntax.authorities import Authority, parse_authority
from pulsar_ingress_proxy.syntax.listeners import BINARY_SCHEMES, TLS_SCHEMES, BindAddress, ServiceUrl
from pulsar_ingress_proxy.tools.preflight import CannotStart, prepare

log = logging.getLogger("proxy")


class Sidecar:
    """All servers of one process, and the snapshot they share."""

    def __init__(self, config: Config, source: str | None = None) -> None:
        self._config = config
        self._source = source
        self.metrics = Metrics(config.cluster_name)
        self._not_ready: str | None = "starting"
        self._status = StatusServer(self.metrics, self._why_not_ready)
        self._discovery: DiscoveryManager | None = None
        self._logged_conflicts: frozenset[Conflict] = frozenset()
        self._pool: ConnectionPool | None = None
        self._tls: ServerTls | None = None
        self._events: EventLog | None = None
        self._lag: LoopLag | None = None
        self._tracing: tracing.Tracing | None = None
        self._console: Console | None = None
        self.history = History()
        self._servers: list[HttpServer | BinaryServer] = []
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def http_servers(self) -> list[HttpServer]:
        return [server for server in self._servers if isinstance(server, HttpServer)]

    @property
    def binary_servers(self) -> list[BinaryServer]:
        return [server for server in self._servers if isinstance(server, BinaryServer)]

    @property
    def snapshot(self) -> Snapshot:
        return self._context.snapshot

    @property
    def discovered(self) -> Discovered:
        """The current result of discovery."""
        return self._discovery.discovered if self._discovery is not None else NOTHING

    @property
    def is_discovered(self) -> bool:
        """Whether discovery, if it is on, has had its first result or timed out."""
        return self._discovery is None or self._discovery.not_ready is None

    @property
    def metrics_port(self) -> int:
        return self._status.port

    @property
    def console_port(self) -> int | None:
        """None without a console."""
        return self._console.port if self._console is not None else None

    async def start(self) -> None:
        """Bind everything; raises CannotStart and leaves nothing bound if that fails."""
        config = self._config
        towards_brokers, self._tls = prepare(config)
        try:
            brokers = BrokerPool(config.timeouts.connect, towards_brokers)
            self._pool = ConnectionPool(brokers, config.timeouts.upstream_idle)
            self._events = self._event_log()
            recent = Recent() if config.console.address is not None else None
            recorder = Recorder(self.metrics, self._events, recent, config.cluster_name, _own_name())
            self._context = ServerContext(self._snapshot(config, 1), brokers, recorder)
            self._context.tracing = self._tracing = tracing.wanted()
            self.history.note(None, self.snapshot, "start")
            await self._discover(config, config)
            metrics = parse_authority(config.metrics.address)
            assert metrics is not None
            assert metrics.port is not None
            await bound(f"metrics.address {metrics}", self._status.open(metrics.host, metrics.port))
            self._servers = await self._open(list(config.bind_addresses), self._tls)
            if recent is not None:
                await self._open_console(recent)
        except CannotStart:
            await self.stop()
            raise
        self._note_certificates()
        self._lag = LoopLag(self.metrics.loop_lag)
        self.metrics.last_reload.set(1)
        self._not_ready = None
        log.info("serving %s; metrics on %s", ", ".join(str(server.bind) for server in self._servers), metrics)

    async def reload(self, config: Config) -> None:
        """Put a new config in force; raises CannotStart and keeps the old one if that fails.

        Requests in progress keep their snapshot; sockets that stay keep their connections.
        """
        assert self._pool is not None
        kept = {_place(server.bind): server for server in self._servers}
        wanted = list(config.bind_addresses)
        towards_brokers, tls = prepare(config)
        opened = await self._open_beside(
            kept.values(), [bind for bind in wanted if _place(bind) not in kept], self._tls or tls
        )
        self._pool.brokers.set_up(config.timeouts.connect, towards_brokers)
        self._pool.idle_timeout = config.timeouts.upstream_idle
        if self._tls is not None and tls is not None:
            self._tls.adopt(tls)
        else:
            self._tls = tls
        self._note_certificates()
        self._install(config, "reload")
        for bind in wanted:
            if server := kept.pop(_place(bind), None):
                server.adopt(bind)
                opened.append(server)
        self._servers = opened
        for server in kept.values():
            self._close_later(server)
        for key in AT_START:
            if getattr(config, key) != getattr(self._config, key):
                log.warning("a change of %s takes effect with the next start", Config.model_fields[key].alias or key)
        previous, self._config = self._config, config
        await self._discover(config, previous)
        log.info("generation %d is in force", self.snapshot.generation)

    def refresh_certificates(self) -> bool:
        """Reload certificates whose files have changed. Returns whether any did."""
        assert self._pool is not None
        refreshed = [tls.refresh() for tls in (self._tls, self._pool.brokers.tls) if tls is not None]
        self._note_certificates()
        return any(refreshed)

    def _note_certificates(self) -> None:
        assert self._pool is not None
        begins, expires = self.metrics.certificate_not_before, self.metrics.certificate_not_after
        for use, tls in (("serve", self._tls), ("brokers", self._pool.brokers.tls)):
            validity = tls.validity if tls is not None else None
            if validity is None:
                begins.drop(use)
                expires.drop(use)
            else:
                begins.set(validity.not_before, use)
                expires.set(validity.not_after, use)

    async def stop(self) -> None:
        """Become unready, stop accepting, drain, flush events and spans, and close everything."""
        self._not_ready = "shutting down"
        await asyncio.gather(*(server.close(self._config.drain_seconds) for server in self._servers), *self._closing)
        if self._discovery is not None:
            await self._discovery.stop()
        if self._pool is not None:
            self._pool.close()
        if self._events is not None:
            await asyncio.to_thread(self._events.close, 5)
        if self._lag is not None:
            self._lag.stop()
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close, 5)
        if self._console is not None:
            await self._console.close()
        await self._status.close()

    def _why_not_ready(self) -> str | None:
        return self._not_ready or (self._discovery.not_ready if self._discovery is not None else None)

    # Discovery.

    async def _discover(self, config: Config, previous: Config) -> None:
        """Start discovery, or reload its config; previous results stay in force meanwhile."""
        if self._discovery is not None:
            await self._discovery.reload(config, previous)
        elif is_wanted(config):
            assert self._pool is not None
            self._discovery = DiscoveryManager(self.metrics, self._pool.brokers, self._dial, self._install_discovered)
            await self._discovery.start(config)

    def _install_discovered(self) -> None:
        """Put a new result of discovery in force."""
        self._install(self._config, "discovery")
        log.info("generation %d is in force, by discovery", self.snapshot.generation)

    def _install(self, config: Config, cause: Cause) -> None:
        previous = self.snapshot
        self._context.install(self._snapshot(config, previous.generation + 1))
        self.history.note(previous, self.snapshot, cause)
        conflicts = frozenset(self.snapshot.conflicts)
        for conflict in sorted(conflicts - self._logged_conflicts, key=str):
            log.warning("%s: %s", conflict.subject, conflict.text)
        self._logged_conflicts = conflicts
        self.metrics.discovery_conflicts.set(len(conflicts))

    def _snapshot(self, config: Config, generation: int) -> Snapshot:
        snapshot = build(config, generation, self.discovered)
        if self._discovery is None or self._discovery.zone is None:
            return snapshot
        return in_zone(snapshot, self._discovery.zone)

    def _dial(self, name: Authority) -> ServiceUrl | None:
        broker = self.snapshot.book.resolve(name, int(self._config.web_pool[0].port))
        return dial_url(broker, self.snapshot) if broker is not None else None

    def _event_log(self) -> EventLog | None:
        if self._config.events.path is None:
            return None
        metrics = self.metrics
        events = EventLog(
            self._config.events,
            _own_name(),
            written=lambda number: metrics.events_written.add(by=number),
            dropped=lambda reason, number: metrics.events_dropped.add(reason, by=number),
        )
        events.start()
        return events

    async def _open_console(self, recent: Recent) -> None:
        """Open the console; a failure is logged and does not stop the sidecar."""
        address = parse_authority(self._config.console.address or "")
        assert address is not None
        assert address.port is not None
        shown = Shown(
            self._config, lambda: self.snapshot, self._why_not_ready, self.metrics, recent, self.history, self._source
        )
        console = Console(shown, address.host)
        try:
            await bound(f"console.address {address}", console.open(address.port))
        except CannotStart as problem:
            log.warning("%s; there is no console", problem)
            await console.close()
        else:
            self._console = console

    async def _open(self, binds: list[BindAddress], tls: ServerTls | None) -> list[HttpServer | BinaryServer]:
        servers: list[HttpServer | BinaryServer] = []
        try:
            for bind in binds:
                server = self._server(bind)
                context = tls.context if tls is not None and bind.scheme in TLS_SCHEMES else None
                await bound(f"bindAddresses {bind}", server.open(context))
                servers.append(server)
        except CannotStart:
            for server in servers:
                await server.close(0)
            raise
        return servers

    def _server(self, bind: BindAddress) -> HttpServer | BinaryServer:
        if bind.scheme in BINARY_SCHEMES:
            return BinaryServer(self._context, bind)
        assert self._pool is not None
        return HttpServer(self._context, self._pool, bind)

    async def _open_beside(
        self, servers: Iterable[HttpServer | BinaryServer], binds: list[BindAddress], tls: ServerTls | None
    ) -> list[HttpServer | BinaryServer]:
        """Open more sockets. A new scheme at the same address replaces the old socket."""
        addresses = {bind.address for bind in binds if bind.port}
        giving_way = [server for server in servers if server.bind.address in addresses]
        for server in giving_way:
            server.stop_listening()
        try:
            return await self._open(binds, tls)
        except CannotStart:
            for server in giving_way:
                await bound(f"bindAddresses {server.bind}", server.listen_again())
            raise

    def _close_later(self, server: HttpServer | BinaryServer) -> None:
        task = asyncio.get_running_loop().create_task(server.close(self._config.drain_seconds))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _own_name() -> str:
    """The sidecar's name in events."""
    return os.environ.get("POD_NAME") or socket.gethostname()


def _place(bind: BindAddress) -> tuple[str, str]:
    return bind.scheme, bind.address


async def bound(what: str, opening: Awaitable[None]) -> None:
    """Open a socket; raises CannotStart."""
    try:
        await opening
    except (OSError, UnicodeError) as error:  # IDNA rejects labels over 63 characters
        raise CannotStart(f"{what}: cannot be bound: {getattr(error, 'strerror', None) or error}") from None
