"""The rows on the chosen devices: latency by op and phase, load, errors, identity."""

from grafana_foundation_sdk.builders import dashboard as builders

from latencies import DEVICE, DEVICE_OP, rate, summed
from panels import columns, heat_map, lines

PHASES = {
    "total": "From the allocation of a request to its completion. A wait before the request exists is not included.",
    "queue": "From the allocation of a request to its dispatch to the driver: plug and I/O scheduler.",
    "device": "From the dispatch to the driver to completion: driver and drive.",
}


def latency(board, ask):
    """A row per op: latency by phase and by device."""
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
            "I/Os per second, as the kernel's disk statistics count them.",
            "iops",
            (ask.count("biolat_total_latency_seconds", DEVICE_OP, by_op), "{{instance}} {{device}} {{op}}"),
        )
    )
    board.with_panel(
        lines(
            "Throughput",
            "Bytes per second.",
            "Bps",
            (summed(by_op, rate("biolat_io_bytes_total", DEVICE_OP)), "{{instance}} {{device}} {{op}}"),
        )
    )
    queue = ask.sum("biolat_queue_latency_seconds", DEVICE_OP, by_device)
    device = ask.sum("biolat_device_latency_seconds", DEVICE_OP, by_device)
    board.with_panel(
        lines(
            "I/Os in flight",
            "Mean number of I/Os in the queue and in the device: seconds of latency per second. I/O that has not "
            "completed is not included.",
            "short",
            (queue, "{{instance}} {{device}} queue"),
            (device, "{{instance}} {{device}} device"),
            stacked=True,
        )
    )
    board.with_panel(
        lines(
            "Share of time in the queue",
            "Share of its time that an I/O waits before dispatch to the driver: towards 1 the drive is saturated.",
            "percentunit",
            (f"{queue} / ({queue} + {device})", "{{instance}} {{device}}"),
            maximum=1,
        )
    )
    board.with_panel(
        lines(
            "Failed I/O",
            "Failed completions per second, by the kernel's block status.",
            "iops",
            (
                summed((*by_device, "status"), rate("biolat_io_errors_total", DEVICE_OP)),
                "{{instance}} {{device}} {{status}}",
            ),
        )
    )
    board.with_panel(
        lines(
            "I/O size",
            "Mean size of an I/O.",
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
            "Device details",
            "From sysfs. path_of is the head of a hidden NVMe path; holders are the dm and md devices directly on top.",
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
