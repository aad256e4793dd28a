"""Ways to spell a broker's paths so that two readers might disagree about them."""

from collections.abc import Iterable, Iterator
from itertools import islice, product

LOOKUP = "/lookup/v2/topic/persistent/t/n/x"
CLIENT = "/admin/v2/persistent/t/n/x/partitions"
# With something behind the context's own path: without it Jetty redirects to a slash at the end.
PLAIN = (
    LOOKUP,
    "/lookup/v2/topic/persistent/t/n/x/bundle",
    "/lookup/v2/destination/persistent/t/c/n/x",
    CLIENT,
    "/admin/v2/namespaces/t/n/topics",
    "/admin/v2/schemas/t/n/x/schema",
    "/admin/v2/persistent/t/n/x/stats",
    "/admin/v2/tenants",
    "/admin/v3/functions/t/n/f",
    "/admin/v2/worker/cluster",
    "/admin/persistent/t/c/n/x/partitions",
    "/admin/namespaces/t/c/n",
    "/topics/persistent/t/n/x",
    "/ws/v2/producer/persistent/t/n/x",
    "/metrics/x",
    "/static/x",
    "/status.html",
)

# Names that clients may send; `/`, `%`, `;` and the like are encoded once by clients, some encode twice.
TOPICS = (
    "x", "x/", "a%2Fb", "a%2fb%2Fc", "%2Fa", "a%2F", "a%252Fb", "100%25", "%25u002e", "%252e%252e", "a+b", "%2B",
    "a%20b", "a:b", "a@b", "a=b,c", "a&b", "a!$'()*~_-b", "a%3Bb", "a%5Cb", "a%3Fb", "a%23b", "a%22b", "%E4%B8%BB",
    "%c3%a9", "%F0%9F%98%80", "...", "a..b", ".a", "a.", "..a", "a-partition-0", "%0A", "%7F",
)  # fmt: skip

SLASHES = (
    "//", "///", "/./", "/%2e/", "/.%2f", "/;/", "/;a=b/", ";/", ";a=b/", ";a/b/", "/.;/", ";", ";a=", "%2F", "%2f",
    "%252F", "%u002f", "%u002F/", "\\", "%5C", "/\\", "\\/", "%00/", "/%00/", "%c0%af", "%e0%80%af", "%ef%bc%8f",
    "%20/", "/%20/", "%3B/", "/%3B/", "%3F/", "%23/", "+/", "/%09/", "%0a/", "/..;/", "/x/../", "/x/..%2F", "/x%2F../",
    "/%2e%2e/x/",
)  # fmt: skip

CLIMBS = (
    "/../", "/..;/", "/..;a=b/", "/;/../", "//../", "/.;/../", "/%2e%2e/", "/%2E%2E/", "/.%2e/", "/%2e./", "/%2e%2e;/",
    "/..%2F", "/..%2f", "%2F..%2F", "%2F../", "/%2e%2e%2f", "/..%5C", "/..\\", "%5C..%5C", "\\..\\", "/%u002e%u002e/",
    "/.%u002e/", "/%u002e./", "/..%u002f", "%u002f..%u002f", "/%u002E%u002E/", "/%U002e%U002e/", "/%uff0e%uff0e/",
    "/%252e%252e/", "/%25%32%65%25%32%65/", "/..%252F", "/%c0%ae%c0%ae/", "/%c0%2e%c0%2e/", "/%e0%80%ae%e0%80%ae/",
    "/%f0%80%80%ae%f0%80%80%ae/", "/%c0%ae./", "/..%c0%af", "/%ef%bc%8e%ef%bc%8e/", "/..%00/", "/%00../", "/..%20/",
    "/..%09/", "/..+/", "/..%3B/", "/..%3Ba=b/", "/..%3F/", "/..%23/", "/...//", "/..//", "/../;/", "/.../", "/%ff/../",
    "/%ff%2e%2e/", "/%/../", "/%2/../", "/%%32%65%%32%65/", "/.%%32%65/", "/..%", "/..%2", "/..%u/", "/%2e%u002e/",
)  # fmt: skip


