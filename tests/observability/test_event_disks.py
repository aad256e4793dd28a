"""Disks that fill, vanish, refuse or hang cost events, which are counted, and nothing else; kill -9 costs a write."""

import contextlib
import fcntl
import gzip
import logging
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest
from recorded import Clock, Counted, finished, lines, numbers, unfinished

WARNINGS = "proxy.events"


class Disk(Protocol):
    folder: Path

    def fill(self) -> None: ...

    def free(self) -> None: ...


class Tmpfs:
    """A disk of a few pages, which a file fills."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self) -> None:
        with (self.folder / "ballast").open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
            while True:
                ballast.write(b"x" * 4096)

    def free(self) -> None:
        (self.folder / "ballast").unlink()


class Limited:
    """Files that may not grow: the kernel refuses in the middle of a write, as it does on a full disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, self._before[1]))

    def free(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._before)


def mount(folder: Path) -> bool:
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    return done.returncode == 0


def unmount(folder: Path) -> None:
    subprocess.run(["umount", "-l", str(folder)], check=True)


def can_mount() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        mounted = mount(Path(folder))
        if mounted:
            unmount(Path(folder))
        return mounted


KINDS = ["limited", "tmpfs"] if can_mount() else ["limited"]
"""Mounting is for root; everybody can be limited."""


@pytest.fixture(params=KINDS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    if request.param == "tmpfs":
        assert mount(tmp_path)
        yield Tmpfs(tmp_path)
        unmount(tmp_path)
    else:
        limited = Limited(tmp_path)
        yield limited
        limited.free()


@pytest.mark.parametrize("compress", ["gzip", "none"])
def test_full_disk_drops_and_counts_events_until_there_is_room(
    disk: Disk, compress: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, WARNINGS)
    log = Counted(disk.folder, compress=compress)
    log.log.start()
    log.add(10)
    log.flush()
    disk.fill()
    for _ in range(20):
        log.add(300)
        log.flush()
    full = log.dropped["disk"]
    assert full >= 300
    disk.free()
    log.add(10)
    log.flush()
    log.close()
    assert log.dropped == {"disk": full}
    found = numbers(disk.folder)
    assert len(found) == log.written
    assert found[:10] == list(range(10))
    assert found[-10:] == list(range(log.added - 10, log.added))
    assert unfinished(disk.folder) == []
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in said] == ["WARNING", "INFO"]
    assert said[1][1].endswith(f"{full} events were lost")


def test_events_are_written_once_a_disk_full_from_the_start_has_room(disk: Disk) -> None:
    disk.fill()
    log = Counted(disk.folder)
    log.log.start()
    log.add(500)
    log.flush()
    disk.free()
    log.add(1)
    log.close()
    assert log.written >= 1
    assert len(numbers(disk.folder)) == log.written
    assert unfinished(disk.folder) == []


