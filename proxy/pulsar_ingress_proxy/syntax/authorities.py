"""Hosts and authorities as they stand in Host headers and URLs: their parts, and where they lead."""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from pulsar_ingress_proxy.memory import AUTHORITIES

# A Host header may hold what DNS allows, underscores too: gateways of container networks send them.
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\.?)(?::([0-9]{0,5}))?")

_INSIDE_SUFFIXES = (".svc", ".local", ".internal", ".localhost")

# All that IANA has assigned (RFC 4291 2.4). Outside it, and in 6to4 (RFC 3056), an address may stand for any of IPv4:
# mapped, compatible (RFC 4291 2.5.5) or behind NAT64 (RFC 6052, RFC 8215).
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_SIX_TO_FOUR = ipaddress.IPv6Network("2002::/16")


Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_MOST_PROXIES = 16
"""Elements of X-Forwarded-For that are looked at; clients may send thousands."""
_LONGEST_ADDRESS = len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255")


class Authority(NamedTuple):
    """A host, lower case and without the root's dot, and the port if one was given."""

    host: str
    port: int | None

    def __str__(self) -> str:
        return self.host if self.port is None else f"{self.host}:{self.port}"


def parse_authority(text: str) -> Authority | None:
    """Read `host[:port]`; None where it is not one (a user part, a path, a space, an impossible port)."""
    return _parse_authority(text) if len(text) <= AUTHORITIES.longest else None


@lru_cache(AUTHORITIES.entries)
def _parse_authority(text: str) -> Authority | None:
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        return None
    host, port = match.groups()
    host = host.lower().removesuffix(".")
    if port and int(port) > 65535:
        return None
    return Authority(host, int(port) if port else None)


@dataclass(frozen=True, slots=True)
class Location:
    """A Location header taken apart; `target` is the path and query as they were, byte for byte."""

    scheme: str
    authority: Authority
    target: str
    fragment: str = ""

    @property
    def port(self) -> int:
        return self.authority.port or (443 if self.scheme == "https" else 80)

    @property
    def address(self) -> str:
        return f"{self.authority.host}:{self.port}"


_VISIBLE = re.compile(r"[!-~\x80-\xff]*")


def parse_location(text: str) -> Location | None:
    """Read an absolute http(s) URL; None where it is anything else."""
    scheme, found, rest = text.partition("://")
    if not found or (scheme := scheme.lower()) not in ("http", "https") or not is_visible(text):
        return None
    rest, mark, fragment = rest.partition("#")
    end = min((place for place in (rest.find("/"), rest.find("?")) if place >= 0), default=len(rest))
    authority, target = parse_authority(rest[:end]), rest[end:]
    if authority is None:
        return None
    return Location(scheme, authority, target if target.startswith("/") else "/" + target, mark + fragment)


def is_visible(text: str) -> bool:
    """Whether a text can stand in a header as it is: no spaces, no control characters, nothing beyond latin-1."""
    if text.isascii():
        return text.isprintable() and " " not in text
    return _VISIBLE.fullmatch(text) is not None


def is_relative(location: str) -> bool:
    """Whether a Location stays with the host that sent it: a path, not `//host` and not `scheme:`."""
    return location.startswith("/") and not location.startswith(("//", "/\\")) and is_visible(location)


def looks_inside(host: str, inside_suffixes: Iterable[str]) -> bool:
    """Whether no client from outside could mean this host: private, unqualified or of the cluster's own domain."""
    # A top-level domain never begins with a digit (RFC 1123 2.1), but every form of IPv4 that inet_aton reads ends in
    # a label that does: 127.1, 0177.0.0.1, 127.0.0.0x1.
    if ":" in host or host.startswith("[") or host.rpartition(".")[2][:1].isdigit():
        return not _is_global_address(host)
    if "." not in host or host.endswith(_INSIDE_SUFFIXES):
        return True
    return any(host == suffix or host.endswith("." + suffix) for suffix in inside_suffixes)


def _is_global_address(host: str) -> bool:
    """Whether this is an address of the Internet, and written so that every resolver reads it alike."""
    try:
        if ":" not in host:
            v4 = ipaddress.IPv4Address(host)
            return v4.is_global and not v4.is_multicast
        v6 = ipaddress.IPv6Address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return v6.is_global and v6 in _GLOBAL_UNICAST and v6 not in _SIX_TO_FOUR and v6.scope_id is None


def host_matches(host: str, patterns: Iterable[str]) -> bool:
    """Whether a host is one of these, where `*.` stands for one label or more."""
    return any(
        host.endswith(pattern[1:]) and len(host) > len(pattern) - 1 if pattern.startswith("*.") else host == pattern
        for pattern in patterns
    )


def forwarded_client(forwarded_for: bytes, trusted: tuple[Network, ...]) -> str | None:
    """The client's address as a trusted proxy tells it; None where it tells none.

    X-Forwarded-For is read from the right, where the nearest proxy wrote, past the addresses of trusted proxies. An
    element that is not a plain address (`unknown`, a port, brackets, a zone id) ends the walk at the address before
    it: who wrote what stands further left is not known.
    """
    found = None
    for element in reversed(forwarded_for.rsplit(b",", _MOST_PROXIES)):
        address = _plain_address(element.strip(b" \t"))
        if address is None:
            break
        found = str(address)
        if not any(address in network for network in trusted):
            break
    return found


def _plain_address(text: bytes) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An address; one of IPv4 also where it is mapped to IPv6."""
    if len(text) > _LONGEST_ADDRESS or b"%" in text:
        return None
    try:
        address = ipaddress.ip_address(text.decode("latin-1"))
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, ipaddress.IPv6Address) else address
