"""The short way of a lookup against an exchange: client, broker, metrics and events see the same.

Each conversation is had with two sidecars, of which one has no short way (lanes.py).
"""

import gzip
import json
from collections.abc import Callable
from itertools import count, pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lanes import END, HOST, TIMES, TOPIC, Says, lookup, moved, says, twins
from raw import OK, Head

pytestmark = pytest.mark.usefixtures("tidy")

Answer = Callable[[bytes], bytes]
"""What a broker says to a path."""

INSIDE = b"http://broker-1.pulsar.svc:8080"
DATA = json.dumps(
    {"brokerUrl": "pulsar://broker-1.pulsar.svc:6650", "httpUrl": INSIDE.decode(), "brokerUrlSsl": ""}
).encode()
LEAK = json.dumps({"brokerUrl": "pulsar://10.1.2.3:6650", "httpUrl": "http://10.1.2.3:8080"}).encode()
LACK = b'{"reason":"the broker do not have external listener"}'

DOORS: dict[str, tuple[bytes, ...]] = {
    "an ingress": (HOST,),
    "another": (b"partner.example",),
    "a miss": (b"elsewhere.example",),
    "a pinned broker": (b"broker-0.pulsar.example.com",),
    "named by the client": (HOST, b"X-Pulsar-ListenerName: partner"),
    "forwarded": (
        b"inside",
        b"X-Forwarded-Host: pulsar.example.com",
        b"X-Forwarded-Proto: https",
        b"X-Forwarded-For: ::1",
    ),
    "forwarded for a public client": (HOST, b"X-Forwarded-For: 8.8.8.8, ::1"),
    "forwarded for nobody": (HOST, b"X-Forwarded-For: 8.8.8.8", b"X-Forwarded-For: unknown"),
}


def chunked(*fields: bytes, body: bytes, extension: bytes = b"", trailer: bytes = b"") -> bytes:
    head = b"\r\n".join((b"HTTP/1.1 200 OK", *fields, b"Transfer-Encoding: chunked"))
    return b"%b\r\n\r\n%x%b\r\n%b\r\n0\r\n%b\r\n" % (head, len(body), extension, body, trailer)


