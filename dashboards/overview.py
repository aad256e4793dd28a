"""The overview: whether the clients of all sidecars get usable answers, and if not, why."""

from collections.abc import Mapping, Sequence

from dashboards import uids
from dashboards.boards import board, link, text
from dashboards.panels import (
    BLUE,
    GREEN,
    ORANGE,
    RED,
    Panel,
    in_words,
    leading_to,
    lines,
    number,
    rows,
    stacked,
)
from dashboards.promql import TARGET, total
from dashboards.queries import Query, counted, mean, or_none, quantile, rate, shown
from pulsar_ingress_proxy.observability.catalogue import Sidecar
from pulsar_ingress_proxy.observability.objectives import OBJECTIVE, SECONDS

LOOKUPS = ('kind="lookup"',)
RANGE = "$__range"
NONE_IS_GOOD = [(None, GREEN), (0.5, RED)]

ACTIONS = {"rewritten": GREEN, "followed": BLUE, "kept": "light-green", "passed": ORANGE, "refused": RED}


def overview() -> str:
    return text(
        board(
            "Pulsar ingress / Overview",
            uids.OVERVIEW,
            "Lookups through all sidecars: which get a listener, which do not and why, and where redirects lead.",
            {
                "Do clients get what they need?": _now(),
                "Lookups": _lookups(),
                "Redirects and addresses": _redirects(),
                "Latency and errors": _latency(),
                "Sidecars": _sidecars(),
            },
            of=Sidecar.build_info,
            of_all=True,
            links=[link("Sidecar", uids.SIDECAR, "job"), link("Pipeline", uids.PIPELINE)],
        )
    )


def _now() -> Sequence[Panel]:
    lookups = rate(Sidecar.requests, where=LOOKUPS)
    misses = f"({rate(Sidecar.misses)} or 0 * {lookups})"
    failed = rate(Sidecar.requests, where=('code=~"5.."',))
    answered = rate(Sidecar.requests)
    return [
        number(
            "Hit ratio",
            "percentunit",
            "Share of lookups that got a listener. Below 99 %, see *Misses by reason*.",
            Query(f"1 - {misses} / {lookups}"),
            steps=[(None, RED), (0.95, ORANGE), (0.99, GREEN)],
            decimals=2,
        ),
        number(
            "Lookups",
            "reqps",
            "Lookups per second. If there are none, check that the gateway's route leads to the sidecar.",
            Query(lookups),
        ),
        number(
            "Lookup p99",
            "s",
            "99 % of lookups were answered within this time. If it is high, see *Where the time goes*.",
            Query(quantile(0.99, Sidecar.duration, where=LOOKUPS)),
            steps=[(None, GREEN), (SECONDS, ORANGE), (4 * SECONDS, RED)],
        ),
        number(
            "Failed requests",
            "percentunit",
            "Share of answers with a status of 500 or more, from brokers or from sidecars. See *Requests by code*.",
            Query(f"({failed} or 0 * {answered}) / {answered}"),
            steps=[(None, GREEN), (0.01, ORANGE), (0.05, RED)],
            decimals=2,
        ),
        number(
            "Leaks",
            "short",
            "Answers in this time range with an address that is not on the listener, so clients cannot "
            "reach it. Add the missing addresses to `advertisedListeners`. See docs/runbooks/leak.md.",
            Query(or_none(counted(Sidecar.leaks, window=RANGE))),
            steps=NONE_IS_GOOD,
            decimals=0,
        ),
        number(
            "Unmapped redirects",
            "short",
            "Redirects in this time range that the address book could not map. Add the missing brokers to "
            "`advertisedListeners`. See docs/runbooks/unmapped-redirects.md.",
            Query(or_none(counted(Sidecar.unmapped, window=RANGE))),
            steps=[(None, GREEN), (0.5, ORANGE)],
            decimals=0,
        ),
        number(
            "Sidecars",
            "short",
            "Sidecars that Prometheus scrapes. If there are fewer than gateway pods, some are down. See "
            "docs/runbooks/sidecar-down.md.",
            Query(f"count({shown(Sidecar.build_info)})"),
        ),
        number(
            "Sidecars with an old config",
            "short",
            "Sidecars whose newest config is invalid and not in force. See the table *Sidecars* below and "
            "docs/runbooks/reload-failed.md.",
            Query(f"sum({shown(Sidecar.last_reload)} == bool 0)"),
            steps=NONE_IS_GOOD,
        ),
    ]


