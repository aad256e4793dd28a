"""Reads the tables into the records of a report. Arrow counts; only results of bounded size become Python objects."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from pulsar_ingress_pipeline.lake.catalog import Lake
from pulsar_ingress_pipeline.report.records import WINDOW, Bins, Flow, Hits, Latency, Name, Numbers, Others, Report, Top
from pulsar_ingress_pipeline.suggest import known_listeners, listener_for_new_hosts, unused_hosts, used_listeners
from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.observability.objectives import DAYS

_COLUMNS = 96
_INGRESSES, _LISTENERS, _BROKERS = 8, 8, 12
_OBJECTIVES = 20
_CLUSTERS = 9
_HOPS = 10
_BY_NAMESPACE = ("lookups", "hits", "misses", "redirects")
_LEAST_LOOKUPS = 10
"""Lookups of a generation; a ratio of fewer means nothing."""
_LEAST_CHANGE = 0.001

KEPT = 100
"""Rows of a ranking."""
ERROR = 0.01
"""The largest relative error of a duration that is known by its bucket."""
_LONGEST = 256
"""Characters of a name: some come from clients."""
_END = (datetime(9900, 1, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
# The middle of a bucket, relative to its upper bound in the table `latency_buckets`.
_MIDDLE = 2 / ((1 + ERROR) / (1 - ERROR) + 1)

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


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a column that are shown, and the number of the others."""

    shown: tuple[str, ...]
    others: int

    @classmethod
    def most_used(cls, table: pa.Table, column: str, measure: str, most: int) -> "Names":
        """The names with the highest sums of a measure."""
        sums = sums_by(table, [column], [measure]).sort_by([(measure, "descending"), (column, "ascending")])
        names = sums.column(column).drop_null().to_pylist()
        return cls(tuple(names[:most]), len(names[most:]))

    def of(self, name: str | None) -> Name:
        return Others(self.others) if name is not None and name not in self.shown else name


def gather(lake: Lake, days: int | None, made: datetime, config: Config | None = None) -> Report:
    """`days` are counted back from the newest window that is not in the future; None means all."""
    absent = tuple(name for name in _USED if not lake.has(name))
    if len(absent) == len(_USED):
        lake.check()

    def table(name: str) -> pa.Table:
        """A missing table has no rows."""
        names = _USED[name].names
        found = _USED[name].empty_table() if name in absent else lake.table(name, names).select(names)
        return bounded(found)

    windows, latencies, buckets = table("listener_windows"), table("latency_windows"), table("latency_buckets")
    windows = windows.append_column("lookups", pc.add(windows.column("hits"), windows.column("misses")))
    unmapped, owners, quarantined = table("unmapped_addresses"), table("owner_changes"), table("quarantine")
    moved = owners.filter(pc.greater(owners.column("changes"), 0))
    numbers = columns = since = None
    if (span := span_of(windows, latencies)) is not None:
        first, last = span
        if first < made < last:  # a clock is ahead
            last = made
        start = first if days is None else max(first, last + WINDOW - timedelta(days=days))
        since = None if start == first else start
        columns = Bins.covering(start, last, _COLUMNS)
        numbers = Numbers(
            lake.url, made, last, total(windows, "lookups"), total(windows, "hits"), total(unmapped, "redirects"),
            total(moved, "changes"), quarantined.num_rows,
        )  # fmt: skip

    def recent(name: str) -> pa.Table:
        return since_time(table(name), since)

    ingresses = Names.most_used(windows, "ingress", "lookups", _INGRESSES)
    flows, anomalies = recent("flows"), recent("anomalies")
    used = used_listeners(windows)
    return Report(
        tables=lake.url,
        made=made,
        days=days,
        absent=absent,
        clusters=tuple(sorted(pc.unique(flows.column("cluster").drop_null()).to_pylist())[:_CLUSTERS]),
        numbers=numbers,
        bins=columns,
        hits=() if columns is None else _hits(windows, columns, ingresses),
        latency=() if columns is None else _latency(buckets, latencies, columns, None),
        latency_by_ingress=() if columns is None else _latency(buckets, latencies, columns, ingresses),
        flows=_flows(flows),
        redirects=_redirects(recent("redirect_hops")),
        leaks=top(recent("leaks"), "leaks"),
        loops=top(recent("redirect_loops"), "loops"),
        objectives=_objectives(table("slo_days")),
        strays=top(recent("drift"), "requests"),
        unused=None if config is None else unused_hosts(lake, config),
        listener=listener_for_new_hosts(used, config),
        known_listeners=known_listeners(used, config),
        generations=_generations(recent("generations")),
        anomalies=top(anomalies.append_column("off", pc.abs(anomalies.column("score"))), "off"),
        misses=_misses(recent("misses"), recent("named_misses")),
        unmapped=top(since_time(unmapped, since), "redirects"),
        owners=top(moved, "changes"),
        topics=owners.num_rows,
        moved=_moved(moved),
        namers=top(table("client_named"), "lookups"),
        namespaces=top(sums_by(table("namespaces"), ["tenant", "namespace"], _BY_NAMESPACE), "lookups"),
        quarantine=top(_counted(quarantined, "lines", ["reason"]), "lines"),
    )


