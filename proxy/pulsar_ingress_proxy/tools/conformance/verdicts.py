"""What an answer says about the way that it came, and who has to act if it is not the expected one. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from pulsar_ingress_proxy.net.errors import BadAnswer, ClosedEarly
from pulsar_ingress_proxy.routing.answers import is_off_listener, rewritten_keys
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.authorities import Authority, host_matches
from pulsar_ingress_proxy.syntax.listeners import TLS_SCHEMES, ServiceUrl, kind_of
from pulsar_ingress_proxy.tools.conformance.replies import Hop, Reply, service_url
from pulsar_ingress_proxy.tools.explain import OwnAnswer
from pulsar_ingress_proxy.tools.reach import Attempt
from pulsar_ingress_proxy.tools.terminal import printable

T = TypeVar("T")

State = Literal["held", "failed", "skipped"]
Cause = Literal["dns", "certificate", "route", "listener", "broker", "sidecar", "credentials"]

HELP: Mapping[Cause, str] = {cause: f"docs/conformance.md#{cause}" for cause in get_args(Cause)}
"""The section for each cause, from the root of the repository."""

# Codes of the sidecar's own answers (docs/decisions.md). All others are about the request, or the sidecar's state.
_CAUSES: Mapping[str, Cause] = {
    **dict.fromkeys(
        ("no-rule", "unknown-listener", "broker-lacks-listener", "not-allowed", "client-named", "leak", "unmapped",
         "unknown-authority", "unknown-broker", "not-through-here"),
        "listener",
    ),
    **dict.fromkeys(
        ("broker-unreachable", "broker-closed", "broker-truncated", "broker-timeout", "broker-rejected", "bad-answer",
         "redirect-loop", "too-many-redirects", "auth-not-replayable"),
        "broker",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one check."""

    state: State
    text: str
    cause: Cause | None = None
    is_allowed: bool = True
    """Whether the answer says more than that something was reached."""

    @property
    def leads_on(self) -> bool:
        """Whether checks that build on this one can be made."""
        return self.state == "held" and self.is_allowed

    def skipping(self, check: str) -> "Verdict":
        """The verdict on checks that build on this one, where it does not lead on."""
        reasons: dict[State, str] = {
            "held": f"not tried: {check} says no more than what was reached",
            "failed": f"not tried: {check} did not hold",
            "skipped": self.text,
        }
        return Verdict("skipped", reasons[self.state])


@dataclass(frozen=True, slots=True)
class Expected:
    """What a request should be answered with."""

    refusal: OwnAnswer | None = None
    """By the config, the sidecar refuses it so."""
    has_credentials: bool = False
    may_be_absent: bool = False
    """Whether a broker's 404 is an answer."""


def held(text: str, is_allowed: bool = True) -> Verdict:
    return Verdict("held", printable(text), None, is_allowed)


def failed(cause: Cause, text: str) -> Verdict:
    return Verdict("failed", printable(text), cause)


def unreached(tried: Attempt[T], url: ServiceUrl, at_ingress: bool) -> Verdict:
    """The verdict on a request that got no answer."""
    text = tried.problem or ""
    if tried.resolves is False:
        return failed("dns", text)
    if tried.connects is False:
        return failed("route", f"{url}: {text}")
    if tried.certificate is False:
        return failed("certificate", f"{url}: {text}")
    if isinstance(tried.error, BadAnswer):
        return failed("route", f"{url}: {text}: something else than Pulsar is there")
    if isinstance(tried.error, ConnectionError) and url.scheme in TLS_SCHEMES:
        # It looks the same where a gateway passes TLS through to a broker that is down.
        return failed("route", f"{url}: closed in the TLS handshake: no route has this server name")
    if isinstance(tried.error, ClosedEarly) and at_ingress:
        return failed("route", f"{url}: closed without an answer: nothing is behind the gateway")
    return failed("broker", f"{url}: {text}")


def judge(reply: Reply, expected: Expected) -> Verdict:
    """The verdict on an answer's status; the first rule that applies decides."""
    return next(verdict for rule in _RULES if (verdict := rule(reply, expected)) is not None)


def _as_configured(reply: Reply, expected: Expected) -> Verdict | None:
    own = expected.refusal
    if own is None or reply.code != own.code:
        return None
    return held(f"refused, as the config says: {own.code}: {own.text}", is_allowed=False)


def _by_sidecar(reply: Reply, expected: Expected) -> Verdict | None:
    if reply.status < 400 or reply.code is None:
        return None
    return failed(_CAUSES.get(reply.code, "sidecar"), f"the sidecar answers {reply.status} {reply.reason}")


def _not_allowed(reply: Reply, expected: Expected) -> Verdict | None:
    if reply.status not in (401, 403):
        return None
    if expected.has_credentials:
        return failed("credentials", f"{reply.url} answers {reply.status} to these credentials: {reply.reason}")
    return held(f"reached, not allowed: {reply.status}", is_allowed=False)


