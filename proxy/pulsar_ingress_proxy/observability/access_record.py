"""The record of one request: what was decided and what came of it. Metrics count it, events are made of it."""

from dataclasses import dataclass, field

from pulsar_ingress_proxy.routing.paths import Target
from pulsar_ingress_proxy.routing.requests import Request
from pulsar_ingress_proxy.routing.selection import Selection
from pulsar_ingress_proxy.syntax.authorities import Address

UNKNOWN = Target("other", "other")


@dataclass(slots=True)
class AccessRecord:
    """Filled in as the request goes by."""

    id: str = ""
    time: float = 0.0
    """When it came, in seconds since the epoch."""
    generation: int = 0
    protocol: str = "http"
    method: str = ""
    bind: str = ""
    """The socket it came in by, as host:port."""
    peer: Address | None = None
    """The client's address, as trusted proxies tell it: never written, but its class is."""
    user_agent: bytes | None = None
    target: Target = UNKNOWN
    request: Request | None = None
    """None where its head was refused."""
    selection: Selection | None = None
    listener: str = ""
    """The listener as a label: the empty string for none, `other` for one that nobody has heard of."""
    miss_reason: str | None = None
    """Why a lookup is a miss; None: a hit."""
    status: int = 0
    broker: str | None = None
    """The broker that answered, or that a lookup's answer names."""
    redirects: list[str] = field(default_factory=list)
    """What became of each redirect, in the metric's words."""
    redirect_from: str | None = None
    redirect_to: str | None = None
    unmapped: int = 0
    leak: str | None = None
    """Where an address that is not on the listener stood: location, body, binary."""
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
