"""The bounds of what a sidecar holds in memory. Clients choose what fills it, so each bound is one of bytes.

Every cache takes its bound from here, and what connections hold is charged to one budget; `sizing` adds it all up. The
bytes of an entry are measured by tests, which fill each cache with the largest entries that there can be.
"""

from dataclasses import dataclass

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True, eq=False)  # two caches may have the same numbers
class CacheBound:
    """How many entries a cache has, and how long a text of a client's may be that is kept in one."""

    entries: int
    longest: int
    """Characters; what has more is worked out each time."""
    entry_bytes: int
    """What the largest entry takes, with all that it refers to."""

    @property
    def total_bytes(self) -> int:
        return self.entries * self.entry_bytes


REQUEST_TARGETS = CacheBound(2048, 512, 6 * KIB)
AUTHORITIES = CacheBound(4096, 255 + len(":65535"), KIB)  # RFC 1035 3.1: a longer host is not a name
ADDRESSES = CacheBound(1024, AUTHORITIES.longest, 8 * KIB)
DECISIONS = CacheBound(1024, 512, 12 * KIB)
LOOKUP_ANSWERS = CacheBound(512, 4 * KIB, 24 * KIB)
FORWARDED_CLIENTS = CacheBound(1024, 256, KIB)
CONNECTION_OPTIONS = CacheBound(256, 256, 16 * KIB)
LOOKUP_FIELDS = CacheBound(256, 256, 2 * KIB)
EVENT_DECISIONS = CacheBound(256, 512, 16 * KIB)
USER_AGENTS = CacheBound(1024, 256, 3 * KIB)
CLIENT_CLASSES = CacheBound(4096, 64, 512)
BINARY_TOPICS = CacheBound(2048, 512, 6 * KIB)

CACHES = (
    REQUEST_TARGETS, AUTHORITIES, ADDRESSES, ADDRESSES, DECISIONS, DECISIONS, LOOKUP_ANSWERS, FORWARDED_CLIENTS,
    CONNECTION_OPTIONS, LOOKUP_FIELDS, EVENT_DECISIONS, USER_AGENTS, CLIENT_CLASSES, BINARY_TOPICS,
)  # fmt: skip
"""Those of a process; addresses are found in two ways, and decisions made for two protocols."""

FAST_PATH = 8 * MIB
"""What the fast path of one binary socket remembers of lookups and answers."""

EVENT_QUEUE = 16 * MIB
"""Events that wait for the disk."""
EVENT_LINES = MIB
"""Events that are made into lines at a time; a line in which everything has to be escaped takes six times as much."""
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
