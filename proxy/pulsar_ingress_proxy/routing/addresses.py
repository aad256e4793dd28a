"""The address book: what brokers call themselves, and how each is reached on each listener.

Pure: it is built once for a snapshot and never changes. Entries may be templates, so one line stands
for a StatefulSet of any size; a template is read both ways, from a broker's name to its addresses and
from an address back to the broker.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pulsar_ingress_proxy.syntax.authorities import Authority
from pulsar_ingress_proxy.syntax.listeners import BINARY_SCHEMES, VARIABLE, WEB_SCHEMES, ServiceUrl, Urls, kind_of

_TRUST = ("config", "annotation", "derived", "admin")


class Pattern:
    """A text with `{n}` and `{n+6651}` in it: `fill` puts values in, `match` gets them out."""

    __slots__ = ("_regex", "_sums", "text", "variables")

    def __init__(self, text: str) -> None:
        self.text = text
        self.variables = frozenset(match[1] for match in VARIABLE.finditer(text)) if "{" in text else frozenset()
        self._sums: list[tuple[str, str, int]] = []
        # Most texts have no variables, and hundreds of brokers that were found make thousands of such texts.
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
        """The values that make this text; None where none do."""
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
        """The text with these values; None where a sum wants digits and gets none."""

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
    """One broker: its own name for itself, and its URLs by listener and scheme."""

    name: str
    listeners: Mapping[str, Urls] = field(compare=False)

    def web_url(self, listener: str, scheme: str) -> ServiceUrl | None:
        """Its web address on a listener: of the scheme asked for if it has that, else of the other."""
        return self._url(listener, scheme, WEB_SCHEMES)

    def binary_url(self, listener: str, scheme: str) -> ServiceUrl | None:
        """Likewise its binary address."""
        return self._url(listener, scheme, BINARY_SCHEMES)

    def _url(self, listener: str, scheme: str, schemes: tuple[str, str]) -> ServiceUrl | None:
        urls, (plain, secure) = self.listeners.get(listener, {}), schemes
        return urls.get(scheme) or urls.get(plain if scheme == secure else secure)

    def is_at(self, listener: str, address: str, schemes: tuple[str, ...] = WEB_SCHEMES) -> bool:
        """Whether `host:port` is one of its web addresses, or binary ones, on that listener."""
        urls = self.listeners.get(listener, {})
        return any(urls[scheme].authority == address for scheme in schemes if scheme in urls)


class Entry:
    """One line of the book: a broker, or all the brokers that a template stands for."""

    def __init__(
        self,
        broker: str,
        listeners: Mapping[str, Urls],
        sources: Mapping[tuple[str, str], tuple[str, str]] | None = None,
        aliases: Iterable[str] = (),
        line: str = "advertisedListeners",
    ) -> None:
        self.broker = broker.lower().removesuffix(".")
        self.listeners = listeners
        self.line = line
        """Where it stands in the config, or which object showed it."""
        self.sources = sources or {
            (listener, scheme): ("config", line) for listener, urls in listeners.items() for scheme in urls
        }
        """By listener and scheme: the source of the URL, and who says so."""
        said = {source for source, _ in self.sources.values()}
        self.source = next((source for source in _TRUST if source in said), "config" if sources is None else "derived")
        """The most trusted of those."""
        self.names = tuple(dict.fromkeys((self.broker, *aliases)))
        """All that the broker may call itself; a name without a port takes any."""
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
        """All that it would be found by, as long as it is no template."""
        yield from self.names
        for _, url, host, _ in self._urls:
            yield from (host.text, url.authority)

    @property
    def host(self) -> str:
        """The chief name without its port."""
        return self._host.text

    @property
    def is_template(self) -> bool:
        return bool(self.variables)

    def named(self, authority: Authority) -> dict[str, str] | None:
        """The values for which this authority is one of the broker's own names."""
        for name in self._names:
            given = authority.host if _without_port(name.text) == name.text else str(authority)
            if (values := name.match(given)) is not None:
                return values
        return None

    def hosted(self, hosts: Iterable[str]) -> dict[str, str] | None:
        """The values for which the broker's chief name is one of these hosts, whatever port it has."""
        return next((values for host in hosts if (values := self._host.match(host)) is not None), None)

    def describes(self, name: str) -> bool:
        """Whether this is one of the broker's own names, to the letter."""
        return any(own.match(name) is not None for own in self._names)

    def addressed(self, address: str, schemes: tuple[str, ...]) -> Iterator[dict[str, str]]:
        """The values for which this `host:port` is one of the broker's listener URLs of these schemes."""
        for _, url, _, whole in self._urls:
            if url.scheme in schemes and (values := whole.match(address)) is not None:
                yield values

    def has_on(self, listener: str, schemes: tuple[str, ...]) -> bool:
        """Whether the broker has an address of these schemes on that listener."""
        return any(scheme in schemes for scheme in self.listeners.get(listener, {}))

    def addressed_on(
        self, listener: str, authority: Authority, whole: bool, schemes: tuple[str, ...]
    ) -> Iterator[dict[str, str]]:
        """The values for which this is the broker's address on a listener, with its port or by host alone."""
        for name, url, host, host_and_port in self._urls:
            if name == listener and url.scheme in schemes:
                values = host_and_port.match(str(authority)) if whole else host.match(authority.host)
                if values is not None:
                    yield values

    def fill(self, values: Mapping[str, str]) -> Broker | None:
        """The broker that these values name; None where they do not name one."""
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
    """All entries together. An authority that means two brokers means none."""

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
        """The one broker that this authority means, by its name or by any of its web, or binary, listener URLs."""
        authority = Authority(authority.host, authority.port or default_port)
        entries = self._about(authority.host, str(authority))
        return self._only((entry, values) for entry in entries for values in self._meanings(entry, authority, schemes))

    def pinned(self, listener: str, authority: Authority, schemes: tuple[str, ...] = WEB_SCHEMES) -> Broker | None:
        """The one broker whose web address, or binary one, on this listener a client meant by its Host.

        Where no address has that very port (a gateway may strip or change it), the host alone decides.
        """
        entries = self._about(authority.host)
        for whole in (True, False):
            meanings = [
                (entry, values)
                for entry in entries
                for values in entry.addressed_on(listener, authority, whole, schemes)
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
        """Whether this is some broker's web address, or binary one, on the listener, be it shared by several.

        A broker that has none there is at its address on the default listener (PIP-338).
        """
        authority = Authority(authority.host, authority.port or default_port)
        for entry in self._about(authority.host):
            place = listener if default is None or entry.has_on(listener, schemes) else default
            if any(True for _ in entry.addressed_on(place, authority, True, schemes)):
                return True
        return False

    def has_on(self, listener: str, schemes: tuple[str, ...]) -> bool:
        """Whether any broker has an address of these schemes on the listener."""
        return any(entry.has_on(listener, schemes) for entry in self.entries)

    def is_shared(self, broker: Broker, url: ServiceUrl) -> bool:
        """Whether that address of the broker's would lead to others as well."""
        return self.resolve(Authority(url.host, int(url.port)), 0, kind_of(url.scheme)) != broker

    def inside_suffixes(self) -> frozenset[str]:
        """The domains of the brokers' own names, and the cluster's: no client outside could use them."""
        suffixes: set[str] = set()
        for entry in self.entries:
            host = _without_port(entry.broker)
            parents = [host.partition(".")[2], host.partition(".svc.")[2]]
            suffixes.update(parent for parent in parents if "." in parent and not VARIABLE.search(parent))
        return frozenset(suffixes)

    @staticmethod
    def _meanings(entry: Entry, authority: Authority, schemes: tuple[str, ...]) -> Iterator[dict[str, str]]:
        if (values := entry.named(authority)) is not None:
            yield values
        yield from entry.addressed(str(authority), schemes)

    def _only(self, meanings: Iterable[tuple[Entry, dict[str, str]]]) -> Broker | None:
        found: Broker | None = None
        for entry, values in meanings:
            if not entry.variables <= values.keys():
                return None  # an address that a template's brokers share
            broker = entry.fill(values)
            if broker is None or self.describing(broker.name) is not entry:
                continue
            if found is not None and found != broker:
                return None
            found = broker
        return found

    def describing(self, name: str) -> Entry | None:
        """The entry that speaks for a broker: the first that names it, so a line can except one from a template."""
        return next((entry for entry in self._about(name) if entry.describes(name)), None)

    def _about(self, *texts: str) -> list[Entry]:
        """The entries that may have one of these as a name or address: every template, and those that do."""
        places = self._templates.union(*(self._plain.get(text, ()) for text in texts))
        return [self.entries[place] for place in sorted(places)]


def _without_port(name: str) -> str:
    address, bracket, rest = name.rpartition("]")
    return address + bracket + rest.partition(":")[0]


def _is_number(text: str) -> bool:
    # Of bounded length, since hosts come from clients and int() refuses thousands of digits.
    return text.isascii() and text.isdigit() and len(text) <= 9
