"""The rows on the chosen devices: latency by op and phase, load, CPUs, identity."""

from latencies import (
    BY_DEVICE,
    DEVICE,
    DEVICE_OP,
    FLEET_DEVICE,
    IS_DRIVE,
    NOW,
    gauge,
    highest,
    most,
    of_most,
    rate,
    slowest,
    summed,
)
from panels import columns, heat_map, lines, row

PHASES = {
    "total": "From the allocation of a request to its completion. Waits before the allocation are not included.",
    "admission": "From the submission of an I/O to the allocation of its request: writeback throttling, io.cost, io.latency, "
    "a free tag. The wait for io.max is not included. Empty where the kernel does not timestamp the submission.",
    "queue": "From the allocation of a request to its dispatch to the driver: plug and I/O scheduler. Empty where the kernel "
    "does not timestamp the dispatch.",
    "device": "From the dispatch to the driver to the completion: driver and drive. Empty where the kernel does not timestamp "
    "the dispatch.",
}
TOTAL = "biolat_total_latency_seconds"
DEVICE_LATENCY = "biolat_device_latency_seconds"
BY_OP = (*BY_DEVICE, "op")
LEGEND = "{{cluster}} {{instance}} {{device}}"
TWENTY = "The twenty with the highest values over the time range."
SLOWEST = "Over the time range, the twenty slowest drives that do not spin, and the twenty slowest of all."
QUANTILES = ((0.5, "p50"), (0.99, "p99"), (0.999, "p99.9"))


def latency(board, histograms):
    """A row per op: latency by phase and by device."""

    def quantiles(phase):
        metric = f"biolat_{phase}_latency_seconds"

        def by_cluster(share):
            return most(10, lambda window: histograms.quantile(share, metric, DEVICE_OP, ("cluster",), window))

        return lines(
            f"$op: {phase}, quantiles",
            f"{PHASES[phase]} All chosen devices of a cluster together.",
            "s",
            *((by_cluster(share), f"{{{{cluster}}}} {name}") for share, name in QUANTILES),
            width=6,
            log=True,
            minimum=None,
        )

    def p99(window):
        """The p99 of the device latency, or of the total latency where that is NaN, which is not >= 0."""
        of_device = histograms.quantile(0.99, DEVICE_LATENCY, DEVICE_OP, BY_DEVICE, window)
        return f"({of_device} >= 0) or {histograms.quantile(0.99, TOTAL, DEVICE_OP, BY_DEVICE, window)}"

    row(
        board,
        "Latency of $op",
        *(
            heat_map(
                f"$op: {phase}",
                f"{description} All chosen devices together.",
                histograms.histogram(f"biolat_{phase}_latency_seconds", DEVICE_OP),
                histograms.heatmap_format,
                width=6,
            )
            for phase, description in PHASES.items()
        ),
        *(quantiles(phase) for phase in ("total", "admission", "device")),
        lines(
            "$op: p99 by device",
            "The p99 of the device latency, or of the total latency where the kernel does not timestamp the dispatch. "
            f"{SLOWEST}",
            "s",
            (slowest(20, p99), LEGEND),
            width=6,
            log=True,
            minimum=None,
        ),
        repeat="op",
    )


def load(board, histograms):
    admission = histograms.sum("biolat_admission_latency_seconds", DEVICE, BY_DEVICE)
    queue = histograms.sum("biolat_queue_latency_seconds", DEVICE, BY_DEVICE)
    # Where the kernel does not timestamp the dispatch, this includes queue latency.
    device = f"(({histograms.sum(DEVICE_LATENCY, DEVICE, BY_DEVICE)}) > 0 or {histograms.sum(TOTAL, DEVICE, BY_DEVICE)})"
    waits = f"({admission} + {queue} or {queue})"

    def busiest(count, query):
        return of_most(count, query, lambda window: histograms.sum(TOTAL, DEVICE, BY_DEVICE, window))

    def size(window):
        count = histograms.count(TOTAL, DEVICE_OP, BY_OP, window)
        return f"{summed(BY_OP, rate('biolat_io_bytes_total', DEVICE_OP, window))} / ({count} > 0)"

    flushes = f'{DEVICE}, op="flush"'

    def flush_latency(share):
        def quantile(share):
            return lambda window: histograms.quantile(share, TOTAL, flushes, BY_DEVICE, window)

        return slowest(20, quantile(share), ranking=quantile(0.99))

    row(
        board,
        "Load",
        lines(
            "IOPS",
            f"I/Os per second, as the kernel's disk statistics count them. {TWENTY}",
            "iops",
            (most(20, lambda window: histograms.count(TOTAL, DEVICE_OP, BY_OP, window)), f"{LEGEND} {{{{op}}}}"),
        ),
        lines(
            "Throughput",
            f"Bytes per second. {TWENTY}",
            "Bps",
            (
                most(20, lambda window: summed(BY_OP, rate("biolat_io_bytes_total", DEVICE_OP, window))),
                f"{LEGEND} {{{{op}}}}",
            ),
        ),
        lines(
            "I/Os in flight, on average",
            "Mean number of I/Os waiting for admission, waiting in the queue, and in the device: seconds of latency per second. "
            "I/O still in flight is not included. The ten devices with the most.",
            "short",
            (busiest(10, admission), f"{LEGEND} admission"),
            (busiest(10, queue), f"{LEGEND} queue"),
            (busiest(10, device), f"{LEGEND} device"),
            stacked=True,
        ),
        lines(
            "Share of time waiting",
            "Share of its time that an I/O waits for admission and in the queue, before its dispatch to the driver. Close to 1, "
            "the drive is saturated, or a limit holds back its I/O. The twenty devices with the most I/Os in flight.",
            "percentunit",
            (busiest(20, f"1 / (1 + {device} / {waits})"), LEGEND),
            maximum=1,
        ),
        lines(
            "Flushes",
            f"Flushes per second, regardless of the chosen op. {TWENTY}",
            "iops",
            (most(20, lambda window: histograms.count(TOTAL, flushes, BY_DEVICE, window)), LEGEND),
            width=8,
        ),
        lines(
            "Flush latency",
            f"Total latency of flushes, regardless of the chosen op. Each fsync waits for a flush. {SLOWEST}",
            "s",
            *((flush_latency(share), f"{LEGEND} {name}") for share, name in QUANTILES[:2]),
            width=8,
            log=True,
            minimum=None,
        ),
        lines(
            "I/O size",
            f"Mean size of an I/O. {TWENTY}",
            "bytes",
            (most(20, size), f"{LEGEND} {{{{op}}}}"),
            width=8,
        ),
    )


