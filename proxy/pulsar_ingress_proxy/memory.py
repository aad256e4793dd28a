"""Memory limits of the sidecar, all in bytes, as clients choose what fills the memory.

Buffers of connections are charged to one budget, and `check` adds up all limits. Tests measure the size of a decision
by filling the cache with the largest possible ones.
"""

KIB, MIB = 1 << 10, 1 << 20


DECISION_CACHE = 24 * MIB
"""Cached decisions of the current snapshot."""
DECISION_ENTRY = 4 * KIB
"""One cached decision, without its strings."""
DECISION_TEXT = 6
"""For each character of its strings."""
DECISION_LONGEST = 4 * KIB
"""Maximum characters of a cached decision; longer ones are not cached."""

FAST_PATH = 8 * MIB
"""Lookups and answers cached by the fast path of one binary socket."""

EVENT_QUEUE = 16 * MIB
"""Events queued for the disk."""
EVENT_LINES = MIB
"""Events compressed and written at a time: as lines, joined, and as bytes."""
RECENT = 2 * MIB
"""Recent decisions for the console, in each of its five rings."""

CONNECTION = 6 * KIB
"""A client's connection with its objects, and the broker's connection that it is joined to."""
TLS_CONNECTION = 128 * KIB
"""Extra for TLS: OpenSSL's state, and unsent bytes of the transport below it."""
UNSENT = 4 * KIB
"""Unsent bytes of a connection up to which nothing is charged to the budget."""
IN_FLIGHT = 6 * KIB
"""Uncharged memory of a request in flight, and the idle broker connection that it leaves."""

# Charged to limits.bufferBytes.
REQUEST = 4 * KIB
"""A request in flight, without its head."""
HEAD = 4
"""For each byte of a head: received, parsed, sorted, and sent to the broker."""
FIELD = 512
"""For each field of a head: object overhead."""
READ_BUFFER = 16 * KIB
"""Bytes of a body that are read ahead of the broker; at twice that, reading pauses."""
TRANSFER = 640 * KIB
"""A body in transit, in either direction: the read-ahead, one read from the socket (256 KiB at most), and as much
unsent."""


class Budget:
    """A shared number of bytes."""

    def __init__(self, total: int) -> None:
        self._total = self._left = total

    @property
    def used(self) -> int:
        return self._total - self._left

    def resize(self, total: int) -> None:
        self._left += total - self._total
        self._total = total

    def take(self, size: int) -> bool:
        """Take bytes from the budget; false if there are not enough."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def give_back(self, size: int) -> None:
        self._left += size
