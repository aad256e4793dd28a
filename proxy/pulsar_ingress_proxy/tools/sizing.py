"""How much memory clients can make a sidecar hold, by its config. Pure."""

from pulsar_ingress_proxy import memory
from pulsar_ingress_proxy.config import Config
from pulsar_ingress_proxy.syntax.listeners import BINARY_SCHEMES, TLS_SCHEMES

PROCESS = 64 * memory.MIB
"""A sidecar that nobody has connected to, without discovery."""
DISCOVERY = 64 * memory.MIB
"""The Kubernetes client, which is imported only where discovery is on."""
_ESCAPED = 6
"""Bytes of a character that has to be escaped in a line of an event; lines are held twice, apart and joined."""


def most_memory(config: Config) -> dict[str, int]:
    """Bytes at the most, by the config key that they follow from, or the part that holds them."""
    limits, sockets = config.limits, config.bind_addresses
    protocols = len({socket.scheme in BINARY_SCHEMES for socket in sockets})
    with_tls = any(socket.scheme in TLS_SCHEMES for socket in sockets)
    connection = memory.CONNECTION + 2 * memory.UNSENT + (memory.TLS_CONNECTION if with_tls else 0)
    caches = sum(cache.total_bytes for cache in memory.CACHES) + len(sockets) * memory.FAST_PATH
    events = memory.EVENT_QUEUE + 2 * _ESCAPED * memory.EVENT_LINES if config.events.path is not None else 0
    return {
        "process": PROCESS + (DISCOVERY if config.kubernetes.enabled else 0),
        "limits.connections": protocols * limits.connections * connection,
        "limits.inFlight": protocols * limits.in_flight * memory.IN_FLIGHT,
        "limits.bufferBytes": limits.buffer_bytes,
        "limits.replayTotalBytes": limits.replay_total_bytes,
        "caches": caches,
        "events": events,
        "console": 4 * memory.RECENT if config.console.address is not None else 0,
    }
