"""What a fault is: what happens, what heals it, and by what an operator notices."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from stage import Prepared, Stage


@asynccontextmanager
async def as_usual(stage: Stage) -> AsyncIterator[None]:
    yield


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    happens: str
    """One sentence for the page."""
    shows: str
    """What an operator sees, for the page."""
    applied: Callable[[Stage], AbstractAsyncContextManager[None]]
    """The fault, healed at the end of the block."""
    is_quick: bool = False
    log: str = ""
    """Text that the log has while it lasts; it lasts until then."""
    metric: str = ""
    """A metric that grows while it lasts, and a label's value; it lasts until then."""
    prepared: Prepared = as_usual
    """What has to be so before all starts."""


def prepare(change: Callable[[Stage], object]) -> Prepared:
    @asynccontextmanager
    async def prepared(stage: Stage) -> AsyncIterator[None]:
        change(stage)
        yield

    return prepared


Apply = Callable[[Stage], AsyncIterator[None]]

FAULTS: list[Fault] = []


def fault(name: str, happens: str, shows: str, **more: Any) -> Callable[[Apply], Apply]:
    def add(apply: Apply) -> Apply:
        FAULTS.append(Fault(name, happens, shows, asynccontextmanager(apply), **more))
        return apply

    return add
