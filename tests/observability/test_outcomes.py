"""Requests that went the same way are counted and written as if each were the first."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import Counted, event, events, lookup, numbers

from pulsar_ingress_proxy.observability import event_files, event_lines
from pulsar_ingress_proxy.observability.catalogue import REQUESTS, Sidecar
from pulsar_ingress_proxy.observability.metrics import Histogram, Metrics
from pulsar_ingress_proxy.observability.outcome import Outcome

TIMES = st.floats(1_700_000_000, 1_900_000_000)


@given(st.lists(st.floats(0, 1000) | st.sampled_from(REQUESTS), max_size=50))
def test_an_outcome_counts_durations_as_the_histogram_does(seconds: list[float]) -> None:
    metrics, alone = Metrics("pulsar"), Histogram(Sidecar.duration)
    outcome = Outcome(lookup(), metrics)
    alone.begin()
    for each in seconds:
        outcome.count(each, each / 2)
        alone.observe(each)
    labels = ("lookup", "http")
    assert metrics.duration.values[labels] == alone.values[()]
    assert sum(metrics.upstream_duration.values[labels][:-1]) == len(seconds)
    assert metrics.requests.values[("lookup", "http", "200")] == len(seconds)
    assert metrics.hits.values[("public", "external", "ingress", "http")] == len(seconds)


def test_an_outcome_without_a_broker_counts_no_upstream_duration() -> None:
    metrics = Metrics("pulsar")
    Outcome(lookup(upstream_duration=None), metrics).count(1.0, None)
    assert not metrics.upstream_duration.values


@pytest.mark.parametrize(
    ("after", "shown"),
    [(0.9999994, "00.999999"), (0.9999996, "01.000000"), (1.0, "01.000000"), (0.5, "00.500000"), (2.25, "02.250000")],
)
def test_event_time_is_rounded_across_second_boundaries(after: float, shown: str) -> None:
    assert event(lookup(time=1_763_294_400 + after))["time"] == f"2025-11-16T12:00:{shown}Z"


def test_lines_of_one_outcome_differ_in_what_is_each_requests_own() -> None:
    words = event_lines.shared_words(lookup())
    one, two = (
        event_lines.line(
            words, '"cluster":"c","sidecar":"s"', name, 0.0, event_lines.NO_NAMES, redirect, 0.1, None, 1, 2, ""
        )
        for name, redirect in (("a-1", event_lines.NO_REDIRECT), ("a-2", event_lines.redirect("http://b", None)))
    )
    assert one.replace("a-1", "a-2").replace('"redirectFrom":null', '"redirectFrom":"http://b"') == two


def test_event_files_written_without_isal_are_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_files, "fast_zlib", None)
    log = Counted(tmp_path)
    log.log.start()
    for _ in range(3):
        log.add(500)
        log.flush()
    log.close()
    assert numbers(tmp_path) == list(range(1500))
    assert events(tmp_path)[0]["id"] == f"{0:032x}"
