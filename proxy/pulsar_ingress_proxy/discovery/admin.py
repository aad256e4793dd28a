"""`brokers.discover: admin`: polls the brokers' admin API for brokers and their listeners.

The list of brokers comes from any broker, the listeners from each broker itself. Tokens are sent only to brokers, over
verified connections, and never over http if the pool is https.
"""

import asyncio
import json
import logging
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.http.upstream import UpstreamConnection
from pulsar_ingress_proxy.net.errors import UpstreamError
from pulsar_ingress_proxy.net.pool import BrokerPool
from pulsar_ingress_proxy.observability.metrics import Metrics
from pulsar_ingress_proxy.routing.discovered import Discovered, DiscoveredBroker, Source
from pulsar_ingress_proxy.syntax.authorities import Authority, parse_authority
from pulsar_ingress_proxy.syntax.listeners import VARIABLE, WEB_SCHEMES, ServiceUrl, Urls, parse_advertised_listeners

log = logging.getLogger("proxy.discovery")

KIND = "Broker"
"""The `kind` label of the discovery metrics."""
_EVERY = 30.0
"""Maximum seconds between rounds."""
_AT_ONCE = 16
_MOST_BROKERS = 4096
_MOST_BYTES = 4 << 20
"""Maximum size of an answer; a broker's whole configuration has some 30 KB."""
_PORT = re.compile(r"\d+")
_TOKEN = re.compile(r"[!-~]+")


class Unanswered(Exception):
    """A broker did not answer, or not usably. `reason` is a value of the metric's label."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class BrokerAdmin:
    """A client of the brokers' admin API."""

    config: Config
    pool: BrokerPool
    dial: Callable[[Authority], ServiceUrl | None]
    """Returns the address of a broker in the address book."""

    async def brokers(self, token: str | None) -> list[Authority]:
        """The ids (host and port) of all brokers; raises Unanswered."""
        unanswered = Unanswered("unreachable", "brokers.webServiceUrl is empty")
        for url in self.pool.in_turn(self.config.web_pool):
            try:
                ids = _parsed(await self._get(url, "/admin/v2/brokers", token), list, url)
            except Unanswered as refused:
                unanswered = refused
                continue
            if found := [authority for name in ids if (authority := parse_authority(str(name))) is not None]:
                return found[:_MOST_BROKERS]
            unanswered = Unanswered("garbled", f"{url} lists no brokers, not even itself")
        raise unanswered

    async def broker(self, name: Authority, token: str | None) -> DiscoveredBroker:
        """One broker by its own configuration; raises Unanswered."""
        pool = self.config.web_pool[0]
        url = self.dial(name) or ServiceUrl(pool.scheme, name.host, str(name.port or pool.port))
        if token is not None and (pool.scheme, url.scheme) == ("https", "http"):
            raise Unanswered("refused", f"{url} is not https as brokers.webServiceUrl is: no token is sent there")
        answer = await self._get(url, "/admin/v2/brokers/configuration/runtime", token)
        return described(name, _parsed(answer, dict, url), self.config.internal_listener_name)

    async def _get(self, url: ServiceUrl, path: str, token: str | None) -> bytes:
        head = [b"GET %b HTTP/1.1" % path.encode(), url.host_field, b"Accept: application/json", b"Connection: close"]
        if token is not None:
            head.append(b"Authorization: Bearer %b" % token.encode())
        within = self.config.timeouts.lookup
        body = b""
        try:
            loop = asyncio.get_running_loop()
            connection = await self.pool.dial(url, lambda: UpstreamConnection(loop, url))
            try:
                connection.ask("GET", b"\r\n".join([*head, b"", b""]))
                await connection.head(within)
                while (piece := await connection.read(within)) and len(body) <= _MOST_BYTES:
                    body += piece
            finally:
                connection.close()
        except UpstreamError as error:
            raise Unanswered("unreachable", f"{url}: {error}") from None
        match connection.status:
            case 200 if len(body) <= _MOST_BYTES:
                return body
            case 401 | 403 as status:
                reason = "unauthorized" if status == 401 else "forbidden"
                raise Unanswered(
                    reason, f"{url} answers {status} to {path}: is the token in brokers.adminTokenFile right?"
                )
            case status:
                raise Unanswered("refused", f"{url} answers {status}, or far too much, to {path}")


