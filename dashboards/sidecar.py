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
            "Uptime",
            "dtdurations",
            "Time since the last start. If it is short without a deployment, the sidecar was killed: "
            "check its memory and the pod's events.",
            Query(f"time() - max({started})"),
        ),
        number(
            "Version",
            "string",
            "The running version. Several versions mean that a rollout has not finished.",
            Query(total(shown(Sidecar.build_info), "version"), "{{version}}"),
        ),
        number(
            "Config",
            "short",
            "Whether the newest config is in force. If it is invalid, `check --config FILE` shows the "
            "errors. See docs/runbooks/reload-failed.md.",
            Query(f"min({shown(Sidecar.last_reload)})"),
            words={"1": ("in force", GREEN), "0": ("invalid", RED)},
        ),
        number(
            "Generation",
            "short",
            "Snapshots since the start; the log says when each came into force. Without a number, the "
            "sidecar has no valid config and answers 503.",
            Query(f"max({shown(Sidecar.generation)})"),
        ),
        number(
            "Connections",
            "short",
            "Open client connections. At `limits.connections`, further connections get 503.",
            Query(f"sum({shown(Sidecar.connections)})"),
        ),
        number(
            "CPU",
            "percentunit",
            "Share of one core, which is all that a process can use. Above 80 %, run more sidecars.",
            Query(f"max(rate({shown(Around.cpu)}[$__rate_interval]))"),
            steps=[(None, GREEN), (0.6, ORANGE), (0.8, RED)],
            decimals=0,
        ),
        number(
            "Memory",
            "bytes",
            "Resident memory. If it approaches the container's limit, raise that limit or lower `limits`.",
            Query(f"max({shown(Around.memory)})"),
        ),
        number(
            "Events lost",
            "short",
            "Events lost in this time range. See *Events lost* below and docs/runbooks/events-dropped.md.",
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
            "Answered requests. Much `other` means calls of paths that are not Pulsar's, which `expose` refuses, or "
            "requests that were refused because they had waited for too long (`limits.waitMillis`).",
            Query(rate(Sidecar.requests, "kind"), "{{kind}}"),
            Query(rate(Sidecar.shed, "protocol"), "refused after waiting, {{protocol}}"),
        ),
        lines(
            "Connections, requests in flight and tasks",
            "short",
            "If requests in flight grow while their rate does not, brokers are slow: see below. At "
            "`limits.inFlight` and `limits.connections`, further requests and connections get 503. Tasks of "
            "the event loop follow them; tasks that grow alone are a fault of the sidecar.",
            Query(total(shown(Sidecar.connections), "protocol"), "connections, {{protocol}}"),
            Query(total(shown(Sidecar.in_flight), "protocol"), "in flight, {{protocol}}"),
            Query(f"sum({shown(Sidecar.asyncio_tasks)})", "tasks"),
        ),
        lines(
            "Latency by kind, p99",
            "s",
            "Time from a request's head to the end of its answer. Some admin calls are slow by nature; "
            "lookups should not be.",
            Query(quantile(0.99, Sidecar.duration, *BY_KIND), "{{kind}}"),
        ),
        lines(
            "CPU",
            "percentunit",
            "Share of one core. Above 80 %, requests begin to queue: run more sidecars, they share nothing.",
            Query(f"rate({shown(Around.cpu)}[$__rate_interval])", "{{instance}}"),
            steps=[(None, GREEN), (0.8, RED)],
            span=6,
        ),
        lines(
            "Event loop lag",
            "s",
            "How long ready work waits for its turn. Milliseconds are good. High lag with high CPU: run "
            "more sidecars. High lag with low CPU: the CPU limit throttles the container, so raise it; or "
            "another process on the node uses the CPU.",
            Query(quantile(0.5, Sidecar.loop_lag), "p50"),
            Query(quantile(0.99, Sidecar.loop_lag), "p99"),
            steps=[(None, GREEN), (0.1, ORANGE)],
            span=6,
        ),
        lines(
            "Memory",
            "bytes",
            "Resident memory, and the bytes held for requests and answers. At `limits.bufferBytes`, "
            "further requests get 503. `check` prints the maximum that a config allows.",
            Query(shown(Around.memory), "resident, {{instance}}"),
            Query(shown(Sidecar.buffered), "for requests and answers, {{instance}}"),
            span=6,
        ),
        lines(
            "File descriptors",
            "percentunit",
            "Share of the file descriptor limit in use. Near 100 %, connections are reset, including "
            "those of probes: raise the container's limit.",
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
            "Time from the first byte sent to a broker to the head of its answer. If p99 grows and p50 "
            "does not, one broker is slow.",
            Query(quantile(0.5, Sidecar.upstream_duration, *BY_KIND), "p50 {{kind}}"),
            Query(quantile(0.99, Sidecar.upstream_duration, *BY_KIND), "p99 {{kind}}"),
            span=6,
        ),
        lines(
            "Where the time goes",
            "s",
            "Mean times of all requests. The difference is the sidecar's own time and the client's "
            "sending and reading.",
            Query(mean(Sidecar.duration), "total"),
            Query(mean(Sidecar.upstream_duration), "broker"),
            colours={"total": BLUE, "broker": ORANGE},
            span=6,
        ),
        stacked(
            "Upstream errors",
            "cps",
            "Broker failures. `broker-unreachable`: run `doctor --config FILE` in this pod. "
            "`broker-timeout`: check the broker. `bad-answer`: check what listens there. See "
            "docs/runbooks/upstream-errors.md.",
            Query(rate(Sidecar.upstream_errors, "reason"), "{{reason}}"),
            span=6,
        ),
        stacked(
            "Unknown commands",
            "cps",
            "Commands of the binary protocol that passed unread, by type. Their senders are newer than this "
            "sidecar, and addresses in them are not rewritten: upgrade the sidecar.",
            Query(rate(Sidecar.unknown_commands, "sender", "type"), "{{sender}} {{type}}"),
            span=6,
        ),
    ]


