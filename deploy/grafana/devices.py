"""The rows on the chosen devices: latency by op and phase, load, sizes, CPUs, I/O that fails or does not complete,
identity."""

from grafana_foundation_sdk.builders import dashboard as builders

from latencies import DEVICE, DEVICE_OP, rate, summed
from panels import columns, heat_map, lines

PHASES = {
    "total": "From the allocation of a request to its completion. A wait before the request exists is not included.",
    "admission": "From the submission of an I/O to the allocation of its request: writeback throttling, io.cost, io.latency, "
    "a free tag. The wait of io.max is not included. Empty where the kernel keeps no timestamp of it.",
    "queue": "From the allocation of a request to its dispatch to the driver: plug and I/O scheduler.",
    "device": "From the dispatch to the driver to completion: driver and drive.",
}


def latency(board, ask):
    """A row per op: latency by phase and by device."""
    board.with_row(builders.Row("Latency of $op").repeat("op"))
    for phase, description in PHASES.items():
        metric = f"biolat_{phase}_latency_seconds"
        board.with_panel(
            heat_map(f"$op: {phase}", description, ask.histogram(metric, DEVICE_OP), ask.heatmap_format, width=6)
        )
    for phase in ("total", "admission", "device"):
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
                width=6,
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
            width=6,
            log=True,
            minimum=None,
        )
    )


