"""What brokers answer over HTTP: one table of cases for simulated brokers and real ones, so that neither drifts.

A case is a request to one broker of a cluster of three whose topic's bundle somebody owns, or nobody. What is expected
may depend on the version, the load manager and the configuration, which are words here: the first of a case's
expectations whose words all apply counts.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol
from urllib.parse import quote

from simulated.metadata import Topic

HEADER = "X-Pulsar-ListenerName"
Role = Literal["leader", "owner", "other"]


@dataclass(frozen=True, slots=True)
class Named:
    """What one broker of the cluster is called."""

    web: str
    id: str
    internal: str  # its pulsar:// URLs
    external: str

    @property
    def escaped(self) -> str:
        """Its id, as brokers write it into queries."""
        return quote(self.id, safe="")


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes = b""

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")


class Brokers(Protocol):
    """A cluster of three brokers to put the cases to."""

    @property
    def words(self) -> frozenset[str]:
        """What it is: `4.0 4.x modular`, and so on."""
        ...

    @property
    def names(self) -> Sequence[Named]: ...
    @property
    def cluster_name(self) -> str: ...

    async def leader(self) -> int: ...
    async def namespace(self) -> str:
        """A new one of four bundles that nobody owns."""
        ...

    async def own(self, topic: str, broker: int) -> None: ...
    async def send(
        self, broker: int, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Reply: ...


@dataclass(frozen=True, slots=True)
class Expected:
    """An answer. Texts may hold the names that `Scene.said` knows."""

    status: int = 200
    location: str | None = None
    json: Mapping[str, object] | None = None
    """The whole body, in JSON."""
    has: str = ""
    """What the body contains."""
    when: str = ""
    """The words that must apply."""


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    target: str
    expected: tuple[Expected, ...]
    ask: Role = "other"
    owned: bool = True
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    topic: str = "orders"
    """As a segment of a path."""
    exists: bool = False
    """The topic was made before."""

    def expectation(self, words: Iterable[str]) -> Expected:
        return next(expected for expected in self.expected if set(expected.when.split()) <= set(words))


@dataclass(frozen=True, slots=True)
class Scene:
    """Brokers in their roles, and a topic. `owner` and `other` do not lead; the owner has it unless nobody does."""

    brokers: Sequence[Named]
    cluster_name: str
    roles: Mapping[Role, int]
    namespace: str
    segment: str

    @property
    def topic(self) -> Topic:
        return Topic("persistent", self.namespace, self.segment)

    @property
    def said(self) -> dict[str, Any]:
        return {
            **{role: self.brokers[n] for role, n in self.roles.items()},
            "cluster": self.cluster_name,
            "namespace": self.namespace,
            "bundle": self.topic.bundle,
            "range": self.topic.bundle_range,
            "lookup": f"/lookup/v2/topic/persistent/{self.namespace}/{self.segment}",
            "admin": f"/admin/v2/persistent/{self.namespace}/{self.segment}",
            "topics": f"/topics/persistent/{self.namespace}/{self.segment}",
            "path": f"/lookup/v2/topic/persistent/{self.namespace}",
        }


async def staged(case: Case, brokers: Brokers) -> Scene:
    leader = await brokers.leader()
    owner, other = (n for n in range(len(brokers.names)) if n != leader)
    roles: dict[Role, int] = {"leader": leader, "owner": owner, "other": other}
    scene = Scene(brokers.names, brokers.cluster_name, roles, await brokers.namespace(), case.topic)
    if case.owned:
        await brokers.own(str(scene.topic), owner)
    if case.exists:
        made = await brokers.send(owner, "PUT", scene.said["admin"], JSON, None)
        assert made.status == 204, made
    return scene


@dataclass(frozen=True, slots=True)
class Played:
    """What became of a case."""

    scene: Scene
    reply: Reply
    faults: list[str]


async def played(case: Case, brokers: Brokers) -> Played:
    scene = await staged(case, brokers)
    target = case.target.format(**scene.said)
    reply = await brokers.send(scene.roles[case.ask], case.method, target, case.headers, case.body)
    return Played(scene, reply, faults(case, scene, reply, brokers.words))


def faults(case: Case, scene: Scene, reply: Reply, words: Iterable[str]) -> list[str]:
    """What the answer is, where it is not what was expected."""
    expected = case.expectation(words)
    found = []
    if reply.status != expected.status:
        found.append(f"status {reply.status}, not {expected.status}")
    location = expected.location and expected.location.format(**scene.said)
    if reply.headers.get("location") != location:
        found.append(f"Location {reply.headers.get('location')}, not {location}")
    if expected.json is not None:
        body = {k: v.format(**scene.said) if isinstance(v, str) else v for k, v in expected.json.items()}
        if parsed(reply.body) != body:
            found.append(f"body {reply.text}, not {body}")
    if expected.has.format(**scene.said) not in reply.text:
        found.append(f"body {reply.text!r} without {expected.has.format(**scene.said)!r}")
    return found


def parsed(body: bytes) -> object:
    try:
        return json.loads(body)
    except ValueError:
        return None


# What brokers say, in the words that clients see.
UNKNOWN = (
    Expected(500, has="The broker '{owner.id}' does not have 'nowhere' listener configured.", when="5.x modular"),
    Expected(500, has="the broker do not have nowhere listener"),
)
NO_URL = "Redirected cluster's service url is not configured."
JSON = {"Content-Type": "application/json"}
ENCODED = "x=a%3Ab%2Fc%3Fd%40e%21f%24g%27h%28i%29j%2Ak%2Cl%3Bm+n%20o%7eq~r-s.t_u=v"
MESSAGES = b'{"valueSchema":"","messages":[{"payload":"hello"}]}'


def answered(listener: Literal["internal", "external"], by: str = "owner") -> tuple[Expected, ...]:
    """A lookup's 200: the listener decides about the binary URLs, and about nothing else."""
    binary = f"{{{by}.{listener}}}"
    body = {"brokerUrl": binary, "httpUrl": f"{{{by}.web}}", "nativeUrl": binary, "brokerUrlSsl": ""}
    return Expected(json={"brokerId": f"{{{by}.id}}", **body}, when="5.x"), Expected(json=body)


