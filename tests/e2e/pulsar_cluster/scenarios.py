"""What clients, operators and attackers do at an ingress, whichever product serves it.

A scenario passes, or raises AssertionError with what happened instead, in one line.
"""

import json
import re
import secrets
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from urllib.parse import urljoin, urlsplit

from brokers import HOST, PARTNER_HOST, Broker
from clients import Client, ClientFailed, talking
from cluster import Cluster
from networks import GATEWAY, Answer
from ownership import give, lookup, move, owner
from rivals import BINARY_PORT, PARTNER, PUBLIC, Product

INSIDE = ".svc.cluster.local"
REDIRECTS = frozenset({301, 302, 303, 307, 308})
# One more than the brokers behind an ingress, which uses them in turn: each is asked, and few are the owner.
TURNS = 4

# What a client's log says, and what it means.
LOGGED = {
    r"Could not resolve host: (\S+)": "redirected to the internal name {0}",
    rf"(pulsar://[^\s\]]+{re.escape(INSIDE)}:\d+)\] Connection closed": "sent to the internal address {0}",
    r"[Rr]esponse[ _][Cc]ode[^0-9]*(\d{3})": "answered {0}",
    r"Connection refused": "the port is closed",
}


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    run: Callable[[Cluster, Product], None]
    authorization: bool = False  # in a cluster that wants tokens

    def __str__(self) -> str:
        return re.sub(r"\W+", "-", self.name)


def client_where_nobody_has_the_topic(cluster: Cluster, product: Product) -> None:
    for _ in range(TURNS):
        topic = new_topic(cluster)
        expect_address(looked_up(cluster, PUBLIC + lookup(topic)), owner(cluster, topic).external_service)
    talk(cluster, PUBLIC, new_topic(cluster))


def client_where_a_broker_has_the_topic(cluster: Cluster, product: Product) -> None:
    topic = new_topic(cluster)
    give(cluster, topic, cluster.brokers[1])
    for _ in range(TURNS):
        expect_address(looked_up(cluster, PUBLIC + lookup(topic)), cluster.brokers[1].external_service)
    talk(cluster, PUBLIC, topic)


def partitioned_topic(cluster: Cluster, product: Product) -> None:
    topic = new_topic(cluster, bundles=8)
    made = cluster.request("PUT", f"{cluster.brokers[0].web}{admin(topic)}/partitions", 8)
    assert made.status == 204, made
    talk(cluster, product.url(HOST), topic, "one", "two", "three", "four", "five", "six", "seven", "eight")


def topic_that_moves(cluster: Cluster, product: Product) -> None:
    topic = new_topic(cluster)
    give(cluster, topic, cluster.brokers[0])
    with client(cluster, product.url(HOST)) as visitor:
        visitor.subscribe(topic)
        visitor.produce(topic, "before")
        move(cluster, namespace_of(topic), cluster.brokers[2])
        visitor.produce(topic, "after")
        visitor.consume_until("after")
    assert owner(cluster, topic) == cluster.brokers[2]


def broker_added_later(cluster: Cluster, product: Product) -> None:
    """The last broker is in no configuration."""
    topic = new_topic(cluster)
    give(cluster, topic, cluster.brokers[-1])
    talk(cluster, product.url(HOST), topic)
    for _ in range(TURNS):
        answer = ask(cluster, "GET", f"{PUBLIC}{admin(topic)}/stats")
        assert answer.status == 200, said(answer)


def clients_at_two_ingresses(cluster: Cluster, product: Product) -> None:
    topic = new_topic(cluster)
    for host in (HOST, PARTNER_HOST):
        talk(cluster, product.url(host), topic)


def two_ingresses(cluster: Cluster, product: Product) -> None:
    topic = new_topic(cluster)
    broker = owner(cluster, topic)
    expect_address(looked_up(cluster, PUBLIC + lookup(topic)), broker.external_service)
    expect_address(looked_up(cluster, PARTNER + lookup(topic)), broker.partner_service)


