"""What one finished request becomes: an event, and the line of JSON that is written of it. Pure.

The line is what is worked out, and the event what a reader makes of it: through a dict and `json` it would cost
17 µs instead of 6. So what seldom differs from request to request is put into words once and remembered, and the
rest stands in one template. The order is that of schema.py.
"""

import ipaddress
import json
import re
from datetime import UTC, datetime
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quoted

from pulsar_ingress_proxy.memory import CLIENT_CLASSES, EVENT_DECISIONS, USER_AGENTS
from pulsar_ingress_proxy.observability.access_record import AccessRecord
from pulsar_ingress_proxy.observability.batches import Batch
from pulsar_ingress_proxy.observability.event_schema import SCHEMA_VERSION
from pulsar_ingress_proxy.routing.paths import Target
from pulsar_ingress_proxy.syntax.authorities import Authority

Value = str | int | float | bool | None

USER_AGENT_CHARACTERS = USER_AGENTS.longest

# `token` as a parameter, each letter of its name in either case or percent-encoded, also in a URL within the URL.
_TOKEN = re.compile(
    r"((?:[?&;#]|%3f|%26|%3b|%23)(?:t|%[57]4)(?:o|%[46]f)(?:k|%[46]b)(?:e|%[46]5)(?:n|%[46]e)(?:=|%3d))[^&#]*",
    re.IGNORECASE,
)


def event(record: AccessRecord, cluster: str, sidecar: str) -> dict[str, Value]:
    """The event as a reader finds it."""
    found: dict[str, Value] = json.loads(line(record, origin(cluster, sidecar)))
    return found


def origin(cluster: str, sidecar: str) -> str:
    """The part of a line that is the same for all events of a sidecar."""
    return _sound(f'"cluster":{quoted(cluster)},"sidecar":{quoted(sidecar)}')


def line(record: AccessRecord | Batch, origin: str) -> str:
    """The event as it is written: ASCII, so that nothing in a topic's name can be taken for the end of a line."""
    if isinstance(record, Batch):
        return batch_lines(record, origin)[0]
    decided, about, outcome, whose = decision_words(record), names(record.target), result(record), client(record)
    second, microsecond = _whole(record.time)
    upstream = record.upstream_duration
    took = _milliseconds(record.duration)
    waited = took if upstream == record.duration else "null" if upstream is None else _milliseconds(upstream)
    return (
        f'{_second(second)}{_THREE_DIGITS[microsecond // 1000]}{_THREE_DIGITS[microsecond % 1000]}Z",'
        f'"id":{_sound(quoted(record.id))},{origin},{decided},{about},{outcome},"durationMs":{took},"upstreamMs":{waited},'
        f'"requestBytes":{record.request_bytes},"responseBytes":{record.response_bytes},{whose}}}\n'
    )


def batch_lines(batch: Batch, origin: str) -> list[str]:
    """The line of each."""
    digits, made = _THREE_DIGITS, []
    ids, number, second, prefix = batch.ids, batch.first, 0, ""
    since = batch.since
    for (what, sent), outcome, whose, started, duration in batch.rows():
        microsecond = int((since + started - second) * 1_000_000 + 0.5)
        if microsecond >= 1_000_000 or microsecond < 0:
            second, microsecond = _whole(since + started)
            prefix = _second(second)
        # To have a number formatted takes several times as long as to look up its last three digits.
        microseconds = int(duration * 1_000_000 + 0.5)
        took = f"{microseconds // 1000}.{digits[microseconds % 1000]}"
        came, answered = outcome.words
        made.append(
            f'{prefix}{digits[microsecond // 1000]}{digits[microsecond % 1000]}Z","id":"{ids}-{number}",'
            f'{origin},{what},{came},"durationMs":{took},"upstreamMs":{took},{sent},{answered},{whose}}}\n'
        )
        number += 1
    return made


def asked_words(decision_words: str, about: str, size: int) -> tuple[str, str]:
    """What a batch says of what was asked, in the two places where it stands."""
    return f"{decision_words},{about}", f'"requestBytes":{size}'


def outcome_words(record: AccessRecord) -> list[str]:
    """Likewise of what came of it."""
    return [result(record), f'"responseBytes":{record.response_bytes}']


def decision_words(record: AccessRecord) -> str:
    """What was decided, from `generation` to `clientNamedBy`."""
    request, selection, target = record.request, record.selection, record.target
    host = forwarded_host = server_name = scheme = ingress = listener = rule = named = named_by = None
    hit = False
    missed = record.miss_reason if target.kind == "lookup" else None
    if request is not None:
        host, forwarded_host, scheme = request.host, request.forwarded_host, request.scheme
        if record.protocol == "binary":  # where the server name is what there is of a host
            host, server_name = None, request.host
    if selection is not None:
        ingress = selection.ingress.name if selection.ingress is not None else None
        listener, rule = selection.listener, selection.rule
        named, named_by = selection.client_named, selection.client_named_by
        hit = listener is not None and missed is None and (target.kind == "lookup" or selection.refusal is None)
    decide = _decision_words if named is None or len(named) <= EVENT_DECISIONS.longest else _decision_words.__wrapped__
    return decide(
        record.generation, record.protocol, target.kind, record.method, scheme, ingress, record.bind, host,
        forwarded_host, server_name, listener, rule, hit, missed, named, named_by,
    )  # fmt: skip


