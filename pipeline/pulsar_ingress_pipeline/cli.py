"""The command line. Errors are printed in one line, without a traceback."""

import argparse
import logging
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import yaml

from pulsar_ingress_pipeline.faults import Busy, PipelineFault
from pulsar_ingress_proxy import __version__
from pulsar_ingress_proxy.config import ConfigFaults, load

Command = Callable[[argparse.Namespace], int]

_LOST, _FAULT, _BUSY = 1, 2, 3
_PACKAGES = ("pyspark", "py4j", "pyarrow", "pandas", "numpy", "deltalake", "obstore", "jinja2", "markupsafe")
"""Packages of the extra `pipeline`."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = make_parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    for name in ("py4j", "DataFrameQueryContextLogger", "SQLQueryContextLogger"):  # the fault has their message
        logging.getLogger(name).setLevel(logging.CRITICAL)
    command: Command = options.command
    try:
        return command(options)
    except (PipelineFault, ConfigFaults) as fault:
        print(fault, file=sys.stderr)
        return _BUSY if isinstance(fault, Busy) else _FAULT
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] not in _PACKAGES:
            raise
        print(f"{missing.name} is not installed: pip install 'pulsar-ingress-proxy[pipeline]'", file=sys.stderr)
        return _FAULT
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pulsar-ingress-pipeline",
        description="Turns the sidecars' events into Delta Lake tables, reports, and suggestions for the config.",
        epilog="Folders are paths or URLs (s3://, gs://, abfss://). Credentials for URLs are in the environment.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(name: str, run: Command, text: str, *options: str, more: str = "") -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}. {more}".rstrip())
        command.set_defaults(command=run, name=name)
        if "--master" in options:
            where = command.add_mutually_exclusive_group()
            where.add_argument("--master", metavar="URL", help="Spark master (default: local[*], this machine)")
            where.add_argument("--remote", metavar="URL", help="Spark Connect server instead: sc://HOST:15002")
        if "--events" in options:
            command.add_argument("--events", required=True, metavar="PATH", help="folder of the event files")
        if "--tables" in options:
            command.add_argument("--tables", required=True, metavar="PATH", help="folder of the tables")
        return command

    batch = add(
        "run", _ingest, "ingest all event files into the tables", "--master", "--events", "--tables",
        more="Running it again changes nothing. Exits 3 if another command has committed to the tables in between.",
    )  # fmt: skip
    batch.set_defaults(once=False, metrics_address=None)
    batch.add_argument("--metrics-file", metavar="PATH", help="write metrics to this file at the end")
    streaming = add(
        "stream", _ingest, "keep the tables up to date as event files arrive", "--master", "--events", "--tables",
        more="SIGTERM ends it after the current batch.",
    )  # fmt: skip
    streaming.add_argument("--once", action="store_true", help="ingest the existing files and exit")
    pause = "wait between two checks for new files (default: 10)"
    streaming.add_argument("--pause", type=_seconds, default=10.0, metavar="SECONDS", help=pause)
    streaming.add_argument("--metrics-address", metavar="HOST:PORT", help="serve /metrics on this address")
    streaming.add_argument("--metrics-file", metavar="PATH", help="with --once: write metrics to this file at the end")
    reporting = add("report", _report, "write a report of the tables, with plots, as a single HTML file", "--tables")
    reporting.add_argument("--out", required=True, metavar="FILE", help="the HTML file; an existing one is replaced")
    since = "earlier report to compare with (default: the one that is replaced)"
    reporting.add_argument("--since", metavar="FILE", help=since)
    reporting.add_argument("--days", type=_positive, metavar="DAYS", help="only the newest days (default: all)")
    reporting.add_argument("--config", metavar="FILE", help="config whose unused hosts are listed")
    suggestion = add("suggest", _suggest, "print config that would fix misses and unmapped redirects", "--tables")
    suggestion.add_argument("--config", metavar="FILE", help="the current config, to suggest only what it lacks")
    support = "leave out what was seen less often (default: 10)"
    suggestion.add_argument("--support", type=_positive, default=10, metavar="COUNT", help=support)
    keeping = add(
        "maintain", _maintain, "merge small files of the tables and remove files that no version needs", "--tables",
        more="`stream` does it once a day by itself, `run` after every 24th version.",
    )  # fmt: skip
    retained = "keep the files of versions that are younger (default: 168)"
    keeping.add_argument("--retain-hours", type=_positive, default=168, metavar="HOURS", help=retained)
    exporting = add("export", _export, "write the tables as plain Parquet files", "--tables")
    exporting.add_argument("--out", required=True, metavar="FOLDER", help="new folder, with a folder for each table")
    again = add(
        "replay", _replay, "show which recorded requests another config would decide differently",
        "--master", "--events", more="Exits 1 if a hit would become a miss.",
    )  # fmt: skip
    again.add_argument("--config", required=True, metavar="NEW.yaml", help="the other config")
    return parser


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _seconds(text: str) -> float:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return float(text)


def _ingest(options: argparse.Namespace) -> int:
    from pulsar_ingress_pipeline.metrics import PipelineMetrics, exposed
    from pulsar_ingress_pipeline.progress import Progress
    from pulsar_ingress_pipeline.runner import Runner, stream
    from pulsar_ingress_pipeline.session import lazy_session

    is_service = options.name == "stream" and not options.once
    if is_service and options.metrics_file is not None:
        raise PipelineFault("--metrics-file: needs --once; without it, use --metrics-address")
    metrics = PipelineMetrics("once" if options.once else options.name)
    with (
        exposed(metrics, options.metrics_address, options.metrics_file),
        Progress() as progress,
        lazy_session(options.master, options.remote, progress.watch) as spark,
    ):
        runner = Runner(options.events, options.tables, spark, progress, metrics, is_service)
        if options.name == "run":
            runner.run()
        else:
            stream(runner, progress, options.once, options.pause)
    print(f"{options.tables}: {runner}", flush=True)
    return 0


def _maintain(options: argparse.Namespace) -> int:
    from pulsar_ingress_pipeline.lake.catalog import maintain
    from pulsar_ingress_pipeline.lake.storage import Storage

    return _printed(maintain(Storage.of(options.tables), options.retain_hours))


def _export(options: argparse.Namespace) -> int:
    from pulsar_ingress_pipeline.lake.catalog import export
    from pulsar_ingress_pipeline.lake.storage import Storage

    return _printed(export(Storage.of(options.tables), options.out))


def _printed(lines: Iterable[str]) -> int:
    for line in lines:
        print(line, flush=True)
    return 0


def _report(options: argparse.Namespace) -> int:
    from pulsar_ingress_pipeline import report

    config = load(options.config) if options.config is not None else None
    _tell(f"reading {options.tables}, writing {options.out} ...")
    written = report.write(options.tables, options.out, options.since, options.days, config=config)
    print(f"{options.out}: {written.numbers.lookups if written.numbers else 0:,} lookups")
    return 0


def _suggest(options: argparse.Namespace) -> int:
    from pulsar_ingress_pipeline import suggest
    from pulsar_ingress_pipeline.lake.catalog import Lake

    config = values = None
    if options.config is not None:
        config = load(options.config)
        values = yaml.safe_load(Path(options.config).read_text()) or {}
    _tell(f"reading {options.tables} ...")
    lake = Lake(options.tables)
    evidence = suggest.read(lake)
    unused = suggest.unused_hosts(lake, config) if config is not None else []
    print(suggest.as_yaml(suggest.suggest(evidence, values, options.support), options.support, unused), end="")
    return 0


def _tell(text: str) -> None:
    """Tell the user at a terminal what is being done."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)


def _replay(options: argparse.Namespace) -> int:
    from pulsar_ingress_pipeline import replay
    from pulsar_ingress_pipeline.lake.storage import Storage
    from pulsar_ingress_pipeline.session import session

    config = load(options.config)
    with session(options.master, remote=options.remote) as spark:
        total, changes, faults = replay.replay_files(spark, Storage.of(options.events), config)
    for fault in faults:
        print(fault, file=sys.stderr)
    print(replay.as_text(total, changes))
    return _LOST if any(change.loses_hit for change in changes) else 0
