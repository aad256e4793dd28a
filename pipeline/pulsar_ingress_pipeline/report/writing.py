"""The command's work: gather, compare with the report that is there, and put the new one in its place."""

import os
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from pulsar_ingress_pipeline import unseen
from pulsar_ingress_pipeline.faults import PipelineFault
from pulsar_ingress_pipeline.report.gathering import gather
from pulsar_ingress_pipeline.report.page import page
from pulsar_ingress_pipeline.report.records import Numbers, Report
from pulsar_ingress_pipeline.report.since import read
from pulsar_ingress_pipeline.storage import SPARK_FAULTS, Storage
from pulsar_ingress_proxy.config import Config

_TRIES = 3
_MOST = 16 * 1024 * 1024
"""Bytes of a file that may be a report; ours are far smaller."""


def write(
    spark: SparkSession,
    tables: str,
    out: str,
    since: str | None = None,
    days: int | None = None,
    made: datetime | None = None,
    config: Config | None = None,
) -> Report:
    """`since` is the report to compare with: the one that `out` replaces, if not given.

    With a config, the hosts of it that nobody asks for are told.
    """
    if days is not None and days < 1:
        raise PipelineFault("--days must be 1 or more")
    folder = Storage(spark, tables)
    if not folder.exists() or folder.is_file():
        raise PipelineFault(f"{tables}: there are no tables here: `pulsar-ingress-pipeline run` makes them")
    then = _then(spark, since if since is not None else out, must_be=since is not None)
    report = _gathered(spark, folder, days, made or datetime.now(UTC), config)
    _put(spark, out, page(report, then))
    return report


def _gathered(spark: SparkSession, tables: Storage, days: int | None, made: datetime, config: Config | None) -> Report:
    """Again, where a file was replaced between listing and reading it: `stream` may be at work on the tables."""

    def gathered() -> Report:
        found = None if config is None else unseen.read(spark, tables, config)
        hosts = None if found is None else tuple((row.ingress, row.host) for row in found)
        return gather(spark, tables, days, made, hosts)

    for _ in range(_TRIES - 1):
        try:
            return gathered()
        except SPARK_FAULTS as error:
            if "FILE_NOT_EXIST" not in str(error):
                raise
    return gathered()


def _then(spark: SparkSession, report: str, must_be: bool) -> Numbers | None:
    html = _read(spark, report)
    numbers = None if html is None else read(html)
    if numbers is None and must_be:
        raise PipelineFault(f"--since {report}: is no report with numbers")
    return numbers


def _read(spark: SparkSession, file: str) -> str | None:
    """A file of this machine, or of a store by its URL; None where there is none."""
    if "://" not in file:
        try:
            with open(file, "rb") as opened:
                return opened.read(_MOST).decode(errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PipelineFault(f"{file}: cannot be read: {error.strerror}") from None
    folder, _, name = file.rpartition("/")
    store = Storage(spark, folder)
    return store.read(name) if store.exists(name) else None


def _put(spark: SparkSession, file: str, html: str) -> None:
    """As a whole or not at all."""
    if "://" in file:
        folder, _, name = file.rpartition("/")
        Storage(spark, folder).write(name, html)
        return
    path = Path(file)
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(html, encoding="utf-8")
        os.replace(unfinished, path)
    except OSError as error:
        raise PipelineFault(f"{file}: cannot be written: {error.strerror}") from None
    finally:
        unfinished.unlink(missing_ok=True)
