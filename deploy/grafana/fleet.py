"""The row on all drives, from recorded series: totals, the worst drives, models."""

from grafana_foundation_sdk.builders import dashboard as builders

from latencies import FLEET, FLEET_DEVICE, NODE, summed
from panels import columns, heat_map, lines, number

DEVICES = "instance_device_op:biolat_device_latency_seconds"
TOTALS = "instance_device_op:biolat_total_latency_seconds"
BYTES = "instance_device_op:biolat_io_bytes:rate5m"
ADMISSION = "instance_device_op:biolat_admission_latency_seconds:p99_rate5m"
FAILED = "instance_device:biolat_failed_ios:rate5m"
SLOW = "instance_device_over:biolat_slow_ios:rate5m"
INFLIGHT = "instance_device:biolat_inflight_ios:sum"
OLDEST = "instance_device:biolat_oldest_inflight_seconds:max"
OPS = f'{FLEET_DEVICE}, op=~"$op"'
BY_DEVICE = ("cluster", "instance", "device", "model")


def highest(expression):
    """The highest value of a device, over its ops."""
    return f"max by ({', '.join(BY_DEVICE)}) ({expression})"


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
            "Failed completions of all ops per second. From a recording rule.",
            "iops",
            f"sum({FAILED}{{{FLEET_DEVICE}}})",
            steps=(1e-9, 1),
        )
    )
    board.with_panel(
        number(
            "Slow I/O",
            "I/Os of all ops per second that took more than a second. From a recording rule.",
            "iops",
            f'sum({SLOW}{{{FLEET_DEVICE}, over="1"}})',
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
    board.with_panel(
        number(
            "Oldest I/O",
            "The age of the oldest I/O of any drive that has not completed. From a recording rule.",
            "s",
            f"max({OLDEST}{{{FLEET_DEVICE}}})",
            steps=(1, 30),
        )
    )
    # Whole seconds: below, the age of an I/O in flight says nothing, and the latency decides.
    oldest = f"floor({OLDEST}{{{FLEET_DEVICE}}})"
    p99 = highest(f"{DEVICES}:p99_rate5m{{{OPS}}}")
    worst = f"topk(20, {oldest} * 1e6 + {p99} or {oldest} * 1e6 or {p99})"
    board.with_panel(
        columns(
            "Worst drives now",
            "The twenty drives with the oldest I/O that has not completed, in whole seconds, then those with the highest p99 "
            "device latency of an op over five minutes. A drive that hangs has no latency. From recording rules.",
            [
                f"{oldest} and {worst}",
                f"{highest(f'{INFLIGHT}{{{FLEET_DEVICE}}}')} and {worst}",
                f"{p99} and {worst}",
                f"{highest(f'{DEVICES}:p50_rate5m{{{OPS}}}')} and {worst}",
                f"{highest(f'{ADMISSION}{{{OPS}}}')} and {worst}",
                f"{highest(f'{TOTALS}:p99_rate5m{{{OPS}}}')} and {worst}",
                f"{summed(BY_DEVICE, f'{TOTALS}:count_rate5m{{{OPS}}}')} and {worst}",
            ],
            {
                "cluster": "Cluster",
                "instance": "Node",
                "device": "Device",
                "model": "Model",
                "Value #A": "Oldest I/O",
                "Value #B": "In flight",
                "Value #C": "p99 device",
                "Value #D": "p50 device",
                "Value #E": "p99 admission",
                "Value #F": "p99 total",
                "Value #G": "IOPS",
            },
            units={
                "Oldest I/O": "s",
                "p99 device": "s",
                "p50 device": "s",
                "p99 admission": "s",
                "p99 total": "s",
                "IOPS": "iops",
            },
            order=("Oldest I/O", "p99 device"),
            height=10,
            colours={"Oldest I/O": (1, 30), "p99 device": (0.01, 0.1)},
        )
    )
    board.with_panel(
        lines(
            "Oldest I/O by drive",
            "The ten drives with the oldest I/O that has not completed. From a recording rule.",
            "s",
            (f"topk(10, {OLDEST}{{{FLEET_DEVICE}}})", "{{instance}} {{device}}"),
            log=True,
            minimum=None,
        )
    )
    board.with_panel(
        lines(
            "Slow I/O by threshold",
            "I/Os of all ops per second that took longer than so many seconds. From a recording rule.",
            "iops",
            (summed(("over",), f"{SLOW}{{{FLEET_DEVICE}}}"), "over {{over}} s"),
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
