"""One sidecar: its load, its brokers, its config and discovery, its event log."""

from collections.abc import Sequence

from dashboards import uids
from dashboards.boards import board, link, text
from dashboards.panels import BLUE, GREEN, ORANGE, RED, Panel, lines, number, stacked, states
from dashboards.promql import total
from dashboards.queries import Query, counted, mean, or_none, quantile, rate, shown
from pulsar_ingress_proxy.observability.catalogue import Around, Sidecar

BY_KIND = ("kind",)


def sidecar() -> str:
    return text(
        board(
            "Pulsar ingress / Sidecar",
            uids.SIDECAR,
            "One sidecar, or a few to compare: its load, its brokers, its config and discovery, its event log.",
            {
                "Now": _now(),
                "Load": _load(),
                "Brokers": _brokers(),
                "Config and discovery": _config(),
                "Event log": _events(),
            },
            of=Sidecar.build_info,
            of_all=False,
            links=[link("Overview", uids.OVERVIEW, "job"), link("Pipeline", uids.PIPELINE)],
        )
    )


def _now() -> Sequence[Panel]:
    started = shown(Around.started)
    return [
        number(
            "Running for",
            "dtdurations",
            "Since its last start. Short, and nobody deployed: it was killed; see its memory, and the pod's events.",
            Query(f"time() - max({started})"),
        ),
        number(
            "Version",
            "string",
            "What it runs. Several here: a roll-out that has not ended.",
            Query(total(shown(Sidecar.build_info), "version"), "{{version}}"),
        ),
        number(
            "Config",
            "short",
            "Whether the newest config is in force. If it is faulty, `check --config FILE` says where; "
            "docs/runbooks/reload-failed.md.",
            Query(f"min({shown(Sidecar.last_reload)})"),
            words={"1": ("in force", GREEN), "0": ("faulty", RED)},
        ),
        number(
            "Generation",
            "short",
            "Snapshots since its start; the log says when each came in force. No number: it holds, and answers 503.",
            Query(f"max({shown(Sidecar.generation)})"),
        ),
        number(
            "Connections",
            "short",
            "Open client connections. Near `limits.connections`, further ones get 503.",
            Query(f"sum({shown(Sidecar.connections)})"),
        ),
        number(
            "CPU",
            "percentunit",
            "Of one core, which is all that one process uses. Above 80 %: run more sidecars.",
            Query(f"max(rate({shown(Around.cpu)}[$__rate_interval]))"),
            steps=[(None, GREEN), (0.6, ORANGE), (0.8, RED)],
            decimals=0,
        ),
        number(
            "Memory",
            "bytes",
            "Resident. If it nears the container's limit, raise that or lower `limits`.",
            Query(f"max({shown(Around.memory)})"),
        ),
        number(
            "Events lost",
            "short",
            "In this time range. See *Events lost* below; docs/runbooks/events-dropped.md.",
            Query(or_none(counted(Sidecar.events_dropped, window="$__range"))),
            steps=[(None, GREEN), (0.5, ORANGE)],
            decimals=0,
        ),
    ]


def _load() -> Sequence[Panel]:
    return [
        lines(
            "Requests by kind",
            "reqps",
            "What it answers. Much `other`: somebody calls paths that are not Pulsar's; `expose` keeps them out.",
            Query(rate(Sidecar.requests, "kind"), "{{kind}}"),
        ),
        lines(
            "Connections and requests in flight",
            "short",
            "Requests that grow while their rate does not: brokers are slow, see below. At `limits.inFlight` and "
            "`limits.connections` further ones get 503.",
            Query(total(shown(Sidecar.connections), "protocol"), "connections, {{protocol}}"),
            Query(total(shown(Sidecar.in_flight), "protocol"), "in flight, {{protocol}}"),
        ),
        lines(
            "Latency by kind, p99",
            "s",
            "From a request's head to the end of its answer. Admin calls may be slow by nature; lookups may not.",
            Query(quantile(0.99, Sidecar.duration, *BY_KIND), "{{kind}}"),
        ),
        lines(
            "CPU",
            "percentunit",
            "Of one core. Above 80 % requests begin to queue: run more sidecars, they share nothing.",
            Query(f"rate({shown(Around.cpu)}[$__rate_interval])", "{{instance}}"),
            steps=[(None, GREEN), (0.8, RED)],
            span=6,
        ),
        lines(
            "Event loop lag",
            "s",
            "How long what could have been done had to wait for its turn. Milliseconds are good. High with much CPU: "
            "run more sidecars. High with little: the CPU limit throttles, raise it; or another on the node takes the "
            "CPU.",
            Query(quantile(0.5, Sidecar.loop_lag), "p50"),
            Query(quantile(0.99, Sidecar.loop_lag), "p99"),
            steps=[(None, GREEN), (0.1, ORANGE)],
            span=6,
        ),
        lines(
            "Memory",
            "bytes",
            "Resident, and what is held for requests and answers: near `limits.bufferBytes`, further requests get 503. "
            "`check` prints the most that a config allows.",
            Query(shown(Around.memory), "resident, {{instance}}"),
            Query(shown(Sidecar.buffered), "for requests and answers, {{instance}}"),
            span=6,
        ),
        lines(
            "File descriptors",
            "percentunit",
            "Share of those allowed that are open. Near 100 % connections are reset, the probes' too: raise the "
            "container's limit.",
            Query(f"{shown(Around.open_fds)} / {shown(Around.max_fds)}", "{{instance}}"),
            steps=[(None, GREEN), (0.8, RED)],
            most=1,
            span=6,
        ),
    ]


