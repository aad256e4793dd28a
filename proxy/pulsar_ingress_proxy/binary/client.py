"""A client on its connection: through which door it came, what it said of itself, and the records that speak of it."""

from time import time
from typing import Protocol

from pulsar_ingress_proxy.binary.endpoints import Entrance, standing
from pulsar_ingress_proxy.binary.lane import Lane, Track
from pulsar_ingress_proxy.binary.redirects import Introduction
from pulsar_ingress_proxy.net.context import Rim
from pulsar_ingress_proxy.observability.access_record import UNKNOWN, Record
from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.listeners import BindAddress


class Door(Protocol):
    """The socket that it came in by, as the config has it now."""

    bind: BindAddress
    lane: Lane


class Guest:
    """What is known of a client."""

    __slots__ = ("_entrance", "_rim", "door", "introduction", "peer", "server_name")

    def __init__(self, rim: Rim, door: Door, peer: str, server_name: str | None) -> None:
        self._rim = rim
        self.door = door
        self.peer = peer
        self.server_name = server_name
        self.introduction: Introduction | None = None
        self._entrance = Entrance(door.bind, server_name)

    @property
    def entrance(self) -> Entrance:
        if self._entrance.bind is not self.door.bind:  # the config has another line for the socket by now
            self._entrance = Entrance(self.door.bind, self.server_name)
        return self._entrance

    def track(self) -> Track:
        """Its short way, as the rules have it now."""
        return self.door.lane.track(self.server_name)

    def __str__(self) -> str:
        version = self.introduction.client_version.decode("utf-8", "replace") if self.introduction else ""
        return f"a client{f' ({version[:64]})' if version else ''} on {self.door.bind}"

    def record(self, snapshot: Snapshot) -> Record:
        return Record(
            id=self._rim.new_id(),
            time=time(),
            generation=snapshot.generation,
            protocol="binary",
            bind=self.door.bind.address,
            peer=self.peer,
            user_agent=self.introduction.client_version if self.introduction is not None else None,
        )

    def other_record(self, snapshot: Snapshot, status: int) -> Record:
        """Of what is no lookup."""
        record = self.record(snapshot)
        found = standing(self.entrance, snapshot)
        record.target, record.request, record.selection = UNKNOWN, found.request, found.selection
        record.listener = snapshot.listener_label(found.selection.listener)
        record.status = status
        return record
