"""An informer: lists and watches one kind of object in one namespace.

    list ──▶ watch from the list's version ──▶ ended in time, closed, silent: watch on from the last version seen
     ▲                                     └─▶ expired (410), or an error in the stream: list again
     └── any error: after a backoff, or as long as the server says (429, Retry-After)

Objects of a list that did not change are not reported again.
"""

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from pulsar_ingress_proxy.discovery.api_client import Event, KubernetesApi, Object, Refused, collection, typed
from pulsar_ingress_proxy.discovery.reconciler.kinds import Kind

_HEALTHY = 1.0
"""Seconds that a watch without events must last to count as healthy: some intermediaries close them at once."""


class InformerHandler(Protocol):
    """Receives the objects and the state of an informer."""

    def put(self, obj: Object) -> None: ...
    def remove(self, kind: Kind, namespace: str, name: str) -> None: ...
    def listed(self, watch: "Informer") -> None:
        """All objects of a list have been put."""

    def opened(self, watch: "Informer") -> None:
        """A watch has started."""

    def ended(self, watch: "Informer") -> None:
        """A watch ended normally; another one continues."""

    def refused(self, watch: "Informer", refused: Refused) -> None:
        """A list or watch failed; known objects stay until the next one succeeds."""


class Backoff:
    """Exponential backoff with jitter."""

    def __init__(self, first: float, longest: float) -> None:
        self._first, self._longest = first, longest
        self.failures = 0

    def next(self) -> float:
        longest = min(self._longest, self._first * 2 ** min(self.failures, 32))
        self.failures += 1
        return random.uniform(longest / 2, longest)  # noqa: S311 - no secret


class Recovery:
    """Wakes all informers in backoff as soon as one reaches the API server."""

    def __init__(self) -> None:
        self._back = asyncio.Event()

    def tell(self) -> None:
        self._back.set()
        self._back.clear()

    async def wait(self, at_most: float) -> None:
        # Not wait_for, which up to Python 3.11 may lose a cancellation.
        with suppress(TimeoutError):
            async with asyncio.timeout(at_most):
                await self._back.wait()


@dataclass(eq=False)
class Informer:
    """One kind in one namespace."""

    _cluster: KubernetesApi
    kind: Kind
    _served_as: str
    """The version of the API."""
    namespace: str
    _handler: InformerHandler
    _recovery: Recovery
    _known: dict[str, str] = field(default_factory=dict)
    """The resourceVersion of each known object, by name."""
    _version: str | None = None
    """The resourceVersion to watch from; None: list first."""

    def __post_init__(self) -> None:
        self._path = collection(self.kind, self._served_as, self.namespace)
        self._pauses = Backoff(self._cluster.patience.first_pause, self._cluster.patience.longest_pause)

    async def run(self) -> None:
        """Run until the cluster no longer serves the kind, then remove all objects."""
        while True:
            try:
                if self._version is None:
                    self._version = await self._list()
                    self._handler.listed(self)
                await self._watch(self._version)
                self._handler.ended(self)
            except Refused as refused:
                if refused.reason == "absent" and await self._is_gone():
                    self._forget_all_but(set())
                    return
                self._handler.refused(self, refused)
                await self._pause(refused)

    async def _is_gone(self) -> bool:
        """Check with API discovery whether the kind is gone, as a 404 may come from an intermediary."""
        if not self.kind.optional:
            return False
        try:
            return (await self._cluster.served([self.kind])).get(self.kind.name) != self._served_as
        except Refused:
            return False

    async def _list(self) -> str:
        seen: set[str] = set()
        version = ""
        async for objects, listed in self._cluster.pages(self._path):
            for found in objects:
                seen.add(found["metadata"]["name"])
                self._put(found)
            version = listed
        self._forget_all_but(seen)
        return version

    async def _watch(self, version: str) -> None:
        clock = asyncio.get_running_loop().time
        seconds = random.uniform(1, 2) * self._cluster.patience.watch  # noqa: S311 - or all would end at once
        async with self._cluster.watch(self._path, version, max(1, int(seconds))) as events:
            began, is_healthy = clock(), False
            self._handler.opened(self)
            self._recovery.tell()
            try:
                async for event in events:
                    is_healthy = True
                    self._take(event)
            finally:
                is_healthy = is_healthy or clock() - began >= _HEALTHY
                if is_healthy:
                    self._pauses.failures = 0
        if not is_healthy:
            raise Refused("closed", "the API server ended a watch at once")

    def _take(self, event: Event) -> None:
        match event.type:
            case "ADDED" | "MODIFIED":
                self._put(event.object)
            case "DELETED":
                self._remove(event.object["metadata"]["name"])
        self._version = event.version

    async def _pause(self, refused: Refused) -> None:
        if refused.reason in ("expired", "refused"):
            self._version = None
        is_first, pause = self._pauses.failures == 0, self._pauses.next()
        if refused.after is not None:
            await asyncio.sleep(refused.after + pause)
        elif refused.reason == "unreachable":
            await self._recovery.wait(pause)
        elif not (is_first and refused.reason in ("expired", "closed", "silent")):
            await asyncio.sleep(pause)

    def _put(self, found: Object) -> None:
        metadata = found["metadata"]
        name, version = metadata["name"], metadata.get("resourceVersion", "")
        if self._known.get(name) != version:
            self._known[name] = version
            self._handler.put(typed(self.kind, self._served_as, found))

    def _remove(self, name: str) -> None:
        if self._known.pop(name, None) is not None:
            self._handler.remove(self.kind, self.namespace, name)

    def _forget_all_but(self, seen: set[str]) -> None:
        for name in self._known.keys() - seen:
            self._remove(name)