def _config() -> Sequence[Panel]:
    return [
        stacked(
            "Reloads",
            "short",
            "Config reloads. After a failure the old config stays in force. Fix the file before the next "
            "restart, which would fail. See docs/runbooks/reload-failed.md.",
            Query(total(f"increase({shown(Sidecar.reloads)}[$__rate_interval])", "result"), "{{result}}"),
            colours={"success": GREEN, "failure": RED},
            bars=True,
            span=6,
        ),
        lines(
            "Generation",
            "short",
            "Each step is a change of the config or of discovery's results.",
            Query(shown(Sidecar.generation), "{{instance}}"),
            span=6,
        ),
        lines(
            "Certificates expire in",
            "s",
            "Time until the certificate that clients (`serve`) and brokers (`brokers`) are shown expires. It jumps up "
            "when a renewed file is loaded. If it falls steadily, renewal fails. See "
            "docs/runbooks/certificate-expiry.md.",
            Query(f"{shown(Sidecar.certificate_not_after)} - time()", "{{use}}, {{instance}}"),
            span=6,
        ),
        stacked(
            "Address book by source",
            "short",
            "Entries of the address book. A drop means that brokers or routes were removed from the "
            "cluster. `check` prints the address book.",
            Query(total(shown(Sidecar.book_entries), "source"), "{{source}}"),
            span=6,
        ),
        states(
            "Discovery",
            "Whether discovery is in sync with each kind of object. If it is stale, the sidecar does not "
            "see changes, and earlier results stay in force. See docs/runbooks/discovery-stale.md.",
            Query(f"min by (kind) ({shown(Sidecar.discovery_synced)})", "{{kind}}"),
            {"1": ("in sync", GREEN), "0": ("stale", RED)},
        ),
        stacked(
            "Watch restarts",
            "short",
            "`ended` is normal, every few minutes for each kind. `forbidden`: grant the permissions in "
            "deploy/rbac.yaml. `unreachable`: the API server or the brokers cannot be reached.",
            Query(counted(Sidecar.discovery_restarts, "kind", "reason"), "{{kind}} {{reason}}"),
            bars=True,
        ),
        lines(
            "Conflicts",
            "short",
            "Objects that contradict each other or are incomplete. `check --kubeconfig FILE` lists them. "
            "See docs/runbooks/discovery-conflicts.md.",
            Query(shown(Sidecar.discovery_conflicts), "{{instance}}"),
        ),
    ]


def _events() -> Sequence[Panel]:
    return [
        lines(
            "Events written",
            "cps",
            "One event per request, if `events.path` is set. If there are fewer than requests, some are lost.",
            Query(rate(Sidecar.events_written), "events"),
            span=12,
        ),
        stacked(
            "Events lost",
            "short",
            "`disk`: the disk is full, gone or read-only. `queue-full`: the disk is too slow. "
            "`retention`: written, and deleted "
            "to stay within `events.retainBytes`. See "
            "docs/runbooks/events-dropped.md.",
            Query(counted(Sidecar.events_dropped, "reason"), "{{reason}}"),
            bars=True,
            span=12,
        ),
    ]
