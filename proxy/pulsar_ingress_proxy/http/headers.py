"""Heads of requests and answers. Heads are always rebuilt from parsed fields; raw bytes are never forwarded."""

import json
from collections.abc import Callable, Sequence
from http import HTTPStatus
from operator import itemgetter

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
_JOINED = _SPECIAL - {b"x-pulsar-listenername", b"x-original-principal"}

_NAME_TEXT = 16
"""What a cached name takes beside its characters, as characters of the cache."""

UPGRADE = (b"Connection: Upgrade", b"Upgrade: websocket")


class BadHead(ValueError):
    """A head that is valid HTTP but must be refused, with `code` as the reason."""

    def __init__(self, code: str, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.code = code
        self.status = status


Names = tuple[bytes, ...]


class Layout:
    """Which fields of a head pass to the broker, and where the others are. It depends only on the names, in order.

    Gateways send few combinations of names, so layouts are cached; values never are.
    """

    __slots__ = (
        "has_authorization", "listener_names", "passed", "pick_passed", "principals", "special", "user_agent",
    )  # fmt: skip

    def __init__(self, names: Names, dropped: frozenset[bytes] = frozenset()) -> None:
        keys = [name.lower() for name in names]
        passed = [place for place, key in enumerate(keys) if key not in _SPECIAL and key not in dropped]
        # Each field ends its own line: joining no fields would give an empty line, which ends the head.
        self.passed = b"".join(names[place].replace(b"%", b"%%") + b": %b\r\n" for place in passed)
        """The fields that pass, as a template for the values that `pick_passed` picks."""
        self.pick_passed = _picker(passed)
        self.special = tuple((key, place) for place, key in enumerate(keys) if key in _JOINED)
        self.listener_names = _places(keys, b"x-pulsar-listenername")
        self.principals = _places(keys, b"x-original-principal")
        self.user_agent = next(iter(_places(keys, b"user-agent")), None)
        self.has_authorization = b"authorization" in keys


def _places(keys: list[bytes], wanted: bytes) -> tuple[int, ...]:
    return tuple(place for place, key in enumerate(keys) if key == wanted)


def _picker(places: list[int]) -> Callable[[Names], tuple[bytes, ...] | bytes]:
    return itemgetter(*places) if places else lambda _: ()


class RequestHead:
    """A request's head: the fields that pass unchanged, and those that the sidecar controls."""

    __slots__ = ("added", "layout", "listener_names", "principals", "special", "values")

    def __init__(
        self,
        fields: Sequence[tuple[bytes, bytes]] = (),
        decisions: DecisionCache | None = None,
        dropped: frozenset[bytes] = frozenset(),
    ) -> None:
        """`decisions` caches layouts; fields in `dropped` do not pass."""
        names: Names
        values: Names
        names, values = zip(*fields) if fields else ((), ())  # noqa: B905 `strict` takes a third longer
        layout = _layout(names, dropped, decisions)
        special: dict[bytes, bytes] = {}
        for key, place in layout.special:
            special[key] = special[key] + b", " + values[place] if key in special else values[place]
        if b"connection" in special and (named := connection_options(special[b"connection"])):
            layout = _layout(names, dropped | named, decisions)
        self.layout = layout
        self.values = values
        self.special = special
        """By name in lower case; repeated fields are joined (RFC 9110 5.3)."""
        self.listener_names = tuple([values[place] for place in layout.listener_names]) if layout.listener_names else ()
        """The values of X-Pulsar-ListenerName, not joined."""
        self.principals = tuple([values[place] for place in layout.principals]) if layout.principals else ()
        """The values of X-Original-Principal, not joined."""
        self.added = b""
        """More fields for the broker, encoded."""

    @property
    def user_agent(self) -> bytes | None:
        return None if self.layout.user_agent is None else self.values[self.layout.user_agent]

    def text(self, name: bytes) -> str:
        return self.special.get(name, b"").decode("latin-1")

    @property
    def wants_websocket(self) -> bool:
        """Whether it asks to upgrade to WebSocket, the only protocol that brokers switch to."""
        options = (option.strip() for option in self.text(b"connection").lower().split(","))
        return self.text(b"upgrade").lower() == "websocket" and "upgrade" in options


def _layout(names: Names, dropped: frozenset[bytes], decisions: DecisionCache | None) -> Layout:
    if decisions is None:
        return Layout(names, dropped)
    question = (names, dropped)
    found = decisions.get(question)
    if isinstance(found, Layout):
        return found
    text = sum([len(name) + _NAME_TEXT for name in (*names, *dropped)])
    return decisions.keep(question, Layout(names, dropped), text)


def forwarded_head(
    start_line: str,
    head: RequestHead,
    url: ServiceUrl,
    config: Config,
    trusted: bool,
    peer: bytes,
    is_lookup: bool,
    listener: str | None,
    shadow: bool,
    framing: bytes = b"",
) -> bytes:
    """The head for the broker: its own Host, the peer appended to X-Forwarded-For, and the listener of a lookup.

    `framing` are the fields for the request's body. Every part ends its own line.
    """
    special, layout = head.special, head.layout
    if trusted and (forwarded_for := special.get(b"x-forwarded-for")):
        peer = b"%b, %b" % (forwarded_for, peer)
    principals = head.principals if config.brokers.trust_original_principal else ()
    if is_lookup and not shadow:
        # No content coding, as the sidecar reads the answer.
        own = b"Accept-Encoding: identity\r\n"
        if listener is not None:
            own += b"X-Pulsar-ListenerName: %b\r\n" % listener.encode()
    else:
        own = b"Accept-Encoding: %b\r\n" % special[b"accept-encoding"] if b"accept-encoding" in special else b""
        if shadow:
            own += b"".join([b"X-Pulsar-ListenerName: %b\r\n" % value for value in head.listener_names])
    return b"%b\r\n%b\r\n%b%bX-Forwarded-For: %b\r\n%bX-Forwarded-Proto: %b\r\n%b%b\r\n" % (
        start_line.encode("latin-1"),
        url.host_field,
        layout.passed % layout.pick_passed(head.values),
        head.added,
        peer,
        b"".join([b"X-Original-Principal: %b\r\n" % value for value in principals]) if principals else b"",
        url.scheme.encode(),
        own,
        framing,
    )


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
        special.get(b"x-forwarded-proto"), head.listener_names, head.layout.has_authorization, names, target.kind,
        target.area,
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
        head.layout.has_authorization,
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
