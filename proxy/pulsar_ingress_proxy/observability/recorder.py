"""Records every request that has ended: in the metrics, the event log and the console's recent decisions."""

import asyncio
import secrets
from time import perf_counter, time

from pulsar_ingress_proxy.observability.access_record import AccessRecord
from pulsar_ingress_proxy.observability.batches import Batch, Outcome
from pulsar_ingress_proxy.observability.event_log import EventLog
from pulsar_ingress_proxy.observability.metrics import Metrics
from pulsar_ingress_proxy.observability.recent import Recent, sorts_of

_FLUSH_SECONDS, _FLUSH_LOOKUPS = 0.05, 256
"""For how long finished lookups may wait to be recorded together, and how many may."""


class Recorder:
    """Everything is recorded in the order in which it ended."""

    def __init__(self, metrics: Metrics, events: EventLog | None = None, recent: Recent | None = None) -> None:
        self.metrics = metrics
        self._events = events
        self._recent = recent
        self._ids = secrets.token_hex(6)
        self._last_id = 0
        self._batch = Batch()
        if recent is not None:
            recent.before_read = self.flush

    def new_id(self) -> str:
        """A request's id, unique among all sidecars."""
        self._last_id += 1
        return f"{self._ids}-{self._last_id}"

    def record(self, record: AccessRecord) -> None:
        self.flush()
        self.metrics.count(record)
        if self._events is not None:
            self._events.add(record)
        if self._recent is not None:
            self._recent.add(record, sorts_of(record))

    def record_soon(
        self, asked: tuple[str, str], outcome: Outcome, client: str, started: float, duration: float
    ) -> None:
        """A lookup of the binary protocol that went like one before it: it is recorded together with others."""
        batch = self._batch
        batch.asked.append(asked)
        batch.outcomes.append(outcome)
        batch.clients.append(client)
        batch.started.append(started)
        batch.durations.append(duration)
        number = len(batch.clients)
        if number == 1:
            asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self._flush_batch, batch)
        elif number == _FLUSH_LOOKUPS:
            self.flush()

    def _flush_batch(self, batch: Batch) -> None:
        if batch is self._batch:
            self.flush()

    def flush(self) -> None:
        """AccessRecord the lookups that wait, before any request that ended later and before anyone reads."""
        batch = self._batch
        if not batch.clients:
            return
        self._batch = Batch()
        batch.ids, batch.first, batch.since = self._ids, self._last_id + 1, time() - perf_counter()
        self._last_id += len(batch)
        self.metrics.count_batch(batch)
        if self._events is not None:
            self._events.add_batch(batch)
        if self._recent is not None:
            self._recent.add_batch(batch)