def _lookups() -> Sequence[Panel]:
    return [
        stacked(
            "Hits and misses",
            "reqps",
            "Every lookup is either a hit or a miss. If misses grow with hits, something is missing in a "
            "config. If they grow alone, there are new callers.",
            Query(rate(Sidecar.hits), "hits"),
            Query(rate(Sidecar.misses), "misses"),
            colours={"hits": GREEN, "misses": ORANGE},
        ),
        stacked(
            "Misses by reason",
            "reqps",
            "`no-rule`: add the host to an ingress. `unknown-listener`, `broker-lacks-listener`: see "
            "docs/runbooks/unknown-listener.md. `not-allowed`, `client-named`: the client named a "
            "listener that it may not use. `overloaded`: see docs/runbooks/overloaded.md.",
            Query(rate(Sidecar.misses, "reason"), "{{reason}}"),
        ),
        stacked(
            "Misses by ingress",
            "reqps",
            "The ingress that the misses came through. `none` is a host of no ingress, as scanners use. "
            "`explain` shows what happens to a URL, and why.",
            Query(
                f'label_replace({rate(Sidecar.misses, "ingress")}, "ingress", "none", "ingress", "")',
                "{{ingress}}",
            ),
        ),
        stacked(
            "Hits by ingress and listener",
            "reqps",
            "Ingresses in use, and their listeners. If a listener is unexpected for an ingress, clients "
            "named it. See `allowedListeners`.",
            Query(rate(Sidecar.hits, "ingress", "listener"), "{{ingress}} → {{listener}}"),
            span=12,
        ),
        stacked(
            "Hits by rule",
            "reqps",
            "The rule that selected the listener. With `query` and `header`, clients named it. Much "
            "`default` means that hosts are missing in `ingresses`.",
            Query(rate(Sidecar.hits, "rule"), "{{rule}}"),
            span=12,
        ),
    ]


def _redirects() -> Sequence[Panel]:
    return [
        stacked(
            "Redirects by action",
            "reqps",
            "What sidecars did with redirects from brokers. `passed`: the client got it unchanged. "
            "`refused`: the client got a 502. For both, see docs/runbooks/unmapped-redirects.md.",
            Query(rate(Sidecar.redirects, "action"), "{{action}}"),
            colours=ACTIONS,
        ),
        stacked(
            "Unmapped redirects",
            "short",
            "Redirects to brokers that have no address on the listener. The log and the field "
            "`redirectFrom` of events name them. Add them to `advertisedListeners`.",
            Query(counted(Sidecar.unmapped, "listener"), "{{listener}}"),
            bars=True,
        ),
        stacked(
            "Leaks",
            "short",
            "Answers with an address that is not on the listener. `passed`: a client got it. `blocked`: "
            "the client got a 502. `observed`: `leaks: observe` let it through. See "
            "docs/runbooks/leak.md.",
            Query(counted(Sidecar.leaks, "listener", "where", "action"), "{{listener}} {{where}} {{action}}"),
            bars=True,
        ),
    ]


