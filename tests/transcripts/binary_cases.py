"""Conversations over the binary protocol of every kind, and what brokers say in them."""

from collections.abc import Mapping
from typing import Any

from http_cases import CONFIG, NO_BROKERS, Answers, redirects
from player import BROKER2, BROKER3, REPETITIONS, Case, Do, Script, Step
from words import (
    AUTH_CHALLENGE,
    AUTH_RESPONSE,
    CLOSE_CONSUMER,
    CLOSE_PRODUCER,
    LOOKUP,
    PARTITIONS,
    SCALABLE_TOPIC_UPDATE,
    SERVICE_NOT_READY,
    TC_ASSIGNMENTS,
    TOO_MANY_REQUESTS,
    TOPIC,
    TOPIC_MIGRATED,
    closed,
    command,
    connect,
    connected,
    error,
    failed,
    found,
    lookup,
    message,
    ping,
    pong,
    producer,
    redirect,
    send,
)

HELLO: Script = (connect(), Do.HEAR)
NAMELESS_SOCKET = ["http://127.0.0.1:0", "pulsar://127.0.0.1:0"]
THROUGH = [{**CONFIG["ingresses"][0], "throughSidecar": True}]
STRANGE, PUBLIC = "pulsar://nobody.pulsar.svc:6650", "pulsar://stranger.nowhere.test:6650"


def binary(
    *client: Step,
    broker1: Answers = (),
    broker2: Answers = (),
    broker3: Answers = (),
    times: int = REPETITIONS,
    opening: Script = HELLO,
    welcome: Mapping[str, Script] | None = None,
    **config: Any,
) -> Case:
    """A client that, unless it says more than one thing, waits for the answer; keys of the config by their names."""
    answers = {"broker1": broker1, "broker2": broker2, "broker3": broker3}
    return Case(
        client=(*client, Do.HEAR) if len(client) == 1 else client,
        brokers={name: [(one,) if isinstance(one, bytes) else one for one in given] for name, given in answers.items()},
        config={**CONFIG, **config},
        times=times,
        binary=True,
        opening=opening,
        welcome=welcome or {},
    )


def inner(number: int, scheme: str = "pulsar") -> str:
    return f"{scheme}://broker-{number}.pulsar.svc.cluster.local:{6650 if scheme == 'pulsar' else 6651}"


def outer(number: int) -> str:
    return f"pulsar+ssl://broker-{number}.pulsar.example.com:6651"


def public(**keys: Any) -> list[dict[str, Any]]:
    """The ingress, with keys of its own."""
    return [{**CONFIG["ingresses"][0], **keys}]


ASKED = lookup(1)
FOUND = found(1, inner(2), inner(2, "pulsar+ssl"))
CHALLENGE = command(AUTH_CHALLENGE, message(f1="b", f2=message(f1="sasl", f2="prove it"), f3=21))
PROOF = command(AUTH_RESPONSE, message(f1="c", f2=message(f1="sasl", f2="proof"), f3=21))
PRINCIPAL: dict[str, Any] = {"f7": "admin", "f8": "secret", "f9": "token"}

