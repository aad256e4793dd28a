"""From tables to records. Arrow counts, and only bounded results become Python's."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from pulsar_ingress_pipeline.lake.reader import Lake
from pulsar_ingress_pipeline.report import records
from pulsar_ingress_pipeline.report.aggregation import (
    Names,
    cut,
    quantiles,
    rows_of,
    since_time,
    span_of,
    sums_by,
    top,
    total,
    with_place,
)
from pulsar_ingress_pipeline.report.records import Bins, Name, Report, Top
from pulsar_ingress_pipeline.report.scales import WINDOW, bins
from pulsar_ingress_pipeline.suggest import known_listeners, listener_for_new_hosts, unused_hosts, used_listeners
from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.observability.objectives import DAYS

_COLUMNS = 96
_INGRESSES, _LISTENERS, _BROKERS = 8, 8, 12
_OBJECTIVES = 20
_CLUSTERS = 9
_WORDS = 100
_HOPS = 10
_LEAST_LOOKUPS = 10
"""Of a generation: the ratio of fewer says nothing."""
_LEAST_CHANGE = 0.001
_NAMED = ("not-allowed", "unknown-listener", "client-named")
"""Misses for the sake of a name that the client sent."""

_TEXT, _COUNT, _NUMBER, _TIME = pa.string(), pa.int64(), pa.float64(), pa.timestamp("us", tz="UTC")


def _schema(texts: str = "", counts: str = "", numbers: str = "", times: str = "", **others: pa.DataType) -> pa.Schema:
    kinds = ((texts, _TEXT), (counts, _COUNT), (numbers, _NUMBER), (times, _TIME))
    return pa.schema({name: kind for names, kind in kinds for name in names.split()} | others)


_SEEN = "first_seen last_seen"
_USED = {
    "flows": _schema("cluster kind ingress listener broker", "requests hits", times="window_start"),
    "quarantine": _schema("reason"),
    "listener_windows": _schema("ingress listener", "hits misses", times="window_start"),
    "misses": _schema("ingress host reason protocol", "misses", times=_SEEN),
    "named_misses": _schema("ingress host reason listener", "misses", times=_SEEN),
    "namespaces": _schema("tenant namespace", "lookups hits misses redirects"),
    "latency_windows": _schema("ingress kind", numbers="p95_ms", times="window_start"),
    "unmapped_addresses": _schema("listener address", "redirects", times=_SEEN),
    "owner_changes": _schema("topic", "lookups changes brokers"),
    "client_named": _schema("user_agent tenant listener", "lookups"),
    "latency_buckets": _schema("ingress kind", "requests", "bucket", "window_start"),
    "redirect_hops": _schema("kind action", "hops requests", times="window_start"),
    "redirect_loops": _schema("listener topic followed_by", "loops", times=_SEEN, brokers=pa.list_(_TEXT)),
    "leaks": _schema("ingress listener found_in address user_agent", "leaks", times=_SEEN),
    "drift": _schema("host state ingress", "requests lookups", times=_SEEN),
    "slo_days": _schema("ingress", "period_lookups period_good", "budget_left", date=pa.date32()),
    "generations": _schema("sidecar", "generation lookups hits", "hit_ratio_change", _SEEN),
    "anomalies": _schema("ingress what", "days", "value usual score", "window_start"),
}
"""The columns that a report reads."""


def gather(lake: Lake, days: int | None, made: datetime, config: Config | None = None) -> Report:
    """`days` are counted back from the newest window that can be; None is all there is."""
    absent = tuple(name for name in _USED if not lake.has(name))
    if len(absent) == len(_USED):
        lake.check()

    def table(name: str) -> pa.Table:
        """A table that is not there has no rows."""
        schema = _USED[name]
        return schema.empty_table() if name in absent else lake.table(name, schema.names)

    windows, latencies, buckets = table("listener_windows"), table("latency_windows"), table("latency_buckets")
    windows = windows.append_column("lookups", pc.add(windows.column("hits"), windows.column("misses")))
    unmapped, owners, quarantined = table("unmapped_addresses"), table("owner_changes"), table("quarantine")
    moved = owners.filter(pc.greater(owners.column("changes"), 0))
    first, last = _period(windows, latencies, made)
    start = first if days is None or first is None or last is None else max(first, last + WINDOW - timedelta(days=days))
    since = None if start == first else start
    columns = None if start is None or last is None else bins(start, last, _COLUMNS)
    ingresses = Names.most_used(windows, "ingress", "lookups", _INGRESSES)
    flows = since_time(table("flows"), since, "window_start")
    used = used_listeners(windows)
    numbers = None if last is None else records.Numbers(
        lake.url, made, last, total(windows, "lookups"), total(windows, "hits"), total(unmapped, "redirects"),
        total(moved, "changes"), quarantined.num_rows,
    )  # fmt: skip
    return Report(
        tables=lake.url,
        made=made,
        days=days,
        absent=absent,
        clusters=_clusters(flows),
        numbers=numbers,
        bins=columns,
        hits=() if columns is None else _hits(windows, columns, ingresses),
        latency=() if columns is None else _latency(buckets, latencies, columns, None),
        latency_by_ingress=() if columns is None else _latency(buckets, latencies, columns, ingresses),
        flows=_flows(flows),
        redirects=_redirects(table("redirect_hops"), since),
        leaks=_leaks(table("leaks"), since),
        loops=_loops(table("redirect_loops"), since),
        objectives=_objectives(table("slo_days")),
        strays=_strays(table("drift"), since),
        unused=_unused(lake, config),
        listener=listener_for_new_hosts(used, config),
        known_listeners=known_listeners(used, config),
        generations=_generations(table("generations"), since),
        anomalies=_anomalies(table("anomalies"), since),
        misses=_misses(table("misses"), table("named_misses"), since),
        unmapped=_unmapped(unmapped, since),
        owners=top(moved, "changes", records.Owner, ("topic", "lookups", "changes", "brokers")),
        topics=owners.num_rows,
        moved=_moved(moved),
        namers=top(table("client_named"), "lookups", records.Namer, ("user_agent", "tenant", "listener", "lookups")),
        namespaces=_namespaces(table("namespaces")),
        quarantine=_quarantine(quarantined),
    )


def _period(windows: pa.Table, latencies: pa.Table, made: datetime) -> tuple[datetime | None, datetime | None]:
    """The first and the last window; of a clock that is ahead, only what is not in the future."""
    first, last = span_of(windows, latencies)
    if first is not None and last is not None and first < made < last:
        return first, made
    return first, last


def _unused(lake: Lake, config: Config | None) -> tuple[tuple[str, str], ...] | None:
    found = None if config is None else unused_hosts(lake, config)
    return None if found is None else tuple((row.ingress, row.host) for row in found)


def _clusters(flows: pa.Table) -> tuple[str, ...]:
    names = sorted(name for name in pc.unique(flows.column("cluster")).to_pylist() if name is not None)
    return tuple(name[:80] for name in names[:_CLUSTERS])


def _flows(flows: pa.Table) -> tuple[records.Flow, ...]:
    lookups = flows.filter(pc.equal(flows.column("kind"), "lookup"))
    keys = {"ingress": _INGRESSES, "listener": _LISTENERS, "broker": _BROKERS}
    names = [Names.most_used(lookups, column, "requests", most) for column, most in keys.items()]
    sums: dict[tuple[Name, Name, Name, bool], int] = defaultdict(int)
    for *ends, requests, hits in sums_by(lookups, [*keys], ["requests", "hits"]):
        ingress, listener, broker = (shown.of(end) for shown, end in zip(names, ends, strict=True))
        sums[ingress, listener, broker, True] += hits
        sums[ingress, listener, broker, False] += requests - hits
    found = [records.Flow(*way, count) for way, count in sums.items() if count]
    return tuple(
        sorted(found, key=lambda flow: (-flow.lookups, *map(_nulls_first, (flow.ingress, flow.listener, flow.broker))))
    )


def _hits(windows: pa.Table, columns: Bins, ingresses: Names) -> tuple[records.Hits, ...]:
    sums: dict[tuple[int, Name], tuple[int, int]] = {}
    for place, ingress, hits, misses in sums_by(with_place(windows, columns), ["place", "ingress"], ["hits", "misses"]):
        key = place, ingresses.of(ingress)
        found, missed = sums.get(key, (0, 0))
        sums[key] = found + hits, missed + misses
    ordered = sorted(sums.items(), key=lambda item: _by_place(*item[0]))
    return tuple(records.Hits(place, ingress, *counts) for (place, ingress), counts in ordered)


def _latency(
    buckets: pa.Table, windows: pa.Table, columns: Bins, ingresses: Names | None
) -> tuple[records.Latency, ...]:
    """Quantiles of all lookups in a column, from the buckets; and of its worst five minutes."""
    keys = ["place", "ingress"] if ingresses is not None else ["place"]

    def key_of(place: int, ingress: str | None = None) -> tuple[int, Name]:
        return place, None if ingresses is None else ingresses.of(ingress)

    worst: dict[tuple[int, Name], float] = {}
    slowest = _lookups(windows, "p95_ms", columns).group_by(keys).aggregate([("p95_ms", "max")])
    for *group, p95 in rows_of(slowest, [*keys, "p95_ms_max"]):
        worst[key_of(*group)] = max(p95, worst.get(key_of(*group), 0.0))
    histograms: dict[tuple[int, Name], list[tuple[float, int]]] = defaultdict(list)
    for *group, bound, count in sums_by(_lookups(buckets, "bucket", columns), [*keys, "bucket"], ["requests"]):
        histograms[key_of(*group)].append((bound, count))
    found = []
    for (place, ingress), histogram in sorted(histograms.items(), key=lambda item: _by_place(*item[0])):
        histogram.sort()
        counts = np.array([count for _, count in histogram])
        p50, p95, p99 = quantiles(np.array([bound for bound, _ in histogram]), counts)
        found.append(
            records.Latency(place, ingress, int(counts.sum()), p50, p95, p99, worst.get((place, ingress), p95))
        )
    return tuple(found)


def _lookups(table: pa.Table, known: str, columns: Bins) -> pa.Table:
    is_counted = pc.and_(pc.equal(table.column("kind"), "lookup"), pc.is_valid(table.column(known)))
    return with_place(table.filter(is_counted), columns)


def _redirects(hops: pa.Table, since: datetime | None) -> tuple[records.Redirects, ...]:
    sums: dict[tuple[str | None, str | None, int], int] = defaultdict(int)
    for kind, action, count, requests in sums_by(
        since_time(hops, since, "window_start"), ["kind", "action", "hops"], ["requests"]
    ):
        sums[kind, action, min(count or 0, _HOPS)] += requests
    found = [records.Redirects(*key, requests) for key, requests in sums.items()]
    found.sort(key=lambda row: (-row.requests, _nulls_first(row.kind), _nulls_first(row.action), row.hops))
    return tuple(found[:_WORDS])


def _leaks(leaks: pa.Table, since: datetime | None) -> Top[records.Leak]:
    keys = ("ingress", "listener", "found_in", "address", "user_agent")
    return top(since_time(leaks, since), "leaks", records.Leak, (*keys, "leaks", "first_seen", "last_seen"))


def _loops(loops: pa.Table, since: datetime | None) -> Top[records.Loop]:
    columns = ("listener", "topic", "followed_by", "brokers", "loops", "first_seen", "last_seen")
    found = top(since_time(loops, since), "loops", records.Loop, columns)
    return replace(found, rows=tuple(replace(loop, brokers=tuple(loop.brokers)) for loop in found.rows))


def _objectives(days: pa.Table) -> tuple[records.Objective, ...]:
    """Each ingress on its last day, if the period that ends with the newest day has it."""
    newest = pc.max(days.column("date")).as_py()
    if newest is None:
        return ()
    period = days.filter(pc.greater(days.column("date"), pa.scalar(newest - timedelta(days=DAYS), pa.date32())))
    last = {
        ingress: records.Objective(cut(ingress), *rest)
        for _, ingress, *rest in sorted(
            rows_of(period, ["date", "ingress", "period_lookups", "period_good", "budget_left"]), key=lambda row: row[0]
        )
    }
    ordered = sorted(last.values(), key=lambda row: (-row.lookups, _nulls_first(row.ingress)))
    return tuple(ordered[:_OBJECTIVES])


def _strays(drift: pa.Table, since: datetime | None) -> Top[records.Stray]:
    columns = ("host", "state", "ingress", "requests", "lookups", "first_seen", "last_seen")
    return top(since_time(drift, since), "requests", records.Stray, columns)


def _generations(generations: pa.Table, since: datetime | None) -> Top[records.Generation]:
    """Those that changed the ratio, by how many lookups that concerned."""
    recent = since_time(generations, since)
    change = pc.abs(recent.column("hit_ratio_change"))
    concerned = recent.append_column("concerned", pc.multiply(change, recent.column("lookups")))
    enough = pc.greater_equal(recent.column("lookups"), _LEAST_LOOKUPS)
    changed = concerned.filter(pc.and_(enough, pc.greater_equal(change, _LEAST_CHANGE)))
    columns = ("sidecar", "generation", "first_seen", "lookups", "hits", "hit_ratio_change")
    return top(changed, "concerned", records.Generation, columns)


def _anomalies(anomalies: pa.Table, since: datetime | None) -> Top[records.Anomaly]:
    columns = ("window_start", "ingress", "what", "value", "usual", "days", "score")
    recent = since_time(anomalies, since, "window_start")
    return top(recent.append_column("off", pc.abs(recent.column("score"))), "off", records.Anomaly, columns)


def _misses(misses: pa.Table, named: pa.Table, since: datetime | None) -> Top[records.Miss]:
    """With the names that clients sent, where a name is the reason."""
    columns = ("ingress", "host", "reason", "protocol", "misses", "first_seen", "last_seen")
    most = top(since_time(misses, since), "misses", records.Miss, columns)
    names = _names_sent(since_time(named, since), {miss.host for miss in most.rows if miss.reason in _NAMED})
    rows = tuple(replace(miss, named=names.get((miss.ingress, miss.host, miss.reason))) for miss in most.rows)
    return replace(most, rows=rows)


def _names_sent(named: pa.Table, hosts: Iterable[str | None]) -> dict[tuple[str | None, ...], str]:
    """The name that most lookups sent, for the ingress, host and reason of a miss."""
    at_hosts = named.filter(pc.is_in(named.column("host"), value_set=pa.array(list(hosts), _TEXT)))
    rows = rows_of(at_hosts, ["ingress", "host", "reason", "misses", "listener"])
    names: dict[tuple[str | None, ...], str] = {}
    for ingress, host, reason, _, listener in sorted(rows, key=lambda row: (-row[3], row[4])):
        names.setdefault((ingress, host, reason), listener)
    return names


def _unmapped(unmapped: pa.Table, since: datetime | None) -> Top[records.Unmapped]:
    columns = ("listener", "address", "redirects", "first_seen", "last_seen")
    return top(since_time(unmapped, since), "redirects", records.Unmapped, columns)


def _moved(owners: pa.Table) -> tuple[records.Moved, ...]:
    """Namespaces whose topics changed hands: bundles move, and events do not name them."""
    found = pc.extract_regex(owners.column("topic"), "^[a-z-]+://(?P<namespace>[^/]+/[^/]+)/")
    spaces = owners.append_column("namespace", pc.struct_field(found, "namespace"))
    sums = spaces.group_by("namespace").aggregate([("changes", "sum"), ([], "count_all")])
    return top(sums, "changes_sum", records.Moved, ("namespace", "count_all", "changes_sum")).rows


def _namespaces(days: pa.Table) -> Top[records.Namespace]:
    measures = ("lookups", "hits", "misses", "redirects")
    sums = days.group_by(["tenant", "namespace"]).aggregate([(measure, "sum") for measure in measures])
    return top(
        sums, "lookups_sum", records.Namespace, ("tenant", "namespace", "hits_sum", "misses_sum", "redirects_sum")
    )


def _quarantine(lines: pa.Table) -> Top[records.Counted]:
    counted = lines.group_by("reason").aggregate([([], "count_all")])
    return top(counted, "count_all", records.Counted, ("reason", "count_all"))


def _by_place(place: int, ingress: Name) -> tuple[int, tuple[int, str]]:
    return place, _nulls_first(ingress)


def _nulls_first(name: Name) -> tuple[int, str]:
    return (1, name) if isinstance(name, str) else (0, "")
