"""The command line. Each command opens a session, does its work elsewhere, and prints; no tracebacks."""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from pulsar_ingress_pipeline.faults import Busy, PipelineFault
from pulsar_ingress_proxy import __version__
from pulsar_ingress_proxy.config import ConfigFaults, load

if TYPE_CHECKING:  # Spark takes a second to import, which --help need not wait for
    from pulsar_ingress_pipeline.progress import Progress
    from pulsar_ingress_pipeline.working import Work

_LOST, _FAULT, _BUSY = 1, 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    for name in ("py4j", "DataFrameQueryContextLogger", "SQLQueryContextLogger"):  # what they say is in the fault
        logging.getLogger(name).setLevel(logging.CRITICAL)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except Busy as fault:
        print(fault, file=sys.stderr)
        return _BUSY
    except (PipelineFault, ConfigFaults) as fault:
        print(fault, file=sys.stderr)
        return _FAULT
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] not in ("pyspark", "py4j", "pyarrow", "numpy"):
            raise
        print("Spark is not installed: pip install 'pulsar-ingress-proxy[pipeline]'", file=sys.stderr)
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
        epilog="Folders are local or URLs that Spark's Hadoop knows: s3a://, gs://, hdfs://.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(name: str, run: Callable[[argparse.Namespace], int], text: str, more: str = "") -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}. {more}".rstrip())
        command.set_defaults(command=run, name=name)
        where = command.add_mutually_exclusive_group()
        where.add_argument("--master", metavar="URL", help="the Spark master; this machine if not given: local[*]")
        where.add_argument("--remote", metavar="URL", help="a Spark Connect server instead: sc://HOST:15002")
        return command

    def add_taking(
        name: str, run: Callable[[argparse.Namespace], int], text: str, more: str = ""
    ) -> argparse.ArgumentParser:
        command = add(name, run, text, more)
        command.add_argument("--events", required=True, metavar="PATH", help="folder of the event files")
        command.add_argument("--tables", required=True, metavar="PATH", help="folder of the tables")
        command.add_argument(
            "--id-horizon-days", type=_positive, metavar="DAYS",
            help="how far back an id is looked for, before the oldest event that is new; all the way if not given",
        )  # fmt: skip
        return command

    batch = add_taking(
        "run",
        _run,
        "take all event files into the tables",
        "Running it again changes nothing. Exits 3 where another works.",
    )
    batch.set_defaults(once=False, metrics_address=None)
    batch.add_argument("--from", dest="start", metavar="TIME", help="make the hours from this one on anew, UTC")
    batch.add_argument("--to", dest="end", metavar="TIME", help="up to this one, which is not among them")
    streaming = add_taking(
        "stream", _stream, "keep the tables current as files come", "SIGTERM ends it after its batch."
    )
    streaming.add_argument("--once", action="store_true", help="take what is there and exit")
    streaming.add_argument(
        "--pause", type=_seconds, default=10.0, metavar="SECONDS", help="between two looks; 10 if not given"
    )
    streaming.add_argument("--metrics-address", metavar="HOST:PORT", help="serve /metrics there")
    for command, when in ((batch, ""), (streaming, ", with --once")):
        command.add_argument("--metrics-file", metavar="PATH", help=f"write metrics there at the end{when}")
    reporting = add("report", _report, "write the tables as one HTML file, with plots, to be read offline")
    reporting.add_argument("--tables", required=True, metavar="PATH", help="folder of the tables")
    reporting.add_argument("--out", required=True, metavar="FILE", help="the file; one that is there is replaced")
    reporting.add_argument(
        "--since",
        metavar="FILE",
        help="an earlier report, to say what has changed; the one that is replaced if not given",
    )
    reporting.add_argument("--days", type=_positive, metavar="DAYS", help="the newest days only; all if not given")
    reporting.add_argument("--config", metavar="FILE", help="a config, to say which of its hosts nobody asks for")
    suggestion = add("suggest", _suggest, "print config to paste: what misses and unmapped redirects ask for")
    suggestion.add_argument("--tables", required=True, metavar="PATH", help="folder of the tables")
    suggestion.add_argument("--config", metavar="FILE", help="the config that it is for; what it has is not suggested")
    suggestion.add_argument(
        "--support",
        type=_positive,
        default=10,
        metavar="COUNT",
        help="what was seen less often is left out; 10 if not given",
    )
    again = add(
        "replay", _replay, "say which recorded requests another config would decide differently",
        "Exits 1 if a hit would become a miss.",
    )  # fmt: skip
    again.add_argument("--events", required=True, metavar="PATH", help="folder of the event files")
    again.add_argument("--config", required=True, metavar="NEW.yaml", help="the other config")
    return parser


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def _seconds(text: str) -> float:
    if not 0 <= (number := float(text)) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a time to wait")
    return number


