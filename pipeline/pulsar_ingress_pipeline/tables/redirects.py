"""What becomes of redirects, and those that lead back to where the client was.

A client that is redirected asks again, by the address it was given: so the Host of one request and the Location of
another mean the same broker if they are the same address. The sidecar keeps no memory of clients, and events have no
name for them: redirects of one topic that close a circle within seconds are taken for one client's. Most topics have
no broker that is both redirected to and redirecting, and only the others are looked at more closely.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pulsar_ingress_pipeline.tables import fields as col
from pulsar_ingress_pipeline.tables.addresses import address_of
from pulsar_ingress_pipeline.tables.fields import COUNT, STRING, STRINGS, Field
from pulsar_ingress_pipeline.tables.sources import counted, span_of, summed, tally
from pulsar_ingress_pipeline.tables.table import SPAN, Table

GAP_SECONDS = 10
LONGEST = 4
"""Brokers of a loop; longer ones are not looked for."""
FEW = 12
"""Where a topic's redirects of an hour go between more pairs of brokers, only loops of two are looked for: there would
be more circles than redirects."""

_GROUP = (SPAN, "listener", "topic", "followed_by")


def redirect_hops(counts: DataFrame) -> DataFrame:
    return (
        counts.where(F.col("redirect_action").isNotNull() | (F.col("hops") > 0))
        .groupBy("window_start", "listener", "kind", F.col("redirect_action").alias("action"), "hops")
        .agg(F.sum("requests").alias("requests"))
    )


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
    """Redirects with an address, whence and whither; those that the sidecar gave up following lead to themselves."""
    action = F.col("redirect_action")
    gave_up = (action == "refused") & (F.col("hops") > 0)
    told = F.substring_index("redirect_to", "/", 3)
    return events.where(
        F.col("redirect_to").isNotNull()
        & F.col("topic").isNotNull()
        & F.col("listener").isNotNull()
        & (gave_up | action.isin("rewritten", "kept", "passed"))
    ).select(
        F.floor(F.unix_seconds("time") / 3600).alias("hour"),
        F.xxhash64("listener", "topic", gave_up).alias("key"),
        "listener", "topic", "time", "id",
        F.when(gave_up, F.lit("sidecar")).otherwise(F.lit("client")).alias("followed_by"),
        F.when(gave_up, told).otherwise(F.concat("scheme", F.lit("://"), "host")).alias("asked"),
        told.alias("told"),
    )  # fmt: skip


def _name(url: str) -> Column:
    """What the same addresses have in common, and few others, as a number."""
    host = F.substring_index(F.substring_index(url, "/", -1), ":", 1)
    return F.xxhash64(F.lower(F.rtrim(host, F.lit("."))))


def _edge(step: Column) -> Column:
    return F.struct(step["source"].alias("source"), step["target"].alias("target"))


def _leads_on(edge: Column) -> Column:
    """Whether some redirect leads to where this one comes from, and some on from where it leads."""
    edges = F.col("edges")
    return F.exists(edges, lambda other: other["target"] == edge["source"]) & F.exists(
        edges, lambda other: other["source"] == edge["target"]
    )


def _circles(edges: Column) -> Column:
    """All circles of a few redirects, each once: it begins with the least of its brokers."""
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
    """Redirects that close their circle: all its others came before, in order and not long ago.

    `began` is when the latest way to this redirect began, over one redirect more of the circle each time.
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
        .agg(*tally("loops"))
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
            Field("action", STRING, "what became of the last: rewritten, followed, passed, kept or refused"),
            Field("hops", COUNT, "redirects that the sidecar followed"),
            Field("requests", COUNT, "requests with that many"),
        ),
        redirect_hops,
        source=counted,
    ),
    Table(
        "redirect_loops",
        f"Redirects that came back: brokers sent clients of a topic in a circle, all of it within {GAP_SECONDS} s and "
        f"one hour. Two brokers that each hold the other for the owner do so. Circles of up to {LONGEST} are looked "
        f"for, and of 2 where redirects of the topic go between more than {FEW} pairs of brokers.",
        "listener, topic, follower and brokers of a loop",
        (
            col.CLIENTS_LISTENER,
            Field("topic", STRING, "the full name"),
            Field("followed_by", STRING, "client: it was sent back; sidecar: it gave up, for a circle or over maxHops"),
            Field("brokers", STRINGS, "host:port in the order of redirects, the least first; sidecar: the last one"),
            Field("loops", COUNT, "redirects that closed the circle"),
            *col.SEEN,
        ),
        redirect_loops,
        summed(*_GROUP[1:], "brokers"),
    ),
)
