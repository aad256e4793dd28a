"""Listener names and URLs in the syntax of broker configs (PIP-61, PIP-95).

The rules are those of Pulsar 5.x (MultipleListenerValidator, BindAddressValidator), but reject three mistakes that
brokers accept: a URL without a listener name, an unknown scheme, and a port out of range.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

DEFAULT_PORTS = {"pulsar": 6650, "pulsar+ssl": 6651, "http": 80, "https": 443}
ADVERTISED_PORTS = {**DEFAULT_PORTS, "kafka": 9092, "kafka+ssl": 9093}
"""Brokers accept any scheme in advertisedListeners, and ignore Kafka's; `doctor` does not."""
WEB_SCHEMES = ("http", "https")
BINARY_SCHEMES = ("pulsar", "pulsar+ssl")
KAFKA_SCHEMES = ("kafka", "kafka+ssl")
TLS_SCHEMES = ("https", "pulsar+ssl", "kafka+ssl")

NAME = re.compile(r"[A-Za-z0-9_-]+")
VARIABLE = re.compile(r"\{([A-Za-z]\w*)(?:\+(\d{1,9}))?\}", re.ASCII)

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(\[[^\]/]*\]|[^\[\]:/?#]*)(?::([^/?#]*))?(/?)")
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?")


class SyntaxFaults(ValueError):
    """All faults of one value, one per line."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(self.faults))


@dataclass(frozen=True)
class ServiceUrl:
    """`scheme://host:port`; in templates host and port may have `{n}` and `{n+6651}`."""

    scheme: str
    host: str
    port: str
    shows_port: bool = field(default=True, compare=False)

    @cached_property
    def authority(self) -> str:
        return f"{self.host}:{self.port}"

    @cached_property
    def host_field(self) -> bytes:
        """The Host field of requests to this URL."""
        return f"Host: {self.authority if self.shows_port else self.host}".encode()

    @cached_property
    def text(self) -> str:
        """The URL as a string; a fast dictionary key, as strings cache their hash."""
        return f"{self.scheme}://{self.authority if self.shows_port else self.host}"

    def __str__(self) -> str:
        return self.text


Urls = Mapping[str, ServiceUrl]
"""A listener's URLs by scheme."""


@dataclass(frozen=True)
class BindAddress:
    """A socket to bind, and the listener of everything that arrives on it, if it has one."""

    listener: str | None
    scheme: str
    host: str
    port: int

    @cached_property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.listener + ':' if self.listener else ''}{self.scheme}://{self.address}"


def parse_advertised_listeners(text: str) -> dict[str, dict[str, ServiceUrl]]:
    """Parse `name:scheme://host:port,…` into URLs by listener and scheme."""
    listeners: dict[str, dict[str, ServiceUrl]] = {}
    owners: dict[str, str] = {}
    faults: list[str] = []
    for part in comma_separated(text):
        try:
            name, url = _split_name(part)
            _add_url(listeners, owners, name, parse_service_url(url, template=True, ports=ADVERTISED_PORTS))
        except ValueError as fault:
            faults.append(str(fault))
    if faults:
        raise SyntaxFaults(faults)
    return listeners


def parse_bind_addresses(value: str | Iterable[str]) -> tuple[BindAddress, ...]:
    """Parse `[name:]scheme://host:port`, comma-separated or as a list."""
    parts = comma_separated(value) if isinstance(value, str) else [str(part).strip() for part in value]
    addresses: list[BindAddress] = []
    faults: list[str] = []
    for part in parts:
        try:
            address = _parse_bind_address(part)
            _refuse_conflict(address, addresses)
        except ValueError as fault:
            faults.append(str(fault))
        else:
            if address not in addresses:
                addresses.append(address)
    if faults:
        raise SyntaxFaults(faults)
    return tuple(addresses)


def parse_service_url(text: str, template: bool = False, ports: Mapping[str, int] = DEFAULT_PORTS) -> ServiceUrl:
    """Parse one URL of a broker; raises ValueError that says what is wrong and how to fix it."""
    match = _URL.fullmatch(text)
    if match is None or "@" in text:
        raise ValueError(f"'{without_user(text)}' is not a URL: write scheme://host:port, with no path, user or query")
    scheme, host, port, _ = match.groups()
    scheme = scheme.lower()
    if scheme not in ports:
        raise ValueError(f"'{text}' has the unknown scheme '{scheme}': use one of {', '.join(ports)}")
    if not is_host(VARIABLE.sub("x", host) if template else host):
        raise ValueError(f"'{text}' has no valid host: letters, digits, hyphens and dots, or [IPv6]")
    # Brokers always write the port of a binary URL.
    shows_port = port is not None or scheme not in WEB_SCHEMES
    return ServiceUrl(scheme, host.lower().rstrip("."), _port(text, port, ports[scheme], template), shows_port)


