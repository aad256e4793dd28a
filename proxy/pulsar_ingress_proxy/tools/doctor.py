"""`doctor`: from where it is run, can each broker be reached on each listener?

Asked in the order in which a client would fail: does the name resolve, does the port open, does the
certificate cover the name, does the broker answer. 401 and 403 count as reachable.

A broker that answers in the binary protocol is then asked for one topic, without a listener's name. It answers with the
addresses of the port's own listener, which are the ones that its clients get when their topics move. Its CONNECTED says
whether it is newer than this sidecar.

A Kafka listener is asked for its brokers. Clients connect to the addresses in the answer, so each must be on the
listener.
"""

import asyncio
import importlib.util
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from google.protobuf.unknown_fields import UnknownFieldSet

from pulsar_ingress_proxy.binary import commands
from pulsar_ingress_proxy.binary.commands_pb2 import Command, Connect, Connected, Lookup
from pulsar_ingress_proxy.binary.frames import BadFrame, write
from pulsar_ingress_proxy.net.errors import BadAnswer, UpstreamError
from pulsar_ingress_proxy.net.tls import BrokerTls
from pulsar_ingress_proxy.routing.addresses import Broker, Entry, Pattern
from pulsar_ingress_proxy.routing.answers import is_off_listener
from pulsar_ingress_proxy.routing.discovered import Conflict
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.authorities import Authority, parse_authority
from pulsar_ingress_proxy.syntax.hosts import covers
from pulsar_ingress_proxy.syntax.listeners import (
    ADVERTISED_PORTS,
    BINARY_SCHEMES,
    KAFKA_SCHEMES,
    VARIABLE,
    WEB_SCHEMES,
    ServiceUrl,
    parse_service_url,
)
from pulsar_ingress_proxy.tools.reach import ClientTls, Trust, answered, attempt, body_of, greeted, streams
from pulsar_ingress_proxy.tools.terminal import Palette, aligned

_AT_ONCE = 16
_MOST_BROKERS = 256
"""Maximum number of brokers tried for a template."""

# A broker answers with the client's protocol version if its own is newer (Commands.newConnected).
_CONNECT = Connect(client_version=b"doctor", protocol_version=commands.NEWEST_VERSION + 1)
_TOPIC = b"persistent://public/default/pulsar-ingress-proxy-doctor"
_LOOKUP = write(Command(type=commands.LOOKUP, lookup=Lookup(topic=_TOPIC, request_id=1)))
_ANSWERS_TO_CONNECT = {
    commands.CONNECTED: "CONNECTED", commands.ERROR: "ERROR", commands.AUTH_CHALLENGE: "AUTH_CHALLENGE",
}  # fmt: skip
_UNTOLD_BY_KAFKA: Mapping[str | None, str] = {
    "accepts connections": "what is told to Kafka clients there is not checked without the package 'kio': "
    "pip install 'pulsar-ingress-proxy[kafka]'",
    "ApiVersions": "what is told to Kafka clients there is not checked: it closes the connection when asked for "
    "Metadata, as listeners do that want authentication (SASL) first",
}
"""By the answer: why a Kafka listener's addresses are not known."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One address of one broker, and the first problem found."""

    listener: str
    broker: str
    url: str
    resolves: bool | None = None
    connects: bool | None = None
    certificate: bool | None = None
    answers: str | None = None
    problem: str | None = None
    warning: str | None = None
    """A problem of an address that can be reached."""

    @property
    def reachable(self) -> bool:
        return self.problem is None


def as_lines(findings: Sequence[Finding], palette: Palette) -> Iterator[str]:
    """One line for each address, in columns, and a summary."""
    states = [("FAIL", palette.bad), ("warn", palette.warn), ("ok", palette.good)]
    places = aligned([(finding.listener, finding.broker, finding.url, _text(finding)) for finding in findings])
    for finding, place in zip(findings, places, strict=True):
        word, paint = states[0 if not finding.reachable else 1 if finding.warning else 2]
        yield f"{paint(f'{word:<4}')}  {place}"
    failed, warned = (sum(map(bool, (getattr(one, name) for one in findings))) for name in ("problem", "warning"))
    summary = f"{len(findings) - failed} of {len(findings)} addresses reachable from here"
    summary += f", {warned} with a warning" if warned else ""
    yield (palette.bad if failed else palette.warn if warned else palette.good)(summary)


