"""Connections to the simulated brokers: tokens, gzip, streams, recorded requests, stops and scripted faults."""

import asyncio
import gzip
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientConnectionError, ClientPayloadError, WSMsgType
from broker_client import HEADER, LOOKUP, STATS, TWO_URLS, Client, broker_client, named, web
from simulated.cluster import (
    Answer,
    Hold,
    SimulatedCluster,
    always,
    dies,
    redirects,
    says,
    wrong_listener,
)
from yarl import URL


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with broker_client() as one:
        yield one


class TestTokens:
    @pytest.mark.parametrize(
        ("target", "authorization", "status"),
        [
            (LOOKUP, "Bearer s3cret", 200),
            (LOOKUP, "Bearer other", 401),
            (LOOKUP, None, 401),
            ("/ws/v2/producer/persistent/t/n/topic", None, 401),
            ("/status.html", None, 200),
            ("/metrics/", None, 200),
        ],
    )
    async def test_bearer_token_is_required_except_for_status_and_metrics(
        self, client: Client, target: str, authorization: str | None, status: int
    ) -> None:
        async with SimulatedCluster(token="s3cret") as cluster:
            headers = {"Authorization": authorization} if authorization else {}
            assert (await client.send(cluster.brokers[0], target, headers=headers)).status == status


class TestCompression:
    @pytest.mark.parametrize(
        ("always_on", "accepted", "target", "compressed"),
        [
            (False, "gzip, deflate", LOOKUP, True),
            (False, "identity", LOOKUP, False),
            (False, None, LOOKUP, False),
            (False, "gzip", "/admin/v2/brokers/ready", False),  # too short to be worth it
            (True, "identity", LOOKUP, True),
            (True, None, "/admin/v2/brokers/ready", True),
        ],
    )
    async def test_answers_are_gzipped_when_accepted_and_long_enough_or_when_forced(
        self, client: Client, always_on: bool, accepted: str | None, target: str, compressed: bool
    ) -> None:
        async with SimulatedCluster(compress_always=always_on) as cluster:
            plain = await client.send(cluster.brokers[0], target)
            response = await client.send(
                cluster.brokers[0], target, headers={"Accept-Encoding": accepted} if accepted else None
            )
            assert ("gzip" in response.headers.get("Content-Encoding", "")) == compressed
            unpacked = gzip.decompress(response.body) if compressed else response.body
            assert unpacked == (gzip.decompress(plain.body) if always_on else plain.body)


class TestStreams:
    async def test_web_sockets_echo_until_the_broker_stops(self, client: Client) -> None:
        async with SimulatedCluster(brokers=1) as cluster:
            url = cluster.brokers[0].web + "/ws/v2/producer/persistent/t/n/topic"
            async with client.session.ws_connect(url) as connection:
                await connection.send_str('{"payload":""}')
                assert (await connection.receive_str()) == '{"payload":""}'
                await connection.send_bytes(b"\x00\xff")
                assert (await connection.receive_bytes()) == b"\x00\xff"
                await cluster.brokers[0].stop()
                assert (await connection.receive()).type in (WSMsgType.CLOSED, WSMsgType.ERROR)


class TestRequests:
    async def test_requests_are_recorded_byte_for_byte(self) -> None:
        async with SimulatedCluster(brokers=1) as cluster:
            url = URL(cluster.brokers[0].web)
            reader, writer = await asyncio.open_connection(url.host, url.port)
            writer.write(
                b"POST /topics/persistent/t/n/a%2fb%zz?x=%7e&&y HTTP/1.1\r\nhost: b0\r\nX-Pulsar-ListenerName: one\r\n"
                b"x-pulsar-listenername: two\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n"
                b"Connection: close\r\n\r\n\x00\xff\n"
            )
            await reader.read()
            writer.close()
            await writer.wait_closed()
            (received,) = cluster.brokers[0].requests
            assert received.method == "POST"
            assert received.target == "/topics/persistent/t/n/a%2fb%zz?x=%7e&&y"
            assert received.headers[:3] == (("host", "b0"), (HEADER, "one"), ("x-pulsar-listenername", "two"))
            assert received.values("X-PULSAR-LISTENERNAME") == ["one", "two"]
            assert received.header("Accept") is None
            assert received.body == b"\x00\xff\n"


