"""The record of one request: the decision and its outcome, for metrics and events."""

from dataclasses import dataclass, field

from pulsar_ingress_proxy.routing.paths import Target
from pulsar_ingress_proxy.routing.requests import Request
from pulsar_ingress_proxy.routing.selection import Selection
from pulsar_ingress_proxy.syntax.authorities import Address

UNKNOWN = Target("other", "other")


@dataclass(slots=True)
class AccessRecord:
    """Filled in while the request is handled."""

    id: str = ""
    time: float = 0.0
    """Start of the request, in seconds since the epoch."""
    generation: int = 0
    protocol: str = "http"
    method: str = ""
    bind: str = ""
    """The bind address, as host:port."""
    peer: Address | None = None
    """The client's address; only its class is written."""
    user_agent: bytes | None = None
    target: Target = UNKNOWN
    request: Request | None = None
    """None if its head was refused."""
    selection: Selection | None = None
    listener: str = ""
    """The listener as a label: empty for none, `other` for an unknown name."""
    miss_reason: str | None = None
    """Why a lookup is a miss; None: a hit."""
    status: int = 0
    broker: str | None = None
    """The broker that answered, or that a lookup's answer names."""
    redirects: list[str] = field(default_factory=list)
    """The action for each redirect, as in the metric's label."""
    redirect_from: str | None = None
    redirect_to: str | None = None
    unmapped: int = 0
    leak: str | None = None
    """Where an address off the listener was: location, body, binary."""
    leak_action: str = ""
    upstream_errors: list[str] = field(default_factory=list)
    duration: float = 0.0
    """Seconds."""
    upstream_duration: float | None = None
    request_bytes: int = 0
    response_bytes: int = 0

    @property
    def kind(self) -> str:
        return self.target.kind

    @property
    def hops(self) -> int:
        """Redirects that the sidecar followed."""
        return self.redirects.count("followed")

    def leaked(self, where: str, action: str) -> None:
        self.leak, self.leak_action = where, action