def names(target: Target) -> str:
    """What was asked for, from `tenant` to `topic`."""
    return _sound(
        f'"tenant":{_or_null(target.tenant)},"namespace":{_or_null(target.namespace)},"topic":{_or_null(target.topic)}'
    )


def result(record: AccessRecord) -> str:
    """What came of it, from `broker` to `leak`."""
    return _sound(
        f'"broker":{_or_null(record.broker)},"status":{record.status or "null"},'
        f'{_redirect(record) if record.redirects else _NO_REDIRECT},"leak":{_or_null(record.leak)}'
    )


def client(record: AccessRecord) -> str:
    """Who asked: `clientClass` and `userAgent`."""
    agent = record.user_agent
    return _sound(
        f'"clientClass":{_client_class(record.peer)},'
        f'"userAgent":{"null" if agent is None else _user_agent(agent[:USER_AGENT_CHARACTERS])}'
    )


def _or_null(value: str | None) -> str:
    return "null" if value is None else quoted(value)


@lru_cache(EVENT_DECISIONS.entries)
def _decision_words(
    generation: int,
    protocol: str,
    kind: str,
    method: str,
    scheme: str | None,
    ingress: str | None,
    bind: str,
    host: Authority | None,
    forwarded_host: Authority | None,
    server_name: Authority | None,
    listener: str | None,
    rule: str | None,
    hit: bool,
    missed: str | None,
    named: str | None,
    named_by: str | None,
) -> str:
    return _sound(
        f'"generation":{generation},"protocol":{quoted(protocol)},"kind":{quoted(kind)},'
        f'"method":{_or_null(method or None)},"scheme":{_or_null(scheme)},"ingress":{_or_null(ingress)},'
        f'"bind":{_or_null(bind or None)},"host":{_authority(host)},"forwardedHost":{_authority(forwarded_host)},'
        f'"serverName":{_authority(server_name)},"listener":{_or_null(listener)},"rule":{_or_null(rule)},'
        f'"hit":{"true" if hit else "false"},"missReason":{_or_null(missed)},"clientNamed":{_or_null(named)},'
        f'"clientNamedBy":{_or_null(named_by)}'
    )


def _authority(authority: Authority | None) -> str:
    return "null" if authority is None else quoted(str(authority))


_NO_REDIRECT = '"redirectAction":null,"redirectFrom":null,"redirectTo":null,"hops":0'


def _redirect(record: AccessRecord) -> str:
    return (
        f'"redirectAction":{quoted(record.redirects[-1])},"redirectFrom":{_url(record.redirect_from)},'
        f'"redirectTo":{_url(record.redirect_to)},"hops":{record.hops}'
    )


def _url(url: str | None) -> str:
    return "null" if url is None else quoted(redacted(url))


def redacted(url: str) -> str:
    """A URL without the token that may be in it."""
    return _TOKEN.sub(r"\1REDACTED", url) if "%" in url or "token=" in url.lower() else url


_THREE_DIGITS = [f"{number:03d}" for number in range(1000)]


def _whole(time: float) -> tuple[int, int]:
    """Seconds and microseconds."""
    second = int(time)
    microsecond = int((time - second) * 1_000_000 + 0.5)
    return (second, microsecond) if microsecond < 1_000_000 else (second + 1, 0)


def _milliseconds(seconds: float) -> str:
    microseconds = int(seconds * 1_000_000 + 0.5)
    return f"{microseconds // 1000}.{_THREE_DIGITS[microseconds % 1000]}"


@lru_cache(maxsize=16)
def _second(since_epoch: int) -> str:
    """How a line begins, up to the second's fraction."""
    return f'{{"schema":{SCHEMA_VERSION},"time":"{datetime.fromtimestamp(since_epoch, UTC):%Y-%m-%dT%H:%M:%S}.'


@lru_cache(CLIENT_CLASSES.entries)
def _client_class(peer: str) -> str:
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return "null"
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_loopback:
        return '"loopback"'
    return '"public"' if address.is_global else '"private"'


@lru_cache(USER_AGENTS.entries)
def _user_agent(value: bytes) -> str:
    return quoted(value.decode("latin-1"))


# An escape: a pair of surrogates, one alone, or another.
_ESCAPE = re.compile(r"\\(?:ud[89ab]..\\ud[c-f]..|(ud[89a-f]..)|.)")


def _sound(text: str) -> str:
    """Surrogates that are no pair become question marks: UTF-8 has no place for them, and some readers give up."""
    return _ESCAPE.sub(lambda found: "?" if found[1] else found[0], text) if "\\ud" in text else text
