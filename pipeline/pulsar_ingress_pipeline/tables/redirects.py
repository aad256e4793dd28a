"""What happens to redirects, and redirects that lead back to where the client was.

A redirected client sends its next request to the address it was given, so the Host of one request and the Location of
another mean the same broker if the address is the same. Events do not identify clients: redirects of one topic that
close a circle within seconds are counted as one client's. Most topics have no broker that is both the source and the
target of redirects; only the others are examined.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from pulsar_ingress_pipeline.tables import table as col
from pulsar_ingress_pipeline.tables.addresses import address_of
from pulsar_ingress_pipeline.tables.sources import counted, each_event
from pulsar_ingress_pipeline.tables.table import COUNT, SPAN, STRING, Field, Table, key, span_of

GAP_SECONDS = 10
LONGEST = 4
"""Brokers in a loop; longer loops are not searched for."""
FEW = 12
"""If a topic's redirects of an hour connect more pairs of brokers than this, only loops of two are searched for: there
would be more circles than redirects."""

_GROUP = (SPAN, "listener", "topic", "followed_by")


def redirect_loops(events: DataFrame) -> DataFrame:
    """Each hour's loops."""
    sent = _sent(events)
    names = [F.collect_set(_name(url)) for url in ("asked", "told")]
    suspects = sent.groupBy("hour", "key").agg(F.arrays_overlap(*names).alias("is_suspect")).where("is_suspect")
    step = F.struct("time", "id", address_of(F.col("asked")).alias("source"), address_of(F.col("told")).alias("target"))
    topics = (
        sent.join(F.broadcast(suspects), ["hour", "key"], "left_semi")
        .groupBy(span_of(F.timestamp_seconds(F.col("hour") * 3600)), *_GROUP[1:])
        .agg(F.collect_list(step).alias("steps"))
    )
    edges = F.array_distinct(F.transform("steps", _edge))
    circles = (
        topics.withColumn("edges", edges)
        .withColumn("edges", F.filter("edges", _leads_on))
        .where(F.size("edges") > 0)
        .select(*_GROUP, "steps", F.explode(_circles(F.col("edges"))).alias("brokers"))
    )
    steps = circles.select(*_GROUP, "brokers", F.explode("steps").alias("step")).select(*_GROUP, "brokers", "step.*")
    place = F.array_position("brokers", F.col("source")).cast("int") - 1
    return _closed(
        steps.withColumn("place", place).where(
            (F.col("place") >= 0)
            & (F.col("target") == F.element_at("brokers", (F.col("place") + 1) % F.size("brokers") + 1))
        )
    )


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


def _edge(step: Column) -> Column:
    return F.struct(step["source"].alias("source"), step["target"].alias("target"))


def _leads_on(edge: Column) -> Column:
    """Whether a redirect leads to the source of this one, and another leads on from its target."""
    edges = F.col("edges")
    return F.exists(edges, lambda other: other["target"] == edge["source"]) & F.exists(
        edges, lambda other: other["source"] == edge["target"]
    )


def _circles(edges: Column) -> Column:
    """All circles, each once: a circle starts with the first of its brokers in sorted order."""
    alone = F.transform(
        F.filter(edges, lambda edge: edge["source"] == edge["target"]), lambda edge: F.array(edge["source"])
    )
    paths = F.transform(
        F.filter(edges, lambda edge: edge["source"] < edge["target"]),
        lambda edge: F.array(edge["source"], edge["target"]),
    )
    found = [alone]
    for length in range(2, LONGEST + 1):
        found.append(F.filter(paths, lambda path: _is_closed(path, edges)))
        if length < LONGEST:
            longer = F.flatten(F.transform(paths, lambda path: _longer(path, edges)))
            paths = F.when(F.size(edges) <= FEW, longer).otherwise(F.filter(paths, lambda _: F.lit(False)))
    return reduce(F.concat, found)


def _is_closed(path: Column, edges: Column) -> Column:
    last, first = F.element_at(path, -1), F.element_at(path, 1)
    return F.exists(edges, lambda edge: (edge["source"] == last) & (edge["target"] == first))


def _longer(path: Column, edges: Column) -> Column:
    last, first = F.element_at(path, -1), F.element_at(path, 1)
    leads_on = F.filter(
        edges,
        lambda edge: (edge["source"] == last) & (edge["target"] > first) & ~F.array_contains(path, edge["target"]),
    )
    return F.transform(leads_on, lambda edge: F.concat(path, F.array(edge["target"])))


def _closed(steps: DataFrame) -> DataFrame:
    """Redirects that close their circle: its other redirects came before, in order and within the gap.

    `began` is the time of the first redirect of the latest path to this one; each round makes the path one longer.
    """
    in_time = Window.partitionBy(*_GROUP, "brokers").orderBy("time", "id")
    before = in_time.rowsBetween(Window.unboundedPreceding, -1)
    size = F.size("brokers")
    began = steps.withColumn("began", F.col("time"))
    for length in range(2, LONGEST + 1):
        latest = [
            F.last(F.when(F.col("place") == place, F.col("began")), ignorenulls=True).over(before)
            for place in range(LONGEST)
        ]
        at_step_before = F.element_at(F.array(*latest), (F.col("place") + size - 1) % size + 1)
        began = began.withColumn("began", F.when(size >= length, at_step_before).otherwise(F.col("began")))
    is_soon = F.unix_micros("time") - F.unix_micros("began") <= GAP_SECONDS * 1_000_000
    shortest = F.min_by("brokers", F.struct(size, "brokers"))
    return (
        began.where(is_soon)
        .groupBy(*_GROUP, "time", "id")
        .agg(shortest.alias("brokers"))
        .groupBy(*_GROUP, "brokers")
        .agg(F.count(F.lit(1)).alias("loops"), F.min("time").alias("first_seen"), F.max("time").alias("last_seen"))
    )


TABLES = (
    Table(
        "redirect_hops",
        "What happened to redirects over time, and how many the sidecar followed for a request.",
        "five minutes, listener, kind, action and hops of requests that met a redirect",
        (
            col.WINDOW,
            col.LISTENER,
            col.KIND,
            key(
                "action", STRING, "what became of the last: rewritten, followed, passed, kept or refused",
                "redirect_action",
            ),
            key("hops", COUNT, "redirects that the sidecar followed"),
            Field("requests", COUNT, "requests with that many", "sum(requests)"),
        ),
        counted,
        "redirect_action is not null or hops > 0",
        span="hour",
    ),
    Table(
        "redirect_loops",
        f"Redirects that came back: brokers sent clients of a topic in a circle, all of it within {GAP_SECONDS} s and "
        f"one hour. Two brokers that each hold the other for the owner do so. Circles of up to {LONGEST} are looked "
        f"for, and of 2 where redirects of the topic go between more than {FEW} pairs of brokers.",
        "listener, topic, follower and brokers of a loop",
        (
            col.CLIENTS_LISTENER,
            key("topic", STRING, "the full name"),
            key("followed_by", STRING, "client: it was sent back; sidecar: it gave up, for a circle or over maxHops"),
            key(
                "brokers", T.ArrayType(STRING),
                "host:port in the order of redirects, the least first; sidecar: the last one",
            ),
            Field("loops", COUNT, "redirects that closed the circle", "loops"),
            *col.SEEN,
        ),
        each_event,
        make_rows=redirect_loops,
    ),
)  # fmt: skip
