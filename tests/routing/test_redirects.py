"""Redirects: what becomes of a broker's Location."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictures import INSIDE, LOOKUP, STATS, asks, picture

from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.redirects import Redirect, decide_redirect
from pulsar_ingress_proxy.routing.requests import Request, listener_names
from pulsar_ingress_proxy.routing.selection import select
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.authorities import Authority

PUBLIC = "https://pulsar.example.com"
PARTNERS = "https://pulsar.partner.example"
PARTITIONS = "/admin/v2/persistent/acme/orders/paid/partitions"
LOOKING_UP = asks(PUBLIC + LOOKUP)
ADMINISTERING = asks(PUBLIC + STATS)
B1 = f"http://pulsar-broker-1.{INSIDE}:8080"
E1 = "https://broker-1.pulsar.example.com"


def redirected(location: str, asked: Request, snapshot: Snapshot, can_follow: bool = True) -> Redirect:
    return decide_redirect(location, asked, select(asked, snapshot), DecisionCache(snapshot), can_follow)


def refused(redirect: Redirect) -> tuple[int, str]:
    assert redirect.action == "refused"
    assert redirect.location is None
    assert redirect.refusal is not None
    return redirect.refusal.status, redirect.refusal.code


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        pytest.param(
            f"{B1}{LOOKUP}?authoritative=true&listenerName=external",
            f"{E1}{LOOKUP}?authoritative=true&listenerName=external",
            id="4.x, which puts a header's name into the query",
        ),
        pytest.param(
            f"{B1}{LOOKUP}?authoritative=false",
            f"{E1}{LOOKUP}?authoritative=false&listenerName=external",
            id="5.x, which does not always",
        ),
        pytest.param(
            f"{B1}{LOOKUP}?listenerName=internal&authoritative=true&listener%4Eame=partner",
            f"{E1}{LOOKUP}?authoritative=true&listenerName=external",
            id="other names, however spelled",
        ),
        pytest.param(
            f"{B1}/lookup/v2/topic/persistent/acme/orders/a%2Fb%3F?x=%2f+&&y",
            f"{E1}/lookup/v2/topic/persistent/acme/orders/a%2Fb%3F?x=%2f+&&y&listenerName=external",
            id="path and query byte for byte",
        ),
        pytest.param(f"{B1}{LOOKUP}", f"{E1}{LOOKUP}?listenerName=external", id="no query"),
        pytest.param(f"{B1}{LOOKUP}#top", f"{E1}{LOOKUP}?listenerName=external#top", id="a fragment"),
        pytest.param(
            f"HTTP://PULSAR-BROKER-1.{INSIDE.upper()}.:8080{LOOKUP}",
            f"{E1}{LOOKUP}?listenerName=external",
            id="case and trailing dot",
        ),
        pytest.param(
            f"http://pulsar-broker-1.{INSIDE}{LOOKUP}",
            f"{E1}{LOOKUP}?listenerName=external",
            id="any port, as the entry has none",
        ),
        pytest.param(
            f"https://broker-1.partner.example:8443{LOOKUP}",
            f"{E1}{LOOKUP}?listenerName=external",
            id="another listener than asked, apache/pulsar#26244",
        ),
    ],
)
def test_a_lookups_location_gets_the_listeners_address_and_its_name_once(location: str, expected: str) -> None:
    redirect = redirected(location, LOOKING_UP, picture())
    assert redirect == Redirect("rewritten", expected)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        pytest.param("GET", f"{STATS}?authoritative=true", id="topic not owned here"),
        pytest.param(
            "PUT",
            "/admin/v2/namespaces/acme/orders/0x00000000_0x40000000/unload?authoritative=false&destinationBroker=b:8080",
            id="bundle not owned here",
        ),
        pytest.param("DELETE", "/admin/v2/namespaces/acme/orders?force=true&authoritative=false", id="namespace"),
        pytest.param("GET", "/admin/v2/brokers/health?brokerId=b-1%3A8080", id="another broker's id"),
        pytest.param("PUT", "/admin/v2/scalable/acme/orders/paid", id="controller elsewhere"),
        pytest.param("POST", "/topics/persistent/acme/orders/paid/partitions/3", id="REST produce"),
        pytest.param(
            "GET", "/admin/v2/brokers/pulsar/ownedNamespaces?listenerName=internal", id="not its name to change"
        ),
    ],
)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_admin_calls_location_gets_the_listeners_address_and_nothing_else_changes(
    method: str, path: str, scheme: str
) -> None:
    """Brokers may keep the request's scheme though the port is of the other, so the authority alone decides."""
    location = f"{scheme}://pulsar-broker-1.{INSIDE}:8080{path}"
    asked = asks(PUBLIC + path.partition("?")[0], method)
    assert redirected(location, asked, picture()) == Redirect("rewritten", E1 + path)


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        ("http://pulsar.partner.example", "http://broker-1.partner.example:8080"),
        ("https://pulsar.partner.example", "https://broker-1.partner.example:8443"),
        ("http://pulsar.example.com", E1),  # the listener has TLS alone
    ],
)
def test_rewritten_location_takes_the_client_scheme_when_listener_has_http_and_https(
    client: str, expected: str
) -> None:
    assert redirected(B1 + STATS, asks(client + STATS), picture()).location == expected + STATS


