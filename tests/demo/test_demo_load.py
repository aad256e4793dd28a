"""The demo while it runs: it says where the console is, and that has something of everything to show."""

import asyncio
import io
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

import pulsar_ingress_pipeline.cli
from pulsar_ingress_proxy.cli import main
from pulsar_ingress_proxy.config import load as load_config
from pulsar_ingress_proxy.demo import load, show
from pulsar_ingress_proxy.demo.brokers import DemoCluster
from pulsar_ingress_proxy.routing.snapshot import build
from pulsar_ingress_proxy.tools.config_warnings import config_warnings


class Output(io.StringIO):
    """What is printed, for a test to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self._more = asyncio.Event()

    def write(self, text: str) -> int:
        self._more.set()
        return super().write(text)

    async def until(self, text: str) -> str:
        while text not in self.getvalue():
            self._more.clear()
            await self._more.wait()
        return self.getvalue()


async def test_running_demo_has_hits_misses_redirects_a_leak_and_a_sound_config(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(load, "PAUSE", 0)
    output = Output()
    monkeypatch.setattr(sys, "stdout", output)
    ended = asyncio.Event()
    demo = asyncio.create_task(show.run(False, ended))
    async with asyncio.timeout(50), ClientSession() as session:
        said = await output.until("Running until Ctrl-C")
        console = re.search(r"the console +(http://127\.0\.0\.1:\d+/)", said)
        metrics = re.search(r"the metrics +(http://127\.0\.0\.1:\d+/metrics)", said)
        assert console is not None
        assert metrics is not None

        async def api(path: str) -> Any:
            async with session.get(f"{console[1]}api/{path}") as answer:
                return await answer.json()

        counts: dict[str, int] = {}
        while counts.get("requests", 0) < 200:
            counts = (await api("status"))["counts"]
        assert counts["hits"] > 100
        assert counts["misses"] > 1
        assert counts["redirects"] > 1
        assert counts["leaks"] == 1
        assert counts["failures"] == 0
        findings = await api("findings")
        assert (findings["conflicts"], findings["warnings"]) == ([], [])
        assert [one["cause"] for one in (await api("generations"))["generations"]] == ["reload", "start"]
        while (check := await api("reachability"))["checkedAt"] is None:
            pass
        assert (check["reachable"], check["unreachable"], check["notJudged"]) == (6, 0, 12)
        assert len((await api("ingresses"))["ingresses"]) == 2
        async with session.get(metrics[1]) as answer:
            assert "pulsar_ingress_leaks_total{" in await answer.text()
    ended.set()
    assert await demo


async def test_neither_config_of_the_demo_gives_warnings(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    async with DemoCluster({}) as cluster:
        show._write(file, show._config(cluster, (18080, 19090, 19091), None))
        assert list(config_warnings(build(load_config(file, {})))) == []
        show._add_partners(file)
        assert list(config_warnings(build(load_config(file, {})))) == []


def test_events_option_keeps_the_events_and_prints_commands_of_the_pipeline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "my events"
    assert main(["demo", "--once", "--events", str(folder)]) == 0
    assert [path.name for path in folder.iterdir() if not path.name.endswith((".jsonl", ".jsonl.gz"))] == []
    commands = [
        shlex.split(line) for line in capsys.readouterr().out.splitlines() if "pulsar-ingress-pipeline " in line
    ]
    assert [command[1] for command in commands] == ["run", "report", "suggest"]
    taken = [pulsar_ingress_pipeline.cli.make_parser().parse_args(command[1:]) for command in commands]
    assert taken[0].events == str(folder)
    assert {options.tables for options in taken} == {f"{folder}-tables"}


def test_events_folder_that_cannot_be_made_exits_2_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["demo", "--once", "--events", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err == f"--events {tmp_path / 'file'}: File exists\n"