SESSIONS = {
    "a client comes in": binary(ping(), broker1=[pong()]),
    "with a token": binary(ping(), broker1=[pong()], opening=(connect(method="token", data=b"secret"), Do.HEAR)),
    "with a principal": binary(ping(), broker1=[pong()], opening=(connect(**PRINCIPAL), Do.HEAR)),
    "with a principal that is trusted": binary(
        ping(),
        broker1=[pong()],
        opening=(connect(**PRINCIPAL), Do.HEAR),
        brokers={**CONFIG["brokers"], "trustOriginalPrincipal": True},
    ),
    "with fields of tomorrow": binary(ping(), broker1=[pong()], opening=(connect(f4=99, f12="new"), Do.HEAR)),
    "in several steps": binary(
        connect(method="sasl"), Do.HEAR, PROOF, Do.HEAR, Do.CLOSE,
        broker1=[connected()],
        opening=(),
        welcome={"broker1": (CHALLENGE,)},
        times=3,
    ),
    "the broker refuses": binary(
        connect(), Do.HEAR, Do.END, opening=(), times=3,
        welcome={"broker1": (error(3, "Failed to authenticate"), Do.CLOSE)},
    ),
    "no broker": binary(connect(), Do.HEAR, Do.END, opening=(), times=3, brokers=NO_BROKERS),
    "the broker is not ready": binary(
        connect(), Do.HEAR, Do.END, opening=(), times=1, welcome={"broker1": (error(SERVICE_NOT_READY, "no"), Do.CLOSE)}
    ),
    "the broker hangs up": binary(
        connect(), Do.HEAR, Do.END, opening=(), times=1, welcome={"broker1": (Do.CLOSE,)}
    ),
    "the broker is none": binary(
        connect(), Do.HEAR, Do.END, opening=(), times=1, welcome={"broker1": (b"HTTP/1.1 400 Bad Request\r\n\r\n",)}
    ),
    "no CONNECT first": binary(ping(), Do.HEAR, Do.END, opening=(), times=3),
    "a second CONNECT": binary(connect(), Do.HEAR, Do.END, times=3),
    "no frame": binary(b"GET / HTTP/1.1\r\n\r\n", Do.END, opening=(), times=3),
    "no frame later": binary(b"\0\0\0\x06\0\0\0\x07\x08\x12", Do.END, times=3),
    "a command that is too long": binary(
        lookup(1, topic="x" * 5000), Do.END, times=3, limits={"commandBytes": 4096}
    ),
    "what comes too early waits": binary(
        connect() + ping() + producer(), Do.HEAR, Do.HEAR, Do.WAIT, Do.CLOSE,
        broker1=[pong(), b""],
        opening=(),
        times=3,
    ),
    "messages": binary(producer() + send(b"hello"), Do.HEAR, broker1=[b"", command(17, message(f1=2, f2="x"))]),
    "a command of tomorrow": binary(
        command(4711, message(f1="what"), b"payload"), broker1=[command(4712, message(f1="that"), b"payload")]
    ),
    "partitions": binary(
        command(PARTITIONS, message(f1=TOPIC, f2=3, f3="admin", f4="secret", f5="token", f6=True)),
        broker1=[command(22, message(f1=4, f2=3))],
    ),
    "the broker ends it": binary(ping(), Do.HEAR, Do.END, broker1=[(pong(), Do.CLOSE)], times=3),
    "a broker is named that is not reached through here": binary(
        connect(to="broker-2.pulsar.example.com:6651"), Do.HEAR, Do.END, opening=(), times=3
    ),
    "a shadow": binary(ping(), broker1=[pong()], opening=(connect(to="x:1", **PRINCIPAL), Do.HEAR), shadow=True),
}  # fmt: skip

