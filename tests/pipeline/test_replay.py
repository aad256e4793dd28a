"""Recorded requests under another config: what would change, and whether a hit would be lost."""

from typing import Any

import pytest
from made_events import MISS, event, frame
from pyspark.sql import SparkSession

from pulsar_ingress_pipeline.replay import as_text, replay
from pulsar_ingress_proxy.config import load_mapping

CONFIG: dict[str, Any] = {
    "bindAddresses": ["http://0.0.0.0:8443", "partner:http://0.0.0.0:9443"],
    "brokers": {"webServiceUrl": ["http://broker:8080"]},
    "ingresses": [{"name": "public", "hosts": ["pulsar.example.com"], "listener": "external"}],
    "advertisedListeners": [
        {"broker": "broker-7", "listeners": "external:https://b7.example.com,partner:https://p7.example.com"}
    ],
}
INSIDE: dict[str, Any] = {
    "redirectFrom": "http://broker-7:8080/lookup/v2/topic/x",
    "redirectAction": "rewritten",
    "redirectTo": "https://b7/",
}

EVENTS = [
    event(1), event(2), event(2),
    event(3, **MISS | {"host": "other.example.com"}),
    event(4, **INSIDE), event(5, **INSIDE | {"redirectFrom": "http://broker-7:8080/lookup/v2/topic/y"}),
    event(6, clientNamed="partner", clientNamedBy="query", listener="partner", rule="query"),
    event(7, bind="0.0.0.0:9443", listener="partner", rule="bind", host=None),
    event(8, kind="admin"),
    event(9, hit=False, missReason="broker-lacks-listener"),
    event(
        11, protocol="binary", scheme="pulsar+ssl", host=None, serverName="pulsar.example.com", bind="0.0.0.0:6651",
        redirectFrom="pulsar://broker-7:6650", redirectAction="rewritten", redirectTo="pulsar+ssl://b7.example.com:6651",
    ),
    event(10, scheme=None, host=None, **MISS | {"ingress": None}),
    event(12, scheme=None),  # not as sidecars write it, but a hit
]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        (
            {"ingresses": []},
            [
                ("lookup hit on external", "miss (no-rule)", 7, True),
                ("admin on external", "on none", 1, False),
            ],
        ),
        (
            {"lookupListenerName": "external"},
            [("lookup miss (no-rule)", "hit on external", 1, False)],
        ),
        (
            {"redirects": {"lookup": "follow"}},
            [("lookup hit on external, redirect rewritten", "hit on external, redirect followed", 2, False)],
        ),
        (
            {"clientListenerName": "reject"},
            [("lookup hit on partner", "miss (client-named)", 1, True)],
        ),
    ],
)
def test_replay_reports_decisions_that_change_under_another_config(
    spark: SparkSession, changes: dict[str, Any], expected: list[tuple[str, str, int, bool]]
) -> None:
    total, found = replay(frame(spark, EVENTS), load_mapping(CONFIG | changes))
    assert total == 11
    assert [(change.before, change.after, change.requests, change.loses_hit) for change in found] == expected
    text = as_text(total, found)
    assert text.startswith(f"11 requests, {11 - sum(change.requests for change in found)} decided as they were")
    assert ("hits would become misses" in text) is any(change.loses_hit for change in found)
    if found:
        assert "e.g. host=" in text
