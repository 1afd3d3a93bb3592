"""The view of the chosen devices: their latency by op and phase, their load, their errors, what they are."""

from grafana_foundation_sdk.builders import dashboard as builders

from latencies import DEVICE, DEVICE_OP, rate, summed
from panels import columns, heat_map, lines

PHASES = {
    "total": "From the making of a request to its completion: what a program waits for.",
    "queue": "From the making of a request to its hand-over to the driver: plug, scheduler, tags.",
    "device": "From the hand-over to the driver to completion: what the drive takes.",
}


def latency(board, ask):
    """A row for each op: how long it takes, where, and on which device."""
    board.with_row(builders.Row("Latency of $op").repeat("op"))
    for phase, description in PHASES.items():
        metric = f"biolat_{phase}_latency_seconds"
        board.with_panel(
            heat_map(f"$op: {phase}", description, ask.histogram(metric, DEVICE_OP), ask.heatmap_format, width=8)
        )
    for phase in ("total", "device"):
        metric = f"biolat_{phase}_latency_seconds"
        board.with_panel(
            lines(
                f"$op: {phase}, quantiles",
                f"{PHASES[phase]} All chosen devices together.",
                "s",
                *(
                    (ask.quantile(share, metric, DEVICE_OP), name)
                    for share, name in ((0.5, "p50"), (0.99, "p99"), (0.999, "p99.9"))
                ),
                width=8,
                log=True,
                minimum=None,
            )
        )
    board.with_panel(
        lines(
            "$op: p99 by device",
            f"{PHASES['device']} The 99th percentile.",
            "s",
            (
                ask.quantile(0.99, "biolat_device_latency_seconds", DEVICE_OP, ("instance", "device")),
                "{{instance}} {{device}}",
            ),
            width=8,
            log=True,
            minimum=None,
        )
    )


def devices(board, ask):
    board.with_row(builders.Row("Load and errors"))
    by_op = ("instance", "device", "op")
    by_device = ("instance", "device")
    board.with_panel(
        lines(
            "IOPS",
            "I/Os a second, as the kernel's disk statistics count them.",
            "iops",
            (ask.count("biolat_total_latency_seconds", DEVICE_OP, by_op), "{{instance}} {{device}} {{op}}"),
        )
    )
    board.with_panel(
        lines(
            "Throughput",
            "Bytes moved in a second.",
            "Bps",
            (summed(by_op, rate("biolat_io_bytes_total", DEVICE_OP)), "{{instance}} {{device}} {{op}}"),
        )
    )
    queue = ask.sum("biolat_queue_latency_seconds", DEVICE_OP, by_device)
    device = ask.sum("biolat_device_latency_seconds", DEVICE_OP, by_device)
    board.with_panel(
        lines(
            "I/Os under way",
            "How many I/Os waited for the drive and how many it had, on average: seconds spent in a second.",
            "short",
            (queue, "{{instance}} {{device}} queue"),
            (device, "{{instance}} {{device}} device"),
            stacked=True,
        )
    )
    board.with_panel(
        lines(
            "Share of time in the queue",
            "How much of its time an I/O waits before the driver has it: towards 1 the drive is saturated.",
            "percentunit",
            (f"{queue} / ({queue} + {device})", "{{instance}} {{device}}"),
            maximum=1,
        )
    )
    board.with_panel(
        lines(
            "Failed I/O",
            "Completions a second that failed, by the kernel's block status.",
            "iops",
            (
                summed((*by_device, "status"), rate("biolat_io_errors_total", DEVICE_OP)),
                "{{instance}} {{device}} {{status}}",
            ),
        )
    )
    board.with_panel(
        lines(
            "Bytes of an I/O",
            "How large an I/O is on average.",
            "bytes",
            (
                f"{summed(by_op, rate('biolat_io_bytes_total', DEVICE_OP))} / "
                f"({ask.count('biolat_total_latency_seconds', DEVICE_OP, by_op)} > 0)",
                "{{instance}} {{device}} {{op}}",
            ),
        )
    )
    board.with_panel(
        columns(
            "What the devices are",
            "From sysfs. path_of names the head of a hidden NVMe path, holders what sits on the device.",
            [f'biolat_device_info{{{DEVICE}, model=~"$model"}}'],
            {
                "cluster": "Cluster",
                "instance": "Node",
                "device": "Device",
                "model": "Model",
                "serial": "Serial",
                "wwid": "WWID",
                "dev": "Number",
                "rotational": "Rotational",
                "numa_node": "NUMA node",
                "path_of": "Path of",
                "holders": "Holders",
            },
        )
    )
