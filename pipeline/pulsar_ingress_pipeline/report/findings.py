"""From the tables that judge to records: objectives, loops, leaks, drift, generations, unusual hours."""

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pulsar_ingress_pipeline.report.counting import cut, first_rows
from pulsar_ingress_pipeline.report.records import (
    Anomaly,
    Generation,
    Leak,
    Loop,
    Moved,
    Objective,
    Redirects,
    Stray,
    Top,
)
from pulsar_ingress_proxy.observability.objectives import DAYS

KEPT = 100
"""Rows of a ranking that come here."""
_INGRESSES = 20
_WORDS = 100
_HOPS = 10
_LEAST_LOOKUPS = 10
"""Of a generation: the ratio of fewer says nothing."""
_LEAST_CHANGE = 0.001

Record = TypeVar("Record")


def top(frame: DataFrame, measure: str, make: Callable[..., Record], columns: tuple[str, ...]) -> Top[Record]:
    rows, count, total = first_rows(frame, columns, measure, KEPT)
    return Top(tuple(make(*row) for row in rows), count, total)


def recent(frame: DataFrame, since: datetime | None, time: str = "last_seen") -> DataFrame:
    return frame if since is None else frame.where(F.col(time) >= F.lit(since))


def objectives(days: DataFrame) -> tuple[Objective, ...]:
    """Each ingress on its last day, if the period that ends with the newest day has it."""
    [(newest,)] = days.agg(F.max("date")).collect()
    period = F.struct("period_lookups", "period_good", "budget_left")
    last = days.where(F.col("date") > F.date_sub(F.lit(newest), DAYS)).groupBy("ingress")
    rows = last.agg(F.max_by(period, "date").alias("period")).select("ingress", "period.*")
    first = rows.orderBy(F.desc("period_lookups"), "ingress").limit(_INGRESSES).collect()
    return tuple(Objective(cut(ingress), *rest) for ingress, *rest in first)


def loops(table: DataFrame, since: datetime | None) -> Top[Loop]:
    columns = ("listener", "topic", "followed_by", "brokers", "loops", "first_seen", "last_seen")

    def make(listener: str, topic: str, by: str, brokers: list[str], *rest: int | datetime) -> Loop:
        return Loop(listener, topic, by, tuple(brokers), *rest)  # type: ignore[arg-type]

    return top(recent(table, since), "loops", make, columns)


def leaks(table: DataFrame, since: datetime | None) -> Top[Leak]:
    keys = ("ingress", "listener", "found_in", "address", "user_agent")
    return top(recent(table, since), "leaks", Leak, (*keys, "leaks", "first_seen", "last_seen"))


def strays(table: DataFrame, since: datetime | None) -> Top[Stray]:
    columns = ("host", "state", "ingress", "requests", "lookups", "first_seen", "last_seen")
    return top(recent(table, since), "requests", Stray, columns)


def generations(table: DataFrame, since: datetime | None) -> Top[Generation]:
    """Those that changed the ratio, by how many lookups that concerned."""
    is_told = (F.col("lookups") >= _LEAST_LOOKUPS) & (F.abs("hit_ratio_change") >= _LEAST_CHANGE)
    concerned = (F.abs("hit_ratio_change") * F.col("lookups")).alias("concerned")
    columns = ("sidecar", "generation", "first_seen", "lookups", "hits", "hit_ratio_change")
    return top(recent(table, since).where(is_told).select(*columns, concerned), "concerned", Generation, columns)


def anomalies(table: DataFrame, since: datetime | None) -> Top[Anomaly]:
    columns = ("window_start", "ingress", "what", "value", "usual", "days", "score")
    off = recent(table, since, "window_start").withColumn("off", F.abs("score"))
    return top(off, "off", Anomaly, columns)


def redirects(table: DataFrame, since: datetime | None) -> tuple[Redirects, ...]:
    rows = (
        recent(table, since, "window_start")
        .groupBy("kind", "action", F.least("hops", F.lit(_HOPS)).cast("int").alias("hops"))
        .agg(F.sum("requests").alias("requests"))
        .orderBy(F.desc("requests"), "kind", "action", "hops")
        .limit(_WORDS)
        .collect()
    )
    return tuple(Redirects(row["kind"], cut(row["action"]), row["hops"] or 0, row["requests"]) for row in rows)


def moved(owners: DataFrame) -> tuple[Moved, ...]:
    """Namespaces whose topics changed hands: bundles move, and events do not name them."""
    namespace = F.regexp_extract("topic", "^[a-z-]+://([^/]+/[^/]+)/", 1)
    rows = (
        owners.where(F.col("changes") > 0)
        .groupBy(F.when(namespace != "", namespace).alias("namespace"))
        .agg(F.count(F.lit(1)).alias("topics"), F.sum("changes").alias("changes"))
        .orderBy(F.desc("changes"), "namespace")
        .limit(KEPT)
        .collect()
    )
    return tuple(Moved(cut(row["namespace"]), row["topics"], row["changes"]) for row in rows)