def to_leader(old: str, new: str, path: str = "{lookup}", new_path: str | None = None) -> tuple[Expected, ...]:
    """A lookup of a free bundle: a redirect to the leader, unless the load manager needs none."""
    return (
        Expected(has='"brokerUrl":"pulsar://', when="extensible"),
        Expected(307, f"{{leader.web}}{new_path or path}{new}", when="5.x"),
        Expected(307, f"{{leader.web}}{path}{old}"),
    )


def to_owner(path: str, query: str = "", *, leads: bool = False) -> tuple[Expected, ...]:
    """An admin call elsewhere. 4.x says whether the broker asked leads, and all do with the extensible load manager."""
    first = "&" if query else "?"
    return (
        Expected(307, f"{{owner.web}}{path}{query}", when="5.x"),
        Expected(307, f"{{owner.web}}{path}{query}{first}authoritative=true", when="extensible"),
        Expected(307, f"{{owner.web}}{path}{query}{first}authoritative={str(leads).lower()}"),
    )


LOOKUPS = (
    Case("plain", "{lookup}", answered("internal")),
    Case("asked of the leader", "{lookup}", answered("internal"), ask="leader"),
    Case("header", "{lookup}", answered("external"), headers={HEADER: "external"}),
    Case("query", "{lookup}?listenerName=external", answered("external")),
    Case("query beats header", "{lookup}?listenerName=external", answered("external"), headers={HEADER: "internal"}),
    Case(
        "an empty query leaves it to the header",
        "{lookup}?listenerName=",
        answered("external"),
        headers={HEADER: "external"},
    ),
    Case(
        "a blank query hides the header",
        "{lookup}?listenerName=%20",
        answered("internal"),
        headers={HEADER: "external"},
    ),
    Case("the first of two", "{lookup}?listenerName=external&listenerName=internal", answered("external")),
    Case("an encoded parameter's name", "{lookup}?listener%4Eame=external", answered("external")),
    Case("unknown, by header", "{lookup}", UNKNOWN, headers={HEADER: "nowhere"}),
    Case("unknown, by query", "{lookup}?listenerName=nowhere", UNKNOWN),
    Case(
        "X-Forwarded-Proto changes no answer", "{lookup}", answered("internal"), headers={"X-Forwarded-Proto": "https"}
    ),
    Case("HEAD", "{lookup}", (Expected(),), method="HEAD"),
    Case("POST", "{lookup}", (Expected(405),), method="POST"),
    Case("a bundle's range", "{lookup}/bundle", (Expected(has="{range}"),)),
    Case("a bundle's range does not assign it", "{lookup}/bundle", (Expected(has="{range}"),), owned=False),
    Case(
        "no such namespace",
        "/lookup/v2/topic/persistent/public/nothing/t",
        (Expected(404, json={"reason": "Namespace not found"}),),
    ),
    Case(
        "no such tenant",
        "/lookup/v2/topic/persistent/nobody/nothing/t",
        (Expected(404, json={"reason": "Namespace not found"}),),
    ),
    Case("no such domain", "/lookup/v2/topic/nonsense/{namespace}/t", (Expected(500, has="<html>"),)),
    Case("an impossible namespace", "/lookup/v2/topic/persistent/public/a%20b/t", (Expected(500, has="<html>"),)),
    Case(
        "a slash in a topic's name",
        "{path}/a%2fb",
        (
            Expected(has='"brokerUrl":"pulsar://', when="4.0 extensible"),
            Expected(
                307, "{leader.web}/lookup/v2/destination/persistent/{namespace}/a/b?authoritative=false", when="4.0"
            ),
            Expected(500, has="<html>"),
        ),
    ),
    Case(
        "a name of the old form",
        "/lookup/v2/destination/persistent/{namespace}/old/t",
        (
            Expected(has='"brokerUrl":"pulsar://', when="4.0 extensible"),
            Expected(
                307, "{leader.web}/lookup/v2/destination/persistent/{namespace}/old/t?authoritative=false", when="4.0"
            ),
            Expected(404, has="<html>"),
        ),
    ),
    Case("no topic", "/lookup/v2/topic/persistent/public/default", (Expected(404, has="<html>"),)),
)

