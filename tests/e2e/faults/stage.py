"""A sidecar, its brokers, its DNS and its disk as processes in networks of their own, and both histories of a run.

The sidecar's namespace has the sockets that clients connect to, and a DNS server that only the sidecar asks. Each
broker has a namespace of its own, behind a bridge. A holder process keeps the sidecar's file systems, so that the
sidecar can be killed and started again with the same event log.
"""

import asyncio
import datetime
import gzip
import json
import os
import random
import signal
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import trustme
import yaml
from apiserver import ApiServer
from checker import Loss, Recorded
from histories import BROKERS, DOMAINS, Receipt, inside, outside, receipts
from marked_load import Load, Streams
from observed_broker import HTTP, HTTPS, PULSAR, Behaviour
from pod_networks import NodeNetwork
from processes import BIN, Process, started
from prometheus_client.parser import text_string_to_metric_families

HERE = Path(__file__).parent
PORTS = {"http": 8000, "https": 8001, "pulsar-external": 6650, "pulsar-partner": 6651, "pulsar-unnamed": 6652}
METRICS = 9090
DNS = "127.0.0.53"
EVENTS = Path("/mnt/events")
QUIET_SECONDS = 30
SHOW_SECONDS = 30
FLUSH_SECONDS = 0.2
"""events.flushMillis by default."""
WRITE_SECONDS = 1.0
"""What the write of a busy machine may take beyond it."""
TIED = ("/usr/bin/setpriv", "--pdeathsig", "KILL")