LOOKUPS = {
    "a lookup": binary(ASKED, broker1=[FOUND]),
    "topics one after the other": binary(
        *(
            step
            for number in range(1, 11)
            for step in (lookup(number * 100, topic=f"{TOPIC}-{number}"), Do.HEAR)
        ),
        broker1=[found(number * 100, inner(1 + number % 2)) for number in range(1, 11)],
        times=1,
    ),
    "two lookups at once": binary(
        lookup(1) + lookup(2, topic=f"{TOPIC}-2"), Do.HEAR, Do.HEAR, broker1=[found(1, inner(1)), found(2, inner(2))]
    ),
    "answers in another order": binary(
        lookup(1) + lookup(2), Do.HEAR, Do.HEAR, broker1=[b"", found(2, inner(1)) + found(1, inner(2))]
    ),
    "a plain address alone": binary(ASKED, broker1=[found(1, inner(2))]),
    "an address that is on the listener": binary(ASKED, broker1=[found(1, None, outer(2))]),
    "a blank listener": binary(lookup(1, " "), broker1=[FOUND]),
    "a listener of the client's own": binary(lookup(1, "partner"), broker1=[FOUND]),
    "the socket's own listener": binary(lookup(1, "external"), broker1=[FOUND]),
    "a listener that no broker has": binary(lookup(1, "nobody")),
    "a listener that no broker has, forwarded": binary(
        lookup(1, "nobody"), broker1=[FOUND], unknownListener="forward"
    ),
    "the internal listener": binary(lookup(1, "internal")),
    "a listener that is not allowed": binary(
        lookup(1, "partner"), ingresses=public(allowedListeners=["external"])
    ),
    "names are ignored": binary(lookup(1, "partner"), broker1=[FOUND], clientListenerName="ignore"),
    "names are rejected": binary(lookup(1, "partner"), clientListenerName="reject"),
    "lookups are not exposed": binary(ASKED, ingresses=public(expose=["admin"])),
    "a refusal leaves the connection as it is": binary(
        lookup(1, "nobody"), Do.HEAR, ping(), Do.HEAR, broker1=[pong()]
    ),
    "a miss": binary(ASKED, broker1=[FOUND], bindAddresses=NAMELESS_SOCKET),
    "a miss that is rejected": binary(ASKED, bindAddresses=NAMELESS_SOCKET, miss="reject"),
    "a miss that is redirected": binary(ASKED, broker1=[redirect(1, inner(2))], bindAddresses=NAMELESS_SOCKET),
    "the default listener": binary(
        ASKED, broker1=[FOUND], bindAddresses=NAMELESS_SOCKET, lookupListenerName="partner"
    ),
    "a shadow of a lookup": binary(lookup(1, "nobody"), broker1=[FOUND], shadow=True),
    "a shadow of a redirect": binary(ASKED, broker1=[redirect(1, inner(2))], shadow=True),
    "properties are added": binary(
        lookup(1, properties=[("zone", "z")]), broker1=[FOUND], ingresses=public(lookupProperties={"rack": "a"})
    ),
    "properties give way": binary(
        lookup(1, properties=[("rack", "b")]),
        broker1=[FOUND],
        ingresses=public(lookupProperties={"rack": "a", "row": "1"}),
    ),
    "properties override": binary(
        lookup(1, properties=[("rack", "b"), ("zone", "z")]),
        broker1=[FOUND],
        ingresses=public(lookupProperties={"rack": "a"}, overrideLookupProperties=True),
    ),
    "a principal": binary(lookup(1, f4="admin", f5="secret", f6="token"), broker1=[FOUND]),
    "fields of tomorrow": binary(
        command(LOOKUP, message(f1=TOPIC, f2=1, f3=False, f99="new")), broker1=[FOUND]
    ),
    "a topic that is none": binary(lookup(1, topic="orders"), broker1=[FOUND]),
    "a broker that lacks the listener": binary(
        ASKED, broker1=[failed(1, SERVICE_NOT_READY, "the broker do not have external listener")]
    ),
    "a broker's refusal": binary(ASKED, broker1=[failed(1, 4, "not authorized")]),
    "a broker that has too much to do": binary(ASKED, broker1=[failed(1, TOO_MANY_REQUESTS, "later")]),
    "a broker that is not ready": binary(ASKED, broker1=[failed(1, SERVICE_NOT_READY, "later")]),
    "a broker that says nothing": binary(ASKED, broker1=[b""], times=1, timeouts={"lookup": 0.1}),
    "a broker that hangs up": binary(ASKED, Do.END, broker1=[(Do.CLOSE,)], times=3),
    "a client that leaves before the answer": binary(ASKED, Do.WAIT, Do.CLOSE, broker1=[b""], times=3),
    "an answer that nobody waits for": binary(ping(), Do.HEAR, Do.HEAR, broker1=[found(9, inner(2)) + pong()]),
}  # fmt: skip

