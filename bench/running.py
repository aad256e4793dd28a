"""The broker and the proxies of a comparison, started and verified."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.broker import broker
from bench.job import ask, verify
from bench.peers import FOLLOWING, Peer
from bench.places import Place
from bench.processes import CannotMeasure, Child, Cores, allow_open_files, free_ports, started
from bench.traffic import ANSWERS, Traffic


@dataclass(frozen=True, slots=True)
class Proxy:
    child: Child
    place: Place
    start_cpu: float
    """Seconds of CPU time until it accepted connections."""
    start_bytes: int
    """Resident memory at that moment."""


@contextmanager
def running(folder: Path, peers: Sequence[Peer], seed: int, cores: Cores) -> Iterator[Mapping[str, Proxy]]:
    """Start one broker and these proxies in front of it, by name; raises CannotMeasure if one does not do the job."""
    allow_open_files()
    broker_port, *ports = free_ports(1 + len(peers))
    traffic = Traffic(1, seed)
    with ExitStack() as stack:
        command = broker(folder, broker_port, traffic.reference)
        stack.enter_context(started(command, broker_port, cores.load, folder / "said"))
        if (status := ask(broker_port, traffic.one(ANSWERS, 1))[0]) != 403:
            raise CannotMeasure(f"the broker should refuse a lookup that nobody tagged, and answered {status}")
        proxies = {}
        for peer, port in zip(peers, ports, strict=True):
            place = Place(folder / str(port), port, broker_port)
            place.folder.mkdir()
            child = stack.enter_context(started(peer.command(place), port, cores.proxy, place.folder / "said"))
            proxies[peer.name] = Proxy(child, place, child.cpu_seconds(), child.resident_bytes())
            verify(peer.name, port, traffic, is_following=peer is FOLLOWING)
        yield proxies
