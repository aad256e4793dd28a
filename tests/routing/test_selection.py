"""Selection: which listener a request belongs to, and by which rule.

Query, header, bind, ingress, default: the first that matches wins; where none does it is a miss.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictures import LOOKUP, STATS, asks, picture

from pulsar_ingress_proxy.routing.ingresses import Ingress, Ingresses
from pulsar_ingress_proxy.routing.requests import Request
from pulsar_ingress_proxy.routing.selection import Selection, select
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.listeners import parse_bind_addresses

PUBLIC = f"https://pulsar.example.com{LOOKUP}"
PARTNERS = f"https://pulsar.partner.example{LOOKUP}"
NOWHERE = f"http://10.0.0.9:8080{LOOKUP}"

DEFAULT = "lookupListenerName: external"
NO_BOOK = "advertisedListeners: []"


def outcome(selection: Selection) -> tuple[str | None, str]:
    return selection.listener, selection.rule


def refused(selection: Selection) -> tuple[int, str]:
    """The status and code of a refused request, which is a miss for that reason."""
    assert selection.refusal is not None
    assert not selection.hit
    assert selection.reason == selection.refusal.code
    return selection.refusal.status, selection.refusal.code


@pytest.mark.parametrize(
    ("asked", "listener", "rule"),
    [
        pytest.param(
            asks(f"{PUBLIC}?listenerName=partner", header="other", bind="external"),
            "partner",
            "query",
            id="query first",
        ),
        pytest.param(asks(PUBLIC, header="partner", bind="external"), "partner", "header", id="then header"),
        pytest.param(asks(PUBLIC, bind="partner"), "partner", "bind", id="then bind"),
        pytest.param(asks(PARTNERS), "partner", "ingress", id="then ingress"),
        pytest.param(asks(NOWHERE), "external", "default", id="then default"),
    ],
)
def test_the_first_rule_that_matches_wins(asked: Request, listener: str, rule: str) -> None:
    selection = select(asked, picture(DEFAULT))
    assert outcome(selection) == (listener, rule)
    assert selection.hit
    assert selection.reason is None
    assert selection.refusal is None


def test_request_that_no_rule_matches_is_a_miss() -> None:
    selection = select(asks(NOWHERE), picture())
    assert outcome(selection) == (None, "none")
    assert not selection.hit
    assert selection.reason == "no-rule"
    assert selection.refusal is None


@pytest.mark.parametrize(
    ("asked", "listener", "rule"),
    [
        pytest.param(asks(f"{PUBLIC}?listenerName=", header="partner"), "partner", "header", id="empty parameter"),
        pytest.param(asks(f"{PUBLIC}?listenerName=%20", header="partner"), "partner", "header", id="a single space"),
        pytest.param(asks(f"{PUBLIC}?listenerName=+%09", header=" "), "external", "ingress", id="all blank"),
        pytest.param(asks(PUBLIC, header=(" ", "partner")), "partner", "header", id="a blank header before a name"),
        pytest.param(
            asks(f"{PUBLIC}?listenerName=%20&listenerName=partner"), "partner", "query", id="the first not blank"
        ),
        pytest.param(
            asks(f"{PUBLIC}?listenerName=partner&listenerName=nobody"), "partner", "query", id="the first of two"
        ),
        pytest.param(asks(f"{PUBLIC}?listener%4Eame=partner"), "partner", "query", id="an encoded parameter name"),
        pytest.param(asks(PUBLIC, header=("partner", "partner")), "partner", "header", id="one name in two headers"),
    ],
)
def test_blank_listener_name_counts_as_absent_and_the_first_nonblank_one_wins(
    asked: Request, listener: str, rule: str
) -> None:
    assert outcome(select(asked, picture())) == (listener, rule)


@pytest.mark.parametrize("policy", ["honor", "ignore", "reject"])
def test_headers_that_differ_are_refused(policy: str) -> None:
    snapshot = picture(f"clientListenerName: {policy}")
    assert refused(select(asks(PUBLIC, header=("external", "partner")), snapshot)) == (400, "conflicting-names")


@pytest.mark.parametrize(
    ("url", "forwarded_host", "ingress"),
    [
        pytest.param("https://pulsar.example.com", None, "public", id="exact"),
        pytest.param(
            "https://PULSAR.Example.Com.:8443", None, "public", id="case, port and a trailing dot do not count"
        ),
        pytest.param("https://broker-0.pulsar.example.com", None, "public", id="one label"),
        pytest.param("https://a.b.pulsar.example.com", None, "public", id="more labels"),
        pytest.param("https://xpulsar.example.com", None, None, id="not a part of a label"),
        pytest.param(
            "http://127.0.0.1:8080", "pulsar.partner.example", "partners", id="forwarded where Host is nobody's"
        ),
        pytest.param(
            "https://pulsar.example.com", "pulsar.partner.example", "public", id="never over a Host that matches"
        ),
        pytest.param("http://127.0.0.1:8080", "nobody.example", None, id="nobody's at all"),
    ],
)
def test_ingress_is_found_by_host_or_by_forwarded_host_if_host_matches_none(
    url: str, forwarded_host: str | None, ingress: str | None
) -> None:
    found = select(asks(url + LOOKUP, forwarded_host=forwarded_host), picture()).ingress
    assert (found.name if found is not None else None) == ingress


INGRESSES = Ingresses(
    Ingress(host, (host,), "external")
    for host in ("a.example", "*.example", "*.a.example", "x.b.a.example", "*.b.a.example", "C.Example.")
)


@pytest.mark.parametrize(
    ("host", "ingress"),
    [
        ("a.example", "a.example"),  # exact over *.example
        ("b.example", "*.example"),
        ("c.example", "C.Example."),
        ("b.a.example", "*.a.example"),  # the longer wildcard
        ("y.b.a.example", "*.b.a.example"),
        ("x.b.a.example", "x.b.a.example"),
        ("z.y.x.c.example", "*.example"),
        ("example", None),
        ("other", None),
    ],
)
def test_an_exact_host_beats_a_wildcard_and_a_longer_wildcard_a_shorter_one(host: str, ingress: str | None) -> None:
    found = INGRESSES.by_host(host)
    assert (found.name if found is not None else None) == ingress


labels = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map(".".join)


@given(st.lists(st.builds("{}{}".format, st.sampled_from(["", "*."]), labels), unique=True, max_size=6), labels)
def test_ingress_with_the_most_specific_matching_host_is_found(hosts: list[str], host: str) -> None:
    wildcards = [pattern for pattern in hosts if pattern.startswith("*.") and host.endswith(pattern[1:])]
    closest = host if host in hosts else max(wildcards, key=len, default=None)
    found = Ingresses(Ingress(pattern, (pattern,), "external") for pattern in hosts).by_host(host)
    assert (found.name if found is not None else None) == closest


@pytest.mark.parametrize(
    ("asked", "ingress", "listener"),
    [
        pytest.param(asks(PUBLIC, bind="partner"), "public", "partner", id="by host, whatever the socket's listener"),
        pytest.param(asks(NOWHERE, bind="partner"), "partners", "partner", id="the first with the socket's listener"),
        pytest.param(asks(NOWHERE, bind="lonely"), None, "lonely", id="none that has it"),
        pytest.param(asks(f"{PARTNERS}?listenerName=external"), "partners", "external", id="whatever the client named"),
    ],
)
def test_ingress_comes_from_host_or_else_socket_listener_whichever_rule_selects(
    asked: Request, ingress: str | None, listener: str
) -> None:
    selection = select(asked, picture())
    assert (selection.ingress.name if selection.ingress is not None else None) == ingress
    assert selection.listener == listener


@pytest.mark.parametrize(
    ("url", "name", "allowed"),
    [
        pytest.param(PARTNERS, "external", True, id="listed"),
        pytest.param(PARTNERS, "internal", False, id="the internal one, not listed"),
        pytest.param(PARTNERS, "nobody", False, id="not listed, and unknown too: tested first"),
        pytest.param(PUBLIC, "partner", True, id="no list: any known one"),
        pytest.param(PUBLIC, "internal", False, id="no list: but the internal one"),
        pytest.param(NOWHERE, "partner", True, id="no ingress: any known one"),
        pytest.param(NOWHERE, "internal", False, id="no ingress: but the internal one"),
    ],
)
@pytest.mark.parametrize("by", ["query", "header"])
def test_client_may_name_allowed_listeners_or_without_a_list_any_but_internal(
    url: str, name: str, allowed: bool, by: str
) -> None:
    asked = asks(f"{url}?listenerName={name}") if by == "query" else asks(url, header=name)
    selection = select(asked, picture())
    if allowed:
        assert outcome(selection) == (name, by)
    else:
        assert refused(selection) == (403, "not-allowed")
        assert selection.rule == by


def test_client_may_name_the_internal_listener_when_allowed_listeners_has_it() -> None:
    snapshot = picture(
        "ingresses: [{name: ops, hosts: [ops.example], listener: external, allowedListeners: [internal]}]"
    )
    assert outcome(select(asks(f"http://ops.example{LOOKUP}", header="internal"), snapshot)) == ("internal", "header")
    assert refused(select(asks(f"http://ops.example{LOOKUP}", header="partner"), snapshot)) == (403, "not-allowed")


def test_internal_listener_is_the_one_set_by_internal_listener_name() -> None:
    snapshot = picture("internalListenerName: partner")
    assert refused(select(asks(PUBLIC, header="partner"), snapshot)) == (403, "not-allowed")
    assert outcome(select(asks(PUBLIC, header="internal"), snapshot)) == ("internal", "header")


def test_refusal_of_a_listener_name_lists_the_allowed_listeners() -> None:
    refusal = select(asks(PARTNERS, header="internal"), picture()).refusal
    assert refusal is not None
    assert (
        refusal.text == "listener 'internal' may not be named through ingress 'partners'; allowed are external, partner"
    )


LOCKED = """
ingresses:
  - {name: locked, hosts: [locked.example], listener: internal, allowedListeners: []}
