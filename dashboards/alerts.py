"""The alerts, by what they are about: each says what is so, and its runbook what to do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dashboards.promql import grown, select, total
from dashboards.recordings import ERROR_RATIO, MISS_RATIO, MISSES, slow_ratio
from dashboards.slo import BURNS, Burn
from pulsar_ingress_proxy.observability.catalogue import Around, Pipeline, Sidecar
from pulsar_ingress_proxy.observability.objectives import DAYS, OBJECTIVE, SECONDS

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
    known = f"{select(Sidecar.build_info)} offset 10m or {select(Around.started)} > time() - 600"
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
        f"At this pace the budget of {DAYS} days, {1 - OBJECTIVE:.0%} of lookups, is gone {burn.gone}.",
    )


def _of(expr: str, command: str) -> str:
    """Only of pipelines that were started by a command, as a matcher says."""
    return f"{expr}\nand on (job, instance)\n  {select(Pipeline.build_info, command)}"


SERVICE, JOB = 'command="stream"', 'command!="stream"'
_CAUGHT_UP = f"({select(Pipeline.caught_up)} or on (job, instance) {select(Around.started)})"
_QUARANTINED = [total(grown(select(counter), "1h"), *POD) for counter in (Pipeline.quarantined, Pipeline.lines)]


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
            _happened(select(Sidecar.misses, 'reason=~"unknown-listener|broker-lacks-listener"'), "ingress", "reason"),
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
            _happened(select(Sidecar.misses, 'reason="overloaded"')),
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
            _happened(select(Sidecar.leaks, 'action!="observed"'), "listener", "where", "action"),
            "0s",
            "Clients of {{ $labels.listener }} were sent to an address that is not on it",
            WHO + " found addresses off the listener {{ $labels.listener }} in the {{ $labels.where }} of answers "
            "({{ $labels.action }}): " + TIMES + ".",
        ),
        Alert(
            "PulsarIngressUnmappedRedirects",
            "warning",
            "unmapped-redirects",
            _happened(select(Sidecar.unmapped), "listener"),
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
            f"{select(Around.up)} == 0\nand on (job, instance)\n  last_over_time({select(Sidecar.build_info)}[1d])",
            "5m",
            "The sidecar " + WHO + " cannot be scraped",
            "It was there within a day, and is not: the gateway beside it gets no answers, or its metrics port is "
            "out of reach.",
        ),
        Alert(
            "PulsarIngressAbsent",
            "critical",
            "sidecar-down",
            f"absent({select(Sidecar.build_info)})",
            "10m",
            "No sidecar is scraped",
            "Prometheus has no sidecar at all: none runs, or nothing tells Prometheus of them.",
        ),
        Alert(
            "PulsarIngressNotReady",
            "critical",
            "not-ready",
            f"{select(Sidecar.last_reload)} == 0\nunless on (job, instance)\n  {select(Sidecar.generation)}",
            "2m",
            "The sidecar " + WHO + " has no config, and answers 503",
            "It started with a config that is faulty, or could not bind a socket, and holds until that is mended. "
            "/readyz on its metrics port says why.",
        ),
        Alert(
            "PulsarIngressReloadFailed",
            "warning",
            "reload-failed",
            f"{select(Sidecar.last_reload)} == 0\nand on (job, instance)\n  {select(Sidecar.generation)}",
            "5m",
            "The sidecar " + WHO + " runs an old config",
            "Its newest config is faulty. The one before stays in force, until the next restart.",
        ),
        Alert(  # where nobody collects them, files go by retention, and that is no fault
            "PulsarIngressEventsDropped",
            "warning",
            "events-dropped",
            _happened(select(Sidecar.events_dropped, 'reason!="retention"'), "reason"),
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
            f"{select(Sidecar.discovery_synced)} == 0",
            "10m",
            "The sidecar " + WHO + " does not hear of changes to {{ $labels.kind }}",
            "What it found before stays in force. Brokers and doors that come or go are not known to it.",
        ),
        Alert(
            "PulsarIngressDiscoveryConflicts",
            "info",
            "discovery-conflicts",
            f"{select(Sidecar.discovery_conflicts)} > 0",
            "15m",
            "Objects in the cluster contradict each other",
            WHO + " counts {{ $value | humanize }} findings that do not fit together or say too little. Nothing is "
            "guessed: where it matters there are misses and unmapped redirects.",
        ),
    ],
    # Of a job that has ended there is only its file: the numbers of its last run, and Prometheus's of whoever reads it.
    "pipeline": [
        Alert(
            "PulsarIngressPipelineLate",
            "warning",
            "pipeline-late",
            _of(f"time() - {_CAUGHT_UP} > 1800", SERVICE)
            + "\nor\n"
            + _of(f"time() - {select(Pipeline.caught_up)} > 9000", JOB),
            "5m",
            "The tables of the pipeline " + WHO + " are not current",
            "What came in the last {{ $value | humanizeDuration }} may not be in them: reports and suggestions are of "
            "before. A service is late after half an hour, a job after two and a half.",
        ),
        Alert(
            "PulsarIngressPipelineFailing",
            "warning",
            "pipeline-failing",
            f"{select(Pipeline.last_attempt)} == 0\nor\n"
            f"{select(Around.up)} == 0\nand on (job, instance)\n"
            f"  last_over_time({select(Pipeline.build_info, SERVICE)}[1d])\nor\n"
            + _of(f"changes({select(Around.started)}[30m]) > 2", SERVICE),
            "10m",
            "The pipeline " + WHO + " fails",
            "Its last attempt failed, or it is down, or it starts again and again. Nothing is lost: what is in the "
            "events' folder is taken when it works again.",
        ),
        Alert(
            "PulsarIngressPipelineQuarantine",
            "warning",
            "quarantine",
            _of(" / ".join(_QUARANTINED) + " > 0.01", SERVICE)
            + "\nor\n"
            + _of(f"{select(Pipeline.quarantined)} / {select(Pipeline.lines)} > 0.01", JOB),
            "5m",
            "Lines that the pipeline " + WHO + " reads are no events",
            "{{ $value | humanizePercentage }} of the lines of the last hour, or of the last run, went to quarantine.",
        ),
    ],
}
