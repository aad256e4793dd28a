"""Request and answer heads: read from what the parser found, written anew. A client's raw head never goes on."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus

from pulsar_ingress_proxy.memory import CONNECTION_OPTIONS
from pulsar_ingress_proxy.routing.paths import BadPath, Target, read_target
from pulsar_ingress_proxy.routing.requests import Request, listener_names
from pulsar_ingress_proxy.syntax.authorities import Authority, parse_authority, parse_location
from pulsar_ingress_proxy.syntax.listeners import BindAddress

Fields = list[bytes]
"""Fields as they are sent, `Name: value` each: written once, and joined to a head."""

# RFC 9110 7.6.1, and the fields of the connection to a proxy (11.7). What Connection names goes too.
HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
     b"proxy-authenticate", b"proxy-authorization")
)  # fmt: skip

# Set anew on every request, whatever the client sent.
_OURS = frozenset(
    (b"host", b"content-length", b"expect", b"x-pulsar-listenername", b"x-forwarded-for", b"x-forwarded-host",
     b"x-forwarded-port", b"x-forwarded-proto", b"forwarded", b"x-original-principal", b"accept-encoding")
)  # fmt: skip

_SPECIAL = HOP_BY_HOP | _OURS


class BadHead(ValueError):
    """A head that is HTTP, but that nothing may be made of. `code` is its reason."""

    def __init__(self, code: str, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.code = code
        self.status = status


@dataclass(slots=True)
class RequestHead:
    """A request's head, sorted: what goes on as it is, and what the proxy answers for."""

    passed: Fields = field(default_factory=list)
    special: dict[bytes, bytes] = field(default_factory=dict)
    """By name in lower case; the values of several fields of a name are joined, as RFC 9110 5.3 allows."""
    listener_names: tuple[bytes, ...] = ()
    """The client's own X-Pulsar-ListenerName, each by itself."""
    principals: tuple[bytes, ...] = ()
    """The client's X-Original-Principal, likewise."""
    user_agent: bytes | None = None

    def text(self, name: bytes) -> str:
        return self.special.get(name, b"").decode("latin-1")


def read_head(raw_headers: Iterable[tuple[bytes, bytes]]) -> RequestHead:
    """Sort a request's fields."""
    head = RequestHead()
    passed, special = head.passed, head.special
    for item in raw_headers:
        name = item[0].lower()
        if name not in _SPECIAL:
            passed.append(b"%b: %b" % item)
            if name == b"user-agent":
                head.user_agent = item[1]
        elif name == b"x-pulsar-listenername":
            head.listener_names = (*head.listener_names, item[1])
        elif name == b"x-original-principal":
            head.principals = (*head.principals, item[1])
        elif name in special:
            special[name] += b", " + item[1]
        else:
            special[name] = item[1]
    if b"connection" in special and (named := connection_options(special[b"connection"])):
        head.passed = without(passed, named)
    return head


def check_transfer_encoding(head: RequestHead) -> None:
    """Raise BadHead where the body is coded in an unknown way."""
    if head.special.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
        raise BadHead("bad-transfer-encoding", "chunked is the only transfer coding that is known here")


def about(method: str, path: str) -> Target:
    """What a request is about; raises BadHead for a path that could be read in two ways."""
    try:
        return read_target(method, path)
    except BadPath as fault:
        raise BadHead("bad-path", str(fault)) from None


def read_request(
    target: Target, query: str, authority: Authority | None, head: RequestHead, bind: BindAddress, trusted: bool
) -> Request:
    """What decisions look at; raises BadHead where the Host is none."""
    forwarded_host, scheme = None, bind.scheme
    if trusted:
        forwarded_host = parse_authority(_last_element(head.text(b"x-forwarded-host")))
        forwarded_proto = _last_element(head.text(b"x-forwarded-proto")).lower()
        scheme = forwarded_proto if forwarded_proto in ("http", "https") else scheme
    return Request(
        target.bare,
        _host(head) if authority is None else authority,
        forwarded_host,
        scheme,
        bind.listener,
        listener_names(query),
        tuple(name.decode("latin-1") for name in head.listener_names),
    )


def _host(head: RequestHead) -> Authority | None:
    """The Host; None where it is empty or HTTP/1.0 has none."""
    value = head.text(b"host")
    if not value:
        return None
    host = parse_authority(value)
    if host is None:
        raise BadHead("bad-host", "the Host header is not host[:port]")
    return host


def _last_element(text: str) -> str:
    """The last element of a list header: what the hop nearest to us said."""
    return text.rpartition(",")[2].strip()


def split_target(method: str, raw: str) -> tuple[str, str, Authority | None]:
    """A request target's path and query, and its authority where it has one (RFC 9112 3.2)."""
    if method == "CONNECT":
        raise BadHead("method-not-allowed", "this is a gateway to brokers, not a forward proxy", 405)
    if "#" in raw:
        raise BadHead("bad-target", "a request target has no fragment")
    if raw.startswith("/"):
        path, _, query = raw.partition("?")
        return path, query, None
    if raw == "*":
        return raw, "", None
    absolute = parse_location(raw)
    if absolute is None:
        raise BadHead("bad-target", "the request target is neither a path nor an http URL")
    path, _, query = absolute.target.partition("?")
    return path, query, absolute.authority


def without(fields: Fields, names: frozenset[bytes]) -> Fields:
    """The fields that have other names than these, which are in lower case."""
    return [field for field in fields if field.partition(b":")[0].lower() not in names]


def write_head(start_line: bytes, fields: Fields) -> bytes:
    """The bytes of a head."""
    return b"\r\n".join([start_line, *fields, b"\r\n"])


def own_answer(status: int, code: str, text: str) -> tuple[bytes, Fields, bytes]:
    """The reason phrase, fields and body of an answer that is not a broker's."""
    body = json.dumps({"reason": f"{code}: {text}"}).encode()
    fields = [b"Content-Type: application/json", b"Cache-Control: no-store", b"Content-Length: %d" % len(body)]
    return HTTPStatus(status).phrase.encode(), fields, body


def connection_options(value: bytes) -> frozenset[bytes]:
    """The fields that a Connection field names as meant for one hop alone."""
    is_short = len(value) <= CONNECTION_OPTIONS.longest
    return _remembered_options(value) if is_short else _connection_options(value)


def _connection_options(value: bytes) -> frozenset[bytes]:
    options = (option.strip().lower() for option in value.split(b","))
    return frozenset(options) - {b"close", b"keep-alive", b"upgrade", b""}


_remembered_options = lru_cache(CONNECTION_OPTIONS.entries)(_connection_options)
