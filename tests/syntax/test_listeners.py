"""Listener syntax: PIP-61's advertisedListeners, PIP-95's bindAddresses, and the URLs in both.

The numbered examples are one table over the rules of MultipleListenerValidator and BindAddressValidator in Pulsar 5.x.
Four of them differ here on purpose: 13, 23 and 29 are faults, and 37 is a socket without a name.
"""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ingress_proxy.syntax.listeners import (
    DEFAULT_PORTS,
    BindAddress,
    ServiceUrl,
    SyntaxFaults,
    check_name,
    is_host,
    parse_advertised_listeners,
    parse_bind_addresses,
    parse_service_url,
)

Written = Mapping[str, Mapping[str, str]]

# Text in which the syntax's own characters meet often.
SYNTAX = st.text(alphabet="aZ09é²-_.:/,+{}[]? \t", max_size=30)


def written(listeners: Mapping[str, Mapping[str, ServiceUrl]]) -> Written:
    return {name: {scheme: str(url) for scheme, url in urls.items()} for name, urls in listeners.items()}


def numbered(*cases: tuple[int, str, object]) -> list[object]:
    return [pytest.param(value, expected, id=f"example-{number}") for number, value, expected in cases]


@pytest.mark.parametrize(
    ("value", "expected"),
    numbered(
        (1, "", {}),
        (2, "internal:pulsar://b0:6650", {"internal": {"pulsar": "pulsar://b0:6650"}}),
        (
            3,
            "internal:pulsar://b0:6650,external:pulsar+ssl://e0:6651",
            {"internal": {"pulsar": "pulsar://b0:6650"}, "external": {"pulsar+ssl": "pulsar+ssl://e0:6651"}},
        ),
        (
            4,
            "internal:pulsar://b0:6650,internal:pulsar+ssl://b0:6651",
            {"internal": {"pulsar": "pulsar://b0:6650", "pulsar+ssl": "pulsar+ssl://b0:6651"}},
        ),
        (
            5,
            "internal:pulsar://b0:6650,internal:pulsar+ssl://b0:6651,internal:http://b0:8080",
            {
                "internal": {
                    "pulsar": "pulsar://b0:6650",
                    "pulsar+ssl": "pulsar+ssl://b0:6651",
                    "http": "http://b0:8080",
                }
            },
        ),
        (
            6,
            "a:pulsar://h:1,a:pulsar+ssl://h:2,a:http://h:3,a:https://h:4",
            {
                "a": {
                    "pulsar": "pulsar://h:1",
                    "pulsar+ssl": "pulsar+ssl://h:2",
                    "http": "http://h:3",
                    "https": "https://h:4",
                }
            },
        ),
        (9, "a:pulsar://h:1,a:http://h:1", {"a": {"pulsar": "pulsar://h:1", "http": "http://h:1"}}),
        (16, "ext-eu_1:pulsar://h:1", {"ext-eu_1": {"pulsar": "pulsar://h:1"}}),
        (17, " a : pulsar://h:1 , b:pulsar://h:2", {"a": {"pulsar": "pulsar://h:1"}, "b": {"pulsar": "pulsar://h:2"}}),
        (18, "a:pulsar://h:1,,b:pulsar://h:2,", {"a": {"pulsar": "pulsar://h:1"}, "b": {"pulsar": "pulsar://h:2"}}),
        (19, "a:pulsar://h:1, ", {"a": {"pulsar": "pulsar://h:1"}}),
        (23, "a:kafka://h:9092", {"a": {"kafka": "kafka://h:9092"}}),
        (24, "a:PULSAR://h:1", {"a": {"pulsar": "pulsar://h:1"}}),
        (25, "a:pulsar://[::1]:6650", {"a": {"pulsar": "pulsar://[::1]:6650"}}),
        (27, "external:pulsar://e:1", {"external": {"pulsar": "pulsar://e:1"}}),
    ),
)
def test_valid_advertised_listeners_are_parsed_by_name_and_scheme(value: str, expected: Written) -> None:
    assert written(parse_advertised_listeners(value)) == expected


@pytest.mark.parametrize(
    ("value", "fault"),
    numbered(
        (
            7,
            "a:pulsar://h:1,a:pulsar://h:2",
            "listener 'a' has two pulsar URLs: keep one of pulsar://h:1, pulsar://h:2",
        ),
        (8, "a:pulsar://h:1,b:pulsar://h:1", "h:1 is in two listeners, 'a' and 'b': give each its own"),
        (10, "a:pulsar://h,b:pulsar://h", "h:6650 is in two listeners, 'a' and 'b': give each its own"),
        (11, "external", "'external' has no listener name: write NAME:scheme://host:port"),
        (12, ":pulsar://h:1", "':pulsar://h:1' has no listener name: write NAME:scheme://host:port"),
        (13, "pulsar://h:6650", "'pulsar://h:6650' has no listener name: write NAME:pulsar://h:6650"),
        (14, "pulsar+ssl://h:6651", "'pulsar+ssl://h:6651' has no listener name: write NAME:pulsar+ssl://h:6651"),
        (15, "ext.eu:pulsar://h:1", "'ext.eu' is not a listener name: use letters, digits, hyphens and underscores"),
        (
            20,
            "a:pulsar://broker_0:6650",
            "'pulsar://broker_0:6650' has no valid host: letters, digits, hyphens and dots, or [IPv6]",
        ),
        (
            21,
            "a:pulsar://b_0:1,b:pulsar://b_1:2",
            "'pulsar://b_0:1' has no valid host: letters, digits, hyphens and dots, or [IPv6]\n"
            "'pulsar://b_1:2' has no valid host: letters, digits, hyphens and dots, or [IPv6]",
        ),
        (22, "a:h:6650", "'h:6650' is not a URL: write scheme://host:port, with no path, user or query"),
        (
            26,
            "a:pulsar://h x:1",
            "'pulsar://h x:1' has no valid host: letters, digits, hyphens and dots, or [IPv6]",
        ),
        (29, "a:pulsar://h:99999", "'pulsar://h:99999' has the port 99999: the highest is 65535"),
    ),
)
def test_faults_in_advertised_listeners_say_what_would_be_right(value: str, fault: str) -> None:
    with pytest.raises(SyntaxFaults) as raised:
        parse_advertised_listeners(value)
    assert str(raised.value) == fault


@pytest.mark.parametrize(
    ("value", "expected"),
    numbered(
        (30, "external:pulsar://0.0.0.0:6652", [BindAddress("external", "pulsar", "0.0.0.0", 6652)]),
        (31, "ext-1:pulsar://0.0.0.0:6652", [BindAddress("ext-1", "pulsar", "0.0.0.0", 6652)]),
        (
            32,
            "a:pulsar://0.0.0.0:6652, b:pulsar://0.0.0.0:6653",
            [BindAddress("a", "pulsar", "0.0.0.0", 6652), BindAddress("b", "pulsar", "0.0.0.0", 6653)],
        ),
        (33, "external:http://0.0.0.0:8081", [BindAddress("external", "http", "0.0.0.0", 8081)]),
        (
            36,
            "a:pulsar://0.0.0.0:8081,a:http://0.0.0.0:8081",
            [BindAddress("a", "pulsar", "0.0.0.0", 8081), BindAddress("a", "http", "0.0.0.0", 8081)],
        ),
        (37, "pulsar://0.0.0.0:6652", [BindAddress(None, "pulsar", "0.0.0.0", 6652)]),
    ),
)
def test_valid_bind_addresses_are_parsed_with_or_without_a_listener_name(
    value: str, expected: list[BindAddress]
) -> None:
    assert list(parse_bind_addresses(value)) == expected


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        *numbered(
            (
                34,
                "a:pulsar://0.0.0.0:6652,b:pulsar://0.0.0.0:6652",
                "0.0.0.0:6652 is bound for two listeners: a:pulsar://0.0.0.0:6652 and b:pulsar://0.0.0.0:6652",
            ),
            (
                35,
                "a:pulsar://0.0.0.0:6652,a:pulsar+ssl://0.0.0.0:6652",
                "0.0.0.0:6652 is bound for two schemes: a:pulsar://0.0.0.0:6652 and a:pulsar+ssl://0.0.0.0:6652",
            ),
        ),
        pytest.param(
            "http://0.0.0.0:8080,a:http://0.0.0.0:8080",
            "0.0.0.0:8080 is bound for two listeners: http://0.0.0.0:8080 and a:http://0.0.0.0:8080",
            id="with and without a name",
        ),
        pytest.param(
            "a b:http://0.0.0.0:8080",
            "'a b' is not a listener name: use letters, digits, hyphens and underscores",
            id="no name of a listener",
        ),
        pytest.param(
            "http://0.0.0.0:{n+8080}",
            "'http://0.0.0.0:{n+8080}' has the port '{n+8080}': use a number",
            id="no templates here",
        ),
        pytest.param(
            "a:kafka://0.0.0.0:9092",
            "'kafka://0.0.0.0:9092' has the unknown scheme 'kafka': use one of pulsar, pulsar+ssl, http, https",
            id="only doctor connects to Kafka listeners",
        ),
        pytest.param(
            "http://:8080",
            "'http://:8080' has no valid host: letters, digits, hyphens and dots, or [IPv6]",
            id="every interface is 0.0.0.0, not nothing",
        ),
    ],
)
def test_faults_in_bind_addresses_are_refused_with_the_reason(value: str, fault: str) -> None:
    with pytest.raises(SyntaxFaults) as raised:
        parse_bind_addresses(value)
    assert str(raised.value) == fault


def test_a_socket_named_twice_for_one_listener_is_one_socket() -> None:
    assert len(parse_bind_addresses("a:http://0.0.0.0:8080,a:http://0.0.0.0:8080")) == 1


def test_port_0_is_another_socket_each_time_and_so_no_conflict_of_schemes() -> None:
    assert len(parse_bind_addresses("http://127.0.0.1:0,https://127.0.0.1:0")) == 2


def test_a_list_of_bind_addresses_is_read_like_the_comma_separated_text() -> None:
    parts = [" http://0.0.0.0:8080 ", " external : https://0.0.0.0:8443 ", "external:pulsar://[::]:6650"]
    assert parse_bind_addresses(parts) == parse_bind_addresses(",".join(parts))


def test_every_fault_of_a_value_is_reported() -> None:
    with pytest.raises(SyntaxFaults) as raised:
        parse_advertised_listeners("a:pulsar://h:1,b,c:ftp://h:3,d:pulsar://h:1,d:http://h:x")
    assert [fault.partition(" ")[0] for fault in raised.value.faults] == ["'b'", "'ftp://h:3'", "h:1", "'http://h:x'"]


@pytest.mark.parametrize(
    ("text", "authority", "shown"),
    [
        ("pulsar://b0", "b0:6650", "pulsar://b0:6650"),
        ("pulsar+ssl://b0", "b0:6651", "pulsar+ssl://b0:6651"),
        ("http://b0", "b0:80", "http://b0"),
        ("https://b0", "b0:443", "https://b0"),
        ("https://b0:443", "b0:443", "https://b0:443"),
        ("HTTPS://B0.Example.COM.:8443/", "b0.example.com:8443", "https://b0.example.com:8443"),
        ("http://[FE80::1]:8080", "[fe80::1]:8080", "http://[fe80::1]:8080"),
        ("http://b0:0080", "b0:80", "http://b0:80"),
        ("http://b0:65535", "b0:65535", "http://b0:65535"),
    ],
)
def test_a_service_url_has_its_default_port_and_shows_what_was_written(text: str, authority: str, shown: str) -> None:
    url = parse_service_url(text)
    assert (url.authority, str(url)) == (authority, shown)


def test_a_port_written_out_is_the_same_address_as_the_default_one() -> None:
    assert parse_service_url("https://b0:443") == parse_service_url("https://b0")


@pytest.mark.parametrize(
    "text",
    [
        "http://user@b0:8080", "http://b0:8080/path", "http://b0?x", "http://b0#x", "http://b0:", "http://b0:-1",
        "http://b0:65536", "http://b0:٨٠", "http://", "//b0:8080", "b0:8080", "http:/b0", "http://[::1", "http://::1",
        "http://[b0]:80", "http://b{n}:80", "http://b0:{n}", "kafka://b0:9092",
    ],
)  # fmt: skip
def test_invalid_service_url_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="'"):
        parse_service_url(text)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("https://broker-{n}.example.com", "broker-{n}.example.com", "443"),
        ("pulsar://{Pod}.example.com:{N+6651}", "{pod}.example.com", "{n+6651}"),
        ("http://nodes.example.com:{n}", "nodes.example.com", "{n}"),
    ],
)
def test_a_template_has_variables_in_host_and_port(text: str, host: str, port: str) -> None:
    url = parse_service_url(text, template=True)
    assert (url.host, url.port) == (host, port)


@pytest.mark.parametrize(
    "text", ["http://b{}:1", "http://b{n-1}:1", "http://b:{n+}", "http://b:8{n}", "http://b{n²}:1"]
)
def test_invalid_url_template_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="'"):
        parse_service_url(text, template=True)


@pytest.mark.parametrize("host", ["b", "b-1", "0b", "1b.x", "a.b1", "a.", "xn--a", "a--b", "1.2.3.4", "[::1]"])
def test_hosts_that_java_net_uri_accepts_are_valid(host: str) -> None:
    assert is_host(host)


@pytest.mark.parametrize(
    "host",
    ["", ".", "a_b", "-x", "x.y-", "a-.b", "a..b", "a.1", "a.1x", "1.2.3", "256.1.1.1", "1.2.3.4.", "[::1", "[x]", "é"],
)
def test_hosts_that_java_net_uri_rejects_are_invalid(host: str) -> None:
    assert not is_host(host)


@pytest.mark.parametrize("name", ["", " ", "a b", "a.b", "a:b", "é", "a\n", "²"])
def test_invalid_listener_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a listener name"):
        check_name(name)


names = st.from_regex(r"[A-Za-z0-9_-]{1,12}", fullmatch=True)
hosts = st.from_regex(r"([a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?\.){0,3}[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
blanks = st.sampled_from(["", " ", "\t", "  "])


@st.composite
def advertised(draw: st.DrawFn) -> tuple[str, Written]:
    """A valid value as a careless person would space it, and what it says."""
    listeners = draw(st.dictionaries(names, st.sets(st.sampled_from(sorted(DEFAULT_PORTS)), min_size=1), max_size=4))
    ports = iter(range(1, 65536))
    expected = {
        name: {scheme: f"{scheme}://{draw(hosts)}:{next(ports)}" for scheme in sorted(schemes)}
        for name, schemes in listeners.items()
    }
    parts = [f"{name}{draw(blanks)}:{draw(blanks)}{url}" for name, urls in expected.items() for url in urls.values()]
    return ",".join(draw(blanks) + part + draw(st.sampled_from(["", " ", ",", " , "])) for part in parts), expected


@given(advertised())
def test_any_valid_advertised_listeners_are_read_as_they_were_meant(case: tuple[str, Written]) -> None:
    text, expected = case
    assert written(parse_advertised_listeners(text)) == expected


@given(SYNTAX)
def test_any_advertised_listeners_are_refused_or_read_the_same_when_written_again(text: str) -> None:
    try:
        listeners = parse_advertised_listeners(text)
    except SyntaxFaults:
        return
    again = ",".join(f"{name}:{url}" for name, urls in listeners.items() for url in urls.values())
    assert parse_advertised_listeners(again) == listeners


@given(st.builds("{}://{}{}{}".format, st.sampled_from([*DEFAULT_PORTS, "ftp"]), SYNTAX, st.just(":"), SYNTAX) | SYNTAX)
def test_a_service_url_that_is_read_reads_the_same_when_written_again(text: str) -> None:
    try:
        url = parse_service_url(text)
    except ValueError:
        return
    assert parse_service_url(str(url)) == url
    assert is_host(url.host)
    assert 0 <= int(url.port) <= 65535


@given(st.lists(st.tuples(st.none() | names, st.sampled_from(sorted(DEFAULT_PORTS)), hosts), max_size=5))
def test_bind_addresses_read_the_same_when_written_again(sockets: list[tuple[str | None, str, str]]) -> None:
    addresses = tuple(BindAddress(name, scheme, host, 8000 + n) for n, (name, scheme, host) in enumerate(sockets))
    assert parse_bind_addresses(", ".join(map(str, addresses))) == addresses


@given(SYNTAX)
def test_any_bind_addresses_are_refused_or_read_the_same_when_written_again(text: str) -> None:
    try:
        addresses = parse_bind_addresses(text)
    except SyntaxFaults:
        return
    assert parse_bind_addresses(",".join(map(str, addresses))) == addresses
