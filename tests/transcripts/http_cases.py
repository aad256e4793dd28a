"""Requests over HTTP of every kind, and what brokers answer to them."""

import gzip
import json
from collections.abc import Mapping, Sequence
from typing import Any

from player import BROKER1, BROKER2, BROKER3, REFUSING, REPETITIONS, WORKER, Case, Do, Script, Step


def _line(number: int, address: str, *, is_outside: bool = True) -> dict[str, str]:
    outside = (
        "external:https://broker-{n}.pulsar.example.com",
        "external:pulsar+ssl://broker-{n}.pulsar.example.com:6651",
        "partner:http://b{n}.partner.example:8080",
        "partner:https://b{n}.partner.example:8443",
        "partner:pulsar://b{n}.partner.example:6650",
        "partner:pulsar+ssl://b{n}.partner.example:6651",
    )
    urls = (f"internal:http://{address}", f"internal:pulsar://{address}", *(outside if is_outside else ()))
    return {
        "broker": f"broker-{number}.pulsar.svc.cluster.local",
        "listeners": ",".join(urls).replace("{n}", str(number)),
    }


CONFIG: Mapping[str, Any] = {
    "bindAddresses": ["http://127.0.0.1:0", "external:pulsar://127.0.0.1:0"],
    "brokers": {"webServiceUrl": [f"http://{BROKER1}"], "brokerServiceUrl": [f"pulsar://{BROKER1}"]},
    "ingresses": [
        {"name": "public", "hosts": ["pulsar.example.com", "*.pulsar.example.com"], "listener": "external"},
        {
            "name": "partners",
            "hosts": ["partner.example", "*.partner.example"],
            "listener": "partner",
            "allowedListeners": ["partner"],
        },
    ],
    "advertisedListeners": [
        _line(1, BROKER1),
        _line(2, BROKER2),
        _line(3, BROKER3, is_outside=False),
        _line(4, REFUSING),
    ],
    "redirects": {"peers": ["*.peer.example"]},
}

TOPIC = "/lookup/v2/topic/persistent/public/default/orders"
ADMIN = "/admin/v2/namespaces/public/default/topics"
BUNDLE = "/admin/v2/namespaces/public/default/0x00000000_0x40000000/unload"
OUTSIDE = "pulsar.example.com"
NO_INGRESS = "elsewhere.example"
NO_BROKERS = {"webServiceUrl": [f"http://{REFUSING}"], "brokerServiceUrl": [f"pulsar://{REFUSING}"]}
PARTNER_SOCKET = ["partner:http://127.0.0.1:0"]
TOKEN = "Authorization: Bearer secret"


def ask(target: str = TOPIC, *fields: str, host: str = OUTSIDE, method: str = "GET", version: str = "1.1") -> bytes:
    return "\r\n".join((f"{method} {target} HTTP/{version}", f"Host: {host}", *fields, "", "")).encode("latin-1")


def says(status: str, *fields: str, body: str | bytes = "") -> bytes:
    content = body.encode() if isinstance(body, str) else body
    head = "\r\n".join((f"HTTP/1.1 {status}", *fields, f"Content-Length: {len(content)}", "", ""))
    return head.encode() + content


def is_at(number: int = 2, **more: str) -> bytes:
    """A lookup's answer, as brokers of 4.x give it for a listener that they know nothing of."""
    return says("200 OK", "Content-Type: application/json", "Date: today", body=lookup_data(number, **more))


def lookup_data(number: int = 2, **more: str) -> str:
    host = f"broker-{number}.pulsar.svc.cluster.local"
    data = {
        "brokerUrl": f"pulsar://{host}:6650",
        "httpUrl": f"http://{host}:8080",
        "nativeUrl": f"pulsar://{host}:6650",
        "brokerUrlSsl": "",
    }
    return json.dumps({**data, **more}, separators=(",", ":"))


def moved(location: str, status: str = "307 Temporary Redirect") -> bytes:
    return says(status, f"Location: {location}")


