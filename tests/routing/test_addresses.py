"""The address book: templates read both ways, and what an authority means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictures import INSIDE, picture

from pulsar_ingress_proxy.routing.addresses import AddressBook, Broker, Entry, Pattern
from pulsar_ingress_proxy.syntax.authorities import Authority, parse_authority
from pulsar_ingress_proxy.syntax.listeners import (
    BINARY_SCHEMES,
    KAFKA_SCHEMES,
    WEB_SCHEMES,
    kind_of,
    parse_advertised_listeners,
)


def authority(text: str) -> Authority:
    parsed = parse_authority(text)
    assert parsed is not None
    return parsed


def name(broker: Broker | None) -> str | None:
    return None if broker is None else broker.name


@pytest.mark.parametrize(
    ("pattern", "text", "values"),
    [
        ("broker-{n}.example", "broker-12.example", {"n": "12"}),
        ("broker-{n}.example", "broker-eu-1a.example", {"n": "eu-1a"}),
        ("broker-{n}.example", "broker-.example", None),
        ("broker-{n}.example", "broker-1.eu.example", None),  # one run: letters, digits, hyphens
        ("broker-{n}.example", "broker-1_2.example", None),
        ("broker-{n}.example", "xbroker-1.example", None),
        ("broker-{n}.example", "broker-1.examples", None),
        ("broker-{n}.example", "broker-1xexample", None),  # a dot is a dot
        ("b-{n}.{n}.example", "b-1.1.example", {"n": "1"}),
        ("b-{n}.{n}.example", "b-1.2.example", None),
        ("{pod}.{zone}.example", "b0.eu.example", {"pod": "b0", "zone": "eu"}),
        ("nodes:{n+6651}", "nodes:6653", {"n": "2"}),
        ("nodes:{n+6651}", "nodes:6650", None),
        ("nodes:{n+6651}", "nodes:06653", None),
        ("b-{n}:{n+6651}", "b-2:6653", {"n": "2"}),
        ("b-{n}:{n+6651}", "b-002:6653", {"n": "002"}),
        ("b-{n}:{n+6651}", "b-2:6654", None),
        ("b-{n}:{n+6651}", "b-x:6653", None),
        ("{n+1}.{n+2}", "1.2", {"n": "0"}),
        ("{n+1}.{n+2}", "1.3", None),
        ("plain.example:80", "plain.example:80", {}),
    ],
)
def test_pattern_match_returns_the_variable_values_or_none(
    pattern: str, text: str, values: dict[str, str] | None
) -> None:
    assert Pattern(pattern).match(text) == values


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"n": "2"}, "b-2:6653"),
        ({"n": "02"}, "b-02:6653"),
        ({"n": "x"}, None),
        ({"n": "²"}, None),
        ({"n": "-1"}, None),
        ({"n": "9" * 5000}, None),
    ],
)
def test_pattern_with_a_sum_is_not_filled_with_nondigits_or_too_many_digits(
    values: dict[str, str], text: str | None
) -> None:
    assert Pattern("b-{n}:{n+6651}").fill(values) == text


words = st.from_regex(r"[A-Za-z0-9-]{1,8}", fullmatch=True)
numbers = st.integers(0, 999_999_999).map(str)


@st.composite
def filled(draw: st.DrawFn) -> tuple[str, dict[str, str]]:
    """A pattern whose parts stand apart, and values for its variables."""
    variable, addend = st.sampled_from(["n", "pod", "zone"]), st.none() | st.integers(0, 99_999)
    parts = draw(st.lists(st.tuples(variable, addend), min_size=1, max_size=5))
    summed = {name for name, addend in parts if addend is not None}
    values = {name: draw(numbers if name in summed else words) for name in sorted({name for name, _ in parts})}
    holes = [f"{{{name}}}" if addend is None else f"{{{name}+{addend}}}" for name, addend in parts]
    return ".".join([draw(words), *holes]) + draw(st.sampled_from(["", ".svc", ":80"])), values


@given(filled())
def test_pattern_match_recovers_the_values_it_was_filled_with(case: tuple[str, dict[str, str]]) -> None:
    text, values = case
    pattern = Pattern(text)
    made = pattern.fill(values)
    assert made is not None
    assert pattern.match(made) == values


@given(filled(), st.text(alphabet="019ab-.:", max_size=20))
def test_matched_values_fill_the_pattern_to_the_same_text(case: tuple[str, dict[str, str]], text: str) -> None:
    pattern = Pattern(case[0].partition(".")[2])
    values = pattern.match(text)
    assert values is None or pattern.fill(values) == text


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"pulsar-broker-7.{INSIDE}", id="its name"),
        pytest.param(f"pulsar-broker-7.{INSIDE}:8080", id="its name with the port of a listener"),
        pytest.param(f"pulsar-broker-7.{INSIDE}:1234", id="its name with any port, as the entry has none"),
        pytest.param(f"PULSAR-broker-7.{INSIDE.upper()}.", id="its name in capitals, with the root's dot"),
        pytest.param("broker-7.pulsar.example.com", id="its https address, the port filled in"),
        pytest.param("broker-7.pulsar.example.com:443", id="its https address with the port"),
        pytest.param("broker-7.partner.example:8080", id="its address on another listener"),
        pytest.param("broker-7.partner.example:8443", id="its other address there"),
    ],
)
def test_authority_resolves_to_a_broker_by_its_name_and_by_each_of_its_web_urls(text: str) -> None:
    assert name(picture().book.resolve(authority(text), 443)) == f"pulsar-broker-7.{INSIDE}"


@pytest.mark.parametrize(
    ("text", "schemes", "is_meant"),
    [
        ("broker-7.pulsar.example.com:443", WEB_SCHEMES, True),
        ("broker-7.pulsar.example.com:443", BINARY_SCHEMES, False),
        ("broker-7.pulsar.example.com:6658", WEB_SCHEMES, False),
        ("broker-7.pulsar.example.com:6658", BINARY_SCHEMES, True),
        (f"pulsar-broker-7.{INSIDE}:1234", BINARY_SCHEMES, True),
    ],
)
def test_web_addresses_are_compared_with_web_addresses_only_and_binary_with_binary(
    text: str, schemes: tuple[str, str], is_meant: bool
) -> None:
    expected = f"pulsar-broker-7.{INSIDE}" if is_meant else None
    assert name(picture().book.resolve(authority(text), 0, schemes)) == expected


@pytest.mark.parametrize(
    ("schemes", "is_meant"), [(WEB_SCHEMES, False), (BINARY_SCHEMES, False), (KAFKA_SCHEMES, True)]
)
def test_kafka_address_of_a_broker_means_it_to_kafka_clients_only(schemes: tuple[str, str], is_meant: bool) -> None:
    listeners = parse_advertised_listeners("external:http://b.example,external:kafka://k.example:9092")
    found = AddressBook([Entry("b", listeners)])
    assert name(found.resolve(authority("k.example:9092"), 0, schemes)) == ("b" if is_meant else None)
    assert name(found.pinned("external", authority("k.example:9092"), schemes)) == ("b" if is_meant else None)


PORTS = """
advertisedListeners:
  - broker: b-{n}.svc
    listeners: >-
      internal:http://b-{n}.svc:8080, internal:pulsar://b-{n}.svc:6650,
      external:http://gw.example.com:{n+8080}, external:pulsar://gw.example.com:{n+6650}
"""
PORTS_BOOK = picture(PORTS).book


@given(st.integers(0, 9_999))
def test_web_and_binary_ports_of_templates_on_one_host_do_not_mix(n: int) -> None:
    for scheme, port in (("http", 8080), ("pulsar", 6650)):
        broker = PORTS_BOOK.resolve(Authority("gw.example.com", n + port), 0, kind_of(scheme))
        assert broker is not None
        assert broker.name == f"b-{n}.svc"
        assert not PORTS_BOOK.is_shared(broker, broker.listeners["external"][scheme])


@pytest.mark.parametrize(
    "text",
    [
        "broker-7.pulsar.example.com:80",
        "broker-7.pulsar.example.com:6659",  # the port of the eighth
        "broker-7.partner.example:443",
        "pulsar.example.com",
        f"x.pulsar-broker-7.{INSIDE}",
        f"pulsar-broker-.{INSIDE}",
        "pulsar-broker-7",
    ],
)
def test_authority_that_no_broker_has_resolves_to_none(text: str) -> None:
    assert picture().book.resolve(authority(text), 443) is None


def test_broker_named_with_a_port_is_resolved_with_that_port_only() -> None:
    book = picture("advertisedListeners: [{broker: 'b0:8080', listeners: 'external:https://e0.example'}]").book
    assert name(book.resolve(authority("b0:8080"), 80)) == "b0:8080"
    assert name(book.resolve(authority("b0"), 8080)) == "b0:8080"
    assert book.resolve(authority("b0:8081"), 80) is None
    assert book.resolve(authority("b0"), 80) is None


def test_authority_of_two_brokers_resolves_to_neither() -> None:
    book = picture(
        """
        advertisedListeners:
          - {broker: b0, listeners: "internal:http://b0:8080,external:https://pulsar.example.com"}
          - {broker: b1, listeners: "internal:http://b1:8080,external:https://pulsar.example.com"}
        """
    ).book
    assert book.resolve(authority("pulsar.example.com"), 443) is None
    assert name(book.resolve(authority("b1:8080"), 80)) == "b1"
    assert book.is_web_address("external", authority("pulsar.example.com"), 443)


SHARED = """
advertisedListeners:
  - broker: b{n}
    listeners: internal:http://b{n}:8080,external:https://pulsar.example.com,partner:http://b{n}.partner.example
"""


def test_address_shared_by_brokers_of_a_template_resolves_and_pins_to_none() -> None:
    book = picture(SHARED).book
    assert book.resolve(authority("pulsar.example.com"), 443) is None
    assert book.pinned("external", authority("pulsar.example.com:443")) is None


def test_only_template_addresses_without_a_variable_are_shared() -> None:
    book = picture(SHARED).book
    broker = book.resolve(authority("b1"), 80)
    assert broker is not None
    shared = {listener: book.is_shared(broker, *urls.values()) for listener, urls in broker.listeners.items()}
    assert shared == {"internal": False, "external": True, "partner": False}


def test_broker_with_its_own_earlier_line_is_excluded_from_the_template() -> None:
    book = picture(
        """
        advertisedListeners:
          - {broker: b0.svc, listeners: "external:https://special.example"}
          - {broker: "b{n}.svc", listeners: "external:https://b{n}.example"}
        """
    ).book
    named = book.resolve(authority("b0.svc"), 80)
    assert named is not None
    assert str(named.web_url("external", "https")) == "https://special.example"
    assert book.resolve(authority("b0.example"), 443) is None
    assert name(book.resolve(authority("b1.example"), 443)) == "b1.svc"


def test_broker_name_ignores_case_and_trailing_dot() -> None:
    book = picture(
        "advertisedListeners: [{broker: 'B{N}.Corp.Example.', listeners: 'external:http://B{N}.example'}]"
    ).book
    assert name(book.resolve(authority("b1.corp.example"), 80)) == "b1.corp.example"
    assert name(book.resolve(authority("b1.example"), 80)) == "b1.corp.example"


@pytest.mark.parametrize("n", ["abc", "-5", "1-2", "65536", "9" * 5000])
def test_template_values_that_give_no_valid_port_resolve_to_no_broker(n: str) -> None:
    book = picture("advertisedListeners: [{broker: 'b-{n}', listeners: 'external:http://nodes.example:{n}'}]").book
    assert book.resolve(Authority(f"b-{n}", None), 80) is None
    assert name(book.resolve(authority("b-65535"), 80)) == "b-65535"


def test_template_values_that_give_no_valid_host_resolve_to_no_broker() -> None:
    book = picture("advertisedListeners: [{broker: 'b-{n}', listeners: 'external:http://node{n+1}.example'}]").book
    assert book.resolve(authority("b-abc"), 80) is None
    assert name(book.resolve(authority("node8.example"), 80)) == "b-7"


@pytest.mark.parametrize(
    ("listener", "host", "broker"),
    [
        pytest.param("external", "broker-1.pulsar.example.com:443", 1, id="its web address"),
        pytest.param("external", "broker-1.pulsar.example.com:8443", 1, id="a port that the gateway changed"),
        pytest.param("partner", "broker-1.partner.example:8080", 1, id="one of two web addresses"),
        pytest.param("external", "broker-1.partner.example:8080", None, id="an address of another listener"),
        pytest.param(
            "external", f"pulsar-broker-1.{INSIDE}:8080", None, id="its own name is no address of the listener"
        ),
        pytest.param("external", "pulsar.example.com:443", None, id="nobody's"),
    ],
)
def test_a_host_pins_a_request_to_the_broker_whose_web_address_it_is(
    listener: str, host: str, broker: int | None
) -> None:
    expected = None if broker is None else f"pulsar-broker-{broker}.{INSIDE}"
    assert name(picture().book.pinned(listener, authority(host))) == expected


def test_port_pins_the_broker_when_only_ports_differ_and_an_unknown_port_pins_none() -> None:
    book = picture("advertisedListeners: [{broker: 'b{n}', listeners: 'external:http://nodes.example:{n+30080}'}]").book
    assert name(book.pinned("external", authority("nodes.example:30081"))) == "b1"
    assert book.pinned("external", authority("nodes.example:80")) is None


def test_binary_address_neither_pins_a_web_request_nor_is_a_web_address() -> None:
    book = picture("advertisedListeners: [{broker: b0, listeners: 'external:pulsar://b0.example:6650'}]").book
    assert book.pinned("external", authority("b0.example:6650")) is None
    assert not book.is_web_address("external", authority("b0.example:6650"), 80)


@pytest.mark.parametrize(
    ("listener", "scheme", "url"),
    [
        ("partner", "http", "http://broker-0.partner.example:8080"),
        ("partner", "https", "https://broker-0.partner.example:8443"),
        ("external", "http", "https://broker-0.pulsar.example.com"),
        ("internal", "https", f"http://pulsar-broker-0.{INSIDE}:8080"),
        ("unheard-of", "http", None),
    ],
)
def test_a_web_url_has_the_scheme_asked_for_where_there_is_a_choice(
    listener: str, scheme: str, url: str | None
) -> None:
    broker = picture().book.resolve(authority(f"pulsar-broker-0.{INSIDE}"), 80)
    assert broker is not None
    found = broker.web_url(listener, scheme)
    assert (None if found is None else str(found)) == url


@pytest.mark.parametrize(
    ("broker", "suffixes"),
    [
        (f"pulsar-broker-{{n}}.{INSIDE}", {INSIDE, "cluster.local"}),
        ("b{n}.pulsar.svc.k8s.corp.example:8080", {"pulsar.svc.k8s.corp.example", "k8s.corp.example"}),
        ("b0.corp.example", {"corp.example"}),
        ("b0", set()),
        ("b0.example", set()),  # a top-level domain is nobody's own
        ("[fd00::1]:8080", set()),
    ],
)
def test_domains_of_the_brokers_and_of_the_cluster_are_internal(broker: str, suffixes: set[str]) -> None:
    line = f"advertisedListeners: [{{broker: '{broker}', listeners: 'external:https://e.example'}}]"
    assert picture(line).inside_suffixes == suffixes


def test_address_book_lists_the_listeners_of_all_its_lines() -> None:
    book = picture(
        """
        advertisedListeners:
          - {broker: b0, listeners: "internal:http://b0:8080"}
          - {broker: b1, listeners: ["external:http://b1.example", "partner:http://b1.partner.example"]}
        """
    ).book
    assert book.listeners == {"internal", "external", "partner"}


BOOK = picture().book


@given(st.integers(0, 9_999))
def test_every_address_of_a_broker_resolves_to_that_broker(n: int) -> None:
    broker = BOOK.resolve(Authority(f"pulsar-broker-{n}.{INSIDE}", None), 80)
    assert broker is not None
    for listener, urls in broker.listeners.items():
        for url in urls.values():
            assert BOOK.resolve(Authority(url.host, int(url.port)), 0, kind_of(url.scheme)) == broker
            assert broker.is_at(listener, url.authority, kind_of(url.scheme))


@given(
    st.from_regex(r"(pulsar-)?broker-[a-z0-9._-]{0,12}(\.pulsar\.example\.com)?", fullmatch=True), st.integers(0, 65535)
)
def test_resolved_broker_has_exactly_the_name_or_address_asked_for(host: str, port: int) -> None:
    broker = BOOK.resolve(Authority(host, port or None), 443)
    if broker is not None:
        addresses = {url.authority for urls in broker.listeners.values() for url in urls.values()}
        assert host == broker.name or f"{host}:{port or 443}" in addresses
