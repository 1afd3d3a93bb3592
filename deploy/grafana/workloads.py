"""The row on workloads: who does the I/O of the chosen devices, and who waits for whom. Without workloads it is empty."""

from latencies import BY_DEVICE, DEVICE, DEVICE_OP, NODE, NOW, WHOLE, gauge, most, rate, slowest, summed
from panels import lines, row

BY_CGROUP = (*BY_DEVICE, "cgroup")
BY_NAME = (*BY_DEVICE, "name")
LATENCY = "biolat_workload_latency_seconds"


def _named(aggregation, expression, window):
    """Values by cgroup, as values by name: a container that is started again has the same name and another cgroup."""
    info = f"group by (cluster, instance, cgroup, name) ({gauge('biolat_workload_info', NODE, window)})"
    joined = f"({expression}) * on (cluster, instance, cgroup) group_left (name) {info}"
    return f"{aggregation} by ({', '.join(BY_NAME)}) ({joined})"


def _share(ask, window):
    """Share of a drive's time. Where the kernel does not record the dispatch, the queue is part of it."""
    device_seconds = rate("biolat_workload_device_seconds_total", DEVICE, window)

    def ratio(part, whole):
        return f"{part} / on ({', '.join(BY_DEVICE)}) group_left () ({whole} > 0)"

    in_device = ratio(summed(BY_CGROUP, device_seconds), summed(BY_DEVICE, device_seconds))
    in_all = ratio(_outstanding(ask, BY_CGROUP, window), _outstanding(ask, BY_DEVICE, window))
    return f"({in_device} or {in_all})"


def _outstanding(ask, by, window):
    """I/Os on average, of all ops: both those that have a drive and those that wait for it have many."""
    return ask.sum(LATENCY, DEVICE, by, window)


def _frequent_p99(ask, window):
    p99 = ask.quantile(0.99, LATENCY, DEVICE_OP, BY_CGROUP, window)
    return f"{p99} and {ask.count(LATENCY, DEVICE_OP, BY_CGROUP, window)} >= 1"


def _latency(ask, window):
    return f"{_outstanding(ask, BY_CGROUP, window)} / ({ask.count(LATENCY, DEVICE, BY_CGROUP, window)} > 0)"


def workloads(board, ask):
    def panel(title, description, unit, expression, **options):
        return lines(
            title, description, unit, (expression, "{{cluster}} {{instance}} {{device}} {{name}}"), by_name=True, **options
        )

    def ten(aggregation, query):
        return most(10, lambda window: _named(aggregation, query(window), window))

    def on_busiest_drive(aggregation, query):
        drive = f"topk(1, {_outstanding(ask, BY_DEVICE, WHOLE)})"
        chosen = f"topk(10, {_outstanding(ask, BY_CGROUP, WHOLE)} and on ({', '.join(BY_DEVICE)}) {drive})"
        return _named(aggregation, f"{query(NOW)} and {chosen}", NOW)

    def of_counter(metric):
        return lambda window: summed(BY_CGROUP, rate(metric, DEVICE_OP, window))

    chosen = (
        "The ten workloads with the most I/Os outstanding over the time range, of all ops, on the chosen drive that has the "
        "most; the same in both panels."
    )
    row(
        board,
        "Workloads",
        panel(
            "Drive time by workload",
            "The ten workloads with the largest share of a drive's time over the time range: seconds in the device, of all ops, "
            "as a share of those of all workloads. A workload is the cgroup that the kernel charges; root cgroup is the I/O of the "
            "kernel (journal, metadata, flushes, md) and of processes there, other what there was no room for.",
            "percentunit",
            ten("sum", lambda window: _share(ask, window)),
            maximum=1,
        ),
        panel(
            "p99 by workload",
            "The ten workloads with the highest p99 total latency over the time range on drives that do not spin, and the ten of "
            "all, among those with at least one I/O per second.",
            "s",
            slowest(10, lambda window: _named("max", _frequent_p99(ask, window), window)),
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
            "Who has the drive",
            f"Share of the drive's time. {chosen}",
            "percentunit",
            on_busiest_drive("sum", lambda window: _share(ask, window)),
            maximum=1,
            height=10,
            stacked=True,
        ),
        panel(
            "Who waits",
            f"Mean total latency, in queue and device. {chosen} A workload with a small share whose latency rises with the share "
            "of another one waits for that one.",
            "s",
            on_busiest_drive("max", lambda window: _latency(ask, window)),
            height=10,
            log=True,
            minimum=None,
        ),
    )
