"""Config, then annotation, then what was derived, then the brokers' word; and a snapshot of all of them."""

import pytest
from scenes import DOMAIN, brokers, config, scene

from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.discovered import NOTHING, Conflict, Discovered, DiscoveredBroker, Source
from pulsar_ingress_proxy.routing.ingresses import Ingress
from pulsar_ingress_proxy.routing.paths import classify
from pulsar_ingress_proxy.routing.precedence import Claim, merge, resolve_claims
from pulsar_ingress_proxy.routing.redirects import decide_redirect
from pulsar_ingress_proxy.routing.requests import Request
from pulsar_ingress_proxy.routing.selection import select
from pulsar_ingress_proxy.routing.snapshot import Snapshot, build
from pulsar_ingress_proxy.syntax.authorities import Authority
from pulsar_ingress_proxy.syntax.listeners import ADVERTISED_PORTS, parse_service_url


def claim(url: str, source: Source = "derived", by: str = "x", listener: str = "external", weak: bool = False) -> Claim:
    return Claim(listener, parse_service_url(url, ports=ADVERTISED_PORTS), source, by, weak)


def found(*claims: Claim, names: tuple[str, ...] = ("b0", "10.0.0.1")) -> DiscoveredBroker:
    return resolve_claims(names, claims)[0]


@pytest.mark.parametrize(
    ("claims", "urls", "conflicts"),
    [
        pytest.param([claim("https://a")], {"https": "https://a"}, 0, id="one"),
        pytest.param(
            [claim("https://a", by="x"), claim("https://a", by="y")], {"https": "https://a"}, 0, id="agreeing"
        ),
        pytest.param([claim("https://a"), claim("https://b")], {}, 1, id="two of equal trust"),
        pytest.param(
            [claim("https://a"), claim("https://b"), claim("http://c")], {"http": "http://c"}, 1, id="in part"
        ),
        pytest.param(
            [claim("https://a", "derived"), claim("https://b", "annotation")],
            {"https": "https://b"},
            1,
            id="annotation",
        ),
        pytest.param(
            [claim("https://a", "annotation"), claim("https://b", "config"), claim("https://c", "admin")],
            {"https": "https://b"},
            2,
            id="config",
        ),
        pytest.param([claim("https://a", "admin"), claim("https://b")], {"https": "https://b"}, 1, id="admin is last"),
        pytest.param(
            [claim("https://a", "config"), claim("http://b")], {"https": "https://a"}, 0, id="web is said by one source"
        ),
        pytest.param(
            [claim("https://a", "config"), claim("pulsar://b:6650")],
            {"https": "https://a", "pulsar": "pulsar://b:6650"},
            0,
            id="binary by another",
        ),
        pytest.param(
            [claim("kafka://c:9092", "admin"), claim("pulsar://b:6650")],
            {"pulsar": "pulsar://b:6650", "kafka": "kafka://c:9092"},
            0,
            id="Kafka by another",
        ),
        pytest.param(
            [claim("https://a", "annotation", weak=True), claim("https://b")],
            {"https": "https://b"},
            0,
            id="the pool's own",
        ),
        pytest.param(
            [claim("https://a", "config"), claim("https://b"), claim("https://c")],
            {"https": "https://a"},
            2,
            id="those that disagree below do not matter",
        ),
    ],
)
def test_most_trusted_address_wins_and_equally_trusted_ones_conflict(
    claims: list[Claim], urls: dict[str, str], conflicts: int
) -> None:
    broker, reported = resolve_claims(("b0",), claims)
    assert {scheme: str(url) for scheme, url in broker.listeners.get("external", {}).items()} == urls
    assert len(reported) == conflicts
    again, _ = resolve_claims(("b0",), reversed(claims))
    assert again == broker


def test_conflict_names_both_addresses_and_their_sources() -> None:
    _, (reported,) = resolve_claims(
        ("b0",), [claim("https://a", "config", "line 1"), claim("https://b", by="ingress/p/i")]
    )
    said = "is at https://a (config, line 1) on listener 'external', not at https://b (derived, ingress/p/i)"
    assert reported == Conflict("b0", said)


def test_addresses_that_differ_only_in_the_name_of_the_broker_do_not_conflict() -> None:
    claims = [claim("http://b0:8080", "config"), claim("http://10.0.0.1:8080"), claim("http://10.0.0.1:8081", "admin")]
    broker, (reported,) = resolve_claims(("b0", "10.0.0.1"), claims)
    assert str(broker.listeners["external"]["http"]) == "http://b0:8080"
    assert reported.text.endswith("not at http://10.0.0.1:8081 (admin, x)")


def test_merge_joins_brokers_of_several_sources_by_any_shared_name() -> None:
    ingress = Ingress("ingress/p/i", ("a.example",), "external")
    cluster = Discovered((ingress,), (found(claim("https://a")), found(claim("https://z"), names=("b1",))))
    admin = Discovered(
        brokers=(
            found(claim("pulsar://a:6650", "admin", "brokers"), names=("10.0.0.1",)),
            found(claim("pulsar://c:6650", "admin", "brokers"), names=("b2",)),
        ),
        listeners=frozenset(["external", "partner"]),
        conflicts=(Conflict("b", "x"),),
    )
    merged = merge(cluster, admin)
    assert [broker.names for broker in merged.brokers] == [("b0", "10.0.0.1"), ("b1",), ("b2",)]
    assert set(merged.brokers[0].listeners["external"]) == {"https", "pulsar"}
    assert merged.brokers[0].sources["external", "pulsar"] == ("admin", "brokers")
    assert merged.ingresses == (ingress,)
    assert merged.listeners == {"external", "partner"}
    assert merged.conflicts == (Conflict("b", "x"),)
    assert merge(cluster, NOTHING) == cluster


# Snapshots.


def snapshot(changes: str = "", *texts: str) -> Snapshot:
    return build(config(changes), 1, scene(brokers(), *texts, changes=changes).discovered())


INGRESS = """
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: broker-0, namespace: pulsar, annotations: {pulsar-ingress-proxy/listener: external}}
spec:
  ingressClassName: nginx
  tls: [{hosts: [b0.example.com]}]
  rules:
    - host: b0.example.com
      http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: broker-0, port: {name: http}}}}]}
"""


@pytest.mark.parametrize(
    "name",
    [
        f"pulsar-broker-0.{DOMAIN}",
        "pulsar-broker-0.pulsar-broker.pulsar.svc",
        "pulsar-broker-0.pulsar-broker.pulsar",
        "pulsar-broker-0.pulsar-broker",
        "pulsar-broker-0",
        "10.0.0.10",
    ],
)
def test_redirect_to_any_name_of_a_discovered_broker_is_rewritten_without_config(name: str) -> None:
    picture = snapshot("", INGRESS)
    request = Request(
        classify("GET", "/lookup/v2/topic/persistent/t/n/x"), Authority("b0.example.com", None), None, "https", None
    )
    selection = select(request, picture)
    assert selection.listener == "external"
    location = f"http://{name}:8080/lookup/v2/topic/x"
    redirect = decide_redirect(location, request, selection, DecisionCache(picture))
    assert (redirect.action, redirect.location) == (
        "rewritten",
        "https://b0.example.com/lookup/v2/topic/x?listenerName=external",
    )


def test_snapshot_records_the_source_of_every_address() -> None:
    (entry, _) = snapshot("", INGRESS).book.entries
    assert entry.sources["external", "https"] == ("derived", "ingress/pulsar/broker-0")
    assert entry.sources["internal", "http"] == ("derived", "pod/pulsar/pulsar-broker-0")
    assert entry.source == "derived"


TEMPLATE = f"""
advertisedListeners:
  - broker: pulsar-broker-{{n}}.{DOMAIN}
    listeners: external:https://written-{{n}}.example.com, partner:https://partner-{{n}}.example.com
"""


def test_config_template_beats_discovered_addresses_and_is_completed_by_them() -> None:
    picture = snapshot(TEMPLATE, INGRESS)
    broker = picture.book.resolve(Authority("10.0.0.10", 8080), 80)
    assert broker is not None
    assert {name: str(broker.web_url(name, "https")) for name in broker.listeners} == {
        "external": "https://written-0.example.com",
        "partner": "https://partner-0.example.com",
        "internal": f"http://pulsar-broker-0.{DOMAIN}:8080",
    }
    (reported,) = picture.conflicts
    assert reported.subject == f"pulsar-broker-0.{DOMAIN}"
    assert "https://written-0.example.com (config, advertisedListeners.0)" in reported.text
    assert [entry.source for entry in picture.book.entries] == ["config", "config", "config"]