class AdminPoller:
    """Polls until cancelled; `news` is called with each changed result."""

    def __init__(
        self, asking: BrokerAdmin, metrics: Metrics, reported: Discovered, news: Callable[[Discovered], None]
    ) -> None:
        self._asking = asking
        self._metrics = metrics
        self._news = news
        self._reported = reported
        self._known = {broker.names[0]: broker for broker in reported.brokers}
        self._logged = ""
        metrics.discovery_synced.set(0, KIND)

    async def run(self) -> None:
        """Poll forever. After a failure the previous result stays."""
        try:
            while True:
                try:
                    await self.round()
                except Unanswered as refused:
                    self._failed(refused)
                await asyncio.sleep(random.uniform(0.5, 1) * _EVERY)  # noqa: S311 - no secret
        finally:
            self._metrics.discovery_synced.drop(KIND)

    async def round(self) -> None:
        """Ask every broker once; raises Unanswered if any did not answer."""
        token = await asyncio.to_thread(read_token, self._asking.config.brokers.admin_token_file)
        names = await self._asking.brokers(token)
        limit = asyncio.Semaphore(_AT_ONCE)

        async def ask(name: Authority) -> DiscoveredBroker | Unanswered:
            async with limit:
                try:
                    return await self._asking.broker(name, token)
                except Unanswered as refused:
                    return refused

        answers = await asyncio.gather(*map(ask, names))
        known: dict[str, DiscoveredBroker] = {}
        for name, answer in zip(names, answers, strict=True):
            broker = self._known.get(name.host) if isinstance(answer, Unanswered) else answer
            if broker is not None:
                known[name.host] = broker
        self._known = known
        listeners = self._reported.listeners
        if len(known) == len(names):  # with a partial list, existing listeners would be refused as unknown
            listeners = frozenset(name for broker in known.values() for name in broker.listeners)
        reported = Discovered(brokers=tuple(known[name] for name in sorted(known)), listeners=listeners)
        if reported != self._reported:
            self._reported = reported
            self._news(reported)
        if failures := [answer for answer in answers if isinstance(answer, Unanswered)]:
            raise failures[0]
        self._metrics.discovery_synced.set(1, KIND)
        self._logged = ""

    def _failed(self, refused: Unanswered) -> None:
        self._metrics.discovery_synced.set(0, KIND)
        self._metrics.discovery_restarts.add(KIND, refused.reason)
        if refused.reason != self._logged:
            self._logged = refused.reason
            log.warning("%s; keeping the previous result", refused)


def described(name: Authority, runtime: Mapping[str, Any], internal: str) -> DiscoveredBroker:
    """A broker from its configuration: its listeners, with its web ports on the internal one; raises Unanswered."""
    # Values are Java's toString(): Optional[8080], null.
    text = str(runtime.get("advertisedListeners") or "")
    try:
        if VARIABLE.search(text):
            raise ValueError("has a template, which cannot be an address")
        listeners: dict[str, Urls] = dict(parse_advertised_listeners("" if text == "null" else text))
    except ValueError as fault:
        raise Unanswered("garbled", f"advertisedListeners of broker {name}: {fault}") from None
    own: dict[str, ServiceUrl] = {}
    for scheme, key in zip(WEB_SCHEMES, ("webServicePort", "webServicePortTls"), strict=True):
        if port := _PORT.search(str(runtime.get(key) or "")):
            own[scheme] = ServiceUrl(scheme, name.host, port[0])
    if own:
        listeners[internal] = {**own, **listeners.get(internal, {})}
    by: tuple[Source, str] = ("admin", f"broker {name}")
    return DiscoveredBroker(
        (name.host,), listeners, {(listener, scheme): by for listener, urls in listeners.items() for scheme in urls}
    )


def read_token(file: str | None) -> str | None:
    """Read the token, which may be rotated; raises Unanswered."""
    if file is None:
        return None
    try:
        token = Path(file).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Unanswered("unauthorized", f"brokers.adminTokenFile: {file} cannot be read: {error}") from None
    if not _TOKEN.fullmatch(token):
        raise Unanswered("unauthorized", f"brokers.adminTokenFile: {file} does not hold a token, and nothing else")
    return token


def _parsed(answer: bytes, kind: type[Any], url: ServiceUrl) -> Any:
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, kind):
        raise Unanswered("garbled", f"unexpected answer from {url}")
    return found
