"""The test plans of the proposals that the sidecar grew from, on real brokers: PIP-338 and PIP-95.

PIP-338 wanted brokers to do it; none does, and the sidecar does. PIP-95 is in brokers, and was to be tested by hand.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from brokers import HOST, HOST_PORT, HOST_TLS_PORT, PARTNER_HOST, Broker
from clients import ClientFailed, talking
from cluster import Cluster
from gateways import HERE, URL, sidecar, straight
from guarded_cluster import BOTH, EXTERNAL_PORT, NEW, OLD
from networks import GATEWAY, Answer
from ownership import give, lookup

TLS_URL = f"https://{HOST}:{HOST_TLS_PORT}"
PARTNER_URL = f"http://{PARTNER_HOST}:{HOST_PORT}"


@pytest.fixture
def cluster(guarded: Cluster) -> Cluster:
    return guarded


@pytest.fixture
def topic(cluster: Cluster, namespace: str) -> str:
    """One that no broker has yet."""
    return f"persistent://{namespace}/orders"


@pytest.fixture
def token(cluster: Cluster) -> str:
    return cluster.tokens.of("admin")


@pytest.fixture
def book(cluster: Cluster) -> list[dict[str, str]]:
    """The address book with all that these brokers have: three listeners, with and without TLS."""

    def urls(broker: Broker) -> Iterator[str]:
        yield f"internal:{broker.web}"
        if broker != OLD:
            yield f"internal:{broker.web_tls}"
        yield f"internal:{broker.service}"
        yield f"external:{broker.external_web}"
        yield f"external:{broker.external_web_tls}"
        yield f"external:{broker.external_service}"
        yield f"external:{broker.external_service_tls}"
        yield f"partner:http://{broker.partner_name}:{HOST_PORT}"
        yield f"partner:{broker.partner_service}"

    return [{"broker": broker.name, "listeners": ",".join(urls(broker))} for broker in cluster.brokers]


@contextmanager
def routed(cluster: Cluster, port: int, broker: Broker, to: int) -> Iterator[None]:
    """A port at the gateway leads to that port of a broker."""
    route = f"{GATEWAY}:{port}={broker.address}:{to}"
    with cluster.started(f"route-{port}-{to}", sys.executable, HERE / "tcp_routes.py", route) as child:
        child.says("forwarding")
        yield


def bystander(cluster: Cluster) -> Broker:
    """One that redirects to the leader as long as nobody has the topic."""
    leader = cluster.leader()
    return next(broker for broker in cluster.brokers if broker != leader)


def ask(cluster: Cluster, url: str, headers: Mapping[str, str] | None = None) -> Answer:
    """From outside, as the superuser."""
    tls = cluster.authority.trust() if url.startswith("https:") else None
    token = {"Authorization": f"Bearer {cluster.tokens.of('admin')}"}
    return cluster.networks.outside.request("GET", url, headers={**token, **(headers or {})}, tls=tls)


def looked_up(cluster: Cluster, url: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    answer = ask(cluster, url, headers)
    assert answer.status == 200, answer
    said: dict[str, Any] = json.loads(answer.body)
    return said


def test_pip_338_case_1_lookup_listener_applies_when_no_listener_is_named(
    cluster: Cluster, topic: str, book: object
) -> None:
    """In the address that is answered, and in where a redirect leads."""
    first, leader = bystander(cluster), cluster.leader()
    with sidecar(
        cluster,
        advertisedListeners=book,
        ingresses=[],
        lookupListenerName="external",
        brokers={"webServiceUrl": [first.web]},
        redirects={"lookup": "rewrite"},
    ):
        redirected = ask(cluster, URL + lookup(topic))
        give(cluster, topic, BOTH)
        said = looked_up(cluster, URL + lookup(topic))
    assert redirected.status == 307, redirected
    assert redirected.headers["Location"].startswith(leader.external_web + lookup(topic))
    assert said["brokerUrl"] == BOTH.external_service


def test_pip_338_case_2_a_listener_in_the_query_beats_the_lookup_listener(
    cluster: Cluster, topic: str, book: object
) -> None:
    give(cluster, topic, BOTH)
    with sidecar(cluster, advertisedListeners=book, ingresses=[], lookupListenerName="external"):
        said = looked_up(cluster, f"{URL}{lookup(topic)}?listenerName=partner")
    assert said["brokerUrl"] == BOTH.partner_service


def test_pip_338_case_3_http_and_https_addresses_are_those_of_the_listener(
    cluster: Cluster, topic: str, book: object
) -> None:
    """A broker gives its internal ones, whatever listener it is asked for: 4.x has no others, 5.x goes by the port."""
    give(cluster, topic, BOTH)
    named = f"{URL}{lookup(topic)}?listenerName=external"
    with straight(cluster, BOTH):
        without = looked_up(cluster, named)
    with sidecar(cluster, advertisedListeners=book, ingresses=[]):
        said = looked_up(cluster, named)
    assert (without["httpUrl"], without["httpUrlTls"]) == (BOTH.web, BOTH.web_tls)
    assert (said["httpUrl"], said["httpUrlTls"]) == (BOTH.external_web, BOTH.external_web_tls)
    assert (said["brokerUrl"], said["brokerUrlTls"]) == (BOTH.external_service, BOTH.external_service_tls)


def test_pip_338_case_4_without_preference_and_listener_answers_equal_the_brokers(
    cluster: Cluster, topic: str, book: object
) -> None:
    """The internal listener's addresses, byte for byte as without the sidecar."""
    first, asked = bystander(cluster), URL + lookup(topic)
    with straight(cluster, first):
        redirected = ask(cluster, asked)
    with sidecar(
        cluster,
        advertisedListeners=book,
        ingresses=[],
        preferHttpClientListenerOverInternalListener=False,
        brokers={"webServiceUrl": [first.web]},
    ):
        redirected_by_us = ask(cluster, asked)
        give(cluster, topic, BOTH)
        said_by_us = ask(cluster, asked)
    with straight(cluster, first):
        said = ask(cluster, asked)
    assert redirected.headers["Location"].startswith(cluster.leader().web)
    assert redirected_by_us.headers["Location"] == redirected.headers["Location"]
    assert json.loads(said.body)["brokerUrl"] == BOTH.service
    assert said_by_us.body == said.body


