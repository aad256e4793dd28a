"""What becomes of the addresses that brokers tell clients: put on the listener, or found to be a leak. Pure.

Which commands carry any stands in `commands.CARRIERS`. The addresses are chosen by the functions that choose them for
HTTP (`answers.settle`, `redirects.way_to`).
"""

from dataclasses import dataclass, replace
from typing import Literal

from pulsar_ingress_proxy.binary.commands import CARRIERS, LOOKUP_RESPONSE, REDIRECT, TOPIC_MIGRATED, Addressed
from pulsar_ingress_proxy.binary.commands_pb2 import Command, LookupResponse, SegmentBroker
from pulsar_ingress_proxy.binary.endpoints import is_through, name_through
from pulsar_ingress_proxy.routing.addresses import Broker
from pulsar_ingress_proxy.routing.answers import settle
from pulsar_ingress_proxy.routing.redirects import Policy, Way, way_to, way_to_nobody
from pulsar_ingress_proxy.routing.selection import Refusal, Selection
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.authorities import Authority, host_matches
from pulsar_ingress_proxy.syntax.listeners import BINARY_SCHEMES, ServiceUrl, parse_service_url

_KEYS = ("brokerUrl", "brokerUrlTls")

LeakAction = Literal["observed", "blocked", "passed"]


@dataclass(frozen=True, slots=True)
class Placed:
    """Two addresses of a broker, as a client of a listener may have them."""

    url: str | None
    url_tls: str | None
    is_through: bool
    """Whether they are names for CONNECT only: the client stays with the address that it has."""
    broker: str | None
    was_foreign: bool
    """What the broker said had an address that is not on the listener."""
    is_foreign: bool
    """This still has."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What was found of a command that carries addresses; the command itself is changed in place."""

    changed: bool = False
    broker: str | None = None
    leak: LeakAction | None = None
    refusal: Refusal | None = None
    """Why the client may not have it."""


def place(message: Addressed, selection: Selection, snapshot: Snapshot) -> Placed:
    """Two addresses put on the selected listener."""
    assert selection.listener is not None
    through = is_through(selection)
    key = ("placed", message.url, message.url_tls, selection.listener, through)
    found = snapshot.memory.get(key)
    if isinstance(found, Placed):
        return found
    made = _place(_text(message.url), _text(message.url_tls), selection.listener, through, snapshot)
    return snapshot.remember(key, made)


def _place(url: str, url_tls: str, listener: str, through: bool, snapshot: Snapshot) -> Placed:
    sent = {key: value for key, value in zip(_KEYS, (url, url_tls), strict=True) if value}
    settled = settle(sent, _KEYS, listener, snapshot)
    placed = Placed(
        settled.urls.get("brokerUrl"),
        settled.urls.get("brokerUrlTls"),
        False,
        settled.named,
        settled.was_foreign,
        settled.is_foreign,
    )
    if not through or not sent:
        return placed
    name = name_through(settled.broker, settled.named, listener, snapshot)
    if name is None:
        return replace(placed, was_foreign=True, is_foreign=True)
    # A client reads the one that goes with its own transport and fails where it is absent, so both are there.
    return replace(placed, url=f"pulsar://{name}", url_tls=f"pulsar+ssl://{name}", is_through=True, is_foreign=False)


def judge_found(response: LookupResponse, selection: Selection, snapshot: Snapshot) -> Judged:
    """A lookup's answer that names the broker to connect to."""
    placed, leaks = place(response, selection, snapshot), _leaks(selection, snapshot)
    if leaks == "observe":
        return Judged(broker=placed.broker, leak="observed" if placed.was_foreign else None)
    if placed.is_foreign and leaks == "block":
        return Judged(broker=placed.broker, leak="blocked", refusal=_refusal(placed, selection))
    return Judged(_put(response, placed), placed.broker, "passed" if placed.is_foreign else None)


def judge_told(command: Command, selection: Selection, snapshot: Snapshot) -> Judged:
    """Addresses that nobody asked for, all those of one command.

    Blocked is what is not on the listener: without it the client looks the topic up again. Of a migration or a
    redirect nothing would be left, so that is refused whole.
    """
    leaks, through, is_straight = _leaks(selection, snapshot), is_through(selection), _leads_straight(command)
    changed, broker = False, None
    leak: LeakAction | None = None
    for message in CARRIERS[command.type](command):
        if not message.url and not message.url_tls:
            continue
        if command.type == TOPIC_MIGRATED and not through and _is_peers(message, snapshot):
            continue
        placed = place(message, selection, snapshot)
        if through and is_straight:
            placed = replace(placed, was_foreign=True, is_foreign=True)
        broker = broker or placed.broker
        if leaks == "observe":
            leak = "observed" if placed.was_foreign else leak
        elif not placed.is_foreign:
            changed |= _put(message, placed)
        elif leaks == "rewrite":
            changed |= _put(message, placed)
            leak = "passed"
        elif is_straight:
            return Judged(False, broker, "blocked", _refusal(placed, selection))
        else:
            leak, changed = "blocked", True
            message.ClearField("url_tls")
            if isinstance(message, SegmentBroker):
                message.url = b""  # which has to be there
            else:
                message.ClearField("url")
    return Judged(changed, broker, leak)