@pytest.mark.parametrize(
    "location",
    [
        f"{E1}{LOOKUP}?authoritative=true",
        f"https://BROKER-1.pulsar.example.com:443{LOOKUP}?listenerName=internal&x=%2f#y",
        f"{LOOKUP}?authoritative=true",
    ],
    ids=["on the listener", "however it is written", "no host at all"],
)
def test_a_location_already_on_the_listener_stays_byte_for_byte(location: str) -> None:
    assert redirected(location, LOOKING_UP, picture()) == Redirect("kept", location)


@pytest.mark.parametrize(
    ("policy", "lookup", "admin"),
    [
        ("{}", "rewritten", "rewritten"),
        ("{lookup: rewrite, admin: follow}", "rewritten", "followed"),
        ("{lookup: follow, admin: pass}", "followed", "passed"),
        ("{lookup: pass, admin: rewrite}", "passed", "rewritten"),
    ],
)
def test_lookups_and_other_requests_have_separate_redirect_policies(policy: str, lookup: str, admin: str) -> None:
    snapshot = picture(f"redirects: {policy}")
    assert redirected(B1 + LOOKUP, LOOKING_UP, snapshot).action == lookup
    assert redirected(B1 + STATS, ADMINISTERING, snapshot).action == admin
    assert redirected(f"{B1}/topics/x", asks(f"{PUBLIC}/topics/x", "POST"), snapshot).action == admin


@pytest.mark.parametrize(
    ("policy", "can_follow", "action"),
    [
        ("auto", True, "followed"),
        ("auto", False, "rewritten"),
        ("rewrite", True, "rewritten"),
        ("pass", True, "passed"),
    ],
)
def test_auto_follows_redirects_of_requests_with_authorization(policy: str, can_follow: bool, action: str) -> None:
    """Clients may not send it to another host; a body that cannot be sent again is the client's to send."""
    snapshot = picture(f"redirects: {{lookup: {policy}, admin: {policy}}}")
    for request in (LOOKING_UP, ADMINISTERING):
        told = replace(request, has_authorization=True)
        assert redirected(B1 + LOOKUP, told, snapshot, can_follow=can_follow).action == action


def test_a_location_that_passes_stays_byte_for_byte_and_is_a_leak_if_it_is_off_the_listener() -> None:
    snapshot = picture("redirects: {lookup: pass}")
    off = f"http://PULSAR-broker-1.{INSIDE}:8080{LOOKUP}?x=%2f"
    assert redirected(off, LOOKING_UP, snapshot) == Redirect("passed", off, leak=True)
    on = f"{E1}{LOOKUP}?x=%2f"
    assert redirected(on, LOOKING_UP, snapshot) == Redirect("passed", on, leak=False)


