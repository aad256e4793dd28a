"""Recorded requests decided anew, by the proxy's own functions under another config, and what would change.

Requests that no rule could tell apart are decided once: Spark groups them, and decides the groups wherever it runs. The
path of a request is not recorded, so what `expose` would make of an admin call is not known; a lookup's is.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from proxy.authorities import parse_authority
from proxy.config import Config
from proxy.redirects import decide
from proxy.requests import Request, Target
from proxy.snapshot import Snapshot, build
from proxy.verdicts import judge

_TARGETS = {"lookup": Target("lookup", "lookup"), "admin": Target("admin", "admin"), "other": Target("other", "other")}
_BY_BROKERS = frozenset({"broker-lacks-listener"})
"""Reasons that are an answer of a broker's, not a decision."""
_ASKED = (
    "kind", "scheme", "bind", "host", "forwarded_host", "client_named", "client_named_by", "listener", "hit",
    "miss_reason", "redirect_action",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """Requests that would be decided differently, in one way."""

    before: str
    after: str
    requests: int
    example: str
    loses_hit: bool


def replay(events: DataFrame, config: Config) -> tuple[int, list[Change]]:
    """How many requests there are, and the changes, the worst and most frequent first."""
    # Of a Location only the authority is looked at, so that redirects of many topics are one question.
    question = [*(F.col(name) for name in _ASKED), _authority(F.col("redirect_from")).alias("location")]
    example = F.concat_ws(
        " ", F.concat(F.lit("host="), "host"), F.concat(F.lit("topic="), "topic"), F.concat(F.lit("id="), "id")
    )
    asked = events.dropDuplicates(["id"]).where(F.col("kind").isin(list(_TARGETS)) & F.col("scheme").isNotNull())
    groups = asked.groupBy(*question).agg(F.count(F.lit(1)).alias("requests"), F.min(example).alias("example"))
    decided = groups.rdd.mapPartitions(_Deciding(config)).collect()
    total = sum(requests for requests, _ in decided)
    merged: dict[tuple[str, str, bool], Change] = {}
    for _, change in decided:
        if change is not None:
            key = (change.before, change.after, change.loses_hit)
            known = merged.get(key, Change(*key[:2], 0, change.example, change.loses_hit))
            example_ = min(known.example, change.example)
            merged[key] = Change(
                change.before, change.after, known.requests + change.requests, example_, change.loses_hit
            )
    return total, sorted(merged.values(), key=lambda change: (not change.loses_hit, -change.requests, change.before))


def _authority(location: Column) -> Column:
    start = F.concat(F.regexp_extract(location, "^[^/?#]*//[^/?#]*", 0), F.lit("/"))
    return F.when(location.rlike("^[A-Za-z]+://"), start).otherwise(location)


class _Deciding:
    """Decides the groups of a partition. It travels to where they are, and makes its snapshot there."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def __call__(self, rows: Iterable[Row]) -> Iterator[tuple[int, Change | None]]:
        snapshot = build(self._config)
        binds = {bind.address: bind.listener for bind in self._config.bind_addresses}
        for row in rows:
            yield row.requests, _change(row, _request(row, binds), snapshot)


def _change(row: Row, request: Request, snapshot: Snapshot) -> Change | None:
    verdict = judge(request, snapshot)
    selection = verdict.selection
    if row.kind == "lookup":
        is_hit = row.listener is not None and (row.hit or row.miss_reason in _BY_BROKERS)
        before = f"hit on {row.listener}" if is_hit else f"miss ({row.miss_reason})"
        reason = verdict.miss_reason
        after = f"hit on {selection.listener}" if reason is None else f"miss ({reason})"
        loses_hit = is_hit and reason is not None
    else:
        before, after, loses_hit = f"on {row.listener or 'none'}", f"on {selection.listener or 'none'}", False
    if row.location is not None and row.redirect_action is not None and before == after:
        redirect = decide(row.location, request, selection, snapshot)
        before, after = f"{before}, redirect {row.redirect_action}", f"{after}, redirect {redirect.action}"
    if before == after:
        return None
    return Change(f"{row.kind} {before}", after, row.requests, row.example, loses_hit)


def _request(row: Row, binds: Mapping[str, str | None]) -> Request:
    named = (row.client_named,) if row.client_named is not None else ()
    return Request(
        _TARGETS[row.kind],
        parse_authority(row.host) if row.host is not None else None,
        parse_authority(row.forwarded_host) if row.forwarded_host is not None else None,
        row.scheme,
        binds.get(row.bind),
        named if row.client_named_by == "query" else (),
        named if row.client_named_by != "query" else (),
    )


def as_text(total: int, changes: Sequence[Change]) -> str:
    """What would change, by count and example."""
    changed = sum(change.requests for change in changes)
    lines = [f"{total:,} requests, {total - changed:,} decided as they were, {changed:,} differently"]
    lines += [
        f"{change.requests:>12,}  {change.before} -> {change.after}   e.g. {change.example}" for change in changes
    ]
    if lost := sum(change.requests for change in changes if change.loses_hit):
        lines.append(f"{lost:,} hits would become misses")
    return "\n".join(lines)
