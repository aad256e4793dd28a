"""The informers of all kinds, and the object store that they fill; also `list_store`, which lists once.

Nothing is published until every informer has synced. The sidecar's own pod is read from the downward API if the
manifest has it, else by one `get` on the pod and one on the node.
"""

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.discovery.api_client import KubernetesApi, Object, Refused, collection, typed
from pulsar_ingress_proxy.discovery.credentials import Credentials
from pulsar_ingress_proxy.discovery.informer import Backoff, Informer, Recovery
from pulsar_ingress_proxy.discovery.reconciler.kinds import KINDS, Kind
from pulsar_ingress_proxy.discovery.reconciler.store import ObjectStore, PodIdentity
from pulsar_ingress_proxy.observability.metrics import Metrics
from pulsar_ingress_proxy.routing.discovered import Discovered

log = logging.getLogger("proxy.discovery")

_LONGEST_GATHERING = 0.5
"""Maximum debounce in seconds; a change should be in force within a second."""

LABELS = Path("/etc/podinfo/labels")
_ZONE = "topology.kubernetes.io/zone"

News = Callable[[Discovered, str | None], None]
"""Called with the result, and the zone of the gateway's node."""


class InformerSet:
    """Runs until cancelled; `news` is called with each changed result."""

    def __init__(self, config: Config, cluster: KubernetesApi, metrics: Metrics, news: News) -> None:
        self._config = config
        self._cluster = cluster
        self._metrics = metrics
        self._news = news
        self._recovery = Recovery()
        self._watches: dict[Kind, list[Informer]] = {}
        self._open: set[Informer] = set()
        self._unsynced: set[Informer] = set()
        self._is_complete = False
        """Whether there are informers for all kinds that the cluster serves."""
        self._changed = asyncio.Event()
        self._deadline: asyncio.TimerHandle | None = None
        self._discovered: Discovered | None = None
        self._logged: set[object] = set()

    async def run(self) -> None:
        self._store = ObjectStore(self._config, await self._own_pod())
        namespaces = sorted(self._store.scope.namespaces)
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

    async def _own_pod(self) -> PodIdentity:
        pauses = Backoff(self._cluster.patience.first_pause, self._cluster.patience.longest_pause)
        while True:
            try:
                return await own_pod(self._cluster, self._config.kubernetes.zone_property is not None)
            except Refused as refused:
                self._log_unreachable(refused)
                await asyncio.sleep(max(pauses.next(), refused.after or 0))

    # The kinds.

    async def _look_for_kinds(self, tasks: asyncio.TaskGroup, namespaces: Iterable[str]) -> None:
        """Poll for kinds of CRDs, which may be installed or removed."""
        pauses = Backoff(self._cluster.patience.first_pause, self._cluster.patience.longest_pause)
        while True:
            missing = [kind for kind in KINDS if kind not in self._watches]
            try:
                served = await self._cluster.served(missing)
            except Refused as refused:
                if refused.reason != "forbidden":
                    self._log_unreachable(refused)
                    await self._recovery.wait(max(pauses.next(), refused.after or 0))
                    continue
                served = {kind.name: kind.versions[0] for kind in missing}  # assume that all exist: listing will tell
            pauses.failures = 0
            self._log_reachable()
            self._log_absent([kind for kind in missing if kind.name not in served])
            for kind in missing:
                if version := served.get(kind.name):
                    self._begin(tasks, kind, version, namespaces)
            self._is_complete = True
            self._changed.set()
            await asyncio.sleep(random.uniform(0.5, 1) * self._cluster.patience.absent)  # noqa: S311 - no secret

    def _log_absent(self, kinds: list[Kind]) -> None:
        if new := [kind for kind in kinds if kind not in self._logged]:
            self._logged.update(new)
            log.info("the cluster does not serve %s; will retry", ", ".join(kind.name for kind in new))

    def _begin(self, tasks: asyncio.TaskGroup, kind: Kind, version: str, namespaces: Iterable[str]) -> None:
        if kind in self._logged:
            self._logged.discard(kind)
            log.info("the cluster serves %s now", kind.name)
        watches = [Informer(self._cluster, kind, version, name, self, self._recovery) for name in namespaces]
        self._watches[kind] = watches
        self._unsynced.update(watches)
        self._metrics.discovery_synced.set(0, kind.name)
        tasks.create_task(self._follow(kind, watches), name=f"watch {kind.plural}")

    async def _follow(self, kind: Kind, watches: list[Informer]) -> None:
        await asyncio.gather(*(watch.run() for watch in watches))
        self._open.difference_update(watches)
        self._unsynced.difference_update(watches)
        del self._watches[kind]
        self._metrics.discovery_synced.drop(kind.name)
        self._log_absent([kind])

    # Called by informers.

    def put(self, obj: Object) -> None:
        try:
            if self._store.put(obj):
                self._changed.set()
        except Exception:  # one bad object must not stop discovery
            metadata = obj["metadata"]
            log.exception("%s %s/%s cannot be read", obj["kind"], metadata.get("namespace"), metadata["name"])

    def remove(self, kind: Kind, namespace: str, name: str) -> None:
        if self._store.remove(kind.name, namespace, name):
            self._changed.set()

    def listed(self, watch: Informer) -> None:
        self._unsynced.discard(watch)
        self._changed.set()
        if self._deadline is None:
            self._wait_for_the_rest()

    def opened(self, watch: Informer) -> None:
        self._open.add(watch)
        self._logged.discard(watch)
        if self._open.issuperset(self._watches[watch.kind]):
            self._metrics.discovery_synced.set(1, watch.kind.name)
        self._log_reachable()

    def ended(self, watch: Informer) -> None:
        self._metrics.discovery_restarts.add(watch.kind.name, "ended")

    def refused(self, watch: Informer, refused: Refused) -> None:
        self._metrics.discovery_restarts.add(watch.kind.name, refused.reason)
        self._metrics.discovery_synced.set(0, watch.kind.name)
        self._open.discard(watch)
        if refused.reason == "forbidden":
            if watch not in self._logged:
                self._logged.add(watch)
                log.warning("%s: see deploy/rbac.yaml for what the sidecar has to be allowed", refused)
        elif refused.reason not in ("expired", "closed", "silent"):  # these recover at once, or become unreachable
            self._log_unreachable(refused)
        # Do not wait for a kind that is forbidden, or that appeared after the first result.
        if refused.reason == "forbidden" or self._discovered is not None:
            self._unsynced.discard(watch)
            self._changed.set()

    def _log_unreachable(self, refused: Refused) -> None:
        if "unreachable" not in self._logged:
            self._logged.add("unreachable")
            log.warning("%s; keeping the known objects", refused)

    def _log_reachable(self) -> None:
        waiting = (one for watches in self._watches.values() for one in watches if one not in self._open)
        if "unreachable" in self._logged and self._logged.issuperset(waiting):  # except for forbidden kinds
            self._logged.discard("unreachable")
            log.info("the API server is back")

    # What follows.

    def _wait_for_the_rest(self) -> None:
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self._cluster.patience.rest, self._wait_no_longer)

    def _wait_no_longer(self) -> None:
        """Stop waiting for a kind that fails while others work, such as a CRD whose webhook is down."""
        if not self._open:  # the API server is unreachable
            self._wait_for_the_rest()
        elif self._unsynced or not self._is_complete:
            names = {watch.kind.name for watch in self._unsynced}
            log.warning("%s: not synced yet; continuing without", ", ".join(sorted(names)) or "kinds of CRDs")
            self._unsynced.clear()
            self._is_complete = True
            self._changed.set()

    async def _reconcile(self) -> None:
        """Publish the result whenever objects have changed, with a debounce."""
        pause = gather = self._cluster.patience.gather
        while True:
            await self._changed.wait()
            await asyncio.sleep(pause)
            self._changed.clear()
            if self._unsynced or not self._is_complete:
                continue
            began = time.monotonic()
            try:
                # In a thread: hundreds of brokers take tens of milliseconds.
                found = (await asyncio.to_thread(self._store.reconciler())).discovered
            except Exception:  # as in `put`
                log.exception("discovery failed; keeping the previous result")
                continue
            # Use at most a tenth of a core, however often objects change.
            pause = max(gather, min(_LONGEST_GATHERING, 10 * (time.monotonic() - began)))
            if found != self._discovered:
                self._discovered = found
                self._news(found, self._store.scope.own.zone)


