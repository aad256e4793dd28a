"""The event log: nothing waits for it, every event is written or counted as dropped, files are whole or have a dot."""

import gc
import re
import threading
import tracemalloc
from pathlib import Path

import pytest
from recorded import SECONDS, Clock, Counted, event, events, finished, line, lines, lookup, numbers, unfinished

from pulsar_ingress_proxy.memory import EVENT_QUEUE
from pulsar_ingress_proxy.routing.paths import Target

LINE = len(line(lookup()))
"""Bytes of each of the events that are added here."""


def test_added_events_are_in_a_finished_file_after_close(tmp_path: Path) -> None:
    log = Counted(tmp_path / "made" / "if" / "missing")
    log.log.start()
    log.add(200)
    log.close()
    assert (log.written, log.dropped) == (200, {})
    assert [path.suffixes[-2:] for path in finished(log.folder)] == [[".jsonl", ".gz"]]
    assert unfinished(log.folder) == []
    assert events(log.folder) == [event(lookup(number)) for number in range(200)]


def test_event_files_are_plain_jsonl_when_compress_is_none(tmp_path: Path) -> None:
    log = Counted(tmp_path, compress="none")
    log.log.start()
    log.add(3)
    log.close()
    (path,) = finished(tmp_path)
    assert path.name.endswith("_3.jsonl")
    assert path.read_bytes().count(b"\n") == 3
    assert numbers(tmp_path) == [0, 1, 2]


def test_a_log_without_events_leaves_no_file(tmp_path: Path) -> None:
    log = Counted(tmp_path)
    log.log.start()
    log.close()
    assert list(tmp_path.iterdir()) == []


def test_an_unfinished_file_begins_with_a_dot_and_is_counted_as_written(tmp_path: Path) -> None:
    log = Counted(tmp_path)
    log.log.start()
    log.add(5)
    log.flush()
    assert log.written == 5
    assert finished(tmp_path) == []
    assert len(unfinished(tmp_path)) == 1
    log.close()


def test_events_are_written_every_flush_millis(tmp_path: Path) -> None:
    often, rarely = Counted(tmp_path / "often", flushMillis=1), Counted(tmp_path / "rarely", flushMillis=3_600_000)
    for log in (rarely, often):
        log.log.start()
        log.flush()  # the thread waits for the first time
        log.add(1)
    assert often.has_written.wait(SECONDS)
    assert rarely.written == 0
    for log in (often, rarely):
        log.close()


def test_an_unfinished_file_is_whole_between_any_two_writes(tmp_path: Path) -> None:
    """So kill -9 costs the write it interrupts and nothing else."""
    log = Counted(tmp_path)
    log.log.start()
    for turn in range(1, 6):
        log.add(turn)
        log.flush()
        (path,) = unfinished(tmp_path)
        assert len(lines(path)) == log.added
    log.close()


def test_queue_drops_and_counts_events_when_full(tmp_path: Path) -> None:
    log = Counted(tmp_path, room=10)
    log.add(25)
    log.log.start()
    log.close()
    assert (log.written, log.dropped) == (10, {"queue-full": 15})
    assert numbers(tmp_path) == list(range(10))


def test_a_queue_is_full_when_its_events_take_too_much_memory(tmp_path: Path) -> None:
    """Clients choose how long topics are: here 14,500 characters that take two bytes each."""
    log = Counted(tmp_path)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(2000):
            topic = f"persistent://t/n/{number}" + "ä" * 14_500 + "λ"
            log.add(target=Target("lookup", "lookup", "t", "n", topic))
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] <= EVENT_QUEUE
    finally:
        tracemalloc.stop()
    log.log.start()
    log.close()
    assert 0 < log.written < 2000
    assert log.dropped == {"queue-full": 2000 - log.written}


def test_queue_has_room_again_once_the_writer_thread_has_caught_up(tmp_path: Path) -> None:
    log = Counted(tmp_path, room=10)
    log.add(12)
    log.log.start()
    log.flush()
    log.add(10)
    log.close()
    assert (log.written, log.dropped) == (20, {"queue-full": 2})