def test_follow_asks_the_named_broker_for_the_same_path_and_query_plus_listener_name() -> None:
    redirect = redirected(f"{B1}{LOOKUP}?authoritative=true", LOOKING_UP, picture("redirects: {lookup: follow}"))
    assert redirect.action == "followed"
    assert redirect.location is None
    assert redirect.broker is not None
    assert redirect.broker.name == f"pulsar-broker-1.{INSIDE}"
    assert redirect.target == f"{LOOKUP}?authoritative=true&listenerName=external"


@pytest.mark.parametrize(
    ("expose", "asked", "path", "action"),
    [
        ("[lookup]", "/lookup/v2/topic/persistent/t/n/a%20b", "/lookup/v2/topic/persistent/t/n/a+b", "followed"),
        ("[lookup]", LOOKUP, STATS, "refused"),
        ("[lookup]", LOOKUP, "/metrics/", "refused"),
        ("[lookup, client]", PARTITIONS, PARTITIONS, "followed"),
        ("[lookup, client]", PARTITIONS, STATS, "refused"),
        ("[admin]", STATS, PARTITIONS, "followed"),
        ("[admin]", STATS, "/admin/v3/functions/acme/orders/f", "refused"),
        ("null", LOOKUP, "/elsewhere", "followed"),
        ("null", LOOKUP, "/lookup/%u002e%u002e/admin/v2/tenants", "refused"),
        ("null", LOOKUP, "/lookup;v2/topic/persistent/acme/orders/paid", "refused"),
    ],
)
def test_redirect_is_followed_only_to_paths_the_client_could_request_itself(
    expose: str, asked: str, path: str, action: str
) -> None:
    snapshot = picture(f"""
        ingresses: [{{name: public, hosts: [pulsar.example.com], listener: external, expose: {expose}}}]
        redirects: {{lookup: follow, admin: follow}}
    """)
    redirect = redirected(f"{B1}{path}", asks(PUBLIC + asked), snapshot)
    assert redirect.action == action
    if action == "refused":
        assert refused(redirect) == (502, "bad-answer")


def test_redirect_is_rewritten_instead_of_followed_when_body_cannot_be_replayed() -> None:
    snapshot = picture("redirects: {admin: follow}")
    asked = asks(PUBLIC + STATS, "PUT")
    assert redirected(B1 + STATS, asked, snapshot, can_follow=False) == Redirect("rewritten", E1 + STATS)


SHARED = """
advertisedListeners:
  - {broker: b0, listeners: "internal:http://b0:8080,external:https://pulsar.example.com"}
  - {broker: b1, listeners: "internal:http://b1:8080,external:https://pulsar.example.com"}
"""


def test_redirects_to_an_address_that_brokers_share_are_followed_never_rewritten() -> None:
    redirect = redirected(f"http://b1:8080{STATS}", ADMINISTERING, picture(SHARED))
    assert redirect.action == "followed"
    assert redirect.broker is not None
    assert redirect.broker.name == "b1"
    assert not redirect.unmapped
    unreplayable = redirected(f"http://b1:8080{STATS}", ADMINISTERING, picture(SHARED), can_follow=False)
    assert refused(unreplayable) == (502, "body-not-replayable")


PORTS = """
advertisedListeners:
  - broker: b-{n}.svc
    listeners: >-
      internal:http://b-{n}.svc:8080, internal:pulsar://b-{n}.svc:6650,
      external:http://gw.example.com:{n+8080}, external:pulsar://gw.example.com:{n+6650}
"""


@pytest.mark.parametrize("n", [0, 1, 2000])
def test_web_address_equal_only_to_a_binary_address_is_not_shared(n: int) -> None:
    """With these templates broker 1430 would have the binary address `gw.example.com:8080`."""
    redirect = redirected(f"http://b-{n}.svc:8080{STATS}", ADMINISTERING, picture(PORTS))
    assert redirect == Redirect("rewritten", f"http://gw.example.com:{n + 8080}{STATS}")


