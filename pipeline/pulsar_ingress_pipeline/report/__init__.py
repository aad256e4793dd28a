"""The command `report`: reads the tables, compares them with the previous report, and replaces that one."""

import os
from datetime import UTC, datetime

from pulsar_ingress_pipeline.faults import PipelineFault
from pulsar_ingress_pipeline.lake.catalog import Lake
from pulsar_ingress_pipeline.lake.storage import Storage
from pulsar_ingress_pipeline.report.page import page, read
from pulsar_ingress_pipeline.report.queries import gather
from pulsar_ingress_pipeline.report.records import Report
from pulsar_ingress_proxy.config import Config

__all__ = ["Report", "page", "write"]

_MOST = 16 * 1024 * 1024
"""Bytes of a file that are searched for numbers; reports are far smaller."""


def write(
    tables: str,
    out: str,
    since: str | None = None,
    days: int | None = None,
    made: datetime | None = None,
    config: Config | None = None,
) -> Report:
    """`since` is the report to compare with: the one that `out` replaces, if not given.

    With a config, the report lists its unused hosts, and suggests only listeners that it has.
    """
    html = _read(out if since is None else since)
    then = None if html is None else read(html)
    if then is None and since is not None:
        raise PipelineFault(f"--since {since}: is not a report with numbers")
    report = gather(Lake(tables), days, made or datetime.now(UTC), config)
    _replace(out, page(report, then))
    return report


def _read(file: str) -> str | None:
    """A local file, or an object of a store by its URL; None if it does not exist."""
    folder, name = _split(file)
    try:
        return folder.read(name)[:_MOST].decode(errors="replace")
    except FileNotFoundError:
        return None


def _replace(file: str, html: str) -> None:
    """Atomically: an object of a store appears when it is complete, a local file is renamed into place."""
    folder, name = _split(file)
    if not folder.is_local:
        folder.write(name, html.encode())
        return
    unfinished = f".{name}.unfinished"
    folder.write(unfinished, html.encode())
    try:
        os.replace(f"{folder.url}/{unfinished}", f"{folder.url}/{name}")
    except OSError as error:
        folder.delete(unfinished)
        raise PipelineFault(f"{file}: cannot be written: {error.strerror}") from None


def _split(file: str) -> tuple[Storage, str]:
    folder, slash, name = file.rpartition("/")
    return Storage.of(folder or slash or "."), name
