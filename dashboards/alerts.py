"""The alerts, by what they are about: each says what is so, and its runbook what to do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dashboards.promql import METRICS, grown, select, total
from dashboards.recordings import ERROR_RATIO, MISS_RATIO, MISSES, slow_ratio
from dashboards.slo import BURNS, OBJECTIVE, SECONDS, Burn

POD = ("namespace", "job", "instance", "pod")
"""Which sidecar; labels that series do not have are left out."""

WHO = "{{ with $labels.pod }}{{ . }}{{ else }}{{ $labels.instance }}{{ end }}"
TIMES = '{{ printf "%.0f" $value }} in ten minutes'


@dataclass(frozen=True, slots=True)
class Alert:
    name: str
    severity: Literal["critical", "warning", "info"]
    page: str
    """Its runbook, without `.md`."""
    expr: str
    lasting: str
    summary: str
    description: str


def _happened(series: str, *by: str) -> str:
    """Any in the last ten minutes, the very first one too.

    Not after a gap in the scraping, where every counter seems new: the sidecar must have been seen ten minutes ago, or
    have started since.
    """
    known = f"{select(METRICS.build_info)} offset 10m or process_start_time_seconds > time() - 600"
    return f"{total(grown(series, '10m'), *POD, *by)} > 0\nand on (job, instance)\n  ({known})"


def _burning(burn: Burn) -> Alert:
    most = burn.times * (1 - OBJECTIVE)
    return Alert(
        "PulsarIngressLookupLatency",
        burn.severity,
        "lookup-latency",
        f"{slow_ratio(burn.long)} > {most:.3g}\nand\n{slow_ratio(burn.short)} > {most:.3g}",
        "2m",
        "Too many lookups of {{ $labels.job }} are slow",
        f"{{{{ $value | humanizePercentage }}}} of lookups in the last {burn.long} took longer than {SECONDS} s. "
        f"At this pace the budget of 30 days, {1 - OBJECTIVE:.0%} of lookups, is gone {burn.gone}.",
    )


ALERTS: Mapping[str, Sequence[Alert]] = {
    "lookups": [
        Alert(
            "PulsarIngressMisses",
            "warning",
            "misses",
            f"{MISS_RATIO} > 0.05\nand\n{MISSES} > 0.02",
            "10m",
            "Lookups through {{ with $labels.ingress }}{{ . }}{{ else }}no known door{{ end }} get no listener",
            "{{ $value | humanizePercentage }} of the lookups of {{ $labels.job }} "
            "{{ with $labels.ingress }}through {{ . }}{{ else }}came by a host of no ingress and{{ end }} got no "
            "listener: these clients get addresses that they cannot reach, or a refusal.",
        ),
        Alert(
            "PulsarIngressUnknownListener",
            "warning",
            "unknown-listener",
            _happened(select(METRICS.misses, 'reason=~"unknown-listener|broker-lacks-listener"'), "ingress", "reason"),
            "5m",
            "Lookups ask for a listener that brokers do not have",
            WHO
            + " refused lookups{{ with $labels.ingress }} through {{ . }}{{ end }} as {{ $labels.reason }}: "
            + TIMES
            + ".",
        ),
        Alert(
            "PulsarIngressOverloaded",
            "warning",
            "overloaded",
            _happened(select(METRICS.misses, 'reason="overloaded"')),
            "5m",
            "A sidecar turns lookups away",
            f"{WHO} answered lookups with 503 overloaded: {TIMES}. More requests were in flight than limits.inFlight.",
        ),
        *map(_burning, BURNS),
    ],
    "addresses": [
        Alert(
            "PulsarIngressLeak",
            "critical",
            "leak",
            _happened(select(METRICS.leaks, 'action!="observed"'), "listener", "where", "action"),
            "0s",
            "Clients of {{ $labels.listener }} were sent to an address that is not on it",
            WHO + " found addresses off the listener {{ $labels.listener }} in the {{ $labels.where }} of answers "
            "({{ $labels.action }}): " + TIMES + ".",
        ),
        Alert(
            "PulsarIngressUnmappedRedirects",
            "warning",
            "unmapped-redirects",
            _happened(select(METRICS.unmapped), "listener"),
            "5m",
            "The address book lacks a broker on {{ $labels.listener }}",
            f"{WHO} saw redirects to brokers that have no address on the listener {{{{ $labels.listener }}}}: {TIMES}.",
        ),
    ],
    "brokers": [
        Alert(
            "PulsarIngressUpstreamErrors",
            "warning",
            "upstream-errors",
            f"{ERROR_RATIO} > 0.05",
            "5m",
            "Brokers behind {{ $labels.job }} fail",
            "There are {{ $value | humanizePercentage }} as many failures of brokers as requests. One request may meet "
            "up to three, and be answered nonetheless.",
        ),
    ],
    "sidecars": [
        Alert(
            "PulsarIngressDown",
            "critical",
            "sidecar-down",
            f"up == 0\nand on (job, instance)\n  last_over_time({select(METRICS.build_info)}[1d])",
            "5m",
            "The sidecar " + WHO + " cannot be scraped",
            "It was there within a day, and is not: the gateway beside it gets no answers, or its metrics port is "
            "out of reach.",
        ),
        Alert(
            "PulsarIngressAbsent",
            "critical",
            "sidecar-down",
            f"absent({select(METRICS.build_info)})",
            "10m",
            "No sidecar is scraped",
            "Prometheus has no sidecar at all: none runs, or nothing tells Prometheus of them.",
        ),
        Alert(
            "PulsarIngressNotReady",
            "critical",
            "not-ready",
            f"{select(METRICS.last_reload)} == 0\nunless on (job, instance)\n  {select(METRICS.generation)}",
            "2m",
            "The sidecar " + WHO + " has no config, and answers 503",
            "It started with a config that is faulty, or could not bind a socket, and holds until that is mended. "
            "/readyz on its metrics port says why.",
        ),
        Alert(
            "PulsarIngressReloadFailed",
            "warning",
            "reload-failed",
            f"{select(METRICS.last_reload)} == 0\nand on (job, instance)\n  {select(METRICS.generation)}",
            "5m",
            "The sidecar " + WHO + " runs an old config",
            "Its newest config is faulty. The one before stays in force, until the next restart.",
        ),
        Alert(  # where nobody collects them, files go by retention, and that is no fault
            "PulsarIngressEventsDropped",
            "warning",
            "events-dropped",
            _happened(select(METRICS.events_dropped, 'reason!="retention"'), "reason"),
            "5m",
            "Events of " + WHO + " are lost",
            f"{TIMES}, by reason {{{{ $labels.reason }}}}. Clients do not notice.",
        ),
    ],
    "discovery": [
        Alert(
            "PulsarIngressDiscoveryStale",
            "warning",
            "discovery-stale",
            f"{select(METRICS.discovery_synced)} == 0",
            "10m",
            "The sidecar " + WHO + " does not hear of changes to {{ $labels.kind }}",
            "What it found before stays in force. Brokers and doors that come or go are not known to it.",
        ),
        Alert(
            "PulsarIngressDiscoveryConflicts",
            "info",
            "discovery-conflicts",
            f"{select(METRICS.discovery_conflicts)} > 0",
            "15m",
            "Objects in the cluster contradict each other",
            WHO + " counts {{ $value | humanize }} findings that do not fit together or say too little. Nothing is "
            "guessed: where it matters there are misses and unmapped redirects.",
        ),
    ],
}
