"""Host patterns of routes and gateways: `*` matches every host, `*.` one or more labels. Pure."""

from collections.abc import Iterable, Iterator

from pulsar_ingress_proxy.syntax.listeners import is_host

ANY = "*"


def normal(host: str) -> str | None:
    """A host in lower case without a trailing dot; None if it is invalid."""
    host = host.strip().lower().removesuffix(".")
    return host if host == ANY or is_host(host.removeprefix("*.")) else None


def is_wild(host: str) -> bool:
    return host.startswith("*")


def covers(pattern: str, host: str) -> bool:
    """Whether a pattern covers all of a host or wildcard."""
    if pattern in (ANY, host):
        return True
    return pattern.startswith("*.") and host != ANY and host.endswith(pattern[1:])


def common(one: str, other: str) -> str | None:
    """The intersection of two patterns: the narrower one, or None."""
    if covers(one, other):
        return other
    return one if covers(other, one) else None


def meet(ones: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
    """The intersection of two lists of patterns, in the order of the first."""
    others = tuple(others)
    found = (both for one in ones for other in others if (both := common(one, other)) is not None)
    return tuple(dict.fromkeys(found))


def under(host: str, suffixes: Iterable[str]) -> Iterator[str]:
    """The part of a host pattern that is under one of the suffixes; without suffixes, all of it."""
    suffixes = tuple(suffixes)
    if not suffixes:
        yield host
    elif host == ANY:
        for suffix in suffixes:
            yield from (suffix, f"*.{suffix}")
    elif any(host.removeprefix("*.") == suffix or host.endswith(f".{suffix}") for suffix in suffixes):
        yield host