def two_ingresses_at_once(cluster: Cluster, product: Product) -> None:
    """Brokers before 4.0.13 and 4.2.4 give one of two the other's answer (apache/pulsar#26244)."""
    with ThreadPoolExecutor(12) as visitors:
        for _ in range(8):
            topic = new_topic(cluster)
            ingresses = [PUBLIC, PARTNER] * 6
            bodies = list(visitors.map(lambda url, topic=topic: looked_up(cluster, url + lookup(topic)), ingresses))
            broker = owner(cluster, topic)
            addresses = {PUBLIC: broker.external_service, PARTNER: broker.partner_service}
            for url, body in zip(ingresses, bodies, strict=True):
                found = body["brokerUrl"]
                assert found == addresses[url] or found not in addresses.values(), "one ingress got the other's address"
                expect_address(body, addresses[url])


def listener_named_by_a_client(cluster: Cluster, product: Product) -> None:
    """Clients of the public ingress may name the partners' listener."""
    topic = new_topic(cluster)
    for query, headers in (("?listenerName=partner", {}), ("", {"X-Pulsar-ListenerName": "partner"})):
        found = looked_up(cluster, PUBLIC + lookup(topic) + query, headers)
        expect_address(found, owner(cluster, topic).partner_service)


def listener_that_nobody_has(cluster: Cluster, product: Product) -> None:
    answer = ask(cluster, "GET", f"{PUBLIC}{lookup(new_topic(cluster))}?listenerName=nosuch")
    assert 400 <= answer.status < 500, said(answer)
    assert b"listener" in answer.body, f"{said(answer)}, which does not say why"


def private_listener(cluster: Cluster, product: Product) -> None:
    """However it is asked for."""
    topic = new_topic(cluster)
    broker = owner(cluster, topic)
    hidden = lookup(topic).replace("/lookup", "/%6Cookup", 1)
    for path, headers in (
        (f"{lookup(topic)}?listenerName=internal", {}),
        (lookup(topic), {"X-Pulsar-ListenerName": "internal"}),
        (f"{lookup(topic)}?listenerName=&listenerName=internal", {}),
        (f"{lookup(topic)}?listener%4Eame=internal", {}),
        (f"{hidden}?listenerName=internal", {}),
    ):
        answer = ask(cluster, "GET", PUBLIC + path, headers)
        inside = answer.status == 200 and json.loads(answer.body)["brokerUrl"] == broker.service
        asked = "the header" if headers else path.replace(lookup(topic), "").replace(hidden, "/%6Cookup/… and ")
        assert not inside, f"{asked} got {broker.service}"


def partners_listener_by_a_stranger(cluster: Cluster, product: Product) -> None:
    """Clients of the partners' ingress may not name the public listener."""
    topic = new_topic(cluster)
    owner(cluster, topic)
    answer = ask(cluster, "GET", f"{PARTNER}{lookup(topic)}?listenerName=external")
    assert answer.status != 200, f"answered {json.loads(answer.body)['brokerUrl']}"
    assert 400 <= answer.status < 500, said(answer)


def no_inside_name(cluster: Cluster, product: Product) -> None:
    for _ in range(TURNS):
        topic = new_topic(cluster)
        seen: list[str] = []
        ask(cluster, "GET", PUBLIC + lookup(topic), seen=seen)
        ask(cluster, "GET", f"{PUBLIC}{admin(topic)}/stats", seen=seen)
        for text in seen:
            leaked = re.search(rf"[\w:/.-]*{re.escape(INSIDE)}", text)
            assert leaked is None, f"{leaked[0] if leaked else ''}… in an answer"


def stats_of_another_brokers_topic(cluster: Cluster, product: Product) -> None:
    topic = existing_topic(cluster, cluster.brokers[1])
    for _ in range(TURNS):
        answer = ask(cluster, "GET", f"{PUBLIC}{admin(topic)}/stats")
        assert answer.status == 200, said(answer)
        assert "msgInCounter" in json.loads(answer.body)


def admin_call_with_a_body(cluster: Cluster, product: Product) -> None:
    topic = existing_topic(cluster, cluster.brokers[1])
    latest = {"ledgerId": 2**63 - 1, "entryId": 2**63 - 1, "partitionIndex": -1}
    names = [f"s{number}" for number in range(TURNS)]
    for name in names:
        answer = ask(cluster, "PUT", f"{PUBLIC}{admin(topic)}/subscription/{name}", body=latest)
        assert answer.status == 204, said(answer)
    made = cluster.request("GET", f"{cluster.brokers[1].web}{admin(topic)}/subscriptions")
    assert sorted(json.loads(made.body)) == names


