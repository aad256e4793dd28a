"""Upstream: the pinned broker, the function workers, the pool, and what an ingress exposes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictures import INSIDE, LOOKUP, STATS, asks, picture

from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.decisions import dial_url, not_exposed, route
from pulsar_ingress_proxy.routing.redirects import decide_redirect
from pulsar_ingress_proxy.routing.requests import Request
from pulsar_ingress_proxy.routing.selection import select
from pulsar_ingress_proxy.routing.snapshot import Snapshot

WORKERS = "functionWorkers: {webServiceUrl: [http://worker:6750]}"
FUNCTIONS = "/admin/v3/functions/acme/orders/f"


def upstream(asked: Request, snapshot: Snapshot) -> str:
    return str(route(asked, select(asked, snapshot), snapshot))


def inside(n: int | str) -> str:
    return f"http://pulsar-broker-{n}.{INSIDE}:8080"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param(asks(f"https://broker-1.pulsar.example.com{LOOKUP}"), inside(1), id="a lookup"),
        pytest.param(asks(f"https://broker-1.pulsar.example.com{STATS}", "DELETE"), inside(1), id="an admin call"),
        pytest.param(asks("https://broker-1.pulsar.example.com/ws/v2/x"), inside(1), id="anything else"),
        pytest.param(asks(f"https://Broker-1.Pulsar.Example.COM.:443{LOOKUP}"), inside(1), id="however it is written"),
        pytest.param(asks(f"http://broker-1.pulsar.example.com{LOOKUP}"), inside(1), id="TLS that ends at the gateway"),
        pytest.param(asks(f"http://broker-1.partner.example:8080{LOOKUP}", bind="partner"), inside(1), id="http"),
        pytest.param(asks(f"https://broker-1.partner.example:8443{LOOKUP}", bind="partner"), inside(1), id="https"),
        pytest.param(
            asks(f"http://127.0.0.1:8080{LOOKUP}", forwarded_host="broker-1.pulsar.example.com"),
            inside(1),
            id="by what a trusted proxy says the Host was",
        ),
        pytest.param(asks(f"https://pulsar.example.com{LOOKUP}"), "pool of brokers", id="the ingress's own host"),
        pytest.param(
            asks(f"http://broker-1.partner.example:8080{LOOKUP}", bind="external"),
            "pool of brokers",
            id="an address of another listener",
        ),
        pytest.param(
            asks(f"https://broker-1.pulsar.example.com{LOOKUP}?listenerName=partner"),
            "pool of brokers",
            id="the listener is what was selected, not what the host says",
        ),
        pytest.param(
            asks(f"http://pulsar-broker-1.{INSIDE}:8080{LOOKUP}", bind="external"),
            "pool of brokers",
            id="a broker's own name is no address of the listener",
        ),
        pytest.param(asks(f"http://broker-1.partner.example:8080{LOOKUP}"), "pool of brokers", id="a miss"),
    ],
)
def test_a_host_that_is_one_brokers_address_on_the_selected_listener_leads_to_that_broker(
    asked: Request, expected: str
) -> None:
    assert upstream(asked, picture(WORKERS)) == expected


def test_a_host_that_several_brokers_share_leads_to_the_pool() -> None:
    snapshot = picture(
        """
        advertisedListeners:
          - {broker: b0, listeners: "internal:http://b0:8080,external:https://pulsar.example.com"}
          - {broker: b1, listeners: "internal:http://b1:8080,external:https://pulsar.example.com"}
        """
    )
    assert upstream(asks(f"https://pulsar.example.com{LOOKUP}"), snapshot) == "pool of brokers"


@pytest.mark.parametrize(
    ("base", "broker"),
    [
        ("http://nodes.example", "b0"),
        ("http://nodes.example:80", "b0"),
        ("https://nodes.example", "b1"),
        ("http://nodes.example:443", "b1"),
    ],
)
def test_a_host_without_a_port_has_the_default_one_of_the_clients_scheme(base: str, broker: str) -> None:
    snapshot = picture(
        """
        advertisedListeners:
          - {broker: b0, listeners: "internal:http://b0:8080,external:http://nodes.example"}
          - {broker: b1, listeners: "internal:http://b1:8080,external:https://nodes.example"}
        """
    )
    assert upstream(asks(base + LOOKUP, bind="external"), snapshot) == f"http://{broker}:8080"


@pytest.mark.parametrize(
    ("listeners", "pool", "expected"),
    [
        pytest.param(
            "internal:http://10.0.0.1:8080,internal:https://10.0.0.1:8443",
            "http://pulsar-broker:8080",
            "http://10.0.0.1:8080",
            id="the pool's scheme: http",
        ),
        pytest.param(
            "internal:http://10.0.0.1:8080,internal:https://10.0.0.1:8443",
            "https://pulsar-broker:8443",
            "https://10.0.0.1:8443",
            id="the pool's scheme: https",
        ),
        pytest.param(
            "internal:https://10.0.0.1:8443", "http://pulsar-broker:8080", "https://10.0.0.1:8443", id="the only one"
        ),
        pytest.param(
            "external:https://e0.example",
            "http://pulsar-broker:8080",
            "http://b0.svc:8080",
            id="its name, the pool's port",
        ),
        pytest.param(
            "internal:pulsar://10.0.0.1:6650",
            "https://pulsar-broker",
            "https://b0.svc:443",
            id="an internal address that is not for the web",
        ),
    ],
)
def test_broker_is_dialled_at_its_internal_web_address_or_by_name_at_the_pools_port(
    listeners: str, pool: str, expected: str
) -> None:
    snapshot = picture(
        f"""
        brokers: {{webServiceUrl: [{pool}]}}
        advertisedListeners: [{{broker: b0.svc, listeners: "{listeners}"}}]
        """
    )
    broker = snapshot.book.entries[0].fill({})
    assert broker is not None
    assert str(dial_url(broker, snapshot)) == expected


def test_broker_named_with_a_port_is_dialled_at_that_port() -> None:
    snapshot = picture(
        "advertisedListeners: [{broker: 'b0:8081', listeners: 'external:https://e0.pulsar.example.com'}]"
    )
    assert upstream(asks(f"https://e0.pulsar.example.com{LOOKUP}"), snapshot) == "http://b0:8081"


def test_function_calls_go_to_function_workers_when_they_are_configured() -> None:
    asked = asks(f"https://pulsar.example.com{FUNCTIONS}")
    assert upstream(asked, picture(WORKERS)) == "pool of functions"
    assert upstream(asked, picture()) == "pool of brokers"
    assert upstream(asks(f"https://pulsar.example.com{STATS}"), picture(WORKERS)) == "pool of brokers"


def test_function_call_at_a_brokers_own_host_goes_to_the_function_workers_if_there_are_any() -> None:
    """As Apache Pulsar Proxy does it: the path decides."""
    asked = asks(f"https://broker-1.pulsar.example.com{FUNCTIONS}")
    assert upstream(asked, picture(WORKERS)) == "pool of functions"
    assert upstream(asked, picture()) == inside(1)


NODES = """
advertisedListeners:
  - broker: pulsar-broker-{n}
    listeners: "internal:http://pulsar-broker-{n}:8080,external:https://broker-{n}.pulsar.example.com"
  - broker: worker-{n}
    listeners: "internal:http://worker-{n}:WORKER,external:https://worker-{n}.pulsar.example.com"
