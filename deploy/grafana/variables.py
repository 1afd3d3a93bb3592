"""The variables at the top of the dashboard. Each lists the values that match the choices before it."""

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard

from latencies import DEVICE, FLEET, IS_DRIVE
from panels import DATASOURCE

# The default choice. It excludes discards, which can take seconds on a healthy drive and would be the slowest op everywhere.
OPS = ("read", "write", "flush")


def _chosen(name, label, metric, source, description, default=()):
    """A variable of several values or All. All is `.*`, because a list of values does not match an absent or empty label."""
    variable = builders.QueryVariable(name).label(label).description(description).datasource(DATASOURCE)
    # The form that Grafana 11 saves for a "label values" query. Without qryType, Grafana shows it as a legacy query.
    variable.query(
        {
            "qryType": 1,
            "query": f"label_values({metric}, {source})",
            "refId": "PrometheusVariableQueryEditor-VariableQuery",
        }
    )
    variable.refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(dashboard.VariableSort.NATURAL_ASC)
    text, value = (list(default), list(default)) if default else (["All"], ["$__all"])
    variable.current(dashboard.VariableOption(selected=True, text=text, value=value))
    return variable.multi(True).include_all(True).all_value(".*")


def variables(board):
    board.with_variable(
        builders.DatasourceVariable("datasource").label("Data source").type("prometheus").description("A Prometheus with biolat")
    )
    info, drives = "biolat_device_info", f"{FLEET}, {IS_DRIVE}"
    for variable in (
        _chosen("cluster", "Cluster", "biolat_build_info", "cluster", "The label cluster, which may be absent"),
        _chosen("model", "Model", f'{info}{{cluster=~"$cluster"}}', "model", "Does not affect the row biolat itself"),
        _chosen("node", "Node", f"{info}{{{drives}}}", "instance", "The label instance: nodes with drives of the chosen models"),
        _chosen("device", "Device", f'{info}{{{drives}, instance=~"$node"}}', "device", "Drives of the chosen models and nodes"),
        _chosen("op", "Op", f"biolat_io_bytes_total{{{DEVICE}}}", "op", "The kernel's name of the operation", OPS),
    ):
        board.with_variable(variable)
