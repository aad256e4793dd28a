"""What the report has from events themselves: the ways of lookups to brokers, which no table has.

One scan counts all combinations; what is shown is made of those.
"""

from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pulsar_ingress_pipeline.report.counting import Names, cut
from pulsar_ingress_pipeline.report.records import Flow
from pulsar_ingress_pipeline.tables.sources import is_hit, is_lookup

NAMED = ("not-allowed", "unknown-listener", "client-named")
"""Misses for the sake of a name that the client sent."""
_INGRESSES, _LISTENERS, _BROKERS = 8, 8, 12


@dataclass(frozen=True, slots=True)
class Ways:
    clusters: tuple[str, ...]
    flows: tuple[Flow, ...]


def ways(events: DataFrame, since: datetime | None) -> Ways:
    keys = ("cluster", "kind", "ingress", "listener", "broker")
    counted = (
        _shown(events, since)
        .groupBy(*keys, is_hit().alias("is_hit"))
        .agg(F.count(F.lit(1)).alias("requests"))
        .persist()
    )
    try:
        return Ways(_clusters(counted), _flows(counted.where(is_lookup())))
    finally:
        counted.unpersist()


def names_asked(
    events: DataFrame, since: datetime | None, most: int
) -> dict[tuple[str | None, str | None, str | None], str]:
    """The listener named most often, for the ingress, host and reason of the misses that are most."""
    rows = (
        _shown(events, since)
        .where(is_lookup() & ~is_hit() & F.col("miss_reason").isin(*NAMED) & F.col("client_named").isNotNull())
        .groupBy("ingress", "host", "miss_reason")
        .agg(F.count(F.lit(1)).alias("misses"), F.mode("client_named", True).alias("named"))
        .orderBy(F.desc("misses"))
        .limit(most)
        .collect()
    )
    return {(cut(row["ingress"]), cut(row["host"]), row["miss_reason"]): row["named"] for row in rows}


def _shown(events: DataFrame, since: datetime | None) -> DataFrame:
    if since is None:
        return events
    return events.where((F.col("date") >= F.lit(since.date())) & (F.col("time") >= F.lit(since)))


def _clusters(counted: DataFrame) -> tuple[str, ...]:
    rows = (
        counted.where(F.col("cluster").isNotNull()).select("cluster").distinct().orderBy("cluster").limit(9).collect()
    )
    return tuple(row["cluster"][:80] for row in rows)


def _flows(lookups: DataFrame) -> tuple[Flow, ...]:
    names = [
        Names.most_used(lookups, column, "requests", most)
        for column, most in (("ingress", _INGRESSES), ("listener", _LISTENERS), ("broker", _BROKERS))
    ]
    rows = (
        lookups.groupBy(*(key for name in names for key in name.keys), "is_hit")
        .agg(F.sum("requests").alias("requests"))
        .orderBy(F.desc("requests"), "ingress", "listener", "broker")
        .collect()
    )
    return tuple(
        Flow(names[0].of(row), names[1].of(row), names[2].of(row), row["is_hit"], row["requests"]) for row in rows
    )
