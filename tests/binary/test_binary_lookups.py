"""Lookups over the binary protocol: tagged with their listener, answered with addresses on it, or refused."""

import pytest
from playbooks import BROKER, CLIENT, HELLO, KEEPALIVE, ScriptedBroker, Start, hello, looked_up
from words import (
    LOOKUP,
    NOT_ALLOWED,
    PARTITIONS,
    SERVICE_NOT_READY,
    TOPIC,
    command,
    connect,
    connected,
    failed,
    found,
    lookup,
    message,
)

from pulsar_ingress_proxy.binary.lookups import about
from pulsar_ingress_proxy.routing.snapshot import in_zone


async def test_a_lookup_is_tagged_and_its_answer_put_on_the_listener(start: Start, broker: ScriptedBroker) -> None:
    stage = await start()
    await stage.play(
        *HELLO,
        *looked_up(7),
        BROKER.says(found(7, broker.inner())),
        CLIENT.hears(found(7, broker.outer(), broker.outer("pulsar+ssl"))),
    )
    assert stage.number("listener_hits_total", listener="external", rule="bind", protocol="binary") == 1
    assert stage.number("requests_total", kind="lookup", protocol="binary", code="200") == 1
    assert stage.number("in_flight_requests", protocol="binary") == 0
    assert stage.number("connections", protocol="binary") == 1
    (event,) = stage.events
    assert {key: event[key] for key in ("protocol", "kind", "scheme", "listener", "rule", "hit", "status")} == {
        "protocol": "binary",
        "kind": "lookup",
        "scheme": "pulsar",
        "listener": "external",
        "rule": "bind",
        "hit": True,
        "status": 200,
    }
    assert {key: event[key] for key in ("tenant", "namespace", "topic", "broker", "bind", "userAgent", "method")} == {
        "tenant": "public",
        "namespace": "default",
        "topic": TOPIC,
        "broker": "broker-0.pulsar.svc.cluster.local",
        "bind": "127.0.0.1:0",
        "userAgent": "Pulsar-Test-v1",
        "method": None,
    }
    assert (event["serverName"], event["host"], event["clientClass"], event["leak"]) == (None, None, "loopback", None)
    assert event["requestBytes"] == len(lookup(7))
    assert event["durationMs"] >= event["upstreamMs"] > 0


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("persistent://t/ns/orders", ("t", "ns", "persistent://t/ns/orders")),
        ("t/ns/orders", ("t", "ns", "persistent://t/ns/orders")),
        ("orders", ("public", "default", "persistent://public/default/orders")),
        ("persistent://t/cluster/ns/orders", ("t", "ns", "persistent://t/cluster/ns/orders")),
        ("topic://t/ns/orders", ("t", "ns", "topic://t/ns/orders")),
        ("segment://t/ns/orders/0000-7fff-1", ("t", "ns", "segment://t/ns/orders/0000-7fff-1")),
        ("persistent://orders", (None, None, None)),
    ],
)
def test_tenant_and_namespace_of_a_lookup_are_those_that_brokers_read(
    topic: str, expected: tuple[str | None, str | None, str | None]
) -> None:
    target = about(topic.encode())
    assert (target.tenant, target.namespace, target.topic) == expected


@pytest.mark.parametrize("sent", [None, "", "  "], ids=["absent", "empty, as Go and C++ send it", "blank"])
async def test_absent_empty_or_blank_listener_name_is_replaced_by_the_bind_listener(
    start: Start, broker: ScriptedBroker, sent: str | None
) -> None:
    stage = await start()
    await stage.play(
        *HELLO,
        CLIENT.says(lookup(1, sent)),
        BROKER.hears(lookup(1, "external")),
        BROKER.says(found(1, broker.outer(), broker.outer("pulsar+ssl"))),
        CLIENT.hears(found(1, broker.outer(), broker.outer("pulsar+ssl"))),
    )
    assert stage.number("listener_hits_total", rule="bind") == 1
    assert stage.events[0]["clientNamed"] is None


async def test_listener_name_sent_by_the_client_is_honoured(start: Start, broker: ScriptedBroker) -> None:
    stage = await start()
    await stage.play(
        *HELLO,
        CLIENT.says(lookup(1, "partner")),
        BROKER.hears(lookup(1, "partner")),
        BROKER.says(found(1, broker.inner())),
        CLIENT.hears(found(1, broker.outer("pulsar", "partner"), broker.outer("pulsar+ssl", "partner"))),
    )
    assert stage.number("listener_hits_total", listener="partner", rule="header", protocol="binary") == 1
    assert (stage.events[0]["clientNamed"], stage.events[0]["clientNamedBy"]) == ("partner", "header")


