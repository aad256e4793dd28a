"""The record of one request: what was decided and what came of it. Metrics count it; events will write it."""

from dataclasses import dataclass


@dataclass(slots=True)
class Record:
    """Filled in as the request goes by. A label with no value is the empty string."""

    protocol: str = "http"
    kind: str = "other"
    ingress: str = ""
    listener: str = ""
    rule: str = ""
    is_lookup: bool = False
    miss_reason: str | None = None
    """Why a lookup is a miss; None: a hit."""
    status: int = 0
    redirects: list[str] | None = None
    """What became of each redirect, in the metric's words."""
    unmapped: int = 0
    leak_where: str | None = None
    leak_action: str = ""
    upstream_errors: list[str] | None = None
    duration: float = 0.0
    upstream_duration: float | None = None

    def redirected(self, action: str) -> None:
        self.redirects = [*(self.redirects or ()), action]

    def upstream_failed(self, reason: str) -> None:
        self.upstream_errors = [*(self.upstream_errors or ()), reason]

    def leaked(self, where: str, action: str) -> None:
        self.leak_where, self.leak_action = where, action
