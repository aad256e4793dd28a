"""Tells a broker's ports apart: web or binary, with or without TLS. Pure."""

import re

from pulsar_ingress_proxy.discovery.reconciler.objects import ServicePort
from pulsar_ingress_proxy.syntax.listeners import BINARY_SCHEMES, WEB_SCHEMES

# The broker's defaults (webServicePort, webServicePortTls, brokerServicePort, brokerServicePortTls).
_USUAL = {8080: "http", 8443: "https", 6650: "pulsar", 6651: "pulsar+ssl"}
_WEB = re.compile(r"https?|web|admin")
_BINARY = re.compile(r"pulsar(ssl|tls)?|binary")
_TLS = re.compile(r".*(ssl|tls|https)")

Ports = tuple[tuple[str, int], ...]
"""Names and numbers of a pod's ports."""


def number_of(port: ServicePort, ports: Ports) -> int | None:
    """The pod's port behind a Service's port; None if the pod has no port of that name."""
    if isinstance(port.target, int) or port.target.isdigit():
        return int(port.target)
    numbers = dict(reversed(ports))
    return numbers.get(port.target) or numbers.get(port.name)  # an EndpointSlice has the Service's names


def schemes_of(port: ServicePort, ports: Ports, known: dict[int, str]) -> frozenset[str]:
    """The schemes of a port: by the config's URLs, else by the port's names and number.

    Empty if nothing tells, several if names and number disagree.
    """
    number = number_of(port, ports)
    if number in known:
        return frozenset([known[number]])
    names = [port.name, port.app_protocol, port.target if isinstance(port.target, str) else ""]
    names += [name for name, own in ports if own == number]
    said = {scheme for name in names if (scheme := _by_name(name)) is not None}
    usual = _USUAL.get(port.port if number is None else number)
    return frozenset(said | {usual} if usual is not None else said)


def _by_name(name: str) -> str | None:
    """`http`, `https`, `tcp-pulsar`, `tls-pulsarssl`, `web-tls`; in `pulsar-http`, pulsar is the product."""
    words = re.split(r"[-_.]", name.lower())
    family = next(
        (f for f, word in ((WEB_SCHEMES, _WEB), (BINARY_SCHEMES, _BINARY)) if any(map(word.fullmatch, words))), None
    )
    return None if family is None else family[any(map(_TLS.fullmatch, words))]
