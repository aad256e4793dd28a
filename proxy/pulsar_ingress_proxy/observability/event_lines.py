"""Formats an event, the JSON line for one request. Pure.

A dict and `json` would cost three times as much. So the parts that requests with the same outcome share are formatted
once (`shared_words`), and the rest is one f-string. The order is that of event_schema.py.
"""

import re
from datetime import UTC, datetime
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quoted

from pulsar_ingress_proxy.observability.access_record import AccessRecord
from pulsar_ingress_proxy.observability.event_schema import SCHEMA_VERSION
from pulsar_ingress_proxy.syntax.authorities import Address, Authority, client_class

USER_AGENT_CHARACTERS = 256

# `token` as a parameter, in any case, percent-encoded or not, also in a nested URL.
_TOKEN = re.compile(
    r"((?:[?&;#]|%3f|%26|%3b|%23)(?:t|%[57]4)(?:o|%[46]f)(?:k|%[46]b)(?:e|%[46]5)(?:n|%[46]e)(?:=|%3d))[^&#]*",
    re.IGNORECASE,
)


def origin(cluster: str, sidecar: str) -> str:
    """The part of a line that is the same for all events of a sidecar."""
    return _utf8(f'"cluster":{quoted(cluster)},"sidecar":{quoted(sidecar)}')


Words = tuple[str, str, str]
"""The decision, and the outcome before and after the addresses of a redirect."""


def line(
    words: Words,
    origin: str,
    id: str,
    time: float,
    names: str,
    redirect: str,
    duration: float,
    upstream_duration: float | None,
    request_bytes: int,
    response_bytes: int,
    client: str,
) -> str:
    """The event's line, in ASCII, so that no character in a topic's name can be taken for a line break."""
    second = int(time)
    microsecond = int((time - second) * 1_000_000 + 0.5)
    if microsecond == 1_000_000:
        second, microsecond = second + 1, 0
    digits = _THREE_DIGITS  # several times as fast as formatting
    took = int(duration * 1_000_000 + 0.5)
    upstream = "null"
    if upstream_duration is not None:
        waited = int(upstream_duration * 1_000_000 + 0.5)
        upstream = f"{waited // 1000}.{digits[waited % 1000]}"
    decided, came, ended = words
    return (
        f'{_second(second)}{digits[microsecond // 1000]}{digits[microsecond % 1000]}Z","id":"{id}",{origin},{decided},'
        f'{names},{came},{redirect},{ended},"durationMs":{took // 1000}.{digits[took % 1000]},"upstreamMs":{upstream},'
        f'"requestBytes":{request_bytes},"responseBytes":{response_bytes},{client}}}\n'
    )


def shared_words(record: AccessRecord) -> Words:
    """The parts that all requests with the same outcome share."""
    action = quoted(record.redirects[-1]) if record.redirects else "null"
    return (
        _decision(record),
        _utf8(f'"broker":{_or_null(record.broker)},"status":{record.status or "null"},"redirectAction":{action}'),
        f'"hops":{record.hops},"leak":{_or_null(record.leak)}',
    )


def _decision(record: AccessRecord) -> str:
    """The decision, from `generation` to `clientNamedBy`."""
    request, selection, target = record.request, record.selection, record.target
    host = forwarded_host = server_name = scheme = ingress = listener = rule = named = named_by = None
    hit = False
    missed = record.miss_reason if target.kind == "lookup" else None
    if request is not None:
        host, forwarded_host, scheme = request.host, request.forwarded_host, request.scheme
        if record.protocol == "binary":  # its host is the TLS server name
            host, server_name = None, request.host
    if selection is not None:
        ingress = selection.ingress.name if selection.ingress is not None else None
        listener, rule = selection.listener, selection.rule
        named, named_by = selection.client_named, selection.client_named_by
        hit = listener is not None and missed is None and (target.kind == "lookup" or selection.refusal is None)
    return _utf8(
        f'"generation":{record.generation},"protocol":{quoted(record.protocol)},"kind":{quoted(target.kind)},'
        f'"method":{_or_null(record.method or None)},"scheme":{_or_null(scheme)},"ingress":{_or_null(ingress)},'
        f'"bind":{_or_null(record.bind or None)},"host":{_authority(host)},'
        f'"forwardedHost":{_authority(forwarded_host)},'
        f'"serverName":{_authority(server_name)},"listener":{_or_null(listener)},"rule":{_or_null(rule)},'
        f'"hit":{"true" if hit else "false"},"missReason":{_or_null(missed)},"clientNamed":{_or_null(named)},'
        f'"clientNamedBy":{_or_null(named_by)}'
    )


def names(tenant: str | None, namespace: str | None, topic: str | None) -> str:
    """The names, from `tenant` to `topic`."""
    if tenant is namespace is topic is None:
        return NO_NAMES
    return _utf8(f'"tenant":{_or_null(tenant)},"namespace":{_or_null(namespace)},"topic":{_or_null(topic)}')


NO_NAMES = '"tenant":null,"namespace":null,"topic":null'
NO_REDIRECT = '"redirectFrom":null,"redirectTo":null'


def redirect(from_: str | None, to: str | None) -> str:
    """`redirectFrom` and `redirectTo`."""
    return NO_REDIRECT if from_ is to is None else _utf8(f'"redirectFrom":{_url(from_)},"redirectTo":{_url(to)}')


def client(address: Address | None, user_agent: bytes | None) -> str:
    """`clientClass` and `userAgent`."""
    found = client_class(address)
    agent = "null" if user_agent is None else quoted(user_agent[:USER_AGENT_CHARACTERS].decode("latin-1"))
    return f'"clientClass":{"null" if found is None else _CLASSES[found]},"userAgent":{agent}'


_CLASSES = {name: quoted(name) for name in ("loopback", "private", "public")}


def _or_null(value: str | None) -> str:
    return "null" if value is None else quoted(value)


def _authority(authority: Authority | None) -> str:
    return "null" if authority is None else quoted(str(authority))


def _url(url: str | None) -> str:
    return "null" if url is None else quoted(redacted(url))


def redacted(url: str) -> str:
    """Replace a token in a URL."""
    return _TOKEN.sub(r"\1REDACTED", url) if "%" in url or "token=" in url.lower() else url


_THREE_DIGITS = [f"{number:03d}" for number in range(1000)]


@lru_cache(maxsize=16)
def _second(since_epoch: int) -> str:
    """The beginning of a line, up to the fraction of the second."""
    return f'{{"schema":{SCHEMA_VERSION},"time":"{datetime.fromtimestamp(since_epoch, UTC):%Y-%m-%dT%H:%M:%S}.'


# An escape: a pair of surrogates, one alone, or another.
_ESCAPE = re.compile(r"\\(?:ud[89ab]..\\ud[c-f]..|(ud[89a-f]..)|.)")


def _utf8(text: str) -> str:
    """Replace lone surrogates by question marks: UTF-8 cannot encode them, and some readers fail."""
    return _ESCAPE.sub(lambda found: "?" if found[1] else found[0], text) if "\\ud" in text else text
