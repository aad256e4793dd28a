"""Requests over HTTP that are refused, have bodies, come through gateways, fail at brokers, or become WebSockets."""

from collections.abc import Mapping

from http_cases import ADMIN, CONFIG, DONE, NO_BROKERS, NO_INGRESS, OK, TOPIC, ask, http, inside, is_at, moved, says
from player import WORKER, Case, Do

LONG = "x" * 40_000
REFUSALS = {
    "dots": http(ask("/lookup/../admin/v2/clusters")),
    "encoded dots": http(ask("/lookup/%2e%2e/admin/v2/clusters")),
    "an empty segment": http(ask("/lookup//v2/topic/persistent/a/b/c")),
    "a parameter in a path": http(ask(f"{TOPIC};a=b")),
    "a percent sign alone": http(ask(f"{TOPIC}%zz")),
    "an encoded first segment": http(ask("/lookup%2Fv2/topic/persistent/a/b/c")),
    "what is not UTF-8": http(ask(f"{TOPIC}%ff")),
    "a backslash": http(ask(f"{TOPIC}\\x")),
    "too many slashes": http(ask("/a" * 70)),
    "no Host": http(f"GET {TOPIC} HTTP/1.1\r\n\r\n".encode()),
    "two Hosts": http(ask(TOPIC, "Host: other.example")),
    "a Host that is none": http(ask(host="a b")),
    "a Host with a bad port": http(ask(host="pulsar.example.com:port")),
    "an asterisk": http(ask("*", method="OPTIONS"), broker1=[says("200 OK", "Allow: GET")]),
    "CONNECT": http(ask("pulsar.example.com:443", method="CONNECT"), Do.HEAR),
    "a fragment": http(ask(f"{TOPIC}#here")),
    "a URL of another scheme": http(ask(f"ftp://pulsar.example.com{TOPIC}")),
    "HTTP/2.0": http(ask(version="2.0")),
    "HTTP/3": http(ask(version="3")),
    "no request": http(b"hello\r\n\r\n"),
    "a head that is too long": http(ask(TOPIC, f"X-A: {LONG}")),
    "a path that is too long": http(ask(TOPIC + LONG)),
    "too many fields": http(ask(TOPIC, *["X-A: b"] * 101)),
    "a field without a colon": http(ask(TOPIC, "hello")),
    "a folded field": http(ask(TOPIC, "X-A: b", " c")),
    "a field with a NUL": http(ask(TOPIC, "X-A: \0")),
    "a field with a space before the colon": http(ask(TOPIC, "X-A : b")),
    "bare line feeds": http(ask().replace(b"\r\n", b"\n")),
    "two lengths": http(ask(ADMIN, "Content-Length: 1", "Content-Length: 2", method="PUT") + b"x"),
    "a length that is none": http(ask(ADMIN, "Content-Length: +1", method="PUT") + b"x"),
    "a length and chunks": http(
        ask(ADMIN, "Content-Length: 5", "Transfer-Encoding: chunked", method="PUT") + b"0\r\n\r\n"
    ),
    "a transfer coding that is not chunked": http(ask(ADMIN, "Transfer-Encoding: gzip", method="PUT")),
    "another expectation": http(ask(ADMIN, "Expect: 200-ok", "Content-Length: 1", method="PUT"), Do.HEAR, Do.CLOSE),
    "a head that takes too long": http(ask()[:30], Do.HEAR, times=1, timeouts={"head": 0.1}),
    "a body that does not fit in memory": http(
        ask(ADMIN, "Content-Length: 5", method="PUT") + b"hello", times=2, limits={"bufferBytes": 4096}
    ),
    "a lookup after a refusal": http(
        ask(TOPIC, "X-Pulsar-ListenerName: nobody") + ask(), Do.HEAR, Do.HEAR, broker1=[is_at()]
    ),
}  # fmt: skip

