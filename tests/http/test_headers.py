"""What goes on of a head, in both directions: RFC 9110 7.6.1, the contract's Upstream paragraph, and raw targets."""

import ipaddress
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from raw import OK, Head, RawBroker, Served, Start

from pulsar_ingress_proxy.observability.recent import Recent
from pulsar_ingress_proxy.syntax.authorities import Networks, forwarded_client, parse_address


def get(*fields: bytes, target: bytes = b"/admin/v2/clusters", host: bytes = b"pulsar.example.com") -> bytes:
    return b"\r\n".join((b"GET %b HTTP/1.1" % target, b"Host: %b" % host, *fields)) + b"\r\n\r\n"


async def forwarded(served: Served, broker: RawBroker, data: bytes) -> Head:
    """The head that a broker gets for a client's."""
    client = await served.client(data)
    request = await broker.answer(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert (await client.message()).status == 200
    client.close()
    return request.head


async def answered(served: Served, broker: RawBroker, fields: bytes) -> Head:
    """The head that a client gets for a broker's."""
    client = await served.client(get())
    await broker.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + fields + b"\r\nok")
    return (await client.message()).head


# Towards brokers.


async def test_broker_gets_client_headers_unchanged_plus_forwarding_headers(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    head = await forwarded(
        served,
        broker,
        get(b"Authorization: Bearer t", b"accept: a", b"Accept: b", b"X-Empty:", b"X-Latin: \xe4\xff", b"Cookie: a=b"),
    )
    assert head.start == b"GET /admin/v2/clusters HTTP/1.1"
    assert head.raw.split(b"\r\n")[1:-2] == [
        b"Host: 127.0.0.1:%d" % broker.port,
        b"Authorization: Bearer t",
        b"accept: a",
        b"Accept: b",
        b"X-Empty: ",
        b"X-Latin: \xe4\xff",
        b"Cookie: a=b",
        b"X-Forwarded-For: 127.0.0.1",
        b"X-Forwarded-Proto: http",
    ]


async def test_hop_by_hop_headers_of_client_are_not_forwarded(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    head = await forwarded(
        served,
        broker,
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
        ),
    )
    assert head.names == [b"host", b"x-four", b"x-forwarded-for", b"x-forwarded-proto"]


async def test_connection_header_cannot_remove_headers_that_the_proxy_sets(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    data = get(b"Connection: Host, Content-Length, X-Forwarded-For", b"Content-Length: 3", b"X-Forwarded-For: 10.1.1.1")
    head = await forwarded(served, broker, data + b"abc")
    assert head.one(b"content-length") == b"3"
    assert head.one(b"x-forwarded-for") == b"10.1.1.1, 127.0.0.1"
    assert head.one(b"host") == b"127.0.0.1:%d" % broker.port


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
    start: Start, broker: RawBroker, trusted: list[str], forwarded_for: bytes
) -> None:
    """A trusted proxy's X-Forwarded-For is extended, anybody else's replaced; -Proto is of our own connection."""
    served = await start(broker.url, trustedProxies=trusted)
    head = await forwarded(served, broker, get(*FORWARDING))
    assert head.one(b"x-forwarded-for") == forwarded_for
    assert head.one(b"x-forwarded-proto") == b"http"
    assert not {b"x-forwarded-host", b"x-forwarded-port", b"forwarded"} & {*head.names}


# The client as trusted proxies tell it.

TRUSTED = Networks(tuple(map(ipaddress.ip_network, ("127.0.0.0/8", "::1", "10.0.0.0/24"))))


@pytest.mark.parametrize(
    ("forwarded_for", "client"),
    [
        (b"8.8.8.8", "8.8.8.8"),
        (b"8.8.8.8, 127.0.0.1", "8.8.8.8"),
        (b"8.8.8.8,10.0.0.7 ,\t::1", "8.8.8.8"),
        (b"127.0.0.1, 8.8.8.8", "8.8.8.8"),  # what the client wrote itself stands to the left
        (b"1.1.1.1, 8.8.8.8, 10.0.0.7", "8.8.8.8"),
        (b"10.0.0.7", "10.0.0.7"),  # a trusted proxy that asks for itself
        (b"10.0.0.7, 127.0.0.1", "10.0.0.7"),
        (b"2606:4700::1111", "2606:4700::1111"),
        (b"2606:4700:0000:0:0:0:0:1111, ::1", "2606:4700::1111"),
        (b"0000:0000:0000:0000:0000:ffff:192.168.100.100", "192.168.100.100"),
        (b"8.8.8.8, ::ffff:10.0.0.7", "8.8.8.8"),
        (b"::ffff:8.8.8.8, ::FFFF:7f00:1", "8.8.8.8"),
    ],
)
def test_x_forwarded_for_is_read_from_the_right_past_trusted_proxies(forwarded_for: bytes, client: str) -> None:
    assert forwarded_client(forwarded_for, TRUSTED) == parse_address(client)


NO_ADDRESSES = [
    b"", b" ", b"unknown", b"_hidden", b"_SEVKISEK", b"localhost", b"8.8.8.8:4711", b"[2606:4700::1]", b"[::1]:80",
    b"fe80::1%eth0", b"::1%1", b'"8.8.8.8"', b"for=8.8.8.8", b"8.8.8", b"08.8.8.8", b"0x8.8.8.8", b"134744072",
    b"8.8.8.8.", b"8.8.8.8/32", b"8.8.8.8 8.8.4.4", b"8.8.8.8;1.1.1.1", b"::ffff:8.8.8.8.8", b"1::2::3", b"\xb2.2.2.2",
    b"8" * 30_000, b":" * 30_000,
]  # fmt: skip


@pytest.mark.parametrize("element", NO_ADDRESSES)
def test_x_forwarded_for_is_not_read_past_an_element_that_is_no_ip_address(element: bytes) -> None:
    """What stands to the left of it may have been written by anyone."""
    assert forwarded_client(element, TRUSTED) is None
    assert forwarded_client(b"8.8.8.8, " + element, TRUSTED) is None
    assert forwarded_client(b"8.8.8.8, %b, 10.0.0.7, 127.0.0.1" % element, TRUSTED) == parse_address("10.0.0.7")
    assert forwarded_client(b"%b, 1.1.1.1, 127.0.0.1" % element, TRUSTED) == parse_address("1.1.1.1")


def test_x_forwarded_for_is_read_only_up_to_a_limited_number_of_elements() -> None:
    assert forwarded_client(b"8.8.8.8" + b", 127.0.0.1" * 1000, TRUSTED) == parse_address("127.0.0.1")


@given(st.lists(st.binary(max_size=30) | st.sampled_from([*NO_ADDRESSES[:20], b"127.0.0.1", b"8.8.8.8"]), max_size=20))
def test_x_forwarded_for_left_of_an_untrusted_address_is_ignored(elements: list[bytes]) -> None:
    claimed = b", ".join(elements)
    forwarded_client(claimed, TRUSTED)
    assert forwarded_client(b"%b, 9.9.9.9, 10.0.0.7" % claimed, TRUSTED) == parse_address("9.9.9.9")


FORWARDED_FOR = b"X-Forwarded-For: "
CLASSES: dict[str, tuple[list[str], tuple[bytes, ...], str]] = {
    "no field": (["127.0.0.0/8"], (), "loopback"),
    "a public client": (["127.0.0.0/8"], (FORWARDED_FOR + b"8.8.8.8",), "public"),
    "a private client": (["127.0.0.0/8"], (FORWARDED_FOR + b"192.168.7.7",), "private"),
    "a mapped client": (["127.0.0.0/8"], (FORWARDED_FOR + b"::ffff:10.0.0.1",), "private"),
    "behind two proxies": (["127.0.0.0/8", "10.0.0.0/8"], (FORWARDED_FOR + b"8.8.8.8, 10.0.0.7",), "public"),
    "a proxy that is not trusted": (["127.0.0.0/8"], (FORWARDED_FOR + b"8.8.8.8, 10.0.0.7",), "private"),
    "two fields": (
        ["127.0.0.0/8", "10.0.0.0/8"],
        (FORWARDED_FOR + b"8.8.8.8", b"x-forwarded-for: 10.0.0.7, 10.0.0.8"),
        "public",
    ),
    "two fields of which the last counts": (
        ["127.0.0.0/8"],
        (FORWARDED_FOR + b"8.8.8.8", b"x-forwarded-for: 192.168.7.7"),
        "private",
    ),
    "an unknown client": (["127.0.0.0/8"], (FORWARDED_FOR + b"8.8.8.8, unknown",), "loopback"),
    "a port": (["127.0.0.0/8"], (FORWARDED_FOR + b"8.8.8.8:4711",), "loopback"),
    "a long field": (["127.0.0.0/8"], (FORWARDED_FOR + b"1.1.1.1, " * 1000 + b"8.8.8.8",), "public"),
    "a peer that is not trusted": ([], (FORWARDED_FOR + b"8.8.8.8",), "loopback"),
    "nor by another address": (["10.0.0.0/8"], (FORWARDED_FOR + b"8.8.8.8",), "loopback"),
    "another field": (["127.0.0.0/8"], (b"Forwarded: for=8.8.8.8", b"X-Real-IP: 8.8.8.8"), "loopback"),
}


def watch(served: Served) -> Callable[[], list[str]]:
    """What events say of clients from now on, the newest first."""
    recent, recorder = Recent(), served.sidecar._context.recorder
    recorder._recent, recorder.makes_lines = recent, True
    return lambda: [json.loads(kept.line)["clientClass"] for kept in recent.after(0)]


@pytest.mark.parametrize(("trusted", "fields", "written"), CLASSES.values(), ids=CLASSES.keys())
async def test_event_client_class_comes_from_x_forwarded_for_of_trusted_proxies(
    start: Start,
    broker: RawBroker,
    trusted: list[str],
    fields: tuple[bytes, ...],
    written: str,
) -> None:
    served = await start(broker.url, trustedProxies=trusted)
    classes = watch(served)
    await forwarded(served, broker, get(*fields))
    await forwarded(served, broker, get(*fields, b"Content-Length: 1") + b"x")
    assert classes() == [written] * 2


REFUSED = {
    "a bad path": get(FORWARDED_FOR + b"8.8.8.8", target=b"/admin/../x"),
    "a bad host": get(FORWARDED_FOR + b"8.8.8.8", host=b"a/b"),
    "an unknown coding": get(FORWARDED_FOR + b"8.8.8.8", b"Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n",
    "an unknown expectation": get(FORWARDED_FOR + b"8.8.8.8", b"Expect: x"),
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
async def test_event_of_refused_request_has_client_class_from_x_forwarded_for(
    start: Start, broker: RawBroker, data: bytes
) -> None:
    served = await start(broker.url)
    classes = watch(served)
    assert (await served.ask(data)).status in (400, 417)
    assert classes() == ["public"]


@pytest.mark.parametrize(("trust", "principals"), [(False, []), (True, [b"admin", b"b"])])
async def test_original_principal_of_client_is_forwarded_only_if_config_trusts_it(
    start: Start, broker: RawBroker, trust: bool, principals: list[bytes]
) -> None:
    served = await start(broker.url, brokers={"trustOriginalPrincipal": trust})
    head = await forwarded(served, broker, get(b"x-original-principal: admin", b"X-Original-Principal: b"))
    assert head.all(b"x-original-principal") == principals


async def test_listener_name_header_is_removed_from_requests_that_are_not_lookups(
    start: Start, broker: RawBroker
) -> None:
    served = await start(broker.url)
    named = get(b"X-Pulsar-ListenerName: external", b"x-pulsar-listenername: external", target=b"/admin/v2/x?a=b")
    assert b"x-pulsar-listenername" not in (await forwarded(served, broker, named)).names


async def test_accept_encoding_is_forwarded_except_for_lookups(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    head = await forwarded(served, broker, get(b"Accept-Encoding: gzip", b"Accept-Encoding: br"))
    assert head.one(b"accept-encoding") == b"gzip, br"
    lookup = get(b"Accept-Encoding: gzip", target=b"/lookup/v2/topic/persistent/t/n/x")
    assert (await forwarded(served, broker, lookup)).one(b"accept-encoding") == b"identity"


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
async def test_request_target_is_forwarded_byte_for_byte(start: Start, broker: RawBroker, target: bytes) -> None:
    served = await start(broker.url)
    assert (await forwarded(served, broker, get(target=target))).target == target


async def test_absolute_target_overrides_host_and_is_forwarded_as_path(start: Start, broker: RawBroker) -> None:
    """Its authority stands for the Host, which it beats; it does not say whom to dial."""
    ingress = {"name": "public", "hosts": ["pulsar.example.com"], "listener": "external"}
    served = await start(broker.url, ingresses=[ingress])
    path = b"/lookup/v2/topic/persistent/t/n/a%2Fb"
    head = await forwarded(served, broker, get(target=b"http://pulsar.example.com" + path, host=b"nobody.example.com"))
    assert head.target == path
    assert head.one(b"host") == b"127.0.0.1:%d" % broker.port
    assert head.one(b"x-pulsar-listenername") == b"external"
    assert (await forwarded(served, broker, get(target=b"HTTPS://1.2.3.4:99?a=b"))).target == b"/?a=b"


async def test_options_asterisk_is_forwarded(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    head = await forwarded(served, broker, b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
    assert head.start == b"OPTIONS * HTTP/1.1"


@pytest.mark.parametrize("method", [b"GET", b"PUT", b"POST", b"DELETE", b"PATCH", b"OPTIONS", b"TRACE", b"PROPFIND"])
async def test_request_method_is_forwarded_unchanged(start: Start, broker: RawBroker, method: bytes) -> None:
    served = await start(broker.url)
    head = await forwarded(served, broker, get().replace(b"GET", method, 1))
    assert head.start == method + b" /admin/v2/clusters HTTP/1.1"


async def test_request_with_empty_host_is_forwarded_with_host_of_broker(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    assert (await forwarded(served, broker, get(host=b""))).one(b"host") == b"127.0.0.1:%d" % broker.port


# Towards clients.


async def test_client_gets_broker_headers_unchanged(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    head = await answered(
        served, broker, b"Server: Jetty\r\nSet-Cookie: a=b\r\nset-cookie: c=d\r\nX-Latin: \xe4\r\nX-Empty:\r\n"
    )
    assert head.raw == (
        b"HTTP/1.1 200 OK\r\nServer: Jetty\r\nSet-Cookie: a=b\r\nset-cookie: c=d\r\nX-Latin: \xe4\r\nX-Empty: \r\n"
        b"Content-Length: 2\r\n\r\n"
    )


async def test_hop_by_hop_headers_of_broker_are_not_forwarded(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    head = await answered(
        served,
        broker,
        b"Connection: keep-alive, X-One\r\nConnection: close\r\nX-One: 1\r\nKeep-Alive: timeout=30\r\nUpgrade: h2c\r\n"
        b"Proxy-Authenticate: Basic\r\nProxy-Connection: close\r\nTrailer: X\r\nTE: x\r\nX-Two: 2\r\n",
    )
    assert head.fields == [(b"x-two", b"2"), (b"content-length", b"2")]


@pytest.mark.parametrize(("line", "sent"), [(b"HTTP/1.1 200 ", b"HTTP/1.1 200 "), (b"HTTP/1.1 200", b"HTTP/1.1 200 ")])
async def test_empty_reason_phrase_is_forwarded(start: Start, broker: RawBroker, line: bytes, sent: bytes) -> None:
    served = await start(broker.url)
    client = await served.client(get())
    await broker.answer(line + b"\r\nContent-Length: 0\r\n\r\n")
    assert (await client.head()).start == sent


async def test_unknown_status_code_is_forwarded(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    client = await served.client(get())
    await broker.answer(b"HTTP/1.1 799 Odd\r\nContent-Length: 0\r\n\r\n")
    assert (await client.head()).start == b"HTTP/1.1 799 Odd"