"""


@pytest.mark.parametrize(
    ("base", "port", "expected"),
    [
        pytest.param("https://worker-1.pulsar.example.com", 6750, "http://worker-1:6750", id="a worker"),
        pytest.param("https://broker-1.pulsar.example.com", 6750, "pool of functions", id="a broker at their port"),
        pytest.param("https://worker-1.pulsar.example.com", 6751, "http://worker-1:6751", id="at a port of its own"),
    ],
)
def test_function_call_at_a_workers_own_host_goes_to_that_worker(base: str, port: int, expected: str) -> None:
    """Workers redirect to each other, and a rewritten redirect reaches the worker that it names."""
    snapshot = picture(WORKERS + NODES.replace("WORKER", str(port)))
    assert upstream(asks(base + FUNCTIONS), snapshot) == expected


@pytest.mark.parametrize(
    ("method", "path", "exposed"),
    [
        ("GET", LOOKUP, True),
        ("GET", f"{LOOKUP}/bundle", True),
        ("GET", "/admin/v2/persistent/acme/orders/paid/partitions", True),
        ("PUT", "/admin/v2/persistent/acme/orders/paid/partitions", False),
        ("GET", STATS, False),
        ("GET", FUNCTIONS, False),
        ("GET", "/ws/v2/producer/persistent/acme/orders/paid", False),
        ("GET", "/metrics", False),
    ],
)
def test_request_that_the_ingress_does_not_expose_is_forbidden(method: str, path: str, exposed: bool) -> None:
    snapshot = picture(
        "ingresses: [{name: public, hosts: [pulsar.example.com], listener: external, expose: [lookup, client]}]"
    )
    asked = asks(f"https://pulsar.example.com{path}", method)
    refusal = not_exposed(asked.target.area, select(asked, snapshot), snapshot)
    if exposed:
        assert refusal is None
    else:
        assert refusal is not None
        assert (refusal.status, refusal.code) == (403, "not-exposed")
        assert refusal.text == "ingress 'public' exposes only client, lookup"


def test_every_path_is_exposed_when_no_ingress_sets_expose() -> None:
    snapshot = picture()
    for url in ("https://pulsar.example.com/metrics", "http://10.0.0.9/metrics"):
        assert not_exposed(asks(url).target.area, select(asks(url), snapshot), snapshot) is None


@pytest.mark.parametrize(("path", "exposed"), [(LOOKUP, True), (STATS, False), ("/metrics", False)])
def test_host_of_no_ingress_does_not_bypass_the_expose_limits_of_ingresses(path: str, exposed: bool) -> None:
    snapshot = picture(
        """
        ingresses:
          - {name: public, hosts: [pulsar.example.com], listener: external, expose: [lookup]}
          - {name: operators, hosts: [admin.example.com], listener: external}
        """
    )
    asked = asks(f"https://elsewhere.example.org{path}")
    assert (not_exposed(asked.target.area, select(asked, snapshot), snapshot) is None) is exposed


CLUSTER = picture()
DEFAULTED = picture(
    """
    lookupListenerName: external
    ingresses:
      - {name: public, hosts: ["*.pulsar.example.com"], listener: external}
      - {name: web-less, hosts: [binary.example], listener: binary-only}
    advertisedListeners:
      - broker: pulsar-broker-{n}.pulsar-broker.pulsar.svc.cluster.local
        listeners: >-
          internal:http://pulsar-broker-{n}.pulsar-broker.pulsar.svc.cluster.local:8080,
          external:https://broker-{n}.pulsar.example.com,
          binary-only:pulsar://broker-{n}.binary.example:6650
    """
)


@pytest.mark.parametrize(
    ("snapshot", "first"),
    [
        pytest.param(CLUSTER, "https://pulsar.example.com", id="by ingress"),
        pytest.param(CLUSTER, "https://pulsar.partner.example?listenerName=external", id="by the client's name"),
        pytest.param(DEFAULTED, "https://binary.example", id="by the default listener's address, PIP-338"),
    ],
)
@given(leader=st.integers(0, 99), owner=st.integers(0, 99), path=st.sampled_from([LOOKUP, STATS]))
def test_a_rewritten_redirect_reaches_the_broker_it_names_through_two_hops(
    snapshot: Snapshot, first: str, leader: int, owner: int, path: str
) -> None:
    """A broker that gets authoritative=true takes the bundle itself, so it must be that broker."""
    host, _, query = first.partition("?")
    asked = asks(f"{host}{path}?{query}")
    for broker, authoritative in ((leader, "false"), (owner, "true")):
        location = f"{inside(broker)}{path}?authoritative={authoritative}"
        redirect = decide_redirect(location, asked, select(asked, snapshot), DecisionCache(snapshot))
        assert redirect.action == "rewritten"
        assert redirect.location is not None
        asked = asks(redirect.location)
        assert upstream(asked, snapshot) == inside(broker)