def _brokers() -> Sequence[Panel]:
    return [
        lines(
            "Broker latency by kind",
            "s",
            "From the first byte to a broker to its answer's head. If p99 grows and p50 does not, one broker is slow.",
            Query(quantile(0.5, Sidecar.upstream_duration, *BY_KIND), "p50 {{kind}}"),
            Query(quantile(0.99, Sidecar.upstream_duration, *BY_KIND), "p99 {{kind}}"),
        ),
        lines(
            "Where the time goes",
            "s",
            "Means of all requests. The difference is the sidecar's own, and the client's sending and reading.",
            Query(mean(Sidecar.duration), "in all"),
            Query(mean(Sidecar.upstream_duration), "broker"),
            colours={"in all": BLUE, "broker": ORANGE},
        ),
        stacked(
            "Upstream errors",
            "cps",
            "Failures of brokers. `broker-unreachable`: run `doctor --config FILE` in this pod. `broker-timeout`: look "
            "at the broker. `bad-answer`: what listens there? docs/runbooks/upstream-errors.md.",
            Query(rate(Sidecar.upstream_errors, "reason"), "{{reason}}"),
        ),
    ]


def _config() -> Sequence[Panel]:
    return [
        stacked(
            "Reloads",
            "short",
            "Of the config. A failure leaves the old one in force: mend the file before the next restart, which would "
            "fail; docs/runbooks/reload-failed.md.",
            Query(total(f"increase({shown(Sidecar.reloads)}[$__rate_interval])", "result"), "{{result}}"),
            colours={"success": GREEN, "failure": RED},
            bars=True,
        ),
        lines(
            "Generation",
            "short",
            "Each step is a change of config or of what discovery found.",
            Query(shown(Sidecar.generation), "{{instance}}"),
        ),
        stacked(
            "Address book by source",
            "short",
            "Lines of the address book. A drop: brokers or routes have gone from the cluster. `check` prints the book.",
            Query(total(shown(Sidecar.book_entries), "source"), "{{source}}"),
        ),
        states(
            "Discovery",
            "Whether each kind of object is known as it is. If not, changes are not heard of, and what was found "
            "before stays in force; docs/runbooks/discovery-stale.md.",
            Query(f"min by (kind) ({shown(Sidecar.discovery_synced)})", "{{kind}}"),
            {"1": ("in sync", GREEN), "0": ("stale", RED)},
        ),
        stacked(
            "Watches begun anew",
            "short",
            "`ended` is good order, every few minutes a kind. `forbidden`: grant what deploy/rbac.yaml has. "
            "`unreachable`: the API server, or the brokers, are away.",
            Query(counted(Sidecar.discovery_restarts, "kind", "reason"), "{{kind}} {{reason}}"),
            bars=True,
        ),
        lines(
            "Conflicts",
            "short",
            "Findings that contradict each other or say too little. `check --kubeconfig FILE` lists them; "
            "docs/runbooks/discovery-conflicts.md.",
            Query(shown(Sidecar.discovery_conflicts), "{{instance}}"),
        ),
    ]


def _events() -> Sequence[Panel]:
    return [
        lines(
            "Events written",
            "cps",
            "One a request, if `events.path` is set. Fewer than requests: some are lost.",
            Query(rate(Sidecar.events_written), "events"),
            span=12,
        ),
        stacked(
            "Events lost",
            "short",
            "`disk`: it is full, gone or read-only. `queue-full`: it is slow. `retention`: written, and removed before "
            "they were collected, or to keep within `events.retainBytes`. docs/runbooks/events-dropped.md.",
            Query(counted(Sidecar.events_dropped, "reason"), "{{reason}}"),
            bars=True,
            span=12,
        ),
    ]