def inside(number: int, target: str = f"{TOPIC}?authoritative=true") -> str:
    """The URL by which brokers redirect to each other."""
    return f"http://broker-{number}.pulsar.svc.cluster.local:8080{target}"


OK = says("200 OK", "Content-Type: application/json", body='["persistent://public/default/orders"]')
DONE = b"HTTP/1.1 204 No Content\r\n\r\n"

Answers = Sequence[bytes | Script]


def http(
    *client: Step,
    broker1: Answers = (),
    broker2: Answers = (),
    broker3: Answers = (),
    worker: Answers = (),
    times: int = REPETITIONS,
    **config: Any,
) -> Case:
    """A client that, unless it says more than one request, waits for the answer; keys of the config by their names."""
    answers = {"broker1": broker1, "broker2": broker2, "broker3": broker3, "worker": worker}
    return Case(
        client=(*client, Do.HEAR) if len(client) == 1 else client,
        brokers={name: [(one,) if isinstance(one, bytes) else one for one in given] for name, given in answers.items()},
        config={**CONFIG, **config},
        times=times,
    )


def redirects(**keys: Any) -> dict[str, Any]:
    return {**CONFIG["redirects"], **keys}


LOOKUPS = {
    "a lookup": http(ask(), broker1=[is_at(2)]),
    "a lookup of a topic of the broker that was asked": http(ask(), broker1=[is_at(1)]),
    "topics one after the other": http(
        *(step for number in range(10) for step in (ask(f"{TOPIC}-{number}"), Do.HEAR)),
        broker1=[is_at(1 + number % 2) for number in range(10)],
        times=1,
    ),
    "ids of a gateway": http(
        *(step for number in range(10) for step in (ask(TOPIC, f"x-request-id: {number:08x}"), Do.HEAR)),
        broker1=[is_at()] * 10,
        times=1,
    ),
    "a lookup with a query": http(ask(f"{TOPIC}?authoritative=true"), broker1=[is_at()]),
    "a lookup with an empty query": http(ask(f"{TOPIC}?"), broker1=[is_at()]),
    "a lookup by the old path": http(
        ask("/lookup/v2/destination/persistent/public/cluster/default/orders"), broker1=[is_at()]
    ),
    "a topic that is not persistent, with an encoded name": http(
        ask("/lookup/v2/topic/non-persistent/public/default/a%2Fb%20%C3%A9"), broker1=[is_at()]
    ),
    "a topic with a plus": http(ask(f"{TOPIC}+1"), broker1=[is_at()]),
    "a bundle of a topic": http(ask(f"{TOPIC}/bundle"), broker1=[says("200 OK", body="0x00_0x40")]),
    "a lookup with POST": http(ask(method="POST"), broker1=[says("405 Method Not Allowed")]),
    "a lookup with HEAD": http(ask(method="HEAD"), broker1=[b"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n"]),
    "a lookup that asks for compression": http(ask(TOPIC, "Accept-Encoding: gzip"), broker1=[is_at()]),
    "an answer that is compressed all the same": http(
        ask(TOPIC, "Accept-Encoding: gzip"),
        broker1=[says("200 OK", "Content-Encoding: gzip", body=gzip.compress(lookup_data().encode(), mtime=0))],
    ),
    "an answer in a coding that nobody knows": http(
        ask(), broker1=[says("200 OK", "Content-Encoding: zip", body=lookup_data())]
    ),
    "a lookup with a token": http(ask(TOPIC, TOKEN, "User-Agent: Pulsar-Java-v4.0.0"), broker1=[is_at()]),
    "a partner's lookup": http(ask(host="partner.example"), broker1=[is_at()]),
    "a partner's lookup over https": http(
        ask(TOPIC, "X-Forwarded-Proto: https", host="partner.example"), broker1=[is_at()]
    ),
    "a lookup at one broker's host": http(ask(host="broker-2.pulsar.example.com"), broker2=[is_at(2)]),
    "a lookup at one broker's host with the port": http(
        ask(TOPIC, "X-Forwarded-Proto: https", host="broker-2.pulsar.example.com:443"), broker2=[is_at(2)]
    ),
    "a lookup at the host of a broker that cannot be reached": http(ask(host="b4.partner.example:8080")),
    "a lookup at a host in capitals, with a dot": http(ask(host="PULSAR.example.com.:80"), broker1=[is_at()]),
    "a target that is a URL": http(
        ask(f"http://partner.example{TOPIC}", host="pulsar.example.com"), broker1=[is_at()]
    ),
    "an answer with keys of tomorrow": http(ask(), broker1=[is_at(2, tomorrow="pulsar://x", httpUrlTls="")]),
    "an answer that is no JSON": http(ask(), broker1=[says("200 OK", body="hello")]),
    "an answer without content": http(ask(), broker1=[says("200 OK")]),
    "an answer in chunks": http(
        ask(), broker1=[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
                        % (len(lookup_data()), lookup_data().encode())],
    ),
    "an answer to the end of the connection": http(
        ask(), broker1=[(b"HTTP/1.1 200 OK\r\n\r\n" + lookup_data().encode(), Do.CLOSE)]
    ),
    "a broker that closes after each answer": http(
        ask(), broker1=[(says("200 OK", "Connection: close", body=lookup_data()), Do.CLOSE)]
    ),
    "two lookups at once": http(
        ask() + ask(f"{TOPIC}-2"), Do.HEAR, Do.HEAR, broker1=[is_at(1), is_at(2)]
    ),
    "a lookup and an admin call at once": http(ask() + ask(ADMIN), Do.HEAR, Do.HEAR, broker1=[is_at(1), OK]),
    "a lookup in pieces": http(ask()[:30], ask()[30:-2], ask()[-2:], Do.HEAR, broker1=[is_at()]),
}  # fmt: skip