def _text(finding: Finding) -> str:
    return finding.problem or "; ".join(filter(None, (finding.answers, finding.warning)))


def in_order(finding: Finding) -> tuple[object, ...]:
    """By listener, then broker; broker-10 comes after broker-9."""
    return finding.listener, re.sub(r"\d+", lambda digits: digits[0].zfill(9), finding.broker), finding.url


def gaps(
    snapshot: Snapshot, listener: str | None, routed: Iterable[tuple[str, bool]], unmapped: Iterable[Conflict]
) -> Iterator[Finding]:
    """Mapped hosts without a route, and routes without a listener, according to discovery."""
    for entry in snapshot.book.entries:
        if entry.is_template and _is_found(entry, snapshot):
            continue
        said: set[tuple[str, str]] = set()
        for (name, scheme), (source, _) in entry.sources.items():
            url = entry.listeners[name][scheme]
            is_asked = listener in (None, name) and name != snapshot.config.internal_listener_name
            if is_asked and source == "config" and (name, url.host) not in said and not _is_routed(url, routed):
                said.add((name, url.host))
                yield Finding(name, entry.broker, str(url), problem=f"no route at our gateways has {url.host}")
    if listener is None:
        yield from (Finding("(none)", route.subject, route.subject, problem=route.text) for route in unmapped)


def _is_routed(url: ServiceUrl, routed: Iterable[tuple[str, bool]]) -> bool:
    """Whether a URL's host, or one that a template stands for, is among those that routes have."""
    sample, pattern = VARIABLE.sub("0", url.host), Pattern(url.host)
    return any(
        (is_told or url.scheme not in WEB_SCHEMES) and (covers(host, sample) or pattern.match(host) is not None)
        for host, is_told in routed
    )


def _is_found(template: Entry, snapshot: Snapshot) -> bool:
    """Whether brokers of a template were discovered, so that they need not be guessed."""
    return any(entry.line == template.line and entry is not template for entry in snapshot.book.entries)


async def examine(
    snapshot: Snapshot, listener: str | None, found: Callable[[Finding], None], gaps: Iterable[Finding] = ()
) -> list[Finding]:
    """Try every address, or those of one listener; calls `found` for each at once, and returns them in order."""
    limit = asyncio.Semaphore(_AT_ONCE)
    seconds = snapshot.config.timeouts.connect
    # By listener, scheme and address: the first Kafka listener to name it.
    told: dict[tuple[str, str, str], Finding] = {}

    def own() -> BrokerTls:
        return BrokerTls(snapshot.config)

    async def probe(name: str, broker: str, url: ServiceUrl) -> Finding:
        is_ours = name in ("(pool)", snapshot.config.internal_listener_name)
        trust = own if is_ours else ClientTls
        async with limit:
            if url.scheme in KAFKA_SCHEMES:
                finding, addresses = await _probe_kafka(name, broker, url, seconds, trust)
                for address in addresses:
                    told.setdefault((name, url.scheme, address), finding)
            else:
                finding = await _probe(name, broker, url, seconds, trust)
            if finding.answers == "CONNECTED" and not is_ours:
                unknown = _unknown_addresses(await _told(url, seconds), name, snapshot)
                finding = replace(finding, warning="; ".join(filter(None, (finding.warning, unknown))) or None)
        found(finding)
        return finding

    findings = list(gaps)
    for gap in findings:
        found(gap)
    if listener is None:
        pool = [("(pool)", "brokers.webServiceUrl", url) for url in snapshot.config.web_pool]
        pool += [("(pool)", "brokers.brokerServiceUrl", url) for url in snapshot.config.binary_pool]
        findings += await asyncio.gather(*(probe(*address) for address in pool))
    ids = await _broker_ids(snapshot, seconds, own)
    for entry in snapshot.book.entries:
        async for broker in _brokers(entry, ids, listener, seconds, may_count=not _is_found(entry, snapshot)):
            if snapshot.book.describing(broker.name) is entry:
                findings += await asyncio.gather(*(probe(*address) for address in _addresses(broker, listener)))
    tried = {(finding.listener, finding.url) for finding in findings}
    untried = []
    for (name, scheme, address), by in told.items():
        url = _on_listener(name, scheme, address, snapshot)
        if url is None:
            findings.append(_off_listener(scheme, address, by))
            found(findings[-1])
        elif (name, str(url)) not in tried:
            tried.add((name, str(url)))
            untried.append((name, by.broker, url))
    findings += await asyncio.gather(*(probe(*address) for address in untried[:_MOST_BROKERS]))
    return sorted(findings, key=in_order)