FOLLOW: dict[str, Any] = {"redirects": redirects(lookup="follow")}
REDIRECTS = {
    "a redirect": binary(ASKED, broker1=[redirect(1, inner(2), inner(2, "pulsar+ssl"))]),
    "a redirect on the partner's listener": binary(lookup(1, "partner"), broker1=[redirect(1, inner(2))]),
    "a redirect to where the client is": binary(ASKED, broker1=[redirect(1, None, outer(2))]),
    "a redirect that passes": binary(
        ASKED, broker1=[redirect(1, inner(2))], redirects=redirects(lookup="pass")
    ),
    "a redirect to a broker without an address outside": binary(
        ASKED, broker1=[redirect(1, inner(3))], broker3=[found(1, inner(3))]
    ),
    "unmapped redirects are refused": binary(
        ASKED, broker1=[redirect(1, inner(3))], redirects=redirects(unmapped="refuse")
    ),
    "unmapped redirects pass": binary(
        ASKED, broker1=[redirect(1, inner(3))], redirects=redirects(unmapped="pass")
    ),
    "an unknown name of the inside": binary(ASKED, broker1=[redirect(1, STRANGE)]),
    "an unknown name that looks public": binary(ASKED, broker1=[redirect(1, PUBLIC)]),
    "a peer cluster": binary(ASKED, broker1=[redirect(1, "pulsar://broker.peer.example:6650")]),
    "no URL": binary(ASKED, broker1=[redirect(1, "pulsar://broker_7:6650")]),
    "a redirect that is observed": binary(ASKED, broker1=[redirect(1, inner(2))], leaks="observe", **FOLLOW),
    "a redirect is followed": binary(
        lookup(1, properties=[("rack", "a")]),
        broker1=[redirect(1, inner(2))],
        broker2=[found(1, inner(2))],
        **FOLLOW,
    ),
    "a redirect is followed with the client's token": binary(
        ASKED,
        broker1=[redirect(1, inner(2), authoritative=False)],
        broker2=[found(1, inner(2))],
        opening=(connect(method="token", data=b"secret", **PRINCIPAL), Do.HEAR),
        **FOLLOW,
    ),
    "two redirects are followed": binary(
        ASKED,
        broker1=[redirect(1, inner(2))],
        broker2=[redirect(1, inner(3))],
        broker3=[found(1, inner(3))],
        **FOLLOW,
    ),
    "authentication that cannot be repeated": binary(
        ASKED, broker1=[redirect(1, inner(2))], opening=(connect(method="sasl"), Do.HEAR), **FOLLOW
    ),
    "the next broker wants more proof": binary(
        ASKED, Do.HEAR, Do.CLOSE, broker1=[redirect(1, inner(2))], welcome={"broker2": (CHALLENGE,)}, **FOLLOW
    ),
    "the next broker does not let the client in": binary(
        ASKED, broker1=[redirect(1, inner(2))], welcome={"broker2": (error(3, "no"),)}, **FOLLOW
    ),
    "the next broker cannot be reached": binary(ASKED, broker1=[redirect(1, inner(4))], **FOLLOW),
    "the next broker refuses": binary(
        ASKED, broker1=[redirect(1, inner(2))], broker2=[failed(1, 4, "not authorized")], **FOLLOW
    ),
    "a circle": binary(
        ASKED, broker1=[redirect(1, inner(2))], broker2=[redirect(1, inner(2))], **FOLLOW
    ),
    "too many redirects": binary(
        ASKED,
        broker1=[redirect(1, inner(2))],
        broker2=[redirect(1, inner(3))],
        redirects=redirects(lookup="follow", maxHops=1),
    ),
}  # fmt: skip


def _migrated(url: str) -> bytes:
    return command(TOPIC_MIGRATED, message(f1=7, f2=0, f3=url))


def _scalable(url: str) -> bytes:
    dag = message(f1=9, f2=[message(f1=1)], f3=[message(f1=1, f2=url)], f4=url)
    return command(SCALABLE_TOPIC_UPDATE, message(f1=3, f2=dag, f5="topic://public/default/orders"))


def _coordinators(url: str) -> bytes:
    return command(TC_ASSIGNMENTS, message(f1=3, f2=message(f1=2, f2=[message(f1=0, f2=url)])))


def told(*frames: bytes, keeps_back: bool = False, **config: Any) -> Case:
    """What a broker says unasked, before the answer to a PING."""
    heard = 1 if keeps_back else 1 + len(frames)
    return binary(ping(), *[Do.HEAR] * heard, broker1=[b"".join(frames) + pong()], **config)


