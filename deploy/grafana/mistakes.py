"""Deliberate mistakes in a dashboard, to test that faults.py finds each."""

import copy

from faults import all_panels, faults


def undetected(board):
    """One line per mistake that is not found."""
    for expected, make in MISTAKES.items():
        mistaken = copy.deepcopy(board)
        make(mistaken)
        found = list(faults(mistaken))
        if not any(expected in fault for fault in found):
            yield f"not found: {expected}; found: {found}"


def _panel(board):
    return next(panel for panel in all_panels(board) if panel["type"] == "timeseries")


def _change_query(board, old, new):
    targets = (target for panel in all_panels(board) for target in panel.get("targets") or [])
    target = next(target for target in targets if old in target["expr"])
    target["expr"] = target["expr"].replace(old, new)


MISTAKES = {
    "must not be editable": lambda board: board.update(editable=True),
    "must have no id": lambda board: board.update(id=7),
    "the same id": lambda board: board["panels"][1].update(id=board["panels"][0]["id"]),
    "is not a kind of panel": lambda board: _panel(board).update(type="graph"),
    "no description": lambda board: _panel(board).update(description=""),
    "no unit": lambda board: _panel(board)["fieldConfig"]["defaults"].update(unit=""),
    "no query": lambda board: _panel(board).update(targets=[]),
    "its data source is not the variable": lambda board: _panel(board).update(datasource={"uid": "mine"}),
    "no variable is called": lambda board: _change_query(board, "$cluster", "$clutser"),
    "is not a range that we use": lambda board: _change_query(board, "$__rate_interval", "5m"),
    "ignores the variables": lambda board: _change_query(board, 'cluster=~"$cluster"', 'cluster="lab"'),
    "ignores the model": lambda board: _change_query(board, 'model!~"$model"', 'model!="Y"'),
    "it merges clusters": lambda board: _change_query(board, "sum by (cluster, instance", "sum by (instance"),
    "only the first row must be open": lambda board: board["panels"][-1].update(collapsed=False),
    "overlaps": lambda board: board["panels"][-1].update(gridPos=board["panels"][-2]["gridPos"]),
    "does not fill the width": lambda board: _panel(board)["gridPos"].update(w=5),
}