class TestRotation:
    def test_event_files_rotate_by_size_of_the_lines_before_compression(self, tmp_path: Path) -> None:
        log = Counted(tmp_path, rotateBytes=3 * LINE)
        log.log.start()
        log.add(10)
        log.close()
        assert [len(lines(path)) for path in finished(tmp_path)] == [3, 3, 3, 1]
        assert numbers(tmp_path) == list(range(10))

    def test_event_files_rotate_at_the_same_size_however_events_are_flushed(self, tmp_path: Path) -> None:
        log = Counted(tmp_path, rotateBytes=100 * LINE, compress="none")
        log.log.start()
        for _ in range(25):
            log.add(30)
            log.flush()
        log.close()
        assert [path.stat().st_size for path in finished(tmp_path)] == [100 * LINE] * 7 + [50 * LINE]
        assert numbers(tmp_path) == list(range(750))

    def test_line_longer_than_rotate_bytes_gets_its_own_file(self, tmp_path: Path) -> None:
        log = Counted(tmp_path, rotateBytes=10)
        log.log.start()
        log.add(3)
        log.close()
        assert [len(lines(path)) for path in finished(tmp_path)] == [1, 1, 1]

    def test_event_file_rotates_after_rotate_seconds(self, tmp_path: Path) -> None:
        clock = Clock()
        log = Counted(tmp_path, clock=clock, rotateSeconds=60)
        log.log.start()
        log.add(2)
        log.flush()
        clock.now += 59
        log.flush()
        assert finished(tmp_path) == []
        clock.now += 1
        log.flush()
        assert numbers(tmp_path) == [0, 1]
        assert unfinished(tmp_path) == []
        log.add(1)
        log.close()
        assert [len(lines(path)) for path in finished(tmp_path)] == [2, 1]

    def test_event_file_rotates_when_the_clock_is_set_back(self, tmp_path: Path) -> None:
        clock = Clock()
        log = Counted(tmp_path, clock=clock, rotateSeconds=60)
        log.log.start()
        log.add(1)
        log.flush()
        clock.now -= 3600
        log.flush()
        assert numbers(tmp_path) == [0]
        log.close()

    def test_event_file_names_sort_by_time_and_state_sidecar_and_event_count(self, tmp_path: Path) -> None:
        clock = Clock()
        log = Counted(tmp_path, clock=clock, rotateBytes=2 * LINE)
        log.log.start()
        for _ in range(3):
            log.add(4)
            log.flush()
            clock.now += 7200.000001
        log.close()
        names = [path.name for path in finished(tmp_path)]
        assert names[0] == "20251116T120000.000000Z_gateway-7f9c-abcde_000001_2.jsonl.gz"
        assert len(names) == 6
        assert numbers(tmp_path) == list(range(12))

    def test_any_sidecar_name_makes_a_safe_file_name(self, tmp_path: Path) -> None:
        log = Counted(tmp_path, sidecar="../_ä b\n" + "x" * 300)
        log.log.start()
        log.add(1)
        log.close()
        (path,) = finished(tmp_path)
        assert re.fullmatch(r"[0-9TZ.]+_[A-Za-z0-9.-]+_000001_1\.jsonl\.gz", path.name)

    def test_two_sidecars_and_two_runs_can_share_an_event_folder(self, tmp_path: Path) -> None:
        for clock in (Clock(), Clock(1_763_294_401.0)):
            logs = [Counted(tmp_path, sidecar=sidecar, clock=clock) for sidecar in ("gateway-0", "gateway-1")]
            for log in logs:
                log.log.start()
                log.add(2)
                log.flush()
            for log in logs:
                log.close()
        assert len(finished(tmp_path)) == 4
        assert len(events(tmp_path)) == 8


