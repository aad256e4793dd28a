"""Fixtures of tests over HTTP, which the conftest of their folder imports."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop
from leftovers import tidy
from raw import GET, OK, Begin, Exchange, Message, RawBroker, Served, Start, Wire, serving
from running_sidecar import starter
from tls_helpers import Secure, broker_context, ca_file, towards
from wires import opened

__all__ = ["begin", "broker", "ca", "exchange", "other", "pytest_asyncio_loop_factories", "secure", "start", "tidy"]

BOTH_LOOPS = (
    "test_tls", "test_broker_trust", "test_https", "test_limits", "test_drain", "test_accepting", "test_overload",
)  # fmt: skip


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Over TLS, the loop that `run` takes tells a protocol other things than asyncio's own."""
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    if item.path.name.startswith(BOTH_LOOPS):
        loops["uvloop"] = uvloop.new_event_loop
    return loops


@pytest.fixture
async def broker(tidy: None) -> AsyncIterator[RawBroker]:
    async with opened(RawBroker()) as one:
        yield one


@pytest.fixture
async def other(tidy: None) -> AsyncIterator[RawBroker]:
    """A second broker."""
    async with opened(RawBroker()) as one:
        yield one


@pytest.fixture
async def start(tidy: None) -> AsyncIterator[Start]:
    """Starts sidecars before brokers' URLs, with other settings of the config, and stops them at the end."""
    async with starter(serving) as begin:
        yield begin


@pytest.fixture
def begin(start: Start, broker: RawBroker) -> Begin:
    """Starts a sidecar before the broker and sends a request, whose head the broker reads."""

    async def sent(data: bytes = GET, **settings: Any) -> tuple[Served, Wire, Wire]:
        served = await start(broker.url, **settings)
        client = await served.client(data)
        wire = await broker.accept()
        await wire.head()
        return served, client, wire

    return sent


@pytest.fixture
def exchange(start: Start, broker: RawBroker) -> Exchange:
    """Starts a sidecar before the broker and sends a request, which the broker answers."""

    async def exchanged(data: bytes = GET, answer: bytes = OK, **settings: Any) -> tuple[Message, Message]:
        served = await start(broker.url, **settings)
        client = await served.client(data)
        request = await broker.answer(answer)
        return request, await client.message(bodiless=data.startswith(b"HEAD "))

    return exchanged


@pytest.fixture
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def secure(start: Start, ca: trustme.CA, tmp_path: Path) -> AsyncIterator[Secure]:
    """Opens an https broker, and starts a sidecar before it that trusts the CA."""
    async with AsyncExitStack() as stack:

        async def begin(
            context: ssl.SSLContext | None = None, host: str = "127.0.0.1", **tls: str
        ) -> tuple[Served, RawBroker]:
            tls_context = context or broker_context(ca.issue_cert(host))
            broker = await stack.enter_async_context(opened(RawBroker(), tls_context))
            config = towards(ca=ca_file(tmp_path, ca), **tls)
            return await start(f"https://{host}:{broker.port}", **config), broker

        yield begin