FREE = tuple(
    replace(case, owned=False)
    for case in (
        Case("free", "{lookup}", to_leader("?authoritative=false", "?authoritative=false&listenerName=internal")),
        Case(
            "free, header",
            "{lookup}",
            to_leader("?authoritative=false&listenerName=external", "?authoritative=false&listenerName=external"),
            headers={HEADER: "external"},
        ),
        Case(
            "free, query and more",
            "{lookup}?listenerName=external&a=%2F&authoritative=FALSE",
            to_leader("?authoritative=false&listenerName=external", "?a=%2F&authoritative=false&listenerName=external"),
        ),
        Case(
            "free, other parameters",
            "{lookup}?b=%2F&a&authoritative=false",
            to_leader("?authoritative=false", "?a=&b=%2F&authoritative=false&listenerName=internal"),
        ),
        Case(
            "free, empty query",
            "{lookup}?listenerName=",
            to_leader("?authoritative=false&listenerName=", "?authoritative=false&listenerName=internal"),
        ),
        Case(
            "free, blank query",
            "{lookup}?listenerName=%20",
            (
                Expected(412, has="Illegal character in query at index", when="4.x modular"),
                *to_leader("", "?authoritative=false&listenerName=internal"),
            ),
        ),
        Case(
            "free, unknown, by header",
            "{lookup}",
            (
                Expected(307, "{leader.web}{lookup}?authoritative=false&listenerName=internal", when="5.x modular"),
                UNKNOWN[-1],
            ),
            headers={HEADER: "nowhere"},
        ),
        Case(
            "free, unknown, by query",
            "{lookup}?listenerName=nowhere",
            (
                Expected(307, "{leader.web}{lookup}?authoritative=false&listenerName=internal", when="5.x modular"),
                UNKNOWN[-1],
            ),
        ),
        *(
            Case(
                f"free, {segment} in a path",
                f"{{path}}/{segment}",
                to_leader(
                    "?authoritative=false",
                    "?authoritative=false&listenerName=internal",
                    f"{{path}}/{rebuilt}",
                    f"{{path}}/{segment}",
                ),
                topic=topic,
            )
            for segment, topic, rebuilt in (
                ("a%20b", "a b", "a+b"),
                ("a+b", "a b", "a+b"),
                ("~a*", "~a*", "%7Ea*"),
                ("%C3%A9", "é", "%C3%A9"),
                ("a%252Fb", "a%2Fb", "a%252Fb"),
            )
        ),
        Case(
            "free, asked with authority",
            "{lookup}?authoritative=true",
            (Expected(has='"brokerUrl":"pulsar://', when="extensible"), *answered("internal", "other")),
        ),
        Case(
            "free, X-Forwarded-Proto",
            "{lookup}",
            (
                Expected(412, has=NO_URL, when="4.x modular trusting"),
                Expected(412, has="No https URL configured for broker {leader.id}", when="5.x modular trusting"),
                *to_leader("?authoritative=false", "?authoritative=false&listenerName=internal"),
            ),
            headers={"X-Forwarded-Proto": "https"},
        ),
        Case(
            "free, Forwarded",
            "{lookup}",
            (
                Expected(412, has=NO_URL, when="4.x modular trusting"),
                Expected(412, has="No https URL configured for broker {leader.id}", when="5.x modular trusting"),
                *to_leader("?authoritative=false", "?authoritative=false&listenerName=internal"),
            ),
            headers={"Forwarded": "proto=https"},
        ),
        Case(
            "free, X-Forwarded-Host",
            "{lookup}",
            to_leader("?authoritative=false", "?authoritative=false&listenerName=internal"),
            headers={"X-Forwarded-Host": "a.example:1"},
        ),
    )
)

