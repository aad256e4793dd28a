"""Heads of requests and answers. Heads are always rebuilt from parsed fields; raw bytes are never forwarded."""

import json
from collections.abc import Iterable
from http import HTTPStatus

from aiohttp.http import RawRequestMessage

from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.decisions import DecidedRequest, decide
from pulsar_ingress_proxy.routing.paths import BadPath, Target, classify
from pulsar_ingress_proxy.routing.requests import Request, listener_names
from pulsar_ingress_proxy.syntax.authorities import Authority, parse_authority, parse_location
from pulsar_ingress_proxy.syntax.listeners import BindAddress, ServiceUrl

Fields = list[bytes]
"""Encoded fields, `Name: value` each."""

IDEMPOTENT = frozenset(("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"))  # RFC 9110 9.2.2

# RFC 9110 7.6.1, and the proxy authentication fields (11.7). Fields that Connection names are dropped too.
HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
     b"proxy-authenticate", b"proxy-authorization")
)  # fmt: skip

# Set by the sidecar on every request, whatever the client sent.
_OURS = frozenset(
    (b"host", b"content-length", b"expect", b"x-pulsar-listenername", b"x-forwarded-for", b"x-forwarded-host",
     b"x-forwarded-port", b"x-forwarded-proto", b"forwarded", b"x-original-principal", b"accept-encoding")
)  # fmt: skip

_SPECIAL = HOP_BY_HOP | _OURS

UPGRADE = (b"Connection: Upgrade", b"Upgrade: websocket")


