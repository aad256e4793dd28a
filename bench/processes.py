"""Child processes whose CPU time is read while they run."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path


class Child:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._stat = Path(f"/proc/{process.pid}/stat")

    def cpu_seconds(self) -> float:
        """User and system time so far (proc(5): fields 14 and 15)."""
        fields = self._stat.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def child(*arguments: str, port: int) -> AsyncIterator[Child]:
    """A Python process, ready once it accepts connections on its port; killed at the end."""
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments)
    try:
        while True:
            if process.returncode is not None:
                raise SystemExit(f"{' '.join(arguments)} ended with {process.returncode}")
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)  # a child tells nobody when it has bound its socket
                continue
            writer.close()
            break
        yield Child(process)
    finally:
        process.kill()
        await process.wait()