def message_by_http(cluster: Cluster, product: Product) -> None:
    topic = existing_topic(cluster, cluster.brokers[1])
    schema = json.dumps({"name": "", "schema": "", "type": "STRING", "properties": {}})
    for _ in range(TURNS):
        message = {"messages": [{"payload": secrets.token_hex(100_000)}], "schemaVersion": -1, "valueSchema": schema}
        answer = ask(cluster, "POST", f"{PUBLIC}/topics/{topic.replace('://', '/')}", body=message)
        assert answer.status == 200, said(answer)
        (result,) = json.loads(answer.body)["messagePublishResults"]
        assert "messageId" in result, f"not published: {result}"


def client_by_pulsar_url(cluster: Cluster, product: Product) -> None:
    """All of its bytes through one address."""
    try:
        cluster.networks.outside.connect(HOST, BINARY_PORT).close()
    except ConnectionRefusedError:
        raise AssertionError("nothing listens on the port") from None
    for _ in range(TURNS):
        topic = new_topic(cluster)
        with client(cluster, f"pulsar://{HOST}:{BINARY_PORT}") as visitor:
            visitor.subscribe(topic)
            visitor.produce(topic, "one")
            visitor.consume_until("one")
            ports = {*re.findall(rf"-> {re.escape(GATEWAY)}:(\d+)\]", visitor.log)}
        assert ports == {str(BINARY_PORT)}, f"it went to ports {', '.join(sorted(ports))}"


def counts(cluster: Cluster, product: Product) -> None:
    assert product.counts is not None, "does not count lookups by listener"
    topic = new_topic(cluster)
    owner(cluster, topic)
    before = product.counts(cluster)
    for url, host in ((PUBLIC, None), (PUBLIC, None), (PARTNER, None), (PUBLIC, "nobody.example.org")):
        answer = ask(cluster, "GET", url + lookup(topic), {} if host is None else {"Host": host})
        assert answer.status == 200, said(answer)
    after = product.counts(cluster)
    grown = {listener: after.get(listener, 0) - before.get(listener, 0) for listener in ("external", "partner", "")}
    assert grown == {"external": 2, "partner": 1, "": 1}, f"it counted {grown}"


def client_with_a_token(cluster: Cluster, product: Product) -> None:
    for _ in range(TURNS):
        talk(cluster, product.url(HOST), new_topic(cluster), token=cluster.tokens.of("admin"))


def admin_call_with_a_token(cluster: Cluster, product: Product) -> None:
    """By a client that keeps its token to the host it was meant for, as curl does."""
    topic = existing_topic(cluster, cluster.brokers[1])
    for _ in range(TURNS):
        answer = ask(cluster, "GET", f"{PUBLIC}{admin(topic)}/stats", token=cluster.tokens.of("admin"))
        assert answer.status == 200, said(answer)


SCENARIOS = (
    Scenario("a client with an http:// URL; no broker owns the topic yet", client_where_nobody_has_the_topic),
    Scenario("a client with an http:// URL; a broker owns the topic", client_where_a_broker_has_the_topic),
    Scenario("a client with a pulsar:// URL, all traffic through one address", client_by_pulsar_url),
    Scenario("a client of a partitioned topic", partitioned_topic),
    Scenario("a client whose topic moves to another broker", topic_that_moves),
    Scenario("a client with a token", client_with_a_token, authorization=True),
    Scenario("a broker that was added after the configuration was written", broker_added_later),
    Scenario("clients at two ingresses", clients_at_two_ingresses),
    Scenario("each ingress answers with its own listener", two_ingresses),
    Scenario("each ingress answers with its own listener, with lookups at the same time", two_ingresses_at_once),
    Scenario("a client names a listener that its ingress allows", listener_named_by_a_client),
    Scenario("an unknown listener is refused with a clear error", listener_that_nobody_has),
    Scenario("a listener that the ingress does not allow is refused", partners_listener_by_a_stranger),
    Scenario("the internal listener cannot be reached, however it is named", private_listener),
    Scenario("no answer contains an internal name", no_inside_name),
    Scenario("statistics of a topic that another broker owns", stats_of_another_brokers_topic),
    Scenario("an admin call with a body, for another broker", admin_call_with_a_body),
    Scenario(
        "an admin call with a token, which the client does not send to other hosts",
        admin_call_with_a_token,
        authorization=True,
    ),
    Scenario("a message produced over HTTP, for another broker", message_by_http),
    Scenario("lookups are counted by listener, and so are lookups without one", counts),
)


