"""From the event folder to object storage by deploy/events/ship.sh: a real rclone, sidecar and store that speaks S3."""

import gzip
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import duckdb
import pytest
import yaml
from gateway_stack import HOST, sidecar_config
from go_modules import RCLONE, built
from processes import BIN, Process, free_port, run, started
from simulated.cluster import SimulatedCluster

SCRIPT = Path(__file__).parents[3] / "deploy/events/ship.sh"
KEY, SECRET = "reader", "of-events"


@dataclass
class Store:
    """A bucket, and the folder that holds it."""

    port: int
    folder: Path

    def serving(self) -> AbstractAsyncContextManager[Process]:
        rclone = built(RCLONE)["rclone"]
        keys = f"{KEY},{SECRET}"
        address = f"127.0.0.1:{self.port}"
        return started(
            rclone, "serve", "s3", self.folder, "--addr", address, "--auth-key", keys, "-v", says="Starting s3 server"
        )

    @property
    def events(self) -> Path:
        return self.folder / "bucket/events"

    @property
    def ids(self) -> Counter[str]:
        """How often each event is there."""
        files = self.events.glob("*.jsonl.gz")
        lines = (line for file in files for line in gzip.decompress(file.read_bytes()).splitlines())
        return Counter(json.loads(line)["id"] for line in lines)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "store/bucket").mkdir(parents=True)
    return Store(free_port(), tmp_path / "store")


@dataclass
class Sidecar:
    """One that writes a file of events every second."""

    url: str
    events: Path
    process: Process

    async def lookups(self, number: int) -> set[str]:
        """As many, one after the other; their ids."""
        ids = set()
        headers = {"Host": HOST}
        async with aiohttp.ClientSession(headers=headers) as client:
            for _ in range(number):
                async with client.get(self.url, allow_redirects=False) as answer:
                    assert answer.status in (200, 307)
                    ids.add(answer.headers["X-Request-Id"])
        return ids

    @property
    def finished(self) -> list[Path]:
        return [file for file in self.events.glob("*.jsonl.gz") if not file.name.startswith(".")]


@pytest.fixture
async def sidecar(tmp_path: Path) -> AsyncIterator[Sidecar]:
    port, events, config = free_port(), tmp_path / "events", tmp_path / "config.yaml"
    async with SimulatedCluster(brokers=2) as cluster:
        settings = sidecar_config(cluster, 443, port, free_port())
        settings["events"] = {"path": str(events), "rotateSeconds": 1}
        config.write_text(yaml.safe_dump(settings))
        async with started(BIN / "pulsar-ingress-proxy", "run", "--config", config, says="serving") as process:
            url = f"http://127.0.0.1:{port}/lookup/v2/topic/persistent/public/default/orders"
            yield Sidecar(url, events, process)


def shipping(store: Store, sidecar: Sidecar, says: str, every: float = 0.2) -> AbstractAsyncContextManager[Process]:
    remote = {
        "TYPE": "s3",
        "PROVIDER": "Rclone",
        "ENDPOINT": f"http://127.0.0.1:{store.port}",
        "ACCESS_KEY_ID": KEY,
        "SECRET_ACCESS_KEY": SECRET,
    }
    rclone = built(RCLONE)["rclone"]
    return started(
        "/bin/sh", "-x", SCRIPT, says=says,
        PATH=f"{rclone.parent}:/usr/bin:/bin",
        RCLONE_CONFIG="/dev/null", RCLONE_RETRIES="1", RCLONE_LOW_LEVEL_RETRIES="1",
        EVENTS=str(sidecar.events), DESTINATION="store:bucket/events", EVERY=str(every),
        **{f"RCLONE_CONFIG_STORE_{key}": value for key, value in remote.items()},
    )  # fmt: skip


@pytest.mark.timeout(300)  # Spark starts
async def test_each_event_reaches_store_and_tables_once_although_the_shipper_is_killed(
    store: Store, sidecar: Sidecar
) -> None:
    async with store.serving():
        ids = await sidecar.lookups(40)
        for _ in range(3):  # killed wherever it is by then
            async with shipping(store, sidecar, says="rclone move") as shipper:
                ids |= await sidecar.lookups(20)
                await shipper.end(signal.SIGKILL)
        async with shipping(store, sidecar, says="rclone move") as shipper:
            ids |= await sidecar.lookups(20)
            assert await sidecar.process.end() == 0
            assert await shipper.end() == 0
        assert store.ids == Counter(ids)
        assert sidecar.finished == []
    tables = store.folder / "tables"
    code, _, said = await run(
        BIN / "pulsar-ingress-pipeline", "run", "--master", "local[1]", "--events", store.events, "--tables", tables
    )
    assert code == 0, said
    with duckdb.connect() as database:
        counted = database.execute(f"SELECT sum(hits) FROM '{tables}/listener_windows/*.parquet'").fetchone()
    assert counted == (len(ids),)


async def test_events_wait_while_the_store_is_down_and_ship_when_it_is_back(store: Store, sidecar: Sidecar) -> None:
    ids = await sidecar.lookups(10)
    async with shipping(store, sidecar, says="what is left is tried again") as shipper:
        await shipper.until(lambda: bool(sidecar.finished))
        ids |= await sidecar.lookups(10)
        async with store.serving():
            await shipper.until(lambda: store.ids == Counter(ids))


async def test_unfinished_event_files_are_not_shipped(store: Store, sidecar: Sidecar) -> None:
    sidecar.events.mkdir(exist_ok=True)
    unfinished = sidecar.events / ".20260101T000000.000000Z_another_1.jsonl.gz"
    unfinished.write_bytes(gzip.compress(b"{}\n"))
    ids = await sidecar.lookups(5)
    async with store.serving(), shipping(store, sidecar, says="rclone move") as shipper:
        await shipper.until(lambda: store.ids == Counter(ids))
    assert unfinished.exists()