class TestRetention:
    def test_oldest_event_files_are_deleted_and_counted_beyond_retain_bytes(self, tmp_path: Path) -> None:
        log = Counted(tmp_path, compress="none", rotateBytes=10 * LINE, retainBytes=25 * LINE)
        log.log.start()
        log.add(50)
        log.close()
        assert numbers(tmp_path) == list(range(30, 50))
        assert (log.written, log.dropped) == (50, {"retention": 30})

    def test_event_files_of_earlier_runs_count_toward_retain_bytes(self, tmp_path: Path) -> None:
        first = Counted(tmp_path, compress="none")
        first.log.start()
        first.add(8)
        first.close()
        second = Counted(tmp_path, clock=Clock(1_763_300_000.0), compress="none", retainBytes=10 * LINE)
        second.log.start()
        second.add(5)
        second.close()
        assert second.dropped == {"retention": 8}
        assert numbers(tmp_path) == [0, 1, 2, 3, 4]

    def test_retain_bytes_is_enforced_at_start(self, tmp_path: Path) -> None:
        first = Counted(tmp_path, compress="none", rotateBytes=2 * LINE)
        first.log.start()
        first.add(8)
        first.close()
        second = Counted(tmp_path, compress="none", retainBytes=4 * LINE)
        second.log.start()
        second.close()
        assert second.dropped == {"retention": 4}
        assert numbers(tmp_path) == [4, 5, 6, 7]

    def test_retention_leaves_files_of_others_alone(self, tmp_path: Path) -> None:
        strangers = [
            "20000101T000000.000000Z_gateway-7f9c-abcde-2_000001_9.jsonl.gz",
            "20000101T000000.000000Z_other_000001_9.jsonl.gz",
            "notes.jsonl",
        ]
        for name in strangers:
            (tmp_path / name).write_bytes(b"x" * 100_000)
        log = Counted(tmp_path, retainBytes=1)
        log.log.start()
        log.add(1)
        log.close()
        assert [path.name for path in finished(tmp_path)] == strangers
        assert log.dropped == {"retention": 1}

    def test_event_file_rotates_before_it_exceeds_retain_bytes(self, tmp_path: Path) -> None:
        log = Counted(tmp_path, compress="none", retainBytes=10 * LINE)
        log.log.start()
        log.add(25)
        log.close()
        assert numbers(tmp_path) == [20, 21, 22, 23, 24]


class TestClosing:
    @pytest.mark.parametrize(
        ("place", "written"),
        [
            pytest.param(1, 0, id="at the start"),
            pytest.param(2, 0, id="at a file"),
            pytest.param(3, 2, id="amid lines"),
        ],
    )
    def test_close_does_not_wait_for_a_hanging_disk_and_counts_events_as_dropped(
        self, tmp_path: Path, place: int, written: int
    ) -> None:
        """The clock is asked where a file is looked for or begun: there the thread is held."""
        asked = 0
        hangs, goes_on = threading.Event(), threading.Event()

        def clock() -> float:
            nonlocal asked
            asked += 1
            if asked == place:
                hangs.set()
                assert goes_on.wait(SECONDS)
            return 1_763_294_400.0

        log = Counted(tmp_path, clock=clock, rotateBytes=2 * LINE)
        log.add(7)
        log.log.start()
        assert hangs.wait(SECONDS)
        assert not log.log.close(0)
        assert (log.written, log.dropped) == (written, {"disk": 7 - written})
        goes_on.set()
        assert log.log.close(SECONDS)
        assert (log.written, log.dropped) == (written, {"disk": 7 - written})

    def test_events_added_during_concurrent_flushes_are_written_or_counted(self, tmp_path: Path) -> None:
        log = Counted(tmp_path, room=100, rotateBytes=20 * LINE)
        log.log.start()
        flushing = [threading.Thread(target=log.flush) for _ in range(4)]
        for number in range(2000):
            log.add()
            if number % 500 == 0:
                flushing[number // 500].start()
        for thread in flushing:
            thread.join(SECONDS)
        log.close()
        assert len(numbers(tmp_path)) == log.written

    @pytest.mark.parametrize("compress", ["gzip", "none"])
    def test_readers_see_only_whole_event_files_while_the_log_writes(self, tmp_path: Path, compress: str) -> None:
        log = Counted(tmp_path, rotateBytes=5 * LINE, compress=compress)
        log.add(200)
        log.log.start()
        seen: set[Path] = set()
        while len(seen) < 39:  # the last waits for more
            for path in finished(tmp_path):
                if path not in seen:
                    assert len(lines(path)) == 5
                    seen.add(path)
        log.close()
