"""`conformance` over the binary protocol, through a real sidecar to a broker that answers as it is told."""

import asyncio
from typing import Any

import pytest
from client_place import HOST, Place, answering, failure, http, states, texts
from wires import free_port

from pulsar_ingress_proxy.binary import commands
from pulsar_ingress_proxy.binary.commands_pb2 import LookupResponse

BINARY = ("connect", "lookup", "redirects", "addresses", "brokers")


@pytest.mark.parametrize("scheme", ["pulsar", "pulsar+ssl"])
async def test_all_checks_hold_by_the_address_of_the_own_transport(place: Place, scheme: str) -> None:
    place.binary.answers = [lambda _: place.answer(1)]
    async with place.sidecar():
        results = await place.conform(place.url(scheme))
    assert states(results) == dict.fromkeys(BINARY, "held")
    assert place.binary.url(1, scheme) in texts(results)["addresses"]
    assert {lookup.advertised_listener_name for lookup in place.binary.lookups} == {b"external"}


async def test_redirect_is_followed_to_the_listener(place: Place) -> None:
    """To the broker itself, past the sidecar, which answers with its address on the listener."""
    there = LookupResponse(url=place.binary.url(2).encode(), response=commands.FOUND)

    def redirect(_: object) -> LookupResponse:
        answer = place.answer(2)
        answer.response, answer.authoritative = commands.REDIRECT, True
        return answer

    place.binary.answers = [redirect, lambda _: there]
    async with place.sidecar():
        results = await place.conform(place.url("pulsar"))
    assert states(results) == dict.fromkeys(BINARY, "held")
    assert results[2].verdict.text == f"to {place.binary.url(2)}"
    assert [lookup.authoritative for lookup in place.binary.lookups] == [False, True]


async def test_redirect_whose_answer_is_an_internal_address_is_listener(place: Place) -> None:
    """As brokers answer that have no port for the listener: `redirects.lookup: follow` helps."""
    redirect = place.answer(2)
    redirect.response = commands.REDIRECT
    for scheme in ("pulsar", "pulsar+ssl"):
        place.binary.answers = [lambda _: redirect, lambda _: place.answer(2)]
        async with place.sidecar():
            check, cause, _ = failure(await place.conform(place.url(scheme)))
        assert (check, cause) == ("addresses", "listener")
        place.binary.answers = [lambda _: redirect, lambda _: redirect]
        async with place.sidecar():
            check, cause, text = failure(await place.conform(place.url(scheme)))
        assert (check, cause) == ("redirects", "listener")
        assert f"a redirect to pulsar://{place.cluster.brokers[2].name}:6650" in text


async def test_listener_that_brokers_lack_is_listener(place: Place) -> None:
    message = b"org.apache.pulsar.broker.PulsarServerException: the broker do not have external listener"
    lacking = LookupResponse(response=commands.FAILED, error=commands.SERVICE_NOT_READY, message=message)
    place.binary.answers = [lambda _: lacking]
    async with place.sidecar():
        check, cause, text = failure(await place.conform(place.url("pulsar")))
    assert (check, cause) == ("lookup", "listener")
    assert "broker-lacks-listener" in text


async def test_no_broker_behind_the_sidecar_is_broker(place: Place) -> None:
    async with place.sidecar(brokers={"brokerServiceUrl": [f"pulsar://127.0.0.1:{free_port()}"]}):
        check, cause, text = failure(await place.conform(place.url("pulsar")))
    assert (check, cause) == ("connect", "broker")
    assert "broker-unreachable" in text


@pytest.mark.parametrize(
    ("token", "found"),
    [(None, ("held", None)), ("wrong", ("failed", "credentials")), ("secret", ("held", None))],
)
async def test_broker_that_wants_a_token_is_reached(
    place: Place, token: str | None, found: tuple[str, str | None]
) -> None:
    place.binary.token = b"secret"
    place.binary.answers = [lambda _: place.answer(0)]
    async with place.sidecar():
        results = await place.conform(place.url("pulsar+ssl"), token=token)
    assert (results[0].verdict.state, results[0].verdict.cause) == found
    assert set(states(results[1:]).values()) == ({"held"} if token == "secret" else {"skipped"})


async def test_refused_lookup_is_credentials_only_with_credentials(place: Place) -> None:
    refused = LookupResponse(response=commands.FAILED, error=commands.AUTHORIZATION_ERROR, message=b"not you")
    place.binary.answers = [lambda _: refused]
    async with place.sidecar():
        without = await place.conform(place.url("pulsar"))
        _, cause, text = failure(await place.conform(place.url("pulsar"), token="any"))
    assert without[1].verdict.text == "reached, not allowed: 403"
    assert cause == "credentials"
    assert text.endswith("not you")


async def test_brokers_are_reached_through_the_sidecar(place: Place) -> None:
    """No address of a broker exists outside; CONNECT names it."""
    place.binary.answers = [lambda _: place.answer(1)]
    keys: dict[str, Any] = {
        "ingresses": [{"name": "public", "hosts": [HOST], "listener": "internal", "throughSidecar": True}],
        "bindAddresses": [f"pulsar+ssl://127.0.0.1:{place.ports['pulsar+ssl']}"],
    }
    async with place.sidecar(**keys):
        results = await place.conform(place.url("pulsar+ssl"), **keys)
    assert states(results) == dict.fromkeys(BINARY, "held"), results
    assert results[3].verdict.text.startswith(f"through {place.url('pulsar+ssl')}: ")
    assert set(place.binary.dialled) == {"127.0.0.1", "127.0.0.3"}, "the pool, and the broker that CONNECT names"


@pytest.mark.parametrize("answer", [http(400), b"\xff" * 100])
async def test_another_protocol_is_route(place: Place, answer: bytes) -> None:
    async with answering(place.ports["pulsar"], answer):
        check, cause, _ = failure(await place.conform(place.url("pulsar")))
    assert (check, cause) == ("connect", "route")


async def test_gateway_that_closes_tls_for_an_unknown_name_is_route(place: Place) -> None:
    """As Envoy does where no filter chain matches the server name."""

    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(close, "127.0.0.1", place.ports["pulsar+ssl"]):
        check, cause, text = failure(await place.conform(place.url("pulsar+ssl")))
    assert (check, cause) == ("connect", "route")
    assert "no route has this server name" in text