def _addresses(broker: Broker, listener: str | None) -> Iterator[tuple[str, str, ServiceUrl]]:
    for name, urls in broker.listeners.items():
        if listener in (None, name):
            yield from ((name, broker.name, url) for url in urls.values())


async def _brokers(
    entry: Entry, ids: list[str], listener: str | None, seconds: float, may_count: bool
) -> AsyncIterator[Broker]:
    """A line's broker; for a template those that the cluster lists, else numbers from 0 until no port is open."""
    if not entry.is_template:
        if broker := entry.fill({}):
            yield broker
        return
    listed = [broker for name in ids if (broker := _named(entry, name)) is not None]
    if listed or not may_count:
        for broker in listed:
            yield broker
        return
    absent: list[Broker] = []
    for number in range(_MOST_BROKERS):
        counted = entry.fill(dict.fromkeys(entry.variables, str(number)))
        if counted is None:
            return
        if await _anything_open(counted, listener, seconds):
            for missing in absent:
                yield missing
            absent = []
            yield counted
        elif number == 0:
            yield counted
        else:
            absent.append(counted)
            if len(absent) > 1:
                return


def _named(entry: Entry, broker_id: str) -> Broker | None:
    authority = parse_authority(broker_id)
    values = entry.named(authority) if authority is not None else None
    return entry.fill(values) if values is not None else None


async def _broker_ids(snapshot: Snapshot, seconds: float, trust: Trust) -> list[str]:
    """The broker ids that the cluster lists, if it lists them without authentication."""
    for url in snapshot.config.web_pool:
        try:
            async with asyncio.timeout(seconds), answered(url, "/admin/v2/brokers", trust, seconds) as answer:
                body = await body_of(answer, seconds)
            ids = json.loads(body) if answer.status == 200 else None
        except (OSError, TimeoutError, UpstreamError, ValueError, RecursionError):  # CannotLoad is a ValueError
            continue
        if isinstance(ids, list):
            return [str(name) for name in ids][:_MOST_BROKERS]
    return []


async def _anything_open(broker: Broker, listener: str | None, seconds: float) -> bool:
    for _, _, url in _addresses(broker, listener):
        try:
            async with asyncio.timeout(seconds):
                _, writer = await asyncio.open_connection(url.host.strip("[]"), int(url.port))
        except (OSError, UnicodeError, TimeoutError):
            continue
        writer.close()
        return True
    return False


async def _probe(listener: str, broker: str, url: ServiceUrl, seconds: float, trust: Trust) -> Finding:
    """One address, and whether it gives the answer of a broker."""
    tried = await attempt(url, seconds, lambda: _ask(url, seconds, trust))
    answer, warning = tried.answer or (None, None)
    is_well = answer in ("200", "401", "403", *_ANSWERS_TO_CONNECT.values())
    problem = tried.problem if answer is None or is_well else f"the broker answers {answer}"
    return Finding(
        listener, broker, str(url), tried.resolves, tried.connects, tried.certificate, answer, problem, warning
    )


