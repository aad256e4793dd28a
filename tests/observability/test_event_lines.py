"""What one finished request becomes in the event log."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import HOST, LOOKUP, PUBLIC, event, line, lookup

from pulsar_ingress_proxy.observability.access_record import AccessRecord
from pulsar_ingress_proxy.observability.event_schema import FIELDS, NAMES
from pulsar_ingress_proxy.routing.paths import Target
from pulsar_ingress_proxy.routing.requests import Request
from pulsar_ingress_proxy.routing.selection import Refusal, Selection
from pulsar_ingress_proxy.syntax.authorities import Authority, parse_address, peer_address

ADMIN = Target("admin", "admin", "acme", "orders")
REFUSAL = Refusal(403, "not-allowed", "no")


def of(record: AccessRecord) -> dict[str, Any]:
    return event(record, "pulsar", "gateway-0")


def test_answered_lookup_becomes_an_event_with_all_fields() -> None:
    assert of(lookup(255)) == {
        "schema": 1,
        "time": "2025-11-16T12:00:00.123456Z",
        "id": "000000000000000000000000000000ff",
        "cluster": "pulsar",
        "sidecar": "gateway-0",
        "generation": 7,
        "protocol": "http",
        "kind": "lookup",
        "method": "GET",
        "scheme": "https",
        "ingress": "public",
        "bind": "0.0.0.0:8443",
        "host": "pulsar.example.com:8443",
        "forwardedHost": None,
        "serverName": None,
        "listener": "external",
        "rule": "ingress",
        "hit": True,
        "missReason": None,
        "clientNamed": None,
        "clientNamedBy": None,
        "tenant": "acme",
        "namespace": "orders",
        "topic": "persistent://acme/orders/paid",
        "broker": "pulsar-broker-2:8080",
        "status": 200,
        "redirectAction": None,
        "redirectFrom": None,
        "redirectTo": None,
        "hops": 0,
        "leak": None,
        "durationMs": 1.235,
        "upstreamMs": 0.988,
        "requestBytes": 0,
        "responseBytes": 254,
        "clientClass": "private",
        "userAgent": "Pulsar-Java-v4.0.1",
    }


def test_event_of_a_request_with_a_refused_head_has_only_the_known_fields() -> None:
    found = of(
        AccessRecord(id="1", time=0.5, generation=1, bind="0.0.0.0:8080", peer=parse_address("127.0.0.1"), status=400)
    )
    said = {name: value for name, value in found.items() if value is not None}
    assert said == {
        "schema": 1,
        "time": "1970-01-01T00:00:00.500000Z",
        "id": "1",
        "cluster": "pulsar",
        "sidecar": "gateway-0",
        "generation": 1,
        "protocol": "http",
        "kind": "other",
        "bind": "0.0.0.0:8080",
        "hit": False,
        "status": 400,
        "hops": 0,
        "durationMs": 0.0,
        "requestBytes": 0,
        "responseBytes": 0,
        "clientClass": "loopback",
    }


@pytest.mark.parametrize(
    ("target", "selection", "missed", "hit", "reason"),
    [
        pytest.param(LOOKUP, Selection(PUBLIC, "external", "ingress"), None, True, None, id="a lookup with a listener"),
        pytest.param(LOOKUP, Selection(None, None, "none", "no-rule"), "no-rule", False, "no-rule", id="none"),
        pytest.param(
            LOOKUP,
            Selection(PUBLIC, "external", "ingress"),
            "broker-lacks-listener",
            False,
            "broker-lacks-listener",
            id="a listener that the broker lacks",
        ),
        pytest.param(ADMIN, Selection(PUBLIC, "external", "ingress"), None, True, None, id="an admin call"),
        pytest.param(ADMIN, Selection(None, None, "none", "no-rule"), None, False, None, id="admin without listener"),
        pytest.param(
            ADMIN, Selection(PUBLIC, "external", "bind", refusal=REFUSAL), None, False, None, id="admin refused"
        ),
        pytest.param(ADMIN, None, None, False, None, id="no selection"),
    ],
)
def test_event_is_a_hit_only_with_a_listener_and_neither_miss_nor_refusal(
    target: Target, selection: Selection | None, missed: str | None, hit: bool, reason: str | None
) -> None:
    found = of(lookup(target=target, selection=selection, miss_reason=missed))
    assert (found["hit"], found["missReason"]) == (hit, reason)


def test_event_listener_is_the_selected_one_and_not_the_metric_label() -> None:
    selection = Selection(PUBLIC, "made-up", "query", client_named="made-up", client_named_by="query")
    found = of(lookup(selection=selection, listener="other"))
    assert (found["listener"], found["clientNamed"], found["clientNamedBy"]) == ("made-up", "made-up", "query")


def test_event_reports_the_last_redirect_and_counts_the_followed_ones() -> None:
    found = of(
        lookup(redirects=["followed", "followed", "rewritten"], redirect_from="http://a/x", redirect_to="http://b/x")
    )
    assert (found["redirectAction"], found["hops"]) == ("rewritten", 2)
    assert (found["redirectFrom"], found["redirectTo"]) == ("http://a/x", "http://b/x")


def test_event_of_a_refused_redirect_has_no_redirect_to() -> None:
    found = of(lookup(redirects=["refused"], redirect_from="http://a/x"))
    assert (found["redirectAction"], found["redirectFrom"], found["redirectTo"]) == ("refused", "http://a/x", None)


@pytest.mark.parametrize(
    ("url", "written"),
    [
        ("http://b/x?token=secret", "http://b/x?token=REDACTED"),
        ("http://b/x?a=1&token=secret&b=2", "http://b/x?a=1&token=REDACTED&b=2"),
        ("http://b/x?TOKEN=secret;more#top", "http://b/x?TOKEN=REDACTED#top"),
        ("http://b/x?%74oke%6E=secret", "http://b/x?%74oke%6E=REDACTED"),
        ("http://b/x?token=secret&Token=secret", "http://b/x?token=REDACTED&Token=REDACTED"),
        ("http://b/x?token%3Dsecret", "http://b/x?token%3DREDACTED"),
        (
            "http://b/x?next=http%3A%2F%2Fc%3Ftoken%3Dsecret&a=1",
            "http://b/x?next=http%3A%2F%2Fc%3Ftoken%3DREDACTED&a=1",
        ),
        ("http://b/x#token=secret", "http://b/x#token=REDACTED"),
        ("http://b/x?tokens=12&mytoken=3", "http://b/x?tokens=12&mytoken=3"),
        ("http://b/topic%20token=x", "http://b/topic%20token=x"),
        ("http://b/x?authoritative=true", "http://b/x?authoritative=true"),
    ],
)
def test_tokens_in_redirect_urls_are_redacted(url: str, written: str) -> None:
    found = of(lookup(redirects=["passed"], redirect_from=url, redirect_to=url))
    assert (found["redirectFrom"], found["redirectTo"]) == (written, written)


@pytest.mark.parametrize(
    ("peer", "written"),
    [
        ("127.0.0.1", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("10.1.2.3", "private"),
        ("192.168.0.1", "private"),
        ("169.254.1.1", "private"),
        ("100.64.0.1", "private"),
        ("::ffff:10.0.0.1", "private"),
        ("fd00::1", "private"),
        ("fe80::1%eth0", "private"),
        ("8.8.8.8", "public"),
        ("2001:4860:4860::8888", "public"),
        ("", None),
        ("/run/gateway.sock", None),
        ("10.1.2.3:4711", None),
    ],
)
def test_client_address_is_classified_and_never_written(peer: str, written: str | None) -> None:
    written_line = line(lookup(peer=peer_address((peer, 4711))))
    assert json.loads(written_line)["clientClass"] == written
    assert not peer or peer not in written_line


@pytest.mark.parametrize(
    ("sent", "written"),
    [
        (None, None),
        (b"", ""),
        ("Überclient".encode("latin-1"), "Überclient"),
        (b'a"\\\x00\x1b\n\x85', 'a"\\\x00\x1b\n\x85'),
        (b"x" * 300, "x" * 256),
    ],
)
def test_user_agent_may_be_any_bytes_and_is_cut_to_256_characters(sent: bytes | None, written: str | None) -> None:
    assert of(lookup(user_agent=sent))["userAgent"] == written


@pytest.mark.parametrize(
    ("time", "written"),
    [
        (0.0, "1970-01-01T00:00:00.000000Z"),
        (1_763_294_400.0, "2025-11-16T12:00:00.000000Z"),
        (1_763_294_399.9999996, "2025-11-16T12:00:00.000000Z"),
        (4_102_444_799.000001, "2099-12-31T23:59:59.000001Z"),
    ],
)
def test_event_time_is_utc_with_microseconds(time: float, written: str) -> None:
    assert of(lookup(time=time))["time"] == written


def test_lone_surrogates_in_topic_names_become_question_marks() -> None:
    target = Target("lookup", "lookup", "\udcff", "😀", "persistent://\udcff/😀/\ud83d")
    found = of(lookup(target=target))
    assert (found["tenant"], found["namespace"], found["topic"]) == ("?", "😀", "persistent://?/😀/?")


text = st.text(max_size=40)
maybe = st.none() | text
count = st.integers(min_value=0, max_value=2**63)
seconds = st.floats(min_value=0, max_value=1e6)
authority = st.none() | st.builds(Authority, text, st.none() | st.integers(0, 65535))
kinds = st.sampled_from(["lookup", "admin", "other"])
targets = st.builds(Target, kinds, st.just("other"), maybe, maybe, maybe)
selections = st.builds(
    Selection,
    st.none() | st.just(PUBLIC),
    maybe,
    st.sampled_from(["query", "header", "bind", "ingress", "default", "none"]),
    refusal=st.none() | st.just(REFUSAL),
    client_named=maybe,
    client_named_by=st.sampled_from([None, "query", "header"]),
)


@st.composite
def records(draw: st.DrawFn) -> AccessRecord:
    target = draw(targets)
    redirects = draw(st.lists(st.sampled_from(["rewritten", "followed", "passed", "kept", "refused"]), max_size=4))
    return AccessRecord(
        id=draw(st.from_regex(r"[0-9a-f]{12}-[0-9]{1,9}", fullmatch=True)),
        time=draw(st.floats(min_value=0, max_value=4e9)),
        generation=draw(count),
        method=draw(text),
        bind=draw(text),
        peer=draw((st.ip_addresses().map(str) | text).map(parse_address)),
        user_agent=draw(st.none() | st.binary(max_size=300)),
        target=target,
        request=draw(st.none() | st.builds(Request, st.just(target), authority, authority, text)),
        selection=draw(st.none() | selections),
        miss_reason=draw(maybe),
        status=draw(st.integers(0, 999)),
        broker=draw(maybe),
        redirects=redirects,
        redirect_from=draw(text) if redirects else None,
        redirect_to=draw(maybe) if redirects else None,
        leak=draw(st.sampled_from([None, "location", "body"])),
        duration=draw(seconds),
        upstream_duration=draw(st.none() | seconds),
        request_bytes=draw(count),
        response_bytes=draw(count),
    )


TYPES: dict[str, type] = {"string": str, "integer": int, "number": float, "boolean": bool}


@given(records(), text, text)
def test_every_event_has_the_fields_of_the_schema_and_their_types(
    record: AccessRecord, cluster: str, sidecar: str
) -> None:
    found = event(record, cluster, sidecar)
    assert tuple(found) == NAMES
    for field in FIELDS:
        value = found[field.name]
        assert value is None if value is None and field.nullable else type(value) is TYPES[field.type], field


@given(records(), text, text)
def test_event_fields_keep_any_text_unchanged(record: AccessRecord, cluster: str, sidecar: str) -> None:
    found = event(record, cluster, sidecar)
    target, selection, request = record.target, record.selection, record.request
    assert (found["id"], found["cluster"], found["sidecar"]) == (record.id, cluster, sidecar)
    assert (found["tenant"], found["namespace"], found["topic"]) == (target.tenant, target.namespace, target.topic)
    assert (found["method"], found["bind"], found["broker"]) == (
        record.method or None,
        record.bind or None,
        record.broker,
    )
    if selection is not None:
        assert (found["listener"], found["clientNamed"]) == (selection.listener, selection.client_named)
    if request is not None:
        assert (found["host"], found["scheme"]) == (str(request.host) if request.host else None, request.scheme)


@given(records(), text)
def test_event_line_is_a_single_line_of_ascii(record: AccessRecord, sidecar: str) -> None:
    written = line(record, "pulsar", sidecar)
    assert written.splitlines() == [written[:-1]]
    assert re.fullmatch(r"\{[ -~\x7f]+\}\n", written)


@given(st.text(st.sampled_from(["\ud83d", "\ude00", "\\", "u", "d", "8", '"', "ö", "\x7f"])))
def test_only_unpaired_surrogates_become_question_marks(name: str) -> None:
    """Two halves are one, to whoever reads it; what looks like half of one and is not stays."""
    whole = json.loads(json.dumps(name))
    expected = "".join("?" if "\ud800" <= letter <= "\udfff" else letter for letter in whole)
    assert of(lookup(broker=name))["broker"] == expected


@given(text, text)
def test_token_is_redacted_whatever_text_precedes_it_in_the_query(before: str, secret: str) -> None:
    """Whatever stands before it, and whatever it is made of but what ends a parameter."""
    secret = "s3cret-" + re.sub("[&#]", "", secret)
    url = f"http://b/x?{before}&token={secret}"
    assert "s3cret" not in str(of(lookup(redirects=["passed"], redirect_from=url))["redirectFrom"])


def test_event_host_has_the_port_that_the_client_sent() -> None:
    found = of(lookup(request=Request(LOOKUP, HOST, Authority("outer.example.com", None), "https")))
    assert (found["host"], found["forwardedHost"]) == ("pulsar.example.com:8443", "outer.example.com")
