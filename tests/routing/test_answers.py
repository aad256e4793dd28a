"""A lookup's answer: its five URLs put on the listener, and a broker's 500 for a listener that it lacks."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pictures import INSIDE, LOOKUP, asks, picture

from pulsar_ingress_proxy.routing.answers import URL_KEYS, LookupAnswer, lacks_listener, put_on_listener
from pulsar_ingress_proxy.routing.selection import select
from pulsar_ingress_proxy.routing.snapshot import Snapshot

NAME = f"pulsar-broker-1.{INSIDE}"
EXTERNAL_TLS = "pulsar+ssl://broker-1.pulsar.example.com:6652"
EXTERNAL_HTTPS = "https://broker-1.pulsar.example.com"
PARTNER = {
    "brokerUrl": "pulsar://broker-1.partner.example:6650",
    "brokerUrlTls": "pulsar+ssl://broker-1.partner.example:6651",
    "httpUrl": "http://broker-1.partner.example:8080",
    "httpUrlTls": "https://broker-1.partner.example:8443",
    "nativeUrl": "pulsar://broker-1.partner.example:6650",
}
EXTERNAL = {
    "brokerUrl": EXTERNAL_TLS,
    "brokerUrlTls": EXTERNAL_TLS,
    "httpUrl": EXTERNAL_HTTPS,
    "httpUrlTls": EXTERNAL_HTTPS,
    "nativeUrl": EXTERNAL_TLS,
}
INTERNAL = {
    "brokerUrl": f"pulsar://{NAME}:6650",
    "httpUrl": f"http://{NAME}:8080",
    "nativeUrl": f"pulsar://{NAME}:6650",
    "brokerUrlSsl": "",
}


def put(body: dict[str, Any], listener: str, snapshot: Snapshot) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(put_on_listener(json.dumps(body).encode(), listener, snapshot).body)
    return answer


def leaks(body: dict[str, Any], listener: str, snapshot: Snapshot) -> tuple[bool, bool]:
    """Whether an address was off the listener, and whether one still is."""
    answer = put_on_listener(json.dumps(body).encode(), listener, snapshot)
    return answer.had_leak, answer.has_leak


@pytest.mark.parametrize(
    ("sent", "listener", "expected"),
    [
        pytest.param(INTERNAL, "partner", {**PARTNER, "brokerUrlSsl": ""}, id="no listener in effect"),
        pytest.param(
            {
                "brokerUrl": PARTNER["brokerUrl"],
                "brokerUrlTls": PARTNER["brokerUrlTls"],
                "httpUrl": f"http://{NAME}:8080",
                "nativeUrl": PARTNER["brokerUrl"],
                "brokerUrlSsl": "",
            },
            "partner",
            {**PARTNER, "brokerUrlSsl": ""},
            id="4.x, whose web URLs are always internal",
        ),
        pytest.param(
            {"brokerId": f"{NAME}:8080", **PARTNER, "httpUrl": f"http://{NAME}:8080", "brokerUrlSsl": ""},
            "partner",
            {"brokerId": f"{NAME}:8080", **PARTNER, "brokerUrlSsl": ""},
            id="5.x, with its brokerId",
        ),
        pytest.param(
            {"brokerUrlTls": EXTERNAL_TLS, "httpUrl": f"http://{NAME}:8080", "brokerUrlSsl": ""},
            "external",
            {**EXTERNAL, "brokerUrlSsl": ""},
            id="TLS alone: plain keys take the TLS URL",
        ),
        pytest.param(PARTNER, "external", EXTERNAL, id="another listener than asked, apache/pulsar#26244"),
        pytest.param(
            {**INTERNAL, "new": {"in": ["6.x", None, 1.5]}},
            "partner",
            {**PARTNER, "brokerUrlSsl": "", "new": {"in": ["6.x", None, 1.5]}},
            id="unknown keys stay",
        ),
        pytest.param(
            {"brokerUrl": None, "httpUrl": f"http://{NAME}:8080", "nativeUrl": 7},
            "partner",
            PARTNER,
            id="keys that hold no URL",
        ),
    ],
)
def test_a_lookups_urls_are_put_on_the_listener(sent: dict[str, Any], listener: str, expected: dict[str, Any]) -> None:
    snapshot = picture()
    assert put(sent, listener, snapshot) == expected
    assert leaks(sent, listener, snapshot) == (True, False)


PLAIN = """
advertisedListeners:
  - broker: b{n}
    listeners: internal:http://b{n}:8080,internal:pulsar://b{n}:6650,plain:http://b{n}.example,plain:pulsar://b{n}.example