def test_location_matching_only_a_binary_address_is_not_on_the_listener() -> None:
    snapshot = picture(PORTS)
    assert redirected(f"http://gw.example.com:6650{STATS}", ADMINISTERING, snapshot).unmapped
    books = "advertisedListeners: [{broker: gw.example.com, listeners: ['external:pulsar://gw.example.com:6650', %s]}]"
    named = picture(books % "'external:http://b.example.com'")
    redirect = redirected(f"http://gw.example.com:6650{STATS}", ADMINISTERING, named)
    assert redirect == Redirect("rewritten", f"http://b.example.com{STATS}")


def test_location_at_an_address_shared_by_brokers_is_kept_as_on_the_listener() -> None:
    assert redirected(PUBLIC + STATS, ADMINISTERING, picture(SHARED)) == Redirect("kept", PUBLIC + STATS)
    assert redirected(f"{PUBLIC}:8443{STATS}", ADMINISTERING, picture(SHARED)).unmapped  # with its own port alone


WEBLESS = """
advertisedListeners:
  - broker: b{n}.svc
    listeners: internal:http://b{n}.svc:8080,external:pulsar://b{n}.pulsar.example.com,partner:http://b{n}.partner.example
"""


@pytest.mark.parametrize(
    ("policy", "can_follow", "action", "refusal"),
    [
        ("follow", True, "followed", None),
        ("follow", False, "refused", (502, "body-not-replayable")),
        ("refuse", True, "refused", (502, "unmapped")),
        ("pass", True, "passed", None),
    ],
)
def test_a_broker_without_a_web_address_on_the_listener_is_unmapped(
    policy: str, can_follow: bool, action: str, refusal: tuple[int, str] | None
) -> None:
    location = f"http://b1.svc:8080{STATS}"
    redirect = redirected(location, ADMINISTERING, picture(f"{WEBLESS}\nredirects: {{unmapped: {policy}}}"), can_follow)
    assert redirect.action == action
    assert redirect.unmapped
    assert redirect.leak == (action == "passed")
    assert redirect.location == (location if action == "passed" else None)
    assert (redirect.broker is not None) == (action == "followed")
    assert (refused(redirect) if redirect.refusal is not None else None) == refusal


def test_broker_without_listener_web_address_is_rewritten_to_lookup_listener_address() -> None:
    snapshot = picture(f"{WEBLESS}\nlookupListenerName: partner")
    redirect = redirected(f"http://b1.svc:8080{STATS}", ADMINISTERING, snapshot)
    assert redirect == Redirect("rewritten", f"http://b1.partner.example{STATS}")


def test_an_address_that_brokers_share_on_the_lookup_listener_is_kept_where_they_have_no_other() -> None:
    shared = "partner:http://pulsar.partner.example"
    lines = [f"{{broker: b{n}.svc, listeners: 'internal:http://b{n}.svc:8080,{shared}'}}" for n in (0, 1)]
    snapshot = picture(f"{{advertisedListeners: [{', '.join(lines)}], lookupListenerName: partner}}")
    location = f"http://pulsar.partner.example{STATS}"
    assert redirected(location, ADMINISTERING, snapshot) == Redirect("kept", location)


INSIDERS = [
    "http://10.0.0.7:8080",
    "http://127.0.0.1:8080",
    "http://[fd00::7]:8080",
    "http://worker-0:6750",
    "http://pulsar-broker.pulsar.svc:8080",
    "http://other.local",
    "http://other.internal",
    "http://anything.at.all.cluster.local",
    "http://brokers.corp.example",
]


