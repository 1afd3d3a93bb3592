"""The variables at the top of the dashboard: each lists what is left by those before it."""

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard

from latencies import DEVICE, FLEET
from panels import DATASOURCE

# Chosen at first. A discard of a healthy drive may take seconds: among all ops, discards would be the slowest.
OPS = ("read", "write", "flush")


def _chosen(name, label, metric, source, description, at_first=()):
    """Several values or All, which is `.*`: a list of values would not match a label that is absent or empty."""
    variable = builders.QueryVariable(name).label(label).description(description).datasource(DATASOURCE)
    # What Grafana 11 writes for "label values"; without qryType it shows the query as a legacy one.
    variable.query(
        {
            "qryType": 1,
            "query": f"label_values({metric}, {source})",
            "refId": "PrometheusVariableQueryEditor-VariableQuery",
        }
    )
    variable.refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(dashboard.VariableSort.NATURAL_ASC)
    text, value = (list(at_first), list(at_first)) if at_first else (["All"], ["$__all"])
    variable.current(dashboard.VariableOption(selected=True, text=text, value=value))
    return variable.multi(True).include_all(True).all_value(".*")


def variables(board):
    board.with_variable(
        builders.DatasourceVariable("datasource").label("Data source").type("prometheus").description("A Prometheus")
    )
    info = "biolat_device_info"
    for variable in (
        _chosen("cluster", "Cluster", "biolat_build_info", "cluster", "The label cluster; may be absent"),
        _chosen("model", "Model", f'{info}{{cluster=~"$cluster"}}', "model", "Not for the row on biolat itself"),
        _chosen("node", "Node", f"{info}{{{FLEET}}}", "instance", "The label instance: nodes with drives of these models"),
        _chosen("device", "Device", f'{info}{{{FLEET}, instance=~"$node"}}', "device", "Drives of these models and nodes"),
        _chosen("op", "Op", f"biolat_io_bytes_total{{{DEVICE}}}", "op", "The kernel's name of the operation", OPS),
    ):
        board.with_variable(variable)
