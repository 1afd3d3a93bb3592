"""Checks of a dashboard: the rules of Grafana's dashboard-linter that apply here, and the panels' positions."""

import re

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Variables of Grafana itself.
BUILT_IN = {"__rate_interval"}
KINDS = {"row", "stat", "table", "timeseries", "heatmap"}


def faults(board):
    """One line per fault."""
    panels = board["panels"]
    shown = [panel for panel in panels if panel["type"] != "row"]
    variables = {variable["name"] for variable in board["templating"]["list"]}
    if board["editable"] or board["id"] is not None or not board["uid"]:
        yield "must not be editable, must have no id and a uid"
    if len({panel["id"] for panel in panels}) < len(panels):
        yield "two panels have the same id"
    for panel in panels:
        if panel["type"] not in KINDS:
            yield f"{panel['title']}: {panel['type']} is no kind of panel that we use"
    for panel in shown:
        yield from (f"{panel['title']}: {fault}" for fault in _of_panel(panel, variables))
    for number, panel in enumerate(panels):
        for other in panels[:number]:
            if _overlap(panel["gridPos"], other["gridPos"]):
                yield f"{panel['title']} lies on {other['title']}"


def _of_panel(panel, variables):
    if not panel["title"] or not panel["description"].endswith("."):
        yield "no title, or no sentence that describes it"
    if not panel["fieldConfig"]["defaults"].get("unit"):
        yield "no unit"
    if not panel["targets"]:
        yield "no query"
    for target in panel["targets"]:
        query = target["expr"]
        if panel["datasource"] != DATASOURCE or target["datasource"] != DATASOURCE:
            yield "its data source is not the variable"
        if unknown := set(re.findall(r"\$(\w+)", query)) - variables - BUILT_IN:
            yield f"no variable is called {', '.join(sorted(unknown))}"
        if set(re.findall(r"\[(.*?)\]", query)) - {"$__rate_interval"}:
            yield f"a range other than $__rate_interval: {query}"
        for metric, labels in re.findall(r"([a-z_:0-9]+){(.*?)}", query):
            if 'cluster=~"$cluster"' not in labels:
                yield f"{metric} does not go by the variables"


def _overlap(one, other):
    def apart(side, size):
        return one[side] >= other[side] + other[size] or other[side] >= one[side] + one[size]

    return not apart("x", "w") and not apart("y", "h")