def _flows(flows: pa.Table) -> tuple[Flow, ...]:
    lookups = flows.filter(pc.equal(flows.column("kind"), "lookup"))
    keys = {"ingress": _INGRESSES, "listener": _LISTENERS, "broker": _BROKERS}
    names = [Names.most_used(lookups, column, "requests", most) for column, most in keys.items()]
    sums: dict[tuple[Name, Name, Name, bool], int] = defaultdict(int)
    for *ends, requests, hits in rows_of(sums_by(lookups, [*keys], ["requests", "hits"])):
        ingress, listener, broker = (shown.of(end) for shown, end in zip(names, ends, strict=True))
        sums[ingress, listener, broker, True] += hits
        sums[ingress, listener, broker, False] += requests - hits
    found = [Flow(*way, count) for way, count in sums.items() if count]
    return tuple(
        sorted(found, key=lambda flow: (-flow.lookups, *map(_nulls_first, (flow.ingress, flow.listener, flow.broker))))
    )


def _hits(windows: pa.Table, columns: Bins, ingresses: Names) -> tuple[Hits, ...]:
    sums: dict[tuple[int, Name], tuple[int, int]] = {}
    placed = sums_by(with_place(windows, columns), ["place", "ingress"], ["hits", "misses"])
    for place, ingress, hits, misses in rows_of(placed):
        key = place, ingresses.of(ingress)
        found, missed = sums.get(key, (0, 0))
        sums[key] = found + hits, missed + misses
    return tuple(Hits(*key, *sums[key]) for key in sorted(sums, key=_by_place))


def _latency(buckets: pa.Table, windows: pa.Table, columns: Bins, ingresses: Names | None) -> tuple[Latency, ...]:
    """Quantiles of all lookups in a column, and of its worst five minutes."""
    keys = ["place", "ingress"] if ingresses is not None else ["place"]

    def key_of(place: int, ingress: str | None = None) -> tuple[int, Name]:
        return place, None if ingresses is None else ingresses.of(ingress)

    worst: dict[tuple[int, Name], float] = {}
    slowest = _lookups(windows, "p95_ms", columns).group_by(keys).aggregate([("p95_ms", "max")])
    for *group, p95 in rows_of(slowest.select([*keys, "p95_ms_max"])):
        worst[key_of(*group)] = max(p95, worst.get(key_of(*group), 0.0))
    histograms: dict[tuple[int, Name], list[tuple[float, int]]] = defaultdict(list)
    for *group, bound, count in rows_of(sums_by(_lookups(buckets, "bucket", columns), [*keys, "bucket"], ["requests"])):
        histograms[key_of(*group)].append((bound, count))
    found = []
    for key in sorted(histograms, key=_by_place):
        bounds, counts = (np.array(part) for part in zip(*sorted(histograms[key]), strict=True))
        p50, p95, p99 = quantiles(bounds, counts)
        found.append(Latency(*key, int(counts.sum()), p50, p95, p99, worst.get(key, p95)))
    return tuple(found)


def _lookups(table: pa.Table, known: str, columns: Bins) -> pa.Table:
    is_counted = pc.and_(pc.equal(table.column("kind"), "lookup"), pc.is_valid(table.column(known)))
    return with_place(table.filter(is_counted), columns)


def _redirects(redirects: pa.Table) -> Top:
    """By action and number of hops; the highest numbers are counted together."""
    hops = pc.min_element_wise(pc.fill_null(redirects.column("hops"), 0), _HOPS)
    bounded = redirects.drop_columns("hops").append_column("hops", hops)
    return top(sums_by(bounded, ["kind", "action", "hops"], ["requests"]), "requests")


def _objectives(days: pa.Table) -> Top:
    """The last day of each ingress that had lookups in the newest period."""
    newest = pc.max(days.column("date")).as_py()
    if newest is None:
        return Top()
    period = days.filter(pc.greater(days.column("date"), pa.scalar(newest - timedelta(days=DAYS), pa.date32())))
    last = {row["ingress"]: row for row in period.sort_by("date").to_pylist()}
    return top(pa.Table.from_pylist([*last.values()], days.schema), "period_lookups", _OBJECTIVES)


def _generations(generations: pa.Table) -> Top:
    """Generations that changed the hit ratio, by the number of lookups that this affected."""
    change = pc.abs(generations.column("hit_ratio_change"))
    affected = generations.append_column("affected", pc.multiply(change, generations.column("lookups")))
    enough = pc.greater_equal(generations.column("lookups"), _LEAST_LOOKUPS)
    return top(affected.filter(pc.and_(enough, pc.greater_equal(change, _LEAST_CHANGE))), "affected")