HANDING_OVER = {
    "a producer": told(closed(CLOSE_PRODUCER, inner(2), inner(2, "pulsar+ssl"))),
    "a consumer": told(closed(CLOSE_CONSUMER, inner(2))),
    "to nobody": told(closed(CLOSE_PRODUCER)),
    "to a broker on the listener": told(closed(CLOSE_PRODUCER, None, outer(2))),
    "to a broker without an address outside": told(closed(CLOSE_PRODUCER, inner(3))),
    "to an unknown name": told(closed(CLOSE_PRODUCER, STRANGE)),
    "to an unknown name, blocked": told(closed(CLOSE_PRODUCER, STRANGE), leaks="block"),
    "to another broker, observed": told(closed(CLOSE_PRODUCER, inner(2)), leaks="observe"),
    "to another broker, in a shadow": told(closed(CLOSE_PRODUCER, inner(2)), shadow=True),
    "a topic that migrates": told(_migrated(inner(2))),
    "a topic that migrates to a peer cluster": told(_migrated("pulsar://broker.peer.example:6650")),
    "a topic that migrates to an unknown name, blocked": told(_migrated(PUBLIC), keeps_back=True, leaks="block"),
    "a scalable topic": told(_scalable(inner(2))),
    "transaction coordinators": told(_coordinators(inner(2))),
    "after a lookup on the partner's listener": binary(
        lookup(1, "partner"), Do.HEAR, Do.HEAR, broker1=[FOUND + closed(CLOSE_PRODUCER, inner(2))]
    ),
    "through the sidecar": told(closed(CLOSE_PRODUCER, inner(2)), ingresses=THROUGH),
    "to an unknown name, through the sidecar": told(closed(CLOSE_PRODUCER, PUBLIC), ingresses=THROUGH),
    "a migration, through the sidecar": told(_migrated(outer(2)), keeps_back=True, ingresses=THROUGH),
}

LEAKS = {
    f"{leaks}: {what}": binary(ASKED, broker1=[found(1, url)], leaks=leaks)
    for leaks in ("rewrite", "block", "observe")
    for what, url in {
        "an unknown name of the inside": STRANGE,
        "an unknown name that looks public": PUBLIC,
        "a known broker": inner(2),
        "a broker without an address outside": inner(3),
    }.items()
}

THROUGH_SIDECAR = {
    "a lookup": binary(ASKED, broker1=[FOUND], ingresses=THROUGH),
    "a broker without an address outside": binary(ASKED, broker1=[found(1, inner(3))], ingresses=THROUGH),
    "an unknown name": binary(ASKED, broker1=[found(1, PUBLIC)], ingresses=THROUGH),
    "a redirect": binary(ASKED, broker1=[redirect(1, inner(2))], broker2=[found(1, inner(2))], ingresses=THROUGH),
    "a redirect to an unknown name": binary(ASKED, broker1=[redirect(1, PUBLIC)], ingresses=THROUGH),
    "authentication that cannot be repeated": binary(
        ASKED,
        broker1=[redirect(1, inner(2))],
        opening=(connect(method="sasl"), Do.HEAR),
        ingresses=THROUGH,
    ),
    "the broker by its name outside": binary(
        producer(),
        broker2=[command(17, message(f1=2, f2="x"))],
        opening=(connect(to="broker-2.pulsar.example.com:6651"), Do.HEAR),
        ingresses=THROUGH,
    ),
    "the broker by its name inside": binary(
        ASKED, broker3=[found(1, inner(3))], opening=(connect(to=BROKER3), Do.HEAR), ingresses=THROUGH
    ),
    "any broker": binary(ASKED, broker1=[FOUND], opening=(connect(to=""), Do.HEAR), ingresses=THROUGH),
    "a broker that nobody knows": binary(
        connect(to="169.254.169.254:80"), Do.HEAR, Do.END, opening=(), times=3, ingresses=THROUGH
    ),
    "a broker that cannot be reached": binary(
        connect(to="broker-4.pulsar.example.com:6651"), Do.HEAR, Do.END, opening=(), times=3, ingresses=THROUGH
    ),
    "brokers that share an address": binary(
        ASKED,
        broker1=[found(1, inner(2))],
        ingresses=THROUGH,
        advertisedListeners=[
            {
                "broker": f"broker-{number}.pulsar.svc.cluster.local",
                "listeners": f"internal:pulsar://{address},external:pulsar://pulsar.example.com:6650",
            }
            for number, address in ((2, BROKER2), (3, BROKER3))
        ],
    ),
}

GROUPS: Mapping[str, Mapping[str, Case]] = {
    "binary_sessions": SESSIONS,
    "binary_lookups": LOOKUPS,
    "binary_redirects": REDIRECTS,
    "binary_leaks": LEAKS,
    "binary_handing_over": HANDING_OVER,
    "binary_through_sidecar": THROUGH_SIDECAR,
}
