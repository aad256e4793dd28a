"""The command line. Each command opens a session, does its work elsewhere, and prints; no tracebacks."""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from pulsar_ingress_pipeline.faults import Busy, PipelineFault
from pulsar_ingress_proxy import __version__
from pulsar_ingress_proxy.config import ConfigFaults, load

if TYPE_CHECKING:  # Spark takes a second to import, which --help need not wait for
    from pulsar_ingress_pipeline.progress import Progress
    from pulsar_ingress_pipeline.runner import Runner

Command = Callable[[argparse.Namespace], int]

_LOST, _FAULT, _BUSY = 1, 2, 3
_PACKAGES = ("pyspark", "py4j", "pyarrow", "numpy", "deltalake", "jinja2")
"""Those of the extra `pipeline`."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    for name in ("py4j", "DataFrameQueryContextLogger", "SQLQueryContextLogger"):  # what they say is in the fault
        logging.getLogger(name).setLevel(logging.CRITICAL)
    command: Command = options.command
    try:
        return command(options)
    except Busy as fault:
        print(fault, file=sys.stderr)
        return _BUSY
    except (PipelineFault, ConfigFaults) as fault:
        print(fault, file=sys.stderr)
        return _FAULT
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pulsar-ingress-pipeline",
        description="The sidecars' events become tables, and tables become config to paste.",
        epilog="Folders: paths or URLs of object stores (s3://, gs://, abfss://); credentials are in the environment.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(name: str, run: Command, text: str, *options: str, more: str = "") -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}. {more}".rstrip())
        command.set_defaults(command=run, name=name)
        if "--master" in options:
            where = command.add_mutually_exclusive_group()
            where.add_argument("--master", metavar="URL", help="the Spark master; this machine if not given: local[*]")
            where.add_argument("--remote", metavar="URL", help="a Spark Connect server instead: sc://HOST:15002")
        if "--events" in options:
            command.add_argument("--events", required=True, metavar="PATH", help="folder of the event files")
        if "--tables" in options:
            command.add_argument("--tables", required=True, metavar="PATH", help="folder of the tables")
        return command

    batch = add(
        "run", _run, "take all event files into the tables", "--master", "--events", "--tables",
        more="Running it again changes nothing. Exits 3 if another command has committed to the tables meanwhile.",
    )  # fmt: skip
    batch.set_defaults(once=False, metrics_address=None)
    batch.add_argument("--metrics-file", metavar="PATH", help="write metrics there at the end")
    streaming = add(
        "stream", _stream, "keep the tables current as files come", "--master", "--events", "--tables",
        more="SIGTERM ends it after its batch.",
    )  # fmt: skip
    streaming.add_argument("--once", action="store_true", help="take what is there and exit")
    pause = "between two looks; 10 if not given"
    streaming.add_argument("--pause", type=_seconds, default=10.0, metavar="SECONDS", help=pause)
    streaming.add_argument("--metrics-address", metavar="HOST:PORT", help="serve /metrics there")
    streaming.add_argument("--metrics-file", metavar="PATH", help="write metrics there at the end, with --once")
    reporting = add("report", _report, "write the tables as one HTML file, with plots, to be read offline", "--tables")
    reporting.add_argument("--out", required=True, metavar="FILE", help="the file; one that is there is replaced")
    since = "an earlier report, to say what has changed; the one that is replaced if not given"
    reporting.add_argument("--since", metavar="FILE", help=since)
    reporting.add_argument("--days", type=_positive, metavar="DAYS", help="the newest days only; all if not given")
    reporting.add_argument("--config", metavar="FILE", help="a config, to say which of its hosts nobody asks for")
    suggestion = add(
        "suggest", _suggest, "print config to paste: what misses and unmapped redirects ask for", "--tables"
    )
    suggestion.add_argument("--config", metavar="FILE", help="the config that it is for; what it has is not suggested")
    support = "what was seen less often is left out; 10 if not given"
    suggestion.add_argument("--support", type=_positive, default=10, metavar="COUNT", help=support)
    keeping = add(
        "maintain", _maintain, "merge small files of the tables and remove those that no version has", "--tables",
        more="`stream` does it once a day by itself, `run` after every 24th version.",
    )  # fmt: skip
    retained = "what a version had that is younger stays readable; 168 if not given"
    keeping.add_argument("--retain-hours", type=_positive, default=168, metavar="HOURS", help=retained)
    exporting = add("export", _export, "write the tables as plain Parquet files", "--tables")
    exporting.add_argument("--out", required=True, metavar="FOLDER", help="a new folder, of a folder for each table")
    again = add(
        "replay", _replay, "say which recorded requests another config would decide differently",
        "--master", "--events", more="Exits 1 if a hit would become a miss.",
    )  # fmt: skip
    again.add_argument("--config", required=True, metavar="NEW.yaml", help="the other config")
    return parser


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return number


def _run(options: argparse.Namespace) -> int:
    return _work(options, lambda runner, _: runner.run())


def _stream(options: argparse.Namespace) -> int:
    from pulsar_ingress_pipeline.runner import stream

    if options.metrics_file is not None and not options.once:
        raise PipelineFault("--metrics-file: is for --once; without an end it is --metrics-address")
    return _work(options, lambda runner, progress: stream(runner, progress, options.once, options.pause))


def _work(options: argparse.Namespace, command: "Callable[[Runner, Progress], None]") -> int:
    from pulsar_ingress_pipeline.metrics import PipelineMetrics, exposed
    from pulsar_ingress_pipeline.progress import Progress
    from pulsar_ingress_pipeline.runner import Runner
    from pulsar_ingress_pipeline.session import lazy_session

    metrics = PipelineMetrics("once" if options.once else options.name)
    is_service = options.name == "stream" and not options.once
    with (
        exposed(metrics, options.metrics_address, options.metrics_file),
        Progress() as progress,
        lazy_session(options.master, options.remote, progress.watch) as spark,
    ):
        runner = Runner(options.events, options.tables, spark, progress, metrics, is_service)
        command(runner, progress)
    print(f"{options.tables}: {runner}", flush=True)
    return 0


def _maintain(options: argparse.Namespace) -> int:
    from pulsar_ingress_pipeline.lake import maintenance
    from pulsar_ingress_pipeline.lake.storage import Storage

    for line in maintenance.maintain(Storage.of(options.tables), options.retain_hours):
        print(line, flush=True)
    return 0


def _export(options: argparse.Namespace) -> int:
    from pulsar_ingress_pipeline.lake.reader import export
    from pulsar_ingress_pipeline.lake.storage import Storage

    for line in export(Storage.of(options.tables), options.out):
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
    from pulsar_ingress_pipeline.lake.reader import Lake

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
    """What is being done, for the person who waits at a terminal."""
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