"""


def test_a_tls_key_never_takes_a_plain_url_and_is_removed() -> None:
    sent = {
        "brokerUrl": "pulsar://b1:6650",
        "brokerUrlTls": "pulsar+ssl://b1:6651",
        "httpUrl": "http://b1:8080",
        "httpUrlTls": "https://b1:8443",
    }
    assert put(sent, "plain", picture(PLAIN)) == {
        "brokerUrl": "pulsar://b1.example:6650",
        "httpUrl": "http://b1.example",
        "nativeUrl": "pulsar://b1.example:6650",
    }


def test_an_answer_that_is_on_the_listener_stays_byte_for_byte() -> None:
    body = json.dumps({**PARTNER, "brokerUrl": "PULSAR://broker-1.PARTNER.example", "x": "é"}, indent=2).encode()
    answer = put_on_listener(body, "partner", picture())
    assert answer.body == body
    assert (answer.had_leak, answer.has_leak) == (False, False)


WEBLESS = """
advertisedListeners:
  - broker: b{n}
    listeners: internal:http://b{n}:8080,external:pulsar://b{n}.example.com,partner:http://b{n}.partner.example
"""


def test_url_of_a_broker_without_an_address_on_the_listener_passes_and_is_a_leak() -> None:
    sent = {"brokerUrl": "pulsar://b1:6650", "httpUrl": "http://b1:8080"}
    snapshot = picture(WEBLESS)
    assert put(sent, "external", snapshot) == {
        "brokerUrl": "pulsar://b1.example.com:6650",
        "httpUrl": "http://b1:8080",
        "nativeUrl": "pulsar://b1.example.com:6650",
    }
    assert leaks(sent, "external", snapshot) == (True, True)


def test_url_falls_back_to_the_lookup_listener_when_listener_has_no_address() -> None:
    sent = {"brokerUrl": "pulsar://b1:6650", "httpUrl": "http://b1:8080"}
    snapshot = picture(f"{WEBLESS}\nlookupListenerName: partner")
    assert put(sent, "external", snapshot)["httpUrl"] == "http://b1.partner.example"
    assert leaks(sent, "external", snapshot) == (True, False)


@pytest.mark.parametrize(
    ("url", "leak"),
    [
        pytest.param("pulsar://10.0.0.7:6650", True, id="a private address"),
        pytest.param("pulsar://pulsar-broker:6650", True, id="a single label"),
        pytest.param(f"pulsar://something-else.{INSIDE}:6650", True, id="a name beside the brokers"),
        pytest.param("not a url", True, id="no URL at all"),
        pytest.param("pulsar://stranger.nowhere.test:6650", True, id="a public name"),
        pytest.param("pulsar://8.8.8.8:6650", True, id="a public address"),
        pytest.param("http://stranger.nowhere.test:6650", True, id="a URL of another kind than the key's"),
        pytest.param("https://broker-1.pulsar.example.com:6650", True, id="a broker's host with a strange port"),
        pytest.param("", False, id="empty"),
    ],
)
def test_url_unknown_to_the_address_book_passes_and_is_a_leak_unless_empty(url: str, leak: bool) -> None:
    assert put({"brokerUrl": url}, "external", picture()) == {"brokerUrl": url}
    assert leaks({"brokerUrl": url}, "external", picture()) == (leak, leak)


WEB_ALONE = """
advertisedListeners:
  - broker: b{n}.svc
    listeners: internal:http://b{n}.svc:8080,internal:pulsar://b{n}.svc:6650,external:http://b{n}.pulsar.example.com
