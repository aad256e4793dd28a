"""Runs the sources of discovery, merges their results, and keeps them on disk."""

import asyncio
import importlib
import importlib.util
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial

from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.discovery.admin import AdminPoller, BrokerAdmin
from pulsar_ingress_proxy.discovery.state import Known, State
from pulsar_ingress_proxy.net.pool import BrokerPool
from pulsar_ingress_proxy.observability.metrics import Metrics
from pulsar_ingress_proxy.routing.discovered import NOTHING, Discovered
from pulsar_ingress_proxy.routing.precedence import merge
from pulsar_ingress_proxy.syntax.authorities import Authority
from pulsar_ingress_proxy.syntax.listeners import ServiceUrl

log = logging.getLogger("proxy.discovery")

_GRACE = 10.0
"""Maximum seconds of unreadiness before the first result: an unready container makes the gateway's whole pod unready,
and the gateway has other clients, too."""
_BETWEEN_WRITES = 1.0
_RESTART_SECONDS = 5.0

KEYS = ("kubernetes", "brokers", "internal_listener_name")
"""Config keys that affect discovery."""


def is_wanted(config: Config) -> bool:
    return config.kubernetes.enabled or config.brokers.discover == "admin"


def missing_package() -> str | None:
    """What to do if the `kubernetes` package, an optional extra, is not installed."""
    if importlib.util.find_spec("kubernetes") is not None:
        return None
    return "needs the package 'kubernetes': pip install 'pulsar-ingress-proxy[kubernetes]'"


@dataclass(eq=False)
class DiscoveryManager:
    """`discovered` and `zone` are the current results; `news` is called when they have changed."""

    _metrics: Metrics
    _pool: BrokerPool
    _dial: Callable[[Authority], ServiceUrl | None]
    _news: Callable[[], None]
    _known: Known = field(default_factory=Known)
    _state: State | None = None
    _is_news: asyncio.Event = field(default_factory=asyncio.Event)
    _written: Known | None = None
    _is_of_config: bool = False
    """Whether the known result was found under the current config."""
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _grace: asyncio.TimerHandle | None = None
    discovered: Discovered = NOTHING
    not_ready: str | None = None
    """Why the sidecar is not ready yet."""

    @property
    def zone(self) -> str | None:
        return self._known.zone

    async def start(self, config: Config) -> None:
        """Load the last result from disk, and start the sources without waiting for them."""
        self._state = State(config) if config.kubernetes.state_path is not None else None
        self._is_of_config = not config.kubernetes.enabled
        if self._state is not None and (known := await asyncio.to_thread(self._state.read)) is not None:
            self._is_of_config = True
            self._written = known
            self._update(known)
            log.info("starting with the last known state from kubernetes.statePath")
        elif config.kubernetes.enabled:
            self.not_ready = "discovery has not synced yet"
            self._grace = asyncio.get_running_loop().call_later(_GRACE, self._be_ready, "becoming ready anyway")
        self._begin(config)

    async def reload(self, config: Config, previous: Config) -> None:
        """Restart the sources with a new config; previous results stay until there are new ones."""
        if all(getattr(config, key) == getattr(previous, key) for key in KEYS):
            return
        await self._end()
        self._state, self._written = State(config) if config.kubernetes.state_path is not None else None, None
        observed = self._known.observed if config.kubernetes.enabled else NOTHING
        reported = self._known.reported if config.brokers.discover == "admin" else NOTHING
        self._is_of_config = not config.kubernetes.enabled
        self._update(Known(observed, reported, self._known.zone))
        self._begin(config)

    async def stop(self) -> None:
        """Stop the sources, and write the result to disk if it has changed."""
        self._be_ready()
        await self._end()
        if self._state is not None:
            await self._write(self._state)

    def _begin(self, config: Config) -> None:
        works: list[Callable[[], Coroutine[None, None, None]]] = []
        if config.kubernetes.enabled:
            works.append(partial(self._watch, config))
        if config.brokers.discover == "admin":
            works.append(partial(self._ask, config))
        if self._state is not None:
            works.append(partial(self._keep, self._state))
        self._tasks = [asyncio.get_running_loop().create_task(_restarting(work)) for work in works]

    async def _end(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, config: Config) -> None:
        await asyncio.to_thread(importlib.import_module, "kubernetes.aio")  # takes a second
        from pulsar_ingress_proxy.discovery.api_client import KubernetesApi
        from pulsar_ingress_proxy.discovery.credentials import Credentials
        from pulsar_ingress_proxy.discovery.informers import InformerSet

        cluster = KubernetesApi(Credentials())
        try:
            await InformerSet(config, cluster, self._metrics, self._on_observed).run()
        finally:
            await cluster.close()

    async def _ask(self, config: Config) -> None:
        asking = BrokerAdmin(config, self._pool, self._dial)
        await AdminPoller(asking, self._metrics, self._known.reported, self._on_reported).run()

    async def _keep(self, state: State) -> None:
        while True:
            await self._is_news.wait()
            self._is_news.clear()
            await self._write(state)
            await asyncio.sleep(_BETWEEN_WRITES)

    async def _write(self, state: State) -> None:
        known = self._known
        if self._is_of_config and known is not self._written:
            await asyncio.to_thread(state.write, known)
            self._written = known

    # Called by the sources.

    def _on_observed(self, observed: Discovered, zone: str | None) -> None:
        self._is_of_config = True
        self._is_news.set()
        self._update(Known(observed, self._known.reported, zone))
        self._be_ready()

    def _on_reported(self, reported: Discovered) -> None:
        self._is_news.set()
        self._update(Known(self._known.observed, reported, self._known.zone))

    def _update(self, known: Known) -> None:
        if known == self._known:
            return
        self._known = known
        self.discovered = merge(known.observed, known.reported)
        self._news()

    def _be_ready(self, why: str = "") -> None:
        if self.not_ready is not None and why:
            log.warning("%s; %s", self.not_ready, why)
        self.not_ready = None
        if self._grace is not None:
            self._grace.cancel()


async def _restarting(work: Callable[[], Coroutine[None, None, None]]) -> None:
    while True:
        try:
            await work()
        except Exception:
            log.exception("a part of discovery failed; restarting it")
        await asyncio.sleep(_RESTART_SECONDS)