REFUSED = {
    "unknown": ("nobody", {}, 400, "unknown-listener: no broker has a listener 'nobody'; known are external, partner"),
    "internal": ("internal", {}, 403, "not-allowed: listener 'internal' may not be named through this socket"),
    "outside the ingress's list": (
        "partner",
        {"ingresses": [{"name": "public", "listener": "external", "allowedListeners": ["external"]}]},
        403,
        "not-allowed: listener 'partner' may not be named through ingress 'public'; allowed are external",
    ),
    "none may be named": (
        "partner",
        {"clientListenerName": "reject"},
        400,
        "client-named: clients may not name a listener here",
    ),
    "lookups are not exposed": (
        None,
        {"ingresses": [{"name": "public", "listener": "external", "expose": ["admin"]}]},
        403,
        "not-exposed: ingress 'public' exposes only admin",
    ),
    "no rule": (
        None,
        {"bindAddresses": ["pulsar://127.0.0.1:0"], "miss": "reject"},
        400,
        "no-rule: no rule says which listener this lookup is for: its host is of no ingress",
    ),
}


@pytest.mark.parametrize(("name", "keys", "status", "text"), REFUSED.values(), ids=REFUSED)
async def test_refused_lookup_fails_and_its_connection_stays_open(
    start: Start, name: str | None, keys: dict[str, object], status: int, text: str
) -> None:
    stage = await start(**keys)
    await stage.play(
        *HELLO,
        CLIENT.says(lookup(5, name)),
        CLIENT.hears(failed(5, NOT_ALLOWED, text)),
        *KEEPALIVE,
    )
    assert stage.number("listener_misses_total", reason=text.partition(":")[0], protocol="binary") == 1
    assert stage.number("requests_total", kind="lookup", protocol="binary", code=str(status)) == 1
    assert stage.events[0]["missReason"] == text.partition(":")[0]


async def test_listener_name_sent_by_the_client_is_replaced_when_names_are_ignored(
    start: Start, broker: ScriptedBroker
) -> None:
    stage = await start(clientListenerName="ignore")
    await stage.play(*HELLO, CLIENT.says(lookup(1, "partner")), BROKER.hears(lookup(1, "external")))


async def test_lookup_without_a_rule_passes_unchanged_and_counts_as_a_miss(
    start: Start, broker: ScriptedBroker
) -> None:
    stage = await start(bindAddresses=["pulsar://127.0.0.1:0"])
    await stage.play(
        *HELLO,
        CLIENT.says(lookup(1)),
        BROKER.hears(lookup(1)),
        BROKER.says(found(1, broker.inner())),
        CLIENT.hears(found(1, broker.inner())),
    )
    assert stage.number("listener_misses_total", reason="no-rule", protocol="binary") == 1


@pytest.mark.parametrize(
    ("said", "part"),
    [
        ("the broker do not have external listener", "the broker do not have external listener"),
        (
            "The broker 'b:8080' does not have 'external' listener configured.",
            "does not have 'external' listener configured",
        ),
    ],
    ids=["4.x", "5.x"],
)
async def test_service_not_ready_for_a_missing_listener_becomes_not_allowed(start: Start, said: str, part: str) -> None:
    """It says ServiceNotReady, on which clients drop their connection and come again, and again."""
    stage = await start()
    text = "broker-lacks-listener: the broker does not have the listener 'external' in its advertisedListeners"
    await stage.play(
        *HELLO,
        *looked_up(1),
        BROKER.says(failed(1, SERVICE_NOT_READY, said)),
        CLIENT.hears(failed(1, NOT_ALLOWED, f"{text} ({part})")),
    )
    assert stage.number("listener_misses_total", reason="broker-lacks-listener", protocol="binary") == 1


@pytest.mark.parametrize(("code", "status"), [(1, 500), (4, 403), (6, 503), (11, 404), (14, 429)])
async def test_other_lookup_failures_of_the_broker_pass_unchanged(start: Start, code: int, status: int) -> None:
    stage = await start()
    answer = failed(1, code, "no")
    await stage.play(
        *HELLO,
        *looked_up(1),
        BROKER.says(answer),
        CLIENT.hears(answer),
    )
    assert stage.number("requests_total", kind="lookup", protocol="binary", code=str(status)) == 1
    assert stage.number("listener_hits_total", protocol="binary") == 1