def _latency() -> Sequence[Panel]:
    within = rate(Sidecar.duration.part("bucket"), where=(*LOOKUPS, f'le="{SECONDS}"'))
    every = rate(Sidecar.duration.part("count"), where=LOOKUPS)
    return [
        lines(
            "Lookup latency",
            "s",
            "Time from a lookup's head to the end of its answer, including the brokers' time.",
            *(
                Query(quantile(share, Sidecar.duration, where=LOOKUPS), f"p{share * 100:.0f}")
                for share in (0.5, 0.95, 0.99)
            ),
            steps=[(None, GREEN), (SECONDS, ORANGE)],
        ),
        lines(
            "Where the time goes",
            "s",
            "Mean times of lookups. The difference is the sidecar's own time and the client's reading. If "
            "only the total grows, check the sidecar's CPU. If both grow, brokers are slow.",
            Query(mean(Sidecar.duration, LOOKUPS), "total"),
            Query(mean(Sidecar.upstream_duration, LOOKUPS), "broker"),
            colours={"total": BLUE, "broker": ORANGE},
        ),
        lines(
            "Lookups within the objective",
            "percentunit",
            f"Share of lookups answered within {SECONDS} s. The objective is {OBJECTIVE:.0%}; below it, "
            "the error budget burns. See docs/runbooks/lookup-latency.md.",
            Query(f"{within} / {every}", f"within {SECONDS} s"),
            steps=[(None, RED), (OBJECTIVE, GREEN)],
            most=1,
        ),
        stacked(
            "Requests by code",
            "reqps",
            "All answers. 499: the client did not wait. 502 and 504: see *Upstream errors*. 503: from a "
            "broker, or see docs/runbooks/overloaded.md.",
            Query(rate(Sidecar.requests, "code"), "{{code}}"),
            span=12,
        ),
        stacked(
            "Upstream errors",
            "cps",
            "Broker failures, up to three per request, because the next broker is tried. Run `doctor` "
            "beside a sidecar to find the broker that cannot be reached. See "
            "docs/runbooks/upstream-errors.md.",
            Query(rate(Sidecar.upstream_errors, "reason"), "{{reason}}"),
            span=12,
        ),
    ]


def _sidecars() -> Sequence[Panel]:
    def each(metric: str, *by: str, of: str = "max") -> Query:
        return Query(f"{of} by ({', '.join((*TARGET, *by))}) ({metric})")

    columns: Mapping[str, Query] = {
        "": each(shown(Sidecar.build_info), "version", "pulsar_cluster"),
        "Config": each(shown(Sidecar.last_reload)),
        "Generation": each(shown(Sidecar.generation)),
        "Addresses": each(shown(Sidecar.book_entries), of="sum"),
        "Conflicts": each(shown(Sidecar.discovery_conflicts)),
        "Not synced": each(f"({shown(Sidecar.discovery_synced)} == bool 0)", of="sum"),
        "Connections": each(shown(Sidecar.connections), of="sum"),
    }
    chosen = "&".join(f"${{{name}:queryparam}}" for name in ("datasource", "cluster", "namespace", "job"))
    this = f"/d/{uids.SIDECAR}?var-instance=${{__value.text}}&{chosen}"
    return [
        rows(
            "Sidecars",
            "One row per sidecar. The generation counts a sidecar's snapshots since its start, so it "
            "differs between sidecars. If it stands still while others increase, the sidecar does not see "
            "changes. Without a generation, the sidecar has no valid config and answers 503. See "
            "docs/runbooks/not-ready.md.",
            {
                "instance": "Instance",
                "job": "Job",
                "namespace": "Namespace",
                "cluster": "Cluster",
                "version": "Version",
                "pulsar_cluster": "Pulsar cluster",
            },
            columns,
            {
                "Instance": leading_to("This sidecar", this),
                "Config": in_words({"1": ("in force", GREEN), "0": ("invalid", RED)}),
            },
            span=16,
        ),
        lines(
            "Generations",
            "short",
            "Snapshots since the start of each sidecar. A steep line means that objects in the cluster "
            "keep changing or contradict each other. `check --kubeconfig` lists conflicts.",
            Query(total(shown(Sidecar.generation), "instance"), "{{instance}}"),
        ),
    ]
