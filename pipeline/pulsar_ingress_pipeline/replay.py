"""Decides recorded requests again with another config, by the proxy's own functions, and shows what would change.

Spark groups requests that no rule distinguishes, and each group is decided once, on the executors. Events do not have
the path of a request, so the effect of `expose` is known for lookups but not for admin calls. Redirects are decided
again only for HTTP.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from pulsar_ingress_pipeline.faults import PipelineFault
from pulsar_ingress_pipeline.ingest.batches import EVENT_FILES, tasks
from pulsar_ingress_pipeline.ingest.reading import read_events
from pulsar_ingress_pipeline.lake.storage import Storage
from pulsar_ingress_pipeline.schema import EVENTS
from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.decisions import decide
from pulsar_ingress_proxy.routing.paths import Target
from pulsar_ingress_proxy.routing.redirects import decide_redirect
from pulsar_ingress_proxy.routing.requests import Request
from pulsar_ingress_proxy.routing.snapshot import build
from pulsar_ingress_proxy.syntax.authorities import parse_authority

_TARGETS = {"lookup": Target("lookup", "lookup"), "admin": Target("admin", "admin"), "other": Target("other", "other")}
_BY_BROKERS = frozenset({"broker-lacks-listener"})
"""Miss reasons that come from a broker's answer, not from a decision."""
_ASKED = (
    "kind", "scheme", "bind", "forwarded_host", "client_named", "client_named_by", "listener", "hit",
    "miss_reason", "redirect_action",
)  # fmt: skip
_HOST = "if(protocol = 'binary', server_name, host)"
"""The host that ingresses match: in the binary protocol, the TLS server name."""
_AUTHORITY = "concat(regexp_extract(redirect_from, '^[^/?#]*//[^/?#]*', 0), '/')"
_LOCATION = f"""
    case when protocol = 'http' and redirect_from rlike '^[A-Za-z]+://' then {_AUTHORITY}
         when protocol = 'http' then redirect_from end
"""
"""Only the authority of a Location matters, so that redirects of many topics are one group."""
_EXAMPLE = f"concat_ws(' ', concat('host=', {_HOST}), concat('topic=', topic), concat('id=', id))"
_IS_DECIDED = "scheme is not null or coalesce(hit, false)"
"""A request without a scheme was refused before any decision, unless it is a hit."""
_DECIDED = "before string, after string, loses_hit boolean"


@dataclass(frozen=True, slots=True)
class Change:
    """Requests that would be decided differently in the same way."""

    before: str
    after: str
    loses_hit: bool
    requests: int
    example: str


def replay(events: DataFrame, config: Config) -> tuple[int, list[Change]]:
    """The number of requests, and the changes, with lost hits and then the most frequent first."""
    asked = events.dropDuplicates(["id", "time"]).where(F.col("kind").isin(list(_TARGETS)) & F.expr(_IS_DECIDED))
    question = [*map(F.col, _ASKED), F.expr(_HOST).alias("host"), F.expr(_LOCATION).alias("location")]
    example = F.min(F.expr(_EXAMPLE)).alias("example")
    groups = asked.groupBy(*question).agg(F.count(F.lit(1)).alias("requests"), example)
    deciding = F.udf(_Deciding(config), _DECIDED, useArrow=False)
    each = groups.select("requests", "example", deciding(F.struct(*groups.columns)).alias("change")).groupBy("change")
    decided = each.agg(F.sum("requests").alias("requests"), F.min("example").alias("example")).collect()
    changes = [
        Change(**change.asDict(), requests=requests, example=example_)
        for change, requests, example_ in decided
        if change is not None
    ]
    total = sum(requests for _, requests, _ in decided)
    return total, sorted(changes, key=lambda one: (not one.loses_hit, -one.requests, one.before, one.example))


def replay_files(spark: SparkSession, source: Storage, config: Config) -> tuple[int, list[Change], list[str]]:
    """The same for event files, and the errors of truncated files, whose readable lines count."""
    shares = [[file.path for file in task] for task in tasks(source.files(EVENT_FILES))]
    if not shares:
        raise PipelineFault(f"--events {source.url}: there are no event files")
    schema = T.StructType([*EVENTS.fields, T.StructField("fault", T.StringType())])
    numbers = spark.range(0, len(shares), 1, len(shares))
    read = numbers.mapInArrow(partial(read_events, source, shares), schema).persist()
    try:
        total, changes = replay(read.where("fault is null").select(EVENTS.names), config)
        faults = [fault for (fault,) in read.where("fault is not null").select("fault").collect()]
    finally:
        read.unpersist()
    return total, changes, faults


class _Deciding:
    """Decides a group. Spark sends it to the executors, where it builds the snapshot once."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._decisions: DecisionCache | None = None

    def __call__(self, row: Row) -> tuple[str, str, bool] | None:
        if self._decisions is None:
            self._decisions = DecisionCache(build(self._config))
            self._binds = {bind.address: bind.listener for bind in self._config.bind_addresses}
        return _change(row, _request(row, self._binds), self._decisions)


def _change(row: Row, request: Request, decisions: DecisionCache) -> tuple[str, str, bool] | None:
    """The decisions before and after, and whether a hit is lost; None if nothing changes."""
    decision = decide(request, decisions.snapshot)
    selection = decision.selection
    if row.kind == "lookup":
        is_hit = row.listener is not None and (row.hit or row.miss_reason in _BY_BROKERS)
        before = f"hit on {row.listener}" if is_hit else f"miss ({row.miss_reason})"
        reason = decision.miss_reason
        after = f"hit on {selection.listener}" if reason is None else f"miss ({reason})"
        loses_hit = is_hit and reason is not None
    else:
        before, after, loses_hit = f"on {row.listener or 'none'}", f"on {selection.listener or 'none'}", False
    if row.location is not None and row.redirect_action is not None and before == after:
        redirect = decide_redirect(row.location, request, selection, decisions)
        before, after = f"{before}, redirect {row.redirect_action}", f"{after}, redirect {redirect.action}"
    if before == after:
        return None
    return f"{row.kind} {before}", after, loses_hit


def _request(row: Row, binds: Mapping[str, str | None]) -> Request:
    named = (row.client_named,) if row.client_named is not None else ()
    return Request(
        _TARGETS[row.kind],
        parse_authority(row.host) if row.host is not None else None,
        parse_authority(row.forwarded_host) if row.forwarded_host is not None else None,
        row.scheme or "http",
        binds.get(row.bind),
        named if row.client_named_by == "query" else (),
        named if row.client_named_by != "query" else (),
    )


def as_text(total: int, changes: Sequence[Change]) -> str:
    """The changes with their counts and examples."""
    changed = sum(change.requests for change in changes)
    lines = [f"{total:,} requests, {total - changed:,} decided as they were, {changed:,} differently"]
    lines += [f"{one.requests:>12,}  {one.before} -> {one.after}   e.g. {one.example}" for one in changes]
    if lost := sum(change.requests for change in changes if change.loses_hit):
        lines.append(f"{lost:,} hits would become misses")
    return "\n".join(lines)