SELECTION = {
    "a listener by the query": http(ask(f"{TOPIC}?listenerName=partner"), broker1=[is_at()]),
    "a listener by an encoded query": http(ask(f"{TOPIC}?a=b&listener%4Eame=partner&c"), broker1=[is_at()]),
    "a listener by the header": http(ask(TOPIC, "X-Pulsar-ListenerName: partner"), broker1=[is_at()]),
    "the query beats the header": http(
        ask(f"{TOPIC}?listenerName=partner", "X-Pulsar-ListenerName: external"), broker1=[is_at()]
    ),
    "a blank listener": http(ask(f"{TOPIC}?listenerName=+&a=b", "X-Pulsar-ListenerName: "), broker1=[is_at()]),
    "the ingress's own listener": http(
        ask(f"{TOPIC}?listenerName=partner", host="partner.example"), broker1=[is_at()]
    ),
    "two names that differ": http(
        ask(TOPIC, "X-Pulsar-ListenerName: partner", "X-Pulsar-ListenerName: external")
    ),
    "two names that are the same": http(
        ask(TOPIC, "X-Pulsar-ListenerName: partner", "X-Pulsar-ListenerName: partner"), broker1=[is_at()]
    ),
    "a listener that is not allowed": http(ask(f"{TOPIC}?listenerName=external", host="partner.example")),
    "the internal listener": http(ask(TOPIC, "X-Pulsar-ListenerName: internal")),
    "a listener that no broker has": http(ask(TOPIC, "X-Pulsar-ListenerName: nobody")),
    "a listener that no broker has, forwarded": http(
        ask(TOPIC, "X-Pulsar-ListenerName: nobody"), broker1=[is_at()], unknownListener="forward"
    ),
    "a name that cannot be one": http(ask(f"{TOPIC}?listenerName=a%20b")),
    "names are ignored": http(
        ask(f"{TOPIC}?listenerName=partner&a=b", "X-Pulsar-ListenerName: partner"),
        broker1=[is_at()],
        clientListenerName="ignore",
    ),
    "names are rejected": http(ask(f"{TOPIC}?listenerName=partner"), clientListenerName="reject"),
    "the ingress's own name is not rejected": http(
        ask(TOPIC, "X-Pulsar-ListenerName: external"), broker1=[is_at()], clientListenerName="reject"
    ),
    "a miss": http(ask(host=NO_INGRESS), broker1=[is_at()]),
    "a miss that is redirected": http(ask(host=NO_INGRESS), broker1=[moved(inside(2))]),
    "a miss that is rejected": http(ask(host=NO_INGRESS), miss="reject"),
    "an admin call of no ingress": http(ask(ADMIN, host=NO_INGRESS), broker1=[OK], miss="reject"),
    "the default listener": http(ask(host=NO_INGRESS), broker1=[is_at()], lookupListenerName="external"),
    "a socket's listener": http(ask(host=NO_INGRESS), broker1=[is_at()], bindAddresses=PARTNER_SOCKET),
    "a socket's listener and another host": http(ask(), broker1=[is_at()], bindAddresses=PARTNER_SOCKET),
    "a broker that lacks the listener": http(
        ask(), broker1=[says("500 Server Error", body="the broker do not have external listener")]
    ),
    "a broker that lacks the listener, in other words": http(
        ask(),
        broker1=[says("500 Server Error", body="Broker 'b' does not have 'external' listener configured")],
    ),
    "a lookup that is not exposed": http(ask(), ingresses=[{**CONFIG["ingresses"][0], "expose": ["admin"]}]),
    "an admin call that is not exposed": http(
        ask(ADMIN, method="DELETE"), ingresses=[{**CONFIG["ingresses"][0], "expose": ["lookup", "client"]}]
    ),
    "a call of clients that is exposed": http(
        ask(ADMIN), broker1=[OK], ingresses=[{**CONFIG["ingresses"][0], "expose": ["lookup", "client"]}]
    ),
    "a host of no ingress gets no more than those of one": http(
        ask(ADMIN, host=NO_INGRESS), ingresses=[{**CONFIG["ingresses"][0], "expose": ["lookup"]}]
    ),
    "a shadow of a lookup": http(
        ask(f"{TOPIC}?listenerName=partner", "X-Pulsar-ListenerName: external", "Accept-Encoding: gzip"),
        broker1=[is_at()],
        shadow=True,
    ),
    "a shadow of a refusal": http(ask(TOPIC, "X-Pulsar-ListenerName: nobody"), broker1=[is_at()], shadow=True),
    "a shadow of a redirect": http(ask(), broker1=[moved(inside(2))], shadow=True),
    "a shadow of a redirect that would be refused": http(
        ask(), broker1=[moved("http://10.1.2.3:8080/x")], shadow=True
    ),
}  # fmt: skip

