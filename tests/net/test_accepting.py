"""Accepting: many new connections at once do not wait for as many turns of the loop."""

import asyncio
import socket
from contextlib import ExitStack

from raw import RawBroker, Start

TURNS = 8


async def test_turns_of_the_loop_accept_more_connections_than_there_are_turns(start: Start, broker: RawBroker) -> None:
    """A turn takes long under load, and clients give up."""
    served = await start(broker.url)
    with ExitStack() as stack:
        for _ in range(8 * TURNS):
            stack.enter_context(socket.create_connection(("127.0.0.1", served.port)))
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert served.number("connections", protocol="http") == 8 * TURNS


async def test_address_is_free_once_the_server_has_stopped_listening(start: Start, broker: RawBroker) -> None:
    served = await start(broker.url)
    port = served.port
    served.sidecar.http_servers[0].stop_listening()
    with socket.socket() as again:
        again.bind(("127.0.0.1", port))
        again.listen()