class BadHead(ValueError):
    """A head that is valid HTTP but must be refused, with `code` as the reason."""

    def __init__(self, code: str, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.code = code
        self.status = status


class RequestHead:
    """A request's head: the fields that pass unchanged, and those that the sidecar controls."""

    __slots__ = ("listener_names", "passed", "principals", "special", "user_agent")

    def __init__(self, raw_headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        passed: Fields = []
        special: dict[bytes, bytes] = {}
        self.special = special
        """By name in lower case; repeated fields are joined (RFC 9110 5.3)."""
        self.listener_names: tuple[bytes, ...] = ()
        """The values of X-Pulsar-ListenerName, not joined."""
        self.principals: tuple[bytes, ...] = ()
        """The values of X-Original-Principal, not joined."""
        self.user_agent: bytes | None = None
        for item in raw_headers:
            name = item[0].lower()
            if name not in _SPECIAL:
                passed.append(b": ".join(item))
                if name == b"user-agent":
                    self.user_agent = item[1]
            elif name == b"x-pulsar-listenername":
                self.listener_names = (*self.listener_names, item[1])
            elif name == b"x-original-principal":
                self.principals = (*self.principals, item[1])
            elif name in special:
                special[name] += b", " + item[1]
            else:
                special[name] = item[1]
        if b"connection" in special and (named := connection_options(special[b"connection"])):
            passed = without(passed, named)
        self.passed = passed

    def text(self, name: bytes) -> str:
        return self.special.get(name, b"").decode("latin-1")

    @property
    def wants_websocket(self) -> bool:
        """Whether it asks to upgrade to WebSocket, the only protocol that brokers switch to."""
        options = (option.strip() for option in self.text(b"connection").lower().split(","))
        return self.text(b"upgrade").lower() == "websocket" and "upgrade" in options


def forwarded_fields(
    head: RequestHead,
    url: ServiceUrl,
    config: Config,
    trusted: bool,
    peer: bytes,
    is_lookup: bool,
    listener: str | None,
) -> Fields:
    """The fields for the broker: its own Host, the peer appended to X-Forwarded-For, and the listener of a lookup."""
    special = head.special
    forwarded_for = special.get(b"x-forwarded-for") if trusted else None
    fields = [url.host_field, *head.passed]
    fields.append(b"X-Forwarded-For: " + (b"%b, %b" % (forwarded_for, peer) if forwarded_for else peer))
    if head.principals and config.brokers.trust_original_principal:
        fields += [b"X-Original-Principal: " + value for value in head.principals]
    fields.append(b"X-Forwarded-Proto: " + url.scheme.encode())
    if is_lookup and not config.shadow:
        # No content coding, as the sidecar reads the answer.
        fields.append(b"Accept-Encoding: identity")
        if listener is not None:
            fields.append(b"X-Pulsar-ListenerName: " + listener.encode())
        return fields
    if b"accept-encoding" in special:
        fields.append(b"Accept-Encoding: " + special[b"accept-encoding"])
    if config.shadow:
        fields += [b"X-Pulsar-ListenerName: " + value for value in head.listener_names]
    return fields


def read_and_decide(
    decisions: DecisionCache,
    head: RequestHead,
    target: Target,
    query: str,
    authority: Authority | None,
    bind: BindAddress,
    trusted: bool,
) -> DecidedRequest:
    """Read the request from its head and decide about it; cached. Raises BadHead if the Host is invalid."""
    special = head.special
    names = listener_names(query) if query else ()
    question = (
        bind.address, special.get(b"host"), authority, trusted, special.get(b"x-forwarded-host"),
        special.get(b"x-forwarded-proto"), head.listener_names, names, target.kind, target.area,
    )  # fmt: skip
    found = decisions.get(question)
    if isinstance(found, DecidedRequest):
        return found
    request = read_request(target, names, authority, head, bind, trusted)
    decided = DecidedRequest(request, decide(request, decisions.snapshot))
    more = sum(map(len, (*head.listener_names, *names))) + 8 * len(names)  # empty names take memory, too
    return decisions.keep(question, decided, more)


def check_transfer_encoding(head: RequestHead, is_http_10: bool = False) -> None:
    """Raise BadHead for an unknown transfer coding, or any from an HTTP/1.0 client (RFC 9112 6.1)."""
    if head.special[b"transfer-encoding"].lower() != b"chunked":
        raise BadHead("bad-transfer-encoding", "chunked is the only transfer coding that is known here")
    if is_http_10:
        raise BadHead("bad-transfer-encoding", "HTTP/1.0 has no transfer codings")


def about(method: str, path: str) -> Target:
    """Classify a request; raises BadHead for an ambiguous path."""
    try:
        return classify(method, path)
    except BadPath as fault:
        raise BadHead("bad-path", str(fault)) from None


def read_request(
    target: Target,
    query_names: tuple[str, ...],
    authority: Authority | None,
    head: RequestHead,
    bind: BindAddress,
    trusted: bool,
) -> Request:
    """The request as decisions see it; raises BadHead if the Host is invalid."""
    forwarded_host, scheme = None, bind.scheme
    if trusted:
        forwarded_host = parse_authority(_last_element(head.text(b"x-forwarded-host")))
        forwarded_proto = _last_element(head.text(b"x-forwarded-proto")).lower()
        scheme = forwarded_proto if forwarded_proto in ("http", "https") else scheme
    return Request(
        target,
        _host(head) if authority is None else authority,
        forwarded_host,
        scheme,
        bind.listener,
        query_names,
        tuple(name.decode("latin-1") for name in head.listener_names),
    )


def _host(head: RequestHead) -> Authority | None:
    """The Host; None if it is empty, or absent in HTTP/1.0."""
    value = head.text(b"host")
    if not value:
        return None
    host = parse_authority(value)
    if host is None:
        raise BadHead("bad-host", "the Host header is not host[:port]")
    return host


def _last_element(text: str) -> str:
    """The last element of a list header, which the nearest hop added."""
    return text.rpartition(",")[2].strip()


def split_target(method: str, raw: str) -> tuple[str, str, Authority | None]:
    """A request target's path, query, and authority if it has one (RFC 9112 3.2)."""
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


def size(message: RawRequestMessage) -> int:
    """The size of a head, not counting optional whitespace."""
    line = len(message.method) + len(message.path) + len("  HTTP/1.1\r\n")
    return line + sum(len(name) + len(value) + len(": \r\n") for name, value in message.raw_headers)


def without(fields: Fields, names: frozenset[bytes]) -> Fields:
    """The fields without those of these lower-case names."""
    return [field for field in fields if field.partition(b":")[0].lower() not in names]


def write_head(start_line: bytes, fields: Fields) -> bytes:
    """Encode a head."""
    return b"\r\n".join([start_line, *fields, b"\r\n"])


def own_answer(status: int, code: str, text: str) -> tuple[bytes, Fields, bytes]:
    """The reason phrase, fields and body of an answer by the sidecar itself."""
    body = json.dumps({"reason": f"{code}: {text}"}).encode()
    fields = [b"Content-Type: application/json", b"Cache-Control: no-store", b"Content-Length: %d" % len(body)]
    return HTTPStatus(status).phrase.encode(), fields, body


_OPTIONS = frozenset((b"close", b"keep-alive", b"upgrade", b""))


def connection_options(value: bytes) -> frozenset[bytes]:
    """The names of hop-by-hop fields in a Connection field."""
    return frozenset([option.strip().lower() for option in value.split(b",")]) - _OPTIONS
