"""Our annotations on objects, and those of other projects that tell how an object is reached. Pure."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar, get_args

from pulsar_ingress_proxy.config.model import Exposable
from pulsar_ingress_proxy.syntax.hosts import normal
from pulsar_ingress_proxy.syntax.listeners import VARIABLE, ServiceUrl, check_name, comma_separated, parse_service_url

PREFIX = "pulsar-ingress-proxy/"
LISTENER = PREFIX + "listener"
LOOKUP_PROPERTIES = PREFIX + "lookup-properties"
ALLOWED_LISTENERS = PREFIX + "allowed-listeners"
EXPOSE = PREFIX + "expose"
EXTERNAL_URL = PREFIX + "external-url"

_KNOWN = (LISTENER, LOOKUP_PROPERTIES, ALLOWED_LISTENERS, EXPOSE, EXTERNAL_URL)
_EXTERNAL_DNS = "external-dns.alpha.kubernetes.io/hostname"
Value = TypeVar("Value")

_SECTION = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Annotations:
    """The relevant annotations of one object."""

    listeners: Mapping[str, str] = field(default_factory=dict, hash=False)
    """By section; the empty key is for all other sections."""
    lookup_properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    allowed_listeners: frozenset[str] | None = None
    expose: frozenset[str] | None = None
    external_urls: tuple[ServiceUrl, ...] = ()
    """`{host}` stands for the route's host."""
    hosts: tuple[str, ...] = ()
    """Host names for external-dns."""
    ingress_class: str | None = None
    """The class of an Ingress, as it was set before spec.ingressClassName."""
    passes_tls: bool = False
    """Whether an Ingress has TLS passthrough."""
    faults: tuple[str, ...] = ()
    """Each fault begins with its annotation."""

    def listener(self, section: str) -> str | None:
        return self.listeners.get(section) or self.listeners.get("")

    def with_defaults(self, outer: "Annotations") -> "Annotations":
        """With those of an outer object where this one has none. Sections are its own, and so is `external-url`."""
        inherits = "" in outer.listeners and not self.is_wrong(LISTENER)
        return replace(
            self,
            listeners={"": outer.listeners[""], **self.listeners} if inherits else self.listeners,
            lookup_properties=self.lookup_properties or outer.lookup_properties,
            allowed_listeners=outer.allowed_listeners if self.allowed_listeners is None else self.allowed_listeners,
            expose=outer.expose if self.expose is None else self.expose,
            hosts=self.hosts or outer.hosts,
        )

    def is_wrong(self, annotation: str) -> bool:
        return any(fault.startswith(f"{annotation}: ") for fault in self.faults)


NONE = Annotations()


def read_annotations(annotations: Mapping[str, str]) -> Annotations:
    """Parse an object's annotations. Invalid ones are ignored and reported as faults."""
    faults: list[str] = []
    listeners = _checked(LISTENER, annotations, _listeners, faults)
    properties = _checked(LOOKUP_PROPERTIES, annotations, _pairs, faults)
    allowed = _checked(ALLOWED_LISTENERS, annotations, lambda text: map(check_name, comma_separated(text)), faults)
    areas = _checked(EXPOSE, annotations, _areas, faults)
    urls = _checked(EXTERNAL_URL, annotations, _urls, faults)
    unknown = [name for name in annotations if name.startswith(PREFIX) and name not in _KNOWN]
    faults += [f"{name}: unknown annotation; known are {', '.join(_KNOWN)}" for name in unknown]
    dns = (normal(host) for host in comma_separated(annotations.get(_EXTERNAL_DNS, "")))
    found = Annotations(
        listeners=dict(listeners),
        lookup_properties=dict(properties),
        allowed_listeners=frozenset(allowed) if ALLOWED_LISTENERS in annotations else None,
        expose=frozenset(areas) if EXPOSE in annotations else None,
        external_urls=tuple(urls),
        hosts=tuple(host for host in dns if host is not None),
        ingress_class=annotations.get("kubernetes.io/ingress.class"),
        passes_tls=any(name.endswith("/ssl-passthrough") and annotations[name] == "true" for name in annotations),
        faults=tuple(faults),
    )
    return NONE if found == NONE else found


def _checked(
    annotation: str, annotations: Mapping[str, str], read: Callable[[str], Iterable[Value]], faults: list[str]
) -> list[Value]:
    try:
        return list(read(annotations[annotation])) if annotation in annotations else []
    except ValueError as fault:
        faults.append(f"{annotation}: {fault}")
        return []


def _listeners(text: str) -> Iterator[tuple[str, str]]:
    """Parse `NAME`, or `sectionA=NAME,sectionB=NAME`; a name without a section is for all others."""
    seen: set[str] = set()
    for part in comma_separated(text):
        section, equals, name = part.rpartition("=")
        if equals and not _SECTION.fullmatch(section := section.strip()):
            raise ValueError(f"'{section}' is not the name of a section: write section=listener")
        if section in seen:
            raise ValueError(f"has two listeners for {section or 'the whole object'}")
        seen.add(section)
        yield section, check_name(name.strip())
    if not seen:
        raise ValueError("is empty: write the name of a listener")


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for part in comma_separated(text):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"'{part}' is not a property: write rack=eu-1a,key=value")
        yield key.strip(), value.strip()


def _areas(text: str) -> Iterator[str]:
    for part in comma_separated(text):
        if part not in get_args(Exposable):
            raise ValueError(f"'{part}' cannot be exposed; choose from {', '.join(get_args(Exposable))}")
        yield part


def _urls(text: str) -> Iterator[ServiceUrl]:
    seen: set[str] = set()
    for part in comma_separated(text):
        url = parse_service_url(part, template=True)
        if any(match[1] != "host" or match[2] for match in VARIABLE.finditer(url.authority)):
            raise ValueError(f"'{part}' has a variable other than {{host}}")
        if url.scheme in seen:
            raise ValueError(f"has two {url.scheme} URLs: keep one")
        seen.add(url.scheme)
        yield url
    if not seen:
        raise ValueError("is empty: write https://{host}:443")