ANSWERS: dict[str, Answer] = {
    "no JSON": lambda path: OK,
    "a lookup's data": lambda path: says(b"200 OK", b"Content-Type: application/json", body=DATA),
    "with a Date": lambda path: says(b"200 OK", b"Date: Mon, 27 Jul 2026 10:00:00 GMT", body=DATA),
    "gzip": lambda path: says(b"200 OK", b"Content-Encoding: gzip", body=gzip.compress(DATA, mtime=0)),
    "an unknown coding": lambda path: says(b"200 OK", b"Content-Encoding: br", body=DATA),
    "chunked": lambda path: chunked(b"Server: broker", body=DATA),
    "chunked, with all that may be": lambda path: chunked(body=DATA, extension=b";a=b", trailer=b"X-A: b\r\n"),
    "no reason phrase": lambda path: OK.replace(b" OK", b" "),
    "a leak": lambda path: says(b"200 OK", body=LEAK),
    "an empty body": lambda path: says(b"200 OK"),
    "no content": lambda path: b"HTTP/1.1 204 No Content\r\n\r\n",
    "an id of the broker's own": lambda path: says(b"200 OK", b"X-Request-Id: 1", b"x-request-id: 2", body=DATA),
    "much": lambda path: says(b"200 OK", body=b"x" * 5000),
    "the path in the body": lambda path: says(b"200 OK", body=b'{"asked":"%b"}' % path),
    "the path in chunks": lambda path: chunked(body=b'{"asked":"%b"}' % path),
    "the path in a chunk's extension": lambda path: chunked(body=DATA, extension=b";a=" + path),
    "the path in a trailer": lambda path: chunked(body=DATA, trailer=b"X-A: %b\r\n" % path),
    "the path in the reason phrase": lambda path: says(b"200 " + path, body=DATA),
    "the path in fields": lambda path: says(
        b"200 OK", b"X-A: " + path, b"X-B: http://b%b?%b" % (path, path), body=DATA
    ),
    "the path in a field's name": lambda path: says(b"200 OK", b"X-%b: a" % path, body=DATA),
    "the path in a field of one hop": lambda path: says(b"200 OK", b"X-A: " + path, b"Connection: x-a", body=DATA),
    "the path in a field of one hop and another": lambda path: says(
        b"307 Moved", b"Keep-Alive: " + path, b"Location: %b%b#%b" % (INSIDE, path, path)
    ),
    "a redirect": lambda path: moved(INSIDE + path),
    "a redirect with a query": lambda path: moved(INSIDE + path + b"?authoritative=true&listenerName=internal"),
    "a redirect with a fragment": lambda path: moved(INSIDE + path + b"#top"),
    "a redirect with a body": lambda path: moved(INSIDE + path).replace(b"th: 0\r\n\r\n", b"th: 4\r\n\r\nthat"),
    "a redirect with a body of chunks": lambda path: chunked(b"Location: " + INSIDE + path, body=b"that").replace(
        b"200 OK", b"307 Moved"
    ),
    "a redirect with a token": lambda path: moved(INSIDE + path + b"?token=secret&a=" + path),
    "a redirect with a token of the path": lambda path: moved(INSIDE + b"/x?token=" + path),
    "a redirect that names the path twice": lambda path: moved(INSIDE + path + b"?at=" + path),
    "a redirect with a listener like the path": lambda path: moved(INSIDE + b"/x?listenerName=%b&b" % path),
    "a redirect that ends with the path": lambda path: moved(INSIDE + b"/x?%b" % path),
    "a relative redirect": lambda path: moved(path + b"?authoritative=true"),
    "a redirect to a host named lookup": lambda path: moved(b"http:/" + path),
    "a redirect without a scheme": lambda path: moved(b"/" + path),
    "a redirect of no meaning": lambda path: moved(b"http:" + path),
    "a redirect to a peer": lambda path: moved(b"https://a.peer.example" + path),
    "a redirect to where the client is": lambda path: moved(b"https://broker-1.pulsar.example.com" + path),
    "a redirect to nobody": lambda path: moved(b"http://unknown.svc:8080" + path),
    "a redirect to somebody outside": lambda path: moved(b"https://unknown.example.org" + path),
    "a redirect to another topic": lambda path: moved(INSIDE + TOPIC + b"other"),
    "a redirect to a topic like it": lambda path: moved(INSIDE + path + b"2"),
    "a redirect to a part of it": lambda path: moved(INSIDE + path[:-1]),
    "a redirect with two Locations": lambda path: says(
        b"307 Moved", b"Location: " + INSIDE + path, b"Location: " + path
    ),
    "a redirect without a Location": lambda path: says(b"307 Moved", body=b"where?"),
    "301": lambda path: moved(INSIDE + path, b"301 Moved Permanently"),
    "302": lambda path: moved(INSIDE + path, b"302 Found"),
    "303": lambda path: moved(INSIDE + path, b"303 See Other"),
    "308": lambda path: moved(INSIDE + path, b"308 Permanent Redirect"),
    "304": lambda path: b"HTTP/1.1 304 Not Modified\r\nETag: a\r\n\r\n",
    "401": lambda path: says(b"401 Unauthorized", b"WWW-Authenticate: Basic", body=b"no"),
    "404": lambda path: says(b"404 Not Found", body=b"no"),
    "a broker that lacks the listener": lambda path: says(b"500 Server Error", body=LACK),
    "another 500": lambda path: says(b"500 Server Error", body=b"no"),
    "503": lambda path: says(b"503 Service Unavailable", b"Retry-After: 1"),
    "HTTP/1.0": lambda path: OK.replace(b"HTTP/1.1", b"HTTP/1.0"),
    "HTTP/1.0 that stays": lambda path: b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
    "the last of its connection": lambda path: says(b"200 OK", b"Connection: close", body=DATA),
    "a redirect that is the last": lambda path: says(b"307 Moved", b"Connection: close", b"Location: " + INSIDE + path),
    "options of one hop": lambda path: says(b"200 OK", b"Connection: keep-alive, x-a", b"X-A: b", body=DATA),
    "100 before it": lambda path: b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
    "103 before it": lambda path: b"HTTP/1.1 103 Early Hints\r\nLink: %b\r\n\r\n" % path + moved(INSIDE + path),
    "101": lambda path: b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    "more than an answer": lambda path: OK + b"more",
    "two answers": lambda path: OK + OK,
    "an answer and an empty line": lambda path: OK + b"\r\n",
    "two lengths": lambda path: OK.replace(b"\r\n\r\n", b"\r\nContent-Length: 3\r\n\r\n"),
    "a NUL": lambda path: says(b"200 OK", b"X-A: a\0b", body=DATA),
    "nothing of HTTP": lambda path: b"\x15\x03\x01\x00\x02\x02\x46\r\n\r\n",
    "no end": lambda path: b"HTTP/1.1 200 OK\r\n\r\n" + DATA,
    "nothing": lambda path: b"",
}

