"""Ingresses: where clients come in, found by host. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Ingress:
    """A set of hosts and their listener."""

    name: str
    hosts: tuple[str, ...]
    listener: str
    allowed_listeners: frozenset[str] | None = None
    expose: frozenset[str] | None = None
    lookup_properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    override_lookup_properties: bool = False
    through_sidecar: bool = False
    shadow: bool | None = None
    """None: as the config says for all ingresses."""

    def exposes(self, area: str) -> bool:
        """Whether requests of this area are allowed; `admin` includes `client`."""
        return self.expose is None or area in self.expose or (area == "client" and "admin" in self.expose)


class Ingresses:
    """All ingresses of a snapshot."""

    def __init__(self, ingresses: Iterable[Ingress]) -> None:
        self._all = tuple(ingresses)
        self._by_host: dict[str, Ingress] = {}
        for ingress in self._all:
            for host in ingress.hosts:
                self._by_host.setdefault(host.lower().removesuffix("."), ingress)

    def __iter__(self) -> Iterator[Ingress]:
        return iter(self._all)

    def expose(self, area: str) -> bool:
        """Whether all ingresses expose this area, which a request without an ingress needs."""
        return all(ingress.exposes(area) for ingress in self._all)

    def by_host(self, host: str) -> Ingress | None:
        """The ingress of a host: exact hosts before wildcards, longer wildcards before shorter ones."""
        found = self._by_host.get(host)
        suffix = host
        while found is None and "." in suffix:
            suffix = suffix.partition(".")[2]
            found = self._by_host.get("*." + suffix)
        return found

    @property
    def everywhere(self) -> Ingress | None:
        """The ingress for all other hosts (`*`), from a discovered gateway."""
        return self._by_host.get("*")

    def by_listener(self, listener: str) -> Ingress | None:
        return next((ingress for ingress in self._all if ingress.listener == listener), None)
