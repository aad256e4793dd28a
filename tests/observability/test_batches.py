"""Lookups that are recorded together are recorded as if each had come alone."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import Counted, events, finished, lines, lookup, numbers

from pulsar_ingress_proxy.observability import event_files
from pulsar_ingress_proxy.observability.access_record import AccessRecord
from pulsar_ingress_proxy.observability.batches import Batch, Outcome
from pulsar_ingress_proxy.observability.catalogue import REQUESTS, Sidecar
from pulsar_ingress_proxy.observability.event_lines import (
    asked_words,
    batch_lines,
    client,
    decision_words,
    line,
    names,
    origin,
    outcome_words,
)
from pulsar_ingress_proxy.observability.metrics import Histogram, Metrics
from pulsar_ingress_proxy.observability.recent import Recent, Sort

ORIGIN = origin("pulsar", "gateway-7f9c-abcde")
MISS: dict[str, Any] = {"miss_reason": "no-rule"}


def batch_of(records: list[AccessRecord], metrics: Metrics | None = None, since: float = 0.0) -> Batch:
    """The same, but for the times at which they began: those are theirs after `since`."""
    batch = Batch()
    batch.ids, batch.first, batch.since = "0" * 8, 1, since
    for record in records:
        batch.asked.append(asked_words(decision_words(record), names(record.target), record.request_bytes))
        batch.outcomes.append(Outcome(record, outcome_words(record), metrics or Metrics("pulsar")))
        batch.clients.append(client(record))
        batch.started.append(record.time - since)
        batch.durations.append(record.duration)
    return batch


def binary(number: int = 0, **changes: Any) -> AccessRecord:
    values: dict[str, Any] = {"protocol": "binary", "id": f"{'0' * 8}-{number}", "upstream_duration": 0.0012345678}
    return lookup(**(values | changes))


TIMES = st.floats(1_700_000_000, 1_900_000_000)


@given(st.lists(st.tuples(TIMES, st.floats(0, 400)), min_size=1, max_size=20), st.floats(0, 1_700_000_000))
def test_batch_lines_equal_the_lines_of_each_record_alone(rows: list[tuple[float, float]], since: float) -> None:
    records = [
        binary(place + 1, time=since + (time - since), duration=duration, upstream_duration=duration)
        for place, (time, duration) in enumerate(rows)
    ]
    assert batch_lines(batch_of(records, since=since), ORIGIN) == [line(record, ORIGIN) for record in records]


def test_batch_lines_have_correct_times_across_second_boundaries() -> None:
    times = [1_763_294_400 + after for after in (0.9999994, 0.9999996, 1.0, 0.5, 2.25)]
    made = batch_lines(batch_of([binary(time=time) for time in times]), ORIGIN)
    fractions = ["00.999999", "01.000000", "01.000000", "00.500000", "02.250000"]
    assert [json.loads(event)["time"] for event in made] == [f"2025-11-16T12:00:{each}Z" for each in fractions]


def test_lone_surrogate_in_a_batch_becomes_a_question_mark() -> None:
    outcome = binary(broker="\ud800")
    (made,) = batch_lines(batch_of([outcome]), ORIGIN)
    assert json.loads(made)["broker"] == "?"


def test_single_record_of_a_batch_has_the_same_line_as_in_the_batch() -> None:
    batch = batch_of([binary(broker=name) for name in ("a", "b", "c")])
    assert line(batch.one(1), ORIGIN) == batch_lines(batch, ORIGIN)[1]


def test_metrics_count_a_batch_like_its_records_one_by_one() -> None:
    records = [binary(), binary(status=404), binary(), binary(**MISS, duration=3.0, upstream_duration=3.0)]
    one, many = Metrics("pulsar"), Metrics("pulsar")
    for record in records:
        one.count(record)
    many.count_batch(batch_of(records, many))
    for name in ("requests", "hits", "misses", "leaks", "redirects"):
        assert getattr(many, name).values == getattr(one, name).values, name
    labels = ("lookup", "binary")
    assert many.duration.values[labels] == pytest.approx(one.duration.values[labels])
    assert many.upstream_duration.values[labels] == pytest.approx(one.upstream_duration.values[labels])


@given(st.lists(st.floats(0, 1000) | st.sampled_from(REQUESTS), max_size=50))
def test_histogram_observe_all_equals_observing_each_duration(seconds: list[float]) -> None:
    one, many = Histogram(Sidecar.duration), Histogram(Sidecar.duration)
    one.begin()
    many.begin()
    for each in seconds:
        one.observe(each)
    many.observe_all(seconds)
    assert many.values[()][:-1] == one.values[()][:-1]
    assert many.values[()][-1] == pytest.approx(one.values[()][-1])


# The console's rings.


def kept(recent: Recent, after: int = 0, *only: Sort) -> list[tuple[int, str]]:
    found = recent.after(after, only)
    return [(one.number, json.loads(line(one.record, ORIGIN))["broker"]) for one in found]


def test_recent_decisions_list_batches_and_single_records_in_order() -> None:
    recent = Recent()
    recent.add(binary(broker="a"), ())
    recent.add_batch(batch_of([binary(broker="b"), binary(broker="c", **MISS), binary(broker="d")]))
    recent.add(binary(broker="e"), ())
    assert kept(recent) == [(5, "e"), (4, "d"), (3, "c"), (2, "b"), (1, "a")]
    assert kept(recent, 3) == [(5, "e"), (4, "d")]
    assert kept(recent, 0, "miss") == [(3, "c")]
    assert recent.newest == 5


def test_reading_recent_decisions_flushes_pending_batches_first() -> None:
    """By either look, so that no decision is reported twice."""
    recent, waiting = Recent(), [batch_of([binary(broker="a")]), batch_of([binary(broker="b")])]
    recent.before_read = lambda: recent.add_batch(waiting.pop()) if waiting else None
    assert recent.newest == 1
    assert kept(recent) == [(2, "a"), (1, "b")]


def test_rare_decisions_in_batches_outlive_ordinary_ones() -> None:
    recent = Recent(room=3)
    recent.add_batch(batch_of([binary(broker="rare", **MISS), binary(broker="old")]))
    for name in "abc":
        recent.add_batch(batch_of([binary(broker=name)] * 2))
    assert kept(recent) == [(8, "c"), (7, "c"), (6, "b"), (1, "rare")]
    recent.add(binary(broker="d"), ())
    assert kept(recent) == [(9, "d"), (8, "c"), (7, "c"), (1, "rare")]


# The event log.


def test_batch_is_written_in_order_among_single_events(tmp_path: Path) -> None:
    log = Counted(tmp_path)
    log.add(2)
    log.log.add_batch(batch_of([binary(broker=str(number)) for number in range(3)]))
    log.added += 3
    log.add(1)
    log.log.start()
    log.close()
    found = events(tmp_path)
    assert [event["broker"] for event in found[2:5]] == ["0", "1", "2"]
    assert [event["id"] for event in found[2:5]] == ["00000000-1", "00000000-2", "00000000-3"]
    assert (log.written, log.dropped) == (6, {})


def test_dropped_batch_counts_each_of_its_events_when_the_queue_is_full(tmp_path: Path) -> None:
    log = Counted(tmp_path, room=5)
    log.add(3)
    for size in (3, 2, 1):
        log.log.add_batch(batch_of([binary()] * size))
        log.added += size
    log.log.start()
    log.close()
    assert (log.written, log.dropped) == (5, {"queue-full": 4})


def test_dropped_batch_counts_each_of_its_events_when_the_disk_refuses(tmp_path: Path) -> None:
    folder = tmp_path / "no folder"
    folder.write_text("but a file")
    log = Counted(folder)
    log.add(2)
    for _ in range(3):
        log.log.add_batch(batch_of([binary()] * 1000))
        log.added += 1000
    log.log.start()
    log.flush()
    assert log.dropped == {"disk": 3002}
    folder.unlink()
    log.log.add_batch(batch_of([binary()] * 10))
    log.added += 10
    log.close()
    assert log.written == 10


def test_a_batch_is_spread_over_as_many_files_as_it_takes(tmp_path: Path) -> None:
    size = len(batch_lines(batch_of([binary()]), ORIGIN)[0])
    log = Counted(tmp_path, compress="none", rotateBytes=100_000)
    log.log.add_batch(batch_of([binary()] * 300))
    log.added += 300
    log.log.start()
    log.close()
    fitting = 100_000 // (size + 1)  # the ids grow
    assert all(fitting <= len(lines(path)) <= fitting + 1 for path in finished(tmp_path)[:-1])
    assert len(events(tmp_path)) == 300


def test_event_files_written_without_isal_are_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_files, "fast_zlib", None)
    log = Counted(tmp_path)
    log.log.start()
    for _ in range(3):
        log.add(500)
        log.flush()
    log.close()
    assert numbers(tmp_path) == list(range(1500))
