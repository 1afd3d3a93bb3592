"""The row on workloads: who does the I/O of the chosen devices, and who waits. Empty with --workloads off."""

from latencies import BY_DEVICE, DEVICE, DEVICE_OP, NODE, NOW, WHOLE, gauge, most, rate, slowest, summed
from panels import lines, row

BY_CGROUP = (*BY_DEVICE, "cgroup")
BY_NAME = (*BY_DEVICE, "name")
LATENCY = "biolat_workload_latency_seconds"
WHO = "Who keeps the drive busy"


def _named(aggregation, expression, window):
    """Aggregates values by cgroup to values by name: a restarted container has the same name and another cgroup."""
    info = f"group by (cluster, instance, cgroup, name) ({gauge('biolat_workload_info', NODE, window)})"
    joined = f"({expression}) * on (cluster, instance, cgroup) group_left (name) {info}"
    return f"{aggregation} by ({', '.join(BY_NAME)}) ({joined})"


def _share(histograms, window):
    """The share of a drive's time, including the queue where the kernel does not timestamp the dispatch."""
    device_seconds = rate("biolat_workload_device_seconds_total", DEVICE, window)

    def ratio(part, whole):
        return f"{part} / on ({', '.join(BY_DEVICE)}) group_left () ({whole} > 0)"

    in_device = ratio(summed(BY_CGROUP, device_seconds), summed(BY_DEVICE, device_seconds))
    in_all = ratio(_outstanding(histograms, BY_CGROUP, window), _outstanding(histograms, BY_DEVICE, window))
    return f"({in_device} or {in_all})"


def _outstanding(histograms, by, window):
    """The average number of I/Os of all ops, in the drive or waiting for it."""
    return histograms.sum(LATENCY, DEVICE, by, window)


def _frequent_p99(histograms, window):
    p99 = histograms.quantile(0.99, LATENCY, DEVICE_OP, BY_CGROUP, window)
    return f"{p99} and {histograms.count(LATENCY, DEVICE_OP, BY_CGROUP, window)} >= 1"


def _latency(histograms, window):
    return f"{_outstanding(histograms, BY_CGROUP, window)} / ({histograms.count(LATENCY, DEVICE, BY_CGROUP, window)} > 0)"


def workloads(board, histograms):
    def panel(title, description, unit, expression, **options):
        return lines(
            title, description, unit, (expression, "{{cluster}} {{instance}} {{device}} {{name}}"), by_name=True, **options
        )

    def ten(aggregation, query):
        return most(10, lambda window: _named(aggregation, query(window), window))

    def on_busiest_drive(aggregation, query):
        drive = f"topk(1, {_outstanding(histograms, BY_DEVICE, WHOLE)})"
        chosen = f"topk(10, {_outstanding(histograms, BY_CGROUP, WHOLE)} and on ({', '.join(BY_DEVICE)}) {drive})"
        return _named(aggregation, f"{query(NOW)} and {chosen}", NOW)

    def of_counter(metric):
        return lambda window: summed(BY_CGROUP, rate(metric, DEVICE_OP, window))

    chosen = (
        "The ten workloads with the most outstanding I/Os of all ops over the time range, on the chosen drive with the most; the "
        "same in both panels."
    )
    row(
        board,
        "Workloads",
        panel(
            "Drive time by workload",
            "The ten workloads with the largest share of a drive's time over the time range: their seconds in the device, of all "
            "ops, as a share of the seconds of all workloads. A workload is the cgroup that the kernel charges. root cgroup is "
            "the kernel's own I/O (journal, metadata, flushes, md) and I/O of processes in it; other is I/O of workloads without "
            "room.",
            "percentunit",
            ten("sum", lambda window: _share(histograms, window)),
            maximum=1,
        ),
        panel(
            "p99 by workload",
            "Of the workloads with at least one I/O per second, the ten with the highest p99 total latency over the time range "
            "on drives that do not spin, and the ten with the highest on any drive.",
            "s",
            slowest(10, lambda window: _named("max", _frequent_p99(histograms, window), window)),
            log=True,
            minimum=None,
        ),
        panel(
            "IOPS by workload",
            "The ten workloads with the most I/Os per second over the time range.",
            "iops",
            ten("sum", of_counter("biolat_workload_ios_total")),
        ),
        panel(
            "Throughput by workload",
            "The ten workloads with the most bytes per second over the time range.",
            "Bps",
            ten("sum", of_counter("biolat_workload_io_bytes_total")),
        ),
        panel(
            WHO,
            f"Share of the drive's time. {chosen}",
            "percentunit",
            on_busiest_drive("sum", lambda window: _share(histograms, window)),
            maximum=1,
            height=10,
            stacked=True,
        ),
        panel(
            "Who waits",
            f"Mean total latency: queue and device. {chosen} If a workload has a small share and its latency rises with the "
            "share of another workload, it waits for that one.",
            "s",
            on_busiest_drive("max", lambda window: _latency(histograms, window)),
            height=10,
            log=True,
            minimum=None,
        ),
    )
