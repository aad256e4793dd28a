"""The shared metadata of simulated brokers: names, listeners, leader and bundle owners. Pure."""

from __future__ import annotations

import re
import zlib
from dataclasses import astuple, dataclass, field
from typing import Literal
from urllib.parse import quote_plus, urlsplit

Family = Literal["4.x", "5.x"]
LoadManager = Literal["modular", "extensible"]

INTERNAL = "internal"
BUNDLE_BOUNDS = (0x00000000, 0x40000000, 0x80000000, 0xC0000000, 0xFFFFFFFF)


def numbered(template: str, n: int) -> str:
    """`{n}` becomes the broker's number, `{n+6651}` the sum."""
    return re.sub(r"\{n(?:\+(\d+))?\}", lambda found: str(n + int(found[1] or 0)), template)


@dataclass(frozen=True, slots=True)
class Listener:
    """One listener of a broker as it is published (AdvertisedListener, PIP-61). URLs may hold `{n}` and `{n+1}`."""

    broker_service_url: str | None = None
    broker_service_url_tls: str | None = None
    broker_http_url: str | None = None
    broker_https_url: str | None = None

    def numbered(self, n: int) -> Listener:
        return Listener(*(url and numbered(url, n) for url in astuple(self)))

    def published(self) -> dict[str, str]:
        keys = ("brokerServiceUrl", "brokerServiceUrlTls", "brokerHttpUrl", "brokerHttpsUrl")
        return {key: url for key, url in zip(keys, astuple(self), strict=True) if url}


@dataclass(frozen=True, slots=True)
class Broker:
    """What a broker says about itself. Its listeners may be changed; a broker can lack one that others have."""

    name: str
    listeners: dict[str, Listener]

    @property
    def internal(self) -> Listener:
        return self.listeners[INTERNAL]

    @property
    def id(self) -> str:
        return urlsplit(self.internal.broker_http_url or f"//{self.name}:8080").netloc

    @property
    def advertised_listeners(self) -> str:
        """As in broker.conf."""
        entries = [(name, url) for name, at in self.listeners.items() for url in at.published().values()]
        return ",".join(f"{name}:{url}" for name, url in entries)


@dataclass(frozen=True, slots=True)
class Topic:
    domain: str
    namespace: str  # tenant/namespace, or property/cluster/namespace of a v1 name
    local_name: str

    @classmethod
    def parse(cls, full_name: str) -> Topic:
        """`persistent://tenant/namespace/topic`."""
        domain, _, rest = full_name.partition("://")
        tenant, namespace, local_name = rest.split("/", 2)
        return cls(domain, f"{tenant}/{namespace}", local_name)

    def __str__(self) -> str:
        return f"{self.domain}://{self.namespace}/{self.local_name}"

    @property
    def bundle_range(self) -> str:
        # NamespaceBundleFactory hashes the full name with CRC-32. Namespaces have 4 bundles by default.
        n = zlib.crc32(str(self).encode()) >> 30
        return f"0x{BUNDLE_BOUNDS[n]:08x}_0x{BUNDLE_BOUNDS[n + 1]:08x}"

    @property
    def bundle(self) -> str:
        return f"{self.namespace}/{self.bundle_range}"

    @property
    def lookup_path(self) -> str:
        # A name of four parts or more is a v1 name, even if a slash was part of the topic.
        parts = str(self).partition("://")[2].split("/", 3)
        v1, namespace, local_name = len(parts) == 4, "/".join(parts[:-1]), parts[-1]
        # Codec.encode is java.net.URLEncoder: a space is a plus, and a tilde is not safe.
        encoded = quote_plus(local_name, safe="*").replace("~", "%7E")
        return f"/lookup/v2/{'destination' if v1 else 'topic'}/{self.domain}/{namespace}/{encoded}"


@dataclass(frozen=True, slots=True)
class Assignment:
    """The owner of a bundle, or, if `redirect` is set, the broker to ask about it."""

    broker: int
    redirect: bool = False
    authoritative: bool = False


@dataclass(slots=True)
class Metadata:
    """What brokers share through the metadata store: live brokers, leader and bundle owners."""

    family: Family
    load_manager: LoadManager
    brokers: list[Broker] = field(default_factory=list)
    leader: int = 0
    alive: set[int] = field(default_factory=set)
    owners: dict[str, int] = field(default_factory=dict)
    missing_namespaces: set[str] = field(default_factory=set)
    trusts_forwarded: bool = False  # webServiceTrustXForwardedFor

    def expire(self, broker: int) -> None:
        """The session of a dead broker ends: its bundles are free, and another leads."""
        self.alive.discard(broker)
        self.owners = {bundle: owner for bundle, owner in self.owners.items() if owner != broker}
        if self.leader == broker and self.alive:
            self.leader = min(self.alive)

    def least_loaded(self) -> int | None:
        owned = list(self.owners.values())
        return min(self.alive, key=lambda broker: (owned.count(broker), broker), default=None)

    def assign(self, bundle: str, *, at: int, authoritative: bool) -> Assignment | None:
        """NamespaceService.findBrokerServiceUrl, at the broker `at`. None: no broker is there to take the bundle.

        Owned: any broker names the owner. Not owned, extensible load manager: the owner is chosen at once. Not owned,
        modular: the leader chooses and redirects with authoritative=true, which makes the chosen one take it; others
        redirect to the leader with authoritative=false, or choose by themselves while the leader is gone.
        """
        if bundle in self.owners:
            return Assignment(self.owners[bundle])
        modular = self.load_manager == "modular"
        if modular and not authoritative and at != self.leader and self.leader in self.alive:
            return Assignment(self.leader, redirect=True)
        chosen = at if modular and authoritative else self.least_loaded()
        if chosen is None:
            return None
        if modular and chosen != at:
            return Assignment(chosen, redirect=True, authoritative=True)
        self.owners[bundle] = chosen
        return Assignment(chosen)
