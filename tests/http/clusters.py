"""A sidecar in front of simulated brokers, and a client behind the ingress: all of it on loopback sockets.

Paths, listeners, redirects and answers that tests of lookups and redirects share are here too.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import ClientSession, DummyCookieJar
from multidict import CIMultiDict, CIMultiDictProxy
from raw import refusal_code
from running_sidecar import LOOPBACK, RunningSidecar, running
from simulated.cluster import Answer, Listener, SimulatedCluster, Step, says
from simulated.metadata import Family, numbered
from yarl import URL

from pulsar_ingress_proxy.app.sidecar import Sidecar
from pulsar_ingress_proxy.observability.catalogue import Sidecar as Catalogue

Keys = dict[str, Any]
"""Keys of the config."""

HEADER = "X-Pulsar-ListenerName"
HOST = "pulsar.example.com"
INGRESS = f"https://{HOST}"
PUBLIC: Mapping[str, Any] = {"name": "public", "hosts": [HOST, f"*.{HOST}"], "listener": "external"}
EXTERNAL = (
    "external:https://broker-{n}.pulsar.example.com",
    "external:pulsar+ssl://broker-{n}.pulsar.example.com:{n+6651}",
)
PARTNER = (
    "partner:http://b{n}.partner.example:8080",
    "partner:https://b{n}.partner.example:8443",
    "partner:pulsar://b{n}.partner.example:6650",
    "partner:pulsar+ssl://b{n}.partner.example:6651",
)
MOST_REDIRECTS = 10
"""Of the clients that follow redirects, Go gives up first."""

TOPIC = "persistent://public/default/orders"
LOOKUP = "/lookup/v2/topic/persistent/public/default/orders"
ADMIN = "/admin/v2/persistent/public/default/orders"
STATS = f"{ADMIN}/stats"
PRODUCE = "/topics/persistent/public/default/orders"
FAMILIES: tuple[Family, ...] = ("4.x", "5.x")
both_families = pytest.mark.parametrize("family", FAMILIES)
both_kinds = pytest.mark.parametrize(("kind", "target"), [("lookup", LOOKUP), ("admin", STATS)])

LISTENERS: Mapping[str, Listener] = {
    "external": Listener(broker_service_url_tls="pulsar+ssl://broker-{n}.pulsar.example.com:{n+6651}"),
    "partner": Listener("pulsar://b{n}.partner.example:6650", "pulsar+ssl://b{n}.partner.example:6651"),
}
"""What brokers have beside `internal` in tests of lookups: a TLS-only listener, and one with both."""

FOLLOW = {"lookup": "follow", "admin": "follow"}
PARTNERS = {"name": "partners", "hosts": ["partner.example"], "listener": "partner"}
ELSEWHERE = "elsewhere.example.org"

Fields = list[tuple[str, str]]
BOTH: Mapping[str, Any] = {
    "listeners": LISTENERS,
    "urls": (*EXTERNAL, *PARTNER),
    "ingresses": [PUBLIC, PARTNERS],
}
"""Of a sidecar with two ingresses, for two listeners, which brokers have."""

LABELS = {metric.name: metric.labels for metric in Catalogue.every()}
"""Of each counter, in the contract's order; a scenario names their values in this order too."""


def named(n: int) -> str:
    """What a simulated broker calls itself."""
    return f"pulsar-broker-{n}.pulsar-broker.pulsar.svc.cluster.local"


def external(n: int) -> str:
    return f"https://broker-{n}.pulsar.example.com"


def inside(n: int) -> str:
    return f"http://{named(n)}:8080"


def asked(cluster: SimulatedCluster) -> list[int]:
    """How many requests each broker got."""
    return [len(broker.requests) for broker in cluster.brokers]


def pointing(*locations: str, status: int = 307) -> Iterable[Step]:
    return [says(Answer(status, location=location)) for location in locations]


def in_full(n: int, broker_id: bool = False) -> dict[str, str]:
    """A lookup's answer on the external listener, which has TLS URLs only."""
    binary, web = f"pulsar+ssl://broker-{n}.pulsar.example.com:{6651 + n}", external(n)
    answer = {"brokerUrl": binary, "brokerUrlTls": binary, "nativeUrl": binary, "httpUrl": web, "httpUrlTls": web}
    return {**answer, "brokerUrlSsl": "", **({"brokerId": f"{named(n)}:8080"} if broker_id else {})}


def in_partner(n: int) -> dict[str, str]:
    at = f"b{n}.partner.example"
    return {
        "brokerUrl": f"pulsar://{at}:6650",
        "brokerUrlTls": f"pulsar+ssl://{at}:6651",
        "nativeUrl": f"pulsar://{at}:6650",
        "httpUrl": f"http://{at}:8080",
        "httpUrlTls": f"https://{at}:8443",
        "brokerUrlSsl": "",
    }


def as_sent(n: int, listener: str | None = None) -> dict[str, str]:
    """What a broker of 4.x says by itself: the listener's binary URLs, and its internal web URL."""
    web = {"httpUrl": f"http://{named(n)}:8080", "brokerUrlSsl": ""}
    if listener == "external":
        return {"brokerUrlTls": f"pulsar+ssl://broker-{n}.pulsar.example.com:{6651 + n}", **web}
    return {"brokerUrl": f"pulsar://{named(n)}:6650", "nativeUrl": f"pulsar://{named(n)}:6650", **web}


def book(cluster: SimulatedCluster, *urls: str) -> list[dict[str, str]]:
    """An address book: where each broker really listens, and these URLs, in which `{n}` is its number."""
    return [
        {
            "broker": broker.name,
            "listeners": ",".join([f"internal:{broker.web}", *(numbered(url, broker.index) for url in urls)]),
        }
        for broker in cluster.brokers
    ]