class TestLife:
    async def test_stopped_broker_refuses_connections_and_restarts_on_its_port(self, client: Client) -> None:
        async with SimulatedCluster() as cluster:
            broker = cluster.brokers[1]
            where = broker.web
            await client.send(broker, "/status.html")
            await broker.stop()
            await broker.stop()
            assert broker.web == where
            with pytest.raises(ClientConnectionError):
                await client.send(broker, "/status.html")
            await broker.start()
            assert (await client.send(broker, "/status.html")).status == 200
            assert len(broker.requests) == 2

    async def test_stopping_a_broker_drops_its_pending_requests(self, client: Client) -> None:
        async with SimulatedCluster() as cluster:
            hold = Hold()
            cluster.brokers[0].script.append(hold)
            asked = asyncio.create_task(client.send(cluster.brokers[0], LOOKUP))
            await hold.reached.wait()
            await cluster.brokers[0].stop()
            with pytest.raises(ClientConnectionError):
                await asked

    async def test_closing_the_cluster_drops_held_requests(self, client: Client) -> None:
        async with SimulatedCluster() as cluster:
            hold = Hold()
            cluster.brokers[0].script.append(hold)
            asked = asyncio.create_task(client.send(cluster.brokers[0], LOOKUP))
            await hold.reached.wait()
        with pytest.raises(ClientConnectionError):
            await asked

    async def test_brokers_listen_on_loopback_only(self) -> None:
        async with SimulatedCluster() as cluster:
            assert {URL(broker.web).host for broker in cluster.brokers} == {"127.0.0.1"}


class TestFaults:
    async def test_script_step_applies_to_one_request(self, client: Client) -> None:
        async with SimulatedCluster() as cluster:
            cluster.brokers[0].script.append(says(Answer(429, b'{"reason":"slow down"}')))
            first = await client.send(cluster.brokers[0], LOOKUP)
            assert (first.status, first.json) == (429, {"reason": "slow down"})
            assert (await client.send(cluster.brokers[0], LOOKUP)).status == 200
            assert len(cluster.brokers[0].requests) == 2

    async def test_wrong_listener_step_answers_one_lookup_with_another_listeners_urls(self, client: Client) -> None:
        async with SimulatedCluster(listeners={"external": TWO_URLS}) as cluster:
            cluster.brokers[0].script.append(wrong_listener("internal"))
            urls = [
                (await client.json(cluster.brokers[0], LOOKUP + "?listenerName=external"))["brokerUrl"] for _ in "ab"
            ]
            assert urls == [f"pulsar://{named(0)}:6650", "pulsar://b0.partner.example:6650"]

    async def test_always_redirects_steps_make_a_loop_until_cleared(self, client: Client) -> None:
        async with SimulatedCluster(brokers=2) as cluster:
            first, second = cluster.brokers
            first.script.append(always(redirects(web(1))))
            second.script.append(always(redirects(web(0))))
            for _ in range(3):
                assert await client.location(first, LOOKUP + "?a=%2F") == f"{web(1)}{LOOKUP}?a=%2F"
                assert await client.location(second, LOOKUP + "?a=%2F") == f"{web(0)}{LOOKUP}?a=%2F"
            first.script.clear()
            assert (await client.send(first, LOOKUP)).status == 200

    async def test_redirects_step_can_lead_to_any_host(self, client: Client) -> None:
        async with SimulatedCluster() as cluster:
            cluster.brokers[0].script.append(redirects("https://elsewhere.example:8443"))
            assert await client.location(cluster.brokers[0], STATS) == f"https://elsewhere.example:8443{STATS}"

    async def test_hold_step_holds_one_request_until_released(self, client: Client) -> None:
        async with SimulatedCluster() as cluster:
            hold = Hold()
            cluster.brokers[0].script.append(hold)
            asked = asyncio.create_task(client.send(cluster.brokers[0], LOOKUP))
            await hold.reached.wait()
            assert (await client.send(cluster.brokers[0], LOOKUP)).status == 200  # only that one waits
            assert not asked.done()
            hold.release.set()
            assert (await asked).status == 200

    async def test_dies_step_breaks_the_connection_after_the_given_bytes(self, client: Client) -> None:
        async with SimulatedCluster() as cluster:
            cluster.brokers[0].script.append(dies(after=10))
            async with client.session.get(cluster.brokers[0].web + LOOKUP) as response:
                assert (response.status, response.content_type) == (200, "application/json")
                assert await response.content.readexactly(10) == b'{"brokerUr'
                with pytest.raises(ClientPayloadError):
                    await response.read()
            assert (await client.send(cluster.brokers[0], LOOKUP)).status == 200

    async def test_dies_step_breaks_the_connection_before_an_answer_by_default(self, client: Client) -> None:
        async with SimulatedCluster() as cluster:
            cluster.brokers[0].script.append(dies())
            with pytest.raises(ClientConnectionError):
                await client.send(cluster.brokers[0], LOOKUP, "POST", b"not sent again")
            assert len(cluster.brokers[0].requests) == 1
