"""The address book: the names of brokers, and their addresses on each listener. Pure.

It is built once for a snapshot and never changes. An entry may be a template for a StatefulSet of any size; templates
work both ways, from a broker's name to its addresses and from an address back to the broker.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import get_args

from pulsar_ingress_proxy.routing.discovered import Source
from pulsar_ingress_proxy.syntax.authorities import Authority
from pulsar_ingress_proxy.syntax.listeners import BINARY_SCHEMES, VARIABLE, WEB_SCHEMES, ServiceUrl, Urls, kind_of


class Pattern:
    """A text with variables, `{n}` or `{n+6651}`: `fill` inserts values, `match` extracts them."""

    __slots__ = ("_regex", "_sums", "text", "variables")

    def __init__(self, text: str) -> None:
        self.text = text
        self.variables = frozenset(match[1] for match in VARIABLE.finditer(text)) if "{" in text else frozenset()
        self._sums: list[tuple[str, str, int]] = []
        # Discovery creates thousands of patterns without variables, which need no regex.
        self._regex = self._compiled() if self.variables else None

    def _compiled(self) -> re.Pattern[str]:
        seen: set[str] = set()
        regex, end = "", 0
        for match in VARIABLE.finditer(self.text):
            regex += re.escape(self.text[end : match.start()])
            end = match.end()
            name, addend = match[1], match[2]
            if addend is not None:
                group = f"_sum{len(self._sums)}"
                self._sums.append((group, name, int(addend)))
                regex += f"(?P<{group}>0|[1-9][0-9]{{0,9}})"
            elif name in seen:
                regex += f"(?P={name})"
            else:
                seen.add(name)
                regex += f"(?P<{name}>[A-Za-z0-9-]+)"
        return re.compile(regex + re.escape(self.text[end:]))

    def match(self, text: str) -> dict[str, str] | None:
        """The values that produce this text, or None."""
        if self._regex is None:
            return {} if text == self.text else None
        match = self._regex.fullmatch(text)
        if match is None:
            return None
        values = {name: value for name, value in match.groupdict().items() if not name.startswith("_sum")}
        for group, name, addend in self._sums:
            number = int(match[group]) - addend
            known = values.setdefault(name, str(number))
            if number < 0 or not _is_number(known) or int(known) != number:
                return None
        return values

    def fill(self, values: Mapping[str, str]) -> str | None:
        """The text with these values; None if the value in a sum is not a number."""

        def value(match: re.Match[str]) -> str:
            text = values[match[1]]
            return text if match[2] is None else str(int(text) + int(match[2]))

        if self._regex is None:
            return self.text
        if any(not _is_number(values[name]) for _, name, _ in self._sums):
            return None
        return VARIABLE.sub(value, self.text)


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker: its name, and its URLs by listener and scheme."""

    name: str
    listeners: Mapping[str, Urls] = field(compare=False)

    def web_url(self, listener: str, scheme: str) -> ServiceUrl | None:
        """Its web address on a listener, preferably with this scheme."""
        return self._url(listener, scheme, WEB_SCHEMES)

    def binary_url(self, listener: str, scheme: str) -> ServiceUrl | None:
        """Its binary address on a listener, preferably with this scheme."""
        return self._url(listener, scheme, BINARY_SCHEMES)

    def _url(self, listener: str, scheme: str, schemes: tuple[str, str]) -> ServiceUrl | None:
        urls, (plain, secure) = self.listeners.get(listener, {}), schemes
        return urls.get(scheme) or urls.get(plain if scheme == secure else secure)

    def is_at(self, listener: str, address: str, schemes: tuple[str, ...] = WEB_SCHEMES) -> bool:
        """Whether `host:port` is one of its addresses of these schemes on that listener."""
        urls = self.listeners.get(listener, {})
        return any(urls[scheme].authority == address for scheme in schemes if scheme in urls)


