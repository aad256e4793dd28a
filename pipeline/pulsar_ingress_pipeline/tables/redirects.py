"""What happens to redirects, and redirects that lead back to where the client was.

A redirected client sends its next request to the address it was given, so the Host of one request and the Location of
another mean the same broker if the address is the same. Events do not identify clients: redirects of one topic that
close a circle within seconds are counted as one client's. Most topics have no broker that is both the source and the
target of redirects; only the others are examined.
"""

from collections import defaultdict
from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from pulsar_ingress_pipeline.tables import table as col
from pulsar_ingress_pipeline.tables.addresses import address_of
from pulsar_ingress_pipeline.tables.sources import counted, each_event
from pulsar_ingress_pipeline.tables.table import COUNT, SPAN, STRING, Field, Table, span_of

GAP_SECONDS = 10
LONGEST = 4
"""Brokers in a loop; longer loops are not searched for."""
FEW = 12
"""If a topic's redirects of an hour connect more pairs of brokers than this, only loops of two are searched for: there
would be more paths than redirects."""

_GROUP = (SPAN, "listener", "topic", "followed_by")
_GAP = GAP_SECONDS * 1_000_000
_LOOPS = "array<struct<brokers array<string>, loops long, first long, last long>>"


def redirect_loops(events: DataFrame) -> DataFrame:
    """Each hour's loops."""
    sent = _sent(events)
    names = [F.collect_set(_name(url)) for url in ("asked", "told")]
    suspects = sent.groupBy("hour", "key").agg(F.arrays_overlap(*names).alias("is_suspect")).where("is_suspect")
    addresses = address_of(F.col("asked")).alias("source"), address_of(F.col("told")).alias("target")
    step = F.struct(F.unix_micros("time").alias("micros"), "id", *addresses)
    topics = (
        sent.join(F.broadcast(suspects), ["hour", "key"], "left_semi")
        .groupBy(span_of(F.timestamp_seconds(F.col("hour") * 3600)), *_GROUP[1:])
        .agg(F.sort_array(F.collect_list(step)).alias("steps"))
    )
    found = topics.select(*_GROUP, F.explode(F.udf(loops_in, _LOOPS, useArrow=False)("steps")).alias("loop"))
    return found.select(
        *_GROUP, "loop.brokers", "loop.loops",
        F.timestamp_micros("loop.first").alias("first_seen"), F.timestamp_micros("loop.last").alias("last_seen"),
    )  # fmt: skip


def loops_in(steps: Iterable[Row]) -> list[tuple[list[str], int, int, int]]:
    """The loops of a topic's redirects, which are in time order: brokers, count, and the times of the first and last.

    A redirect closes a circle if its other redirects came before, in order and within the gap. It counts for the
    shortest circle that it closes.
    """
    known = [(row.micros, row.source, row.target) for row in steps if row.source is not None and row.target is not None]
    sources, targets = {source for _, source, _ in known}, {target for _, _, target in known}
    edges = {(source, target) for _, source, target in known if source in targets and target in sources}
    longest = LONGEST if len(edges) <= FEW else 2
    found: dict[tuple[str, ...], list[int]] = defaultdict(list)
    began: dict[tuple[str, ...], int] = {}  # by a path of brokers: when the latest walk along it began
    for micros, source, target in known:
        if (source, target) not in edges:
            continue
        here = {path: start for path, start in began.items() if path[-1] == source} | {(source,): micros}
        closed = [path for path, start in here.items() if path[0] == target and micros - start <= _GAP]
        if closed:
            found[min(map(_from_least, closed), key=lambda circle: (len(circle), circle))].append(micros)
        began |= {(*path, target): start for path, start in here.items() if len(path) < longest and target not in path}
    return [(list(circle), len(times), times[0], times[-1]) for circle, times in found.items()]


def _from_least(circle: tuple[str, ...]) -> tuple[str, ...]:
    """The same circle, beginning with the first of its brokers in sorted order."""
    place = circle.index(min(circle))
    return circle[place:] + circle[:place]


def _sent(events: DataFrame) -> DataFrame:
    """Redirects with their source and target. One that the sidecar gave up following leads to itself."""
    gave_up = F.expr("redirect_action = 'refused' and hops > 0")
    told = F.substring_index("redirect_to", "/", 3)
    is_sent = gave_up | F.col("redirect_action").isin("rewritten", "kept", "passed")
    return events.where("redirect_to is not null and topic is not null and listener is not null").where(is_sent).select(
        F.floor(F.unix_seconds("time") / 3600).alias("hour"),
        F.xxhash64("listener", "topic", gave_up).alias("key"),
        "listener", "topic", "time", "id",
        F.when(gave_up, F.lit("sidecar")).otherwise(F.lit("client")).alias("followed_by"),
        F.when(gave_up, told).otherwise(F.concat("scheme", F.lit("://"), "host")).alias("asked"),
        told.alias("told"),
    )  # fmt: skip


def _name(url: str) -> Column:
    """A number that equal addresses have in common, and few others."""
    host = F.substring_index(F.substring_index(url, "/", -1), ":", 1)
    return F.xxhash64(F.lower(F.rtrim(host, F.lit("."))))


TABLES = (
    Table(
        "redirect_hops",
        "What happened to redirects over time, and how many the sidecar followed for a request.",
        (
            col.WINDOW,
            col.LISTENER,
            col.KIND,
            Field(
                "action", STRING, "what happened to the last one: rewritten, followed, passed, kept or refused",
                "redirect_action",
            ),
            Field("hops", COUNT, "redirects that the sidecar followed"),
        ),
        (Field("requests", COUNT, "requests with that many", "sum(requests)"),),
        counted,
        "redirect_action is not null or hops > 0",
        span="hour",
    ),
    Table(
        "redirect_loops",
        f"Redirect loops: brokers sent the clients of a topic in a circle within {GAP_SECONDS} s and the same hour, as "
        f"two brokers do that each take the other one for the owner. Circles of up to {LONGEST} brokers are found; "
        f"only those of 2 if the redirects of a topic connect more than {FEW} pairs of brokers.",
        (
            col.CLIENTS_LISTENER,
            Field("topic", STRING, "the full name"),
            Field("followed_by", STRING, "client: the client was sent back; sidecar: it gave up at a loop or maxHops"),
            Field(
                "brokers", T.ArrayType(STRING),
                "host:port in the order of redirects, from the first in sorted order; sidecar: the last",
            ),
        ),
        (Field("loops", COUNT, "redirects that closed the circle"), *col.SEEN),
        each_event,
        make_rows=redirect_loops,
    ),
)  # fmt: skip