def without_user(text: str) -> str:
    """A text that may be a URL, to be shown: with a user, it may have a password."""
    return re.sub("//.*@", "//…@", text, flags=re.DOTALL)


def kind_of(scheme: str) -> tuple[str, str]:
    """WEB_SCHEMES, BINARY_SCHEMES or KAFKA_SCHEMES: addresses are compared only within one of these."""
    return BINARY_SCHEMES if scheme in BINARY_SCHEMES else KAFKA_SCHEMES if scheme in KAFKA_SCHEMES else WEB_SCHEMES


def is_host(host: str) -> bool:
    """Whether java.net.URI, which brokers use, accepts this host: no underscores."""
    if host.startswith("["):
        return host.endswith("]") and isinstance(_ip(host[1:-1]), ipaddress.IPv6Address)
    labels = host.removesuffix(".").split(".")
    # If the last of several labels begins with a digit, only an IPv4 address is valid.
    if labels[-1][:1].isdigit() and (len(labels) > 1 or host.isdigit()):
        return isinstance(_ip(host), ipaddress.IPv4Address)
    return all(_LABEL.fullmatch(label) for label in labels)


def is_bindable(host: str) -> bool:
    """Whether a socket could be bound to it: an address, or a valid DNS name (RFC 1035 2.3.4)."""
    return is_host(host.replace("_", "x")) and all(len(label) <= 63 for label in host.split("."))


def is_one_socket(host: str, port: int, other_host: str, other_port: int) -> bool:
    """Whether the two cannot be bound at the same time: `0.0.0.0` conflicts with every IPv4 address.

    Port 0 never conflicts. Names are not resolved.
    """
    if port != other_port or port == 0:
        return False
    one, other = _ip(host.strip("[]")), _ip(other_host.strip("[]"))
    if one is None or other is None or one.version != other.version:
        return host == other_host
    return one == other or one.is_unspecified or other.is_unspecified


def check_name(name: str) -> str:
    """Return the name; raises ValueError if it is invalid."""
    if not NAME.fullmatch(name):
        raise ValueError(f"'{name}' is not a listener name: use letters, digits, hyphens and underscores")
    return name


def comma_separated(text: str) -> list[str]:
    """The parts of a list without surrounding spaces; empty ones are left out."""
    return [part for raw in text.split(",") if (part := raw.strip())]


def _split_name(part: str) -> tuple[str, str]:
    name, colon, url = part.partition(":")
    if not colon or not name.strip():
        raise ValueError(f"'{part}' has no listener name: write NAME:scheme://host:port")
    if url.startswith("//"):
        raise ValueError(f"'{part}' has no listener name: write NAME:{part}")
    return check_name(name.strip()), url.strip()


def _add_url(listeners: dict[str, dict[str, ServiceUrl]], owners: dict[str, str], name: str, url: ServiceUrl) -> None:
    urls = listeners.setdefault(name, {})
    if url.scheme in urls:
        raise ValueError(f"listener '{name}' has two {url.scheme} URLs: keep one of {urls[url.scheme]}, {url}")
    owner = owners.setdefault(url.authority, name)
    if owner != name:
        raise ValueError(f"{url.authority} is in two listeners, '{owner}' and '{name}': give each its own")
    urls[url.scheme] = url


def _parse_bind_address(part: str) -> BindAddress:
    name, _, rest = part.partition(":")
    nameless = rest.startswith("//")
    listener = None if nameless else check_name(name.strip())
    url = parse_service_url(part if nameless else rest.strip())
    return BindAddress(listener, url.scheme, url.host, int(url.port))


def _refuse_conflict(new: BindAddress, others: Iterable[BindAddress]) -> None:
    for other in others:
        if new.address != other.address:
            continue
        if new.scheme == other.scheme and new.listener != other.listener:
            raise ValueError(f"{new.address} is bound for two listeners: {other} and {new}")
        # As in brokers, only sockets of one protocol are compared; port 0 never conflicts.
        if new.scheme != other.scheme and new.port and kind_of(new.scheme) == kind_of(other.scheme):
            raise ValueError(f"{new.address} is bound for two schemes: {other} and {new}")


def _port(url: str, text: str | None, default: int, template: bool) -> str:
    if text is None:
        return str(default)
    if template and VARIABLE.fullmatch(text):
        return text.lower()
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"'{url}' has the port '{text}': use a number{', or {n+6651}' if template else ''}")
    if int(text) > 65535:
        raise ValueError(f"'{url}' has the port {text}: the highest is 65535")
    return str(int(text))


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
