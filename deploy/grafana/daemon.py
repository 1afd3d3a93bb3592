"""The row on biolat itself: its cost, gaps in its figures, its versions. The chosen model does not matter."""

from latencies import BY_DEVICE, BY_NODE, DEVICE, NODE, NOW, gauge, highest, most, rate, summed
from panels import columns, lines, row

NODES = "The twenty with the highest values over the time range."
PROCESS = f'job=~"biolat.*", {NODE}'
LEGEND = "{{cluster}} {{instance}}"


def _growth(metric, labels=NODE, by=BY_NODE):
    return most(20, lambda window: summed(by, rate(metric, labels, window)))


def _gauge(metric, labels=NODE):
    return most(20, lambda window: highest(BY_NODE, gauge(metric, labels, window)))


def _age(window):
    """The age of the figures, ranked at the end of the time range."""
    collected = f"biolat_collect_timestamp_seconds{{{NODE}}}{'' if window == NOW else ' @ end()'}"
    return highest(BY_NODE, f"timestamp({collected}) - {collected}")


def _run_time(window):
    seconds, runs = (summed(BY_NODE, rate(f"biolat_probe_{of}_total", NODE, window)) for of in ("run_seconds", "runs"))
    return f"{seconds} / {runs}"


def _missed(window):
    """Missed completions by drive, summed over ops for daemons without the series by drive."""
    by_drive, by_op = (
        summed(BY_DEVICE, rate(f"biolat_unseen_{of}_total", DEVICE, window)) for of in ("ios", "completions")
    )
    return f"{by_drive} or {by_op}"


def figures(board, histograms):
    def panel(title, description, unit, *queries, nodes=NODES, **options):
        return lines(title, f"{description} {nodes}", unit, *queries, width=8, **options)

    def collection(share):
        return most(
            10, lambda window: histograms.quantile(share, "biolat_collect_duration_seconds", NODE, BY_NODE, window)
        )

    row(
        board,
        "biolat itself",
        panel(
            "CPU",
            "CPU time of the daemon, as a share of one CPU. The probe runs at completions and is not included.",
            "percentunit",
            (_growth("process_cpu_seconds_total", PROCESS), LEGEND),
        ),
        panel("Memory", "Resident memory of the daemon.", "bytes", (_gauge("process_resident_memory_bytes", PROCESS), LEGEND)),
        panel(
            "Kernel memory",
            "Kernel memory of the counters by device and op, on all CPUs. The counters of workloads take up to 64 MiB more.",
            "bytes",
            (_gauge("biolat_map_bytes"), LEGEND),
        ),
        panel(
            "Collection time",
            "Duration of a collection: read the kernel's counters, sum them, audit.",
            "s",
            (collection(0.5), f"{LEGEND} p50"),
            (collection(0.99), f"{LEGEND} p99"),
        ),
        panel(
            "Age of the figures",
            "Time since the figures were read from the kernel: at most the daemon's --interval.",
            "s",
            (most(20, _age), LEGEND),
            nodes="The twenty with the oldest figures at the end of the time range.",
            minimum=None,
        ),
        panel(
            "Failed and late collections",
            "Per second. After a failure biolat serves the figures of the last good collection.",
            "cps",
            (_growth("biolat_collect_failures_total"), f"{LEGEND} failed"),
            (_growth("biolat_collect_overruns_total"), f"{LEGEND} late"),
        ),
        panel(
            "Probe run time",
            "Mean duration of a run of the probe. Needs --probe-stats, which costs more than the probe itself.",
            "s",
            (most(20, _run_time), LEGEND),
        ),
        panel(
            "Lost completions",
            "Completions per second that are missing from all histograms. iostats_off, passthrough and no_disk are due to "
            "configuration or commands; the other reasons are faults.",
            "iops",
            (_growth("biolat_lost_completions_total", by=(*BY_NODE, "reason")), f"{LEGEND} {{{{reason}}}}"),
        ),
        panel(
            "Missed completions",
            "Completions per second that the kernel accounted and the probe missed: a lower bound.",
            "iops",
            (most(20, _missed), f"{LEGEND} {{{{device}}}}"),
        ),
        columns(
            "Series slots",
            "Number of series that the probe has room for. It grows with the series in use. The hundred largest.",
            [f"topk(100, {highest(BY_NODE, gauge('biolat_series_slots', NODE))})"],
            {"cluster": "Cluster", "instance": "Node", "Value": "Series"},
            width=12,
        ),
        columns(
            "Versions",
            "Nodes per version of biolat. The hundred versions with the most nodes.",
            [f"topk(100, count by (cluster, version, revision) (biolat_build_info{{{NODE}}}))"],
            {"cluster": "Cluster", "version": "Version", "revision": "Revision", "Value": "Nodes"},
            width=12,
        ),
    )
