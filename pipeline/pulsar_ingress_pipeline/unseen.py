"""Hosts that a config has and nobody has asked for: the half of drift that events cannot tell."""

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pulsar_ingress_pipeline.storage import Storage, literal
from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.routing.ingresses import Ingress, Ingresses
from pulsar_ingress_proxy.routing.snapshot import build
from pulsar_ingress_proxy.syntax.authorities import parse_authority


@dataclass(frozen=True, slots=True)
class Unseen:
    """A host of an ingress, as the config has it."""

    ingress: str
    host: str


def read(spark: SparkSession, tables: Storage, config: Config) -> list[Unseen] | None:
    """Those that no request of the tables asked for; None where there is no table that could tell."""
    if not tables.exists("hosts"):
        return None
    hosts = spark.read.parquet(literal(tables.path("hosts"))).where(_might_match(config)).select("host").distinct()
    return unseen(config, (host for (host,) in hosts.toLocalIterator()))


def unseen(config: Config, asked: Iterable[str]) -> list[Unseen]:
    """By the sidecar's own matching: a host that is asked for counts for the one pattern that decides."""
    doors = [(ingress.name, host) for ingress in build(config).ingresses for host in ingress.hosts]
    # A door for each host, so that the answer names the host and not its ingress alone.
    patterns = Ingresses(Ingress(host, (host,), "any") for _, host in doors)
    left = {host.lower().removesuffix(".") for _, host in doors}
    for name in asked:
        authority = parse_authority(name)
        found = None if authority is None else patterns.by_host(authority.host)
        if found is None and authority is not None:
            found = patterns.everywhere
        if found is not None:
            left.discard(found.name.lower().removesuffix("."))
        if not left:
            break
    return [Unseen(ingress, host) for ingress, host in doors if host.lower().removesuffix(".") in left]


def _might_match(config: Config) -> Column:
    """What a host of the config could match, so that not all that scanners ask for comes here."""
    found = F.lit(False)
    for ingress in config.ingresses:
        for host in ingress.hosts:
            name = host.lower().removesuffix(".")
            found |= F.col("host").endswith(name.removeprefix("*")) if name.startswith("*") else F.col("host") == name
    return found