def without_external(n: int) -> Callable[[SimulatedCluster], list[dict[str, str]]]:
    """The address book of `external`, in which this broker has its internal address only."""
    return lambda cluster: [*book(cluster, *EXTERNAL)[:n], book(cluster)[n], *book(cluster, *EXTERNAL)[n + 1 :]]


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: CIMultiDictProxy[str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def refusal(self) -> tuple[int, str]:
        """The status and code of an answer of the sidecar's own."""
        return self.status, refusal_code(self.headers["Content-Type"].encode(), self.body)

    @property
    def location(self) -> str:
        assert 300 <= self.status < 400, self
        (location,) = self.headers.getall("Location")
        return location


@dataclass(slots=True)
class Walk:
    """What a client went through: the URLs it asked, in order, and the answer at the end."""

    reply: Reply
    urls: list[str]

    @property
    def origins(self) -> list[str]:
        return [str(URL(url, encoded=True).origin()) for url in self.urls]


class Client(RunningSidecar):
    """A client behind the ingress. It sends targets byte for byte, and decodes nothing."""

    def __init__(self, sidecar: Sidecar, session: ClientSession, reachable: frozenset[str]) -> None:
        super().__init__(sidecar)
        self._session = session
        self._reachable = reachable

    async def send(
        self,
        target: str,
        *,
        host: str = HOST,
        method: str = "GET",
        headers: Iterable[tuple[str, str]] = (),
        body: bytes | None = None,
        bind: int = 0,
    ) -> Reply:
        """One request to one of the sidecar's sockets; nothing is followed."""
        at = self.sidecar.http_servers[bind]
        url = URL(f"http://{at.bind.host}:{at.port}{target}", encoded=True)
        fields = CIMultiDict([("Host", host), *headers])
        async with self._session.request(method, url, headers=fields, data=body, allow_redirects=False) as response:
            return Reply(response.status, response.headers, await response.read())

    async def walk(self, url: str, *, method: str = "GET", body: bytes | None = None) -> Walk:
        """Ask through a gateway that ends TLS, and follow redirects through it as clients do: same method and body.

        A Location that the client cannot reach is the fault that the sidecar is there to prevent.
        """
        urls: list[str] = []
        while True:
            asked = URL(url, encoded=True)
            assert str(asked.origin()) in self._reachable, f"no client outside can reach {url}, after {urls}"
            assert len(urls) <= MOST_REDIRECTS, f"too many redirects: {urls}"
            urls.append(url)
            headers = [("X-Forwarded-Proto", asked.scheme), ("X-Forwarded-For", "203.0.113.7")]
            reply = await self.send(
                asked.raw_path_qs, host=asked.raw_authority, method=method, headers=headers, body=body
            )
            if not 300 <= reply.status < 400:
                return Walk(reply, urls)
            url = f"{asked.origin()}{reply.location}" if reply.location.startswith("/") else reply.location

    def counted(self, metric: str) -> dict[tuple[str, ...], int]:
        """A counter by label values in the contract's order."""
        labels = LABELS[f"pulsar_ingress_{metric}"]
        return {
            tuple(dict(sample)[label] for label in labels): int(value) for sample, value in self.samples(metric).items()
        }


Simulate = Callable[..., Awaitable[tuple[SimulatedCluster, Client]]]
"""`simulated`, as the fixture `simulate` gives it: until the end of the test."""

_CLUSTER = ("family", "load_manager", "leader", "token", "name", "listeners", "missing_namespaces", "compress_always")


@asynccontextmanager
async def simulated(
    *,
    owner: int | None = None,
    loaded: Sequence[int] = (),
    script: Iterable[Step] = (),
    urls: Sequence[str] = EXTERNAL,
    pool: Sequence[int] = (1,),
    reachable: Iterable[str] = (),
    **keys: Any,
) -> AsyncIterator[tuple[SimulatedCluster, Client]]:
    """Brokers, a sidecar with these keys of the config, and a client that reaches `external` and these origins.

    The pool is one broker that does not lead, unless told otherwise: who is asked first is certain then, and takes the
    script. The owner has the topic; if there is none, it goes to a broker that is not loaded. All brokers have these
    URLs in the address book. Keys may be functions of the cluster.
    """
    options = {name: keys.pop(name) for name in _CLUSTER if name in keys}
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(SimulatedCluster(**options))
        cluster.brokers[1].script.extend(script)
        for n, bounds in zip(loaded, ("0x00000000_0x40000000", "0x40000000_0x80000000"), strict=False):
            cluster.own(f"t/n/{bounds}", n)
        if owner is not None:
            cluster.own(TOPIC, owner)
        config = {
            **LOOPBACK,
            "bindAddresses": ["http://127.0.0.1:0"],
            "brokers": {"webServiceUrl": [cluster.brokers[n].web for n in pool]},
            "ingresses": [PUBLIC],
            "advertisedListeners": book(cluster, *urls),
            **{key: value(cluster) if callable(value) else value for key, value in keys.items()},
        }
        known = frozenset((INGRESS, *(external(broker.index) for broker in cluster.brokers), *reachable))
        session = await stack.enter_async_context(
            ClientSession(auto_decompress=False, cookie_jar=DummyCookieJar(), skip_auto_headers=["Accept-Encoding"])
        )
        client = running(lambda sidecar: Client(sidecar, session, known), config)
        yield cluster, await stack.enter_async_context(client)
