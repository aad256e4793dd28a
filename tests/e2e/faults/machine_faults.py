"""Faults of the sidecar itself, of its machine, and of what else it depends on."""

import asyncio
import datetime
import os
import resource
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import apiserver
from fault import fault, prepare
from histories import DOMAINS
from pod_networks import dial_machine
from stage import Stage

MANY = 3000
"""Connections of a storm."""
MORE = 8 << 20
"""Bytes."""
UPLOADS = 300
HEAD = b"PUT /admin/v2/x HTTP/1.1\r\nHost: pulsar.example.com\r\nContent-Length: 99999\r\n\r\n"
UPLOAD = HEAD + bytes(90_000)
"""Without its end."""
EXPIRED, VALID = datetime.timedelta(hours=-1), datetime.timedelta(days=1)
API_ADDRESS = "10.96.0.1"
"""Of the API server in its certificate: the first of the Services' addresses."""


@fault(
    "sidecar-killed",
    "The sidecar is killed (SIGKILL), and started again.",
    "A restart; counters begin at 0",
    is_quick=True,
)
async def _(stage: Stage) -> AsyncIterator[None]:
    await stage.kill_sidecar()
    yield
    await stage.start_sidecar()


@fault(
    "disk-full",
    "The disk of the event log is full.",
    '`events_dropped_total{reason="disk"}`; the log says when it begins and when it ends',
    is_quick=True,
    metric="events_dropped_total disk",
    log="No space left on device",
)
async def _(stage: Stage) -> AsyncIterator[None]:
    filler = stage.events.parent / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass  # full, which is the aim
    yield
    filler.unlink()


@fault(
    "reload-storm",
    "The config changes, becomes invalid and changes back 60 times, with SIGHUP each time, and is invalid in the end.",
    "`config_reloads_total`; an error for each invalid file",
    is_quick=True,
    metric="config_reloads_total failure",
)
async def _(stage: Stage) -> AsyncIterator[None]:
    variants: list[dict[str, Any]] = [
        {"redirects": {"lookup": "follow", "admin": "follow"}},
        {"redirects": {"lookup": "nonsense"}},
        {"timeouts": {"connect": 1, "lookup": 1, "request": 2}},
        {},
    ]
    for number in range(60):
        stage.write_config({**stage.settings, **variants[number % len(variants)]})
        os.kill(stage.sidecar.pid, signal.SIGHUP)
        await stage.load.more(5)
    stage.write_config({"redirects": {"lookup": "nonsense"}})  # stays until it was read: others may be replaced before
    yield
    stage.write_config()