def test_config_template_resolves_brokers_that_were_not_discovered() -> None:
    picture = snapshot(TEMPLATE)
    broker = picture.book.resolve(Authority(f"pulsar-broker-7.{DOMAIN}", None), 80)
    assert broker is not None
    assert str(broker.web_url("external", "https")) == "https://written-7.example.com"


@pytest.mark.parametrize(
    "name", [f"pulsar-broker-0.{DOMAIN}", f"pulsar-broker-0.{DOMAIN}:8080", "10.0.0.10", "pulsar-broker-0"]
)
def test_config_line_merges_with_the_discovered_broker_by_any_of_its_names(name: str) -> None:
    picture = snapshot(
        f"advertisedListeners: [{{broker: '{name}', listeners: 'external:https://written.example'}}]", INGRESS
    )
    assert len(picture.book.entries) == 2
    for authority in (
        Authority("10.0.0.10", 8080),
        Authority(f"pulsar-broker-0.{DOMAIN}", 8080),
        Authority("written.example", 443),
    ):
        broker = picture.book.resolve(authority, 80)
        assert broker is not None
        assert (broker.name, str(broker.web_url("external", "https"))) == (name, "https://written.example")


def test_discovered_broker_matched_by_two_config_lines_is_left_out() -> None:
    lines = "{broker: '10.0.0.10:8080', listeners: 'a:http://x.example'}, {broker: '10.0.0.10:8081', listeners: 'a:http://y.example'}"
    picture = snapshot(f"advertisedListeners: [{lines}]", INGRESS)
    broker = picture.book.resolve(Authority("10.0.0.10", 8081), 80)
    assert broker is not None
    assert broker.name == "10.0.0.10:8081"
    assert ["its discovered addresses are unused" in conflict.text for conflict in picture.conflicts] == [True]


@pytest.mark.parametrize(
    ("changes", "discovered", "known"),
    [
        pytest.param("", Discovered(), set(), id="nothing is known"),
        pytest.param("", scene(brokers()).discovered(), set(), id="that pods can be dialled says nothing of listeners"),
        pytest.param("", scene(brokers(), INGRESS).discovered(), {"external", "internal"}, id="addresses"),
        pytest.param("", Discovered(listeners=frozenset(["a"])), {"a"}, id="what brokers say"),
        pytest.param(
            TEMPLATE, Discovered(listeners=frozenset(["a"])), {"external", "partner", "a"}, id="and the config"
        ),
    ],
)
def test_known_listeners_come_from_routed_addresses_brokers_and_config(
    changes: str, discovered: Discovered, known: set[str]
) -> None:
    assert build(config(changes), 1, discovered).known_listeners == known


def test_ingress_for_every_host_is_selected_only_when_no_other_matches() -> None:
    every, one = Ingress("every", ("*",), "external"), Ingress("one", ("a.example",), "partner")
    picture = build(config(), 1, Discovered((every, one)))

    def selected(host: str, forwarded: str | None = None, bind: str | None = None) -> str | None:
        forwarded_host = Authority(forwarded, None) if forwarded else None
        target = classify("GET", "/lookup/v2/topic/persistent/t/n/x")
        ingress = select(Request(target, Authority(host, None), forwarded_host, "http", bind), picture).ingress
        return ingress.name if ingress is not None else None

    assert selected("b.example") == "every"
    assert selected("a.example") == "one"
    assert selected("gateway.internal", "a.example") == "one"
    assert selected("b.example", bind="partner") == "one"


def test_hundreds_of_brokers_are_found_by_name_without_looking_at_each() -> None:
    many = [DiscoveredBroker((f"b{n}.x.svc", f"10.0.{n // 200}.{n % 200}"), {}, {}) for n in range(300)]
    book = build(config(), 1, Discovered(brokers=tuple(many))).book
    broker = book.resolve(Authority("10.0.1.7", 8080), 80)
    assert broker is not None
    assert broker.name == "b207.x.svc"
    assert len(book._about("10.0.1.7", "10.0.1.7:8080")) == 1
