"""The informers of all kinds of a cluster, and the object store that they fill; or a store listed once.

Nothing is published until every informer has synced: half of the objects would make ingresses that lead nowhere.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable

from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.discovery.api_client import KubernetesApi, Object, Refused, collection, typed
from pulsar_ingress_proxy.discovery.credentials import Credentials
from pulsar_ingress_proxy.discovery.informer import Backoff, Informer, Recovery
from pulsar_ingress_proxy.discovery.pod import OwnPod, own_pod
from pulsar_ingress_proxy.discovery.reconciler.kinds import KINDS, Kind
from pulsar_ingress_proxy.discovery.reconciler.store import ObjectStore
from pulsar_ingress_proxy.observability.metrics import Metrics
from pulsar_ingress_proxy.routing.discovered import Discovered

log = logging.getLogger("proxy.discovery")

_LONGEST_GATHERING = 0.5
"""Seconds, where changes come one after another; a change is to be in force within one."""

News = Callable[[Discovered, str | None], None]
"""What was found, and the zone of the gateway's node."""


class InformerSet:
    """`run` until cancelled; `news` hears of findings that differ from those before."""

    def __init__(self, config: Config, cluster: KubernetesApi, metrics: Metrics, news: News) -> None:
        self._config = config
        self._cluster = cluster
        self._metrics = metrics
        self._news = news
        self._recovery = Recovery()
        self._watches: dict[Kind, list[Informer]] = {}
        self._open: set[Informer] = set()
        self._unseen: set[Informer] = set()
        """Informers without which the store is not whole."""
        self._is_complete = False
        """Whether all kinds that the cluster has are among the watches."""
        self._changed = asyncio.Event()
        self._deadline: asyncio.TimerHandle | None = None
        self._discovered: Discovered | None = None
        self._said: set[object] = set()
        self._zone: str | None = None

    async def run(self) -> None:
        """Never returns."""
        pod = await self._own_pod()
        self._zone = pod.zone
        self._store = ObjectStore(self._config, pod.own)
        namespaces = self._config.kubernetes.namespaces or (pod.own.namespace,)
        try:
            async with asyncio.TaskGroup() as tasks:
                for kind in KINDS:
                    if not kind.optional:
                        self._begin(tasks, kind, kind.versions[0], namespaces)
                tasks.create_task(self._reconcile(), name="reconcile")
                await self._look_for_kinds(tasks, namespaces)
        finally:
            if self._deadline is not None:
                self._deadline.cancel()
            for kind in self._watches:
                self._metrics.discovery_synced.drop(kind.name)

    async def _own_pod(self) -> OwnPod:
        pauses = Backoff(self._cluster.patience.first_pause, self._cluster.patience.longest_pause)
        while True:
            try:
                return await own_pod(self._cluster, self._config.kubernetes.zone_property is not None)
            except Refused as refused:
                self._say_away(refused)
                await asyncio.sleep(max(pauses.next(), refused.after or 0))

    # The kinds.

    async def _look_for_kinds(self, tasks: asyncio.TaskGroup, namespaces: Iterable[str]) -> None:
        """Kinds of CRDs come and go."""
        pauses = Backoff(self._cluster.patience.first_pause, self._cluster.patience.longest_pause)
        while True:
            missing = [kind for kind in KINDS if kind not in self._watches]
            try:
                served = await self._cluster.served(missing)
            except Refused as refused:
                if refused.reason != "forbidden":
                    self._say_away(refused)
                    await self._recovery.wait(max(pauses.next(), refused.after or 0))
                    continue
                served = {kind.name: kind.versions[0] for kind in missing}  # the list will tell
            pauses.failures = 0
            self._say_back()
            self._say_absent([kind for kind in missing if kind.name not in served])
            for kind in missing:
                if version := served.get(kind.name):
                    self._begin(tasks, kind, version, namespaces)
            self._is_complete = True
            self._changed.set()
            await asyncio.sleep(random.uniform(0.5, 1) * self._cluster.patience.absent)  # noqa: S311 - no secret

    def _say_absent(self, kinds: list[Kind]) -> None:
        if unsaid := [kind for kind in kinds if kind not in self._said]:
            self._said.update(unsaid)
            log.info("the cluster has no %s; taken up once it has", ", ".join(kind.name for kind in unsaid))

    def _begin(self, tasks: asyncio.TaskGroup, kind: Kind, version: str, namespaces: Iterable[str]) -> None:
        if kind in self._said:
            self._said.discard(kind)
            log.info("the cluster has %s now", kind.name)
        watches = [Informer(self._cluster, kind, version, name, self, self._recovery) for name in namespaces]
        self._watches[kind] = watches
        self._unseen.update(watches)
        self._metrics.discovery_synced.set(0, kind.name)
        tasks.create_task(self._follow(kind, watches), name=f"watch {kind.plural}")

    async def _follow(self, kind: Kind, watches: list[Informer]) -> None:
        await asyncio.gather(*(watch.run() for watch in watches))
        self._open.difference_update(watches)
        self._unseen.difference_update(watches)
        del self._watches[kind]
        self._metrics.discovery_synced.drop(kind.name)
        self._say_absent([kind])

    # What watches tell.

    def put(self, obj: Object) -> None:
        try:
            if self._store.put(obj):
                self._changed.set()
        except Exception:  # anybody may write objects, and none of them is to blind us to all others
            metadata = obj["metadata"]
            log.exception("%s %s/%s cannot be read", obj["kind"], metadata.get("namespace"), metadata["name"])

    def remove(self, kind: Kind, namespace: str, name: str) -> None:
        if self._store.remove(kind.name, namespace, name):
            self._changed.set()

    def listed(self, watch: Informer) -> None:
        self._unseen.discard(watch)
        self._changed.set()
        if self._deadline is None:
            self._wait_for_the_rest()

    def opened(self, watch: Informer) -> None:
        self._open.add(watch)
        self._said.discard(watch)
        if self._open.issuperset(self._watches[watch.kind]):
            self._metrics.discovery_synced.set(1, watch.kind.name)
        self._say_back()

    def ended(self, watch: Informer) -> None:
        self._metrics.discovery_restarts.add(watch.kind.name, "ended")

    def refused(self, watch: Informer, refused: Refused) -> None:
        self._metrics.discovery_restarts.add(watch.kind.name, refused.reason)
        self._metrics.discovery_synced.set(0, watch.kind.name)
        self._open.discard(watch)
        if refused.reason == "forbidden":
            if watch not in self._said:
                self._said.add(watch)
                log.warning("%s: see deploy/rbac.yaml for what the sidecar has to be allowed", refused)
        elif refused.reason not in ("expired", "closed", "silent"):  # which are mended at once, or will be unreachable
            self._say_away(refused)
        # One that may not be read keeps nobody waiting; nor does one that came late.
        if refused.reason == "forbidden" or self._discovered is not None:
            self._unseen.discard(watch)
            self._changed.set()

    def _say_away(self, refused: Refused) -> None:
        if "away" not in self._said:
            self._said.add("away")
            log.warning("%s; what is known stays in force", refused)

    def _say_back(self) -> None:
        waiting = (one for watches in self._watches.values() for one in watches if one not in self._open)
        if "away" in self._said and self._said.issuperset(waiting):  # those that may not be read will not come
            self._said.discard("away")
            log.info("the API server is back")

    # What follows.

    def _wait_for_the_rest(self) -> None:
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self._cluster.patience.rest, self._wait_no_longer)

    def _wait_no_longer(self) -> None:
        """A kind that cannot be seen while others can, as a CRD whose webhook is down, is not waited for for ever."""
        if not self._open:  # the API server is away
            self._wait_for_the_rest()
        elif self._unseen or not self._is_complete:
            names = {watch.kind.name for watch in self._unseen}
            log.warning("%s: not seen yet; going on without", ", ".join(sorted(names)) or "kinds of CRDs")
            self._unseen.clear()
            self._is_complete = True
            self._changed.set()

    async def _reconcile(self) -> None:
        """Publish what the objects show whenever they have changed; changes that come together are one."""
        pause = gather = self._cluster.patience.gather
        while True:
            await self._changed.wait()
            await asyncio.sleep(pause)
            self._changed.clear()
            if self._unseen or not self._is_complete:
                continue
            began = time.monotonic()
            try:
                # In a thread: hundreds of brokers take tens of milliseconds, in which lookups are to be served.
                found = (await asyncio.to_thread(self._store.reconciler())).discovered
            except Exception:  # as in `put`
                log.exception("what was found before stays in force")
                continue
            # A tenth of a core is enough, however often objects change.
            pause = max(gather, min(_LONGEST_GATHERING, 10 * (time.monotonic() - began)))
            if found != self._discovered:
                self._discovered = found
                self._news(found, self._zone)


class CannotList(Exception):
    """The cluster cannot be read: a line for each thing that is in the way."""


async def list_store(config: Config, kubeconfig: str, context: str | None) -> ObjectStore:
    """The objects that a sidecar with this config sees; raises CannotList, as half of them would be misleading."""
    cluster = KubernetesApi(Credentials(kubeconfig, context))
    try:
        store = ObjectStore(config, (await own_pod(cluster, with_zone=False)).own)
        versions = {kind.name: kind.versions[0] for kind in KINDS if not kind.optional}
        versions |= await cluster.served(kind for kind in KINDS if kind.optional)
        faults: list[str] = []
        for kind in KINDS:
            for namespace in sorted(store.scope.namespaces) if kind.name in versions else ():
                version = versions[kind.name]
                try:
                    async for page in cluster.pages(collection(kind, version, namespace)):
                        for each in page.objects:
                            store.put(typed(kind, version, each))
                except Refused as refused:
                    if refused.reason != "forbidden":
                        raise
                    faults.append(str(refused))
    except Refused as refused:
        raise CannotList(str(refused)) from None
    finally:
        await cluster.close()
    if faults:
        raise CannotList("\n".join(faults))
    return store
