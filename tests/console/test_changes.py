"""What changed from one snapshot to the next, in words."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.console.history import changes
from pulsar_ingress_proxy.routing.discovered import Conflict, Discovered, DiscoveredBroker
from pulsar_ingress_proxy.routing.ingresses import Ingress
from pulsar_ingress_proxy.routing.snapshot import Snapshot, build
from pulsar_ingress_proxy.syntax.listeners import parse_service_url

BASE: dict[str, Any] = {
    "brokers": {"webServiceUrl": ["http://b:8080"]},
    "ingresses": [{"name": "public", "hosts": ["a.example"], "listener": "external"}],
    "advertisedListeners": [{"broker": "b-0", "listeners": "internal:http://b-0:8080,external:https://b-0.example"}],
}


def snapshot(discovered: Discovered | None = None, **keys: Any) -> Snapshot:
    return build(load_mapping({**BASE, **keys}), discovered=discovered or Discovered())


def ingress(**changed: Any) -> dict[str, Any]:
    return {"ingresses": [{**BASE["ingresses"][0], **changed}]}


def book(listeners: str) -> dict[str, Any]:
    return {"advertisedListeners": [{"broker": "b-0", "listeners": listeners}]}


@pytest.mark.parametrize(
    ("keys", "lines"),
    [
        ({}, []),
        (ingress(hosts=["a.example", "b.example"]), ["ingress public: host b.example is new"]),
        (
            ingress(hosts=["b.example"]),
            ["ingress public: host b.example is new", "ingress public: host a.example is gone"],
        ),
        (ingress(listener="internal"), ["ingress public: listener external is now internal"]),
        (ingress(expose=["lookup", "client"]), ["ingress public: expose unset is now client, lookup"]),
        (ingress(allowedListeners=[]), ["ingress public: allowedListeners unset is now empty"]),
        (ingress(lookupProperties={"rack": "a"}), ["ingress public: lookupProperties empty is now rack=a"]),
        (ingress(name="other"), ["ingress other: new, a.example for 'external'", "ingress public: gone"]),
        (
            book("internal:http://b-0:8080,external:https://c-0.example"),
            ["broker b-0: external is at https://c-0.example (config), no longer at https://b-0.example (config)"],
        ),
        (
            book("internal:http://b-0:8080"),
            ["broker b-0: external is no longer at https://b-0.example (config)", "listener external: gone"],
        ),
        (
            book("internal:http://b-0:8080,external:https://b-0.example,external:pulsar+ssl://b-0.example:6651"),
            ["broker b-0: external is at pulsar+ssl://b-0.example:6651 (config)"],
        ),
        (
            {"advertisedListeners": [*BASE["advertisedListeners"], {"broker": "b-1", "listeners": "internal:http://b-1"}]},
            ["broker b-1: new, with 1 address"],
        ),
        ({"advertisedListeners": []}, ["broker b-0: gone", "listener external: gone", "listener internal: gone"]),
        (
            {"redirects": {"lookup": "follow", "maxHops": 2}},
            ["redirects.lookup: auto is now follow", "redirects.maxHops: 5 is now 2"],
        ),
        ({"shadow": True}, ["shadow: false is now true"]),
        ({"lookupListenerName": "external"}, ["lookupListenerName: unset is now external"]),
        ({"bindAddresses": ["http://127.0.0.1:1"]}, ["bindAddresses: http://0.0.0.0:8080 is now http://127.0.0.1:1"]),
    ],
)  # fmt: skip
def test_config_changes_are_described_line_by_line(keys: dict[str, Any], lines: list[str]) -> None:
    assert list(changes(snapshot(), snapshot(**keys))) == lines


def test_discovered_objects_are_described_when_they_appear_and_disappear() -> None:
    url = parse_service_url("https://b-0.found")
    found = Discovered(
        ingresses=(Ingress("ingress/web/public", ("c.example",), "external"),),
        brokers=(
            DiscoveredBroker(("b-9",), {"external": {"https": url}}, {("external", "https"): ("derived", "route/x")}),
        ),
        conflicts=(Conflict("route/web/odd", "says too little"),),
    )
    after = snapshot(found)
    assert list(changes(snapshot(), after)) == [
        "ingress ingress/web/public: new, c.example for 'external'",
        "broker b-9: new, with 1 address",
        "conflict: route/web/odd says too little",
    ]
    assert list(changes(after, snapshot())) == [
        "ingress ingress/web/public: gone",
        "broker b-9: gone",
        "no longer in conflict: route/web/odd says too little",
    ]


def test_another_source_of_the_same_address_is_a_change() -> None:
    url = parse_service_url("https://b-0.example")

    def found(source: Any) -> Discovered:
        return Discovered(brokers=(DiscoveredBroker(("b-9",), {"e": {"https": url}}, {("e", "https"): (source, "x")}),))

    (line,) = changes(snapshot(found("derived")), snapshot(found("annotation")))
    assert line == "broker b-9: e is at https://b-0.example (annotation), no longer at https://b-0.example (derived)"
