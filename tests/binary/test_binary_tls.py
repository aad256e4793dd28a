"""TLS to clients, with the listener by server name, and TLS to brokers."""

import ssl
from pathlib import Path

import pytest
import trustme
from playbooks import BROKER, CLIENT, HELLO, OTHER, ScriptedBroker, Stage, Start, hello, looked_up
from tls_helpers import broker_context, ca_file, client_context, pair_files
from words import CLOSE_PRODUCER, closed, connect, found, lookup, scalable

HOST = "pulsar.external.example"
INGRESSES = [
    {"name": "public", "hosts": [HOST, "*.external.example"], "listener": "external"},
    {"name": "partners", "hosts": ["*.partner.example"], "listener": "partner"},
]


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trust(ca: trustme.CA) -> ssl.SSLContext:
    return client_context(ca)


@pytest.fixture
def tls(ca: trustme.CA, tmp_path: Path) -> dict[str, str]:
    return pair_files(tmp_path, ca.issue_cert("*.external.example", "*.partner.example", "127.0.0.1"))


@pytest.fixture
async def stage(start: Start, tls: dict[str, str]) -> Stage:
    return await start(bindAddresses=["pulsar+ssl://127.0.0.1:0"], tls=tls, ingresses=INGRESSES)


@pytest.mark.parametrize(
    ("name", "listener", "ingress"),
    [(HOST, "external", "public"), ("gateway.partner.example", "partner", "partners")],
)
async def test_tls_server_name_selects_ingress_and_listener(
    stage: Stage, trust: ssl.SSLContext, other: ScriptedBroker, name: str, listener: str, ingress: str
) -> None:
    await stage.connect(trust, name)
    await stage.play(
        *HELLO,
        CLIENT.says(lookup(1)),
        BROKER.hears(lookup(1, listener)),
        BROKER.says(found(1, other.inner())),
        CLIENT.hears(found(1, other.outer("pulsar", listener), other.outer("pulsar+ssl", listener))),
    )
    (event,) = stage.events
    assert (event["serverName"], event["host"], event["scheme"]) == (name, None, "pulsar+ssl")
    assert (event["ingress"], event["rule"], event["listener"]) == (ingress, "ingress", listener)


async def test_default_listener_applies_when_no_tls_server_name_is_sent(
    start: Start, tls: dict[str, str], trust: ssl.SSLContext, other: ScriptedBroker
) -> None:
    stage = await start(
        bindAddresses=["pulsar+ssl://127.0.0.1:0"], tls=tls, ingresses=INGRESSES, lookupListenerName="partner"
    )
    await stage.connect(trust, "127.0.0.1")  # for which no server name is sent
    await stage.play(*HELLO, CLIENT.says(lookup(1)), BROKER.hears(lookup(1, "partner")))
    assert stage.sidecar.snapshot.config.lookup_listener_name == "partner"


async def test_listener_of_the_bind_address_beats_the_tls_server_name(
    start: Start, tls: dict[str, str], trust: ssl.SSLContext
) -> None:
    stage = await start(bindAddresses=["partner:pulsar+ssl://127.0.0.1:0"], tls=tls, ingresses=INGRESSES)
    await stage.connect(trust, HOST)
    await stage.play(*HELLO, CLIENT.says(lookup(1)), BROKER.hears(lookup(1, "partner")))


async def test_tls_server_name_of_a_broker_connects_to_that_broker(stage: Stage, trust: ssl.SSLContext) -> None:
    for _ in range(2):
        await stage.connect(trust, "broker-1.external.example")
        await stage.play(*hello(to=OTHER))
    await stage.connect(trust, "broker-1.partner.example")
    await stage.play(CLIENT.says(connect()), OTHER.hears(connect()))


async def test_client_is_refused_when_the_broker_of_its_tls_server_name_is_unreachable(
    stage: Stage, trust: ssl.SSLContext, other: ScriptedBroker
) -> None:
    other.refuse()
    client = await stage.connect(trust, "broker-1.external.example")
    client.send(connect())
    assert b"broker-unreachable" in await client.hear()


async def test_connection_closes_when_client_speaks_plaintext_to_a_tls_socket(stage: Stage) -> None:
    client = await stage.connect()
    client.send(connect())
    await client.end()
    assert stage.number("connections", protocol="binary") == 0


async def test_scalable_topic_update_has_the_tls_address_in_the_plain_field_too(
    stage: Stage, trust: ssl.SSLContext, other: ScriptedBroker
) -> None:
    """V5 clients read no other field, and would connect with TLS to a plain port."""
    await stage.connect(trust, HOST)
    tls = other.outer("pulsar+ssl")
    await stage.play(
        *HELLO,
        BROKER.says(scalable(other.inner(), None)),
        CLIENT.hears(scalable(tls, tls, is_rewritten=True)),
        BROKER.says(closed(CLOSE_PRODUCER, other.inner())),
        CLIENT.hears(closed(CLOSE_PRODUCER, other.outer(), tls)),
    )
    assert stage.number("leaks_total") == 0


async def test_lookup_is_answered_over_a_tls_connection_to_the_broker(
    start: Start, ca: trustme.CA, trust: ssl.SSLContext, tmp_path: Path, broker: ScriptedBroker
) -> None:
    await broker.close()
    await broker.open(tls=broker_context(ca.issue_cert("127.0.0.1")))
    stage = await start(brokers={"tls": {"ca": ca_file(tmp_path, ca)}})
    await stage.play(
        *HELLO,
        *looked_up(1),
        BROKER.says(found(1, broker.inner())),
        CLIENT.hears(found(1, broker.outer(), broker.outer("pulsar+ssl"))),
    )


async def test_broker_with_an_untrusted_certificate_is_unreachable(
    start: Start, broker: ScriptedBroker, tmp_path: Path
) -> None:
    await broker.close()
    await broker.open(tls=broker_context(trustme.CA().issue_cert("127.0.0.1")))
    stage = await start(brokers={"tls": {"ca": ca_file(tmp_path, trustme.CA())}})
    client = await stage.connect()
    client.send(connect())
    assert b"broker-unreachable" in await client.hear()
