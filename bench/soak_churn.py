"""What changes during the soak test: the config, brokers, Kubernetes objects and their API server, certificates."""

import asyncio
import os
import random
import signal
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from time import monotonic

import trustme

from bench.processes import Child
from bench.soak_brokers import CONFIGURED, PODS, Brokers
from bench.soak_kubernetes import ApiServer, Objects
from bench.soak_tally import HOST


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds between two changes of a kind."""

    config: float = 10
    brokers: float = 10
    objects: float = 1
    watches: float = 30
    certificates: float = 20
    away: float = 2
    """Seconds until a broker comes back, or the API server."""
    unload: float = 0.5
    """Seconds until all bundles lose their owners, so that lookups are redirected again."""


class Certificates:
    """The certificate of the sidecar's sockets, replaced as the kubelet does it: by a symlink to another folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "current"
        self._authority = trustme.CA()
        self._parent = folder
        self._number = 0
        self.replace()

    def replace(self) -> None:
        self._number += 1
        made = self._parent / str(self._number)
        made.mkdir(parents=True)
        issued = self._authority.issue_cert(HOST)
        issued.private_key_pem.write_to_path(str(made / "tls.key"))
        issued.cert_chain_pems[0].write_to_path(str(made / "tls.crt"))
        self.newest = issued.cert_chain_pems[0].bytes().decode()
        link = self._parent / "next"
        link.symlink_to(made.name)
        link.replace(self.folder)

    def client_context(self) -> ssl.SSLContext:
        """Of clients, which trust the authority."""
        context = ssl.create_default_context()
        self._authority.configure_trust(context)
        return context


@dataclass(slots=True)
class Churn:
    """Goes on until it is stopped, and then leaves everything in its place: brokers run, the API server answers."""

    child: Child
    pace: Pace
    dice: random.Random
    brokers: Brokers
    api: ApiServer
    objects: Objects
    certificates: Certificates
    write_config: Callable[[bool], None]
    """Write the config file; redirects of lookups are followed, or rewritten."""
    changes: list[tuple[float, str]] = field(default_factory=list)
    """When which kind of thing changed, by time.monotonic."""
    _follow: bool = False
    _places: Iterator[int] = field(default_factory=lambda: cycle(range(CONFIGURED + PODS)))
    _faults: Iterator[str] = field(default_factory=lambda: cycle(("end", "forget", "away")))
    _stopped: asyncio.Event = field(default_factory=asyncio.Event)

    def run(self) -> list[asyncio.Task[None]]:
        works: list[Coroutine[None, None, None]] = [
            self._every(self.pace.unload, "", self._unload),
            self._every(self.pace.config, "config", self._reload),
            self._every(self.pace.brokers, "brokers", self._move_broker),
            self._every(self.pace.objects, "", self._change_object),
            self._every(self.pace.watches, "API server", self._disturb_watches),
            self._every(self.pace.certificates, "certificates", self._replace_certificate),
        ]
        return [asyncio.create_task(work) for work in works]

    def stop(self) -> None:
        """The socket that is open every other time is closed again, too."""
        self._stopped.set()
        self._follow = False
        self._adopt()

    async def _every(self, seconds: float, kind: str, change: Callable[[], Awaitable[None]]) -> None:
        while not await self._is_stopped_within(seconds):
            if kind:
                self.changes.append((monotonic(), kind))
            await change()

    async def _is_stopped_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        return self._stopped.is_set()

    async def _unload(self) -> None:
        self.brokers.unload()

    async def _reload(self) -> None:
        self._follow = not self._follow
        self._adopt()

    def _adopt(self) -> None:
        self.write_config(self._follow)
        os.kill(self.child.pid, signal.SIGHUP)

    async def _move_broker(self) -> None:
        """One goes and comes back elsewhere. The config follows, or its pod is another one."""
        place = next(self._places)
        name = f"broker-{place}"
        if place >= CONFIGURED:
            self.objects.remove_pod(name)
        await self.brokers.go(place)
        await self._is_stopped_within(self.pace.away)
        await self.brokers.come(place)
        if place >= CONFIGURED:
            self.objects.add_pod(name, self.brokers.cluster.brokers[place].name)
        else:
            self._adopt()

    async def _change_object(self) -> None:
        self.objects.change_one()

    async def _disturb_watches(self) -> None:
        match next(self._faults):
            case "end":
                self.api.end_watches()
            case "forget":
                self.api.forget()
                self.api.end_watches()
            case "away":
                await self.api.stop()
                await self._is_stopped_within(self.pace.away)
                await self.api.start()

    async def _replace_certificate(self) -> None:
        self.certificates.replace()