def _misses(misses: pa.Table, named: pa.Table) -> Top:
    """Misses, with the listener name that most of their lookups sent if the name is the reason."""
    most = top(misses, "misses")
    hosts = pa.array([miss["host"] for miss in most.rows], pa.string())
    at_hosts = named.filter(pc.is_in(named.column("host"), value_set=hosts))
    sent = at_hosts.sort_by([("misses", "descending"), ("listener", "ascending")])
    names: dict[tuple[str, ...], str] = {}
    for ingress, host, reason, listener, *_ in rows_of(sent):
        names.setdefault((ingress, host, reason), listener)
    rows = (miss | {"named": names.get((miss["ingress"], miss["host"], miss["reason"]))} for miss in most.rows)
    return replace(most, rows=tuple(rows))


def _moved(owners: pa.Table) -> Top:
    """Changes of owners by namespace. Brokers move bundles, but events do not name them."""
    found = pc.extract_regex(owners.column("topic"), "^[a-z-]+://(?P<namespace>[^/]+/[^/]+)/")
    spaces = owners.append_column("namespace", pc.struct_field(found, "namespace"))
    return top(_counted(spaces, "topics", ["namespace"], "changes"), "changes")


def _counted(table: pa.Table, name: str, keys: list[str], *measures: str) -> pa.Table:
    """Sums of measures, and the number of rows, for each group."""
    return sums_by(table.append_column(name, pa.array(np.ones(len(table), np.int64))), keys, [name, *measures])


def _by_place(key: tuple[int, Name]) -> tuple[int, tuple[int, str]]:
    return key[0], _nulls_first(key[1])


def _nulls_first(name: Name) -> tuple[int, str]:
    return (1, name) if isinstance(name, str) else (0, "")


def bounded(table: pa.Table) -> pa.Table:
    """Shorten long names, and limit times of wrong clocks to those that Python supports."""
    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type):
            micros = pc.max_element_wise(column.cast(_TIME).cast(pa.int64()), 0, skip_nulls=False)
            column = pc.min_element_wise(micros, _END, skip_nulls=False).cast(_TIME)
        elif pa.types.is_string(column.type):
            column = pc.utf8_slice_codeunits(column, 0, _LONGEST)
        columns.append(column)
    return pa.Table.from_arrays(columns, table.column_names)


def sums_by(table: pa.Table, keys: Sequence[str], measures: Sequence[str]) -> pa.Table:
    """Sums of measures for each group."""
    sums = table.group_by(list(keys)).aggregate([(measure, "sum") for measure in measures])
    return sums.select([*keys, *(f"{measure}_sum" for measure in measures)]).rename_columns([*keys, *measures])


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def top(table: pa.Table, measure: str, most: int = KEPT) -> Top:
    """The first rows by a measure, then by their other columns, null first."""
    keys = {"": table.column(measure)}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name != measure and not pa.types.is_list(column.type):
            keys |= {f"has {name}": pc.is_valid(column), name: column}
    order = [(key, "ascending" if key else "descending") for key in keys]
    first = table.take(pc.sort_indices(pa.table(keys), sort_keys=order)[:most])
    rows = tuple(dict(zip(table.column_names, row, strict=True)) for row in rows_of(first))
    return Top(rows, table.num_rows, total(table, measure))


def total(table: pa.Table, measure: str) -> int:
    return int(pc.sum(table.column(measure)).as_py() or 0)


def since_time(table: pa.Table, since: datetime | None) -> pa.Table:
    """Rows from a time on: by their window, or by when they were last seen."""
    column = "window_start" if "window_start" in table.column_names else "last_seen"
    return table if since is None else table.filter(pc.greater_equal(table.column(column), pa.scalar(since, _TIME)))


def with_place(table: pa.Table, columns: Bins) -> pa.Table:
    """The windows that the columns of a chart cover, with the number of the column as `place`."""
    times, start = table.column("window_start"), pa.scalar(columns.start, _TIME)
    end = pa.scalar(columns.time(columns.count), _TIME)
    covered = table.filter(pc.and_(pc.greater_equal(times, start), pc.less(times, end)))
    micros = pc.subtract(covered.column("window_start"), start).cast(pa.int64())
    return covered.append_column("place", pc.divide(micros, columns.step // timedelta(microseconds=1)))


def span_of(*tables: pa.Table) -> tuple[datetime, datetime] | None:
    """The first and the last window of the tables."""
    chunks = [chunk for table in tables for chunk in table.column("window_start").chunks]
    ends = pc.min_max(pa.chunked_array(chunks, _TIME)).as_py()
    return None if ends["min"] is None else (ends["min"], ends["max"])


def quantiles(bounds: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> tuple[float, float, float]:
    """p50, p95 and p99 of requests by the upper bounds of their buckets, which are in ascending order.

    They are interpolated linearly, like Spark's `percentile` with a frequency, which the tables use.
    """
    ends = np.cumsum(counts)
    places = (ends[-1] - 1) * np.array([0.5, 0.95, 0.99])
    low, high = (
        bounds[np.searchsorted(ends, np.array(place, dtype=np.int64), side="right")]
        for place in (np.floor(places), np.ceil(places))
    )
    p50, p95, p99 = (low + (high - low) * (places - np.floor(places))) * _MIDDLE
    return float(p50), float(p95), float(p99)
