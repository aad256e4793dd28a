"""An unchanged client behind a real Envoy: TLS ends at the gateway, and every redirect leads to the right broker."""

import asyncio
import json
import signal
import ssl
from pathlib import Path

import aiohttp
import pytest
import yaml
from gateway_stack import HOST, GatewayStack
from processes import BIN, run
from yarl import URL

TOPIC = "persistent://public/default/orders"
LOOKUP = "/lookup/v2/topic/persistent/public/default/orders"


def listener_headers(stack: GatewayStack) -> list[list[str]]:
    return [seen.values("X-Pulsar-ListenerName") for broker in stack.cluster.brokers for seen in broker.requests]


async def metrics(stack: GatewayStack) -> dict[str, float]:
    async with aiohttp.ClientSession() as session, session.get(stack.metrics) as answer:
        lines = (await answer.text()).splitlines()
    return {key: float(value) for key, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")}


async def test_lookup_is_tagged_redirected_to_the_right_broker_and_counted(stack: GatewayStack) -> None:
    async with stack.client.get(stack.url + LOOKUP) as answer:
        body = await answer.json()
        hosts = [str(step.headers["Location"]) for step in answer.history]
    owner = stack.cluster.owner(TOPIC)
    assert owner is not None
    assert answer.status == 200
    assert body["brokerUrlTls"] == f"pulsar+ssl://broker-{owner}.{HOST}:{6651 + owner}"
    assert body["httpUrl"] == f"https://broker-{owner}.{HOST}:{stack.port}"
    assert all(URL(host).host in [f"broker-{number}.{HOST}" for number in range(3)] for host in hosts)
    assert set(map(tuple, listener_headers(stack))) == {("external",)}
    counted = await metrics(stack)
    hits = 'listener_hits_total{ingress="public",listener="external",protocol="http",rule="ingress"}'
    assert counted["pulsar_ingress_" + hits] == len(hosts) + 1


async def test_a_bundle_is_taken_by_the_broker_that_the_leader_chose(stack: GatewayStack) -> None:
    """Two hops through the gateway: the broker that gets authoritative=true is the one that it names."""
    for number in range(12):
        path = f"/lookup/v2/topic/persistent/public/ns-{number}/orders"
        async with stack.client.get(stack.url + path) as answer:
            assert answer.status == 200
            last = answer.history[-1].headers["Location"] if answer.history else None
        owner = stack.cluster.owner(f"persistent://public/ns-{number}/orders")
        if last is not None and "authoritative=true" in last:
            assert URL(last).host == f"broker-{owner}.{HOST}"


async def test_admin_calls_with_bodies_reach_the_owner(stack: GatewayStack) -> None:
    stack.cluster.own(TOPIC, 2)
    for number in range(3):
        path = f"/admin/v2/persistent/public/default/orders/subscription/sub-{number}"
        async with stack.client.put(stack.url + path, json={"entryId": number}) as answer:
            assert answer.status in (200, 204)
    bodies = [json.loads(seen.body) for seen in stack.cluster.brokers[2].requests if seen.method == "PUT"]
    assert [body["entryId"] for body in bodies] == [0, 1, 2]


async def test_websocket_passes_gateway_and_sidecar(stack: GatewayStack) -> None:
    path = "/ws/v2/producer/persistent/public/default/orders"
    async with stack.client.ws_connect(stack.url + path) as socket:
        for message in ("a", "b" * 200_000):
            await socket.send_str(message)
            assert await socket.receive_str() == message


async def test_forged_listener_is_refused_and_forged_principal_is_not_forwarded(stack: GatewayStack) -> None:
    forged = {
        "X-Forwarded-Host": "elsewhere.example.org",
        "X-Original-Principal": "superuser",
        "X-Pulsar-ListenerName": "internal",
    }
    async with stack.client.get(stack.url + LOOKUP, headers=forged) as answer:
        assert answer.status == 403
        assert (await answer.json())["reason"].startswith("not-allowed:")
    del forged["X-Pulsar-ListenerName"]
    async with stack.client.get(stack.url + LOOKUP, headers=forged) as answer:
        assert answer.status == 200
    seen = [request for broker in stack.cluster.brokers for request in broker.requests]
    assert seen
    assert all(request.values("X-Original-Principal") == [] for request in seen)
    assert set(map(tuple, listener_headers(stack))) == {("external",)}


async def test_explain_predicts_ingress_listener_and_rewritten_location(stack: GatewayStack) -> None:
    internal = f"http://{stack.cluster.brokers[1].name}:8080{LOOKUP}?authoritative=true"
    code, out, err = await run(
        BIN / "pulsar-ingress-proxy", "explain", "--config", stack.config, "--json", "--location", internal,
        stack.url + LOOKUP,
    )  # fmt: skip
    assert (code, err) == (0, "")
    said = json.loads(out)
    assert (said["ingress"], said["listener"], said["rule"], said["hit"]) == ("public", "external", "ingress", True)
    assert said["location"] == {
        "from": internal,
        "to": f"https://broker-1.{HOST}:{stack.port}{LOOKUP}?authoritative=true&listenerName=external",
        "action": "rewritten",
    }


async def test_doctor_finds_brokers_behind_an_envoy_reachable(
    stack: GatewayStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(stack.ca))  # what clients outside trust
    reader, writer = await asyncio.open_connection("localhost", stack.port, ssl=ssl.create_default_context())
    writer.write(b"GET /admin/v2/brokers/ready HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 426 "), "or the rest would show nothing"
    writer.close()

    address = f"https://localhost:{stack.port}"
    keys = {
        "brokers": {"webServiceUrl": [address], "tls": {"ca": str(stack.ca)}},
        "advertisedListeners": [{"broker": "broker-0", "listeners": f"external:{address}"}],
    }
    config = tmp_path / "doctor.yaml"
    config.write_text(yaml.safe_dump(keys))
    code, out, err = await run(BIN / "pulsar-ingress-proxy", "doctor", "--config", config, "--json")
    assert (code, err) == (0, "")
    assert [(found["listener"], found["answers"]) for found in json.loads(out)] == [
        ("(pool)", "200"),
        ("external", "200"),
    ]


async def test_lookups_succeed_when_a_broker_is_stopped(stack: GatewayStack) -> None:
    await stack.cluster.brokers[1].stop()
    stack.cluster.own(TOPIC, 2)
    for _ in range(6):
        async with stack.client.get(stack.url + LOOKUP) as answer:
            assert answer.status == 200


async def test_http2_from_the_gateway_is_refused_and_the_log_names_the_fix(stack: GatewayStack) -> None:
    async with stack.client.get(stack.h2_url + LOOKUP) as answer:
        assert answer.status == 503
    await stack.sidecar.says("DO_NOT_UPGRADE")


async def test_sidecar_exits_0_without_traceback_on_sigterm(stack: GatewayStack) -> None:
    async with stack.client.get(stack.url + LOOKUP) as answer:
        assert answer.status == 200
    assert await stack.sidecar.end(signal.SIGTERM) == 0
    assert "Traceback" not in stack.sidecar.output
