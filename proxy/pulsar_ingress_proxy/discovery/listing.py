"""A cluster as it is at one moment: a list of each kind, for commands that do not stay."""

from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.discovery.api_client import Cluster, Refused, collection, typed
from pulsar_ingress_proxy.discovery.credentials import Credentials
from pulsar_ingress_proxy.discovery.pod import own_pod
from pulsar_ingress_proxy.discovery.reconciler.kinds import KINDS
from pulsar_ingress_proxy.discovery.reconciler.store import World


class CannotList(Exception):
    """The cluster cannot be read: a line for each thing that is in the way."""


async def list_world(config: Config, kubeconfig: str, context: str | None) -> World:
    """The world of a sidecar with this config; raises CannotList, as half a world would be misleading."""
    cluster = Cluster(Credentials(kubeconfig, context))
    try:
        world = World(config, (await own_pod(cluster, with_zone=False)).own)
        versions = {kind.name: kind.versions[0] for kind in KINDS if not kind.optional}
        versions |= await cluster.served(kind for kind in KINDS if kind.optional)
        faults: list[str] = []
        for kind in KINDS:
            for namespace in sorted(world.here.namespaces) if kind.name in versions else ():
                version = versions[kind.name]
                try:
                    async for page in cluster.pages(collection(kind, version, namespace)):
                        for each in page.objects:
                            world.put(typed(kind, version, each))
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
    return world
