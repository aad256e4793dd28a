"""A share of a core for the processes of a session, by a control group of its own (version 1 or 2)."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.processes import CannotMeasure, processes_of

_ROOT = Path("/sys/fs/cgroup")
_PERIOD = 20_000
"""Microseconds. The kernel's default is five times as long, and so would be the halts of a process that has used up its
share."""


@contextmanager
def throttled(session: int, share: float) -> Iterator[None]:
    """Give the processes of a session this share of a core until the end of the block; raises CannotMeasure."""
    quota = int(share * _PERIOD)
    try:
        group = _make(f"pulsar-ingress-bench-{os.getpid()}-{session}", quota)
    except OSError as fault:
        raise CannotMeasure(f"no control group for the CPU can be made, which takes root: {fault}") from None
    try:
        for process in processes_of(session):
            _move(int(process.id[0]), group)
        yield
    finally:
        for left in (group / "cgroup.procs").read_text().split():
            _move(int(left), group.parent)
        group.rmdir()


def _make(name: str, quota: int) -> Path:
    if (_ROOT / "cgroup.controllers").exists():
        (_ROOT / "cgroup.subtree_control").write_text("+cpu")
        group = _ROOT / name
        group.mkdir()
        (group / "cpu.max").write_text(f"{quota} {_PERIOD}")
        (group / "cpu.weight").write_text("10000")
        return group
    group = _ROOT / "cpu" / name
    group.mkdir()
    (group / "cpu.cfs_period_us").write_text(str(_PERIOD))
    (group / "cpu.cfs_quota_us").write_text(str(quota))
    (group / "cpu.shares").write_text("262144")  # the most: so that it gets its share on a busy machine, too
    return group


def _move(pid: int, group: Path) -> None:
    (group / "cgroup.procs").write_text(str(pid))