BODY = '{"retentionTimeInMinutes": 5}'
POLICY = "/admin/v2/namespaces/public/default/retention"
HEAD_OF_BODY = ask(POLICY, "Content-Type: application/json", f"Content-Length: {len(BODY)}", method="POST")
CHUNKED = ask(POLICY, "Transfer-Encoding: chunked", method="POST")
BODIES = {
    "an admin call": http(ask(ADMIN), broker1=[OK]),
    "an admin call with a query": http(ask(f"{ADMIN}?mode=ALL&listenerName=partner"), broker1=[OK]),
    "an admin call of v1": http(ask("/admin/persistent/public/cluster/default/orders/partitions"), broker1=[OK]),
    "a schema": http(ask("/admin/v2/schemas/public/default/orders/schema"), broker1=[OK]),
    "an admin call with HEAD": http(
        ask(ADMIN, method="HEAD"), broker1=[b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n"]
    ),
    "OPTIONS": http(ask(ADMIN, method="OPTIONS"), broker1=[says("200 OK", "Allow: GET")]),
    "DELETE": http(ask(ADMIN, method="DELETE"), broker1=[DONE]),
    "PUT without a body": http(ask(ADMIN, "Content-Length: 0", method="PUT"), broker1=[DONE]),
    "a GET with a body": http(ask(ADMIN, "Content-Length: 2") + b"{}", broker1=[OK]),
    "a lookup with a body": http(ask(TOPIC, "Content-Length: 2") + b"{}", broker1=[is_at()]),
    "an unknown method": http(ask(ADMIN, method="PURGE"), broker1=[says("405 Method Not Allowed")]),
    "another path": http(ask("/metrics"), broker1=[says("200 OK", body="metrics")]),
    "a body with a length": http(HEAD_OF_BODY + BODY.encode(), broker1=[DONE]),
    "a body with a length, later": http(HEAD_OF_BODY, BODY.encode(), Do.HEAR, broker1=[DONE]),
    "a body in chunks": http(CHUNKED + b"5\r\nhello\r\n6;a=b\r\n world\r\n0\r\n\r\n", broker1=[DONE]),
    "an empty body in chunks": http(CHUNKED + b"0\r\n\r\n", broker1=[DONE]),
    "chunks that are none": http(
        CHUNKED + b"hello\r\n", Do.HEAR, times=2
    ),
    "an expected body": http(
        HEAD_OF_BODY.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"),
        Do.HEAR,
        BODY.encode(),
        Do.HEAR,
        broker1=[DONE],
    ),
    "an expected body that the broker does not want": http(
        HEAD_OF_BODY.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"),
        Do.HEAR,
        Do.CLOSE,
        broker1=[(Do.EARLY, says("401 Unauthorized"))],
    ),
    "an answer before the body": http(HEAD_OF_BODY, Do.HEAR, Do.CLOSE, broker1=[(Do.EARLY, says("401 Unauthorized"))]),
    "a client that leaves before the answer": http(ask(), Do.WAIT, Do.CLOSE, broker1=[(b"",)], times=3),
    "a client that leaves before the end of its body": http(
        HEAD_OF_BODY + b"{", Do.WAIT, Do.CLOSE, broker1=[(Do.EARLY, b"")], times=3
    ),
    "functions go to their workers": http(
        ask("/admin/v3/functions/public/default"),
        worker=[OK],
        functionWorkers={"webServiceUrl": [f"http://{WORKER}"]},
    ),
    "functions without workers": http(ask("/admin/v3/functions/public/default"), broker1=[OK]),
    "a message by HTTP": http(
        ask("/topics/persistent/public/default/orders", "Content-Length: 2", method="POST") + b"{}", broker1=[OK]
    ),
    "an answer to the end of the connection": http(ask(ADMIN), broker1=[(b"HTTP/1.1 200 OK\r\n\r\nhello", Do.CLOSE)]),
    "an answer in chunks": http(
        ask(ADMIN),
        broker1=[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n"],
    ),
    "an answer with cookies and odd fields": http(
        ask(ADMIN, "Cookie: a=b", "X-Odd: \xe9"),
        broker1=[says("200 OK", "Set-Cookie: a=b", "set-cookie: c=d", "X-Odd: x\ty", "Keep-Alive: 5", body="x")],
    ),
    "HTTP/1.0": http(ask(version="1.0"), broker1=[is_at()]),
    "HTTP/1.0 that would stay": http(ask(TOPIC, "Connection: keep-alive", version="1.0"), broker1=[is_at()]),
    "HTTP/1.0 and an answer without a length": http(
        ask(ADMIN, version="1.0"),
        broker1=[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"],
    ),
    "HTTP/1.0 of the broker": http(ask(ADMIN), broker1=[(b"HTTP/1.0 200 OK\r\n\r\nhello", Do.CLOSE)]),
    "a client that wants the connection closed": http(ask(TOPIC, "Connection: close"), broker1=[is_at()]),
}  # fmt: skip

FORWARDED = {
    "fields of gateways": http(
        ask(
            TOPIC, "X-Forwarded-For: 203.0.113.7, 127.0.0.1", "X-Forwarded-Host: partner.example",
            "X-Forwarded-Proto: https", "X-Forwarded-Port: 443", "Forwarded: for=1.2.3.4", "Via: 1.1 gateway",
        ),
        broker1=[is_at()],
    ),
    "a forwarded host where Host is of no ingress": http(
        ask(TOPIC, "X-Forwarded-Host: pulsar.example.com, partner.example", host=NO_INGRESS), broker1=[is_at()]
    ),
    "a forwarded host that means a broker": http(
        ask(TOPIC, "X-Forwarded-Host: b2.partner.example:8080", host=NO_INGRESS), broker2=[is_at(2)]
    ),
    "a forwarded host that is none": http(ask(TOPIC, "X-Forwarded-Host: a b", host=NO_INGRESS), broker1=[is_at()]),
    "a forwarded scheme that is none": http(ask(TOPIC, "X-Forwarded-Proto: ftp"), broker1=[moved(inside(2))]),
    "fields of a gateway that is not trusted": http(
        ask(
            TOPIC, "X-Forwarded-For: 203.0.113.7", "X-Forwarded-Host: partner.example", "X-Forwarded-Proto: https",
            host=NO_INGRESS,
        ),
        broker1=[is_at()],
        trustedProxies=["192.0.2.1"],
    ),
    "a principal": http(ask(TOPIC, "X-Original-Principal: admin"), broker1=[is_at()]),
    "a principal that is trusted": http(
        ask(TOPIC, "X-Original-Principal: admin"),
        broker1=[is_at()],
        brokers={**CONFIG["brokers"], "trustOriginalPrincipal": True},
    ),
    "fields of one hop": http(
        ask(TOPIC, "Connection: x-a, keep-alive", "X-A: b", "Keep-Alive: 5", "TE: trailers", "Proxy-Authorization: x"),
        broker1=[is_at()],
    ),
    "a place in a trace": http(
        ask(TOPIC, "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "X-Request-ID: abc"),
        broker1=[is_at()],
    ),
}  # fmt: skip

ERRORS = {
    "401": http(ask(), broker1=[says("401 Unauthorized", "WWW-Authenticate: Bearer", body="no")]),
    "403 of an admin call": http(ask(ADMIN), broker1=[says("403 Forbidden", body='{"reason":"no"}')]),
    "404": http(ask(), broker1=[says("404 Not Found", body='{"reason":"no namespace"}')]),
    "412": http(ask(), broker1=[says("412 Precondition Failed")]),
    "500": http(ask(), broker1=[says("500 Server Error", body="NullPointerException")]),
    "503 of a lookup": http(ask(), broker1=[says("503 Service Unavailable", "Retry-After: 1", body="starting")]),
    "no broker": http(ask(), brokers=NO_BROKERS),
    "no broker for a body": http(
        HEAD_OF_BODY + BODY.encode(), brokers=NO_BROKERS
    ),
    "a broker that hangs up on a lookup": http(ask(), broker1=[(b"", Do.CLOSE)], times=1),
    "a broker that hangs up on a body": http(HEAD_OF_BODY + BODY.encode(), broker1=[(b"", Do.CLOSE)]),
    "a broker that says nothing": http(ask(), broker1=[(b"",)], times=1, timeouts={"lookup": 0.1}),
    "an admin call to which a broker says nothing": http(
        ask(ADMIN), broker1=[(b"",)], times=1, timeouts={"request": 0.1}
    ),
    "an answer that is cut off": http(
        ask(), broker1=[(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{", Do.CLOSE)], times=3
    ),
    "an admin answer that is cut off": http(
        ask(ADMIN), broker1=[(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhello", Do.CLOSE)], times=3
    ),
    "an answer that is no HTTP": http(ask(), broker1=[(b"hello\r\n\r\n", Do.CLOSE)], times=3),
    "an answer with two lengths": http(
        ask(), broker1=[(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", Do.CLOSE)], times=3
    ),
    "an answer that is too large": http(ask(), broker1=[(says("200 OK", body=" " * 1_100_000), Do.CLOSE)], times=3),
    "a switch that nobody asked for": http(
        ask(), broker1=[(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", Do.CLOSE)],
        times=3,
    ),
}  # fmt: skip

HANDSHAKE = ask(
    "/ws/v2/producer/persistent/public/default/orders?token=secret",
    "Upgrade: websocket",
    "Connection: keep-alive, Upgrade",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)
SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)
WEBSOCKETS = {
    "a WebSocket that the broker ends": http(
        HANDSHAKE, Do.HEAR, b"\x81\x02hi", Do.END, broker1=[(SWITCH, 4, b"\x81\x03yes", Do.CLOSE)], times=3
    ),
    "a WebSocket that the client ends": http(
        HANDSHAKE, Do.HEAR, b"\x81\x02hi", 5, Do.WAIT, Do.CLOSE, broker1=[(SWITCH, 4, b"\x81\x03yes")], times=3
    ),
    "a WebSocket that the broker refuses": http(HANDSHAKE, broker1=[says("401 Unauthorized")]),
    "a WebSocket that is redirected": http(
        HANDSHAKE, broker1=[moved(inside(2, "/ws/v2/producer/persistent/public/default/orders"))]
    ),
    "a WebSocket that is not exposed": http(
        HANDSHAKE, ingresses=[{**CONFIG["ingresses"][0], "expose": ["lookup"]}]
    ),
}  # fmt: skip

GROUPS: Mapping[str, Mapping[str, Case]] = {
    "http_refusals": REFUSALS,
    "http_bodies": BODIES,
    "http_forwarded": FORWARDED,
    "http_errors": ERRORS,
    "http_websockets": WEBSOCKETS,
}
