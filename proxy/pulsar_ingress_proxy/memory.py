"""The bounds of what a sidecar holds in memory. Clients choose what fills it, so each bound is one of bytes.

What connections hold is charged to one budget, and `check` adds all bounds up. Tests measure the bytes of a
decision: they fill the cache with the largest that there can be.
"""

KIB, MIB = 1 << 10, 1 << 20


DECISION_CACHE = 24 * MIB
"""What was decided by the snapshot in force."""
DECISION_ENTRY = 4 * KIB
"""Of that, a decision with all that it refers to, but for its texts."""
DECISION_TEXT = 6
"""For each character of a text."""
DECISION_LONGEST = 4 * KIB
"""Characters of a decision that is kept; what has more is decided each time."""

FAST_PATH = 8 * MIB
"""What the fast path of one binary socket remembers of lookups and answers."""

EVENT_QUEUE = 16 * MIB
"""Events that wait for the disk."""
EVENT_LINES = MIB
"""Events that are compressed and written at a time: held apart, joined, and as bytes."""
RECENT = 2 * MIB
"""Decisions that the console shows, of each of its four sorts."""

CONNECTION = 6 * KIB
"""A client's connection with all of its objects, and the broker's that it is joined to."""
TLS_CONNECTION = 128 * KIB
"""What TLS adds to that: OpenSSL's own state, and what the transport below it may have left to send."""
UNSENT = 4 * KIB
"""What may wait to be sent on a connection before that is charged to the budget."""
IN_FLIGHT = 6 * KIB
"""A request under way beyond what is charged for it, and the connection to a broker that is kept after it."""

# Charged to the budget of what connections hold (limits.bufferBytes).
REQUEST = 4 * KIB
"""A request under way, without its head."""
HEAD = 4
"""For each byte of a head: as it came, parsed, sorted, and on its way to the broker."""
FIELD = 512
"""For each field of a head: objects that are larger than what is in them."""
READ_BUFFER = 16 * KIB
"""Bytes of a body that are read ahead of the broker; twice as many stop the reading."""
TRANSFER = 640 * KIB
"""A body on its way, in either direction: what was read ahead, one read from the socket (256 KiB at most), and as much
that the other side has not taken."""


class Budget:
    """Bytes that all who share it may hold together."""

    def __init__(self, total: int) -> None:
        self._total = self._left = total

    @property
    def used(self) -> int:
        return self._total - self._left

    def resize(self, total: int) -> None:
        self._left += total - self._total
        self._total = total

    def take(self, size: int) -> bool:
        """Hold so many bytes more; false where that is more than there are."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def give_back(self, size: int) -> None:
        self._left += size
