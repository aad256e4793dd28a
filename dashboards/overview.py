"""The overview: do clients get what they need, and if not, what is in the way? All sidecars together."""

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
from dashboards.promql import total
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
            "Lookups through all sidecars: who gets a listener, who does not and why, and where redirects lead.",
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
            "Lookups that have a listener. Below 99 %, see *Misses by reason*: each reason has its own cure.",
            Query(f"1 - {misses} / {lookups}"),
            steps=[(None, RED), (0.95, ORANGE), (0.99, GREEN)],
            decimals=2,
        ),
        number(
            "Lookups",
            "reqps",
            "Lookups a second. None at all: see that the gateway's route leads here.",
            Query(lookups),
        ),
        number(
            "Lookup p99",
            "s",
            "99 of 100 lookups were answered within this. High: see *Where the time goes*.",
            Query(quantile(0.99, Sidecar.duration, where=LOOKUPS)),
            steps=[(None, GREEN), (SECONDS, ORANGE), (4 * SECONDS, RED)],
        ),
        number(
            "Failed",
            "percentunit",
            "Answers with a status of 500 or more, brokers' and the sidecars' own. See *Requests by code*.",
            Query(f"({failed} or 0 * {answered}) / {answered}"),
            steps=[(None, GREEN), (0.01, ORANGE), (0.05, RED)],
            decimals=2,
        ),
        number(
            "Leaks",
            "short",
            "Answers in this time range with an address that is not on the listener: clients cannot reach it. "
            "Complete `advertisedListeners`; docs/runbooks/leak.md.",
            Query(or_none(counted(Sidecar.leaks, window=RANGE))),
            steps=NONE_IS_GOOD,
            decimals=0,
        ),
        number(
            "Unmapped redirects",
            "short",
            "Redirects in this time range that the address book has no answer to. Complete `advertisedListeners`; "
            "docs/runbooks/unmapped-redirects.md.",
            Query(or_none(counted(Sidecar.unmapped, window=RANGE))),
            steps=[(None, GREEN), (0.5, ORANGE)],
            decimals=0,
        ),
        number(
            "Sidecars",
            "short",
            "Sidecars that are scraped. Fewer than gateways: some are down; docs/runbooks/sidecar-down.md.",
            Query(f"count({shown(Sidecar.build_info)})"),
        ),
        number(
            "With an old config",
            "short",
            "Sidecars whose newest config is not in force: it is faulty. See the table below, then "
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
            "Every lookup is one or the other. Where misses grow with hits, a config is missing something; where they "
            "grow alone, somebody new is calling.",
            Query(rate(Sidecar.hits), "hits"),
            Query(rate(Sidecar.misses), "misses"),
            colours={"hits": GREEN, "misses": ORANGE},
        ),
        stacked(
            "Misses by reason",
            "reqps",
            "`no-rule`: add the host to an ingress. `unknown-listener`, `broker-lacks-listener`: "
            "docs/runbooks/unknown-listener.md. `not-allowed`, `client-named`: what a client asks for, and may not "
            "have. `overloaded`: docs/runbooks/overloaded.md.",
            Query(rate(Sidecar.misses, "reason"), "{{reason}}"),
        ),
        stacked(
            "Misses by ingress",
            "reqps",
            "Which door they come through; `none` is a host of no ingress, as scanners call. `explain` says what "
            "becomes of a URL, and why.",
            Query(
                f'label_replace({rate(Sidecar.misses, "ingress")}, "ingress", "none", "ingress", "")',
                "{{ingress}}",
            ),
        ),
        stacked(
            "Hits by ingress and listener",
            "reqps",
            "Which doors are used, and for which listener. A listener under a door where you do not expect it was "
            "named by clients: see `allowedListeners`.",
            Query(rate(Sidecar.hits, "ingress", "listener"), "{{ingress}} → {{listener}}"),
            span=12,
        ),
        stacked(
            "Hits by rule",
            "reqps",
            "What decided. `query` and `header` were named by clients; much `default` means hosts that no ingress has.",
            Query(rate(Sidecar.hits, "rule"), "{{rule}}"),
            span=12,
        ),
    ]