def completions(board, histograms):
    """The row on the CPUs that complete I/O."""
    share = "biolat_completion_cpu_share_max"

    def of_devices(metric):
        return lambda window: highest(BY_DEVICE, gauge(metric, DEVICE, window))

    def on_busiest(window):
        return f"{histograms.count(TOTAL, DEVICE, BY_DEVICE, window)} * on ({', '.join(BY_DEVICE)}) {of_devices(share)(window)}"

    def panel(title, description, unit, expression, **options):
        return lines(title, description, unit, (expression, LEGEND), width=6, **options)

    # Devices are ranked by their busiest CPU's share.
    fewest = of_most(20, of_devices("biolat_completion_cpus")(NOW), of_devices(share))
    row(
        board,
        "CPUs that complete I/O",
        panel(
            "Effective CPUs",
            "CPUs that complete the device's I/O, as the equivalent number of CPUs with equal shares. Near 1, one CPU completes "
            "nearly all. The twenty devices with the largest share on one CPU.",
            "short",
            fewest,
        ),
        panel(
            "Share of the busiest CPU",
            f"Share of the device's I/O that the busiest CPU completes. {TWENTY}",
            "percentunit",
            most(20, of_devices(share)),
            maximum=1,
        ),
        panel(
            "IOPS on the busiest CPU",
            "Completions of the device per second on the CPU that has the most. A single CPU can only handle so many. "
            f"{TWENTY}",
            "iops",
            most(20, on_busiest),
        ),
        panel(
            "Off-node share",
            "Share of the device's I/O that CPUs on other NUMA nodes complete. Empty where the device's node is unknown. "
            f"{TWENTY}",
            "percentunit",
            most(20, of_devices("biolat_completion_off_node_share")),
            maximum=1,
        ),
    )


def details(board, _):
    """The row on the identity of the chosen devices, their volumes and their missing phases."""
    info = f"biolat_device_info{{{FLEET_DEVICE}, {IS_DRIVE}}}"
    holders = f"biolat_device_holder_info{{{DEVICE}}} and on ({', '.join(BY_DEVICE)}) {info}"
    unavailable = f"{highest((*BY_DEVICE, 'phase'), gauge('biolat_device_phase_available', DEVICE))} == 0"
    drive = {"cluster": "Cluster", "instance": "Node", "device": "Device"}
    row(
        board,
        "Devices",
        columns(
            "Device details",
            "From sysfs. Path of is the multipath device of a hidden NVMe path. At most a hundred of the chosen devices.",
            [f"topk(100, {info})"],
            drive
            | {
                "model": "Model",
                "firmware": "Firmware",
                "serial": "Serial",
                "wwid": "WWID",
                "dev": "Number",
                "transport": "Transport",
                "scheduler": "Scheduler",
                "rotational": "Rotational",
                "numa_node": "NUMA node",
                "path_of": "Path of",
            },
            height=10,
        ),
        columns(
            "Volumes and mounts",
            "Partitions, volumes, arrays and mounts on the chosen drives, at any depth. At most a hundred.",
            [f"topk(100, {holders})"],
            drive | {"depth": "Depth", "kind": "Kind", "holder": "Holder", "name": "Name"},
            width=12,
        ),
        columns(
            "Unavailable phases",
            "Phases that the kernel does not timestamp; biolat-daemon check names the cause. Without the device phase, panels by "
            "drive show the total latency instead. At most a hundred.",
            [f"topk(100, {unavailable})"],
            drive | {"phase": "Not available"},
            width=12,
        ),
    )