def _leaks(selection: Selection, snapshot: Snapshot) -> Literal["rewrite", "block", "observe"]:
    """What becomes of addresses off the listener. Where clients come through the sidecar, none may lead past it."""
    if snapshot.config.shadow:
        return "observe"
    return "block" if is_through(selection) else snapshot.config.leaks


def _refusal(placed: Placed, selection: Selection) -> Refusal:
    text = f"the broker's answer has an address that is not on listener '{selection.listener}'"
    if is_through(selection):
        text = "the broker's answer has an address that leads past this sidecar, and the ingress has throughSidecar"
    return Refusal(502, "leak", text, placed.broker or "")


def _leads_straight(command: Command) -> bool:
    """Whether clients go to these addresses themselves, even where they reach brokers through a proxy.

    A migration's (PIP-188) is the service URL of a new lookup (ConnectionHandler.grabCnx), a redirect's that of the
    next (BinaryProtoLookupService.findBroker).
    """
    is_redirect = command.type == LOOKUP_RESPONSE and command.lookup_response.response == REDIRECT
    return is_redirect or command.type == TOPIC_MIGRATED


def _is_peers(message: Addressed, snapshot: Snapshot) -> bool:
    """Whether these are addresses of a cluster that clients may be sent to (`redirects.peers`)."""
    found = [_url(_text(url)) for url in (message.url, message.url_tls) if url]
    return all(url is not None and host_matches(url.host, snapshot.config.redirects.peers) for url in found)


def judge_redirect(
    response: LookupResponse, selection: Selection, scheme: str, snapshot: Snapshot, can_follow: bool
) -> tuple[Way, str]:
    """What becomes of an answer that names the broker to ask next, and the address by which it does."""
    assert selection.listener is not None
    config = snapshot.config
    # Under `observe` no binary answer is changed.
    policy: Policy = "pass" if config.leaks == "observe" else config.redirects.lookup
    found: list[ServiceUrl] = [url for text in (response.url, response.url_tls) if (url := _url(_text(text)))]
    named = next((url for url in found if _broker(url, snapshot) is not None), found[0] if found else None)
    shown = str(named) if named is not None else _text(response.url or response.url_tls)
    if is_through(selection):
        way = _way_through(_broker(named, snapshot) if named is not None else None, shown, can_follow)
    elif named is None:
        way = way_to_nobody("", policy, snapshot)
    else:
        port = int(named.port)
        authority = Authority(named.host, port)
        way = way_to(authority, port, selection.listener, scheme, policy, can_follow, snapshot)
        if way.refusal is not None and way.refusal.code == "body-not-replayable":
            way = replace(way, refusal=_cannot_repeat(way.refusal.detail))
    return way, shown


def _way_through(broker: Broker | None, shown: str, can_follow: bool) -> Way:
    """A redirect of a client that reaches brokers through the sidecar: followed or refused, whatever `redirects` says.

    The client would go straight to where it leads.
    """
    if broker is None:
        text = "a broker redirects to an address that advertisedListeners lacks, and the ingress has throughSidecar"
        return Way("refused", refusal=Refusal(502, "unknown-authority", text, shown), unmapped=True)
    if not can_follow:
        return Way("refused", refusal=_cannot_repeat(broker.name))
    return Way("followed", broker=broker)


def _cannot_repeat(detail: str) -> Refusal:
    text = "a redirect must be followed, and the client's authentication cannot be repeated to another broker"
    return Refusal(502, "auth-not-replayable", text, detail)


def put_redirect(response: LookupResponse, selection: Selection, snapshot: Snapshot) -> bool:
    """Give a redirect its addresses on the listener; whether that changes any."""
    assert selection.listener is not None
    return _put(response, _place(_text(response.url), _text(response.url_tls), selection.listener, False, snapshot))


def _put(message: Addressed, placed: Placed) -> bool:
    changed = False
    for field, text in (("url", placed.url), ("url_tls", placed.url_tls)):
        wanted = (text or "").encode()
        if getattr(message, field) != wanted:
            changed = True
            if text:
                setattr(message, field, wanted)
            else:
                message.ClearField(field)
    if not isinstance(message, LookupResponse) or placed.is_foreign:
        return changed
    if message.proxy_through_service_url != placed.is_through:
        message.proxy_through_service_url = placed.is_through
        return True
    return changed


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _url(text: str) -> ServiceUrl | None:
    try:
        return parse_service_url(text)
    except ValueError:
        return None


def _broker(url: ServiceUrl, snapshot: Snapshot) -> Broker | None:
    return snapshot.book.resolve(Authority(url.host, int(url.port)), 0, BINARY_SCHEMES)
