"""Panels in a common style: each has a title, a unit, and a description that says what to do."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from grafana_foundation_sdk.builders import common, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.models import common as looks
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.queries import Query
from dashboards.variables import DATASOURCE

GREEN, ORANGE, RED, BLUE = "green", "orange", "red", "blue"

Steps = Sequence[tuple[float | None, str]]
"""Thresholds: the colour from each value on; the first has no value."""

Words = Mapping[str, tuple[str, str]]
"""Texts shown instead of values, with their colours."""


Panel = stat.Panel | statetimeline.Panel | table.Panel | timeseries.Panel
P = TypeVar("P", stat.Panel, statetimeline.Panel, table.Panel, timeseries.Panel)


def number(
    title: str,
    unit: str,
    description: str,
    query: Query,
    *,
    steps: Steps | None = None,
    words: Words | None = None,
    decimals: int | None = None,
    span: int = 3,
) -> stat.Panel:
    """One current number. Without steps or words it has no colour, as it is neither good nor bad."""
    panel = _common(stat.Panel(), title, unit, description, [query], instant=True).span(span).height(4)
    is_judged = steps is not None or words is not None
    panel.color_mode(looks.BigValueColorMode.VALUE if is_judged else looks.BigValueColorMode.NONE)
    panel.graph_mode(looks.BigValueGraphMode.NONE).justify_mode(looks.BigValueJustifyMode.CENTER)
    panel.text_mode(looks.BigValueTextMode.NAME if query.legend else looks.BigValueTextMode.VALUE)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"])).no_value("–")
    panel.thresholds(_thresholds(steps or [(None, GREEN)]))
    if words is not None:
        panel.mappings([_mapping(words)])
    if decimals is not None:
        panel.decimals(decimals)
    return panel


def lines(
    title: str,
    unit: str,
    description: str,
    *queries: Query,
    colours: Mapping[str, str] | None = None,
    steps: Steps | None = None,
    most: float | None = None,
    span: int = 8,
) -> timeseries.Panel:
    """Numbers over time. With steps, a dashed line marks the threshold."""
    panel = _over_time(title, unit, description, queries, colours or {}, span).fill_opacity(8).line_width(1)
    if steps is not None:
        panel.thresholds(_thresholds(steps))
        panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(looks.GraphThresholdsStyleMode.DASHED))
    if most is not None:
        panel.max(most)
    return panel


def stacked(
    title: str,
    unit: str,
    description: str,
    *queries: Query,
    colours: Mapping[str, str] | None = None,
    bars: bool = False,
    span: int = 8,
) -> timeseries.Panel:
    """Parts of a whole over time, stacked; as bars for single occurrences."""
    panel = _over_time(title, unit, description, queries, colours or {}, span)
    panel.stacking(common.StackingConfig().mode(looks.StackingMode.NORMAL).group("A"))
    if bars:
        return panel.draw_style(looks.GraphDrawStyle.BARS).fill_opacity(80).line_width(0)
    return panel.fill_opacity(30).line_width(1)


def states(title: str, description: str, query: Query, words: Words, *, span: int = 8) -> statetimeline.Panel:
    """States over time."""
    panel = _common(statetimeline.Panel(), title, "short", description, [query]).span(span).height(8)
    panel.mappings([_mapping(words)]).show_value(looks.VisibilityMode.NEVER).row_height(0.8).fill_opacity(80)
    return panel.legend(_legend().show_legend(False))


def rows(
    title: str,
    description: str,
    labels: Mapping[str, str],
    columns: Mapping[str, Query],
    properties: Mapping[str, Sequence[model.DynamicConfigValue]],
    *,
    span: int = 24,
) -> table.Panel:
    """One row per set of labels, under these names, and one column per query, hidden if it has no name."""
    panel = _common(table.Panel(), title, "short", description, list(columns.values()), instant=True)
    panel.span(span).height(8)
    values = {f"Value #{_letter(index)}": column for index, column in enumerate(columns)}
    names = {**labels, **{value: column for value, column in values.items() if column}}
    arranged: dict[str, Any] = {
        "excludeByName": {"Time": True, **{value: True for value in values if value not in names}},
        "indexByName": {field: index for index, field in enumerate(names)},
        "renameByName": names,
    }
    panel.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    panel.with_transformation(model.DataTransformerConfig(id_val="organize", options=arranged))
    for column, wanted in properties.items():
        panel.override_by_name(column, list(wanted))
    return panel


def in_words(words: Words) -> list[model.DynamicConfigValue]:
    """The display options of a table's column."""
    return [
        model.DynamicConfigValue("mappings", [_mapping(words)]),
        model.DynamicConfigValue("custom.cellOptions", {"type": "color-text"}),
    ]


def leading_to(title: str, url: str) -> list[model.DynamicConfigValue]:
    """A table's column with links."""
    return [model.DynamicConfigValue("links", [{"title": title, "url": url}])]


def _over_time(
    title: str, unit: str, description: str, queries: Sequence[Query], colours: Mapping[str, str], span: int
) -> timeseries.Panel:
    panel = _common(timeseries.Panel(), title, unit, description, queries).span(span).height(8)
    panel.legend(_legend("mean", "max")).show_points(looks.VisibilityMode.NEVER).min(0)
    panel.tooltip(common.VizTooltipOptions().mode(looks.TooltipDisplayMode.MULTI).sort(looks.SortOrder.DESCENDING))
    for series, colour in colours.items():
        fixed = {"mode": model.FieldColorModeId.FIXED, "fixedColor": colour}
        panel.override_by_name(series, [model.DynamicConfigValue("color", fixed)])
    return panel


def _common(panel: P, title: str, unit: str, description: str, queries: Sequence[Query], *, instant: bool = False) -> P:
    panel.title(title).unit(unit).description(description).datasource(DATASOURCE)
    for index, query in enumerate(queries):
        target = Dataquery().expr(query.expr).ref_id(_letter(index)).datasource(DATASOURCE)
        target = target.instant() if instant else target.range()
        if query.legend:
            target.legend_format(query.legend)
        if isinstance(panel, table.Panel):
            target.format(PromQueryFormat.TABLE)
        panel.with_target(target)
    return panel


def _letter(index: int) -> str:
    return chr(ord("A") + index)


def _thresholds(steps: Steps) -> build.ThresholdsConfig:
    thresholds = [model.Threshold(value, colour) for value, colour in steps]
    return build.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(thresholds)


def _legend(*calculations: str) -> common.VizLegendOptions:
    mode = looks.LegendDisplayMode.TABLE if calculations else looks.LegendDisplayMode.LIST
    legend = common.VizLegendOptions().display_mode(mode).placement(looks.LegendPlacement.BOTTOM)
    return legend.calcs(list(calculations)).show_legend(True)


def _mapping(words: Words) -> model.ValueMapping:
    return model.ValueMap(
        {
            value: model.ValueMappingResult(text=text, color=colour, index=index)
            for index, (value, (text, colour)) in enumerate(words.items())
        }
    )