def _answered(reply: Reply, expected: Expected) -> Verdict | None:
    if reply.status == 200 or reply.is_redirect:
        return held("redirected" if reply.is_redirect else "answered")
    if reply.status == 404 and expected.may_be_absent and reply.passed_sidecar:
        return held("404 from a broker: the topic does not exist yet")
    return None


def _by_gateway(reply: Reply, expected: Expected) -> Verdict | None:
    """An error without the sidecar's mark. After a 504 it was at least tried."""
    if reply.passed_sidecar:
        return None
    text = f"{reply.url} answers {reply.status}, and not the sidecar: {reply.reason}"
    return failed("broker" if reply.status == 504 else "route", text)


def _by_broker(reply: Reply, expected: Expected) -> Verdict:
    hint = " (--topic names another topic)" if reply.status == 404 else ""
    return failed("broker", f"the broker answers {reply.status}: {reply.reason}{hint}")


_Rule = Callable[[Reply, Expected], Verdict | None]
_RULES: tuple[_Rule, ...] = (_as_configured, _by_sidecar, _not_allowed, _answered, _by_gateway, _by_broker)


def judge_hop(reply: Reply, hop: Hop | None, listener: str, snapshot: Snapshot) -> Verdict | None:
    """The problem with a redirect, if it has one: it must lead to the listener, or the client cannot follow it."""
    if hop is not None and (hop.named or hop.url == reply.url or is_peer(hop, snapshot)):
        return None
    told = {"httpUrl": str(hop.url)} if hop is not None and reply.location is not None else reply.addresses
    strays = [text for key, text in told.items() if is_off_listener(key, text, listener, snapshot)]
    if strays:
        return _off_listener(reply, {"a redirect to": strays[0]}, listener, snapshot)
    if hop is None:
        where = reply.location or ", ".join(reply.addresses.values()) or "no address"
        return failed("broker", f"{reply.url} redirects to {where}, which a client cannot follow")
    return None


def is_peer(hop: Hop, snapshot: Snapshot) -> bool:
    """Whether a redirect leads to a peer cluster, of which the config knows no addresses."""
    return host_matches(hop.url.host, snapshot.config.redirects.peers)


def judge_addresses(reply: Reply, listener: str, snapshot: Snapshot) -> Verdict:
    """The verdict on the addresses of a lookup's answer."""
    if not any(reply.addresses.get(key) for key in ("brokerUrl", "brokerUrlTls")):
        return failed("broker" if reply.passed_sidecar else "route", f"{reply.url} answers 200, and names no broker")
    if reply.through:
        return held(f"through {reply.url}: {', '.join(dict.fromkeys(reply.addresses.values()))}")
    told = client_addresses(reply, snapshot)
    strays = {key: text for key, text in told.items() if is_off_listener(key, text, listener, snapshot)}
    if strays:
        return _off_listener(reply, strays, listener, snapshot)
    if reply.needed_key not in reply.addresses:
        text = f"the answer has no {reply.needed_key}, which a client of {reply.url.scheme}:// connects to"
        return failed("listener", f"{text}: listener '{listener}' has no TLS address")
    return held(f"on '{listener}': {', '.join(dict.fromkeys(told.values()))}")


def client_addresses(reply: Reply, snapshot: Snapshot) -> dict[str, str]:
    """The addresses that the sidecar puts on the listener."""
    return {key: reply.addresses[key] for key in rewritten_keys(snapshot) if key in reply.addresses}


def _off_listener(reply: Reply, strays: Mapping[str, str], listener: str, snapshot: Snapshot) -> Verdict:
    first_keys: dict[str, str] = {}
    for key, address in strays.items():
        first_keys.setdefault(address, key)
    told = ", ".join(f"{key} {address}" for address, key in first_keys.items())
    text = f"{told}: not on listener '{listener}'"
    if snapshot.config.shadow:
        return failed("sidecar", f"{text}, because shadow is true: the sidecar changes nothing")
    if not reply.passed_sidecar:
        return failed("route", f"{text}, and the answer did not come through the sidecar (it has no X-Request-Id)")
    return failed("listener", f"{text}; {_known(strays.values(), listener, snapshot)}")


def _known(texts: Iterable[str], listener: str, snapshot: Snapshot) -> str:
    """What the address book has instead of the first of these."""
    for url in filter(None, map(service_url, texts)):
        schemes = kind_of(url.scheme)
        broker = snapshot.book.resolve(Authority(url.host, int(url.port)), 0, schemes)
        if broker is None:
            return f"advertisedListeners does not have {url.authority}"
        own = [str(one) for scheme, one in broker.listeners.get(listener, {}).items() if scheme in schemes]
        if own:
            return f"the config has {' or '.join(own)} for it: the sidecar runs with another config, or lets it pass"
        return f"advertisedListeners has no such address of {broker.name} on '{listener}'"
    return "it is not a broker's URL"
