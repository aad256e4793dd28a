"""All that is decided about a request before it is asked of a broker. Pure."""

from dataclasses import dataclass

from pulsar_ingress_proxy.routing.decisions import Route, not_exposed, route
from pulsar_ingress_proxy.routing.requests import Request
from pulsar_ingress_proxy.routing.selection import Refusal, Selection, select
from pulsar_ingress_proxy.routing.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Verdict:
    """The listener, the answer of our own if there is one, and the broker or pool to ask."""

    selection: Selection
    refusal: Refusal | None
    route: Route
    label: str
    """The listener as a label of metrics."""

    @property
    def miss_reason(self) -> str | None:
        return self.refusal.code if self.refusal is not None else self.selection.reason


def judge(request: Request, snapshot: Snapshot) -> Verdict:
    """Select, refuse where that is called for, and route."""
    selection = select(request, snapshot)
    return Verdict(
        selection,
        not_exposed(request, selection, snapshot) or selection.refusal,
        route(request, selection, snapshot),
        snapshot.listener_label(selection.listener),
    )