def _run(options: argparse.Namespace) -> int:
    from pulsar_ingress_pipeline import working

    span = _span(options)
    return _work(options, lambda work, progress: working.run(work, progress, span))


def _stream(options: argparse.Namespace) -> int:
    from pulsar_ingress_pipeline import working

    if options.metrics_file is not None and not options.once:
        raise PipelineFault("--metrics-file: is for --once; without an end it is --metrics-address")
    return _work(options, lambda work, progress: working.stream(work, progress, options.once, options.pause))


def _work(options: argparse.Namespace, command: "Callable[[Work, Progress], None]") -> int:
    from pulsar_ingress_pipeline.metrics import PipelineMetrics, exposed
    from pulsar_ingress_pipeline.progress import Progress
    from pulsar_ingress_pipeline.session import session
    from pulsar_ingress_pipeline.storage import SPARK_FAULTS, cause
    from pulsar_ingress_pipeline.working import Work

    metrics = PipelineMetrics("once" if options.once else options.name)
    with (
        exposed(metrics, options.metrics_address, options.metrics_file),
        session(options.master, remote=options.remote) as spark,
    ):
        try:
            with (
                Work.on(spark, options.events, options.tables, options.name, options.id_horizon_days, metrics) as work,
                Progress(spark) as progress,
            ):
                command(work, progress)
        except SPARK_FAULTS as error:
            raise PipelineFault(f"Spark: {cause(error)}") from None
    print(f"{options.tables}: {work.total}" if work.total.commits else f"{options.tables}: nothing new", flush=True)
    return 0


def _report(options: argparse.Namespace) -> int:
    from pulsar_ingress_pipeline import report
    from pulsar_ingress_pipeline.session import session
    from pulsar_ingress_pipeline.storage import SPARK_FAULTS, cause

    config = load(options.config) if options.config is not None else None
    with session(options.master, remote=options.remote) as spark:
        try:
            written = report.write(spark, options.tables, options.out, options.since, options.days, config=config)
        except SPARK_FAULTS as error:
            raise PipelineFault(f"Spark: {cause(error)}") from None
    print(f"{options.out}: {written.numbers.lookups if written.numbers else 0:,} lookups")
    return 0


def _suggest(options: argparse.Namespace) -> int:
    from pulsar_ingress_pipeline import suggest, unseen
    from pulsar_ingress_pipeline.session import session
    from pulsar_ingress_pipeline.storage import SPARK_FAULTS, Storage, cause, shown

    config = values = None
    if options.config is not None:
        config = load(options.config)
        values = yaml.safe_load(Path(options.config).read_text()) or {}
    with session(options.master, remote=options.remote) as spark:
        tables = Storage(spark, options.tables)
        if not tables.exists("misses"):
            raise PipelineFault(f"--tables {shown(tables.url)}: there are no tables; make them with `run`")
        try:
            evidence = suggest.read(spark, tables)
            quiet = unseen.read(spark, tables, config) if config is not None else []
        except SPARK_FAULTS as error:
            raise PipelineFault(f"Spark: {cause(error)}") from None
    print(suggest.as_yaml(suggest.suggest(evidence, values, options.support), options.support, quiet), end="")
    return 0


def _replay(options: argparse.Namespace) -> int:
    from pulsar_ingress_pipeline import replay
    from pulsar_ingress_pipeline.absorbing import is_event_file
    from pulsar_ingress_pipeline.session import session
    from pulsar_ingress_pipeline.storage import SPARK_FAULTS, Storage, cause, shown

    config = load(options.config)
    with session(options.master, remote=options.remote) as spark:
        source = Storage(spark, options.events)
        files = [file.url for file in source.tree() if is_event_file(file)]
        if not files:
            raise PipelineFault(f"--events {shown(source.url)}: there are no event files")
        try:
            total, changes, broken = replay.replay_files(spark, files, config)
        except SPARK_FAULTS as error:
            raise PipelineFault(f"Spark: {cause(error)}") from None
    for file, why in broken.items():
        print(f"{shown(file)}: {why}", file=sys.stderr)
    print(replay.as_text(total, changes))
    return _LOST if any(change.loses_hit for change in changes) else 0


def _span(options: argparse.Namespace) -> tuple[datetime, datetime] | None:
    from pulsar_ingress_pipeline.hours import read_time

    if options.start is None and options.end is None:
        return None
    start = read_time(options.start, "--from") if options.start is not None else datetime(1, 1, 1, tzinfo=UTC)
    end = read_time(options.end, "--to") if options.end is not None else datetime(9999, 1, 1, tzinfo=UTC)
    if start >= end:
        raise PipelineFault("--from must be before --to")
    return start, end


if __name__ == "__main__":
    sys.exit(main())