ENDLESS = {"no end", "nothing"}
"""What only the end of the connection ends."""

SHORT = {
    "no JSON", "a lookup's data", "with a Date", "gzip", "chunked", "a leak", "a redirect", "a redirect with a query",
    "a redirect with a fragment", "a relative redirect", "a redirect to a peer", "301", "302", "308",
}  # fmt: skip
"""What must have been known when it came again, through whatever door."""


def answers(name: str, cut: int = 0) -> Says:
    """What everybody is told, in two pieces where it is cut."""

    def pieces(head: Head) -> list[bytes]:
        whole = ANSWERS[name](head.target)
        found = [whole[:cut], whole[cut:]] if 0 < cut < len(whole) else [whole]
        return [*found, END] if name in ENDLESS else found

    return pieces


def redirecting(base: bytes) -> Says:
    return lambda head: (moved(base + head.target),)


def pieces(*data: bytes) -> Says:
    return lambda head: data


def through(door: str, topic: bytes, *fields: bytes) -> bytes:
    host, *own = DOORS[door]
    return lookup(topic, *own, *fields, host=host)


@pytest.mark.parametrize("name", ANSWERS)
async def test_answers(name: str) -> None:
    """Each several times through each door, then for paths that contain one another, also by another connection."""
    async with twins() as pair:
        for door in DOORS:
            known = pair.taken.known
            await pair.alike(*[through(door, b"t")] * TIMES, says=answers(name))
            assert pair.taken.known > known or name not in SHORT
            for topic in (b"t2", b"t", b"t22", b"x/t"):
                await pair.alike(through(door, topic), through(door, topic))


@pytest.mark.parametrize("name", ANSWERS)
async def test_answers_among_others(name: str) -> None:
    """On kept connections, also what ends one."""
    async with twins() as pair:
        await pair.alike(*[lookup(b"t")] * TIMES)
        begun = pair.taken.begun
        for _ in range(3):
            await pair.alike(lookup(b"t"), says=answers(name))
            await pair.alike(lookup(b"t"), lookup(b"t"), says=answers("no JSON"))
        assert pair.taken.begun >= begun + 6


@pytest.mark.parametrize("policy", ["follow", "pass"])
@pytest.mark.parametrize("unmapped", ["follow", "refuse", "pass"])
async def test_policies_of_redirects(policy: str, unmapped: str) -> None:
    redirects = {"lookup": policy, "unmapped": unmapped, "peers": ["*.peer.example"]}
    async with twins(redirects=redirects) as pair:
        for base in (INSIDE, b"http://broker-0.pulsar.svc", b"http://broker-9.pulsar.svc", b"http://unknown.svc:8080",
                     b"https://unknown.example.org", b"https://a.peer.example", b""):  # fmt: skip
            await pair.alike(*[lookup()] * TIMES, lookup(b"y"), says=redirecting(base))