async def _ask(url: ServiceUrl, seconds: float, trust: Trust) -> tuple[str, str | None]:
    """The answer of a broker, and a warning about it."""
    if url.scheme in BINARY_SCHEMES:
        try:
            async with greeted(url, _CONNECT, trust, seconds) as (_, greeting):
                is_connected = greeting.type == commands.CONNECTED
                warning = _newer(greeting.command().connected) if is_connected else None
                return _ANSWERS_TO_CONNECT[greeting.type], warning
        except (BadAnswer, BadFrame, KeyError):
            return "something that is not Pulsar's protocol", None
    async with answered(url, "/admin/v2/brokers/ready", trust, seconds) as answer:
        return str(answer.status), None


def _newer(connected: Connected) -> str | None:
    """The problem with a broker that is newer than this sidecar."""
    flags = UnknownFieldSet(connected.feature_flags)
    unknown = [f"feature flag {flags[place].field_number}" for place in range(len(flags))]
    if connected.protocol_version > commands.NEWEST_VERSION:
        unknown.insert(0, f"protocol version {connected.protocol_version}")
    if not unknown:
        return None
    return (
        f"the broker is newer than this sidecar, which does not know its {' and '.join(unknown)}: addresses in new "
        "commands would pass unread; upgrade the sidecar"
    )


async def _probe_kafka(
    listener: str, broker: str, url: ServiceUrl, seconds: float, trust: Trust
) -> tuple[Finding, list[str]]:
    """One address of a Kafka listener, and the addresses that it names."""

    async def ask() -> tuple[str, list[str]]:
        if importlib.util.find_spec("kio") is None:
            async with streams(url, trust):
                return "accepts connections", []
        from pulsar_ingress_proxy.tools.kafka import named_addresses

        named = await named_addresses(url, trust)
        return ("ApiVersions", []) if named is None else ("Metadata", named)

    tried = await attempt(url, seconds, ask)
    answers, named = tried.answer or (None, [])
    finding = Finding(listener, broker, str(url), tried.resolves, tried.connects, tried.certificate, answers)
    return replace(finding, problem=tried.problem, warning=_UNTOLD_BY_KAFKA.get(answers)), named


def _on_listener(listener: str, scheme: str, address: str, snapshot: Snapshot) -> ServiceUrl | None:
    """The URL of an address that a Kafka listener names, if it is that of a broker on the listener."""
    try:
        url = parse_service_url(f"{scheme}://{address}", ports=ADVERTISED_PORTS)
    except ValueError:
        return None
    return url if snapshot.book.is_web_address(listener, Authority(url.host, int(url.port)), 0, (scheme,)) else None


def _off_listener(scheme: str, address: str, by: Finding) -> Finding:
    """What is wrong with an address. It is not tried: `doctor` connects to addresses of the book only."""
    shown = ascii(address[:255])[1:-1]
    problem = (
        f"Kafka clients of {by.url} are told to connect to {shown}, which is not on '{by.listener}': "
        f"correct the broker's kafkaAdvertisedListeners, or advertisedListeners here"
    )
    return Finding(by.listener, by.broker, f"{scheme}://{shown}", problem=problem)


async def _told(url: ServiceUrl, seconds: float) -> list[str]:
    """The addresses that a broker names to a client that names no listener."""
    try:
        async with asyncio.timeout(seconds), greeted(url, _CONNECT, ClientTls, seconds) as (connection, _):
            connection.send(_LOOKUP)
            while (frame := await connection.frame(seconds)).type != commands.LOOKUP_RESPONSE:
                pass
            answer = frame.command().lookup_response
            return [text.decode("utf-8", "replace") for text in (answer.url, answer.url_tls) if text]
    except (OSError, TimeoutError, UpstreamError, BadFrame):
        return []  # it answered CONNECT, and that is enough


def _unknown_addresses(told: list[str], listener: str, snapshot: Snapshot) -> str | None:
    """The problem with the addresses that a listener's own port gives."""
    for text in told:
        if is_off_listener("brokerUrl", text, listener, snapshot):
            return (
                f"clients that are there are told {text}, which is not on '{listener}', when their topics move: "
                f"give this port the listener in the broker's bindAddresses, or lead it through the sidecar"
            )
    return None