lookupListenerName: nobody
"""


@pytest.mark.parametrize("policy", ["honor", "ignore", "reject"])
@pytest.mark.parametrize(
    ("url", "bind", "name", "rule"),
    [
        pytest.param("http://locked.example", None, "internal", "ingress", id="ingress"),
        pytest.param("http://locked.example", "unheard-of", "unheard-of", "bind", id="bind"),
        pytest.param("http://10.0.0.9", None, "nobody", "default", id="default"),
    ],
)
def test_client_name_equal_to_the_rules_choice_keeps_that_rule_and_is_never_refused(
    url: str, bind: str | None, name: str, rule: str, policy: str
) -> None:
    """Our own redirects carry it."""
    snapshot = picture(f"{LOCKED}\nclientListenerName: {policy}")
    for asked in (
        asks(f"{url}{LOOKUP}?authoritative=true&listenerName={name}", bind=bind),
        asks(url + LOOKUP, header=name, bind=bind),
    ):
        assert outcome(select(asked, snapshot)) == (name, rule)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param("", (400, "unknown-listener"), id="reject"),
        pytest.param("unknownListener: forward", ("nobody", "query"), id="forward"),
        pytest.param(NO_BOOK, ("nobody", "query"), id="an empty book: nothing is unknown"),
    ],
)
def test_unknown_listener_name_is_refused_unless_forwarded_or_address_book_is_empty(
    changes: str, expected: tuple[object, str]
) -> None:
    selection = select(asks(f"{PUBLIC}?listenerName=nobody"), picture(changes))
    assert (refused(selection) if selection.refusal else outcome(selection)) == expected


REPORTED = frozenset(["internal", "partner"])


@pytest.mark.parametrize(
    ("asked", "changes", "expected"),
    [
        pytest.param(asks(PUBLIC), "", (400, "unknown-listener"), id="of an ingress"),
        pytest.param(asks(NOWHERE), DEFAULT, (400, "unknown-listener"), id="the default"),
        pytest.param(asks(PUBLIC, bind="external"), "", (400, "unknown-listener"), id="of a socket"),
        pytest.param(asks(PUBLIC, header="external"), "", (400, "unknown-listener"), id="named by the client too"),
        pytest.param(asks(PUBLIC, header="a"), "clientListenerName: ignore", (400, "unknown-listener"), id="ignored"),
        pytest.param(asks(PARTNERS), "", ("partner", "ingress"), id="one that they have"),
        pytest.param(asks(PUBLIC), "unknownListener: forward", ("external", "ingress"), id="forward"),
        pytest.param(asks(f"https://pulsar.example.com{STATS}"), "", ("external", "ingress"), id="no lookup"),
    ],
)
def test_lookup_is_refused_when_no_broker_reports_having_the_selected_listener(
    asked: Request, changes: str, expected: tuple[object, str]
) -> None:
    """The address book may lack a listener that brokers have; what they say themselves is all that there is."""
    selection = select(asked, replace(picture(changes), reported_listeners=REPORTED))
    assert (refused(selection) if selection.refusal else outcome(selection)) == expected
    if selection.refusal is not None:
        assert selection.refusal.text == "no broker has a listener 'external'; they have partner"
    assert select(asked, picture(changes)).refusal is None


def test_unknown_listener_refusal_lists_the_known_listeners_except_internal() -> None:
    refusal = select(asks(PUBLIC, header="nobody"), picture()).refusal
    assert refusal is not None
    assert refusal.text == "no broker has a listener 'nobody'; known are external, partner"


def test_naming_the_internal_listener_is_refused_even_with_an_empty_address_book() -> None:
    assert refused(select(asks(PUBLIC, header="internal"), picture(NO_BOOK))) == (403, "not-allowed")


@pytest.mark.parametrize(
    "asked",
    [
        asks(f"{PUBLIC}?listenerName=partner"),
        asks(PUBLIC, header="partner"),
        asks(f"{PUBLIC}?listenerName=a%0d%0ab"),
    ],
    ids=["query", "header", "what is no name"],
)
def test_listener_name_from_a_client_is_ignored_or_rejected_as_configured(asked: Request) -> None:
    assert outcome(select(asked, picture("clientListenerName: ignore"))) == ("external", "ingress")
    assert refused(select(asked, picture("clientListenerName: reject"))) == (400, "client-named")


def test_ignored_client_listener_name_does_not_prevent_a_miss() -> None:
    selection = select(asks(NOWHERE, header="partner"), picture("clientListenerName: ignore"))
    assert (selection.rule, selection.reason) == ("none", "no-rule")


@pytest.mark.parametrize("policy", ["honor", "ignore", "reject"])
def test_selection_records_the_client_named_listener_under_every_policy(policy: str) -> None:
    snapshot = picture(f"clientListenerName: {policy}")
    selection = select(asks(f"{PUBLIC}?listenerName=partner", header="external"), snapshot)
    assert (selection.client_named, selection.client_named_by) == ("partner", "query")


@pytest.mark.parametrize(
    "name", ["a%0d%0aX-Evil:1", "a%00", "ext%20eu", "%E4%B8%BB", "%7f", "a" * 256], ids=lambda name: str(name)[:20]
)
def test_listener_name_that_cannot_be_sent_in_a_header_is_refused(name: str) -> None:
    assert refused(select(asks(f"{PUBLIC}?listenerName={name}"), picture(NO_BOOK))) == (400, "bad-listener-name")


def test_listener_name_may_hold_dots_and_slashes_as_older_brokers_allow() -> None:
    assert outcome(select(asks(f"{PUBLIC}?listenerName=ext.eu%2F1"), picture(NO_BOOK))) == ("ext.eu/1", "query")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_lookup_that_misses_is_refused_when_miss_is_reject(method: str) -> None:
    assert refused(select(asks(NOWHERE, method), picture("miss: reject"))) == (400, "no-rule")


def test_miss_reject_refuses_neither_other_requests_nor_lookups_with_a_listener() -> None:
    snapshot = picture("miss: reject")
    assert select(asks(f"http://10.0.0.9:8080{STATS}"), snapshot).refusal is None
    assert select(asks(f"{NOWHERE}/bundle"), snapshot).refusal is None
    assert select(asks(NOWHERE, header="partner"), snapshot).refusal is None


def test_admin_calls_get_a_listener_by_ingress_or_default() -> None:
    assert outcome(select(asks(f"https://pulsar.partner.example{STATS}"), picture())) == ("partner", "ingress")
    assert outcome(select(asks(f"http://10.0.0.9:8080{STATS}"), picture(DEFAULT))) == ("external", "default")


def test_pip_95_a_lookup_through_a_socket_gets_the_sockets_listener() -> None:
    assert outcome(select(asks(NOWHERE, bind="external"), picture())) == ("external", "bind")


def test_pip_95_an_explicit_listener_name_takes_precedence_over_the_socket() -> None:
    asked = asks(f"{NOWHERE}?listenerName=external", bind="partner")
    assert outcome(select(asked, picture())) == ("external", "query")


def test_pip_95_the_header_counts_when_there_is_no_query_parameter() -> None:
    assert outcome(select(asks(NOWHERE, header="partner"), picture())) == ("partner", "header")
    assert outcome(select(asks(f"{NOWHERE}?listenerName=external", header="partner"), picture())) == (
        "external",
        "query",
    )


def test_pip_95_a_name_that_does_not_match_the_configuration_is_a_bad_request() -> None:
    assert refused(select(asks(NOWHERE, header="nobody"), picture())) == (400, "unknown-listener")


def test_pip_95_primary_addresses_belong_to_no_listener() -> None:
    (primary,) = parse_bind_addresses("http://0.0.0.0:8080")
    assert outcome(select(asks(PARTNERS, bind=primary.listener), picture())) == ("partner", "ingress")
    assert outcome(select(asks(NOWHERE, bind=primary.listener), picture())) == (None, "none")


def test_pip_338_case_1_a_lookup_without_a_listener_gets_the_lookup_listener() -> None:
    assert outcome(select(asks(NOWHERE), picture("lookupListenerName: partner"))) == ("partner", "default")


def test_pip_338_case_2_the_listener_of_the_query_has_priority_over_the_config() -> None:
    asked = asks(f"{NOWHERE}?listenerName=external")
    assert outcome(select(asked, picture("lookupListenerName: partner"))) == ("external", "query")


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("external", "external"),
        ("from-a-socket", "from-a-socket"),
        ("made-up-by-a-client", "other"),
        ("", ""),
        (None, ""),
    ],
)
def test_listener_label_is_other_for_a_name_that_is_not_configured(name: str | None, label: str) -> None:
    assert picture("bindAddresses: from-a-socket:http://0.0.0.0:8080").listener_label(name) == label


SNAPSHOTS = [
    picture(f"clientListenerName: {policy}\nmiss: {miss}\n{rest}")
    for policy in ("honor", "ignore", "reject")
    for miss in ("forward", "reject")
    for rest in (DEFAULT, NO_BOOK, "unknownListener: forward")
]
some_names = st.lists(
    st.sampled_from(["", " ", "internal", "external", "partner", "nobody", "a\r\nb", "é"]), max_size=3
)


@given(
    st.sampled_from(SNAPSHOTS),
    st.sampled_from([PUBLIC, PARTNERS, NOWHERE, f"https://pulsar.example.com{STATS}"]),
    some_names,
    some_names,
    st.none() | st.sampled_from(["internal", "external", "lonely"]),
)
def test_every_selection_is_either_a_hit_that_can_be_sent_or_a_miss_with_a_reason(
    snapshot: Snapshot, url: str, query_names: list[str], header_names: list[str], bind: str | None
) -> None:
    asked = asks(url, bind=bind)
    asked = Request(asked.target, asked.host, None, asked.scheme, bind, tuple(query_names), tuple(header_names))
    selection = select(asked, snapshot)
    assert selection.hit == (selection.reason is None)
    if selection.hit:
        assert selection.refusal is None
        assert selection.listener is not None
        assert selection.listener.isascii()
        assert selection.listener.isprintable()
    # Nobody is let onto the internal listener who did not come through its own socket.
    assert selection.listener != "internal" or bind == "internal"
