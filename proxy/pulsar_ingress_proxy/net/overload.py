"""Overload: whether requests have waited for so long, and for long enough, that some are refused.

While the process is busy, requests wait in their sockets and connections in the backlog. The kernel knows since when.
After a pause of the process that wait is long once, and the next requests wait less. Beyond capacity it stays long; so
only a wait that was never short for a while counts, as in CoDel (RFC 8289). Then requests that have waited for too long
are refused, which costs a fraction of serving them, until the others wait less.
"""

import asyncio
import logging
import socket
import struct
from time import monotonic

LOOKS, BETWEEN = 100, 0.01
"""Number of waiting times, all over the limit, that begin an overload, or all within it that end one; and the minimum
of seconds between two that count. So either takes a second or more."""
SERVED = 4
"""One of so many requests that have waited for too long is served. Refusing all would serve none once the refusals
alone take all CPU time."""
_WAITED = struct.Struct("=52xI")
"""tcpi_last_data_recv of struct tcp_info: milliseconds since the last segment with data came. Linux only."""
_TCP_INFO = getattr(socket, "TCP_INFO", None)

_BEGINS = "overloaded: for a second, requests have waited for more than %g ms (limits.waitMillis); refusing some"
_ENDS = "no longer overloaded: requests wait for less than %g ms again"

log = logging.getLogger("proxy")


class Overload:
    """The state of one process, by how long requests have waited before it read them."""

    __slots__ = ("_late", "_looks", "_next", "is_overloaded", "limit")

    def __init__(self, limit: float) -> None:
        self.limit = limit
        """Seconds."""
        self.is_overloaded = False
        self._next = 0.0
        """The time of the next look."""
        self._looks = 0
        """The last looks that contradict the state."""
        self._late = 0
        """Late requests during this overload."""

    def refuses(self, transport: asyncio.BaseTransport | None) -> bool:
        """Whether to refuse a request that this transport has just received."""
        now = monotonic()
        if now < self._next and not self.is_overloaded:
            return False
        return self.decide(now, _waited(transport))

    def decide(self, now: float, waited: float) -> bool:
        """Whether to refuse a request that begins now and has waited so long; times are in seconds."""
        is_late = waited > self.limit
        if now >= self._next:
            self._next = now + BETWEEN
            self._looks = 0 if is_late == self.is_overloaded else self._looks + 1
            if self._looks == LOOKS:
                self.is_overloaded, self._looks, self._late = is_late, 0, 0
                log.warning(_BEGINS if is_late else _ENDS, self.limit * 1000)
        if not is_late or not self.is_overloaded:
            return False
        self._late += 1
        return self._late % SERVED != 0


def _waited(transport: asyncio.BaseTransport | None) -> float:
    """How long the last bytes that the transport received have waited in the socket; 0 if the system cannot tell."""
    sock = transport.get_extra_info("socket") if transport is not None else None
    if sock is None or _TCP_INFO is None:
        return 0.0
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _WAITED.size)
    except OSError:  # the client has disconnected
        return 0.0
    return float(_WAITED.unpack(info)[0]) / 1000 if len(info) == _WAITED.size else 0.0