ADMIN = (
    Case("stats", "{admin}/stats", to_owner("{admin}/stats")),
    Case("stats, asked of the leader", "{admin}/stats", to_owner("{admin}/stats", leads=True), ask="leader"),
    Case(
        "stats, other parameters and a listener",
        "{admin}/stats?a=%2F&authoritative=true&b",
        to_owner("{admin}/stats", "?a=%2F&b="),
        headers={HEADER: "external"},
    ),
    Case(
        "stats, X-Forwarded-Host",
        "{admin}/stats",
        to_owner("{admin}/stats"),
        headers={"X-Forwarded-Host": "a.example:1"},
    ),
    Case(
        "stats of a namespace that is not there",
        "/admin/v2/persistent/public/nothing/t/stats",
        (Expected(404, json={"reason": "Namespace not found"}),),
    ),
    Case("create a topic", "{admin}", to_owner("{admin}"), method="PUT", headers=JSON),
    Case("delete a topic", "{admin}", to_owner("{admin}"), method="DELETE"),
    Case(
        "create a subscription",
        "{admin}/subscription/s",
        to_owner("{admin}/subscription/s"),
        method="PUT",
        headers=JSON,
        body=b'{"ledgerId":1,"entryId":2}',
    ),
    Case(
        "schema", "/admin/v2/schemas/{namespace}/orders/schema", to_owner("/admin/v2/schemas/{namespace}/orders/schema")
    ),
    Case(
        "unload", "/admin/v2/namespaces/{bundle}/unload", to_owner("/admin/v2/namespaces/{bundle}/unload"), method="PUT"
    ),
    Case(
        "unload, asked of the leader",
        "/admin/v2/namespaces/{bundle}/unload",
        to_owner("/admin/v2/namespaces/{bundle}/unload", leads=True),
        ask="leader",
        method="PUT",
    ),
    Case("unload at the owner", "/admin/v2/namespaces/{bundle}/unload", (Expected(204),), ask="owner", method="PUT"),
    Case(
        "unload what nobody owns", "/admin/v2/namespaces/{bundle}/unload", (Expected(204),), owned=False, method="PUT"
    ),
    Case("split", "/admin/v2/namespaces/{bundle}/split", to_owner("/admin/v2/namespaces/{bundle}/split"), method="PUT"),
    Case(
        "clear a backlog",
        "/admin/v2/namespaces/{bundle}/clearBacklog",
        to_owner("/admin/v2/namespaces/{bundle}/clearBacklog"),
        method="POST",
    ),
    Case(
        "health of another broker",
        "/admin/v2/brokers/health?topicVersion=V2&brokerId={leader.id}",
        (Expected(307, "{leader.web}/admin/v2/brokers/health?topicVersion=V2&brokerId={leader.escaped}"),),
    ),
    Case(
        "health of no broker",
        "/admin/v2/brokers/health?brokerId=nobody:8080",
        (Expected(404, has="Broker id 'nobody:8080' not found in available brokers."),),
    ),
    Case(
        "namespaces of another broker",
        "/admin/v2/brokers/{cluster}/{owner.id}/ownedNamespaces",
        (Expected(307, "{owner.web}/admin/v2/brokers/{cluster}/{owner.id}/ownedNamespaces"),),
    ),
    Case(
        "partitions",
        "{admin}/partitions?checkAllowAutoCreation=true",
        (Expected(json={"partitions": 0, "deleted": False}),),
    ),
    Case("topics of a namespace", "/admin/v2/namespaces/{namespace}/topics?mode=PERSISTENT", (Expected(has="[]"),)),
    Case(
        "topics of a namespace that is not there",
        "/admin/v2/namespaces/public/nothing/topics",
        (Expected(404, json={"reason": "Namespace does not exist"}),),
    ),
    Case("brokers", "/admin/v2/brokers", (Expected(has="{leader.id}"),)),
    Case(
        "leader",
        "/admin/v2/brokers/leaderBroker",
        (Expected(json={"serviceUrl": "{leader.web}", "brokerId": "{leader.id}"}),),
    ),
    Case("ready", "/admin/v2/brokers/ready", (Expected(has="ok"),)),
    Case(
        "load report",
        "/admin/v2/broker-stats/load-report",
        (Expected(500, has="UnsupportedOperationException", when="extensible"), Expected(has="{other.external}")),
    ),
    Case("configuration", "/admin/v2/brokers/configuration/runtime", (Expected(has="external:{other.external}"),)),
    Case(
        "stats, X-Forwarded-Proto",
        "{admin}/stats",
        (
            Expected(412, has="Failed to find ownership for topic:", when="4.x trusting"),
            Expected(412, has="No https URL configured for broker {owner.id}", when="5.x trusting"),
            *to_owner("{admin}/stats"),
        ),
        headers={"X-Forwarded-Proto": "https"},
    ),
    Case(
        "stats, characters that need no encoding",
        "{admin}/stats?x=a:b/c?d@e!f$g'h(i)j*k,l;m+n%20o%7eq~r-s.t_u=v",
        (
            Expected(307, f"{{owner.web}}{{admin}}/stats?{ENCODED}", when="5.x"),
            Expected(307, f"{{owner.web}}{{admin}}/stats?authoritative=true&{ENCODED}", when="extensible"),
            Expected(307, f"{{owner.web}}{{admin}}/stats?authoritative=false&{ENCODED}"),
        ),
    ),
    Case(
        "unload to a broker",
        "/admin/v2/namespaces/{bundle}/unload?destinationBroker={other.id}",
        (
            Expected(
                307,
                "{leader.web}/admin/v2/namespaces/{bundle}/unload?destinationBroker={other.escaped}&authoritative=false",
                when="modular",
            ),
            *to_owner("/admin/v2/namespaces/{bundle}/unload", "?destinationBroker={other.escaped}"),
        ),
        method="PUT",
    ),
    Case("metrics", "/metrics", (Expected(302, "{other.web}/metrics/", when="4.0"), Expected(301, "/metrics/"))),
    Case(
        "REST produce",
        "{topics}?a=1&authoritative=true",
        (
            Expected(307, "{owner.web}{topics}?a=1", when="5.x"),
            Expected(307, "{owner.web}{topics}?a=1&authoritative=true"),
        ),
        exists=True,
        method="POST",
        headers=JSON,
        body=MESSAGES,
    ),
    Case("no such path", "/nothing", (Expected(404, has="<html>"),)),
)

CASES = LOOKUPS + FREE + ADMIN
