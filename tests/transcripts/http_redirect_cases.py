"""Redirects of brokers over HTTP, and answers with addresses that leak."""

from collections.abc import Mapping

from http_cases import ADMIN, BUNDLE, CONFIG, DONE, OK, TOKEN, TOPIC, ask, http, inside, is_at, moved, redirects, says
from player import BROKER1, BROKER2, Case

REDIRECTS = {
    "a lookup is redirected": http(ask(), broker1=[moved(inside(2))]),
    "a lookup with a token is redirected": http(
        ask(TOPIC, TOKEN), broker1=[moved(inside(2))], redirects=redirects(lookup="rewrite")
    ),
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

GROUPS: Mapping[str, Mapping[str, Case]] = {
    "http_redirects": REDIRECTS,
    "http_leaks": LEAKS,
}
