"""The alerts, by subject. Each describes the condition, and its runbook what to do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dashboards import uids
from dashboards.promql import SAME, TARGET, grown, select, total
from dashboards.recordings import ERROR_RATIO, MISS_RATIO, MISSES, slow_ratio
from dashboards.slo import BURNS, Burn
from pulsar_ingress_proxy.observability.catalogue import Around, Gateway, Pipeline, Sidecar
from pulsar_ingress_proxy.observability.objectives import DAYS, OBJECTIVE, SECONDS

POD = (*TARGET, "pod")
"""Labels that identify a sidecar. Prometheus omits those that a series does not have."""

WHO = "{{ with $labels.pod }}{{ . }}{{ else }}{{ $labels.instance }}{{ end }}"
TIMES = '{{ printf "%.0f" $value }} in ten minutes'


@dataclass(frozen=True, slots=True)
class Alert:
    name: str
    severity: Literal["critical", "warning", "info"]
    page: str
    """Name of the runbook, without `.md`."""
    expr: str
    lasting: str
    summary: str
    description: str


def _happened(series: str, *by: str) -> str:
    """Any increase in the last ten minutes, including the first sample of a series.

    After a gap in scraping every counter looks new. So the sidecar must have been scraped ten minutes ago, or have
    started since.
    """
    known = f"{select(Sidecar.build_info)} offset 10m or {select(Around.started)} > time() - 600"
    return f"{total(grown(series, '10m'), *POD, *by)} > 0\nand {SAME}\n  ({known})"


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
        f"At this rate the error budget of {DAYS} days ({1 - OBJECTIVE:.0%} of lookups) is used up {burn.gone}.",
    )


def _of(expr: str, command: str) -> str:
    """Only for pipelines whose command matches."""
    return f"{expr}\nand {SAME}\n  {select(Pipeline.build_info, command)}"


SERVICE, JOB = 'command="stream"', 'command!="stream"'
_CAUGHT_UP = f"({select(Pipeline.caught_up)} or {SAME} {select(Around.started)})"
_QUARANTINED = [total(grown(select(counter), "1h"), *POD) for counter in (Pipeline.quarantined, Pipeline.lines)]


DAY = 24 * 60 * 60


def _expiring(severity: Literal["critical", "warning"], days: int, share: float, lasting: str) -> Alert:
    """Both a number of days and a share of the lifetime: meshes renew certificates of a day at half of it, and
    cert-manager those of 90 days when a third is left."""
    left = f"({select(Sidecar.certificate_not_after)} - time())"
    life = f"({select(Sidecar.certificate_not_after)} - {select(Sidecar.certificate_not_before)})"
    return Alert(
        "PulsarIngressCertificateExpiry",
        severity,
        "certificate-expiry",
        f"{left} < {days * DAY}\nand\n{left} < {share} * {life}",
        lasting,
        "A certificate of sidecar " + WHO + " expires soon",
        '{{ if eq $labels.use "serve" }}The certificate that clients are shown{{ else }}The certificate that brokers '
        "are shown{{ end }} expires in {{ $value | humanizeDuration }}. It should have been renewed by now.",
    )


# The host of the ServiceEntry that the chart creates with routes.failOpen: a retry there is one that a broker answers.
BYPASS = 'cluster_name=~"outbound.*pulsar-ingress-proxy[.]fail-open[.]internal"'

BOARDS: Mapping[str, str] = {
    "lookups": uids.OVERVIEW,
    "addresses": uids.OVERVIEW,
    "brokers": uids.OVERVIEW,
    "sidecars": uids.SIDECAR,
    "discovery": uids.SIDECAR,
    "pipeline": uids.PIPELINE,
}
"""The dashboard that shows more about each group of alerts."""

ALERTS: Mapping[str, Sequence[Alert]] = {
    "lookups": [
        Alert(
            "PulsarIngressMisses",
            "warning",
            "misses",
            f"{MISS_RATIO} > 0.05\nand\n{MISSES} > 0.02",
            "10m",
            "Lookups {{ with $labels.ingress }}through {{ . }}{{ else }}to unknown hosts{{ end }} get no listener",
            "{{ $value | humanizePercentage }} of the lookups of {{ $labels.job }} "
            "{{ with $labels.ingress }}through {{ . }}{{ else }}were for a host of no ingress and{{ end }} got no "
            "listener. These clients get addresses that they cannot reach, or an error.",
        ),
        Alert(
            "PulsarIngressUnknownListener",
            "warning",
            "unknown-listener",
            _happened(select(Sidecar.misses, 'reason=~"unknown-listener|broker-lacks-listener"'), "ingress", "reason"),
            "5m",
            "Lookups ask for a listener that brokers do not have",
            WHO
            + " refused lookups{{ with $labels.ingress }} through {{ . }}{{ end }} with {{ $labels.reason }}: "
            + TIMES
            + ".",
        ),
        Alert(
            "PulsarIngressOverloaded",
            "warning",
            "overloaded",
            "\nor\n".join(map(_happened, (select(Sidecar.misses, 'reason="overloaded"'), select(Sidecar.shed)))),
            "5m",
            "A sidecar is overloaded and refuses lookups",
            f"{WHO} answered requests with 503 overloaded: {TIMES}. limits.inFlight, limits.bufferBytes or "
            "limits.waitMillis was reached.",
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
            "Answers for listener {{ $labels.listener }} contained addresses that are not on it",
            WHO
            + " found addresses that are not on listener {{ $labels.listener }} in the {{ $labels.where }} of answers "
            "({{ $labels.action }}): " + TIMES + ".",
        ),
        Alert(
            "PulsarIngressUnmappedRedirects",
            "warning",
            "unmapped-redirects",
            _happened(select(Sidecar.unmapped), "listener"),
            "5m",
            "The address book lacks a broker's address on listener {{ $labels.listener }}",
            f"{WHO} got redirects to brokers without an address on listener {{{{ $labels.listener }}}}: {TIMES}.",
        ),
    ],
    "brokers": [
        Alert(
            "PulsarIngressUpstreamErrors",
            "warning",
            "upstream-errors",
            f"{ERROR_RATIO} > 0.05",
            "5m",
            "Brokers behind {{ $labels.job }} are failing",
            "The ratio of broker failures to requests is {{ $value | humanizePercentage }}. One request can meet up to "
            "three failures, and may still be answered.",
        ),
    ],
    "sidecars": [
        Alert(
            "PulsarIngressDown",
            "critical",
            "sidecar-down",
            f"{select(Around.up)} == 0\nand {SAME}\n  last_over_time({select(Sidecar.build_info)}[1d])",
            "5m",
            "Sidecar " + WHO + " cannot be scraped",
            "It was scraped within the last day, and no longer answers. Either it is down and the gateway beside it "
            "gets no answers, or its metrics port cannot be reached.",
        ),
        Alert(
            "PulsarIngressAbsent",
            "critical",
            "sidecar-down",
            f"absent({select(Sidecar.build_info)})",
            "10m",
            "No sidecar is scraped",
            "Either no sidecar is running, or Prometheus is not configured to find them.",
        ),
        Alert(
            "PulsarIngressBypassed",
            "warning",
            "sidecar-down",
            total(f"increase({select(Gateway.retried, BYPASS)}[10m])", "cluster", "namespace", "pod") + " > 0",
            "5m",
            "The gateway{{ with $labels.pod }} {{ . }}{{ end }} sends lookups past its sidecar",
            'It cannot connect to the sidecar and asks brokers directly: {{ printf "%.0f" $value }} requests in ten '
            "minutes. Redirects of these lookups lead clients to internal names.",
        ),
        Alert(
            "PulsarIngressNotReady",
            "critical",
            "not-ready",
            f"{select(Sidecar.last_reload)} == 0\nunless {SAME}\n  {select(Sidecar.generation)}",
            "2m",
            "Sidecar " + WHO + " has no valid config and answers 503",
            "It started with an invalid config or could not bind a socket. It answers 503 until that is fixed. /readyz "
            "on its metrics port has the reason.",
        ),
        Alert(
            "PulsarIngressReloadFailed",
            "warning",
            "reload-failed",
            f"{select(Sidecar.last_reload)} == 0\nand {SAME}\n  {select(Sidecar.generation)}",
            "5m",
            "Sidecar " + WHO + " runs an old config",
            "Its newest config is invalid. The previous one stays in force until the next restart.",
        ),
        _expiring("critical", 3, 0.05, "5m"),
        _expiring("warning", 21, 0.2, "1h"),  # 21 days, as in cert-manager's mixin
        Alert(  # without a collector, retention deletes files, and that is not an error
            "PulsarIngressEventsDropped",
            "warning",
            "events-dropped",
            _happened(select(Sidecar.events_dropped, 'reason!="retention"'), "reason"),
            "5m",
            "Sidecar " + WHO + " loses events",
            f"{TIMES}, reason: {{{{ $labels.reason }}}}. Clients are not affected.",
        ),
    ],
    "discovery": [
        Alert(
            "PulsarIngressDiscoveryStale",
            "warning",
            "discovery-stale",
            f"{select(Sidecar.discovery_synced)} == 0",
            "10m",
            "Sidecar " + WHO + " does not see changes to {{ $labels.kind }}",
            "Earlier results stay in force. It does not notice new or removed brokers and ingresses.",
        ),
        Alert(
            "PulsarIngressDiscoveryConflicts",
            "info",
            "discovery-conflicts",
            f"{select(Sidecar.discovery_conflicts)} > 0",
            "15m",
            "Objects in the cluster contradict each other or are incomplete",
            WHO + " found {{ $value | humanize }} conflicts. It does not guess, so they can cause misses and unmapped "
            "redirects.",
        ),
    ],
    # A job that has ended leaves only its file: the numbers of its last run, with the exporter's labels.
    "pipeline": [
        Alert(
            "PulsarIngressPipelineLate",
            "warning",
            "pipeline-late",
            _of(f"time() - {_CAUGHT_UP} > 1800", SERVICE)
            + "\nor\n"
            + _of(f"time() - {select(Pipeline.caught_up)} > 9000", JOB),
            "5m",
            "The tables of pipeline " + WHO + " are out of date",
            "Events of the last {{ $value | humanizeDuration }} may be missing from tables, reports and suggestions. A "
            "service is late after half an hour, a job after two and a half hours.",
        ),
        Alert(
            "PulsarIngressPipelineFailing",
            "warning",
            "pipeline-failing",
            f"{select(Pipeline.last_attempt)} == 0\nor\n"
            f"{select(Around.up)} == 0\nand {SAME}\n"
            f"  last_over_time({select(Pipeline.build_info, SERVICE)}[1d])\nor\n"
            + _of(f"changes({select(Around.started)}[30m]) > 2", SERVICE),
            "10m",
            "Pipeline " + WHO + " is failing",
            "Its last attempt failed, or it is down, or it restarts repeatedly. Nothing is lost: the files in the "
            "events directory are ingested when it works again.",
        ),
        Alert(
            "PulsarIngressPipelineQuarantine",
            "warning",
            "quarantine",
            _of(" / ".join(_QUARANTINED) + " > 0.01", SERVICE)
            + "\nor\n"
            + _of(f"{select(Pipeline.quarantined)} / {select(Pipeline.lines)} > 0.01", JOB),
            "5m",
            "Pipeline " + WHO + " reads invalid lines",
            "{{ $value | humanizePercentage }} of the lines of the last hour, or of the last run, went to quarantine.",
        ),
    ],
}
