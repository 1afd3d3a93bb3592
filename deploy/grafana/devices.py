"""The rows on the chosen devices: latency by op and phase, load, CPUs, identity."""

from latencies import BY_DEVICE, DEVICE, DEVICE_OP, FLEET_DEVICE, NOW, gauge, highest, most, of_most, rate, slowest, summed
from panels import columns, heat_map, lines, row

PHASES = {
    "total": "From the allocation of a request to its completion. A wait before the request exists is not included.",
    "admission": "From the submission of an I/O to the allocation of its request: writeback throttling, io.cost, io.latency, "
    "a free tag. The wait of io.max is not included. Empty where the kernel keeps no timestamp of it.",
    "queue": "From the allocation of a request to its dispatch to the driver: plug and I/O scheduler. Empty where the kernel "
    "does not record the dispatch.",
    "device": "From the dispatch to the driver to completion: driver and drive. Empty where the kernel does not record the "
    "dispatch.",
}
TOTAL = "biolat_total_latency_seconds"
DEVICE_LATENCY = "biolat_device_latency_seconds"
BY_OP = (*BY_DEVICE, "op")
LEGEND = "{{cluster}} {{instance}} {{device}}"
TWENTY = "The twenty with the highest values over the time range."
SLOWEST = "The twenty slowest drives over the time range that do not spin, and the twenty slowest of all."
QUANTILES = ((0.5, "p50"), (0.99, "p99"), (0.999, "p99.9"))


def latency(board, ask):
    """A row per op: latency by phase and by device."""

    def quantiles(phase):
        metric = f"biolat_{phase}_latency_seconds"

        def by_cluster(share):
            return most(10, lambda window: ask.quantile(share, metric, DEVICE_OP, ("cluster",), window))

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
        """Of the device, or of all where that is not recorded: NaN is not >= 0."""
        of_device = ask.quantile(0.99, DEVICE_LATENCY, DEVICE_OP, BY_DEVICE, window)
        return f"({of_device} >= 0) or {ask.quantile(0.99, TOTAL, DEVICE_OP, BY_DEVICE, window)}"

    row(
        board,
        "Latency of $op",
        *(
            heat_map(
                f"$op: {phase}",
                f"{description} All chosen devices together.",
                ask.histogram(f"biolat_{phase}_latency_seconds", DEVICE_OP),
                ask.heatmap_format,
                width=6,
            )
            for phase, description in PHASES.items()
        ),
        *(quantiles(phase) for phase in ("total", "admission", "device")),
        lines(
            "$op: p99 by device",
            "The 99th percentile of the device latency; where the kernel does not record the dispatch, of the total latency. "
            f"{SLOWEST}",
            "s",
            (slowest(20, p99), LEGEND),
            width=6,
            log=True,
            minimum=None,
        ),
        repeat="op",
    )