class Stage:
    def __init__(self, folder: Path, network: NodeNetwork) -> None:
        self.folder, self.network = folder, network
        self.settings: dict[str, Any] = {}
        """Of the config, beside those that all faults have in common."""
        self.variables: dict[str, str] = {}
        """Of the sidecar's environment."""
        self.ready = "serving"
        """What the sidecar says once it knows all it has to."""
        self.api_server: ApiServer
        """Of faults that need one."""
        self.is_secure = False
        """Whether the sidecar asks brokers by https."""
        self.losses: list[Loss] = []
        self.restarted = False
        self._authority = trustme.CA()
        self.sidecars: list[Process] = []
        self._pod, _ = network.pod()
        self._pods = [network.pod() for _ in range(BROKERS)]
        self.addresses = [address for _, address in self._pods]
        self.load = Load(self.connect, random.Random(7))
        self._brokers: dict[int, tuple[Process, AsyncExitStack]] = {}
        self._names: AsyncExitStack | None = None
        self.hosts = {inside(number): address for number, address in enumerate(self.addresses)}
        self._trust = ssl.create_default_context()
        self._authority.configure_trust(self._trust)
        self._authority.cert_pem.write_to_path(self.folder / "ca.pem")
        self.certify("clients", datetime.timedelta(days=1))
        self.certify("brokers", datetime.timedelta(days=1))

    def certify(self, use: str, lasts: datetime.timedelta) -> None:
        """Give the sidecar (`clients`) or all brokers a certificate that lasts so long; it may have ended."""
        names = DOMAINS.values() if use == "clients" else map(inside, range(BROKERS))
        now = datetime.datetime.now(datetime.UTC)
        made = self._authority.issue_cert(*names, not_before=now - datetime.timedelta(days=2), not_after=now + lasts)
        for path, data in zip(
            self._certificate(use),
            (b"".join(pem.bytes() for pem in made.cert_chain_pems), made.private_key_pem.bytes()),
            strict=True,
        ):
            new = path.with_suffix(".new")
            new.write_bytes(data)
            new.replace(path)

    def _certificate(self, use: str) -> tuple[Path, Path]:
        return self.folder / f"{use}.crt", self.folder / f"{use}.key"

    # Brokers

    async def start_broker(self, number: int) -> None:
        stack = AsyncExitStack()
        pod, _ = self._pods[number]
        process = await stack.enter_async_context(
            started(
                *TIED,
                "/usr/bin/nsenter",
                f"--net={pod.path}",
                "--",
                BIN / "python",
                HERE / "observed_broker.py",
                str(number),
                self._log(number),
                self._behaviour(number),
                *self._certificate("brokers"),
                says="listening",
            )
        )
        self._brokers[number] = process, stack

    async def kill_broker(self, number: int) -> None:
        _, stack = self._brokers.pop(number)
        await stack.aclose()

    def signal_broker(self, number: int, what: signal.Signals) -> None:
        os.kill(self._brokers[number][0].pid, what)

    def behave(self, behaviour: Behaviour, *brokers: int) -> None:
        """From the next request on; without a number, all do."""
        for number in brokers or range(BROKERS):
            new = self.folder / "behaviour"
            new.write_text(behaviour)
            new.replace(self._behaviour(number))

    async def move_broker(self, number: int) -> None:
        """Start it at another address, which DNS does not know yet."""
        await self.kill_broker(number)
        pod, address = self.network.pod()
        self._pods[number], self.addresses[number] = (pod, address), address
        await self.start_broker(number)

    def _log(self, number: int) -> Path:
        return self.folder / f"broker-{number}.jsonl"

    def _behaviour(self, number: int) -> Path:
        return self.folder / f"behaviour-{number}"

    # DNS

    async def start_names(self, hosts: Mapping[str, str], seconds: float = 0) -> None:
        """Answer with these from now on, each time after so many seconds."""
        await self.stop_names()
        file = self.folder / "hosts"
        file.write_text("".join(f"{address} {name}\n" for name, address in hosts.items()))
        self._names = AsyncExitStack()
        await self._names.enter_async_context(
            started(
                *TIED,
                "/usr/bin/nsenter",
                f"--net={self._pod.path}",
                "--",
                BIN / "python",
                HERE.parent / "pulsar_cluster/names_server.py",
                DNS,
                file,
                str(seconds),
                says="answering",
            )
        )

    async def stop_names(self) -> None:
        if self._names is not None:
            await self._names.aclose()
            self._names = None

    # The sidecar

    @property
    def sidecar(self) -> Process:
        return self.sidecars[-1]

    async def start_sidecar(self) -> None:
        self._sidecar = AsyncExitStack()
        process = await self._sidecar.enter_async_context(
            started(
                *TIED,
                "/usr/bin/nsenter",
                f"--net={self._pod.path}",
                f"--mount=/proc/{self._holder.pid}/ns/mnt",
                "--",
                BIN / "pulsar-ingress-proxy",
                "run",
                "--config",
                self._config,
                says=self.ready,
                **self.variables,
            )
        )
        self.sidecars.append(process)

    async def kill_sidecar(self) -> None:
        """SIGKILL; what was not written by then is lost."""
        begin = monotonic() - FLUSH_SECONDS - WRITE_SECONDS
        await self._sidecar.aclose()
        self.losses.append(Loss(begin, monotonic()))
        self.restarted = True

    @property
    def _config(self) -> Path:
        return self.folder / "config.yaml"

    def write_config(self, settings: Mapping[str, Any] | None = None) -> None:
        """Replace the file, which the sidecar may read at any moment."""
        new = self.folder / "new.yaml"
        new.write_text(yaml.safe_dump({**self._common(), **(self.settings if settings is None else settings)}))
        new.replace(self._config)

    def ingress(self, listener: str) -> dict[str, Any]:
        host = DOMAINS[listener]
        return {"name": listener, "hosts": [host, f"*.{host}"], "listener": listener, "allowedListeners": [listener]}

    def _common(self) -> dict[str, Any]:
        return {
            "bindAddresses": [
                f"http://127.0.0.1:{PORTS['http']}",
                f"https://127.0.0.1:{PORTS['https']}",
                *(f"{name}:pulsar://127.0.0.1:{PORTS[f'pulsar-{name}']}" for name in DOMAINS),
                f"pulsar://127.0.0.1:{PORTS['pulsar-unnamed']}",
            ],
            "tls": dict(zip(("certificate", "key"), map(str, self._certificate("clients")), strict=True)),
            "brokers": {
                "webServiceUrl": [self._web(number) for number in range(BROKERS)],
                "brokerServiceUrl": [f"pulsar://{inside(number)}:{PULSAR}" for number in range(BROKERS)],
                "tls": {"ca": str(self.folder / "ca.pem")},
            },
            "ingresses": [*map(self.ingress, DOMAINS)],
            "advertisedListeners": [
                {
                    "broker": inside(number),
                    "listeners": [
                        f"internal:{self._web(number)}",
                        f"internal:pulsar://{inside(number)}:{PULSAR}",
                        *(f"{name}:{url}" for name in DOMAINS for url in sorted(outside(name, number))),
                    ],
                }
                for number in range(BROKERS)
            ],
            "redirects": {"lookup": "auto", "admin": "follow"},
            "leaks": "block",
            "miss": "reject",
            "timeouts": {"connect": 1, "lookup": 1.5, "request": 2},
            "events": {"path": str(EVENTS), "rotateSeconds": 2},
            "metrics": {"address": f"127.0.0.1:{METRICS}"},
            "console": {"address": None},
            "drainSeconds": 2,
            "log": {"format": "text"},
        }

    def _web(self, number: int) -> str:
        return f"https://{inside(number)}:{HTTPS}" if self.is_secure else f"http://{inside(number)}:{HTTP}"

    async def connect(self, name: str) -> Streams:
        sock = self._pod.socket()
        try:
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", PORTS[name]))
            if name == "https":
                return await asyncio.open_connection(sock=sock, ssl=self._trust, server_hostname=DOMAINS["external"])
            return await asyncio.open_connection(sock=sock)
        except BaseException:
            sock.close()
            raise

    async def metrics(self) -> dict[str, float]:
        """The sum of all samples of each name, and of each name and value of a label."""
        sock = self._pod.socket()
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", METRICS))
        reader, writer = await asyncio.open_connection(sock=sock)
        writer.write(b"GET /metrics HTTP/1.0\r\nHost: sidecar\r\n\r\n")
        text = (await reader.read()).decode().partition("\r\n\r\n")[2]
        writer.close()
        sums: dict[str, float] = defaultdict(float)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                sums[sample.name.removeprefix("pulsar_ingress_")] += sample.value
                for value in sample.labels.values():
                    sums[f"{sample.name.removeprefix('pulsar_ingress_')} {value}"] += sample.value
        return sums

    async def close(self) -> None:
        """End all processes."""
        if self.sidecars:
            await self._sidecar.aclose()
        for number in [*self._brokers]:
            await self.kill_broker(number)
        await self.stop_names()

    async def shows(self, log: str, metric: str, more_than: float) -> None:
        """Wait until the log says this, and the metric is above that."""
        async with asyncio.timeout(SHOW_SECONDS):
            await self.sidecar.says(log)
            while metric and (await self.metrics())[metric] <= more_than:
                await self.load.more(1)

    # What remains of a run

    async def recorded(self) -> Recorded:
        """Stop the sidecar once all is quiet, and read what it wrote."""
        until = monotonic() + QUIET_SECONDS
        while True:
            shown = await self.metrics()
            if not (shown["in_flight_requests"] or shown["connections"]) or monotonic() > until:
                break
            await asyncio.sleep(0.1)  # metrics tell nobody
        code = await self.sidecar.end()
        assert code == 0, f"the sidecar ended with {code}:\n{self.output}"
        return Recorded(
            events=[*self._events()],
            requests=None
            if self.restarted
            else {kind: int(shown[f"requests_total {kind}"]) for kind in ("lookup", "admin", "other")},
            dropped=int(shown["events_dropped_total"]),
            in_flight=int(shown["in_flight_requests"]),
            connections=int(shown["connections"]),
            buffered=int(shown["buffered_bytes"]),
        )

    @property
    def output(self) -> str:
        return "".join(sidecar.output for sidecar in self.sidecars)

    def received(self) -> list[Receipt]:
        return [*receipts([self._log(number) for number in range(BROKERS)])]

    @property
    def events(self) -> Path:
        """The folder of the event log, through the holder, as the mount is in no other namespace."""
        return Path(f"/proc/{self._holder.pid}/root{EVENTS}")

    def _events(self) -> Iterator[dict[str, Any]]:
        for path in sorted(self.events.glob("[!.]*.jsonl.gz")):
            with gzip.open(path, "rt") as lines:
                yield from map(json.loads, lines)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """The file systems that the sidecar sees: a small disk for its events, and its own resolver."""
        resolver, switch = self.folder / "resolv.conf", self.folder / "nsswitch.conf"
        resolver.write_text(f"nameserver {DNS}\n")
        switch.write_text("hosts: dns\n")
        script = (
            f"mount --bind {resolver} /etc/resolv.conf; mount --bind {switch} /etc/nsswitch.conf; "
            f"mount -t tmpfs -o size=8m disk /mnt; echo holding >&2; exec sleep infinity"
        )
        async with started(
            *TIED, "/usr/bin/unshare", "--mount", "--propagation", "private", "/bin/sh", "-ec", script, says="holding"
        ) as self._holder:
            yield


Prepared = Callable[[Stage], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def staged(folder: Path, prepared: Prepared) -> AsyncIterator[Stage]:
    """All that runs, without load."""
    network = NodeNetwork(folder / "network")
    try:
        stage = Stage(folder, network)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(stage.held())
            stack.push_async_callback(stage.close)
            await stack.enter_async_context(prepared(stage))
            stage.behave(Behaviour.USUAL)
            await asyncio.gather(*(stage.start_broker(number) for number in range(BROKERS)))
            await stage.start_names(stage.hosts)
            stage.write_config()
            await stage.start_sidecar()
            yield stage
    finally:
        network.close()
