"""Parsing and classification of hosts, authorities and addresses in headers and URLs."""

import ipaddress
import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pulsar_ingress_proxy.syntax.hosts import covers

LONGEST_AUTHORITY = 255 + len(":65535")  # RFC 1035 3.1: a longer host is not a name

# Like DNS, a Host header may have underscores: gateways of container networks send them.
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\.?)(?::([0-9]{0,5}))?")

_INSIDE_SUFFIXES = (".svc", ".local", ".internal", ".localhost")

# The assigned global unicast range (RFC 4291 2.4). Outside it, and in 6to4 (RFC 3056), an address may embed any IPv4
# address: mapped, compatible (RFC 4291 2.5.5) or behind NAT64 (RFC 6052, RFC 8215).
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_SIX_TO_FOUR = ipaddress.IPv6Network("2002::/16")


Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_MOST_PROXIES = 16
"""Maximum number of X-Forwarded-For elements that are read; clients may send thousands."""
_LONGEST_ADDRESS = len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255")


class Authority(NamedTuple):
    """A host in lower case without a trailing dot, and an optional port."""

    host: str
    port: int | None

    def __str__(self) -> str:
        return self.host if self.port is None else f"{self.host}:{self.port}"


def parse_authority(text: str) -> Authority | None:
    """Parse `host[:port]`; None if it is anything else (a user part, a path, a space, a port out of range)."""
    match = _AUTHORITY.fullmatch(text) if len(text) <= LONGEST_AUTHORITY else None
    if match is None:
        return None
    host, port = match.groups()
    host = host.lower().removesuffix(".")
    if port and int(port) > 65535:
        return None
    return Authority(host, int(port) if port else None)


@dataclass(frozen=True, slots=True)
class Location:
    """A parsed Location header; `target` is the unchanged path and query."""

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
    """Parse an absolute http(s) URL; None if it is anything else."""
    parts = split_location(text)
    if parts is None:
        return None
    scheme, _, host = parts[0].partition("://")
    authority = parse_authority(host)
    return None if authority is None else Location(scheme.lower(), authority, parts[1], parts[2])


def split_location(text: str) -> tuple[str, str, str] | None:
    """Split an http(s) URL into scheme and authority, path and query, and fragment; None if it is anything else.

    The authority is not validated.
    """
    start = text.find("://") + 3
    if text[:start].lower() not in ("http://", "https://") or not is_visible(text):
        return None
    rest, mark, fragment = text.partition("#")
    end = rest.find("/", start)
    query = rest.find("?", start, end if end >= 0 else len(rest))
    if query >= 0:
        end = query
    if end < 0:
        return rest, "/", mark + fragment
    target = rest[end:]
    return rest[:end], target if query < 0 else "/" + target, mark + fragment


def is_visible(text: str) -> bool:
    """Whether a text is safe in a header: no spaces, no control characters, only latin-1."""
    if text.isascii():
        return text.isprintable() and " " not in text
    return _VISIBLE.fullmatch(text) is not None


def is_relative(location: str) -> bool:
    """Whether a Location is an absolute path, not `//host` or `scheme:`."""
    return location.startswith("/") and not location.startswith(("//", "/\\")) and is_visible(location)


def looks_inside(host: str, inside_suffixes: Iterable[str]) -> bool:
    """Whether a host is internal: a private address, an unqualified name, or in the cluster's domain."""
    # A top-level domain never begins with a digit (RFC 1123 2.1), but the last label of every IPv4 form that inet_aton
    # accepts does: 127.1, 0177.0.0.1, 127.0.0.0x1.
    if ":" in host or host.startswith("[") or host.rpartition(".")[2][:1].isdigit():
        return not _is_global_address(host)
    if "." not in host or host.endswith(_INSIDE_SUFFIXES):
        return True
    return any(host == suffix or host.endswith("." + suffix) for suffix in inside_suffixes)


