"""Streams decisions as server-sent events.

Nothing waits for a slow reader: each turn sends the newest decisions, at most BATCH, and the number that it left out. A
reader that receives nothing for PATIENCE seconds is disconnected.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from aiohttp import web

from pulsar_ingress_proxy.console.filters import Matcher
from pulsar_ingress_proxy.console.view import View
from pulsar_ingress_proxy.observability.recent import Kept

CLIENTS = 8
"""Maximum number of open streams."""
TURN = 0.5
BEAT = 10
"""Turns between heartbeats; a change of the sidecar's state also sends one."""
BATCH = 50
"""Maximum number of decisions in one turn."""
PATIENCE = 10.0
"""Seconds for a reader to receive what was sent."""

_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no"}


class Streams:
    """The open streams."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._closing = asyncio.Event()
        self.open = 0

    @property
    def is_full(self) -> bool:
        return self.open >= CLIENTS

    def close(self) -> None:
        self._closing.set()

    async def serve(self, request: web.Request, matcher: Matcher, since: str | None) -> web.StreamResponse:
        """Send the decisions after `since`, or from now on, until the reader disconnects or the console closes."""
        response = web.StreamResponse(headers=_HEADERS)
        recent = self._view.recent
        place = recent.newest if since is None else recent.number(since)
        self.open += 1
        try:
            await response.prepare(request)
            turn, told = 0, ""
            # A turn without anything to send would not notice that the reader has gone.
            while not self._closing.is_set() and request.transport is not None:
                beat = _event("beat", self._view.standing())
                said = [beat] if turn % BEAT == 0 or beat != told else []
                turn, told, newest = turn + 1, beat, recent.newest
                said += self._news(await self._view.matching(matcher, place))
                place = newest
                if said:
                    async with asyncio.timeout(PATIENCE):
                        await response.write("".join(said).encode())
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), TURN)
        except (ConnectionError, TimeoutError):
            if request.transport is not None:
                request.transport.abort()  # a reader that does not read would not see a normal end either
        finally:
            self.open -= 1
        return response

    def _news(self, kept: list[Kept]) -> Iterator[str]:
        if left_out := len(kept[BATCH:]):
            yield _event("left-out", {"count": left_out})
        for one in reversed(kept[:BATCH]):
            yield _event("decision", self._view.decision(one), self._view.recent.cursor(one.number))


def _event(name: str, data: dict[str, Any], cursor: str = "") -> str:
    place = f"id: {cursor}\n" if cursor else ""
    return f"{place}event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"