class Entry:
    """One entry of the book: a broker, or a template for several."""

    def __init__(
        self,
        broker: str,
        listeners: Mapping[str, Urls],
        sources: Mapping[tuple[str, str], tuple[Source, str]] | None = None,
        aliases: Iterable[str] = (),
        line: str = "advertisedListeners",
    ) -> None:
        self.broker = broker.lower().removesuffix(".")
        self.listeners = listeners
        self.line = line
        """Its place in the config, or the name of the discovered broker."""
        self.sources = sources or {
            (listener, scheme): ("config", line) for listener, urls in listeners.items() for scheme in urls
        }
        """By listener and scheme: the source of the URL, and the object or config line."""
        said = {source for source, _ in self.sources.values()}
        best = (source for source in get_args(Source) if source in said)
        self.source = next(best, "config" if sources is None else "derived")
        """The most trusted source."""
        self.names = tuple(dict.fromkeys((self.broker, *aliases)))
        """All names of the broker; a name without a port matches any port."""
        self._names = tuple(Pattern(name) for name in self.names)
        self._host = Pattern(_without_port(self.broker))
        self._urls = [
            (listener, url, Pattern(url.host), Pattern(url.authority))
            for listener, urls in listeners.items()
            for url in urls.values()
        ]
        self.variables = self._names[0].variables.union(*(whole.variables for *_, whole in self._urls))

    @property
    def texts(self) -> Iterator[str]:
        """All keys to find the entry by, unless it is a template."""
        yield from self.names
        for _, url, host, _ in self._urls:
            yield from (host.text, url.authority)

    @property
    def host(self) -> str:
        """The primary name without its port."""
        return self._host.text

    @property
    def is_template(self) -> bool:
        return bool(self.variables)

    def named(self, authority: Authority) -> dict[str, str] | None:
        """The values for which this authority is one of the broker's names."""
        for name in self._names:
            given = authority.host if _without_port(name.text) == name.text else str(authority)
            if (values := name.match(given)) is not None:
                return values
        return None

    def hosted(self, hosts: Iterable[str]) -> dict[str, str] | None:
        """The values for which the broker's primary name is one of these hosts, with any port."""
        return next((values for host in hosts if (values := self._host.match(host)) is not None), None)

    def describes(self, name: str) -> bool:
        """Whether this is exactly one of the broker's names."""
        return any(own.match(name) is not None for own in self._names)

    def has_on(self, listener: str, schemes: tuple[str, ...]) -> bool:
        """Whether the broker has an address of these schemes on that listener."""
        return any(scheme in schemes for scheme in self.listeners.get(listener, {}))

    def addressed(
        self, authority: Authority, schemes: tuple[str, ...], listener: str | None = None, whole: bool = True
    ) -> Iterator[dict[str, str]]:
        """The values for which this is the broker's address on any or one listener, with its port or by host only."""
        for name, url, host, host_and_port in self._urls:
            if listener in (None, name) and url.scheme in schemes:
                values = host_and_port.match(str(authority)) if whole else host.match(authority.host)
                if values is not None:
                    yield values

    def fill(self, values: Mapping[str, str]) -> Broker | None:
        """The broker for these values, or None if they are incomplete or invalid."""
        if not self.variables <= values.keys() or (name := self._names[0].fill(values)) is None:
            return None
        listeners: dict[str, dict[str, ServiceUrl]] = {}
        for listener, url, host, _ in self._urls:
            filled, port = host.fill(values), Pattern(url.port).fill(values)
            if filled is None or port is None or not _is_number(port) or int(port) > 65535:
                return None
            listeners.setdefault(listener, {})[url.scheme] = ServiceUrl(url.scheme, filled, port, url.shows_port)
        return Broker(name, listeners)