def _is_global_address(host: str) -> bool:
    """Whether this is a global address in the canonical form, which every resolver reads the same way."""
    try:
        if ":" not in host:
            v4 = ipaddress.IPv4Address(host)
            return v4.is_global and not v4.is_multicast
        v6 = ipaddress.IPv6Address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return v6.is_global and v6 in _GLOBAL_UNICAST and v6 not in _SIX_TO_FOUR and v6.scope_id is None


def host_matches(host: str, patterns: Iterable[str]) -> bool:
    """Whether a host matches a pattern; `*.` matches one or more labels."""
    return any(covers(pattern, host) for pattern in patterns)


Address = int | ipaddress.IPv6Address
"""An IPv4 address is an integer."""


def parse_address(text: str) -> Address | None:
    """A plain address: no port, brackets or zone id. One of IPv4 that is mapped to IPv6 is itself."""
    if len(text) > _LONGEST_ADDRESS or not text.isascii():
        return None
    # IPv4 in its one plain form; Python's own parser takes four times as long.
    parts = text.split(".", 4)
    try:
        if len(parts) == 4 and parts[0] in _OCTETS:
            first, second, third, fourth = parts
            return _OCTETS[first] << 24 | _OCTETS[second] << 16 | _OCTETS[third] << 8 | _OCTETS[fourth]
        address = ipaddress.IPv6Address(text)
    except (KeyError, ValueError):
        return None
    if address.scope_id is not None:
        return None
    return address if address.ipv4_mapped is None else int(address.ipv4_mapped)


_OCTETS = {str(number): number for number in range(256)}


def peer_address(peername: tuple[str, int] | str | None) -> Address | None:
    """The peer's address; None for Unix sockets."""
    return parse_address(peername[0].partition("%")[0]) if isinstance(peername, tuple) else None


class Networks:
    """A set of networks."""

    def __init__(self, networks: Iterable[Network]) -> None:
        self._networks = tuple(networks)
        v4 = (network for network in self._networks if isinstance(network, ipaddress.IPv4Network))
        self._v4 = tuple((int(network.network_address), int(network.netmask)) for network in v4)

    def has(self, address: Address | None) -> bool:
        if isinstance(address, int):
            for network, mask in self._v4:  # noqa: SIM110 `any` takes twice as long
                if address & mask == network:
                    return True
            return False
        return address is not None and any(address in network for network in self._networks)


def forwarded_client(forwarded_for: bytes, trusted: Networks) -> Address | None:
    """The client's address from the X-Forwarded-For of a trusted proxy, if it has one.

    The field is read from the right, past the addresses of trusted proxies. An element that is not a plain address
    (`unknown`, a port, brackets, a zone id) ends the walk at the address before it, as nothing vouches for the rest.
    """
    found, rest = None, forwarded_for.decode("latin-1")
    for _ in range(_MOST_PROXIES):
        rest, comma, element = rest.rpartition(",")
        address = parse_address(element.strip(" \t"))
        if address is None:
            break
        found = address
        if not comma or not trusted.has(address):
            break
    return found


ClientClass = Literal["loopback", "private", "public"]

# IPv4's special-purpose blocks (IANA's registry, RFC 6890). They are classified by `ipaddress` once: asking it for each
# address would take 6 µs.
_BLOCKS = (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/29",
    "192.0.0.8/32", "192.0.0.9/32", "192.0.0.10/32", "192.0.0.170/31", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
    "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
)  # fmt: skip


def client_class(address: Address | None) -> ClientClass | None:
    """The class of an address, which events record instead of the address."""
    if isinstance(address, int):
        return _CLASSES[bisect_right(_STARTS, address) - 1]
    return None if address is None else _class_of(address)


def _class_of(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ClientClass:
    return "loopback" if address.is_loopback else "public" if address.is_global else "private"


_EDGES = {int(edge) for block in map(ipaddress.IPv4Network, _BLOCKS) for edge in (block[0], int(block[-1]) + 1)}
_STARTS = sorted(edge for edge in _EDGES if edge < 2**32)
_CLASSES = [_class_of(ipaddress.IPv4Address(start)) for start in _STARTS]
