"""A filter finds in lines what it would find in the events themselves."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ingress_proxy.console.filters import SEARCHED, Matcher
from pulsar_ingress_proxy.console.models import Filter
from pulsar_ingress_proxy.observability import event_lines
from pulsar_ingress_proxy.observability.access_record import AccessRecord
from pulsar_ingress_proxy.observability.event_schema import FIELDS
from pulsar_ingress_proxy.routing.ingresses import Ingress
from pulsar_ingress_proxy.routing.paths import Target
from pulsar_ingress_proxy.routing.requests import Request
from pulsar_ingress_proxy.routing.selection import Selection
from pulsar_ingress_proxy.syntax.authorities import Authority


def line(
    topic: str = "persistent://t/n/orders",
    ingress: str = "public",
    status: int = 200,
    agent: str = "Pulsar-Java-v4.0.7",
    redirect: str | None = None,
) -> str:
    """The event of a lookup, as it is written."""
    target = Target("lookup", "lookup", "t", "n", topic)
    record = AccessRecord(
        target=target,
        request=Request(target, Authority("pulsar.example.com", None), None, "https"),
        selection=Selection(Ingress(ingress, (), "external"), "external", "ingress"),
        status=status,
    )
    return event_lines.line(
        event_lines.shared_words(record),
        event_lines.origin("c", "s"),
        "a1b2-7",
        1_763_294_400.0,
        event_lines.names("t", "n", topic),
        event_lines.redirect(redirect, redirect),
        0.001,
        None,
        0,
        0,
        event_lines.client(None, agent.encode("latin-1", "replace")),
    )


def matches(line: str, **wanted: Any) -> bool:
    return Matcher(Filter.model_validate(wanted)).matches(line)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, True),
        ({"find": "ORDERS"}, True),
        ({"find": "pulsar.EXAMPLE"}, True),
        ({"find": "java-v4"}, True),
        ({"find": "a1b2-7"}, True),
        ({"find": "external"}, False),  # a listener has a filter of its own
        ({"find": "ingress"}, False),  # nor is the name of a field searched
        ({"find": "durationMs"}, False),
        ({"ingress": "public"}, True),
        ({"ingress": "publi"}, False),
        ({"ingress": "public", "listener": "partner"}, False),
        ({"kind": "lookup", "protocol": "http", "rule": "ingress"}, True),
        ({"kind": "admin"}, False),
        ({"protocol": "binary"}, False),
        ({"rule": "query"}, False),
        ({"missReason": "no-rule"}, False),
        ({"status": "200"}, True),
        ({"status": "2xx"}, True),
        ({"status": "201"}, False),
        ({"status": "5xx"}, False),
    ],
)
def test_decision_matches_if_all_filters_do(wanted: dict[str, str], found: bool) -> None:
    assert matches(line(), **wanted) is found


SEARCHED_FIELDS = {
    "topic", "host", "forwardedHost", "serverName", "tenant", "namespace", "broker", "clientNamed", "redirectFrom",
    "redirectTo", "userAgent", "id",
}  # fmt: skip


@pytest.mark.parametrize("name", [field.name for field in FIELDS])
def test_search_looks_at_names_addresses_and_ids_and_at_nothing_else(name: str) -> None:
    event = {**{field.name: None for field in FIELDS}, name: "a Needle"}
    assert matches(json.dumps(event, separators=(",", ":")), find="needle") is (name in SEARCHED_FIELDS)


@pytest.mark.parametrize("find", ['"all"', "\\", '\\"ALL'])
def test_quotes_and_backslashes_are_found_as_they_are(find: str) -> None:
    assert matches(line(topic='persistent://t/n/\\"all"'), find=find)


def test_text_of_a_client_cannot_pass_for_a_field() -> None:
    forged = line(topic='persistent://t/n/x","ingress":"partner","status":404,"', agent='"missReason":"no-rule",')
    assert matches(forged)
    for wanted in ({"ingress": "partner"}, {"status": "404"}, {"missReason": "no-rule"}):
        assert not matches(forged, **wanted)


@pytest.mark.parametrize("find", ["kafka", "KAFKA", "\u212aafka"])
def test_letter_whose_lower_case_is_ascii_is_found_by_it(find: str) -> None:
    assert matches(line(topic="persistent://t/n/\u212aafka"), find=find)


@pytest.mark.parametrize("find", ["äpfel", "ÄPFEL", "ÄpFeL und", '"birnen"'])
def test_case_does_not_count_beyond_ascii(find: str) -> None:
    assert matches(line(topic='persistent://t/n/Äpfel und "Birnen"'), find=find)


def test_decision_without_status_matches_no_status() -> None:
    for status in ("1xx", "200", "5xx"):
        assert not matches(line(status=0), status=status)


TEXT = st.text(st.characters(codec="utf-8"), max_size=20)


@given(topic=TEXT, ingress=TEXT, redirect=TEXT, agent=TEXT, data=st.data())
def test_lines_are_found_as_their_events_would_be(
    topic: str, ingress: str, redirect: str, agent: str, data: st.DataObject
) -> None:
    written = line(topic, ingress, 200, agent, redirect)
    event = json.loads(written)
    texts = [event[name].lower() for name in SEARCHED if event[name] is not None]
    whole = data.draw(st.sampled_from([*texts, ingress, "external"]))
    start = data.draw(st.integers(0, len(whole)))
    find = data.draw(st.sampled_from([whole[start : start + 5], whole[start : start + 5].upper(), "x"]))
    found = Matcher(Filter(find=find)).matches(written)
    assert found == any(find.lower() in text for text in texts)
    named = data.draw(st.sampled_from([ingress, topic, find]))
    assert Matcher(Filter(ingress=named)).matches(written) == (event["ingress"] == named)
