"""The demo's brokers: on loopback, they look topics up, own bundles and redirect as Apache Pulsar 4.x does.

Only what the demo asks for. tests/simulated has more of the API, other versions and faults.
"""

import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Self

from aiohttp import web
from aiohttp.typedefs import Handler

NAME = "pulsar-broker-{n}.pulsar-broker.pulsar.svc.cluster.local"
LEADER = 0
_TOPIC = r"{domain:(?:non-)?persistent}/{name:[^/]+/[^/]+/[^/]+}"


class DemoBroker:
    """One broker: what it calls itself (`name`), and where it really listens (`web`)."""

    def __init__(self, cluster: "DemoCluster", index: int) -> None:
        self.index = index
        self.name = NAME.format(n=index)
        self.internal = f"http://{self.name}:8080"
        self.web = ""
        self.intercept: Callable[[web.Request, Handler], Awaitable[web.StreamResponse]] | None = None
        """A middleware, for faults."""
        self._cluster = cluster
        app = web.Application(middlewares=[self._intercepted])
        app.router.add_get(f"/lookup/v2/topic/{_TOPIC}", self._lookup)
        app.router.add_route("*", f"/admin/v2/{_TOPIC}/{{rest:.*}}", self._topic_admin)
        app.router.add_get("/admin/v2/brokers/ready", self._ready)
        # Not longer: a server that closes drops what it receives, and a handler may wait for the rest of a body.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1)

    async def start(self, address: str = "127.0.0.1", port: int = 0) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, address, port).start()
        self.web = f"http://{address}:{self._runner.addresses[0][1]}"

    async def close(self) -> None:
        await self._runner.cleanup()

    @web.middleware
    async def _intercepted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        return await (handler(request) if self.intercept is None else self.intercept(request, handler))

    async def _ready(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _lookup(self, request: web.Request) -> web.Response:
        """TopicLookupBase.internalLookupTopicAsync."""
        to, is_owner = self._cluster.assign(_bundle(request), self.index, _is_authoritative(request))
        listener = request.query.get("listenerName") or request.headers.get("X-Pulsar-ListenerName")
        if is_owner:
            urls = self._cluster.binary_urls(listener or "internal", to)
            return web.json_response({**urls, "httpUrl": to.internal, "brokerUrlSsl": ""})
        location = _location(request, to, to.index != LEADER)
        return _redirect(f"{location}&listenerName={listener}" if listener else location)

    async def _topic_admin(self, request: web.Request) -> web.Response:
        """PulsarWebResource.validateTopicOwnership, and the owner's answer."""
        to, _ = self._cluster.assign(_bundle(request), self.index, _is_authoritative(request))
        if to is not self:
            return _redirect(_location(request, to, self.index == LEADER))
        body = await request.text()
        return web.json_response({"broker": f"{self.name}:8080", "method": request.method, "body": body})


class DemoCluster:
    """Three brokers. `domains` are those of their names on each listener beside `internal`."""

    def __init__(self, domains: Mapping[str, str]) -> None:
        self._domains = domains
        self.brokers = [DemoBroker(self, index) for index in range(3)]
        self.owners: dict[str, int] = {}
        """By bundle."""

    async def __aenter__(self) -> Self:
        for broker in self.brokers:
            await broker.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for broker in self.brokers:
            await broker.close()

    def assign(self, bundle: str, at: int, authoritative: bool) -> tuple[DemoBroker, bool]:
        """NamespaceService.findBrokerServiceUrl, at the broker `at`: the owner of a bundle, or the broker to ask.

        Without an owner, the leader chooses one and redirects with authoritative=true, which makes that one the owner.
        Other brokers redirect to the leader.
        """
        if bundle not in self.owners:
            if at != LEADER and not authoritative:
                return self.brokers[LEADER], False
            owned = list(self.owners.values())
            chosen = at if authoritative else min(range(len(self.brokers)), key=owned.count)
            if chosen != at:
                return self.brokers[chosen], False
            self.owners[bundle] = chosen
        return self.brokers[self.owners[bundle]], True

    def binary_urls(self, listener: str, broker: DemoBroker) -> dict[str, str]:
        """The binary URLs of a broker, as LookupData has them."""
        if listener in self._domains:
            host = f"broker-{broker.index}.{self._domains[listener]}"
            return {"brokerUrlTls": f"pulsar+ssl://{host}:{6651 + broker.index}"}
        url = f"pulsar://{broker.name}:6650"
        return {"brokerUrl": url, "nativeUrl": url}


def bundle(topic: str) -> str:
    """The bundle of a topic: NamespaceBundleFactory hashes its full name with CRC-32; namespaces have four bundles."""
    namespace = topic.partition("://")[2].rpartition("/")[0]
    return f"{namespace}/{zlib.crc32(topic.encode()) >> 30}"


def _bundle(request: web.Request) -> str:
    return bundle(f"{request.match_info['domain']}://{request.match_info['name']}")


def _is_authoritative(request: web.Request) -> bool:
    return request.query.get("authoritative") == "true"


def _location(request: web.Request, to: DemoBroker, authoritative: bool) -> str:
    return f"{to.internal}{request.rel_url.raw_path}?authoritative={str(authoritative).lower()}"


def _redirect(location: str) -> web.Response:
    return web.Response(status=307, headers={"Location": location})