@fault(
    "descriptors",
    "The sidecar may open no more files: its limit is lowered below what it has open.",
    "`process_open_fds` near `process_max_fds`; the log says `Too many open files`",
    log="Too many open files",
)
async def _(stage: Stage) -> AsyncIterator[None]:
    pid = stage.sidecar.pid
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    open_files = len(os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (open_files // 2, limits[1]))
    yield
    resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


@fault(
    "connection-storm",
    f"{MANY} clients connect at once and send nothing, half a head, or a head without its body.",
    '`requests_total{code="503"}` with reason `overloaded`, `connections`',
    metric="requests_total 503",
    prepared=prepare(lambda stage: stage.settings.update(limits={"connections": 500})),
)
async def _(stage: Stage) -> AsyncIterator[None]:
    beginnings = (b"", b"GET / HTT", HEAD)
    crowd = [await stage.connect("http") for _ in range(MANY)]
    for number, (_, writer) in enumerate(crowd):
        writer.write(beginnings[number % len(beginnings)])
    yield
    for _, writer in crowd:
        writer.transport.abort()


@fault(
    "memory",
    "The sidecar gets no more memory (cgroup) while 300 clients upload: the kernel kills it. It is started again.",
    "A restart, with reason `OOMKilled` in Kubernetes",
)
async def _(stage: Stage) -> AsyncIterator[None]:
    crowd = [await stage.connect("http") for _ in range(UPLOADS)]
    with limited(stage.sidecar.pid):
        for _, writer in crowd:
            writer.write(UPLOAD)
        await stage.sidecar.ended()
    await stage.kill_sidecar()
    yield
    await stage.start_sidecar()
    for _, writer in crowd:
        writer.transport.abort()


@contextmanager
def limited(pid: int) -> Iterator[None]:
    """A control group in which that process has no more than so many bytes beside those that it has already."""
    version_1 = Path("/sys/fs/cgroup/memory")
    parent, limit = (
        (version_1, "memory.limit_in_bytes") if version_1.exists() else (Path("/sys/fs/cgroup"), "memory.max")
    )
    group = parent / f"pulsar-e2e-{pid}"
    group.mkdir()
    try:
        (group / limit).write_text(str(MORE))
        (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        group.rmdir()


def fake_clock(stage: Stage) -> None:
    """libfaketime adds what the file says, and leaves the monotonic clock alone."""
    _clock(stage).write_text("+0")
    stage.variables |= {
        "LD_PRELOAD": "/usr/$LIB/faketime/libfaketime.so.1",
        "FAKETIME_TIMESTAMP_FILE": str(_clock(stage)),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def _clock(stage: Stage) -> Path:
    return stage.folder / "clock"


@fault(
    "clock-jumps",
    "The sidecar's clock jumps an hour ahead, then two hours back, then to the right time.",
    "Times in log and events",
    prepared=prepare(fake_clock),
)
async def _(stage: Stage) -> AsyncIterator[None]:
    for hours in (1, -1):
        _clock(stage).write_text(f"{hours * 3600:+}")
        # Files are named by the time at which they were begun.
        name = f"{datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=hours):%Y%m%dT%H}"
        async with asyncio.timeout(30):
            while not any(name in path.name for path in stage.events.iterdir()):
                await stage.load.more(1)
    yield
    _clock(stage).write_text("+0")


@fault(
    "certificate-expired",
    "The sidecar's certificate for https expires, and is replaced.",
    '`certificate_not_after_seconds{use="serve"}` is in the past',
)
async def _(stage: Stage) -> AsyncIterator[None]:
    stage.certify("clients", EXPIRED)
    async with asyncio.timeout(30):
        while not any(one.outcome == "unconnected" for one in stage.load.ended[-50:]):
            await stage.load.more(10)
    yield
    stage.certify("clients", VALID)


def secure(stage: Stage) -> None:
    stage.is_secure = True


@fault(
    "broker-certificate-expired",
    "The brokers' certificates expire, and are replaced.",
    "The log says `certificate has expired`",
    log="certificate has expired",
    prepared=prepare(secure),
)
async def _(stage: Stage) -> AsyncIterator[None]:
    stage.certify("brokers", EXPIRED)
    yield
    stage.certify("brokers", VALID)


@asynccontextmanager
async def discovering(stage: Stage) -> AsyncIterator[None]:
    """One of both ingresses is known to Kubernetes only."""
    async with apiserver.running(stage.folder / "control-plane") as server:
        token = server.token("admin")
        async with server.connected(token) as api:
            await api.apply(
                {
                    "apiVersion": "networking.k8s.io/v1",
                    "kind": "Ingress",
                    "metadata": {
                        "name": "partner",
                        "namespace": "default",
                        "annotations": {
                            "pulsar-ingress-proxy/listener": "partner",
                            "pulsar-ingress-proxy/allowed-listeners": "partner",
                        },
                    },
                    "spec": {
                        "rules": [{"host": host} for host in (DOMAINS["partner"], f"*.{DOMAINS['partner']}")],
                        "defaultBackend": {"service": {"name": "sidecar", "port": {"number": 8080}}},
                    },
                }
            )
        await stage.network.forward(API_ADDRESS, 443, partial(dial_machine, urlsplit(server.url)))
        kubeconfig = server.kubeconfig(stage.folder / "kubeconfig", token)
        kubeconfig.write_text(kubeconfig.read_text().replace(server.url, f"https://{API_ADDRESS}:443"))
        stage.variables["KUBECONFIG"] = str(kubeconfig)
        stage.settings["kubernetes"] = {"enabled": True, "brokerSelector": "app=broker"}
        stage.settings["ingresses"] = [stage.ingress("external")]
        stage.api_server, stage.ready = server, "by discovery"
        yield


@fault(
    "api-server-gone",
    "The Kubernetes API server, which alone knows one of two ingresses, is killed and started again.",
    '`discovery_synced` is 0, `discovery_restarts_total{reason="unreachable"}`',
    metric="discovery_restarts_total unreachable",
    prepared=discovering,
)
async def _(stage: Stage) -> AsyncIterator[None]:
    await stage.api_server.kill()
    yield
    await stage.api_server.start()