def devices(board, ask):
    board.with_row(builders.Row("Load"))
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
    admission = ask.sum("biolat_admission_latency_seconds", DEVICE_OP, by_device)
    queue = ask.sum("biolat_queue_latency_seconds", DEVICE_OP, by_device)
    device = ask.sum("biolat_device_latency_seconds", DEVICE_OP, by_device)
    board.with_panel(
        lines(
            "I/Os in flight, on average",
            "Mean number of I/Os that wait for admission, that wait in the queue, and that are in the device: seconds of "
            "latency per second. I/O that has not completed is not included.",
            "short",
            (admission, "{{instance}} {{device}} admission"),
            (queue, "{{instance}} {{device}} queue"),
            (device, "{{instance}} {{device}} device"),
            stacked=True,
        )
    )
    waits = f"({admission} + {queue} or {queue})"
    board.with_panel(
        lines(
            "Share of time waiting",
            "Share of its time that an I/O waits for admission and in the queue, before dispatch to the driver: towards 1 "
            "the drive is saturated, or a limit holds its I/O back.",
            "percentunit",
            (f"{waits} / ({waits} + {device})", "{{instance}} {{device}}"),
            maximum=1,
        )
    )
    flushes = f'{DEVICE}, op="flush"'
    board.with_panel(
        lines(
            "Flushes",
            "Flushes per second, whatever the chosen op.",
            "iops",
            (ask.count("biolat_total_latency_seconds", flushes, by_device), "{{instance}} {{device}}"),
        )
    )
    board.with_panel(
        lines(
            "Flush latency",
            "Total latency of flushes, whatever the chosen op. Each fsync waits for one.",
            "s",
            (ask.quantile(0.5, "biolat_total_latency_seconds", flushes, by_device), "{{instance}} {{device}} p50"),
            (ask.quantile(0.99, "biolat_total_latency_seconds", flushes, by_device), "{{instance}} {{device}} p99"),
            log=True,
            minimum=None,
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


def sizes(board, ask):
    """The row on the sizes of requests, and what a size costs."""
    board.with_row(builders.Row("Request sizes"))
    by_size = ("op", "size")
    latencies = "biolat_size_device_latency_seconds"
    ops = "Reads, writes and zone appends of all chosen devices together."
    board.with_panel(
        heat_map(
            "Sizes of requests",
            "Requests per second by size, of all chosen devices and ops; brighter is more. Each row is a power of two.",
            ask.histogram("biolat_io_size_bytes", DEVICE_OP),
            ask.heatmap_format,
            width=8,
            unit="bytes",
        )
    )
    board.with_panel(
        lines(
            "IOPS by size",
            f"Requests per second by range of sizes. {ops}",
            "iops",
            (ask.count(latencies, DEVICE_OP, by_size), "{{op}} {{size}}"),
            width=8,
            stacked=True,
        )
    )
    board.with_panel(
        lines(
            "Mean device latency by size",
            f"Where the kernel does not record the dispatch, the total latency. {ops}",
            "s",
            (
                f"{ask.sum(latencies, DEVICE_OP, by_size)} / ({ask.count(latencies, DEVICE_OP, by_size)} > 0)",
                "{{op}} {{size}}",
            ),
            width=8,
            log=True,
            minimum=None,
        )
    )
    board.with_panel(
        lines(
            "p99 device latency by size",
            f"Where large requests are slow and small ones are not, it is the load and not the drive. {ops}",
            "s",
            (ask.quantile(0.99, latencies, DEVICE_OP, by_size), "{{op}} {{size}}"),
            width=8,
            log=True,
            minimum=None,
        )
    )
    for title, chosen in (("up to 16 KiB", "le_4KiB|le_16KiB"), ("above 64 KiB", "le_256KiB|le_1MiB|gt_1MiB")):
        board.with_panel(
            heat_map(
                f"Device latency of requests {title}",
                f"Requests per second by latency; brighter is more. {ops}",
                ask.histogram(latencies, f'{DEVICE_OP}, size=~"{chosen}"'),
                ask.heatmap_format,
                width=8,
            )
        )


def completions(board, ask):
    """The row on the CPUs that complete I/O."""
    by_device = ("cluster", "instance", "device")
    legend = "{{instance}} {{device}}"
    board.with_row(builders.Row("CPUs that complete I/O"))
    board.with_panel(
        lines(
            "Effective CPUs",
            "CPUs that complete the device's I/O: as many as would have equal shares. Near 1, one CPU does nearly all.",
            "short",
            (f"biolat_completion_cpus{{{DEVICE}}}", legend),
            width=6,
        )
    )
    share = f"biolat_completion_cpu_share_max{{{DEVICE}}}"
    board.with_panel(
        lines(
            "Share of the busiest CPU",
            "Share of the device's I/O that the busiest CPU completes.",
            "percentunit",
            (share, legend),
            width=6,
            maximum=1,
        )
    )
    total = ask.count("biolat_total_latency_seconds", DEVICE, by_device)
    board.with_panel(
        lines(
            "IOPS on the busiest CPU",
            "Completions of the device per second on the CPU that has most of them. One CPU can do only so many.",
            "iops",
            (f"{total} * on ({', '.join(by_device)}) {share}", legend),
            width=6,
        )
    )
    board.with_panel(
        lines(
            "Off-node share",
            "Share of the device's I/O that CPUs of another NUMA node complete. Empty while there is none, and where the device's node is unknown.",
            "percentunit",
            (f"biolat_completion_off_node_share{{{DEVICE}}}", legend),
            width=6,
            maximum=1,
        )
    )


def unfinished(board, _):
    """The row on I/O that does not complete, takes long or fails."""
    by_device = ("instance", "device")
    board.with_row(builders.Row("Hangs, stalls and errors"))
    board.with_panel(
        lines(
            "I/Os in flight now",
            "I/Os that the driver has and has not completed, at the time of the scrape.",
            "short",
            (summed((*by_device, "op"), f"biolat_inflight_ios{{{DEVICE}}}"), "{{instance}} {{device}} {{op}}"),
            width=8,
        )
    )
    board.with_panel(
        lines(
            "Oldest I/O not completed",
            "Age of the oldest I/O that has not completed, 0 if there is none. Where biolat_oldest_inflight_exact is 0 it is "
            "a lower bound: the time with I/O in flight and no completion.",
            "s",
            (f"biolat_oldest_inflight_seconds{{{DEVICE}}}", "{{instance}} {{device}}"),
            width=8,
        )
    )
    board.with_panel(
        lines(
            "Slow I/Os",
            "I/Os per second that took longer than so many seconds, by total latency. The page at / and /api/v1/slow list the latest.",
            "iops",
            (
                summed((*by_device, "over"), rate("biolat_slow_ios_total", DEVICE)),
                "{{instance}} {{device}} over {{over}} s",
            ),
            width=8,
        )
    )
    board.with_panel(
        lines(
            "Failed I/Os",
            "Failed completions per second, of all ops and statuses.",
            "iops",
            (summed(by_device, rate("biolat_failed_ios_total", DEVICE)), "{{instance}} {{device}}"),
            width=8,
        )
    )
    board.with_panel(
        lines(
            "Failed I/Os by status",
            "Failed completions per second, by op and the kernel's block status. A status has no line before its first "
            "errors, and the first ones are not in the rate.",
            "iops",
            (
                summed((*by_device, "op", "status"), rate("biolat_io_errors_total", DEVICE_OP)),
                "{{instance}} {{device}} {{op}} {{status}}",
            ),
            width=8,
        )
    )
    board.with_panel(
        lines(
            "Requeues",
            "Requests per second that went back to the queue after their dispatch: the drive was busy, or a path failed.",
            "iops",
            (
                summed((*by_device, "op"), rate("biolat_requeues_total", DEVICE_OP)),
                "{{instance}} {{device}} {{op}}",
            ),
            width=8,
        )
    )


def details(board, _):
    """What the chosen devices are."""
    board.with_row(builders.Row("Devices"))
    board.with_panel(
        columns(
            "Device details",
            "From sysfs. path_of is the head of a hidden NVMe path. biolat_device_holder_info has what sits on each.",
            [f'biolat_device_info{{{DEVICE}, model=~"$model"}}'],
            {
                "cluster": "Cluster",
                "instance": "Node",
                "device": "Device",
                "model": "Model",
                "serial": "Serial",
                "wwid": "WWID",
                "firmware": "Firmware",
                "transport": "Transport",
                "scheduler": "Scheduler",
                "dev": "Number",
                "rotational": "Rotational",
                "numa_node": "NUMA node",
                "path_of": "Path of",
            },
        )
    )