class CannotList(Exception):
    """The cluster cannot be read; one reason per line."""


async def list_store(config: Config, kubeconfig: str, context: str | None) -> ObjectStore:
    """List the objects that a sidecar with this config sees; raises CannotList if any kind cannot be listed."""
    cluster = KubernetesApi(Credentials(kubeconfig, context))
    try:
        store = ObjectStore(config, await own_pod(cluster, with_zone=False))
        versions = {kind.name: kind.versions[0] for kind in KINDS if not kind.optional}
        versions |= await cluster.served(kind for kind in KINDS if kind.optional)
        faults: list[str] = []
        for kind in KINDS:
            for namespace in sorted(store.scope.namespaces) if kind.name in versions else ():
                version = versions[kind.name]
                try:
                    async for objects, _ in cluster.pages(collection(kind, version, namespace)):
                        for each in objects:
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


async def own_pod(cluster: KubernetesApi, with_zone: bool, labels_file: Path = LABELS) -> PodIdentity:
    """Read the sidecar's pod; raises Refused if the API server is needed and unreachable."""
    namespace = os.environ.get("POD_NAMESPACE") or await cluster.home()
    labels = await asyncio.to_thread(_read_labels, labels_file)
    node = os.environ.get("NODE_NAME")
    if labels is None:
        pod = await _own_object(cluster, namespace)
        labels = _labels(pod)
        node = node or pod.get("spec", {}).get("nodeName")
    zone = await _zone(cluster, labels, node) if with_zone else None
    return PodIdentity(namespace, labels, zone)


async def _own_object(cluster: KubernetesApi, namespace: str) -> Object:
    name = os.environ.get("POD_NAME") or (os.environ.get("HOSTNAME") if cluster.credentials.in_pod else None)
    if not name:
        return {}
    return await _got(cluster, f"/api/v1/namespaces/{namespace}/pods/{name}", "selectors are matched to no labels")


async def _zone(cluster: KubernetesApi, labels: Mapping[str, str], node: str | None) -> str | None:
    # Since Kubernetes 1.35 pods have the zone among their labels.
    zone = os.environ.get("NODE_ZONE") or labels.get(_ZONE)
    if not zone and node:
        zone = _labels(await _got(cluster, f"/api/v1/nodes/{node}", "no zone is told")).get(_ZONE)
    if not zone:
        log.warning("kubernetes.zoneProperty: the zone of node %s is not known: set NODE_ZONE", node or "(unknown)")
    return zone or None


async def _got(cluster: KubernetesApi, path: str, otherwise: str) -> Object:
    try:
        return await cluster.get(path)
    except Refused as refused:
        if refused.reason not in ("forbidden", "absent"):
            raise
        log.warning("%s; %s", refused, otherwise)
        return {}


def _labels(found: Object) -> dict[str, str]:
    return dict(found.get("metadata", {}).get("labels", {}))


def _read_labels(file: Path) -> dict[str, str] | None:
    """Parse lines of `key="value"`; None if there is no such file."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return {key: value.strip('"') for key, equals, value in (line.partition("=") for line in lines) if equals}