@pytest.mark.parametrize("base", INSIDERS)
def test_location_with_an_unknown_internal_authority_is_refused(base: str) -> None:
    snapshot = picture("advertisedListeners: [{broker: b0.corp.example, listeners: 'external:https://e0.example'}]")
    redirect = redirected(base + STATS, ADMINISTERING, snapshot)
    assert refused(redirect) == (502, "unknown-authority")
    assert redirect.unmapped
    assert not redirect.leak


def test_unknown_host_in_the_brokers_cluster_domain_is_refused_as_internal() -> None:
    snapshot = picture(
        "advertisedListeners: [{broker: b0.p.svc.k8s.corp.com, listeners: 'external:https://e0.example'}]"
    )
    assert refused(redirected("http://x.other.svc.k8s.corp.com/", ADMINISTERING, snapshot))
    assert redirected("http://x.corp.com/", ADMINISTERING, snapshot).action == "passed"


def test_an_unknown_authority_that_looks_public_passes_and_is_a_leak() -> None:
    location = f"https://somewhere.example.org{STATS}"
    assert redirected(location, ADMINISTERING, picture()) == Redirect("passed", location, unmapped=True, leak=True)


@pytest.mark.parametrize("base", ["https://somewhere.example.org", "http://10.0.0.7:8080"])
def test_unmapped_refuse_or_pass_applies_to_every_unknown_authority(base: str) -> None:
    location = base + STATS
    refusing, passing = picture("redirects: {unmapped: refuse}"), picture("redirects: {unmapped: pass}")
    assert refused(redirected(location, ADMINISTERING, refusing)) == (502, "unknown-authority")
    assert redirected(location, ADMINISTERING, passing) == Redirect("passed", location, unmapped=True, leak=True)


def test_refusal_names_the_authority_in_its_detail_but_not_in_the_text_for_clients() -> None:
    refusal = redirected(f"http://worker-0:6750{STATS}", ADMINISTERING, picture()).refusal
    assert refusal is not None
    assert refusal.detail == "worker-0"
    assert "worker-0" not in refusal.text
    assert "redirects.peers" in refusal.text


@pytest.mark.parametrize("unmapped", ["follow", "refuse", "pass"])
@pytest.mark.parametrize("base", ["http://10.9.0.1:8080", "https://b7.peer.svc", "https://B7.Peer.svc."])
def test_locations_of_peer_clusters_pass(unmapped: str, base: str) -> None:
    snapshot = picture(f"redirects: {{unmapped: {unmapped}, peers: [10.9.0.1, '*.peer.svc']}}")
    assert redirected(base + STATS, ADMINISTERING, snapshot) == Redirect("passed", base + STATS)


@pytest.mark.parametrize(
    "location",
    [
        "", "//evil.example/x", "/\\evil.example/x", "ftp://b1/x", "pulsar://b1:6650", "javascript:alert(1)",
        f"http://user@pulsar-broker-1.{INSIDE}:8080/x", "http://b1:99999/x", "http://b 1/x", "http:///x",
    ],
)  # fmt: skip
def test_location_that_is_not_a_web_url_is_refused_unless_redirects_pass(location: str) -> None:
    assert refused(redirected(location, ADMINISTERING, picture())) == (502, "unknown-authority")
    for changes in (
        "redirects: {admin: pass}",
        "redirects: {unmapped: pass}",
        "preferHttpClientListenerOverInternalListener: false",
    ):
        redirect = redirected(location, ADMINISTERING, picture(changes))
        assert (redirect.action, redirect.location) == ("passed", location)


@pytest.mark.parametrize("location", [B1 + LOOKUP, "http://10.0.0.7/x", "ftp://x", E1 + LOOKUP, LOOKUP])
def test_redirects_pass_unchanged_when_no_listener_is_selected(location: str) -> None:
    asked = asks(f"http://10.0.0.9{LOOKUP}")
    assert redirected(location, asked, picture("redirects: {unmapped: refuse}")) == Redirect("passed", location)


