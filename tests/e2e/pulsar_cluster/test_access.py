"""Brokers that ask who is there: tokens and permissions, TLS on their side, forwarded headers, other people's names."""

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from brokers import HOST, HOST_PORT, HOST_TLS_PORT, Broker, Options
from children import Child
from cluster import Cluster, running
from gateways import sidecar
from networks import GATEWAY, Answer
from ownership import give, lookup

SHOP, STRANGER, SIDECAR, ADMIN = "shop", "stranger", "sidecar", "admin"
PRINCIPAL = "X-Original-Principal"
PROVIDERS = ("Token", "Tls")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Its brokers know clients by token or certificate, and let the sidecar's role speak for others."""
    providers = [f"org.apache.pulsar.broker.authentication.AuthenticationProvider{name}" for name in PROVIDERS]
    options = Options(
        tls=True,
        authorization=True,
        proxy_roles=(SIDECAR,),
        trust_forwarded_for=True,
        conf={"authenticationProviders": ",".join(providers)},
    )
    with running(options) as started:
        started.authority.write(started.folder, "ingress", HOST, f"*.{HOST}")
        started.authority.write(started.folder, "sidecar", "sidecar.example", role=SIDECAR)
        yield started


@pytest.fixture
def topic(cluster: Cluster, namespace: str) -> str:
    """Which the shop may use, and nobody has."""
    url = f"{cluster.brokers[0].web}/admin/v2/namespaces/{namespace}/permissions/{SHOP}"
    granted = cluster.request("POST", url, ["produce", "consume"])
    assert granted.status == 204, granted
    return f"persistent://{namespace}/orders"


def bystander(cluster: Cluster) -> Broker:
    leader = cluster.leader()
    return next(broker for broker in cluster.brokers if broker != leader)


def tls_sidecar(cluster: Cluster, *, certificate: bool = False, **keys: object) -> AbstractContextManager[Child]:
    """It dials brokers by https only, and has an ingress of either kind."""

    def path(name: str) -> str:
        return str(Path(cluster.folder, name))

    own = {"certificate": path("sidecar.crt"), "key": path("sidecar.key")} if certificate else {}
    principal = keys.pop("trustOriginalPrincipal", False)
    book = [
        {
            "broker": broker.name,
            "listeners": f"internal:{broker.web_tls}, internal:{broker.service_tls}, external:{broker.external_web}, "
            f"external:{broker.external_web_tls}, external:{broker.external_service_tls}",
        }
        for broker in cluster.brokers
    ]
    return sidecar(
        cluster,
        bindAddresses=[f"http://{GATEWAY}:{HOST_PORT}", f"https://{GATEWAY}:{HOST_TLS_PORT}"],
        tls={"certificate": path("ingress.crt"), "key": path("ingress.key")},
        brokers={
            "webServiceUrl": [broker.web_tls for broker in cluster.brokers],
            "tls": {"ca": path("ca.crt"), **own},
            "trustOriginalPrincipal": principal,
        },
        advertisedListeners=book,
        **keys,
    )


def ask(
    cluster: Cluster, url: str, role: str | None = None, headers: Mapping[str, str] | None = None, method: str = "GET"
) -> Answer:
    """From outside, with a role's token."""
    token = {"Authorization": f"Bearer {cluster.tokens.of(role)}"} if role else {}
    tls = cluster.authority.trust() if url.startswith("https:") else None
    return cluster.networks.outside.request(method, url, None, {**token, **(headers or {})}, tls)


@pytest.mark.parametrize("mode", ["rewrite", "follow"])
def test_lookup_denied_by_the_broker_is_denied_through_the_sidecar(cluster: Cluster, topic: str, mode: str) -> None:
    """Whether a broker has the topic or not: 401, also for one who is known but may not (no 403)."""
    broker = bystander(cluster)
    with sidecar(cluster, redirects={"lookup": mode, "admin": mode}):
        for owned in (False, True):
            if owned and mode == "rewrite":  # else following has found an owner
                give(cluster, topic, broker)
            for role, allowed in ((None, False), (STRANGER, False), (SHOP, True), (ADMIN, True)):
                straight = cluster.request("GET", broker.web + lookup(topic), role=role)
                through = ask(cluster, broker.external_web + lookup(topic), role)
                assert straight.status in ((200, 307) if allowed else (401,)), (role, straight)
                final = 200 if owned or mode == "follow" else 307
                assert through.status == (final if allowed else 401), (role, through)
            forged = ask(cluster, broker.external_web + lookup(topic), headers={"Authorization": "Bearer forged"})
            assert forged.status == 401


def test_admin_call_denied_by_the_broker_is_denied_through_the_sidecar(cluster: Cluster, topic: str) -> None:
    broker = bystander(cluster)
    give(cluster, topic, broker)
    path = f"/admin/v2/namespaces/{topic.partition('://')[2].rpartition('/')[0]}/permissions"
    with sidecar(cluster):
        for role, status in ((None, 401), (STRANGER, 403), (SHOP, 403), (ADMIN, 200)):
            straight = cluster.request("GET", broker.web + path, role=role)
            through = ask(cluster, broker.external_web + path, role)
            assert (straight.status, through.status) == (status, status), (role, straight, through)