def _redirects() -> Sequence[Panel]:
    return [
        stacked(
            "Redirects by action",
            "reqps",
            "What became of brokers' redirects. `passed` reaches clients as brokers wrote it, `refused` is a 502: for "
            "both see docs/runbooks/unmapped-redirects.md.",
            Query(rate(Sidecar.redirects, "action"), "{{action}}"),
            colours=ACTIONS,
        ),
        stacked(
            "Unmapped redirects",
            "short",
            "Redirects to brokers that the address book does not have on the listener. `redirectFrom` of the events, "
            "or the log, names them; add those to `advertisedListeners`.",
            Query(counted(Sidecar.unmapped, "listener"), "{{listener}}"),
            bars=True,
        ),
        stacked(
            "Leaks",
            "short",
            "Addresses off the listener that were found in answers. `passed`: a client got it. `blocked`: it got a "
            "502. `observed`: `leaks: observe` lets them through. docs/runbooks/leak.md.",
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
            "From a lookup's head to the end of its answer, with what brokers take.",
            *(
                Query(quantile(share, Sidecar.duration, where=LOOKUPS), f"p{share * 100:.0f}")
                for share in (0.5, 0.95, 0.99)
            ),
            steps=[(None, GREEN), (SECONDS, ORANGE)],
        ),
        lines(
            "Where the time goes",
            "s",
            "Means of lookups. The difference is the sidecar's own, and the client's reading; if that grows, see its "
            "CPU. If both grow, brokers are slow.",
            Query(mean(Sidecar.duration, LOOKUPS), "in all"),
            Query(mean(Sidecar.upstream_duration, LOOKUPS), "broker"),
            colours={"in all": BLUE, "broker": ORANGE},
        ),
        lines(
            "Lookups in time",
            "percentunit",
            f"Lookups answered within {SECONDS} s; the objective is {OBJECTIVE:.0%}. Below it the error budget burns; "
            "docs/runbooks/lookup-latency.md.",
            Query(f"{within} / {every}", f"within {SECONDS} s"),
            steps=[(None, RED), (OBJECTIVE, GREEN)],
            most=1,
        ),
        stacked(
            "Requests by code",
            "reqps",
            "All that was answered. 499: the client did not wait. 502 and 504: see *Upstream errors*. 503: a broker's, "
            "or docs/runbooks/overloaded.md.",
            Query(rate(Sidecar.requests, "code"), "{{code}}"),
            span=12,
        ),
        stacked(
            "Upstream errors",
            "cps",
            "Failures of brokers, up to three a request, since the next broker is tried. Run `doctor` beside a "
            "sidecar: it says which broker cannot be reached; docs/runbooks/upstream-errors.md.",
            Query(rate(Sidecar.upstream_errors, "reason"), "{{reason}}"),
            span=12,
        ),
    ]


def _sidecars() -> Sequence[Panel]:
    def each(metric: str, *by: str, of: str = "max") -> Query:
        return Query(f"{of} by ({', '.join(('job', 'instance', *by))}) ({metric})")

    columns: Mapping[str, Query] = {
        "": each(shown(Sidecar.build_info), "version", "cluster"),
        "Config": each(shown(Sidecar.last_reload)),
        "Generation": each(shown(Sidecar.generation)),
        "Addresses": each(shown(Sidecar.book_entries), of="sum"),
        "Conflicts": each(shown(Sidecar.discovery_conflicts)),
        "Not synced": each(f"({shown(Sidecar.discovery_synced)} == bool 0)", of="sum"),
        "Connections": each(shown(Sidecar.connections), of="sum"),
    }
    this = f"/d/{uids.SIDECAR}?var-instance=${{__value.text}}&${{datasource:queryparam}}&${{job:queryparam}}"
    return [
        rows(
            "Sidecars",
            "One line a sidecar. A generation counts the snapshots of one sidecar since it started: sidecars that "
            "started apart differ, one that stands still while others go on does not hear of changes. No generation: "
            "it holds, and answers 503; docs/runbooks/not-ready.md.",
            {"instance": "Instance", "job": "Job", "version": "Version", "cluster": "Cluster"},
            columns,
            {
                "Instance": leading_to("This sidecar", this),
                "Config": in_words({"1": ("in force", GREEN), "0": ("faulty", RED)}),
            },
            span=16,
        ),
        lines(
            "Generations",
            "short",
            "Snapshots since each sidecar started. A steep line: objects in the cluster keep changing, or contradict "
            "each other; `check --kubeconfig` lists conflicts.",
            Query(total(shown(Sidecar.generation), "instance"), "{{instance}}"),
        ),
    ]