def test_removed_event_folder_is_created_again(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    log = Counted(folder)
    log.log.start()
    log.add(3)
    log.flush()
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    log.add(4)
    log.flush()
    assert (log.written, log.dropped) == (3, {"disk": 4})
    log.add(5)
    log.close()
    assert numbers(folder) == [7, 8, 9, 10, 11]


def test_events_are_written_to_the_new_folder_after_the_old_one_is_moved_away(tmp_path: Path) -> None:
    """As with a volume that is detached: the open file still takes what nobody will find."""
    folder = tmp_path / "events"
    log = Counted(folder)
    log.log.start()
    log.add(3)
    log.flush()
    folder.rename(tmp_path / "elsewhere")
    folder.mkdir()
    log.add(4)
    log.flush()
    assert log.dropped == {"disk": 4}
    log.add(5)
    log.close()
    assert numbers(folder) == [7, 8, 9, 10, 11]


def test_events_are_dropped_while_a_file_stands_in_place_of_the_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "events"
    log = Counted(folder)
    log.log.start()
    log.add(3)
    log.flush()
    folder.rename(tmp_path / "elsewhere")
    folder.write_text("no folder")
    for _ in range(3):
        log.add(4)
        log.flush()
    assert log.dropped == {"disk": 12}
    assert len(caplog.records) == 1
    folder.unlink()
    (tmp_path / "elsewhere").rename(folder)
    log.add(5)
    log.close()
    assert numbers(folder) == [0, 1, 2, 15, 16, 17, 18, 19]
    assert unfinished(folder) == []


@contextlib.contextmanager
def without_privileges(folder: Path) -> Iterator[None]:
    """As somebody who owns the folder: permissions are not for root."""
    if os.geteuid() != 0:
        yield
        return
    os.chown(folder, 65534, 65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def owned() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name, without_privileges(Path(name)):
        yield Path(name)


def test_events_are_dropped_while_the_folder_is_read_only_and_a_new_file_is_due(
    owned: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    log = Counted(owned, clock=clock, rotateSeconds=60)
    log.log.start()
    log.add(3)
    log.flush()
    owned.chmod(0o555)
    clock.now += 60
    for _ in range(3):
        log.add(4)
        log.flush()
    assert log.dropped == {"disk": 12}
    assert len(caplog.records) == 1
    owned.chmod(0o755)
    log.add(5)
    log.close()
    assert numbers(owned) == [0, 1, 2, 15, 16, 17, 18, 19]
    assert unfinished(owned) == []


def test_events_are_dropped_until_the_folder_can_be_created(owned: Path, caplog: pytest.LogCaptureFixture) -> None:
    owned.chmod(0o555)
    log = Counted(owned / "events")
    log.log.start()
    log.add(3)
    log.flush()
    assert log.dropped == {"disk": 3}
    assert len(caplog.records) == 1
    owned.chmod(0o755)
    log.add(2)
    log.close()
    assert numbers(owned / "events") == [3, 4]


def test_events_are_dropped_and_close_succeeds_when_the_folder_can_never_be_created() -> None:
    log = Counted(Path("/proc/self/events"))
    log.log.start()
    log.add(3)
    log.close()
    assert log.dropped == {"disk": 3}


WRITER = """
import sys, threading
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from recorded import Counted

log = Counted(Path(sys.argv[1]), rotateBytes=400_000, room=2000, compress=sys.argv[3])
log.log.start()
while True:
    log.add(500)
    log.flush()
    print(log.written, flush=True)
"""


def killed_under_load(folder: Path, compress: str, after: int) -> int:
    """Write as fast as it goes and be killed; returns how many events were said to be written."""
    arguments = [sys.executable, "-c", WRITER, str(folder), str(Path(__file__).parent), compress]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while int(process.stdout.readline()) < after:
            pass
        process.send_signal(signal.SIGKILL)
        said = [int(line) for line in process.stdout.read().splitlines() if line]
    assert process.returncode == -signal.SIGKILL
    return max(said, default=after)


@pytest.mark.parametrize("compress", ["gzip", "none"])
def test_kill_9_leaves_whole_files_and_at_most_one_unfinished_one(tmp_path: Path, compress: str) -> None:
    for after in (500, 2_000, 5_000):
        folder = tmp_path / str(after)
        written = killed_under_load(folder, compress, after)
        assert len(unfinished(folder)) <= 1
        assert numbers(folder) == list(range(len(numbers(folder))))
        clock = Clock(1_763_300_000.0)
        log = Counted(folder, clock=clock)
        log.log.start()
        log.close()
        assert unfinished(folder) == []
        found = numbers(folder)
        assert found == list(range(len(found)))
        assert len(found) >= written


class TestSalvage:
    """What an earlier run left is finished at the start of the next."""

    STEM = "20251116T110000.000000Z_gateway-7f9c-abcde_000001"

    def left(self, tmp_path: Path, compress: str, spoil: Callable[[bytes], bytes]) -> list[int]:
        """The events that survive of ten, in two writes, in a file that a crash left like this."""
        log = Counted(tmp_path, compress=compress)
        log.log.start()
        log.add(5)
        log.flush()
        log.add(5)
        log.close()
        (path,) = finished(tmp_path)
        (
            tmp_path / f".{self.STEM}{''.join(path.suffixes[-2:] if compress == 'gzip' else path.suffixes[-1:])}"
        ).write_bytes(spoil(path.read_bytes()))
        path.unlink()
        log = Counted(tmp_path, clock=Clock(1_763_300_000.0))
        log.log.start()
        log.close()
        assert unfinished(tmp_path) == []
        assert log.written == 0
        assert all(f"_{len(lines(path))}.jsonl" in path.name for path in finished(tmp_path))
        return numbers(tmp_path)

    @pytest.mark.parametrize("compress", ["gzip", "none"])
    def test_complete_unfinished_file_is_finished_with_all_its_events(self, tmp_path: Path, compress: str) -> None:
        assert self.left(tmp_path, compress, bytes) == list(range(10))
        assert finished(tmp_path)[0].name.startswith(self.STEM)

    @pytest.mark.parametrize("compress", ["gzip", "none"])
    def test_empty_unfinished_file_is_removed(self, tmp_path: Path, compress: str) -> None:
        assert self.left(tmp_path, compress, lambda data: b"") == []
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("cut", [1, 9, 10, 11])
    def test_unfinished_file_cut_within_its_gzip_end_loses_no_event(self, tmp_path: Path, cut: int) -> None:
        assert self.left(tmp_path, "gzip", lambda data: data[:-cut]) == list(range(10))

    def test_unfinished_file_cut_in_the_middle_of_a_write_keeps_the_writes_before_it(self, tmp_path: Path) -> None:
        survived = self.left(tmp_path, "gzip", lambda data: data[:-30])
        assert survived == list(range(len(survived)))
        assert len(survived) >= 5

    def test_unfinished_file_cut_in_the_middle_of_a_line_loses_only_that_line(self, tmp_path: Path) -> None:
        assert self.left(tmp_path, "none", lambda data: data[:-5]) == list(range(9))

    @pytest.mark.parametrize("overwritten", [b"\xff" * 40, b"\x00" * 4096, bytes(range(256))])
    def test_unfinished_file_with_a_corrupt_end_keeps_the_writes_before_it(
        self, tmp_path: Path, overwritten: bytes
    ) -> None:
        survived = self.left(tmp_path, "gzip", lambda data: data[:-25] + overwritten)
        assert survived == list(range(len(survived)))
        assert len(survived) >= 5

    @pytest.mark.parametrize("garbage", [b"\x00", b"garbage", b"\x1f\x8b", b"\xff" * 70_000])
    def test_unfinished_file_of_garbage_is_removed(self, tmp_path: Path, garbage: bytes) -> None:
        assert self.left(tmp_path, "gzip", lambda data: garbage) == []
        assert list(tmp_path.iterdir()) == []

    def test_large_unfinished_file_is_salvaged_completely(self, tmp_path: Path) -> None:
        log = Counted(tmp_path)
        log.log.start()
        log.add(5_000)
        log.close()
        (path,) = finished(tmp_path)
        (tmp_path / f".{self.STEM}.jsonl.gz").write_bytes(path.read_bytes()[:-1])
        path.unlink()
        log = Counted(tmp_path, clock=Clock(1_763_300_000.0))
        log.log.start()
        log.close()
        assert numbers(tmp_path) == list(range(5_000))

    def test_unfinished_file_locked_by_a_running_process_is_left_alone(self, tmp_path: Path) -> None:
        path = tmp_path / f".{self.STEM}.jsonl.gz"
        path.write_bytes(gzip.compress(b"{}\n"))
        with path.open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            log = Counted(tmp_path)
            log.log.start()
            log.add(1)
            log.close()
        assert unfinished(tmp_path) == [path]

    def test_unfinished_files_of_other_sidecars_are_left_alone(self, tmp_path: Path) -> None:
        path = tmp_path / f".{self.STEM.replace('abcde', 'fghij')}.jsonl.gz"
        path.write_bytes(b"")
        log = Counted(tmp_path)
        log.log.start()
        log.close()
        assert list(tmp_path.iterdir()) == [path]

    def test_unfinished_file_that_cannot_be_salvaged_does_not_stop_new_events(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / f".{self.STEM}.jsonl.gz").mkdir()
        log = Counted(tmp_path)
        log.log.start()
        log.flush()
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        log.add(3)
        log.close()
        assert numbers(tmp_path) == [0, 1, 2]
