"""A real Prometheus that scrapes every second and runs our rules, and its HTTP API."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import ClientSession
from processes import free_port, started
from prometheus_programs import programs

LOOK_AGAIN = 0.1  # seconds
PATIENCE = 30


class Prometheus:
    def __init__(self, session: ClientSession, url: str) -> None:
        self._session = session
        self.url = url

    async def api(self, path: str, **parameters: str) -> Any:
        async with self._session.get(f"{self.url}/api/v1/{path}", params=parameters) as response:
            answer = await response.json()
        assert answer["status"] == "success", f"{parameters}: {answer}"
        return answer["data"]

    async def query(self, expr: str) -> list[dict[str, Any]]:
        found = await self.api("query", query=expr)
        assert found["resultType"] == "vector", f"{expr}: {found}"
        return list(found["result"])

    async def number(self, expr: str) -> float | None:
        """Of a query that has one answer, or none."""
        found = await self.query(expr)
        assert len(found) <= 1, f"{expr}: {found}"
        return float(found[0]["value"][1]) if found else None

    async def until(self, expr: str, least: float, patience: float = PATIENCE) -> None:
        """Wait until it has seen that much; fails with what it has seen instead."""
        seen = None
        try:
            async with asyncio.timeout(patience):
                while (seen := await self.number(expr)) is None or seen < least:  # noqa: ASYNC110 - it tells nobody of a scrape
                    await asyncio.sleep(LOOK_AGAIN)
        except TimeoutError:
            raise AssertionError(f"{expr} is {seen} after {patience} s, not {least}") from None


@asynccontextmanager
async def scraping(
    jobs: Mapping[str, Mapping[str, str]], folder: Path, rules: Path, alertmanager: str | None = None
) -> AsyncIterator[Prometheus]:
    """Jobs, each with its instances and their addresses."""
    port = free_port()
    config = folder / "prometheus.yaml"
    told = [{"static_configs": [{"targets": [alertmanager]}]}] if alertmanager is not None else []
    config.write_text(
        yaml.safe_dump(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(rules)],
                "alerting": {"alertmanagers": told},
                "scrape_configs": [
                    {
                        "job_name": job,
                        "static_configs": [
                            {"targets": [address], "labels": {"instance": name}} for name, address in instances.items()
                        ],
                    }
                    for job, instances in jobs.items()
                ],
            }
        )
    )
    async with (
        started(
            programs().prometheus, f"--config.file={config}", f"--storage.tsdb.path={folder / 'prometheus'}",
            f"--web.listen-address=127.0.0.1:{port}", says="Server is ready to receive web requests",
        ),
        ClientSession() as session,
    ):  # fmt: skip
        yield Prometheus(session, f"http://127.0.0.1:{port}")
