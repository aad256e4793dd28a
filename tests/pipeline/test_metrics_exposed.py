"""Metrics of the pipeline: served while it works, or written when it ends, whatever end that is."""

import functools
import os
import signal
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from made_events import FEW, Tables, event, write
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from pulsar_ingress_pipeline import runner as runner_module
from pulsar_ingress_pipeline.cli import main
from pulsar_ingress_pipeline.faults import Busy, PipelineFault
from pulsar_ingress_pipeline.ingest.batches import Taken
from pulsar_ingress_pipeline.lake.table import LakeTable
from pulsar_ingress_pipeline.metrics import PipelineMetrics, exposed
from pulsar_ingress_pipeline.progress import Progress
from pulsar_ingress_pipeline.runner import Runner, stream
from pulsar_ingress_pipeline.tables import DERIVED
from pulsar_ingress_pipeline.tables.derivation import Derivation
from pulsar_ingress_proxy.observability.catalogue import PIPELINE, Pipeline


@pytest.fixture(autouse=True)
def few_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runner derives all tables, which takes most of the time."""
    few = [table for table in DERIVED if table.name in FEW]
    monkeypatch.setattr(runner_module, "Derivation", functools.partial(Derivation, derived=few))


def samples(text: str) -> dict[str, float]:
    """Our samples without labels, by their names without the prefix."""
    return {
        sample.name.removeprefix(PIPELINE): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith(PIPELINE) and not sample.labels
    }


def test_metrics_file_has_every_metric_of_the_catalogue(tmp_path: Path) -> None:
    metrics, file = PipelineMetrics("run"), tmp_path / "pipeline.prom"
    with exposed(metrics, None, str(file)):
        assert not file.exists()
        metrics.looked([10, 20])
        metrics.committed(Taken(files=2, lines=9, events=7, bad=1, newest=None), 2.5)
        metrics.know(1000.0, 900.0)
        metrics.wait([])
        metrics.succeeded(is_all=True)
    families = {family.name for family in text_string_to_metric_families(file.read_text())}
    assert families == {metric.name.removesuffix("_total") for metric in Pipeline.every()}
    seen = samples(file.read_text())
    assert seen["caught_up_timestamp_seconds"] == seen["last_look_timestamp_seconds"] > 1e9
    assert {name: seen[name] for name in ("files_total", "lines_total", "events_total", "quarantined_lines_total")} == {
        "files_total": 2, "lines_total": 9, "events_total": 7, "quarantined_lines_total": 1,
    }  # fmt: skip
    assert (seen["waiting_files"], seen["waiting_bytes"]) == (0, 0)
    assert (seen["last_attempt_successful"], seen["failures_total"]) == (1, 0)
    assert os.listdir(tmp_path) == ["pipeline.prom"]


def test_failure_is_written_to_the_metrics_file_and_a_busy_refusal_is_not(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.prom"
    with pytest.raises(Busy), exposed(PipelineMetrics("run"), None, str(file)):
        raise Busy("another works")
    assert not file.exists()
    with pytest.raises(PipelineFault, match="no Java"), exposed(PipelineMetrics("run"), None, str(file)):
        raise PipelineFault("no Java")
    seen = samples(file.read_text())
    assert (seen["failures_total"], seen["last_attempt_successful"], seen["commits_total"]) == (1, 0, 0)
    assert "last_commit_timestamp_seconds" not in seen


def test_metrics_are_served_only_while_the_command_runs(unused_tcp_port: int) -> None:
    metrics, address = PipelineMetrics("stream"), f"127.0.0.1:{unused_tcp_port}"
    with exposed(metrics, address, None):
        with urlopen(f"http://{address}/metrics") as answer:
            text = answer.read().decode()
        assert samples(text)["commits_total"] == 0
        assert "process_start_time_seconds" in text
        with (
            pytest.raises(PipelineFault, match=f"--metrics-address {address}: cannot be bound: Address already in use"),
            exposed(metrics, address, None),
        ):
            raise AssertionError("two at one address")
    with pytest.raises(OSError, match="refused"):
        urlopen(f"http://{address}/metrics")


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["stream", "--metrics-address", "9091"], "--metrics-address 9091: is not HOST:PORT"),
        (["stream", "--metrics-file", "x"], "--metrics-file: needs --once; without it, use --metrics-address"),
        (["run", "--metrics-file", "/nowhere/x.prom"], "--metrics-file /nowhere/x.prom: there is no such folder"),
    ],
)
def test_invalid_metrics_options_exit_2_before_spark_starts(
    arguments: list[str], fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--events", "e", "--tables", "t"]) == 2
    assert capsys.readouterr().err == f"{fault}\n"


class Ending(PipelineMetrics):
    """Ends the stream when there is nothing more to take."""

    def looked(self, sizes: Any) -> None:
        super().looked(sizes)
        if not sizes:
            os.kill(os.getpid(), signal.SIGTERM)


def test_stream_retries_after_a_failure_and_takes_every_event_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = Tables(spark, tmp_path / "events", tmp_path / "tables")
    write(tables.events, "1.jsonl", [event(number, number) for number in range(9)] + [b"bad\n"])
    commit, left = LakeTable.commit, [3]

    def failing(table: LakeTable, *rest: Any, **more: Any) -> None:
        left[0] -= 1
        if not left[0]:  # `events` and `quarantine` are committed, `files` is not
            raise PipelineFault("the store is away")
        commit(table, *rest, **more)

    monkeypatch.setattr(LakeTable, "commit", failing)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    metrics = Ending("stream")
    progress = Progress()
    try:
        stream(
            Runner(str(tables.events), str(tables.folder), lambda _: spark, progress, metrics), progress, False, 0.01
        )
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert "the store is away; trying again in 0 s" in capsys.readouterr().err
    assert len(tables.read("events")) == 9
    assert len(tables.read("quarantine")) == 1
    assert [number.values[()] for number in (metrics.failures, metrics.commits, metrics.quarantined)] == [1, 1, 1]
    assert metrics.last_attempt.values[()] == 1
    assert metrics.newest_event.values[()] == 1794819600 + 8


def test_event_and_commit_times_are_taken_from_tables_of_an_earlier_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Tables(spark, tmp_path / "events", tmp_path / "tables")
    write(tables.events, "1.jsonl", [event(1, 5)])
    progress = Progress()
    runner = Runner(str(tables.events), str(tables.folder), lambda _: spark, progress)
    later = PipelineMetrics("run")
    monkeypatch.setattr(runner_module, "VERSIONS", 1)
    runner.run()  # and maintain, which makes versions of its own
    write(tables.events, "2.jsonl", [event(2, 4)])
    runner.take_new()
    Runner(str(tables.events), str(tables.folder), lambda _: spark, progress, later)
    assert later.newest_event.values == runner.metrics.newest_event.values
    assert later.last_commit.values[()] == pytest.approx(runner.metrics.last_commit.values[()], abs=60)
    assert later.commits.values[()] == 0


def test_only_the_first_poll_commits_when_there_are_no_events(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = Tables(spark, tmp_path / "events", tmp_path / "tables")
    runner = Runner(str(tables.events), str(tables.folder), lambda _: spark, Progress())
    assert [runner.take_new() for _ in range(3)] == [False, False, False]
    assert runner.metrics.commits.values[()] == 1
    assert capsys.readouterr().err.count("version 0: 0 files") == 1
    for name in ("quarantine", "listener_windows", "misses", "owner_changes"):
        assert tables.rows(name) == []
        assert tables.read(name).column_names
