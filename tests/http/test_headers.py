"""What goes on of a head, in both directions: RFC 9110 7.6.1, the contract's Upstream paragraph, and raw targets."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from raw import Exchange, RawBroker, Start, answer_all
from running_sidecar import events_in, while_running

from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.http.headers import RequestHead, forwarded_head
from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.snapshot import build


def get(*fields: bytes, target: bytes = b"/admin/v2/clusters", host: bytes = b"pulsar.example.com") -> bytes:
    return b"\r\n".join((b"GET %b HTTP/1.1" % target, b"Host: %b" % host, *fields)) + b"\r\n\r\n"


LOOKUP = b"/lookup/v2/topic/persistent/t/n/x"

# Towards brokers.


async def test_broker_gets_client_headers_unchanged_plus_forwarding_headers(
    exchange: Exchange, broker: RawBroker
) -> None:
    fields = (
        b"Authorization: Bearer t",
        b"accept: a",
        b"Accept: b",
        b"X-Empty: ",
        b"X-Latin: \xe4\xff",
        b"Cookie: a=b",
    )
    request, _ = await exchange(get(*fields))
    assert request.head.raw.split(b"\r\n")[:-2] == [
        b"GET /admin/v2/clusters HTTP/1.1",
        b"Host: 127.0.0.1:%d" % broker.port,
        *fields,
        b"X-Forwarded-For: 127.0.0.1",
        b"X-Forwarded-Proto: http",
    ]


async def test_percent_signs_in_header_names_and_values_are_forwarded_unchanged(exchange: Exchange) -> None:
    fields = (b"X%s: %b%d", b"%: a", b"%%b: %%")
    request, _ = await exchange(get(*fields))
    assert request.head.raw.split(b"\r\n")[2:5] == list(fields)


NAMES = st.sampled_from(
    [b"Host", b"CONNECTION", b"te", b"X-Forwarded-For", b"X-A", b"x-a", b"X-B", b"%", b"X-%b", b"Via"]
)
FIELDS = st.lists(st.tuples(NAMES, st.sampled_from([b"", b"x-a", b"%s, x-b", b"close, VIA", b"1.2.3.4"])), max_size=8)


@given(st.lists(FIELDS, max_size=4))
def test_fields_that_pass_are_those_that_a_loop_over_them_finds(heads: list[list[tuple[bytes, bytes]]]) -> None:
    """The layout is cached by names, so heads with the same names and other values follow each other."""
    config = load_mapping({"bindAddresses": ["http://127.0.0.1:0"], "brokers": {"webServiceUrl": ["http://b:8080"]}})
    decisions = DecisionCache(build(config))
    for fields in (one for head in heads for one in (head, [(name, b"other") for name, _ in head], head)):
        options = {
            option.strip().lower() for name, value in fields if name == b"CONNECTION" for option in value.split(b",")
        }
        own = {b"host", b"connection", b"te", b"x-forwarded-for"} | options - {b"close"}
        passed = [b"%b: %b" % field for field in fields if field[0].lower() not in own]
        head = RequestHead(fields, decisions)
        sent = forwarded_head("GET / HTTP/1.1", head, config.web_pool[0], config, False, b"::1", False, None, False)
        own_fields = [b"X-Forwarded-For: ::1", b"X-Forwarded-Proto: http", b"", b""]
        assert sent.split(b"\r\n") == [b"GET / HTTP/1.1", b"Host: b:8080", *passed, *own_fields]


async def test_hop_by_hop_headers_of_client_are_not_forwarded(exchange: Exchange) -> None:
    request, _ = await exchange(
        get(
            b"Connection: keep-alive, X-One,  x-TWO ,",
            b"Connection: x-three",
            b"X-One: 1",
            b"x-Two: 2",
            b"X-Three: 3",
            b"X-Four: 4",
            b"Keep-Alive: timeout=5",
            b"Proxy-Connection: keep-alive",
            b"Proxy-Authorization: Basic x",
            b"Proxy-Authenticate: Basic",
            b"TE: trailers",
            b"Trailer: X-Five",
            b"Upgrade: h2c",
        )
    )
    assert request.head.names == [b"host", b"x-four", b"x-forwarded-for", b"x-forwarded-proto"]


async def test_connection_header_cannot_remove_headers_that_the_proxy_sets(
    exchange: Exchange, broker: RawBroker
) -> None:
    data = get(b"Connection: Host, Content-Length, X-Forwarded-For", b"Content-Length: 3", b"X-Forwarded-For: 10.1.1.1")
    request, _ = await exchange(data + b"abc")
    assert request.head.one(b"content-length") == b"3"
    assert request.head.one(b"x-forwarded-for") == b"10.1.1.1, 127.0.0.1"
    assert request.head.one(b"host") == b"127.0.0.1:%d" % broker.port


FORWARDING = (
    b"X-Forwarded-For: 203.0.113.9",
    b"X-Forwarded-For: 10.0.0.7",
    b"X-Forwarded-Host: evil.example.com",
    b"X-Forwarded-Port: 1",
    b"X-Forwarded-Proto: https",
    b"Forwarded: for=203.0.113.9;proto=https",
)


@pytest.mark.parametrize(
    ("trusted", "forwarded_for"),
    [(["127.0.0.0/8"], b"203.0.113.9, 10.0.0.7, 127.0.0.1"), ([], b"127.0.0.1"), (["10.0.0.0/8", "::1"], b"127.0.0.1")],
)
async def test_x_forwarded_for_is_extended_for_trusted_peer_and_replaced_for_others(
    exchange: Exchange, trusted: list[str], forwarded_for: bytes
) -> None:
    """A trusted proxy's X-Forwarded-For is extended, anybody else's replaced; -Proto is of our own connection."""
    request, _ = await exchange(get(*FORWARDING), trustedProxies=trusted)
    assert request.head.one(b"x-forwarded-for") == forwarded_for
    assert request.head.one(b"x-forwarded-proto") == b"http"
    assert not {b"x-forwarded-host", b"x-forwarded-port", b"forwarded"} & {*request.head.names}


FROM = b"X-Forwarded-For: 8.8.8.8"
CLASSES: dict[str, tuple[list[str], bytes, str]] = {
    "no field": (["127.0.0.0/8"], get(), "loopback"),
    "a public client": (["127.0.0.0/8"], get(FROM), "public"),
    "with a body": (["127.0.0.0/8"], get(FROM, b"Content-Length: 1") + b"x", "public"),
    "two fields": (
        ["127.0.0.0/8", "10.0.0.0/8"],
        get(FROM, b"x-forwarded-for: 10.0.0.7, 10.0.0.8"),
        "public",
    ),
    "two fields of which the last counts": (
        ["127.0.0.0/8"],
        get(FROM, b"x-forwarded-for: 192.168.7.7"),
        "private",
    ),
    "an unknown client": (["127.0.0.0/8"], get(FROM + b", unknown"), "loopback"),
    "a peer that is not trusted": ([], get(FROM), "loopback"),
    "nor by another address": (["10.0.0.0/8"], get(FROM), "loopback"),
    "another field": (["127.0.0.0/8"], get(b"Forwarded: for=8.8.8.8", b"X-Real-IP: 8.8.8.8"), "loopback"),
    "a bad path, refused": (["127.0.0.0/8"], get(FROM, target=b"/admin/../x"), "public"),
    "a bad host, refused": (["127.0.0.0/8"], get(FROM, host=b"a/b"), "public"),
    "an unknown coding, refused": (["127.0.0.0/8"], get(FROM, b"Transfer-Encoding: gzip, chunked"), "public"),
    "an unknown expectation, refused": (["127.0.0.0/8"], get(FROM, b"Expect: x"), "public"),
}


@pytest.mark.parametrize(("trusted", "data", "written"), CLASSES.values(), ids=CLASSES.keys())
async def test_event_client_class_comes_from_x_forwarded_for_of_trusted_proxies(
    start: Start, broker: RawBroker, tmp_path: Path, trusted: list[str], data: bytes, written: str
) -> None:
    """Also of requests that are refused."""
    served = await start(broker.url, trustedProxies=trusted, events={"path": str(tmp_path), "compress": "none"})
    async with while_running(answer_all(broker)):
        await served.ask(data)
    await served.stop()
    assert [event["clientClass"] for event in events_in(tmp_path)] == [written]


@pytest.mark.parametrize(
    ("data", "name", "values"),
    [
        (get(b"X-Pulsar-ListenerName: a", b"x-pulsar-listenername: a"), b"x-pulsar-listenername", []),
        (get(b"Accept-Encoding: gzip", b"Accept-Encoding: br"), b"accept-encoding", [b"gzip, br"]),
        (get(b"Accept-Encoding: gzip", target=LOOKUP), b"accept-encoding", [b"identity"]),
        (get(), b"accept-encoding", []),
        (get(target=LOOKUP), b"accept-encoding", [b"identity"]),
    ],
)
async def test_listener_name_passes_with_lookups_alone_and_accept_encoding_with_all_else(
    exchange: Exchange, data: bytes, name: bytes, values: list[bytes]
) -> None:
    request, _ = await exchange(data)
    assert request.head.all(name) == values


@pytest.mark.parametrize(("trust", "principals"), [(False, []), (True, [b"admin", b"b"])])
@pytest.mark.parametrize("target", [b"/admin/v2/clusters", LOOKUP])
async def test_original_principal_of_client_is_forwarded_only_if_config_trusts_it(
    exchange: Exchange, target: bytes, trust: bool, principals: list[bytes]
) -> None:
    data = get(b"x-original-principal: admin", b"X-Original-Principal: b", target=target)
    request, _ = await exchange(data, brokers={"trustOriginalPrincipal": trust})
    assert request.head.all(b"x-original-principal") == principals


# Targets.


@pytest.mark.parametrize(
    "target",
    [
        b"/",
        b"/admin/v2/clusters/",
        b"/admin/v2/persistent/t/n/a%2Fb%2fc",
        b"/admin/v2/persistent/t/n/%E4%BD%A0%e5%a5%bd",
        b"/admin/v2/%25%2e%20x",
        b"/admin/v2/clusters/a%3Bb%5Cc",
        b"/a?",
        b"/a?b=c&d=%2F&&=&e",
        b"/a?b=//x/../y/./z?q;r\\s",
        b"/a?%&b=%u002e%zz%2",
        b"/a?listenerName=x&listenerName=y%20z",
        b"/a:80/@b/!$&'()*+,=~-_.",
        b'/a[b]|c^d`e{f}"<g>',
        b"/...",
        b"/a/..b",
    ],
)
async def test_request_target_is_forwarded_byte_for_byte(exchange: Exchange, target: bytes) -> None:
    request, _ = await exchange(get(target=target))
    assert request.head.target == target


@pytest.mark.parametrize(
    ("sent", "got"),
    [
        (b"http://pulsar.example.com" + LOOKUP + b"%2Fb", LOOKUP + b"%2Fb"),
        (b"HTTPS://pulsar.example.com:99?a=b", b"/?a=b"),
    ],
)
async def test_absolute_target_overrides_host_and_is_forwarded_as_path(
    exchange: Exchange, broker: RawBroker, sent: bytes, got: bytes
) -> None:
    """Its authority stands for the Host, which it beats; it does not say whom to dial."""
    ingress = {"name": "public", "hosts": ["pulsar.example.com"], "listener": "external"}
    request, _ = await exchange(get(target=sent, host=b"nobody.example.com"), ingresses=[ingress])
    assert request.head.target == got
    assert request.head.one(b"host") == b"127.0.0.1:%d" % broker.port
    assert request.head.all(b"x-pulsar-listenername") == [b"external"] * got.startswith(LOOKUP)


@pytest.mark.parametrize("method", [b"GET", b"PUT", b"POST", b"DELETE", b"PATCH", b"OPTIONS", b"TRACE", b"PROPFIND"])
async def test_request_method_is_forwarded_unchanged(exchange: Exchange, method: bytes) -> None:
    request, _ = await exchange(get().replace(b"GET", method, 1))
    assert request.head.start == method + b" /admin/v2/clusters HTTP/1.1"


async def test_options_asterisk_is_forwarded(exchange: Exchange) -> None:
    request, _ = await exchange(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
    assert request.head.start == b"OPTIONS * HTTP/1.1"


async def test_request_with_empty_host_is_forwarded_with_host_of_broker(exchange: Exchange, broker: RawBroker) -> None:
    request, _ = await exchange(get(host=b""))
    assert request.head.one(b"host") == b"127.0.0.1:%d" % broker.port


# Towards clients.


@pytest.mark.parametrize(
    ("sent", "got"),
    [
        pytest.param(
            b"HTTP/1.1 200 OK\r\nServer: Jetty\r\nSet-Cookie: a=b\r\nset-cookie: c=d\r\nX-Latin: \xe4\r\nX-Empty:\r\n",
            b"HTTP/1.1 200 OK\r\nServer: Jetty\r\nSet-Cookie: a=b\r\nset-cookie: c=d\r\nX-Latin: \xe4\r\nX-Empty: \r\n",
            id="fields that pass",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nConnection: keep-alive, X-One\r\nConnection: close\r\nX-One: 1\r\nUpgrade: h2c\r\n"
            b"Keep-Alive: timeout=30\r\nProxy-Authenticate: Basic\r\nProxy-Connection: close\r\nTrailer: X\r\nTE: x\r\n"
            b"X-Two: 2\r\n",
            b"HTTP/1.1 200 OK\r\nX-Two: 2\r\n",
            id="hop-by-hop fields, which do not",
        ),
        pytest.param(b"HTTP/1.1 200 \r\n", b"HTTP/1.1 200 \r\n", id="an empty reason phrase"),
        pytest.param(b"HTTP/1.1 200\r\n", b"HTTP/1.1 200 \r\n", id="no reason phrase"),
        pytest.param(b"HTTP/1.1 799 Odd\r\n", b"HTTP/1.1 799 Odd\r\n", id="an unknown status"),
    ],
)
async def test_client_gets_broker_head_unchanged_but_for_hop_by_hop_headers(
    exchange: Exchange, sent: bytes, got: bytes
) -> None:
    _, answer = await exchange(answer=sent + b"Content-Length: 0\r\n\r\n")
    assert answer.head.raw == got + b"Content-Length: 0\r\n\r\n"
