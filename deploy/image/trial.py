"""The image on trial: a container before simulated brokers, run as in a pod, and a lookup through it."""

import asyncio
import json
import signal
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from deploy.image.base import Missing
from deploy.image.engines import Container, Image
from pulsar_ingress_proxy.demo.brokers import DemoCluster

CONFIG = "/etc/pulsar-ingress-proxy/config.yaml"
HOST = "pulsar.example.com"
TOPIC = "/lookup/v2/topic/persistent/public/default/orders"
READY_SECONDS = 60
POLL_SECONDS = 0.005


@dataclass(slots=True)
class Served:
    """A container that is ready."""

    cluster: DemoCluster
    container: Container
    process: asyncio.subprocess.Process
    port: int
    metrics_port: int
    start_seconds: float
    """From the command that starts it until /readyz is 200."""

    async def inside(self, *command: str) -> tuple[int, str]:
        """Run something in it, as its own user; the exit code, and all that was said."""
        return await ran(self.container.inside(*command))

    async def lookup(self) -> tuple[int, str]:
        """One, by the probe in the image itself."""
        url = f"http://127.0.0.1:{self.port}{TOPIC}"
        headers = ("--header", f"Host: {HOST}", "--header", "X-Forwarded-Proto: https")
        return await self.inside("pulsar-ingress-proxy", "probe", "--lookup", url, *headers)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    async def said(self, text: str) -> str:
        """The next line of its log that has this."""
        assert self.process.stderr is not None
        while line := (await asyncio.wait_for(self.process.stderr.readline(), 60)).decode():
            if text in line:
                return line
        raise EOFError(f"it ended without saying {text!r}")

    async def ended(self) -> tuple[int, str]:
        """The exit code, and the rest of the log."""
        _, log = await asyncio.wait_for(self.process.communicate(), 60)
        assert self.process.returncode is not None
        return self.process.returncode, log.decode()


@asynccontextmanager
async def serving(image: Image, variables: Mapping[str, str] | None = None, **keys: Any) -> AsyncIterator[Served]:
    """A container of the image with these keys of the config, before three brokers."""
    async with DemoCluster({"external": HOST}) as cluster:
        port, metrics_port = _free_ports(2)
        config = {
            "bindAddresses": [f"http://127.0.0.1:{port}"],
            "brokers": {"webServiceUrl": [broker.web for broker in cluster.brokers]},
            "ingresses": [{"name": "public", "hosts": [HOST, f"*.{HOST}"], "listener": "external"}],
            "advertisedListeners": [
                {
                    "broker": broker.name,
                    "listeners": f"internal:{broker.web},external:https://broker-{broker.index}.{HOST},"
                    f"external:pulsar+ssl://broker-{broker.index}.{HOST}:{6651 + broker.index}",
                }
                for broker in cluster.brokers
            ],
            "metrics": {"address": f"127.0.0.1:{metrics_port}"},
            **keys,
        }
        with tempfile.TemporaryDirectory() as folder:
            container = image.container(mounted(Path(folder), json.dumps(config)), variables)
            started = time.perf_counter()
            process = await asyncio.create_subprocess_exec(
                *container.run(), stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
            )
            try:
                await _ready(f"http://127.0.0.1:{metrics_port}/readyz", process)
                yield Served(cluster, container, process, port, metrics_port, time.perf_counter() - started)
            finally:
                if process.returncode is None:
                    process.send_signal(signal.SIGTERM)
                    await asyncio.wait_for(process.communicate(), 60)


def mounted(folder: Path, config: str) -> dict[Path, str]:
    """A config as a ConfigMap brings it: a folder that the container's user may read."""
    folder.chmod(0o755)
    file = folder / Path(CONFIG).name
    file.write_text(config)
    file.chmod(0o644)
    return {folder: str(Path(CONFIG).parent)}


async def ran(command: list[str], seconds: float = 60) -> tuple[int, str]:
    """The exit code, and all that was said."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await asyncio.wait_for(process.communicate(), seconds)
    assert process.returncode is not None
    return process.returncode, said.decode()


async def _ready(url: str, process: asyncio.subprocess.Process) -> None:
    """Ask until it is; nothing tells of it from outside."""
    assert process.stderr is not None
    async with aiohttp.ClientSession() as session, asyncio.timeout(READY_SECONDS):
        while True:
            try:
                async with session.get(url) as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            if process.returncode is not None:
                raise Missing(
                    f"the container ended with {process.returncode}: {(await process.stderr.read()).decode()}"
                )
            await asyncio.sleep(POLL_SECONDS)


def _free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports
