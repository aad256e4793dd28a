"""Hosts, authorities and Locations as they stand in headers."""

import ipaddress
import re
import socket
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pulsar_ingress_proxy.syntax.authorities import (
    _BLOCKS,
    Authority,
    Location,
    Networks,
    client_class,
    forwarded_client,
    host_matches,
    is_relative,
    looks_inside,
    parse_address,
    parse_authority,
    parse_location,
)

TEXT = st.text(alphabet="aZ09_-.:[]@/\\?#% \r\n\x00é", max_size=20)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("pulsar.example.com", "pulsar.example.com", None),
        ("Pulsar.Example.COM.:8443", "pulsar.example.com", 8443),
        ("pulsar:", "pulsar", None),  # RFC 3986 3.2.3: the port may be empty
        ("my_gateway:80", "my_gateway", 80),
        ("10.0.0.1:08080", "10.0.0.1", 8080),
        ("[FD00::1]", "[fd00::1]", None),
        ("[::ffff:10.0.0.1]:443", "[::ffff:10.0.0.1]", 443),
        ("b0:0", "b0", 0),
        ("b0:65535", "b0", 65535),
    ],
)
def test_an_authority_is_a_host_in_lower_case_and_a_port(text: str, host: str, port: int | None) -> None:
    assert parse_authority(text) == Authority(host, port)


@pytest.mark.parametrize(
    "text",
    [
        "", ".", "..", "a..", ".a", "a..b", ":80", "a:b", "a:65536", "a:123456", "a:-1", "a:80:80", "a:٨٠",
        "user@a", "a/b", "a?b", "a#b", "a b", " a", "a ", "a\r\nX: y", "a\x00", "a,b", "a%2eb", "a\\b",
        "::1", "[::1", "[a]b", "[]", "*.example.com", "é.example",
    ],
)  # fmt: skip
def test_invalid_authority_is_not_parsed(text: str) -> None:
    assert parse_authority(text) is None


@given(TEXT)
@example("a..")
def test_parsed_authority_reads_the_same_when_written_again(text: str) -> None:
    authority = parse_authority(text)
    assert authority is None or parse_authority(str(authority)) == authority


def is_valid(authority: Authority) -> bool:
    """Whether its host has no other characters than a host may have, and its port is one."""
    host_characters = r"\[[0-9a-f:.]+\]|[a-z0-9_-]+(\.[a-z0-9_-]+)*"
    has_port = authority.port is None or 0 <= authority.port <= 65535
    return re.fullmatch(host_characters, authority.host, re.ASCII) is not None and has_port


@given(st.builds("{}{}".format, st.sampled_from(["", "http://", "HTTPS://b0", "/", "b0:"]), TEXT | st.text()))
@example("b0:65535")
@example("b0:65536")
@example("http://[::1]:8080/x")
@example("http://b0:99999/x")
@example("/x")
def test_header_parsers_give_only_valid_hosts_and_ports_for_any_text(text: str) -> None:
    authority, location = parse_authority(text), parse_location(text)
    assert authority is None or is_valid(authority)
    if location is not None:
        assert location.scheme in ("http", "https")
        assert is_valid(location.authority)
        assert 0 <= location.port <= 65535
        assert location.target.startswith("/")
        assert not re.search(r"[\x00-\x20\x7f]", location.target + location.fragment)
        assert authority is None
        assert not is_relative(text)
    assert not is_relative(text) or (text[0] == "/" and authority is None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "http://b0:8080/lookup/v2/topic/persistent/a/b/c%2Fd?authoritative=true&x=%20",
            Location("http", Authority("b0", 8080), "/lookup/v2/topic/persistent/a/b/c%2Fd?authoritative=true&x=%20"),
            id="path and query byte for byte",
        ),
        pytest.param(
            "HTTPS://B0.:443/A", Location("https", Authority("b0", 443), "/A"), id="case counts in paths only"
        ),
        pytest.param("http://b0", Location("http", Authority("b0", None), "/"), id="no path is the root"),
        pytest.param("http://b0?x=1", Location("http", Authority("b0", None), "/?x=1"), id="a query alone"),
        pytest.param("http://b0/a?b#c?d", Location("http", Authority("b0", None), "/a?b", "#c?d"), id="a fragment"),
        pytest.param("http://b0/\xe9", Location("http", Authority("b0", None), "/\xe9"), id="bytes above ASCII"),
        pytest.param("http://[::1]:80/", Location("http", Authority("[::1]", 80), "/"), id="IPv6"),
        pytest.param("/lookup", None, id="a path"),
        pytest.param("//b0/lookup", None, id="a host without a scheme"),
        pytest.param("pulsar://b0:6650", None, id="another scheme"),
        pytest.param("javascript:alert(1)", None, id="no host at all"),
        pytest.param("http:///x", None, id="an empty host"),
        pytest.param("http://user:secret@b0/", None, id="a user"),
        pytest.param("http://b0\\@evil.example/", None, id="a backslash"),
        pytest.param("http://b0/a b", None, id="a space"),
        pytest.param("http://b0/\r\nSet-Cookie: x", None, id="a second header"),
        pytest.param("http://b0:99999/", None, id="an impossible port"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_location_is_split_into_its_parts_and_an_invalid_one_is_not_parsed(
    text: str, expected: Location | None
) -> None:
    assert parse_location(text) == expected


@pytest.mark.parametrize(
    ("text", "address"), [("http://b0/", "b0:80"), ("https://b0/", "b0:443"), ("https://b0:8080/", "b0:8080")]
)
def test_a_location_has_the_default_port_of_its_scheme(text: str, address: str) -> None:
    location = parse_location(text)
    assert location is not None
    assert location.address == address


visible = st.text(alphabet=st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=20)


@given(
    st.sampled_from(["http", "https", "HTTP"]),
    st.from_regex(r"[a-zA-Z0-9_-]{1,9}(\.[a-zA-Z0-9-]{1,9}){0,2}\.?", fullmatch=True),
    st.none() | st.integers(0, 65535),
    visible.map(lambda text: "/" + text.replace("#", "")),
    st.just("") | visible.map(lambda text: "#" + text),
)
def test_location_parses_back_to_the_parts_it_was_built_from(
    scheme: str, host: str, port: int | None, target: str, fragment: str
) -> None:
    location = parse_location(f"{scheme}://{host}{'' if port is None else f':{port}'}{target}{fragment}")
    authority = Authority(host.lower().removesuffix("."), port)
    assert location == Location(scheme.lower(), authority, target, fragment)


@pytest.mark.parametrize("text", ["/", "/lookup?x=1", "/a//b", "/a:b"])
def test_location_that_is_a_plain_path_is_relative(text: str) -> None:
    assert is_relative(text)


@pytest.mark.parametrize("text", ["//evil.example/", "/\\evil.example/", "http://b0/", "", "a", "/a\r\nb", "/a b"])
def test_location_that_may_lead_to_another_host_or_is_malformed_is_not_relative(text: str) -> None:
    assert not is_relative(text)


@pytest.mark.parametrize(
    "host",
    [
        "10.1.2.3", "172.16.0.1", "192.168.0.1", "127.0.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
        "[::1]", "[fd00::1]", "[fe80::1]", "[::ffff:10.0.0.1]",
        "pulsar-broker", "localhost", "x.localhost",
        "pulsar.default.svc", "printer.local", "pulsar.default.svc.cluster.local", "metadata.google.internal",
        "corp.example", "x.corp.example",
    ],
)  # fmt: skip
def test_private_addresses_and_cluster_names_look_internal(host: str) -> None:
    assert looks_inside(host, ["corp.example"])


@pytest.mark.parametrize(
    "host",
    [
        # IPv4 in other forms, also of global addresses: resolvers differ in how they read 010.
        "127.1", "127.0.1", "2130706433", "0x7f000001", "0177.0.0.1", "0177.1", "127.0.0.0x1", "127.0x1", "0x7f.1",
        "010.8.8.8", "8.8.2056", "8.8.8.0x8", "256.1.1.1", "1.2.3.4.5", "a.1", "a.0x1", "b0.example.1a",
        # ... and of others that are not of one host on the Internet
        "224.0.0.1", "239.255.255.250", "255.255.255.255", "240.0.0.1", "192.0.2.1", "198.51.100.1", "203.0.113.1",
        "198.18.0.1",
        # IPv4 within IPv6: compatible, mapped, translated, NAT64, 6to4, Teredo
        "[::127.0.0.1]", "[::7f00:1]", "[::8.8.8.8]", "[::ffff:7f00:1]", "[::ffff:8.8.8.8]", "[::ffff:0:127.0.0.1]",
        "[64:ff9b::7f00:1]", "[64:ff9b::127.0.0.1]", "[64:ff9b:1::7f00:1]", "[64:ff9b:1:7f00:0:100::]",
        "[2002:7f00:1::]", "[2002:808:808::1]", "[2001:0:4136:e378:8000:63bf:3fff:fdd2]",
        # the rest of IPv6: unspecified, link-local, site-local, multicast, documentation, not assigned
        "[::]", "[fe80::1]", "[fec0::1]", "[ff02::1]", "[ff0e::1]", "[2001:db8::1]", "[100::1]", "[4000::1]",
        # zone ids, and what is no address
        "[fe80::1%eth0]", "[2606:4700::1111%1]", "[8.8.8.8]", "[1.2]", "[:::]", "[]", "fd00::1",
    ],
)  # fmt: skip
def test_unusually_written_or_nonglobal_addresses_look_internal(host: str) -> None:
    assert looks_inside(host, ())


@pytest.mark.parametrize(
    "host",
    ["pulsar.example.com", "8.8.8.8", "[2606:4700::1111]", "[2a00:1450:4001:81b::200e]", "notcorp.example",
     "svc.example.com", "local.example", "127.0.0.1.example.com", "0x7f.example", "1.2.3.xn--p1ai", "8.8.8.8.arpa"],
)  # fmt: skip
def test_public_hosts_do_not_look_internal(host: str) -> None:
    assert not looks_inside(host, ["corp.example"])


NUMBERS = ("{}", "0{:o}", "000{:o}", "0x{:x}", "0X{:X}", "0x000{:x}")


@st.composite
def inet_aton_forms(draw: st.DrawFn, addresses: st.SearchStrategy[IPv4Address]) -> tuple[str, IPv4Address]:
    """An address in one to four numbers, of which the last takes all bytes that are left."""
    address = draw(addresses)
    lead = list(address.packed[: draw(st.integers(0, 3))])
    last = int.from_bytes(address.packed[len(lead) :], "big")
    return ".".join(draw(st.sampled_from(NUMBERS)).format(number) for number in [*lead, last]), address


def bounds(network: str) -> tuple[int, int]:
    addresses = IPv4Network(network)
    return int(addresses[0]), int(addresses[-1]) + 1


inside_addresses = st.sampled_from(
    ["0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16",
     "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4"]
).flatmap(lambda text: st.sampled_from(range(*bounds(text)))).map(IPv4Address)  # fmt: skip


@given(inet_aton_forms(inside_addresses))
def test_every_spelling_of_an_internal_ipv4_address_looks_internal(form: tuple[str, IPv4Address]) -> None:
    text, address = form
    assert socket.inet_aton(text) == address.packed
    authority = parse_authority(text)
    assert authority is not None
    assert looks_inside(authority.host, ())


@given(inet_aton_forms(st.integers(0, 2**32 - 1).map(IPv4Address)))
def test_an_ipv4_address_looks_public_in_its_usual_spelling_alone(form: tuple[str, IPv4Address]) -> None:
    text, address = form
    assert looks_inside(text, ()) or text == str(address)


@given(st.from_regex(r"[0-9a-fx]{1,4}(\.[0-9a-fx]{1,4}){0,3}", fullmatch=True))
def test_text_that_inet_aton_reads_as_an_internal_address_looks_internal(text: str) -> None:
    with suppress(OSError):
        address = IPv4Address(socket.inet_aton(text))
        assert looks_inside(text, ()) or (address.is_global and not address.is_multicast)


IPV4_WITHIN_IPV6 = ("::{}", "::ffff:{}", "::ffff:0:{}", "64:ff9b::{}", "64:ff9b:1::{}")


@given(inside_addresses, st.sampled_from(IPV4_WITHIN_IPV6))
def test_internal_ipv4_address_within_an_ipv6_address_looks_internal(address: IPv4Address, form: str) -> None:
    assert looks_inside(f"[{form.format(address)}]", ())
    high, low = address.packed[:2].hex(), address.packed[2:].hex()
    assert looks_inside(f"[{form.format(f'{high}:{low}')}]", ())
    assert looks_inside(f"[2002:{high}:{low}::1]", ())


@pytest.mark.parametrize(
    ("host", "pattern", "matches"),
    [
        ("peer.example", "peer.example", True),
        ("a.peer.example", "peer.example", False),
        ("a.peer.example", "*.peer.example", True),
        ("a.b.peer.example", "*.peer.example", True),
        ("peer.example", "*.peer.example", False),
        ("notpeer.example", "*.peer.example", False),
    ],
)
def test_a_wildcard_stands_for_one_label_or_more(host: str, pattern: str, matches: bool) -> None:
    assert host_matches(host, [pattern]) is matches


def test_host_longer_than_a_dns_name_can_be_is_not_parsed() -> None:
    """RFC 1035 3.1: and so nobody can fill the memory with hosts."""
    longest = ".".join(["a" * 63] * 3 + ["a" * 61])
    assert parse_authority(f"{longest}:65535") == Authority(longest, 65535)
    assert parse_authority("a" * 300) is None


@given(st.ip_addresses() | st.sampled_from([f"192.0.0.{last}" for last in range(256)]).map(ipaddress.ip_address))
def test_client_class_is_what_python_says_of_the_address(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    meant = mapped or address
    expected = "loopback" if meant.is_loopback else "public" if meant.is_global else "private"
    assert client_class(parse_address(str(address))) == expected


@pytest.mark.parametrize(
    "edge", [edge for block in map(ipaddress.IPv4Network, _BLOCKS) for edge in (block[0], block[-1])], ids=str
)
def test_client_class_changes_where_special_blocks_begin_and_end(edge: ipaddress.IPv4Address) -> None:
    for number in (int(edge) - 1, int(edge), int(edge) + 1):
        if 0 <= number < 2**32:
            address = ipaddress.IPv4Address(number)
            expected = "loopback" if address.is_loopback else "public" if address.is_global else "private"
            assert client_class(parse_address(str(address))) == expected


@given(st.text(st.sampled_from("0123456789.: x"), max_size=20))
def test_client_class_of_what_is_no_address_is_none(text: str) -> None:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        assert parse_address(text) is None
        assert client_class(None) is None


# The client as trusted proxies tell it.

TRUSTED = Networks(tuple(map(ipaddress.ip_network, ("127.0.0.0/8", "::1", "10.0.0.0/24"))))


@pytest.mark.parametrize(
    ("forwarded_for", "client"),
    [
        (b"8.8.8.8", "8.8.8.8"),
        (b"8.8.8.8, 127.0.0.1", "8.8.8.8"),
        (b"8.8.8.8,10.0.0.7 ,\t::1", "8.8.8.8"),
        (b"127.0.0.1, 8.8.8.8", "8.8.8.8"),  # what the client wrote itself stands to the left
        (b"1.1.1.1, 8.8.8.8, 10.0.0.7", "8.8.8.8"),
        (b"10.0.0.7", "10.0.0.7"),  # a trusted proxy that asks for itself
        (b"10.0.0.7, 127.0.0.1", "10.0.0.7"),
        (b"2606:4700::1111", "2606:4700::1111"),
        (b"2606:4700:0000:0:0:0:0:1111, ::1", "2606:4700::1111"),
        (b"0000:0000:0000:0000:0000:ffff:192.168.100.100", "192.168.100.100"),
        (b"8.8.8.8, ::ffff:10.0.0.7", "8.8.8.8"),
        (b"::ffff:8.8.8.8, ::FFFF:7f00:1", "8.8.8.8"),
    ],
)
def test_x_forwarded_for_is_read_from_the_right_past_trusted_proxies(forwarded_for: bytes, client: str) -> None:
    assert forwarded_client(forwarded_for, TRUSTED) == parse_address(client)


NO_ADDRESSES = [
    b"", b" ", b"unknown", b"_hidden", b"_SEVKISEK", b"localhost", b"8.8.8.8:4711", b"[2606:4700::1]", b"[::1]:80",
    b"fe80::1%eth0", b"::1%1", b'"8.8.8.8"', b"for=8.8.8.8", b"8.8.8", b"08.8.8.8", b"0x8.8.8.8", b"134744072",
    b"8.8.8.8.", b"8.8.8.8/32", b"8.8.8.8 8.8.4.4", b"8.8.8.8;1.1.1.1", b"::ffff:8.8.8.8.8", b"1::2::3", b"\xb2.2.2.2",
    b"8" * 30_000, b":" * 30_000,
]  # fmt: skip


@pytest.mark.parametrize("element", NO_ADDRESSES)
def test_x_forwarded_for_is_not_read_past_an_element_that_is_no_ip_address(element: bytes) -> None:
    """What stands to the left of it may have been written by anyone."""
    assert forwarded_client(element, TRUSTED) is None
    assert forwarded_client(b"8.8.8.8, " + element, TRUSTED) is None
    assert forwarded_client(b"8.8.8.8, %b, 10.0.0.7, 127.0.0.1" % element, TRUSTED) == parse_address("10.0.0.7")
    assert forwarded_client(b"%b, 1.1.1.1, 127.0.0.1" % element, TRUSTED) == parse_address("1.1.1.1")


def test_x_forwarded_for_is_read_only_up_to_a_limited_number_of_elements() -> None:
    assert forwarded_client(b"8.8.8.8" + b", 127.0.0.1" * 1000, TRUSTED) == parse_address("127.0.0.1")


@given(st.lists(st.binary(max_size=30) | st.sampled_from([*NO_ADDRESSES[:20], b"127.0.0.1", b"8.8.8.8"]), max_size=20))
def test_x_forwarded_for_left_of_an_untrusted_address_is_ignored(elements: list[bytes]) -> None:
    claimed = b", ".join(elements)
    forwarded_client(claimed, TRUSTED)
    assert forwarded_client(b"%b, 9.9.9.9, 10.0.0.7" % claimed, TRUSTED) == parse_address("9.9.9.9")
