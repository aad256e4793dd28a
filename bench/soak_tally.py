"""What both ends of the soak test share: names, and the counts of what clients and brokers saw."""

from collections import Counter
from dataclasses import dataclass, field
from zlib import crc32

HOST = "pulsar.example.com"
CLUSTER_HOST = "apps.example.com"
"""The domain of the hosts in Kubernetes objects."""
APPS, APP_HOSTS = 20, 5
"""Ingresses that come and go, and hosts that each of them may have."""
INSIDE = ".svc.cluster.local"
MARK = "X-Soak"
"""The header of a request that states what its body is, so that brokers see whether requests were mixed up."""


@dataclass(slots=True)
class Tally:
    """What both ends saw, for the verdict."""

    attempted: int = 0
    """Lookups of which at least a byte was sent."""
    answered: int = 0
    """Lookups with a complete answer."""
    others: int = 0
    sessions: int = 0
    wrong: Counter[str] = field(default_factory=Counter)
    """Wrong answers, and requests that reached a broker altered."""
    cut: int = 0
    """Connections that ended before an answer that a client waited for."""
    connecting: int = 0
    """Binary clients that have no answer to CONNECT yet."""
    hung_up: int = 0
    """Brokers that ended a connection in the middle of an answer, or one that belongs to a client."""


def mark(body: bytes) -> str:
    return f"{len(body)}-{crc32(body):08x}"
