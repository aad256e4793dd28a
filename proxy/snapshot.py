"""One immutable, numbered picture of all rules and addresses. A change makes a new one."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from proxy.addresses import AddressBook, Entry
from proxy.config import Config
from proxy.ingresses import Ingress, Ingresses

_REMEMBERED = 8192

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a request is decided by, from its first byte to its last."""

    generation: int
    config: Config
    ingresses: Ingresses
    book: AddressBook
    known_listeners: frozenset[str]
    """The names that some broker has; empty: not known, so nothing is unknown."""
    inside_suffixes: frozenset[str]
    memory: dict[Hashable, object] = field(default_factory=dict, compare=False, repr=False)
    """Decisions that were made by this picture, and so would be made again."""

    def remember(self, question: Hashable, answer: Answer) -> Answer:
        """Keep an answer, of which there are so many at most: questions come from clients and brokers."""
        if len(self.memory) >= _REMEMBERED:
            self.memory.clear()
        self.memory[question] = answer
        return answer

    def listener_label(self, name: str | None) -> str:
        """A listener's name where it is one we have heard of, so that no client can make up labels."""
        if not name:
            return ""
        return name if name in self.known_listeners or name in self.config.named_listeners else "other"


def build(config: Config, generation: int = 1) -> Snapshot:
    """The picture that a config alone gives."""
    book = AddressBook(_entries(config))
    return Snapshot(
        generation=generation,
        config=config,
        ingresses=Ingresses(_ingresses(config)),
        book=book,
        known_listeners=book.listeners,
        inside_suffixes=book.inside_suffixes(),
    )


def _ingresses(config: Config) -> Iterable[Ingress]:
    for ingress in config.ingresses:
        yield Ingress(
            name=ingress.name,
            hosts=tuple(ingress.hosts),
            listener=ingress.listener,
            allowed_listeners=None if ingress.allowed_listeners is None else frozenset(ingress.allowed_listeners),
            expose=None if ingress.expose is None else frozenset(ingress.expose),
            lookup_properties=dict(ingress.lookup_properties),
            override_lookup_properties=ingress.override_lookup_properties,
            through_sidecar=ingress.through_sidecar,
        )


def _entries(config: Config) -> Iterable[Entry]:
    for line in config.advertised_listeners:
        yield Entry(line.broker, line.listeners)
