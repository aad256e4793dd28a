"""The demo while it runs: it says where the console is, and that has something of everything to show."""

import asyncio
import io
import re
import sys
from typing import Any

import pytest
from aiohttp import ClientSession

from pulsar_ingress_proxy.demo import load, show


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


async def test_running_demo_shows_hits_misses_redirects_a_leak_and_conflicts(monkeypatch: pytest.MonkeyPatch) -> None:
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
        assert (await api("brokers"))["conflicts"]
        assert [one["cause"] for one in (await api("generations"))["generations"]] == ["discovery", "reload", "start"]
        assert len((await api("doors"))["doors"]) == 2
        async with session.get(metrics[1]) as answer:
            assert "pulsar_ingress_leaks_total{" in await answer.text()
    ended.set()
    assert await demo
