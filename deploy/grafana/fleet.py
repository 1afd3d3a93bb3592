"""The row on all drives, from recorded series: totals, the slowest drives, models."""

from grafana_foundation_sdk.builders import dashboard as builders

from latencies import FLEET, FLEET_DEVICE, NODE
from panels import columns, heat_map, lines, number

DEVICES = "instance_device_op:biolat_device_latency_seconds"
TOTALS = "instance_device_op:biolat_total_latency_seconds"
BYTES = "instance_device_op:biolat_io_bytes:rate5m"
ERRORS = "instance_device_op_status:biolat_io_errors:rate5m"
OPS = f'{FLEET_DEVICE}, op=~"$op"'


def fleet(board, ask):
    board.with_row(builders.Row("Fleet"))
    board.with_panel(number("Nodes", "Nodes whose biolat is scraped.", "short", f"count(biolat_build_info{{{NODE}}})"))
    board.with_panel(
        number(
            "Devices",
            "Block devices with requests of their own.",
            "short",
            f"count(biolat_device_info{{{FLEET_DEVICE}}})",
        )
    )
    board.with_panel(
        number(
            "IOPS", "I/Os per second, all together. From a recording rule.", "iops", f"sum({TOTALS}:count_rate5m{{{OPS}}})"
        )
    )
    board.with_panel(
        number("Throughput", "Bytes per second, all together. From a recording rule.", "Bps", f"sum({BYTES}{{{OPS}}})")
    )
    board.with_panel(
        number(
            "Failed I/O",
            "Failed completions per second. From a recording rule.",
            "iops",
            f"sum({ERRORS}{{{OPS}}})",
            steps=(1e-9, 1),
        )
    )
    board.with_panel(
        number(
            "Worst p99",
            "The highest p99 device latency of any drive. From a recording rule.",
            "s",
            f"max({DEVICES}:p99_rate5m{{{OPS}}})",
            steps=(0.01, 0.1),
        )
    )
    worst = f"topk(20, {DEVICES}:p99_rate5m{{{OPS}}})"
    board.with_panel(
        columns(
            "Worst drives now",
            "The twenty drives with the highest p99 device latency over five minutes. From recording rules.",
            [
                worst,
                f"{DEVICES}:p50_rate5m{{{OPS}}} and {worst}",
                f"{TOTALS}:p99_rate5m{{{OPS}}} and {worst}",
                f"{TOTALS}:count_rate5m{{{OPS}}} and {worst}",
            ],
            {
                "cluster": "Cluster",
                "instance": "Node",
                "device": "Device",
                "model": "Model",
                "op": "Op",
                "Value #A": "p99 device",
                "Value #B": "p50 device",
                "Value #C": "p99 total",
                "Value #D": "IOPS",
            },
            units={"p99 device": "s", "p50 device": "s", "p99 total": "s", "IOPS": "iops"},
            order="p99 device",
            height=10,
            steps=(0.01, 0.1),
        )
    )
    board.with_panel(
        heat_map(
            "All drives",
            "Device latency of all drives together; brighter is more I/O. From a recording rule.",
            ask.recorded(f'{FLEET}, op=~"$op"'),
            ask.heatmap_format,
            height=9,
        )
    )
    board.with_panel(
        lines(
            "p99 by model",
            "The p99 device latency of all drives of a model. From a recording rule.",
            "s",
            (f'model_op:biolat_device_latency_seconds:p99_rate5m{{{FLEET}, op=~"$op"}}', "{{model}} {{op}}"),
            height=9,
            log=True,
            minimum=None,
        )
    )
