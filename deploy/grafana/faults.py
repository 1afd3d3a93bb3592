"""Checks a dashboard: the applicable rules of Grafana's dashboard-linter, and the panels' positions."""

import re

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Grafana's built-in variables.
BUILT_IN = {"__rate_interval", "__range"}
KINDS = {"row", "stat", "table", "timeseries", "heatmap"}
# The windows defined in latencies.py: NOW and WHOLE.
WINDOWS = {"[$__rate_interval]", "[$__range] @ end()"}
# Per-node metrics. All others are per drive, and drives have a model.
OF_NODES = r"process_.*|biolat_(build_info|collect_.*|map_bytes|series_slots|lost_.*|probe_.*|slow_records_.*|workload_info)"


def all_panels(board):
    """All panels, also those in collapsed rows."""
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels") or ()


def faults(board):
    """One line per fault."""
    panels = list(all_panels(board))
    variables = {variable["name"] for variable in board["templating"]["list"]}
    if board["editable"] or board["id"] is not None or not board["uid"]:
        yield "must not be editable, must have no id and a uid"
    if len({panel["id"] for panel in panels}) < len(panels):
        yield "two panels have the same id"
    for panel in panels:
        if panel["type"] not in KINDS:
            yield f"{panel['title']}: {panel['type']} is not a kind of panel that we use"
        elif panel["type"] != "row":
            yield from (f"{panel['title']}: {fault}" for fault in _of_panel(panel, variables))
    for annotation in board["annotations"]["list"]:
        yield from (f"{annotation['name']}: {fault}" for fault in _of_query(annotation, variables, annotation["name"]))
    yield from _of_rows(board["panels"])


def _of_rows(panels):
    """The first row is open, the others are collapsed; panels fill the width and do not overlap."""
    rows = [panel for panel in panels if panel["type"] == "row"]
    if rows[0]["collapsed"] or not all(row["collapsed"] and row["panels"] for row in rows[1:]):
        yield "only the first row must be open"
    for panels in (panels, *(row["panels"] for row in rows[1:])):
        yield from _of_places(panels)


def _of_places(panels):
    for number, panel in enumerate(panels):
        for other in panels[:number]:
            if _overlap(panel["gridPos"], other["gridPos"]):
                yield f"{panel['title']} overlaps {other['title']}"
    lines = {}
    for place in (panel["gridPos"] for panel in panels):
        lines.setdefault(place["y"], []).append(place)
    for places in lines.values():
        if sum(place["w"] for place in places) != 24 or len({place["h"] for place in places}) > 1:
            yield f"a line of panels does not fill the width, or has several heights: {places}"


def _of_panel(panel, variables):
    if not panel["title"] or not panel["description"].endswith("."):
        yield "no title, or no description that ends in a period"
    if not panel["fieldConfig"]["defaults"].get("unit"):
        yield "no unit"
    if not panel["targets"]:
        yield "no query"
    if panel["datasource"] != DATASOURCE:
        yield "its data source is not the variable"
    for target in panel["targets"]:
        yield from _of_query(target, variables, panel["type"])


def _of_query(target, variables, kind):
    query = target["expr"]
    if target["datasource"] != DATASOURCE:
        yield "its data source is not the variable"
    if unknown := set(re.findall(r"\$(\w+)", query)) - variables - BUILT_IN:
        yield f"no variable is called {', '.join(sorted(unknown))}"
    if windows := set(re.findall(r"\[.*?\](?: @ end\(\))?", query)) - WINDOWS:
        yield f"{windows} is not a range that we use: {query}"
    for metric, labels in re.findall(r"([a-zA-Z_:0-9]+){(.*?)}", query):
        if 'cluster=~"$cluster"' not in labels:
            yield f"{metric} ignores the variables"
    if any(not re.fullmatch(OF_NODES, metric) for metric in re.findall(r"([a-zA-Z_:0-9]+){", query)):
        if not re.search(r'model[=!]~"\$model"', query):
            yield f"ignores the model: {query}"
    if kind not in ("stat", "heatmap"):
        for by in re.findall(r"\b(?:sum|max|min|count|group)(?: by \((.*?)\) )?\(", query):
            if "cluster" not in by.split(", "):
                yield f"it merges clusters: {query}"


def _overlap(one, other):
    def apart(side, size):
        return one[side] >= other[side] + other[size] or other[side] >= one[side] + one[size]

    return not apart("x", "w") and not apart("y", "h")
