"""A new config in a running sidecar: sockets that come, go and are renamed, and requests that notice nothing."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import trustme
from raw import CLOSING, GET, LOOKUP, OK, PUT, Message, RawBroker, Served, Start, answer_all
from running_sidecar import while_running
from tls_helpers import client_context, pair_files
from wires import free_port

from pulsar_ingress_proxy.config import Config, load_mapping
from pulsar_ingress_proxy.tools.preflight import CannotStart

NAME = b"x-pulsar-listenername"


def config(broker: RawBroker, *binds: str, **settings: Any) -> Config:
    """The first socket by default, then others."""
    return load_mapping(
        {
            "bindAddresses": list(binds) or ["http://127.0.0.1:0"],
            "metrics": {"address": "127.0.0.1:0"},
            "brokers": {"webServiceUrl": [broker.url]},
            "drainSeconds": 30,
            **settings,
        }
    )


async def listener_of(served: Served, broker: RawBroker, port: int) -> bytes:
    """The listener that a lookup by this socket is tagged with."""
    client = await served.client(LOOKUP, port=port)
    request = await broker.answer(CLOSING)
    assert (await client.message()).body == b"ok"
    client.close()
    return request.head.one(NAME)


async def test_reload_opens_closes_and_renames_sockets_without_failing_requests(
    start: Start, broker: RawBroker
) -> None:
    a, b, c = (free_port() for _ in range(3))
    binds = [f"one:http://127.0.0.1:{a}", f"two:http://127.0.0.1:{b}"]
    served = await start(broker.url, bindAddresses=binds, drainSeconds=30)
    assert [await listener_of(served, broker, port) for port in (a, b)] == [b"one", b"two"]
    kept, going = await served.client(port=a), await served.client(GET, port=b)
    wire = await broker.accept()
    await wire.head()
    idle = await served.client(port=b)

    await served.sidecar.reload(config(broker, f"renamed:http://127.0.0.1:{a}", f"three:http://127.0.0.1:{c}"))
    assert [await listener_of(served, broker, port) for port in (a, c)] == [b"renamed", b"three"]
    assert served.sidecar.snapshot.generation == 2
    await idle.end()
    with pytest.raises(ConnectionRefusedError):
        await served.client(port=b)
    wire.send(OK)  # what was under way by the socket that is gone finishes
    answer = await going.message()
    assert (answer.body, answer.head.one(b"connection")) == (b"ok", b"close")
    assert await going.rest() == b""
    kept.send(LOOKUP)  # a connection of the socket that stays goes by its new name
    assert (await wire.head()).one(NAME) == b"renamed"
    wire.send(OK)
    assert (await kept.message()).body == b"ok"

    await served.sidecar.reload(config(broker, f"two:http://127.0.0.1:{b}"))  # and back again
    kept.send(LOOKUP)
    await kept.end()
    client = await served.client(LOOKUP, port=b)
    assert (await wire.head()).one(NAME) == b"two"
    wire.send(OK)
    assert (await client.message()).body == b"ok"


async def test_sidecar_does_not_start_when_bind_address_is_taken(start: Start, broker: RawBroker) -> None:
    with pytest.raises(CannotStart, match=f"bindAddresses http://127.0.0.1:{broker.port}: cannot be bound"):
        await start(broker.url, bindAddresses=[f"http://127.0.0.1:{broker.port}"])


async def test_reload_fails_as_a_whole_when_a_socket_cannot_be_bound(
    start: Start, broker: RawBroker, tmp_path: Path
) -> None:
    a, b = free_port(), free_port()
    old, new = trustme.CA(), trustme.CA()
    tls = {name: pair_files(tmp_path, ca.issue_cert("localhost"), name) for name, ca in (("old", old), ("new", new))}
    served = await start(broker.url, bindAddresses=[f"one:http://127.0.0.1:{a}", "https://127.0.0.1:0"], tls=tls["old"])
    port = served.sidecar.http_servers[1].port
    taken = f"three:http://127.0.0.1:{broker.port}"
    with pytest.raises(CannotStart, match=f"bindAddresses {taken}: cannot be bound"):
        await served.sidecar.reload(
            config(broker, f"x:http://127.0.0.1:{b}", taken, "https://127.0.0.1:0", tls=tls["new"])
        )
    assert served.sidecar.snapshot.generation == 1
    assert await listener_of(served, broker, a) == b"one"
    with pytest.raises(ConnectionRefusedError):
        await served.client(port=b)
    await served.client(
        tls=client_context(old), server_name="localhost", port=port
    )  # the certificate is the old one too


async def test_request_under_way_keeps_its_config_snapshot_across_reload(start: Start, broker: RawBroker) -> None:
    """DecisionCache, addresses and timeouts; the next one on the same connection has the new ones."""

    def book(domain: str) -> dict[str, Any]:
        listeners = f"internal:http://10.0.0.1:8080,external:https://b.{domain}"
        return {
            "lookupListenerName": "external",
            "advertisedListeners": [{"broker": "b.inside.svc:8080", "listeners": listeners}],
        }

    served = await start(broker.url, **book("old.example"))
    moved = b"HTTP/1.1 307 Moved\r\nLocation: http://b.inside.svc:8080/x\r\nContent-Length: 0\r\n\r\n"
    client = await served.client(GET)
    wire = await broker.accept()
    for domain in (b"old", b"new"):
        await wire.head()
        await served.sidecar.reload(config(broker, **book("new.example")))
        wire.send(moved)
        assert (await client.message()).head.one(b"location") == b"https://b.%b.example/x" % domain
        client.send(GET)


async def test_reload_applies_new_limits_and_timeouts(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    await served.sidecar.reload(config(broker, limits={"inFlight": 1}, timeouts={"request": 0.05}))
    client, excess = await served.client(GET), await served.client()
    wire = await broker.accept()
    await wire.head()
    excess.send(GET)
    assert (await excess.message()).status == 503
    assert (await client.message()).status == 504


@pytest.mark.parametrize("key", ["metrics", "console", "events", "clusterName"])
async def test_reload_logs_changes_that_need_a_restart(
    start: Start, broker: RawBroker, caplog: pytest.LogCaptureFixture, key: str, tmp_path: Path
) -> None:
    served = await start(broker.url)
    values: dict[str, Any] = {
        "metrics": {"address": "127.0.0.1:1"},
        "console": {"address": "127.0.0.1:1"},
        "events": {"path": str(tmp_path)},
        "clusterName": "other",
    }
    await served.sidecar.reload(config(broker, **{key: values[key]}))
    assert f"a change of {key} takes effect with the next start" in caplog.text


async def test_no_request_fails_during_a_thousand_reloads(start: Start, broker: RawBroker) -> None:
    """No request fails, whatever the reload does to the socket's name, and no connection is ended."""
    served = await start(broker.url, lookupListenerName="a")
    reloaded = asyncio.Event()
    names: set[bytes] = set()

    def answer(request: Message) -> bytes:
        names.update(request.head.all(NAME))
        return OK

    async def load(data: bytes) -> int:
        client, count = await served.client(), 0
        while not reloaded.is_set():
            client.send(data)
            assert (await client.message()).body == b"ok"
            count += 1
        return count

    loads = [load(data) for data in (GET, LOOKUP, LOOKUP, LOOKUP, PUT)]
    configs = [
        config(broker, *binds, lookupListenerName=name)
        for binds in (["http://127.0.0.1:0"], ["c:http://127.0.0.1:0"])
        for name in ("a", "b")
    ]
    async with while_running(answer_all(broker, answer)):
        counting = asyncio.gather(*loads)
        for turn in range(1000):
            await served.sidecar.reload(configs[turn % 4])
            for _ in range(turn % 7):  # so that it meets requests at every stage
                await asyncio.sleep(0)
        reloaded.set()
        counts = await counting
    assert served.sidecar.snapshot.generation == 1001
    assert all(counts)
    assert names == {b"a", b"b", b"c"}
    assert served.number("requests_total") == served.number("requests_total", code="200") == sum(counts)
