"""Waiting for sockets whose both ends are in this process."""

import asyncio
from collections.abc import Callable


async def settled(*progress: Callable[[], int]) -> None:
    """Wait until nothing moves: everybody is in this one loop, so turns without progress mean a standstill."""
    last, still = [-1] * len(progress), 0
    while still < 300:
        now = [count() for count in progress]
        still = still + 1 if now == last else 0
        last = now
        await asyncio.sleep(0)
