"""The cluster as the shared cases ask it, from inside or through the sidecar."""

import asyncio
import json
import secrets
import time
from collections.abc import Mapping
from functools import partial
from urllib.parse import urlsplit

from broker_cases import Case, Named, Played, Reply, parsed, played
from brokers import CLUSTER, Broker
from cluster import Cluster
from networks import Answer
from simulated.metadata import Topic

SECONDS = 30
LISTENER_PORT = 8081
INSIDE = ".svc.cluster.local"

# Versions without apache/pulsar#26245: of lookups of one bundle at the same time, all get the listener of the first. A
# broker's own client looks up too, so that this may happen to a request that a test makes alone.
MIXING = ("4.0.8", "5.0.0-M1")
ATTEMPTS = 5


class RealBrokers:
    """A running cluster, asked from inside."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.cluster_name = CLUSTER
        self.names = [named(broker) for broker in cluster.brokers]
        line = cluster.options.line
        self.words = frozenset((line, f"{line.split('.')[0]}.x", cluster.options.load_manager))
        if cluster.options.trust_forwarded_for:
            self.words |= {"trusting"}
        if cluster.options.load_manager == "modular" and cluster.options.release.version in MIXING:
            self.words |= {"mixing"}

    async def leader(self) -> int:
        return (await asyncio.to_thread(self.cluster.leader)).number

    async def namespace(self) -> str:
        name = f"public/case-{secrets.token_hex(4)}"
        made = await self._admin("PUT", 0, f"/admin/v2/namespaces/{name}", {"bundles": {"numBundles": 4}})
        assert made.status == 204, made
        return name

    async def own(self, topic: str, broker: int) -> None:
        """Under the modular load manager who is asked with authority takes the bundle; else it has to be moved."""
        target = Topic.parse(topic).lookup_path + "?authoritative=true"
        deadline = time.monotonic() + SECONDS
        while (owner := await self._owner(broker, target)) != broker:
            assert time.monotonic() < deadline, f"{topic} stays at broker {owner}"
            moved = f"/admin/v2/namespaces/{Topic.parse(topic).bundle}/unload?destinationBroker={self.names[broker].id}"
            answer = await self._admin("PUT", owner, moved)
            assert answer.status == 204, answer
        for other in range(len(self.names)):
            while await self._owner(other, Topic.parse(topic).lookup_path) != broker:
                assert time.monotonic() < deadline, f"broker {other} does not know the owner of {topic}"

    async def send(
        self, broker: int, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Reply:
        asked = partial(self.cluster.networks.inside.request, method, self.names[broker].web + target, body, headers)
        return reply(await asyncio.to_thread(asked))

    async def _owner(self, asked: int, target: str) -> int:
        answer = await self._admin("GET", asked, target)
        assert answer.status == 200, answer
        return self.cluster.broker(urlsplit(json.loads(answer.body)["brokerUrl"]).hostname).number

    async def _admin(self, method: str, broker: int, target: str, body: object = None) -> Answer:
        return await asyncio.to_thread(self.cluster.request, method, self.names[broker].web + target, body)


class ThroughSidecar(RealBrokers):
    """The same cluster, asked from outside: by a broker's external name, so that the sidecar asks that very broker."""

    async def send(
        self, broker: int, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Reply:
        url = self.cluster.brokers[broker].external_web + target
        return reply(await asyncio.to_thread(self.cluster.networks.outside.request, method, url, body, headers))


class OnListenerPort(RealBrokers):
    """The same cluster, asked inside on the web port of the listener `external`, where `bindAddresses` has one."""

    async def send(
        self, broker: int, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Reply:
        url = f"http://{self.cluster.brokers[broker].name}:{LISTENER_PORT}{target}"
        return reply(await asyncio.to_thread(self.cluster.networks.inside.request, method, url, body, headers))


async def played_again(case: Case, brokers: RealBrokers) -> Played:
    """A case put straight to brokers, again where what came may have been meant for somebody else."""
    for _ in range(ATTEMPTS if "mixing" in brokers.words else 1):
        result = await played(case, brokers)
        if not result.faults:
            break
    return result


def named(broker: Broker) -> Named:
    return Named(broker.web, f"{broker.name}:8080", broker.service, broker.external_service)


def reply(answer: Answer) -> Reply:
    return Reply(answer.status, {name.lower(): value for name, value in answer.headers.items()}, answer.body)


def inner_addresses(reply: Reply) -> list[str]:
    """Where an answer would lead inside: its Location, and the URLs of a lookup's body. A broker's id is no address."""
    led = [reply.headers.get("location", "")]
    body = parsed(reply.body)
    if isinstance(body, dict) and "brokerUrlSsl" in body:
        led += [value for key, value in body.items() if key != "brokerId"]
    return [address for address in led if (urlsplit(address).hostname or "").endswith(INSIDE)]
