"""The control plane that all tests of a run share, and what each test has in it for itself."""

import secrets
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from apiclient import Api
from apiserver import ApiServer, running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def api_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiServer]:
    async with running(tmp_path_factory.mktemp("control-plane"), "stranger") as server:
        yield server


@pytest.fixture
async def admin(api_server: ApiServer) -> AsyncIterator[Api]:
    """All rights; on a server that runs, whatever the test before did to it."""
    await api_server.start()
    async with api_server.connected(api_server.token("admin")) as api:
        yield api


@pytest.fixture
async def namespace(admin: Api) -> str:
    """A new one, which only this test knows."""
    name = f"test-{secrets.token_hex(4)}"
    await admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name
