"""What goes on of a head, in both directions: RFC 9110 7.6.1, the contract's Upstream paragraph, and raw targets."""

import pytest
from raw import OK, Head, RawBroker, Served, Start


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


async def test_a_broker_gets_the_clients_fields_and_ours(start: Start, broker: RawBroker) -> None:
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


async def test_hop_by_hop_fields_of_a_client_stay_here(start: Start, broker: RawBroker) -> None:
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


async def test_connection_cannot_take_away_what_is_ours(start: Start, broker: RawBroker) -> None:
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
async def test_forwarding_fields(start: Start, broker: RawBroker, trusted: list[str], forwarded_for: bytes) -> None:
    """A trusted proxy's X-Forwarded-For is extended, anybody else's replaced; -Proto is of our own connection."""
    served = await start(broker.url, trustedProxies=trusted)
    head = await forwarded(served, broker, get(*FORWARDING))
    assert head.one(b"x-forwarded-for") == forwarded_for
    assert head.one(b"x-forwarded-proto") == b"http"
    assert not {b"x-forwarded-host", b"x-forwarded-port", b"forwarded"} & {*head.names}


@pytest.mark.parametrize(("trust", "principals"), [(False, []), (True, [b"admin", b"b"])])
async def test_the_original_principal_of_a_client(
    start: Start, broker: RawBroker, trust: bool, principals: list[bytes]
) -> None:
    served = await start(broker.url, brokers={"trustOriginalPrincipal": trust})
    head = await forwarded(served, broker, get(b"x-original-principal: admin", b"X-Original-Principal: b"))
    assert head.all(b"x-original-principal") == principals


async def test_a_listener_name_goes_only_with_lookups(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    named = get(b"X-Pulsar-ListenerName: external", b"x-pulsar-listenername: external", target=b"/admin/v2/x?a=b")
    assert b"x-pulsar-listenername" not in (await forwarded(served, broker, named)).names


async def test_content_codings_are_asked_for_except_in_lookups(start: Start, broker: RawBroker) -> None:
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
        b"//",
        b"/admin//v2///clusters/",
        b"/admin/v2/persistent/t/n/a%2Fb%2fc",
        b"/admin/v2/persistent/t/n/%E4%BD%A0%e5%a5%bd",
        b"/admin/v2/%25%2e%20x",
        b"/admin/v2;v=1/clusters;a;b=c",
        b"/a?",
        b"/a?b=c&d=%2F&&=&e",
        b"/a?b=//x/../y/./z?q",
        b"/a?listenerName=x&listenerName=y%20z",
        b"/a:80/@b/!$&'()*+,;=~-_.",
        b'/a[b]|c^d`e{f}"<g>\\h',
        b"/%",
        b"/%zz%2",
        b"/...",
        b"/a/..b",
    ],
)
async def test_targets_go_on_byte_for_byte(start: Start, broker: RawBroker, target: bytes) -> None:
    served = await start(broker.url)
    assert (await forwarded(served, broker, get(target=target))).target == target


async def test_an_absolute_target_is_asked_for_by_its_path(start: Start, broker: RawBroker) -> None:
    """Its authority stands for the Host, which it beats; it does not say whom to dial."""
    ingress = {"name": "public", "hosts": ["pulsar.example.com"], "listener": "external"}
    served = await start(broker.url, ingresses=[ingress])
    path = b"/lookup/v2/topic/persistent/t/n/a%2Fb"
    head = await forwarded(served, broker, get(target=b"http://pulsar.example.com" + path, host=b"nobody.example.com"))
    assert head.target == path
    assert head.one(b"host") == b"127.0.0.1:%d" % broker.port
    assert head.one(b"x-pulsar-listenername") == b"external"
    assert (await forwarded(served, broker, get(target=b"HTTPS://1.2.3.4:99?a=b"))).target == b"/?a=b"


async def test_options_may_ask_about_the_server_itself(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    head = await forwarded(served, broker, b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
    assert head.start == b"OPTIONS * HTTP/1.1"


@pytest.mark.parametrize("method", [b"GET", b"PUT", b"POST", b"DELETE", b"PATCH", b"OPTIONS", b"TRACE", b"PROPFIND"])
async def test_methods_go_on(start: Start, broker: RawBroker, method: bytes) -> None:
    served = await start(broker.url)
    head = await forwarded(served, broker, get().replace(b"GET", method, 1))
    assert head.start == method + b" /admin/v2/clusters HTTP/1.1"


async def test_an_empty_host_is_nobodys(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    assert (await forwarded(served, broker, get(host=b""))).one(b"host") == b"127.0.0.1:%d" % broker.port


# Towards clients.


async def test_a_client_gets_the_brokers_fields(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    head = await answered(
        served, broker, b"Server: Jetty\r\nSet-Cookie: a=b\r\nset-cookie: c=d\r\nX-Latin: \xe4\r\nX-Empty:\r\n"
    )
    assert head.raw == (
        b"HTTP/1.1 200 OK\r\nServer: Jetty\r\nSet-Cookie: a=b\r\nset-cookie: c=d\r\nX-Latin: \xe4\r\nX-Empty: \r\n"
        b"Content-Length: 2\r\n\r\n"
    )


async def test_hop_by_hop_fields_of_a_broker_stay_here(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    head = await answered(
        served,
        broker,
        b"Connection: keep-alive, X-One\r\nConnection: close\r\nX-One: 1\r\nKeep-Alive: timeout=30\r\nUpgrade: h2c\r\n"
        b"Proxy-Authenticate: Basic\r\nProxy-Connection: close\r\nTrailer: X\r\nTE: x\r\nX-Two: 2\r\n",
    )
    assert head.fields == [(b"x-two", b"2"), (b"content-length", b"2")]


@pytest.mark.parametrize(("line", "sent"), [(b"HTTP/1.1 200 ", b"HTTP/1.1 200 "), (b"HTTP/1.1 200", b"HTTP/1.1 200 ")])
async def test_a_reason_may_be_empty(start: Start, broker: RawBroker, line: bytes, sent: bytes) -> None:
    served = await start(broker.url)
    client = await served.client(get())
    await broker.answer(line + b"\r\nContent-Length: 0\r\n\r\n")
    assert (await client.head()).start == sent


async def test_statuses_nobody_knows_go_on(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    client = await served.client(get())
    await broker.answer(b"HTTP/1.1 799 Odd\r\nContent-Length: 0\r\n\r\n")
    assert (await client.head()).start == b"HTTP/1.1 799 Odd"
