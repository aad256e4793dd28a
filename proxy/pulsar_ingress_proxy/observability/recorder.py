"""Records every request as it ends: in the metrics, the event log and the console's recent decisions."""

import secrets

from pulsar_ingress_proxy.observability import event_lines
from pulsar_ingress_proxy.observability.access_record import AccessRecord
from pulsar_ingress_proxy.observability.event_log import EventLog
from pulsar_ingress_proxy.observability.metrics import Metrics
from pulsar_ingress_proxy.observability.outcome import Outcome
from pulsar_ingress_proxy.observability.recent import Recent


class Recorder:
    """Records each request once. Event lines are formatted here, and written by the event log's thread."""

    def __init__(
        self,
        metrics: Metrics,
        events: EventLog | None = None,
        recent: Recent | None = None,
        cluster: str = "",
        sidecar: str = "",
    ) -> None:
        self.metrics = metrics
        self._events = events
        self._recent = recent
        self.makes_lines = events is not None or recent is not None
        """Whether event lines are needed."""
        self._origin = event_lines.origin(cluster, sidecar)
        self._ids = secrets.token_hex(6)
        self._last_id = 0

    def new_id(self) -> str:
        """A request's id, unique among all sidecars."""
        self._last_id += 1
        return f"{self._ids}-{self._last_id}"

    def add(
        self,
        outcome: Outcome,
        id: str,
        time: float,
        names: str,
        redirect: str,
        duration: float,
        upstream_duration: float | None,
        request_bytes: int,
        response_bytes: int,
        client: str,
    ) -> None:
        """Record a request. `names`, `redirect` and `client` are parts of its event line."""
        outcome.count(duration, upstream_duration)
        if self.makes_lines:
            line = event_lines.line(
                outcome.words, self._origin, id, time, names, redirect, duration, upstream_duration, request_bytes,
                response_bytes, client,
            )  # fmt: skip
            if self._events is not None:
                self._events.add(line)
            if self._recent is not None:
                self._recent.add(line, outcome.sorts)

    def record(self, record: AccessRecord, outcome: Outcome | None = None) -> None:
        """Record a request from its access record; `outcome` if it is shared with others."""
        self.add(
            outcome or Outcome(record, self.metrics),
            record.id,
            record.time,
            event_lines.names(record.target.tenant, record.target.namespace, record.target.topic),
            event_lines.redirect(record.redirect_from, record.redirect_to),
            record.duration,
            record.upstream_duration,
            record.request_bytes,
            record.response_bytes,
            event_lines.client(record.peer, record.user_agent),
        )
