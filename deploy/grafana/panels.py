"""The kinds of panels of the dashboard, each with a title, a unit and a description."""

from grafana_foundation_sdk.builders import common, heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models import dashboard
from grafana_foundation_sdk.models import heatmap as heat
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DATASOURCE = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")


# Recorded series have one value per minute. Their panels have few points, because each point reads one series per drive.
RECORDED = {"interval": "1m", "points": 240}


def row(board, title, *panels, repeat=None):
    """A collapsed row, whose panels send no queries until it is opened."""
    built = builders.Row(title).collapsed(True)
    for panel in panels:
        built.with_panel(panel)
    board.with_row(built.repeat(repeat) if repeat else built)


def query(expression, legend="", ref="A"):
    """A query over the time range."""
    target = prometheus.Dataquery().datasource(DATASOURCE).expr(expression).legend_format(legend).ref_id(ref)
    return target.range()


def instant(expression, ref="A"):
    """An instant query, for a table."""
    target = prometheus.Dataquery().datasource(DATASOURCE).expr(expression).ref_id(ref)
    return target.instant().format(PromQueryFormat.TABLE)


def _common(panel, title, description, unit, width, height, interval=None, points=None):
    panel = panel.title(title).description(description).datasource(DATASOURCE)
    if points:
        panel.interval(interval).max_data_points(points)
    return panel.unit(unit).span(width).height(height)


def _thresholds(steps):
    colours = ("green", "yellow", "red")
    starts = (None, *steps)
    levels = [dashboard.Threshold(color=colour, value=start) for colour, start in zip(colours, starts, strict=False)]
    return builders.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(levels)


def lines(
    title,
    description,
    unit,
    *queries,
    width=12,
    height=8,
    stacked=False,
    minimum=0,
    maximum=None,
    log=False,
    by_name=False,
    recorded=False,
):
    """Lines over time; tall panels have a table of the latest and highest values below.

    `by_name` colours a line by its name: it then has the same colour in each panel.
    """
    panel = _common(timeseries.Panel(), title, description, unit, width, height, **(RECORDED if recorded else {}))
    panel.min(minimum)
    for number, (expression, legend) in enumerate(queries):
        panel.with_target(query(expression, legend, chr(ord("A") + number)))
    legend = common.VizLegendOptions().show_legend(True).placement(options.LegendPlacement.BOTTOM)
    legend.display_mode(options.LegendDisplayMode.TABLE if height > 8 else options.LegendDisplayMode.LIST)
    panel.legend(legend.calcs(["lastNotNull", "max"] if height > 8 else []))
    panel.tooltip(common.VizTooltipOptions().mode(options.TooltipDisplayMode.MULTI).sort(options.SortOrder.DESCENDING))
    panel.line_width(1).fill_opacity(30 if stacked else 8).show_points(options.VisibilityMode.NEVER)
    if stacked:
        panel.stacking(common.StackingConfig().mode(options.StackingMode.NORMAL))
    if by_name:
        panel.color_scheme(builders.FieldColor().mode(dashboard.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
    if maximum is not None:
        panel.max(maximum)
    if log:
        panel.scale_distribution(common.ScaleDistributionConfig().type(options.ScaleDistribution.LOG).log(10))
    return panel


def number(title, description, unit, expression, width=3, steps=()):
    """A single number, coloured by thresholds."""
    panel = _common(stat.Panel(), title, description, unit, width, 4, **RECORDED).with_target(query(expression))
    panel.color_mode(options.BigValueColorMode.VALUE).graph_mode(options.BigValueGraphMode.AREA)
    return panel.thresholds(_thresholds(steps)).reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))


def heat_map(title, description, expression, query_format, width=12, height=8, unit="s"):
    """A heatmap of I/Os per second, by latency or another unit."""
    panel = _common(heatmap.Panel(), title, description, unit, width, height)
    target = query(expression, "{{le}}" if query_format == "heatmap" else "")
    panel.with_target(target.format(PromQueryFormat(query_format)))
    panel.calculate(False).y_axis(heatmap.YAxisConfig().unit(unit).axis_placement(options.AxisPlacement.LEFT))
    colour = heatmap.HeatmapColorOptions().mode(heat.HeatmapColorMode.SCHEME).scheme("Oranges").steps(64)
    # Most I/O is fast. The square root keeps the few slow I/Os visible.
    panel.color(colour.scale(heat.HeatmapColorScale.EXPONENTIAL).exponent(0.5))
    panel.cell_values(heatmap.CellValues().unit("iops")).show_legend().mode(options.TooltipDisplayMode.SINGLE)
    return panel.filter_values(heatmap.FilterValueRange().le(1e-9)).cell_gap(0)


def columns(title, description, queries, renamed, order=(), width=24, height=8, properties=None):
    """A table with a row per set of labels and a column per label and query; `Value #A` is the first query.

    `order` lists the columns to sort by, each with whether the highest values come first. `properties` maps a column to its
    properties.
    """
    panel = _common(table.Panel(), title, description, "short", width, height)
    for number, expression in enumerate(queries):
        panel.with_target(instant(expression, chr(ord("A") + number)))
    if len(queries) > 1:
        panel.with_transformation(dashboard.DataTransformerConfig(id_val="merge", options={}))
    panel.with_transformation(
        dashboard.DataTransformerConfig(id_val="filterFieldsByName", options={"include": {"names": list(renamed)}})
    )
    panel.with_transformation(
        dashboard.DataTransformerConfig(
            id_val="organize",
            options={
                "indexByName": {name: place for place, name in enumerate(renamed)},
                "renameByName": renamed,
            },
        )
    )
    for name, chosen in (properties or {}).items():
        panel.override_by_name(
            name, [dashboard.DynamicConfigValue(id_val=property_name, value=value) for property_name, value in chosen]
        )
    panel.sort_by([common.TableSortByFieldState().display_name(name).desc(descending) for name, descending in order])
    return panel.filterable(True)


def unit_of(unit):
    """The property of a column that sets its unit."""
    return ("unit", unit)


def coloured(*steps):
    """The properties of a column whose text is coloured by thresholds."""
    return (("thresholds", _thresholds(steps).build()), ("custom.cellOptions", {"type": "color-text"}))


def yes_or_no():
    """The property of a column of zeros and ones, shown as no and yes."""
    options = {"0": {"text": "no", "index": 0}, "1": {"text": "yes", "index": 1}}
    return ("mappings", [{"type": "value", "options": options}])


def link(title, url):
    """The property of a column whose cells link to a URL."""
    return ("links", [{"title": title, "url": url}])