def _hex(text: str, form: str) -> str:
    return "".join(form.format(ord(letter)) for letter in text)


def words(word: str) -> Iterator[str]:
    """One segment, spelled otherwise."""
    first, rest = word[:1], word[1:]
    for form in ("%{:02x}", "%{:02X}", "%25{:02x}", "%u{:04x}", "%U{:04X}", "%c1%{:02x}", "%%{:02x}"):
        yield _hex(first, form) + rest
        yield _hex(word, form)
    yield rest + first
    yield word.upper()
    yield word.capitalize()
    for mark in (
        ";", ";a=b", ";v2", ";tenants", "%3B", "%3Ba=b", "%00", "%20", "+", ".", "%2e", "%ff", "%", "%2", "%u", "%zz",
        "%uzzzz", "\\", "%5C", "?x", "%3Fx", "%23x", "%2F", "%2F..", "%0a", "%e4%b8", "%ed%a0%80", "%25", "~", ":80",
        "@h",
    ):  # fmt: skip
        yield word + mark
        yield mark + word


def slashes(path: str) -> Iterator[str]:
    """Each slash replaced, or with something in front of it."""
    places = [place for place, letter in enumerate(path) if letter == "/"]
    for place, slash in product(places, SLASHES):
        yield path[:place] + slash + path[place + 1 :]
    for slash in SLASHES:
        yield path + slash


def segments(path: str) -> Iterator[str]:
    parts = path.split("/")
    for place in range(1, len(parts)):
        for word in words(parts[place]):
            yield "/".join([*parts[:place], word, *parts[place + 1 :]])


def climbs(targets: Iterable[str]) -> Iterator[str]:
    """Out of one context into another."""
    starts = ("/lookup", "/lookup/v2", "/lookup/v2/topic/persistent/t/n/x", "/admin/v2/persistent/t/n/x", "/metrics")
    for start, climb, target in product(starts, CLIMBS, targets):
        yield start + climb + target[1:]
        yield start + climb * (start.count("/") + 1) + target[1:]


def joined(targets: Iterable[str]) -> Iterator[str]:
    """Path parameters of the length that makes Jersey begin to match inside of them."""
    for target in targets:
        context, _, rest = target[1:].partition("/")
        yield f"/{context};{rest}"
        for front, padding in product(("/lookup", "/admin", "/admin/v2", "/topics", "/metrics"), range(5)):
            yield f"{front};{'p' * padding}{target[1:]}"
            yield f"{front};{'p' * padding}{rest}"
            yield f"{front};{'p' * padding}{rest}/persistent/t/n/x/partitions"


def _distinct(*spellings: Iterable[str]) -> list[str]:
    """Without those that cannot stand in a request line."""
    return [
        spelling
        for spelling in dict.fromkeys(spelling for each in spellings for spelling in each)
        if spelling.startswith("/") and "#" not in spelling and " " not in spelling
    ]


def few() -> list[str]:
    """Some hundred: every trick once or twice."""
    targets = ("/admin/v2/tenants", "/metrics/x")
    return _distinct(
        PLAIN,
        slashes("/lookup/v2/topic"),
        segments("/admin/v2"),
        (f"/lookup{climb}{target[1:]}" for climb, target in product(CLIMBS, targets)),
        joined(("/admin/v2/tenants",)),
        ("/lookup;v2/topic/persistent/t/n/x", "/admin/v2;tenants/persistent/a/b/c/partitions"),
    )


def many() -> list[str]:
    """Every trick at every place of every path, and of pairs of tricks every fortieth."""
    paths = ("/lookup/v2", "/admin/v2/tenants", "/lookup/../metrics/x", "/lookup/%2e%2e/admin/v2/x")
    pairs = (each for path in paths for once in (*segments(path), *slashes(path)) for each in slashes(once))
    return _distinct(
        few(),
        (each for path in PLAIN for each in (*slashes(path), *segments(path))),
        climbs(("/admin/v2/tenants", "/metrics/x", LOOKUP)),
        joined(PLAIN),
        islice(pairs, 0, None, 40),
    )
