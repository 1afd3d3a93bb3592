"""The variables at the top of the dashboard."""

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard

from latencies import DEVICE, NODE
from panels import DATASOURCE


def variable(name, label, metric, source, description, all_value=".*"):
    chosen = builders.QueryVariable(name).label(label).description(description).datasource(DATASOURCE)
    # What Grafana 11 writes for "label values"; without qryType it shows the query as a legacy one.
    chosen.query(
        {
            "qryType": 1,
            "query": f"label_values({metric}, {source})",
            "refId": "PrometheusVariableQueryEditor-VariableQuery",
        }
    )
    chosen.refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(dashboard.VariableSort.NATURAL_ASC)
    chosen.multi(True).include_all(True).current(
        dashboard.VariableOption(selected=True, text=["All"], value=["$__all"])
    )
    return chosen.all_value(all_value) if all_value else chosen


def variables(board):
    board.with_variable(
        builders.DatasourceVariable("datasource").label("Data source").type("prometheus").description("A Prometheus")
    )
    # Only .* matches a label that is absent or empty; a list of values does not.
    board.with_variable(
        variable("cluster", "Cluster", "biolat_build_info", "cluster", "The label cluster; may be absent")
    )
    board.with_variable(
        variable("node", "Node", 'biolat_build_info{cluster=~"$cluster"}', "instance", "The label instance")
    )
    board.with_variable(
        variable(
            "model",
            "Model",
            f"biolat_device_info{{{NODE}}}",
            "model",
            "Selects drives in the fleet row, and which devices are listed",
        )
    )
    # All means all devices of the chosen models, so it has to be the list of them.
    board.with_variable(
        variable(
            "device",
            "Device",
            f'biolat_device_info{{{NODE}, model=~"$model"}}',
            "device",
            "A block device",
            all_value=None,
        )
    )
    board.with_variable(
        variable("op", "Op", f"biolat_io_bytes_total{{{DEVICE}}}", "op", "The kernel's name of the operation")
    )