def test_pip_338_case_4_without_preference_http_addresses_stay_internal(
    cluster: Cluster, topic: str, book: object
) -> None:
    """As brokers have always answered, for those who have come to rely on it."""
    give(cluster, topic, BOTH)
    with sidecar(cluster, advertisedListeners=book, preferHttpClientListenerOverInternalListener=False):
        said = looked_up(cluster, URL + lookup(topic))
    assert (said["brokerUrl"], said["httpUrl"]) == (BOTH.external_service, BOTH.web)


def test_pip_95_migration_old_broker_port_answers_with_internal_addresses(
    cluster: Cluster, topic: str, token: str
) -> None:
    """bindAddress with brokerServicePort answers as ever, with bindAddresses beside it: by internal addresses."""
    give(cluster, topic, NEW)
    with routed(cluster, 6600, BOTH, 6650), talking(cluster, f"pulsar://{HOST}:6600", token) as client:
        with pytest.raises(ClientFailed):
            client.subscribe(topic)
        assert client.connected == {f"pulsar://{HOST}:6600", NEW.service}


def test_pip_95_migration_new_broker_port_answers_with_addresses_of_its_listener(
    cluster: Cluster, topic: str, token: str
) -> None:
    """So is that of a broker without brokerServicePort and brokerServicePortTls, which is where the topic is."""
    give(cluster, topic, NEW)
    for broker in (BOTH, NEW):
        with routed(cluster, 6600, broker, EXTERNAL_PORT), talking(cluster, f"pulsar://{HOST}:6600", token) as client:
            client.subscribe(topic)
            client.produce(topic, broker.name)
            client.consume_until(broker.name)
            assert client.connected == {f"pulsar://{HOST}:6600", NEW.external_service}


@pytest.mark.parametrize("broker", [OLD, BOTH, NEW], ids=["ports", "ports and bindAddresses", "bindAddresses"])
def test_pip_95_migration_sidecar_gives_the_external_address_at_every_stage(
    cluster: Cluster, topic: str, token: str, book: object, broker: Broker
) -> None:
    give(cluster, topic, broker)
    with sidecar(cluster, advertisedListeners=book), talking(cluster, token=token) as client:
        client.subscribe(topic)
        client.produce(topic, "one")
        assert client.consume(1) == ["one"]
        assert client.connected == {broker.external_service}


def test_pip_95_migration_bind_address_decides_the_listener_unless_one_is_named(
    cluster: Cluster, topic: str, book: object
) -> None:
    """The one of before has no listener, and answers as before; the new ones have theirs, and a name beats them."""
    give(cluster, topic, NEW)
    sockets = [f"http://{GATEWAY}:8080", f"external:http://{GATEWAY}:8081", f"partner:http://{GATEWAY}:8082"]
    with sidecar(cluster, advertisedListeners=book, ingresses=[], bindAddresses=sockets):
        said = [looked_up(cluster, f"http://{HOST}:{port}{lookup(topic)}")["brokerUrl"] for port in (8080, 8081, 8082)]
        by_query = looked_up(cluster, f"http://{HOST}:8081{lookup(topic)}?listenerName=partner")
        by_header = looked_up(cluster, f"http://{HOST}:8081{lookup(topic)}", {"X-Pulsar-ListenerName": "partner"})
    assert said == [NEW.service, NEW.external_service, NEW.partner_service]
    assert by_query["brokerUrl"] == by_header["brokerUrl"] == NEW.partner_service