PROPERTIES = {
    "added": ({"rack": "a"}, False, [], [("rack", "a")]),
    "before the client's others": ({"rack": "a"}, False, [("zone", "z")], [("rack", "a"), ("zone", "z")]),
    "giving way": ({"rack": "a", "row": "1"}, False, [("rack", "b")], [("row", "1"), ("rack", "b")]),
    "overriding": ({"rack": "a"}, True, [("rack", "b"), ("zone", "z")], [("zone", "z"), ("rack", "a")]),
}


@pytest.mark.parametrize(("ours", "override", "theirs", "expected"), PROPERTIES.values(), ids=PROPERTIES)
async def test_configured_lookup_properties_give_way_to_the_clients_unless_overriding(
    start: Start,
    ours: dict[str, str],
    override: bool,
    theirs: list[tuple[str, str]],
    expected: list[tuple[str, str]],
) -> None:
    public = {"name": "public", "listener": "external", "lookupProperties": ours, "overrideLookupProperties": override}
    stage = await start(ingresses=[public])
    await stage.play(
        *HELLO,
        CLIENT.says(lookup(1, properties=theirs)),
        BROKER.hears(lookup(1, "external", properties=expected)),
    )


@pytest.mark.parametrize(("own", "expected"), [({}, "eu-1a"), ({"rack": "written"}, "written")])
async def test_gateway_zone_is_sent_as_a_lookup_property_unless_one_is_configured(
    start: Start, own: dict[str, str], expected: str
) -> None:
    public = {"name": "public", "listener": "external", "lookupProperties": own}
    stage = await start(ingresses=[public], kubernetes={"zoneProperty": "rack"})
    stage.sidecar._context.install(in_zone(stage.sidecar.snapshot, "eu-1a"))  # as discovery finds it
    await stage.play(
        *HELLO, CLIENT.says(lookup(1)), BROKER.hears(lookup(1, "external", properties=[("rack", expected)]))
    )


async def test_original_principal_fields_are_removed_unless_trusted(start: Start) -> None:
    stage = await start()
    await stage.play(
        CLIENT.says(connect(f7="admin", f8="secret", f9="token")),
        BROKER.hears(connect()),
        BROKER.says(connected()),
        CLIENT.hears(connected()),
        CLIENT.says(lookup(1, "external", f4="admin", f5="secret", f6="token")),
        BROKER.hears(lookup(1, "external")),
    )


async def test_original_principal_fields_pass_when_trusted(start: Start, broker: ScriptedBroker) -> None:
    stage = await start(brokers={"brokerServiceUrl": [broker.url], "trustOriginalPrincipal": True})
    said = connect(f7="admin", f8="secret", f9="token")
    asked = lookup(1, "external", f4="admin", f5="secret", f6="token")
    await stage.play(
        *hello(said),
        CLIENT.says(asked),
        BROKER.hears(asked),
    )


async def test_unknown_fields_of_a_lookup_are_kept(start: Start) -> None:
    """At the end of their message, where protobuf puts what it does not know."""
    stage = await start()
    asked = message(f1=TOPIC, f2=1, f3=False, f7="external", f99="new")
    await stage.play(
        *HELLO,
        CLIENT.says(command(LOOKUP, message(f1=TOPIC, f2=1, f3=False, f99="new"))),
        BROKER.hears(command(LOOKUP, asked)),
    )


async def test_original_principal_fields_are_removed_from_partition_requests(start: Start) -> None:
    stage = await start()
    asked = command(PARTITIONS, message(f1=TOPIC, f2=3, f6=True))
    await stage.play(
        *HELLO,
        CLIENT.says(asked),
        BROKER.hears(asked),
        CLIENT.says(command(PARTITIONS, message(f1=TOPIC, f2=3, f3="admin", f4="secret", f5="token", f6=True))),
        BROKER.hears(asked),
    )


async def test_unknown_fields_of_lookup_properties_are_kept(start: Start) -> None:
    """Ours beside one that has a field more, and one that has no value."""
    public = {"name": "public", "listener": "external", "lookupProperties": {"rack": "a"}}
    stage = await start(ingresses=[public])
    theirs = [message(f1="zone", f2="z", f3="more"), message(f1="row")]

    def asked(listener: str | None, properties: list[bytes]) -> bytes:
        return command(LOOKUP, message(f1=TOPIC, f2=1, f3=False, f7=listener, f8=properties))

    ours = message(f1="rack", f2="a")
    await stage.play(*HELLO, CLIENT.says(asked(None, theirs)), BROKER.hears(asked("external", [ours, *theirs])))