@pytest.mark.parametrize(
    "settings",
    [
        {"leaks": "block"},
        {"leaks": "observe"},
        {"shadow": True},
        {"miss": "reject"},
        {"clientListenerName": "reject"},
        {"clientListenerName": "ignore"},
        {"lookupListenerName": "partner"},
        {"trustedProxies": []},
        {"preferHttpClientListenerOverInternalListener": False},
        {"bindAddresses": ["partner:http://127.0.0.1:0"]},
    ],
    ids=str,
)
async def test_settings(settings: dict[str, object]) -> None:
    async with twins(**settings) as pair:
        for name in ("a lookup's data", "a leak", "a redirect", "a redirect with a query"):
            for door in DOORS:
                await pair.alike(*[through(door, b"t")] * TIMES, through(door, b"t2"), says=answers(name))
        assert bool(pair.taken.known) is ("shadow" not in settings)


@pytest.mark.parametrize(
    "name", ["a lookup's data", "chunked", "gzip", "a redirect", "a redirect with a body", "100 before it"]
)
async def test_answers_in_pieces(name: str) -> None:
    """Known as a whole, and then cut everywhere between one byte and all but one."""
    async with twins() as pair:
        await pair.alike(*[lookup(b"t")] * TIMES, says=answers(name))
        known = pair.taken.known
        whole = ANSWERS[name](TOPIC + b"t")
        end = whole.index(b"\r\n\r\n")
        for place in {1, 9, 20, end, min(end + 4, len(whole) - 2), len(whole) - 3, len(whole) - 1}:
            await pair.alike(lookup(b"t"), says=answers(name, place))
            await pair.alike(lookup(b"t"), says=pieces(whole[:place], END))
        assert pair.taken.known == known
        await pair.alike(lookup(b"t"), says=pieces(whole, b"more"))
        await pair.alike(lookup(b"t"), lookup(b"t"), says=pieces(whole, END))


async def test_an_answer_whose_first_piece_looks_whole() -> None:
    """The path in it is shorter than the one that filled the body."""
    async with twins() as pair:
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(TOPIC + b"tt")
        await pair.alike(*[lookup(b"tt")] * TIMES, says=lambda head: (answer + head.target,))
        await pair.alike(lookup(b"t"), says=lambda head: (answer + head.target, b"!"))


# Requests.