class AddressBook:
    """All entries. An authority that matches two brokers resolves to none."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries = tuple(entries)
        self._templates = {place for place, entry in enumerate(self.entries) if entry.is_template}
        self._plain: dict[str, set[int]] = {}
        for place, entry in enumerate(self.entries):
            for text in entry.texts if place not in self._templates else ():
                self._plain.setdefault(text, set()).add(place)
        self.listeners = frozenset(name for entry in self.entries for name in entry.listeners)

    def __bool__(self) -> bool:
        return bool(self.entries)

    def resolve(self, authority: Authority, default_port: int, schemes: tuple[str, ...] = WEB_SCHEMES) -> Broker | None:
        """The one broker with this name, or with this address of these schemes on any listener."""
        authority = Authority(authority.host, authority.port or default_port)
        return self._only(
            (entry, values)
            for entry in self._about(authority.host, str(authority))
            for values in (entry.named(authority), *entry.addressed(authority, schemes))
            if values is not None
        )

    def pinned(self, listener: str, authority: Authority, schemes: tuple[str, ...] = WEB_SCHEMES) -> Broker | None:
        """The one broker with this address of these schemes on this listener, as named by a client's Host.

        If no address has that port, which a gateway may strip or change, only the host is compared.
        """
        entries = self._about(authority.host)
        for whole in (True, False):
            meanings = [
                (entry, values) for entry in entries for values in entry.addressed(authority, schemes, listener, whole)
            ]
            if meanings:
                return self._only(meanings)
        return None

    def is_web_address(
        self,
        listener: str,
        authority: Authority,
        default_port: int,
        schemes: tuple[str, ...] = WEB_SCHEMES,
        default: str | None = None,
    ) -> bool:
        """Whether this is an address of these schemes on the listener, of one or several brokers.

        A broker without one uses its address on the default listener (PIP-338).
        """
        authority = Authority(authority.host, authority.port or default_port)
        for entry in self._about(authority.host):
            place = listener if default is None or entry.has_on(listener, schemes) else default
            if any(True for _ in entry.addressed(authority, schemes, place)):
                return True
        return False

    def has_on(self, listener: str, schemes: tuple[str, ...]) -> bool:
        """Whether any broker has an address of these schemes on the listener."""
        return any(entry.has_on(listener, schemes) for entry in self.entries)

    def is_shared(self, broker: Broker, url: ServiceUrl) -> bool:
        """Whether other brokers share this address of the broker."""
        return self.resolve(Authority(url.host, int(url.port)), 0, kind_of(url.scheme)) != broker

    def inside_suffixes(self) -> frozenset[str]:
        """The domains of the brokers' names, and of the cluster: clients outside cannot use them."""
        suffixes: set[str] = set()
        for entry in self.entries:
            host = _without_port(entry.broker)
            parents = [host.partition(".")[2], host.partition(".svc.")[2]]
            suffixes.update(parent for parent in parents if "." in parent and not VARIABLE.search(parent))
        return frozenset(suffixes)

    def _only(self, meanings: Iterable[tuple[Entry, dict[str, str]]]) -> Broker | None:
        found: Broker | None = None
        for entry, values in meanings:
            if not entry.variables <= values.keys():
                return None  # all brokers of a template share the address
            broker = entry.fill(values)
            if broker is None or self.describing(broker.name) is not entry:
                continue
            if found is not None and found != broker:
                return None
            found = broker
        return found

    def describing(self, name: str) -> Entry | None:
        """The entry of a broker: the first that names it, so that a broker can be excepted from a template."""
        return next((entry for entry in self._about(name) if entry.describes(name)), None)

    def _about(self, *texts: str) -> list[Entry]:
        """The entries that may match one of these: all templates, and entries with that name or address."""
        places = self._templates.union(*(self._plain.get(text, ()) for text in texts))
        return [self.entries[place] for place in sorted(places)]


def _without_port(name: str) -> str:
    address, bracket, rest = name.rpartition("]")
    return address + bracket + rest.partition(":")[0]


def _is_number(text: str) -> bool:
    # Hosts come from clients, and int() rejects thousands of digits.
    return text.isascii() and text.isdigit() and len(text) <= 9
