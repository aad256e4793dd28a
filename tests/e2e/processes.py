"""Real processes for end-to-end tests: started, waited for by what they say, and ended with the test."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from wires import free_port as free_port

BIN = Path(sys.executable).parent


class Process:
    """A child whose output is kept, and can be waited for."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child
        self._lines: list[str] = []
        self._grown = asyncio.Condition()
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._child.stderr is not None
        async for line in self._child.stderr:
            async with self._grown:
                self._lines.append(line.decode(errors="replace"))
                self._grown.notify_all()
        async with self._grown:
            self._grown.notify_all()

    @property
    def output(self) -> str:
        return "".join(self._lines)

    @property
    def pid(self) -> int:
        return self._child.pid

    async def says(self, text: str) -> None:
        """Wait until it has said this; fails with all it said where it ends before, or says nothing for long."""
        async with asyncio.timeout(30):
            async with self._grown:
                await self._grown.wait_for(lambda: text in self.output or self._reader.done())
        assert text in self.output, f"it ended without saying {text!r}:\n{self.output}"

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until this is so, which is looked at whenever the process says something."""
        async with asyncio.timeout(60), self._grown:
            await self._grown.wait_for(lambda: self._reader.done() or condition())
        assert condition(), f"it ended before that was so:\n{self.output}"

    async def ended(self) -> None:
        """Wait for an end that is not of this process's making."""
        async with asyncio.timeout(60):
            await self._child.wait()

    async def end(self, with_signal: int = signal.SIGTERM) -> int:
        if self._child.returncode is None:
            self._child.send_signal(with_signal)
        code = await asyncio.wait_for(self._child.wait(), 30)
        await self._reader
        return code


@asynccontextmanager
async def started(*command: str | Path, says: str, **variables: str) -> AsyncIterator[Process]:
    """A child process, ready, with these variables of the environment; killed at the end whatever happens."""
    ours = {key: value for key, value in os.environ.items() if not key.startswith("PULSAR_INGRESS_")}
    environment = ours | variables
    child = await asyncio.create_subprocess_exec(
        *map(str, command), stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, env=environment
    )
    process = Process(child)
    try:
        await process.says(says)
        yield process
    finally:
        await process.end(signal.SIGKILL)


async def run(*command: str | Path) -> tuple[int, str, str]:
    """Run a command to its end."""
    child = await asyncio.create_subprocess_exec(
        *map(str, command), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(child.communicate(), 240)
    assert child.returncode is not None
    return child.returncode, out.decode(), err.decode()