def new_topic(cluster: Cluster, bundles: int = 1) -> str:
    """In a new namespace, whose bundles nobody has yet."""
    name = f"public/test-{secrets.token_hex(4)}"
    url = f"{cluster.brokers[0].web}/admin/v2/namespaces/{name}"
    made = cluster.request("PUT", url, {"bundles": {"numBundles": bundles}})
    assert made.status == 204, made
    return f"persistent://{name}/orders"


def existing_topic(cluster: Cluster, broker: Broker) -> str:
    topic = new_topic(cluster)
    give(cluster, topic, broker)
    made = cluster.request("PUT", broker.web + admin(topic))
    assert made.status == 204, made
    return topic


def namespace_of(topic: str) -> str:
    return topic.removeprefix("persistent://").rpartition("/")[0]


def admin(topic: str) -> str:
    return f"/admin/v2/{topic.replace('://', '/')}"


def ask(
    cluster: Cluster,
    method: str,
    url: str,
    headers: dict[str, str] | None = None,
    body: object = None,
    token: str | None = None,
    seen: list[str] | None = None,
) -> Answer:
    """From outside, redirects followed; `seen` gets all that is in the answers."""
    meant_for = urlsplit(url).netloc
    for _ in range(10):
        sent = dict(headers or {}) | ({} if body is None else {"Content-Type": "application/json"})
        if token is not None and urlsplit(url).netloc == meant_for:
            sent["Authorization"] = f"Bearer {token}"
        content = None if body is None else json.dumps(body).encode()
        try:
            answer = cluster.networks.outside.request(method, url, content, sent)
        except socket.gaierror:
            raise AssertionError(f"redirected to the internal name {urlsplit(url).hostname}") from None
        except (OSError, HTTPException) as broken:
            raise AssertionError(f"no answer: {type(broken).__name__}") from broken
        if seen is not None:
            seen += [*answer.headers.values(), answer.body.decode()]
        if answer.status not in REDIRECTS:
            return answer
        url = urljoin(url, answer.headers["Location"])
    raise AssertionError("redirected ten times")


def looked_up(cluster: Cluster, url: str, headers: dict[str, str] | None = None) -> dict[str, str]:
    answer = ask(cluster, "GET", url, headers)
    assert answer.status == 200, said(answer)
    found: dict[str, str] = json.loads(answer.body)
    return found


def expect_address(found: dict[str, str], address: str) -> None:
    assert found["brokerUrl"] == address, f"answered {found['brokerUrl']} instead of {address}"


def said(answer: Answer) -> str:
    """An answer in one line."""
    try:
        reason = json.loads(answer.body)["reason"]
    except (ValueError, KeyError, TypeError):
        reason = answer.body.decode(errors="replace")
    lines = [line for line in str(reason).splitlines() if line.strip() and not line.startswith(" ---")]
    return f"{answer.status}: {re.sub('<[^>]*>', ' ', lines[0]).strip()[:80]}" if lines else str(answer.status)


def talk(cluster: Cluster, url: str, topic: str, *messages: str, token: str = "") -> None:
    """A real client there produces and consumes; it knows nothing of listeners."""
    with client(cluster, url, token) as visitor:
        visitor.subscribe(topic)
        for message in messages or ("one", "two", "three"):
            visitor.produce(topic, message)
            visitor.consume_until(message)


@contextmanager
def client(cluster: Cluster, url: str, token: str = "") -> Iterator[Client]:
    with talking(cluster, url, token) as visitor:
        try:
            yield visitor
        except ClientFailed as failed:
            raise AssertionError(f"{failed.failure}: {went_wrong(visitor.log)}") from None


def went_wrong(log: str) -> str:
    """The first thing in a client's log that did."""
    for line in log.splitlines():
        for pattern, meaning in LOGGED.items():
            if found := re.search(pattern, line):
                return meaning.format(*found.groups())
    return "its log does not say why"
