"""What tests of sockets, TLS and the servers for operators share."""

from pathlib import Path

import pytest
import trustme
from http_fixtures import begin, broker, ca, other, pytest_asyncio_loop_factories, secure, start, tidy
from raw import RawBroker, Served, Start
from tls_helpers import NAME, Secret, https, pair_files

__all__ = ["begin", "broker", "ca", "other", "pytest_asyncio_loop_factories", "secure", "start", "tidy"]


@pytest.fixture
def stranger() -> trustme.CA:
    """A CA that nobody here trusts."""
    return trustme.CA()


@pytest.fixture
def secret(tmp_path: Path) -> Secret:
    return Secret(tmp_path / "secret")


@pytest.fixture
async def served(start: Start, broker: RawBroker, ca: trustme.CA, tmp_path: Path) -> Served:
    """A sidecar with an https socket, before a broker without TLS."""
    return await start(broker.url, **https(pair_files(tmp_path, ca.issue_cert(NAME))))
