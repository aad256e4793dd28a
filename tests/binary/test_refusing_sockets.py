"""`run --hold` with a config that is no good: who comes by a binary socket hears why."""

import asyncio
import os
import random
import signal
import socket
from contextlib import suppress
from pathlib import Path

import pytest
from playbooks import Wire
from words import connect

from pulsar_ingress_proxy.app import runner


def unused_port() -> int:
    """Below those that the system gives to outgoing connections, or one might take it."""
    while True:
        port = random.randrange(10_000, 32_768)
        with socket.socket() as unbound, suppress(OSError):
            unbound.bind(("127.0.0.1", port))
            return port


async def test_client_gets_the_config_error_while_the_sidecar_holds_with_a_bad_config(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, port = tmp_path / "config.yaml", unused_port()
    path.write_text(f"bindAddresses: [pulsar://127.0.0.1:{port}]\nmetrics: {{address: '127.0.0.1:{unused_port()}'}}\n")
    holding = asyncio.create_task(runner.run(path, hold=True))
    while "holding" not in caplog.text:
        await asyncio.wait([holding], timeout=0.05)
    _, wire = await asyncio.get_running_loop().create_connection(Wire, "127.0.0.1", port)
    wire.say(connect())
    heard = await wire.hear()
    assert b"bad-config: " in heard
    assert b"brokers.brokerServiceUrl: is missing" in heard
    assert await wire.end() == b""
    os.kill(os.getpid(), signal.SIGTERM)
    await holding