REDIRECTS = {
    "a lookup is redirected": http(ask(), broker1=[moved(inside(2))]),
    "a lookup with a token is redirected": http(ask(TOPIC, TOKEN), broker1=[moved(inside(2))]),
    "a partner's lookup is redirected": http(ask(host="partner.example"), broker1=[moved(inside(2))]),
    "a partner's lookup is redirected to https": http(
        ask(TOPIC, "X-Forwarded-Proto: https", host="partner.example"), broker1=[moved(inside(2))]
    ),
    "a redirect with the listener in it": http(
        ask(), broker1=[moved(inside(2, f"{TOPIC}?listenerName=external&authoritative=true#here"))]
    ),
    "a redirect with another listener in it": http(
        ask(), broker1=[moved(inside(2, f"{TOPIC}?listenerName=internal&authoritative=true"))]
    ),
    "a redirect to where the client is": http(
        ask(), broker1=[moved(f"https://broker-2.pulsar.example.com{TOPIC}?authoritative=true")]
    ),
    "a relative redirect": http(ask(), broker1=[moved(f"{TOPIC}?authoritative=true")]),
    "a redirect with HEAD": http(ask(method="HEAD"), broker1=[moved(inside(2))]),
    "302 Found": http(ask(), broker1=[moved(inside(2), "302 Found")]),
    "303 See Other, followed": http(
        ask(BUNDLE, "Content-Length: 4", method="PUT") + b"body",
        broker1=[moved(inside(2, BUNDLE), "303 See Other")],
        broker2=[OK],
        redirects=redirects(admin="follow"),
    ),
    "304 Not Modified": http(ask(ADMIN), broker1=[b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n"]),
    "a redirect without a Location": http(ask(), broker1=[says("307 Temporary Redirect")]),
    "an admin call is redirected": http(ask(BUNDLE, method="PUT"), broker1=[moved(inside(2, BUNDLE))]),
    "a redirect to a broker that has no address outside": http(
        ask(), broker1=[moved(inside(3))], broker3=[is_at(3)]
    ),
    "unmapped redirects are refused": http(
        ask(), broker1=[moved(inside(3))], redirects=redirects(unmapped="refuse")
    ),
    "unmapped redirects pass": http(ask(), broker1=[moved(inside(3))], redirects=redirects(unmapped="pass")),
    "a broker that has an address on the default listener": http(
        ask(),
        broker1=[moved(inside(1))],
        advertisedListeners=[
            {"broker": "broker-1.pulsar.svc.cluster.local", "listeners": f"internal:http://{BROKER1},partner:http://b1.partner.example"},
            {"broker": "broker-2.pulsar.svc.cluster.local", "listeners": "external:https://broker-2.pulsar.example.com"},
        ],
        lookupListenerName="partner",
    ),
    "brokers that share an address": http(
        ask(),
        broker1=[moved(inside(2))],
        broker2=[is_at(2)],
        advertisedListeners=[
            {"broker": f"broker-{number}.pulsar.svc.cluster.local", "listeners": f"internal:http://{address},external:http://pulsar.example.com"}
            for number, address in ((1, BROKER1), (2, BROKER2))
        ],
    ),
    "a peer cluster": http(ask(), broker1=[moved(f"http://broker.peer.example:8080{TOPIC}")]),
    "an unknown name that looks public": http(ask(), broker1=[moved(f"http://stranger.example{TOPIC}?token=secret")]),
    "an unknown name of the inside": http(ask(), broker1=[moved(f"http://nobody.pulsar.svc:8080{TOPIC}")]),
    "an unknown name that may pass": http(
        ask(), broker1=[moved(f"http://nobody.pulsar.svc:8080{TOPIC}")], redirects=redirects(unmapped="pass")
    ),
    "a Location that is no URL": http(ask(), broker1=[moved("http://broker_7:x/")]),
    "redirects pass": http(ask(), broker1=[moved(inside(2))], redirects=redirects(lookup="pass")),
    "redirects of admin calls pass": http(
        ask(BUNDLE, method="PUT"), broker1=[moved(inside(2, BUNDLE))], redirects=redirects(admin="pass")
    ),
    "the brokers' own listener is preferred": http(
        ask(), broker1=[moved(inside(2))], preferHttpClientListenerOverInternalListener=False
    ),
    "the brokers' own listener is preferred in answers": http(
        ask(), broker1=[is_at(2)], preferHttpClientListenerOverInternalListener=False
    ),
    "a redirect is followed": http(
        ask(TOPIC, TOKEN), broker1=[moved(inside(2))], broker2=[is_at(2)], redirects=redirects(lookup="follow")
    ),
    "a redirect with a name of the client is followed": http(
        ask(f"{TOPIC}?listenerName=partner"),
        broker1=[moved(inside(2))],
        broker2=[is_at(2)],
        redirects=redirects(lookup="follow"),
    ),
    "two redirects are followed": http(
        ask(),
        broker1=[moved(inside(2))],
        broker2=[moved(inside(3))],
        broker3=[is_at(3)],
        redirects=redirects(lookup="follow"),
    ),
    "a redirect with HEAD is followed": http(
        ask(method="HEAD"),
        broker1=[moved(inside(2))],
        broker2=[b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"],
        redirects=redirects(lookup="follow"),
    ),
    "a body is sent again": http(
        ask(BUNDLE, "Content-Length: 4", TOKEN, method="PUT") + b"body",
        broker1=[moved(inside(2, BUNDLE))],
        broker2=[DONE],
        redirects=redirects(admin="follow"),
    ),
    "a body is too large to be sent again": http(
        ask(BUNDLE, "Content-Length: 4", method="PUT") + b"body",
        broker1=[moved(inside(2, BUNDLE))],
        redirects=redirects(admin="follow", replayBytes=3),
    ),
    "a body is too large to be sent to a broker without an address outside": http(
        ask(BUNDLE, "Content-Length: 4", method="PUT") + b"body",
        broker1=[moved(inside(3, BUNDLE))],
        redirects=redirects(replayBytes=3),
    ),
    "a circle": http(
        ask(),
        broker1=[moved(inside(2))],
        broker2=[moved(inside(2))],
        redirects=redirects(lookup="follow"),
    ),
    "too many redirects": http(
        ask(),
        broker1=[moved(inside(2))],
        broker2=[moved(inside(3))],
        redirects=redirects(lookup="follow", maxHops=1),
    ),
    "a redirect to a broker that cannot be reached is followed": http(
        ask(), broker1=[moved(inside(4))], redirects=redirects(lookup="follow")
    ),
    "a redirect to what is not exposed is followed": http(
        ask(),
        broker1=[moved(inside(2, "/admin/v2/tenants"))],
        redirects=redirects(lookup="follow"),
        ingresses=[{**CONFIG["ingresses"][0], "expose": ["lookup"]}],
    ),
    "a redirect to an ambiguous path is followed": http(
        ask(), broker1=[moved(inside(2, "/lookup/../admin"))], redirects=redirects(lookup="follow")
    ),
    "a redirect at one broker's host": http(
        ask(host="broker-2.pulsar.example.com"), broker2=[moved(inside(1))]
    ),
}  # fmt: skip

STRANGE, PUBLIC = "pulsar://nobody.pulsar.svc:6650", "pulsar://stranger.example:6650"


def names(url: str) -> bytes:
    """A lookup's answer with no other address."""
    return is_at(2, brokerUrl=url, nativeUrl=url, httpUrl="")


LEAKS = {
    "an answer with a name of the inside that nobody knows": http(ask(), broker1=[names(STRANGE)]),
    "an answer with a public name that nobody knows": http(ask(), broker1=[names(PUBLIC)]),
    "an answer with two brokers": http(ask(), broker1=[is_at(2, httpUrl="http://broker-1.pulsar.svc.cluster.local:8080")]),
    "a broker without an address outside": http(ask(), broker1=[is_at(3)]),
    "a broker without an address outside, blocked": http(ask(), broker1=[is_at(3)], leaks="block"),
    "a broker that is on the listener, blocked": http(ask(), broker1=[is_at(2)], leaks="block"),
    "a leak that is blocked": http(ask(), broker1=[names(STRANGE)], leaks="block"),
    "a leak that is observed": http(ask(), broker1=[is_at(2)], leaks="observe"),
    "no leak that is observed": http(
        ask(),
        broker1=[says("200 OK", body='{"brokerUrlTls":"pulsar+ssl://broker-2.pulsar.example.com:6651"}')],
        leaks="observe",
    ),
    "a redirect that leaks is not blocked": http(
        ask(), broker1=[moved(inside(3))], redirects=redirects(unmapped="pass"), leaks="block"
    ),
    "a leak in a shadow": http(ask(), broker1=[names(STRANGE)], shadow=True),
}  # fmt: skip

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
    "http_lookups": LOOKUPS,
    "http_selection": SELECTION,
    "http_redirects": REDIRECTS,
    "http_leaks": LEAKS,
    "http_refusals": REFUSALS,
    "http_bodies": BODIES,
    "http_forwarded": FORWARDED,
    "http_errors": ERRORS,
    "http_websockets": WEBSOCKETS,
}