"""


@pytest.mark.parametrize(
    ("sent", "leak"),
    [
        pytest.param({"brokerUrl": "pulsar://b1.example.com:6650"}, False, id="no binary address on the listener"),
        pytest.param({"httpUrl": "http://b1.example.com"}, True, id="but web addresses"),
        pytest.param({"brokerUrl": "http://b1.example.com:6650"}, True, id="a URL of another kind than the key's"),
        pytest.param({"brokerUrl": "pulsar://10.0.0.7:6650"}, True, id="plainly internal"),
    ],
)
def test_public_url_is_no_leak_when_the_listener_has_no_address_of_its_kind(sent: dict[str, str], leak: bool) -> None:
    assert leaks(sent, "external", picture(WEB_ALONE)) == (leak, leak)


def test_a_peer_clusters_address_is_a_leak_in_an_answer() -> None:
    """Brokers redirect to peer clusters. An answer names a broker of their own cluster."""
    snapshot = picture("redirects: {peers: ['*.nowhere.test']}")
    assert leaks({"brokerUrl": "pulsar://stranger.nowhere.test:6650"}, "external", snapshot) == (True, True)


def test_empty_address_book_changes_nothing_and_internal_addresses_are_still_leaks() -> None:
    snapshot = picture("advertisedListeners: []")
    body = json.dumps(INTERNAL, indent=1).encode()
    answer = put_on_listener(body, "external", snapshot)
    assert answer.body == body
    assert answer.has_leak
    assert leaks({"brokerUrl": "pulsar://broker-1.pulsar.example.com:6650"}, "external", snapshot) == (False, False)


def test_an_address_that_brokers_share_is_on_the_listener() -> None:
    snapshot = picture(
        """
        advertisedListeners:
          - {broker: b0, listeners: "internal:http://b0:8080,external:http://10.0.0.1:30080"}
          - {broker: b1, listeners: "internal:http://b1:8080,external:http://10.0.0.1:30080"}
        """
    )
    assert leaks({"httpUrl": "http://10.0.0.1:30080"}, "external", snapshot) == (False, False)
    assert put({"httpUrl": "http://b1:8080"}, "external", snapshot)["httpUrl"] == "http://10.0.0.1:30080"


@pytest.mark.parametrize(
    ("own", "leak"),
    [
        pytest.param("", False, id="where a broker has no other"),
        pytest.param(",external:http://b{n}.pulsar.example.com", True, id="where each has one on the listener"),
    ],
)
def test_shared_lookup_listener_address_leaks_only_if_brokers_have_listener_addresses(own: str, leak: bool) -> None:
    line = "internal:http://b{n}.svc:8080,partner:http://pulsar.partner.example" + own
    strange = "{broker: c.svc, listeners: 'external:http://c.pulsar.example.com'}"
    lines = f"[{{broker: 'b{{n}}.svc', listeners: '{line}'}}, {strange}]"
    snapshot = picture(f"{{advertisedListeners: {lines}, lookupListenerName: partner}}")
    assert leaks({"httpUrl": "http://pulsar.partner.example"}, "external", snapshot) == (leak, leak)
    assert leaks({"httpUrl": "http://b1.svc:8080"}, "external", snapshot) == (True, False)


def test_an_address_that_brokers_of_two_templates_share_is_on_the_listener() -> None:
    lines = [
        f"{{broker: '{name}{{n}}.svc', listeners: 'external:http://gw.example.com:{{n+8080}}'}}" for name in ("a", "b")
    ]
    snapshot = picture(f"advertisedListeners: [{', '.join(lines)}]")
    assert leaks({"httpUrl": "http://gw.example.com:8081"}, "external", snapshot) == (False, False)


def test_web_and_binary_addresses_on_one_host_are_not_confused() -> None:
    listeners = "internal:pulsar://b{n}.svc:6650,external:http://gw.example.com:{n+8080},external:pulsar://gw.example.com:{n+6650}"
    snapshot = picture(f"advertisedListeners: [{{broker: 'b{{n}}.svc', listeners: '{listeners}'}}]")
    sent = {"brokerUrl": "pulsar://gw.example.com:6651", "httpUrl": "http://gw.example.com:8081"}
    assert leaks(sent, "external", snapshot) == (False, False)
    assert put({"brokerUrl": "pulsar://b1.svc:6650"}, "external", snapshot)["httpUrl"] == "http://gw.example.com:8081"


def test_urls_of_two_brokers_are_each_put_on_the_listener() -> None:
    sent = {"brokerUrl": f"pulsar://{NAME}:6650", "httpUrl": f"http://pulsar-broker-2.{INSIDE}:8080"}
    answer = put_on_listener(json.dumps(sent).encode(), "partner", picture())
    assert json.loads(answer.body) == {
        "brokerUrl": "pulsar://broker-1.partner.example:6650",
        "httpUrl": "http://broker-2.partner.example:8080",
    }
    assert answer.broker == f"{NAME}:6650"


@pytest.mark.parametrize(
    ("sent", "broker"),
    [
        (INTERNAL, NAME),
        (PARTNER, NAME),
        ({"brokerUrl": "pulsar://e7.example:6650", "httpUrl": "http://x7.example:8080"}, "e7.example:6650"),
        ({"httpUrl": "http://x7.example"}, "x7.example:80"),
        ({}, None),
    ],
)
def test_answer_reports_its_brokers_name_or_else_the_authority_of_its_url(
    sent: dict[str, Any], broker: str | None
) -> None:
    assert put_on_listener(json.dumps(sent).encode(), "external", picture()).broker == broker


@pytest.mark.parametrize(
    "body",
    [
        b"", b"0x00000000_0x40000000", b"[]", b'"pulsar://b1:6650"', b"null", b"{", b'{"brokerUrl":"\xff"}',
        b"[" * 100_000, b'{"a":' * 100_000,
    ],
    ids=["empty", "text", "list", "string", "null", "cut short", "not UTF-8", "deep lists", "deep objects"],
)  # fmt: skip
def test_body_that_is_not_a_lookup_answer_stays_unchanged(body: bytes) -> None:
    answer = put_on_listener(body, "external", picture())
    assert answer.body == body
    assert (answer.broker, answer.had_leak, answer.has_leak) == (None, False, False)


def test_pip_338_case_1_without_a_listener_the_answer_is_on_the_lookup_listener() -> None:
    snapshot = picture("lookupListenerName: partner")
    selection = select(asks(f"http://10.0.0.9{LOOKUP}"), snapshot)
    assert selection.listener is not None
    assert put(INTERNAL, selection.listener, snapshot) == {**PARTNER, "brokerUrlSsl": ""}


def test_pip_338_case_2_the_answer_is_on_the_listener_of_the_query() -> None:
    snapshot = picture("lookupListenerName: partner")
    selection = select(asks(f"http://10.0.0.9{LOOKUP}?listenerName=external"), snapshot)
    assert selection.listener is not None
    assert put(INTERNAL, selection.listener, snapshot) == {**EXTERNAL, "brokerUrlSsl": ""}


@pytest.mark.parametrize("key", ["httpUrl", "httpUrlTls"])
def test_pip_338_case_3_the_listeners_http_and_https_addresses_are_in_the_result(key: str) -> None:
    sent = {**PARTNER, "httpUrl": f"http://{NAME}:8080", "httpUrlTls": f"https://{NAME}:8443"}
    assert put(sent, "partner", picture())[key] == PARTNER[key]


def test_pip_338_case_4_without_preference_for_the_clients_listener_web_urls_stay_and_are_no_leak() -> None:
    snapshot = picture("preferHttpClientListenerOverInternalListener: false")
    sent = {**INTERNAL, "brokerUrl": EXTERNAL_TLS, "nativeUrl": EXTERNAL_TLS, "brokerUrlTls": EXTERNAL_TLS}
    assert put(sent, "external", snapshot) == sent
    assert leaks(sent, "external", snapshot) == (False, False)
    assert put(INTERNAL, "external", snapshot)["brokerUrl"] == EXTERNAL_TLS


# As RestException writes it: a banner, the message, then Java's stack trace.
REASON = "\n --- An unexpected error occurred in the server ---\n\nMessage: {}\n\nStacktrace:\n\n\tat org.apache.pulsar"


@pytest.mark.parametrize(
    "message",
    [
        pytest.param("the broker do not have external listener", id="4.x, and the extensible load manager of 5.x"),
        pytest.param("The broker 'b1:8080' does not have 'external' listener configured.", id="5.x"),
    ],
)
def test_a_brokers_500_for_a_listener_that_it_lacks_is_a_bad_request(message: str) -> None:
    body = json.dumps({"reason": REASON.format(message)}).encode()
    refusal = lacks_listener(500, body, "external")
    assert refusal is not None
    assert (refusal.status, refusal.code) == (400, "broker-lacks-listener")
    assert "'external'" in refusal.text
    assert "Stacktrace" not in refusal.text


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b'{"reason":"Namespace bundle is being unloaded"}'),
        (500, b""),
        (500, b"\xff\xfe"),
        (404, b"the broker do not have external listener"),
        (200, b"the broker do not have external listener"),
    ],
)
def test_other_broker_answers_are_not_turned_into_refusals(status: int, body: bytes) -> None:
    assert lacks_listener(status, body, "external") is None


CLUSTER = picture()
urls = st.sampled_from(
    [*PARTNER.values(), *EXTERNAL.values(), *INTERNAL.values(), "pulsar://x.example:1", "x", "http://["]
)
values = urls | st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(urls, max_size=2)
bodies = st.dictionaries(st.sampled_from([*URL_KEYS, "brokerUrlSsl", "brokerId", "x"]), values)


@given(bodies, st.sampled_from(["internal", "external", "partner", "nobody"]))
def test_putting_an_answer_on_a_listener_is_idempotent_and_keeps_other_keys(
    body: dict[str, Any], listener: str
) -> None:
    once = put_on_listener(json.dumps(body).encode(), listener, CLUSTER)
    twice = put_on_listener(once.body, listener, CLUSTER)
    assert twice.body == once.body
    assert twice.had_leak == once.has_leak
    answer = json.loads(once.body)
    assert {key: answer.get(key) for key in body if key not in URL_KEYS} == {
        key: value for key, value in body.items() if key not in URL_KEYS
    }
    for key in ("brokerUrlTls", "httpUrlTls"):
        if answer.get(key) != body.get(key):
            assert answer.get(key, "https:").startswith(("pulsar+ssl:", "https:"))


def is_json_object(body: bytes) -> bool:
    try:
        return isinstance(json.loads(body), dict)
    except ValueError:
        return False


not_objects = st.binary(max_size=40) | (values | st.lists(bodies, max_size=2)).map(
    lambda value: json.dumps(value).encode()
)


@given(not_objects.filter(lambda body: not is_json_object(body)))
@example(b' ["pulsar://10.0.0.7:6650"]\n')
@example(b'{"brokerUrl": "pulsar://10.0.0.7:6650"')
def test_body_that_is_not_a_json_object_comes_back_unchanged_without_broker_or_leak(body: bytes) -> None:
    assert put_on_listener(body, "external", CLUSTER) == LookupAnswer(body, broker=None, had_leak=False, has_leak=False)


WORDS = ["the broker", "The broker 'b1:8080'", "do not have", "does not have", "'external'", "external", " ", "\n", "{"]


@given(st.binary(max_size=40) | st.lists(st.sampled_from(WORDS)).map(lambda words: " ".join(words).encode()))
@example(b"the broker do not have  listener")
@example(b"The broker 'b1:8080' does not have external listener configured.")
@example(b"The broker 'b1:8080' does not have 'external' listener")
def test_500_without_the_message_for_a_lacking_listener_is_not_turned_into_a_refusal(body: bytes) -> None:
    assert lacks_listener(500, body, None) is None
    assert lacks_listener(500, body, "external") is None
