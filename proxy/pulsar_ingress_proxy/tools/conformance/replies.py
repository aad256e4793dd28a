"""Answers of both protocols in one form, with HTTP's statuses, and where a redirect leads. Pure."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pulsar_ingress_proxy.binary import commands
from pulsar_ingress_proxy.binary.commands_pb2 import Command, LookupResponse
from pulsar_ingress_proxy.routing.answers import URL_KEYS
from pulsar_ingress_proxy.syntax.authorities import is_relative, parse_location
from pulsar_ingress_proxy.syntax.listeners import BINARY_SCHEMES, TLS_SCHEMES, ServiceUrl, parse_service_url

_CODE = re.compile(r"([a-z]+(?:-[a-z]+)+|leak|overloaded|unmapped): ")
_REDIRECTS = (301, 302, 303, 307, 308)


@dataclass(frozen=True)
class Reply:
    """The answer to one request."""

    url: ServiceUrl
    """The address that was asked."""
    status: int
    reason: str = ""
    """What the sidecar or a broker says about a failure."""
    passed_sidecar: bool = True
    """Whether it came through the sidecar, which gives every HTTP answer an X-Request-Id."""
    location: str | None = None
    addresses: Mapping[str, str] = field(default_factory=dict)
    """The brokers' URLs, by the keys of an HTTP lookup's answer."""
    authoritative: bool = False
    through: bool = False
    """Whether brokers are reached through the same address (`proxy_through_service_url`)."""

    @cached_property
    def code(self) -> str | None:
        """The code of an answer by the sidecar itself."""
        found = _CODE.match(self.reason)
        return found[1] if found is not None else None

    @property
    def is_redirect(self) -> bool:
        return self.status in _REDIRECTS

    @property
    def needed_key(self) -> str:
        """The address that a client of this URL connects to: with TLS if it came with TLS."""
        return "brokerUrlTls" if self.url.scheme in TLS_SCHEMES else "brokerUrl"


@dataclass(frozen=True, slots=True)
class Hop:
    """The next request of a redirected client."""

    url: ServiceUrl
    target: str = ""
    authoritative: bool = False
    named: str = ""
    """The broker that CONNECT names, if it is reached through the sidecar."""


def http_reply(url: ServiceUrl, status: int, fields: Iterable[bytes], location: bytes | None, body: bytes) -> Reply:
    """From an HTTP answer."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    texts = answer if isinstance(answer, dict) else {}
    is_error = status >= 400
    return Reply(
        url,
        status,
        str(texts.get("reason") or body[:1000].decode("utf-8", "replace")) if is_error else "",
        any(line.lower().startswith(b"x-request-id:") for line in fields),
        location.decode("latin-1") if location is not None else None,
        {} if is_error else {key: str(texts[key]) for key in URL_KEYS if texts.get(key)},
    )


def binary_reply(url: ServiceUrl, command: Command) -> Reply:
    """From the answer to CONNECT or to a lookup."""
    match command.type:
        case commands.CONNECTED:
            return Reply(url, 200)
        case commands.AUTH_CHALLENGE:
            return Reply(url, 401, "the broker sends an authentication challenge")
        case commands.ERROR:
            error = command.error
            return Reply(url, commands.status_of(error.error), error.message.decode("utf-8", "replace"))
        case _:
            return _lookup_reply(url, command.lookup_response)


def _lookup_reply(url: ServiceUrl, response: LookupResponse) -> Reply:
    if response.response == commands.FAILED:
        return Reply(url, commands.status_of(response.error), response.message.decode("utf-8", "replace"))
    told = {"brokerUrl": response.url, "brokerUrlTls": response.url_tls}
    return Reply(
        url,
        307 if response.response == commands.REDIRECT else 200,
        addresses={key: text.decode("utf-8", "replace") for key, text in told.items() if text},
        authoritative=response.authoritative,
        through=response.proxy_through_service_url,
    )


def next_hop(reply: Reply) -> Hop | None:
    """Where a redirect leads; None if it cannot be followed."""
    if reply.url.scheme in BINARY_SCHEMES:
        address = reply.addresses.get(reply.needed_key, "")
        if reply.through:
            return Hop(reply.url, authoritative=reply.authoritative, named=address)
        url = service_url(address)
        return Hop(url, authoritative=reply.authoritative) if url is not None else None
    if reply.location is None:
        return None
    if is_relative(reply.location):
        return Hop(reply.url, reply.location)
    there = parse_location(reply.location)
    if there is None:
        return None
    host, port = there.authority
    return Hop(ServiceUrl(there.scheme, host, str(there.port), shows_port=port is not None), there.target)


def service_url(text: str) -> ServiceUrl | None:
    """A broker's URL; None if it is not one."""
    try:
        return parse_service_url(text)
    except ValueError:
        return None
