"""The generations of this run: when each came into force, why, and what changed with it, one line of text for each."""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from itertools import islice
from typing import Any

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from pulsar_ingress_proxy.console.models import Cause, Generation, moment
from pulsar_ingress_proxy.console.settings import lookup_property
from pulsar_ingress_proxy.routing.addresses import Entry
from pulsar_ingress_proxy.routing.ingresses import Ingress
from pulsar_ingress_proxy.routing.snapshot import Snapshot

GENERATIONS = 50
LINES = 40
"""Maximum number of changes listed for one generation."""


class History:
    """The last generations."""

    def __init__(self) -> None:
        self.began = time.time()
        self._generations: deque[Generation] = deque(maxlen=GENERATIONS)
        self.reload_problem: str | None = None
        """Why the newest config is not in force."""

    @property
    def newest_first(self) -> Iterator[Generation]:
        return reversed(self._generations)

    def note(self, old: Snapshot | None, new: Snapshot, cause: Cause) -> None:
        """A snapshot has come into force; `old` is None for the first."""
        lines = changes(old, new) if old is not None else iter(())
        listed, now = list(islice(lines, LINES)), moment(time.time())
        omitted = sum(1 for _ in lines)
        self._generations.append(
            Generation(generation=new.generation, time=now, cause=cause, changes=listed, omitted=omitted)
        )


# Compared in the snapshot itself, which also has what was discovered.
_SHOWN_ELSEWHERE = frozenset(("ingresses", "advertisedListeners"))


def changes(old: Snapshot, new: Snapshot) -> Iterator[str]:
    """Every change, ingresses and brokers first."""
    yield from _ingresses({one.name: one for one in old.ingresses}, {one.name: one for one in new.ingresses})
    yield from _book(_by_broker(old), _by_broker(new))
    yield from (f"listener {name}: new" for name in sorted(new.known_listeners - old.known_listeners))
    yield from (f"listener {name}: gone" for name in sorted(old.known_listeners - new.known_listeners))
    if old.config is not new.config:
        yield from _keys("", old.config, new.config)
    conflicts, resolved = {*new.conflicts} - {*old.conflicts}, {*old.conflicts} - {*new.conflicts}
    yield from sorted(f"conflict: {one.subject} {one.text}" for one in conflicts)
    yield from sorted(f"no longer in conflict: {one.subject} {one.text}" for one in resolved)


def _ingresses(old: Mapping[str, Ingress], new: Mapping[str, Ingress]) -> Iterator[str]:
    for name, ingress in new.items():
        if name not in old:
            yield f"ingress {name}: new, {', '.join(ingress.hosts) or 'without hosts'} for '{ingress.listener}'"
        elif ingress != old[name]:
            yield from _ingress(name, old[name], ingress)
    yield from (f"ingress {name}: gone" for name in old if name not in new)


def _ingress(name: str, old: Ingress, new: Ingress) -> Iterator[str]:
    yield from _names(f"ingress {name}: host", old.hosts, new.hosts)
    for field in fields(Ingress):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if before != after and field.name != "hosts":
            yield f"ingress {name}: {to_camel(field.name)} {_shown(before)} is now {_shown(after)}"


def _by_broker(snapshot: Snapshot) -> dict[str, Entry]:
    """The book by broker name; the first line of a name counts."""
    found: dict[str, Entry] = {}
    for entry in snapshot.book.entries:
        found.setdefault(entry.broker, entry)
    return found


def _book(old: Mapping[str, Entry], new: Mapping[str, Entry]) -> Iterator[str]:
    for name, entry in new.items():
        if name not in old:
            count = len(entry.sources)
            yield f"broker {name}: new, with {count} address{'' if count == 1 else 'es'}"
            continue
        if all(getattr(old[name], part) == getattr(entry, part) for part in ("names", "listeners", "sources")):
            continue  # nearly all, in a large book
        before, after = _addresses(old[name]), _addresses(entry)
        for at, address in after.items():
            if at not in before:
                yield f"broker {name}: {at[0]} is at {address}"
            elif before[at] != address:
                yield f"broker {name}: {at[0]} is at {address}, no longer at {before[at]}"
        yield from (f"broker {name}: {at[0]} is no longer at {before[at]}" for at in before if at not in after)
        yield from _names(f"broker {name}: name", old[name].names, entry.names)
    yield from (f"broker {name}: gone" for name in old if name not in new)


def _addresses(entry: Entry) -> dict[tuple[str, str], str]:
    """By listener and scheme: the URL and its source."""
    return {at: f"{entry.listeners[at[0]][at[1]]} ({source})" for at, (source, _) in entry.sources.items()}


def _keys(path: str, old: BaseModel, new: BaseModel) -> Iterator[str]:
    for name, field in type(new).model_fields.items():
        key = f"{path}{field.alias or name}"
        before, after = getattr(old, name), getattr(new, name)
        if before == after or key in _SHOWN_ELSEWHERE:
            continue
        if isinstance(before, BaseModel) and isinstance(after, BaseModel):
            yield from _keys(f"{key}.", before, after)
        else:
            yield f"{key}: {_shown(before)} is now {_shown(after)}"


def _names(what: str, old: Iterable[str], new: Iterable[str]) -> Iterator[str]:
    before, after = set(old), set(new)
    yield from (f"{what} {name} is new" for name in sorted(after - before))
    yield from (f"{what} {name} is gone" for name in sorted(before - after))


def _shown(value: Any) -> str:
    match value:
        case None:
            return "unset"
        case bool():
            return str(value).lower()
        case list() | tuple() | frozenset() | dict() if not value:
            return "empty"
        case frozenset():
            return ", ".join(sorted(value))
        case list() | tuple():
            return ", ".join(map(str, value))
        case dict():
            return ", ".join(f"{name}={lookup_property(name, text)}" for name, text in value.items())
        case _:
            return str(value)
