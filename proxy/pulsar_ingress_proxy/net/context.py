"""State shared by all connections: decisions, the broker pool, the recorder, overload and the memory budgets."""

import asyncio

from pulsar_ingress_proxy.memory import Budget
from pulsar_ingress_proxy.net.overload import Overload
from pulsar_ingress_proxy.net.pool import BrokerPool
from pulsar_ingress_proxy.observability.recorder import Recorder
from pulsar_ingress_proxy.observability.tracing import Tracing
from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.snapshot import Snapshot


class ServerContext:
    """The state that the servers of one sidecar share."""

    tracing: Tracing | None = None

    def __init__(self, snapshot: Snapshot, brokers: BrokerPool, recorder: Recorder) -> None:
        self._loop = asyncio.get_running_loop()
        self.brokers = brokers
        self.recorder = recorder
        self.metrics = recorder.metrics
        self.replays = Budget(snapshot.config.limits.replay_total_bytes)
        """For request bodies that are kept for replay."""
        self.buffers = Budget(snapshot.config.limits.buffer_bytes)
        """For requests and answers that connections buffer."""
        self.overload = Overload(snapshot.config.limits.wait_millis / 1000)
        self.metrics.before_read = self._measure
        self.install(snapshot)

    def install(self, snapshot: Snapshot) -> None:
        """Put a snapshot in force; requests in progress keep theirs."""
        self.decisions = DecisionCache(snapshot)
        self.replays.resize(snapshot.config.limits.replay_total_bytes)
        self.buffers.resize(snapshot.config.limits.buffer_bytes)
        self.overload.limit = snapshot.config.limits.wait_millis / 1000
        self.metrics.generation.set(snapshot.generation)
        entries = self.metrics.book_entries
        for labels in entries.values:
            entries.drop(*labels)
        entries.set(0, "config")
        for entry in snapshot.book.entries:
            entries.add(entry.source)

    def _measure(self) -> None:
        self.metrics.buffered.set(self.buffers.used)
        self.metrics.asyncio_tasks.set(len(asyncio.all_tasks(self._loop)))

    @property
    def snapshot(self) -> Snapshot:
        return self.decisions.snapshot
