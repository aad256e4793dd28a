"""What tests of sockets, TLS and the servers for operators share."""

import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trustme
from http_fixtures import begin, broker, other, pytest_asyncio_loop_factories, start, tidy
from raw import RawBroker
from tls_helpers import Secret, Secure

__all__ = ["begin", "broker", "other", "pytest_asyncio_loop_factories", "start", "tidy"]


@pytest.fixture
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def stranger() -> trustme.CA:
    """A CA that nobody here trusts."""
    return trustme.CA()


@pytest.fixture
async def secure(tidy: None) -> AsyncIterator[Secure]:
    """Opens brokers with https."""
    async with AsyncExitStack() as stack:

        async def begin(tls: ssl.SSLContext) -> RawBroker:
            broker = RawBroker()
            await broker.open(tls=tls)
            stack.push_async_callback(broker.close)
            return broker

        yield begin


@pytest.fixture
def secret(tmp_path: Path) -> Secret:
    return Secret(tmp_path / "secret")
