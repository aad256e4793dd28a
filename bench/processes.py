"""Child processes on their own core, whose CPU time is read while they run."""

import os
import re
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

START_SECONDS = 20
STOP_SECONDS = 30
_LOOK = 0.05
"""Seconds between samples of processes that may end."""


class CannotMeasure(Exception):
    """A program is missing or does not start, or a proxy does not do the job."""


@dataclass(frozen=True, slots=True)
class Cores:
    """One core for proxies, another for the load and the broker; None if the machine has only one."""

    proxy: int | None
    load: int | None

    @classmethod
    def of_this_machine(cls) -> "Cores":
        load, proxy, *_ = [*sorted(os.sched_getaffinity(0)), None, None]
        return cls(None, None) if proxy is None else cls(proxy, load)

    def stay_on_load(self) -> None:
        """Pin this process, and children that are started without a core."""
        if self.load is not None:
            os.sched_setaffinity(0, {self.load})


TICKS = os.sysconf("SC_CLK_TCK")
"""Clock ticks per second."""


class Process(NamedTuple):
    """A running process: its identity, and its CPU time in ticks."""

    id: tuple[str, str]
    """Its PID and start time, as PIDs are reused."""
    own: int
    ended: int
    """CPU time of its terminated children that it has waited for."""


def processes_of(session: int) -> Iterator[Process]:
    """proc(5): field 6 is the session, 14 to 17 the times, 22 the start; they are split after the command's name."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # ended since the directory was listed
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                times = [int(field) for field in fields[11:15]]
                yield Process((stat.parent.name, fields[19]), sum(times[:2]), sum(times[2:]))


class SessionClock:
    """The CPU time of a session's processes, including those that have ended since the last reading.

    PySpark's daemon does not wait for its workers, so the system does not add up their time.
    """

    def __init__(self, session: int) -> None:
        self._session = session
        self._ticks: dict[tuple[str, str], int] = {}

    def cpu_seconds(self) -> float:
        for one in processes_of(self._session):
            self._ticks[one.id] = one.own
        return sum(list(self._ticks.values())) / TICKS


@dataclass(frozen=True, slots=True)
class Used:
    """The cost of a command and all processes that it started."""

    cpu: float
    wall: float
    peak: int
    """Peak memory in bytes; pages that processes share are counted for each."""


def used_by(command: Sequence[str], said: Path) -> Used:
    """Run a command to its end in its own session, and sample it all the time."""
    began = time.monotonic()
    with said.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
    clock, cpu, peak = SessionClock(process.pid), 0.0, 0
    while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
        cpu = clock.cpu_seconds()
        peak = max(peak, sum(_resident(one.id[0]) for one in processes_of(process.pid)))
        time.sleep(_LOOK)
    _, status, usage = ended
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise CannotMeasure(f"{shlex.join(command)}: {said.read_text(errors='replace')[-2000:]}")
    # The system's own count includes the time after the last sample, but not Spark's Python workers.
    cpu, peak = max(cpu, usage.ru_utime + usage.ru_stime), max(peak, usage.ru_maxrss * 1024)
    return Used(cpu, time.monotonic() - began, peak)


class Child:
    """A process that leads a session, by which its workers are found."""

    def __init__(self, pid: int) -> None:
        self.pid = self._session = pid

    def cpu_seconds(self) -> float:
        """CPU time so far, of all threads, its workers, and terminated children.

        Running threads are counted in nanoseconds (schedstat), terminated children in ticks.
        """
        found = list(processes_of(self._session))
        return sum(_on_core(one.id[0]) for one in found) + sum(one.ended for one in found) / TICKS

    def resident_bytes(self) -> int:
        """Memory of the process and its workers; pages that they share are counted for each."""
        found = [_resident(one.id[0]) for one in processes_of(self._session)]
        if not any(found):  # a zombie process has none
            raise CannotMeasure(f"process {self.pid} has ended")
        return sum(found)


def _resident(pid: str) -> int:
    with suppress(FileNotFoundError, ProcessLookupError):
        if found := re.search(r"^VmRSS:\s+(\d+) kB$", Path("/proc", pid, "status").read_text(), re.MULTILINE):
            return int(found[1]) * 1024
    return 0


def _on_core(pid: str) -> float:
    """CPU seconds of the threads of a process."""
    total = 0
    for stat in Path("/proc", pid, "task").glob("[0-9]*/schedstat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # ended since the directory was listed
            total += int(stat.read_text().split()[0])
    return total / 1e9


@contextmanager
def started(command: Sequence[str], port: int, core: int | None, said: Path) -> Iterator[Child]:
    """A process that accepts connections on its port. Its output goes to a file; it is terminated with the block."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PULSAR_INGRESS_")}
    with said.open("wb") as out, _on(core):
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True)
    try:
        _wait_until_bound(process, port, shlex.join(command), said)
        yield Child(process.pid)
    finally:
        _end(process)


@contextmanager
def _on(core: int | None) -> Iterator[None]:
    """Children and their threads inherit the affinity of the thread that starts them."""
    if core is None:
        yield
        return
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


def _wait_until_bound(process: subprocess.Popen[bytes], port: int, command: str, said: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)  # a child does not report when it has bound its socket
        else:
            return
    ended = "is not bound" if process.returncode is None else f"ended with {process.returncode}"
    raise CannotMeasure(f"{command}: {ended}\n{said.read_text(errors='replace')}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def program(name: str, *folders: Path) -> str:
    """The path of a program; Debian has servers in /usr/sbin, which is not in every user's PATH."""
    path = os.pathsep.join([*map(str, folders), os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
    found = shutil.which(name, path=path)
    if found is None:
        raise CannotMeasure(f"{name} is not installed, and nothing is compared without it: see bench/README.md")
    return found


def allow_open_files() -> None:
    """Raise the limit of open files to the maximum, for this process and its children."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def free_ports(count: int) -> list[int]:
    """Free ports, all different, as all are bound before any is released."""
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports
