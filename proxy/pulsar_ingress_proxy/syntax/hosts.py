"""Hosts as routes and gateways write them: `*` is every host, `*.` stands for one label or more. Pure."""

from collections.abc import Iterable, Iterator

from pulsar_ingress_proxy.syntax.listeners import is_host

ANY = "*"


def normal(host: str) -> str | None:
    """A host in lower case without the root's dot; None where it is none."""
    host = host.strip().lower().removesuffix(".")
    return host if host == ANY or is_host(host.removeprefix("*.")) else None


def is_wild(host: str) -> bool:
    return host.startswith("*")


def covers(pattern: str, host: str) -> bool:
    """Whether all that a host or wildcard stands for is within a pattern."""
    if pattern in (ANY, host):
        return True
    return pattern.startswith("*.") and host != ANY and host.endswith(pattern[1:])


def common(one: str, other: str) -> str | None:
    """What two patterns have in common: the narrower of them, or nothing."""
    if covers(one, other):
        return other
    return one if covers(other, one) else None


def meet(ones: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
    """All that two lists of patterns have in common, in the order of the first."""
    others = tuple(others)
    found = (both for one in ones for other in others if (both := common(one, other)) is not None)
    return tuple(dict.fromkeys(found))


def under(host: str, suffixes: Iterable[str]) -> Iterator[str]:
    """The host where it falls under one of the suffixes; of every host, what does. No suffixes allow all."""
    suffixes = tuple(suffixes)
    if not suffixes:
        yield host
    elif host == ANY:
        for suffix in suffixes:
            yield from (suffix, f"*.{suffix}")
    elif any(host.removeprefix("*.") == suffix or host.endswith(f".{suffix}") for suffix in suffixes):
        yield host
