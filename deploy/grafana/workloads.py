"""The row on workloads: who does the I/O of the chosen devices, and who waits for whom. Without workloads it is empty."""

from grafana_foundation_sdk.builders import dashboard as builders

from latencies import DEVICE, DEVICE_OP, NODE, rate, summed
from panels import lines

BY_CGROUP = ("cluster", "instance", "device", "cgroup")
BY_DEVICE = ("cluster", "instance", "device")
BY_NAME = ("cluster", "instance", "device", "name")
LATENCY = "biolat_workload_latency_seconds"
LEGEND = "{{instance}} {{device}} {{name}}"


def _named(aggregation, expression):
    """Values by cgroup, as values by name: a container that is started again has the same name and another cgroup."""
    info = f"group by (cluster, instance, cgroup, name) (biolat_workload_info{{{NODE}}})"
    joined = f"({expression}) * on (cluster, instance, cgroup) group_left (name) {info}"
    return f"{aggregation} by ({', '.join(BY_NAME)}) ({joined})"


def _share(ask):
    """Share of a drive's time. Where the kernel does not record the dispatch, the queue is part of it."""
    device_seconds = rate("biolat_workload_device_seconds_total", DEVICE)

    def ratio(part, whole):
        return f"{part} / on ({', '.join(BY_DEVICE)}) group_left () ({whole} > 0)"

    in_device = ratio(summed(BY_CGROUP, device_seconds), summed(BY_DEVICE, device_seconds))
    in_all = ratio(ask.sum(LATENCY, DEVICE, BY_CGROUP), ask.sum(LATENCY, DEVICE, BY_DEVICE))
    return f"({in_device} or {in_all})"


def workloads(board, ask):
    board.with_row(builders.Row("Workloads"))

    def panel(title, description, unit, expression, **options):
        board.with_panel(lines(title, description, unit, (expression, LEGEND), by_name=True, **options))

    share = _share(ask)
    panel(
        "Drive time by workload",
        "The ten workloads with the largest share of a drive's time: seconds in the device, of all ops, as a share of those "
        "of all workloads. A workload is the cgroup that the kernel charges; kernel is journal, metadata, flushes and md, "
        "other what there was no room for.",
        "percentunit",
        f"topk(10, {_named('sum', share)})",
        maximum=1,
    )
    p99 = ask.quantile(0.99, LATENCY, DEVICE_OP, BY_CGROUP)
    often = f"{ask.count(LATENCY, DEVICE_OP, BY_CGROUP)} >= 1"
    panel(
        "p99 by workload",
        "The ten workloads with the highest p99 total latency, among those with at least one I/O per second.",
        "s",
        f"topk(10, {_named('max', f'{p99} and {often}')})",
        log=True,
        minimum=None,
    )
    panel(
        "IOPS by workload",
        "The ten workloads with the most I/Os per second.",
        "iops",
        f"topk(10, {_named('sum', summed(BY_CGROUP, rate('biolat_workload_ios_total', DEVICE_OP)))})",
    )
    panel(
        "Throughput by workload",
        "The ten workloads with the most bytes per second.",
        "Bps",
        f"topk(10, {_named('sum', summed(BY_CGROUP, rate('biolat_workload_io_bytes_total', DEVICE_OP)))})",
    )
    # Both those that have a drive and those that wait for it have many I/Os outstanding.
    outstanding = ask.sum(LATENCY, DEVICE, BY_CGROUP)
    most = f"topk by ({', '.join(BY_DEVICE)}) (10, {outstanding})"
    chosen = "The ten workloads of each drive with the most I/Os outstanding, of all ops, the same in both panels: choose one drive."
    panel(
        "Who has the drive",
        f"Share of the drive's time. {chosen}",
        "percentunit",
        _named("sum", f"{share} and {most}"),
        maximum=1,
        height=10,
        stacked=True,
    )
    panel(
        "Who waits",
        f"Mean total latency, in queue and device. {chosen} A workload with a small share whose latency rises with the share "
        "of another one waits for that one.",
        "s",
        _named("max", f"{outstanding} / ({ask.count(LATENCY, DEVICE, BY_CGROUP)} > 0) and {most}"),
        height=10,
        log=True,
        minimum=None,
    )
