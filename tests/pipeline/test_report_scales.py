"""Where things stand in a chart: ticks, columns of time, boxes and bands."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ingress_pipeline.report.charts import (
    Band,
    Timeline,
    clip_middle,
    flow_chart,
    hits_chart,
    latency_chart,
    lay_out,
    linear,
    logarithmic,
    ratio_floor,
    series,
    ticks,
)
from pulsar_ingress_pipeline.report.formats import common_tail, compact, duration, length, percent
from pulsar_ingress_pipeline.report.records import Bins, Flow, Hits, Latency, Others

NOON = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("hours", "step", "count"),
    [(0, 5, 1), (7.9, 5, 95), (8, 10, 49), (23, 15, 93), (72, 60, 73), (24 * 365, 7 * 1440, 53)],
)
def test_time_bins_use_round_steps_for_the_span(hours: float, step: int, count: int) -> None:
    made = Bins.covering(NOON, NOON + timedelta(hours=hours), 96)
    assert (made.step, made.count) == (timedelta(minutes=step), count)


times = st.datetimes(datetime(1970, 1, 1), datetime(9900, 1, 1), timezones=st.just(UTC))


@given(times, times, st.integers(10, 200))
def test_time_bins_cover_every_window_and_are_bounded_in_number(one: datetime, other: datetime, most: int) -> None:
    first, last = sorted((one, other))
    made = Bins.covering(first, last, most)
    assert made.count <= most
    assert made.start <= first
    assert (last - made.start) // made.step == made.count - 1


def test_time_ticks_show_the_date_at_midnight() -> None:
    assert Bins(NOON, timedelta(hours=1), 36).ticks(4) == [(0, "12:00"), (12, "17 Nov"), (24, "12:00")]


def test_axis_ticks_are_round_numbers() -> None:
    assert ticks(80, 100, 4) == [80, 85, 90, 95, 100]
    assert ticks(0, 7000, 2) == [0, 5000]
    assert ticks(3, 3, 4) == [3]


@given(st.floats(0.001, 1e6), st.floats(1, 1e6))
def test_a_series_of_bounds_spans_its_values(low: float, factor: float) -> None:
    bounds = series(low, low * factor)
    assert len(bounds) >= 2
    assert bounds[0] <= low
    assert bounds[-1] >= low * factor or len(bounds) > 30


def test_scales_map_their_ends_to_the_ends_of_the_axis() -> None:
    assert [linear(0, 10, 100, 0)(value) for value in (0, 5, 10)] == [100, 50, 0]
    assert [round(logarithmic(1, 100, 0, 10)(value), 6) for value in (0, 1, 10, 100)] == [0, 0, 5, 10]


@pytest.mark.parametrize(("least", "floor"), [(100, 99), (99.5, 99), (98.2, 98), (86, 80), (40, 0), (0, 0)])
def test_hit_ratio_axis_starts_at_a_round_value_below_the_lowest_ratio(least: float, floor: float) -> None:
    assert ratio_floor(least) == floor


@pytest.mark.parametrize(
    ("value", "words"), [(0, "0"), (9999, "10 k"), (1234, "1,234"), (12_345, "12.3 k"), (999_960, "1 M"), (5e9, "5 G")]
)
def test_large_counts_are_shortened_with_a_unit(value: float, words: str) -> None:
    assert compact(value) == words


def test_percent_shows_0_and_100_only_when_exact() -> None:
    assert percent(10**9 - 1, 10**9) == "> 99.99 %"
    assert percent(1, 10**9) == "< 0.01 %"
    assert [percent(part, 8) for part in (0, 1, 8)] == ["0 %", "12.5 %", "100 %"]
    assert percent(0, 0) == "–"
    assert [duration(value) for value in (0.5, 12.34, 1500)] == ["0.5 ms", "12.3 ms", "1.5 s"]
    assert [length(timedelta(minutes=minutes)) for minutes in (5, 60, 1440)] == ["5 minutes", "an hour", "a day"]


def test_broker_names_are_shortened_by_their_common_tail_or_in_the_middle() -> None:
    assert common_tail(["b-0.svc.local:8080", "b-1.svc.local:8080"]) == ".svc.local:8080"
    assert common_tail(["b-0.svc:8080"]) == ""
    assert common_tail(["svc:8080", "b.svc:8080"]) == ""
    assert clip_middle("pulsar-broker-10", 12) == "pulsar-…r-10"


@pytest.mark.parametrize(
    ("places", "dots", "path"),
    [
        ([3], 1, False),
        ([0, 2, 4], 3, False),
        ([0, 1, 3], 1, True),
        ([0, 1, 2], 0, True),
        ([], 0, False),
    ],
)
def test_points_without_neighbours_are_drawn_as_dots(places: list[int], dots: int, path: bool) -> None:
    time = Timeline(Bins(NOON, timedelta(hours=1), 6), 1040)
    drawn = time.line(dict.fromkeys(places, 50.0), linear(0, 100, 100, 0), "l0")
    assert drawn.count("<circle") == dots
    assert ("<path" in drawn) is path


def test_charts_of_one_window_show_its_ratio_and_its_quantiles() -> None:
    one = Bins(NOON, timedelta(minutes=5), 1)
    timed = [Latency(0, None, 9, 1.5, 4.0, 9.0, 6.0)]
    assert hits_chart(one, [Hits(0, "public", 8, 1)], 1040, None).body.count('class="dot l') == 1
    assert latency_chart(one, timed, timed, 1040, None).body.count('class="dot l') == 3


amounts = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.integers(1, 10**9)), min_size=1)


@given(amounts)
def test_flow_chart_boxes_do_not_overlap_and_bands_stay_within_their_boxes(flows: list[tuple[str, str, int]]) -> None:
    sums: dict[tuple[str, str], int] = {}
    for source, target, amount in flows:
        sums[source, target] = sums.get((source, target), 0) + amount
    stages = tuple(sorted({source for source, _ in sums})), tuple(sorted({target for _, target in sums}))
    bands = {Band(0, source, target, True): amount for (source, target), amount in sums.items()}
    boxes, placed = lay_out(stages, bands, 300, 30)
    for column, stage in enumerate(stages):
        end = 0.0
        for name in stage:
            assert boxes[column, name].top >= end - 1e-6
            end = boxes[column, name].top + boxes[column, name].height
        assert end <= 300 + 1e-6
    for band, (from_top, to_top, height) in placed.items():
        start, goal = boxes[0, band.source], boxes[1, band.target]
        assert start.top - 1e-6 <= from_top <= start.top + start.height - height + 1e-6
        assert goal.top - 1e-6 <= to_top <= goal.top + goal.height - height + 1e-6


def test_flow_chart_has_boxes_for_unnamed_and_grouped_flows() -> None:
    drawn = flow_chart(
        [
            Flow("public", "external", "b-0", True, 90),
            Flow(Others(7), Others(2), Others(40), True, 9),
            Flow(None, None, None, False, 1),
        ],
        1040,
    )
    for words in ("public", "7 more", "2 more", "40 more", "no ingress", "no listener", "no broker", "1 misses"):
        assert words in drawn.body