def load(board, ask):
    admission = ask.sum("biolat_admission_latency_seconds", DEVICE, BY_DEVICE)
    queue = ask.sum("biolat_queue_latency_seconds", DEVICE, BY_DEVICE)
    # The queue is part of it where the kernel does not record the dispatch.
    device = f"(({ask.sum(DEVICE_LATENCY, DEVICE, BY_DEVICE)}) > 0 or {ask.sum(TOTAL, DEVICE, BY_DEVICE)})"
    waits = f"({admission} + {queue} or {queue})"

    def busiest(count, query):
        return of_most(count, query, lambda window: ask.sum(TOTAL, DEVICE, BY_DEVICE, window))

    def size(window):
        count = ask.count(TOTAL, DEVICE_OP, BY_OP, window)
        return f"{summed(BY_OP, rate('biolat_io_bytes_total', DEVICE_OP, window))} / ({count} > 0)"

    flushes = f'{DEVICE}, op="flush"'

    def flush_latency(share):
        def quantile(share):
            return lambda window: ask.quantile(share, TOTAL, flushes, BY_DEVICE, window)

        return slowest(20, quantile(share), ranking=quantile(0.99))

    row(
        board,
        "Load",
        lines(
            "IOPS",
            f"I/Os per second, as the kernel's disk statistics count them. {TWENTY}",
            "iops",
            (most(20, lambda window: ask.count(TOTAL, DEVICE_OP, BY_OP, window)), f"{LEGEND} {{{{op}}}}"),
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
            "Mean number of I/Os that wait for admission, that wait in the queue, and that are in the device: seconds of "
            "latency per second. I/O that has not completed is not included. The ten devices with the most.",
            "short",
            (busiest(10, admission), f"{LEGEND} admission"),
            (busiest(10, queue), f"{LEGEND} queue"),
            (busiest(10, device), f"{LEGEND} device"),
            stacked=True,
        ),
        lines(
            "Share of time waiting",
            "Share of its time that an I/O waits for admission and in the queue, before dispatch to the driver: towards 1 "
            "the drive is saturated, or a limit holds its I/O back. The twenty devices with the most I/Os in flight.",
            "percentunit",
            (busiest(20, f"1 / (1 + {device} / {waits})"), LEGEND),
            maximum=1,
        ),
        lines(
            "Flushes",
            f"Flushes per second, whatever the chosen op. {TWENTY}",
            "iops",
            (most(20, lambda window: ask.count(TOTAL, flushes, BY_DEVICE, window)), LEGEND),
            width=8,
        ),
        lines(
            "Flush latency",
            f"Total latency of flushes, whatever the chosen op. Each fsync waits for one. {SLOWEST}",
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


def completions(board, ask):
    """The row on the CPUs that complete I/O."""
    share = "biolat_completion_cpu_share_max"

    def of_devices(metric):
        return lambda window: highest(BY_DEVICE, gauge(metric, DEVICE, window))

    def on_busiest(window):
        return f"{ask.count(TOTAL, DEVICE, BY_DEVICE, window)} * on ({', '.join(BY_DEVICE)}) {of_devices(share)(window)}"

    def panel(title, description, unit, expression, **options):
        return lines(title, description, unit, (expression, LEGEND), width=6, **options)

    # The fewer CPUs, the higher it ranks: by the largest share of one.
    fewest = of_most(20, of_devices("biolat_completion_cpus")(NOW), of_devices(share))
    row(
        board,
        "CPUs that complete I/O",
        panel(
            "Effective CPUs",
            "CPUs that complete the device's I/O: as many as would have equal shares. Near 1, one CPU does nearly all. The "
            "twenty devices with the largest share on one CPU.",
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
            "Completions of the device per second on the CPU that has most of them. One CPU can do only so many. "
            f"{TWENTY}",
            "iops",
            most(20, on_busiest),
        ),
        panel(
            "Off-node share",
            "Share of the device's I/O that CPUs of another NUMA node complete. Empty where the device's node is unknown. "
            f"{TWENTY}",
            "percentunit",
            most(20, of_devices("biolat_completion_off_node_share")),
            maximum=1,
        ),
    )


def details(board, _):
    """What the chosen devices are, and what is on them."""
    info = f"biolat_device_info{{{FLEET_DEVICE}}}"
    unavailable = f"{highest((*BY_DEVICE, 'phase'), gauge('biolat_device_phase_available', DEVICE))} == 0"
    drive = {"cluster": "Cluster", "instance": "Node", "device": "Device"}
    row(
        board,
        "Devices",
        columns(
            "Device details",
            "From sysfs. path_of is the head of a hidden NVMe path. A hundred of the chosen devices.",
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
            "What is on the devices",
            "Partitions, volumes, arrays and mounts on a device, at any depth. A hundred of those of the chosen devices.",
            [f"topk(100, {gauge('biolat_device_holder_info', DEVICE)})"],
            drive | {"depth": "Depth", "kind": "Kind", "holder": "Holder", "name": "Name"},
            width=12,
        ),
        columns(
            "Phases of the devices",
            "Latencies for which the kernel records no timestamps; biolat-daemon check names the cause. Without the phase "
            "device, panels by drive have the total latency instead. A hundred of those of the chosen devices.",
            [f"topk(100, {unavailable})"],
            drive | {"phase": "Not available"},
            width=12,
        ),
    )
