"""Burn rates of the lookup error budget that trigger an alert."""

from dataclasses import dataclass
from typing import Literal

from pulsar_ingress_proxy.observability.catalogue import Sidecar
from pulsar_ingress_proxy.observability.objectives import SECONDS

assert SECONDS in Sidecar.duration.buckets  # otherwise no bucket counts the lookups within it


@dataclass(frozen=True, slots=True)
class Burn:
    """A burn rate, as a multiple of the allowed one, and the windows over which it must hold.

    The long window shows that it matters, the short one that it is still going on.
    """

    times: float
    long: str
    short: str
    severity: Literal["critical", "warning"]
    gone: str


# A fiftieth of the budget in an hour, or a twentieth in six, as in the SRE workbook's chapter on alerting on SLOs.
BURNS = (
    Burn(14.4, "1h", "5m", "critical", "within two days"),
    Burn(6, "6h", "30m", "warning", "within five days"),
)
WINDOWS = tuple(window for burn in BURNS for window in (burn.short, burn.long))