PATHS = {
    "a CR": b"x\ry",
    "a LF": b"x\ny",
    "a CR at the end": b"x\r",
    "a line's end": b"x\r\nX-A: b",
    "a NUL": b"x\0y",
    "a space": b"x y",
    "a space at the end": b"x ",
    "a tab": b"x\ty",
    "DEL": b"x\x7fy",
    "an encoded line's end": b"x%0d%0ay",
    "dots": b"..",
    "dots before": b"../x",
    "dots behind": b"x/..",
    "dots within": b"x/../y",
    "a dot": b"./x",
    "encoded dots": b"%2e%2e/x",
    "dots in a name": b"x..y",
    "a backslash": b"x\\..\\y",
    "a parameter": b"x;y",
    "a query": b"x?a=b",
    "an empty query": b"x?",
    "a listener": b"x?listenerName=partner",
    "a fragment": b"x#y",
    "UTF-8": b"x\xc3\xa9",
    "latin-1": b"x\xe9",
    "an encoded letter": b"%78",
    "a half encoding": b"x%",
    "nothing": b"",
    "a slash": b"/",
    "one segment more": b"x/y",
    "an empty segment": b"/x",
    "a slash behind": b"x/",
    "a plus": b"a+b",
    "plain letters": b"AZaz09._~:@!$'()*+,=-",
    "other letters": b'x"<>[]^`{|}',
    "quotes": b'x"y',
    "&": b"x&y",
    "as long as can be": b"x" * 496,
    "longer": b"x" * 497,
    "much longer": b"x" * 5000,
    "too long": b"x" * 40_000,
    "another version": b"x HTTP/1.0\r\nX-A: /y",
    "a version": b"x HTTP/1.1",
    "a request": b"x HTTP/1.1\r\nHost: a\r\n\r\nGET /y",
    "its own beginning": b"x" + TOPIC + b"y",
    "a bundle": b"x/bundle",
    "a token": b"token=secret",
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
async def test_paths(path: bytes) -> None:
    """Each after lookups with the same fields, on their connection and on others; then one that is as before."""
    async with twins() as pair:
        await pair.alike(*[lookup()] * TIMES, says=answers("a redirect"))
        assert pair.taken.known
        await pair.alike(lookup(b"x"), lookup(path), lookup(b"x"))
        for _ in range(2):
            await pair.alike(lookup(path), lookup(path))
        await pair.alike(lookup(b"x"))


async def test_paths_that_make_a_head_too_long() -> None:
    async with twins(limits={"headBytes": 200}) as pair:
        await pair.alike(*[lookup()] * TIMES)
        assert pair.taken.known
        room = 200 - len(lookup(b""))
        for size in (room - 1, room, room + 1, 2 * room):
            await pair.alike(lookup(b"x" * size), lookup())


X = lookup()
PART = b"GET %ba HTTP/1.1\r\nX-A: " % TOPIC
PUT = b"PUT /admin/v2/x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"

REQUESTS: dict[str, tuple[bytes, ...]] = {
    "an id before the Host": (X.replace(b"\r\nH", b"\r\nx-request-id: 1\r\nH"), X),
    "two at once": (X + lookup(b"y"),),
    "two at once, one with an id": (X + lookup(b"y", b"x-request-id: 1"), X),
    "two at once, and one of another kind": (X + PUT + X,),
    "many at once": (X * 100, X),
    "in two pieces": (X[:30], X[30:], X),
    "in three pieces": (X[:-4], X[-4:-1], X[-1:], X),
    "letter by letter": tuple(bytes([letter]) for letter in X),
    "one and a part": (X + X[:30], X[30:], X),
    "one and a letter": (X + b"G", X[1:], X),
    "the end of one and letters": (X[:-1], b"\nGE", X, b"T /admin HTTP/1.1\r\nHost: a\r\n\r\n", X),
    "the end of one and a part": (X[:-2], b"\r\n" + PART, X, X),
    "one and a part with an id": (X + b"GET /admin HTTP/1.1\r\nx-request-id: abc\r\nHos", b"t: a\r\n\r\n", X),
    "one with an id and a part": (
        lookup(b"x", b"x-request-id: abc") + b"GET /admin HTTP/1.1\r\nHos",
        b"t: a\r\n\r\n",
        X,
    ),
    "one and a part that another ends": (X + PART, X, X),
    "two and a part that another ends": (X + X + PART, X, X),
    "a PUT and a part that another ends": (PUT + PART, X, X),
    "a PUT, its body and a part that another ends": (PUT[:-5], b"hello" + PART, X, X),
    "a part that another ends": (PART, X, X),
    "one and a part that stays": (X + b"GET /admin HTTP/1.1\r\nHost: a\r\n", b"X-A: b\r\n\r\n"),
    "bytes behind it": (X + b"hello", X),
    "a line's end behind it": (X + b"\r\n", X),
    "half a line's end behind it": (X + b"\r", b"\n" + X),
    "a line's end before it": (b"\r\n" + X, X),
    "a body that is announced": (X[:-2] + b"Content-Length: 5\r\n\r\nhello", X),
    "a body that comes later": (X[:-2] + b"Content-Length: %d\r\n\r\n" % len(X), X, X),
    "no body that is announced": (X[:-2] + b"Content-Length: 0\r\n\r\n", X),
    "chunks": (X[:-2] + b"Transfer-Encoding: chunked\r\n\r\n", b"0\r\n\r\n", X),
    "chunks and a length": (X[:-2] + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", X),
    "HEAD": (X.replace(b"GET", b"HEAD"), X),
    "HTTP/1.0": (X.replace(b"HTTP/1.1", b"HTTP/1.0"), X),
    "HTTP/1.0 that stays": (X.replace(b"HTTP/1.1", b"HTTP/1.0")[:-2] + b"Connection: keep-alive\r\n\r\n", X),
    "close": (lookup(b"x", b"Connection: close"), X),
    "keep-alive": (lookup(b"x", b"Connection: keep-alive"), X),
    "a field of one hop": (lookup(b"x", b"X-A: b", b"Connection: x-a"), X),
    "an expectation": (lookup(b"x", b"Expect: 100-continue"), X),
    "another expectation": (lookup(b"x", b"Expect: 200-ok"), X),
    "an upgrade": (lookup(b"x", b"Connection: Upgrade", b"Upgrade: websocket"), X),
    "TE": (lookup(b"x", b"TE: trailers"), X),
    "an absolute target": (X.replace(b"GET ", b"GET http://pulsar.example.com"), X),
    "two spaces": (X.replace(b"GET ", b"GET  "), X),
    "two spaces before the version": (X.replace(b" HTTP/", b"  HTTP/"), X),
    "bare LFs": (X.replace(b"\r\n", b"\n"), X),
    "a bare LF and another version": (X.replace(b"\r\n", b"\n", 1)[:-2] + b"X-A: HTTP/1.1\r\n\r\n", X),
    "a folded line": (lookup(b"x", b"X-A: b", b" c"), X),
    "no Host": (b"GET %bx HTTP/1.1\r\n\r\n" % TOPIC, X),
    "two Hosts": (lookup(b"x", b"Host: a"), X),
    "a Host that is none": (lookup(b"x", host=b"a b"), X),
    "a principal": (lookup(b"x", b"X-Original-Principal: admin"), X),
    "its own listener's name twice": (lookup(b"x", b"X-Pulsar-ListenerName: a", b"X-Pulsar-ListenerName: b"), X),
    "a listener that nobody has": (lookup(b"x", b"X-Pulsar-ListenerName: nobody"), X),
    "a long field": (lookup(b"x", b"X-A: " + b"a" * 5000), X),
    "a head that is too long": (lookup(b"x", b"X-A: " + b"a" * 33_000), X),
    "too many fields": (lookup(b"x", *[b"X-A: b"] * 101), X),
    "a field's value in latin-1": (lookup(b"x", b"User-Agent: \xe9"), X),
}


@pytest.mark.parametrize("sent", REQUESTS.values(), ids=REQUESTS.keys())
async def test_requests(sent: tuple[bytes, ...]) -> None:
    """Each where the fields of a plain lookup are known, and so often that it might itself be taken for known."""
    async with twins() as pair:
        await pair.alike(*[X] * TIMES, says=answers("a redirect"))
        assert pair.taken.known
        for _ in range(TIMES):
            await pair.alike(*sent)
        await pair.alike(X, lookup(b"y"), X)


# Ids that gateways give.


def ids(*values: bytes, name: bytes = b"x-request-id") -> list[tuple[bytes, ...]]:
    return [(b"%b: %b" % (name, value),) for value in values]


def pairs(first: bytes, second: bytes, *numbers: int) -> list[tuple[bytes, ...]]:
    """Two fields of each request; `#` is its number."""
    return [tuple(line.replace(b"#", b"%d" % number) for line in (first, second)) for number in numbers or range(5)]


IDS: dict[str, list[tuple[bytes, ...]]] = {
    "Envoy's": ids(*(b"%08x-aaaa" % number for number in range(6))),
    "nginx's": ids(*(b"%032x" % number for number in range(6)), name=b"X-Request-ID"),
    "another spelling": ids(b"1", b"2", b"3", name=b"X-Request-Id"),
    "of any length": ids(b"1", b"a" * 64, b"22", b"a" * 65, b"333", b"a" * 257, b"a" * 5000, b"4"),
    "empty at first": ids(b"", b"", b"", b"", b"a", b"bb"),
    "empty later": ids(b"a", b"a", b"a", b"", b"bb"),
    "empty, without a space": [(b"x-request-id:",)] * 4 + ids(b"a"),
    "with letters of their own": ids(
        b"a", b"b", b"a b", b"a:b", b"a,b", b"a_b", b"\xe9", b"a\tb", b'"a"', b"%0d%0a", b"#"
    ),
    "with spaces around": ids(b"a", b"b", b" a", b"a ", b"\ta", b"a\t", b" "),
    "with control bytes": ids(b"a", b"b", b"a\0", b"a\x01b", b"a\x7f", b"a\rb", b"a\nb", b"a\r\n b"),
    "that end the head": ids(b"a", b"b", b"a\r\n\r\nGET /admin HTTP/1.1\r\nHost: a"),
    "that begin a field": ids(b"a", b"b", b"a\r\nX-Pulsar-ListenerName: partner", b"a\r\nx-request-id: b"),
    "without a space": [(b"x-request-id:%d" % number,) for number in range(4)],
    "with two spaces": [(b"x-request-id:  %d" % number,) for number in range(4)],
    "two": pairs(b"x-request-id: #", b"x-request-id: 1#"),
    "two, the second of which stays": pairs(b"x-request-id: #", b"x-request-id: 1"),
    "two, the first of which stays": pairs(b"x-request-id: 1", b"x-request-id: #"),
    "two, of which the first has no space": pairs(b"x-request-id:1", b"x-request-id: #", 1, 1, 1, 2, 3),
    "two that begin alike": pairs(b"x-request-id:12", b"x-request-id: #", 1, 1, 1, 2, 3),
    "in both spellings": pairs(b"X-Request-ID: #", b"x-request-id: 1"),
    "in both spellings, the other way round": pairs(b"x-request-id: 1", b"X-Request-ID: #"),
    "of one hop": pairs(b"x-request-id: #", b"Connection: x-request-id"),
    "of one hop, named first": pairs(b"Connection: X-Request-ID", b"X-Request-ID: #"),
    "that stand elsewhere": pairs(b"A: 1", b"x-request-id: #", 1, 1, 1, 2, 3),
    "like the host": ids(b"pulsar", b"pulsar", b"pulsar", b"example", b"com", b"127"),
    "like a field": ids(b"GET", b"Host", b"x-request-id", b"X-Forwarded-For", b"HTTP", b"1"),
    "in another field": pairs(b"A: x-request-id: 1", b"x-request-id: #", 1, 1, 1, 2, 3),
    "in a field like it": pairs(b"x-request-id-b: 1", b"x-request-id: #", 1, 1, 1, 2, 3),
    "at times": [*ids(b"1", b"2"), (), (), *ids(b"3", b"4"), (), *ids(b"5"), ()],
    "and places in a trace": pairs(b"x-request-id: #", b"traceparent: 00-#-#-01"),
    "and states of a trace": pairs(b"tracestate: a=#, b=#", b"b3: #-#-1"),
}


@pytest.mark.parametrize("row", IDS.values(), ids=IDS.keys())
async def test_ids(row: list[tuple[bytes, ...]]) -> None:
    """Each on a connection of its own, three times over, so that what is learned of one is used for others."""
    async with twins() as pair:
        for fields in row * 3:
            await pair.alike(lookup(b"x", *fields))
        await pair.alike(*(lookup(b"yy", *fields) for fields in row))


async def test_ids_go_the_short_way() -> None:
    async with twins() as pair:
        for name in (b"x-request-id", b"X-Request-ID"):
            known, values = pair.taken.known, [b"%d" % number for number in range(8)]
            seen = await pair.alike(*(lookup(b"x", *fields) for fields in ids(*values, name=name)))
            assert pair.taken.known > known
            assert [Head(head).one(b"x-request-id") for head in seen.asked] == values


async def test_ids_go_the_short_way_wherever_they_stand() -> None:
    async with twins() as pair:
        first = [b"GET %bx HTTP/1.1\r\nx-request-id: %d\r\nHost: a\r\n\r\n" % (TOPIC, number) for number in range(8)]
        seen = await pair.alike(*first)
        assert pair.taken.known
        assert [Head(head).one(b"x-request-id") for head in seen.asked] == [b"%d" % number for number in range(8)]


@pytest.mark.parametrize("at_fault", [pieces(END), redirecting(b"http://broker-0.pulsar.svc")], ids=["END", "redirect"])
async def test_what_is_asked_again_is_the_same_request(at_fault: Says) -> None:
    """On a new connection where the kept one ends, or of the broker that a redirect leads to."""
    async with twins(redirects={"lookup": "follow"}) as pair:
        turn = count()
        for number in range(3 * TIMES):
            await pair.alike(
                lookup(b"x", b"x-request-id: %d" % number),
                says=lambda head: (OK,) if number < TIMES or next(turn) % 2 else at_fault(head),  # noqa: B023
            )
        assert pair.taken.begun


# Anything.

TOPICS = st.one_of(
    st.sampled_from([b"t", b"t2", b"t22", b"tt", TOPIC[1:] + b"t", b"token=t", b"a+b", b"~!$'()*,:@"]),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=8).map(str.encode),
)
STEP = st.tuples(
    TOPICS,
    st.sampled_from(sorted(DOORS)),
    st.sampled_from([b"", b"", b"x-request-id: ", b"X-Request-ID: "]),
    st.sampled_from(sorted({*ANSWERS} - {"nothing", "101"})),
    st.one_of(st.just(0), st.just(0), st.just(0), st.integers(1, 200)),
)
PLACES = st.lists(st.integers(0, 3), min_size=6, max_size=20)
INSERTS = st.tuples(
    st.floats(0, 1, exclude_max=True),
    st.sampled_from(
        [bytes([letter]) for letter in b"\r\n\0 \t:/x1%\xffG"]
        + [X, PART, X[:30], b"\r\n\r\n", b" HTTP/1.1\r\n", b"\r\nHost: a", b"\r\nContent-Length: 1"]
        + [b"\r\nConnection: close", b"\r\nConnection: x-request-id", b"\r\nx-request-id: ", b"\r\nx-request-id:3"]
        + [b"\r\nx-request-id: 1", b"\r\nX-Request-ID: 2"]
    ),
)
anything = settings(max_examples=20, deadline=None, suppress_health_check=[*HealthCheck])


@given(steps=st.lists(STEP, min_size=1, max_size=4), order=PLACES)
@anything
async def test_any_lookups(steps: list[tuple[bytes, str, bytes, str, int]], order: list[int]) -> None:
    """A few, in any order and any number."""
    async with twins() as pair:
        for number, place in enumerate(order):
            topic, door, id_field, name, cut = steps[place % len(steps)]
            own_id = (id_field + b"%x" % number,) if id_field else ()
            await pair.alike(through(door, topic, *own_id), says=answers(name, cut))


@given(inserts=st.lists(INSERTS, min_size=1, max_size=4), cuts=st.lists(st.floats(0, 1), max_size=3))
@anything
async def test_any_bytes(inserts: list[tuple[float, bytes]], cuts: list[float]) -> None:
    """A lookup with anything put into it, in any pieces, so often that it might be taken for known."""
    data = lookup(b"x", b"x-request-id: 1")
    for place, insert in inserts:
        at = int(place * (len(data) + 1))
        data = data[:at] + insert + data[at:]
    places = [0, *sorted(int(cut * len(data)) for cut in cuts), len(data)]
    cut_up = [data[begin:end] for begin, end in pairwise(places) if begin < end]
    async with twins() as pair:
        await pair.alike(*[X] * TIMES)
        for _ in range(TIMES):
            await pair.alike(*cut_up)
        await pair.alike(X, lookup(b"y", b"x-request-id: 22"), X)


async def test_the_twins_differ() -> None:
    """Or all of this would prove nothing."""
    async with twins() as pair:
        await pair.alike(*[lookup()] * 10)
        assert pair.taken.known >= 10 - TIMES