def test_pip_95_migration_https_client_reaches_a_broker_without_tls_web_port(
    cluster: Cluster, topic: str, book: object
) -> None:
    """Asked by https, a broker cannot lead to one that has webServicePort alone; the sidecar asks by http, and can."""
    give(cluster, topic, OLD)
    stats = f"/admin/v2/{topic.replace('://', '/')}/stats"
    made = cluster.request("PUT", OLD.web + stats.removesuffix("/stats"))
    assert made.status == 204, made
    with routed(cluster, HOST_TLS_PORT, BOTH, 8443):
        without = ask(cluster, BOTH.external_web_tls + stats)
    with sidecar(cluster, advertisedListeners=book, redirects={"admin": "rewrite"}, **_tls_sockets(cluster)):
        redirected = ask(cluster, BOTH.external_web_tls + stats)
        said = ask(cluster, redirected.headers["Location"])
    assert without.status == 412, without
    assert redirected.status == 307, redirected
    assert urlsplit(redirected.headers["Location"]).netloc == urlsplit(OLD.external_web_tls).netloc
    assert said.status == 200, said


@pytest.mark.parametrize("brokers", ["http", "https"])
@pytest.mark.parametrize("clients", ["http", "https"])
def test_pip_95_client_gets_a_tls_address_only_when_it_comes_by_https(
    cluster: Cluster, topic: str, token: str, book: object, clients: str, brokers: str
) -> None:
    give(cluster, topic, NEW)
    webs = [broker.web_tls if brokers == "https" else broker.web for broker in (BOTH, NEW)]
    upstream = {"webServiceUrl": webs, "tls": {"ca": str(cluster.folder / "ca.crt")}}
    url = TLS_URL if clients == "https" else URL
    with (
        sidecar(cluster, advertisedListeners=book, brokers=upstream, **_tls_sockets(cluster)),
        talking(cluster, url, token, ca=cluster.folder / "ca.crt") as client,
    ):
        client.subscribe(topic)
        client.produce(topic, "one")
        assert client.consume(1) == ["one"]
        assert client.connected == {NEW.external_service_tls if clients == "https" else NEW.external_service}


def test_pip_95_clients_of_two_ingresses_share_a_topic_by_their_own_listeners(
    cluster: Cluster, topic: str, token: str, book: object
) -> None:
    """Two ingresses, two listeners, one topic: what comes in by one goes out by the other."""
    give(cluster, topic, NEW)
    ingresses = [
        {"name": "public", "hosts": [HOST, f"*.{HOST}"], "listener": "external"},
        {"name": "partners", "hosts": [PARTNER_HOST, f"*.{PARTNER_HOST}"], "listener": "partner"},
    ]
    with (
        sidecar(cluster, advertisedListeners=book, ingresses=ingresses),
        talking(cluster, URL, token) as stranger,
        talking(cluster, PARTNER_URL, token) as partner,
    ):
        partner.subscribe(topic)
        stranger.produce(topic, "hello")
        assert partner.consume(1) == ["hello"]
        assert (stranger.connected, partner.connected) == ({NEW.external_service}, {NEW.partner_service})


def test_pip_95_unknown_listener_is_400_through_the_sidecar(cluster: Cluster, topic: str, book: object) -> None:
    """It was to be 400, and brokers say 500."""
    give(cluster, topic, NEW)
    named = {"X-Pulsar-ListenerName": "nosuch"}
    with straight(cluster, BOTH):
        without = ask(cluster, URL + lookup(topic), named)
    with sidecar(cluster, advertisedListeners=book):
        refused = ask(cluster, URL + lookup(topic), named)
    with sidecar(cluster, advertisedListeners=book, unknownListener="forward"):
        forwarded = ask(cluster, URL + lookup(topic), named)
    assert without.status == 500
    assert (refused.status, forwarded.status) == (400, 400)
    assert json.loads(refused.body)["reason"].startswith("unknown-listener: no broker has a listener 'nosuch'")
    assert json.loads(forwarded.body)["reason"].startswith("broker-lacks-listener:")


def _tls_sockets(cluster: Cluster) -> dict[str, object]:
    """The sidecar's sockets with and without TLS."""
    cluster.authority.write(cluster.folder, "ingress", HOST, *(broker.external_name for broker in cluster.brokers))
    return {
        "bindAddresses": [f"http://{GATEWAY}:{HOST_PORT}", f"https://{GATEWAY}:{HOST_TLS_PORT}"],
        "tls": {"certificate": str(cluster.folder / "ingress.crt"), "key": str(cluster.folder / "ingress.key")},
    }
