"""What answers of both protocols say about the way that they came."""

import re
from pathlib import Path
from typing import Any, get_args

import pytest

from pulsar_ingress_proxy.binary import commands
from pulsar_ingress_proxy.binary.commands_pb2 import Command, Error, LookupResponse
from pulsar_ingress_proxy.net.errors import BadAnswer, ClosedEarly, TimedOut
from pulsar_ingress_proxy.syntax.listeners import ServiceUrl, parse_service_url
from pulsar_ingress_proxy.tools.conformance import verdicts
from pulsar_ingress_proxy.tools.conformance.replies import Hop, Reply, binary_reply, http_reply, next_hop
from pulsar_ingress_proxy.tools.conformance.verdicts import Cause, Expected, judge, unreached
from pulsar_ingress_proxy.tools.explain import OwnAnswer
from pulsar_ingress_proxy.tools.reach import Attempt

WEB = parse_service_url("https://pulsar.example.com")
BINARY = parse_service_url("pulsar+ssl://pulsar.example.com:6651")
PLAIN = parse_service_url("pulsar://pulsar.example.com:6650")
OTHER = parse_service_url("https://b.example.com")
PASSED = [b"X-Request-Id: 1"]
NOT_EXPOSED = OwnAnswer(status=403, code="not-exposed", text="exposes only lookup")


def reason(text: str) -> bytes:
    return b'{"reason": "%b"}' % text.encode()


@pytest.mark.parametrize(
    ("status", "fields", "body", "expected", "found"),
    [
        (200, PASSED, b"{}", Expected(), ("held", None, True)),
        (307, [], b"", Expected(), ("held", None, True)),
        (401, PASSED, b"<html>", Expected(), ("held", None, False)),
        (403, [], b"RBAC: access denied", Expected(), ("held", None, False)),
        (401, PASSED, b"<html>", Expected(has_credentials=True), ("failed", "credentials", True)),
        (403, PASSED, reason("not-exposed: no"), Expected(NOT_EXPOSED, has_credentials=True), ("held", None, False)),
        (403, PASSED, reason("not-exposed: no"), Expected(), ("failed", "sidecar", True)),
        (403, PASSED, reason("not-allowed: no"), Expected(), ("failed", "listener", True)),
        (400, PASSED, reason("no-rule: no"), Expected(), ("failed", "listener", True)),
        (502, PASSED, reason("leak: an address"), Expected(), ("failed", "listener", True)),
        (502, PASSED, reason("broker-unreachable: no"), Expected(), ("failed", "broker", True)),
        (503, [], reason("bad-config: config.yaml:1"), Expected(), ("failed", "sidecar", True)),
        (503, PASSED, reason("overloaded: more"), Expected(), ("failed", "sidecar", True)),
        (503, PASSED, b"", Expected(), ("failed", "broker", True)),
        (404, PASSED, reason("Topic not found"), Expected(), ("failed", "broker", True)),
        (404, PASSED, reason("Topic not found"), Expected(may_be_absent=True), ("held", None, True)),
        (404, [], b"", Expected(may_be_absent=True), ("failed", "route", True)),
        (503, [], b"no healthy upstream", Expected(), ("failed", "route", True)),
        (504, [], b"upstream request timeout", Expected(), ("failed", "broker", True)),
        (500, PASSED, b"[" * 100_000, Expected(), ("failed", "broker", True)),
    ],
)
def test_status_and_reason_of_an_http_answer_tell_the_cause(
    status: int, fields: list[bytes], body: bytes, expected: Expected, found: tuple[str, str | None, bool]
) -> None:
    verdict = judge(http_reply(WEB, status, fields, None, body), expected)
    assert (verdict.state, verdict.cause, verdict.is_allowed) == found
    assert len(verdict.text) < 1000


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (Command(type=commands.CONNECTED), ("held", None)),
        (Command(type=commands.AUTH_CHALLENGE), ("held", None)),
        (Command(type=commands.ERROR, error=Error(error=commands.AUTHENTICATION_ERROR)), ("held", None)),
        (
            Command(type=commands.ERROR, error=Error(error=commands.NOT_ALLOWED, message=b"unknown-broker: no")),
            ("failed", "listener"),
        ),
        (
            Command(
                type=commands.LOOKUP_RESPONSE,
                lookup_response=LookupResponse(response=2, error=commands.METADATA_ERROR, message=b"bundle is moving"),
            ),
            ("failed", "broker"),
        ),
    ],
)
def test_binary_answer_tells_the_cause(command: Command, found: tuple[str, str | None]) -> None:
    verdict = judge(binary_reply(BINARY, command), Expected())
    assert (verdict.state, verdict.cause) == found


@pytest.mark.parametrize(
    ("steps", "url", "at_ingress", "at_broker"),
    [
        ({"resolves": False}, WEB, "dns", "dns"),
        ({"connects": False}, WEB, "route", "route"),
        ({"certificate": False}, WEB, "certificate", "certificate"),
        ({"error": BadAnswer()}, BINARY, "route", "route"),
        ({"error": ConnectionResetError()}, BINARY, "route", "route"),
        ({"error": ConnectionResetError()}, PLAIN, "broker", "broker"),
        ({"error": ClosedEarly()}, BINARY, "route", "broker"),
        ({"error": ClosedEarly()}, PLAIN, "route", "broker"),
        ({"error": TimedOut()}, WEB, "broker", "broker"),
    ],
)
def test_step_at_which_a_request_fails_tells_the_cause(
    steps: dict[str, Any], url: ServiceUrl, at_ingress: Cause, at_broker: Cause
) -> None:
    defaults: dict[str, Any] = {"resolves": True, "connects": True, "problem": "it is so"}
    tried: Attempt[str] = Attempt(**defaults | steps)
    assert unreached(tried, url, at_ingress=True).cause == at_ingress
    assert unreached(tried, url, at_ingress=False).cause == at_broker


@pytest.mark.parametrize(
    ("reply", "hop"),
    [
        (
            Reply(WEB, 307, location="https://b.example.com/x?y"),
            Hop(OTHER, "/x?y"),
        ),
        (Reply(WEB, 307, location="/x?y"), Hop(WEB, "/x?y")),
        (Reply(WEB, 307, location="//b.example.com/x"), None),
        (Reply(WEB, 307, location="https://b.example.com/\r\nX: y"), None),
        (Reply(WEB, 307), None),
        (
            Reply(BINARY, 307, addresses={"brokerUrl": "pulsar://p:1", "brokerUrlTls": "pulsar+ssl://b:2"}),
            Hop(parse_service_url("pulsar+ssl://b:2")),
        ),
        (Reply(BINARY, 307, addresses={"brokerUrl": "pulsar://p:1"}), None),
        (
            Reply(BINARY, 307, addresses={"brokerUrlTls": "pulsar+ssl://b:2"}, through=True, authoritative=True),
            Hop(BINARY, authoritative=True, named="pulsar+ssl://b:2"),
        ),
    ],
)
def test_redirect_leads_to_the_address_of_the_own_transport(reply: Reply, hop: Hop | None) -> None:
    assert next_hop(reply) == hop


def test_causes_are_of_codes_that_the_sidecar_answers() -> None:
    page = Path(__file__).parent.parent.parent / "docs" / "decisions.md"
    table = page.read_text().partition("## The sidecar's own answers")[2]
    assert verdicts._CAUSES.keys() <= set(re.findall(r"`([a-z-]+)`", table))
    assert set(verdicts._CAUSES.values()) <= set(get_args(Cause))
