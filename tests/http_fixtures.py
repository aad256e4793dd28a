"""Fixtures of tests over HTTP, which the conftest of their folder imports."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import uvloop
from leftovers import tidy
from raw import GET, OK, Begin, Exchange, Message, RawBroker, Served, Start, Wire, serving
from running_sidecar import starter
from wires import opened

__all__ = ["begin", "broker", "exchange", "other", "pytest_asyncio_loop_factories", "start", "tidy"]

BOTH_LOOPS = ("test_tls", "test_broker_trust", "test_https", "test_limits", "test_drain")


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