@pytest.mark.parametrize("mode", ["rewrite", "follow"])
def test_external_addresses_are_answered_when_brokers_are_dialled_by_tls(
    cluster: Cluster, topic: str, mode: str
) -> None:
    """And by which way the client came decides about what it gets, not how brokers are dialled."""
    broker, leader = bystander(cluster), cluster.leader()
    ingresses = {
        "http": (broker.external_web, leader.external_web),
        "https": (broker.external_web_tls, leader.external_web_tls),
    }
    with tls_sidecar(cluster, redirects={"lookup": mode, "admin": mode}):
        for scheme, (own, leaders) in ingresses.items():
            answer = ask(cluster, own + lookup(topic), SHOP)
            if mode == "rewrite":
                location = f"{leaders}{lookup(topic)}?authoritative=false&listenerName=external"
                assert (answer.status, answer.headers["Location"]) == (307, location)
                continue
            body = json.loads(answer.body)
            assert answer.status == 200, answer
            outside = {broker.external_web for broker in cluster.brokers}
            assert body["httpUrl"] in outside, (scheme, body)
            assert urlsplit(body["brokerUrlTls"]).hostname.endswith(HOST)


def test_broker_with_an_untrusted_certificate_is_refused_with_502(cluster: Cluster, topic: str) -> None:
    stranger = cluster.folder / f"stranger-{secrets.token_hex(2)}"
    stranger.mkdir()
    type(cluster.authority)().write(stranger, "stranger", "stranger.example")
    brokers = {"webServiceUrl": [bystander(cluster).web_tls], "tls": {"ca": str(stranger / "ca.crt")}}
    with sidecar(cluster, brokers=brokers):
        answer = ask(cluster, f"http://{HOST}:{HOST_PORT}{lookup(topic)}", SHOP)
    assert answer.status == 502, answer
    assert json.loads(answer.body)["reason"].startswith("broker-unreachable: ")


@pytest.mark.parametrize(
    "header", [{"X-Forwarded-Proto": "https"}, {"Forwarded": "proto=https"}, {"X-Forwarded-Host": "forged.example"}]
)
def test_forwarded_headers_of_clients_do_not_change_redirects(
    cluster: Cluster, topic: str, header: Mapping[str, str]
) -> None:
    """A broker that trusts them redirects to its TLS port where they say https; the sidecar keeps them from it."""
    broker, leader = bystander(cluster), cluster.leader()
    token = {"Authorization": f"Bearer {cluster.tokens.of(SHOP)}"}
    straight = cluster.networks.inside.request("GET", broker.web + lookup(topic), None, {**token, **header})
    base = leader.web_tls if "https" in "".join(header.values()) else leader.web
    assert straight.headers["Location"] == f"{base}{lookup(topic)}?authoritative=false"
    with sidecar(cluster, redirects={"lookup": "rewrite"}):
        through = ask(cluster, broker.external_web + lookup(topic), SHOP, header)
    location = f"{leader.external_web}{lookup(topic)}?authoritative=false&listenerName=external"
    assert through.headers["Location"] == location


def test_original_principal_header_of_clients_grants_nothing_by_default(cluster: Cluster, topic: str) -> None:
    """The sidecar's own certificate is that of a role which may speak for others, and clients send their names."""
    broker = bystander(cluster)
    give(cluster, topic, broker)
    url = broker.external_web_tls + lookup(topic)
    with tls_sidecar(cluster, certificate=True):
        plain = ask(cluster, url)
        for name in (ADMIN, SHOP, SIDECAR):
            named = ask(cluster, url, headers={PRINCIPAL: name})
            assert (named.status, named.body) == (plain.status, plain.body) == (401, plain.body), name
            assert ask(cluster, url, STRANGER, {PRINCIPAL: name}).status == 401
        assert ask(cluster, url, SHOP).status == 200
        assert ask(cluster, url, SHOP, {PRINCIPAL: STRANGER}).status == 200


def test_trusted_original_principal_and_sidecar_role_both_need_the_permission(cluster: Cluster, topic: str) -> None:
    """`trustOriginalPrincipal: true` is for a sidecar whose clients are gateways that have asked who is there."""
    broker = bystander(cluster)
    give(cluster, topic, broker)
    url = broker.external_web_tls + lookup(topic)
    with tls_sidecar(cluster, certificate=True, trustOriginalPrincipal=True):
        assert ask(cluster, url, headers={PRINCIPAL: STRANGER}).status == 401
        # The role that speaks needs the permission too.
        assert ask(cluster, url, headers={PRINCIPAL: SHOP}).status == 401
        granting = f"{cluster.brokers[0].web}/admin/v2/namespaces/{topic.partition('://')[2].rpartition('/')[0]}"
        granted = cluster.request("POST", f"{granting}/permissions/{SIDECAR}", ["produce", "consume"])
        assert granted.status == 204, granted
        assert ask(cluster, url, headers={PRINCIPAL: SHOP}).status == 200
        assert ask(cluster, url, headers={PRINCIPAL: STRANGER}).status == 401