def test_pip_338_case_1_a_redirect_without_a_listener_leads_to_the_lookup_listener() -> None:
    asked = asks(f"http://10.0.0.9{LOOKUP}")
    redirect = redirected(f"{B1}{LOOKUP}?authoritative=true", asked, picture("lookupListenerName: external"))
    assert redirect.location == f"{E1}{LOOKUP}?authoritative=true&listenerName=external"


def test_pip_338_case_2_a_redirect_leads_to_the_listener_of_the_query() -> None:
    asked = asks(f"http://10.0.0.9{LOOKUP}?listenerName=partner")
    location = f"{B1}{LOOKUP}?authoritative=true&listenerName=partner"
    redirect = redirected(location, asked, picture("lookupListenerName: external"))
    expected = f"http://broker-1.partner.example:8080{LOOKUP}?authoritative=true&listenerName=partner"
    assert redirect == Redirect("rewritten", expected)


@pytest.mark.parametrize("asked", [LOOKING_UP, ADMINISTERING], ids=["lookup", "admin"])
def test_pip_338_case_4_redirects_pass_unchanged_without_preferring_client_listener(asked: Request) -> None:
    snapshot = picture("preferHttpClientListenerOverInternalListener: false\nlookupListenerName: external")
    for location in (B1 + LOOKUP, f"http://10.0.0.7{STATS}"):
        redirect = redirected(location, asked, snapshot)
        assert (redirect.action, redirect.location, redirect.leak) == ("passed", location, True)


CLUSTER = picture()
SNAPSHOTS = [
    picture(f"redirects: {{lookup: {policy}, admin: {policy}, unmapped: {unmapped}}}\n{book}")
    for policy in ("rewrite", "follow", "pass")
    for unmapped in ("follow", "refuse", "pass")
    for book in ("", SHARED, WEBLESS)
]
visible = st.text(alphabet=st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="#?"), max_size=12)
queries = st.lists(st.sampled_from(["a=1", "listenerName=x", "listener%4Eame", "authoritative=true", "", "%2f=+"]))


@given(st.integers(0, 99), visible, queries)
def test_rewriting_keeps_any_path_and_query_except_a_lookups_listener_name(n: int, path: str, query: list[str]) -> None:
    target = f"/{path}?{'&'.join(query)}"
    location = f"http://pulsar-broker-{n}.{INSIDE}:8080{target}"
    base = f"https://broker-{n}.pulsar.example.com"
    assert redirected(location, ADMINISTERING, CLUSTER).location == base + target

    rewritten = redirected(location, LOOKING_UP, CLUSTER).location
    assert rewritten is not None
    assert rewritten.startswith(f"{base}/{path}?")
    rest = rewritten.removeprefix(f"{base}/{path}?")
    assert listener_names(rest) == ("external",)
    others = [part for part in query if part and not listener_names(part)]
    assert [part for part in rest.split("&") if part and not listener_names(part)] == others


hosts = st.sampled_from(
    ["b1.svc", "b1", "broker-1.pulsar.example.com", "10.0.0.7", "x.example", "[::1]", "pulsar.example.com"]
)
locations = st.text(max_size=20) | st.builds(
    "{}://{}{}{}".format,
    st.sampled_from(["http", "https", "ftp"]),
    hosts,
    st.sampled_from(["", ":8080", ":x"]),
    st.text(),
)


@given(st.sampled_from(SNAPSHOTS), locations, st.sampled_from([LOOKING_UP, ADMINISTERING]), st.booleans())
def test_only_address_book_brokers_are_dialled_and_every_redirect_has_one_outcome(
    snapshot: Snapshot, location: str, asked: Request, can_follow: bool
) -> None:
    redirect = redirected(location, asked, snapshot, can_follow)
    answers = (redirect.location is not None, redirect.broker is not None, redirect.refusal is not None)
    assert answers.count(True) == 1
    if redirect.action in ("kept", "passed"):
        assert redirect.location == location
    if redirect.broker is not None:
        assert redirect.action == "followed"
        assert can_follow
        assert snapshot.book.resolve(Authority(redirect.broker.name, None), 80) == redirect.broker
