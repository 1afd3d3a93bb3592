"""The view of biolat itself: what it costs, what its figures lack, which it is."""

from grafana_foundation_sdk.builders import dashboard as builders

from latencies import DEVICE, NODE, rate, summed
from panels import columns, lines


def figures(board, ask):
    board.with_row(builders.Row("biolat itself"))
    process = f'job=~"biolat.*", {NODE}'
    board.with_panel(
        lines(
            "CPU",
            "Of one CPU, what the daemon takes; the probe runs in those who do the I/O.",
            "percentunit",
            (rate("process_cpu_seconds_total", process), "{{instance}}"),
            width=8,
        )
    )
    board.with_panel(
        lines(
            "Memory",
            "Resident memory of the daemon.",
            "bytes",
            (f"process_resident_memory_bytes{{{process}}}", "{{instance}}"),
            width=8,
        )
    )
    board.with_panel(
        lines(
            "Kernel memory",
            "Bytes of kernel memory that hold the series, on all CPUs.",
            "bytes",
            (f"biolat_map_bytes{{{NODE}}}", "{{instance}}"),
            width=8,
        )
    )
    board.with_panel(
        lines(
            "A pass",
            "How long a pass of the collector takes: read the kernel's counters, sum, audit.",
            "s",
            (ask.quantile(0.5, "biolat_collect_duration_seconds", NODE, ("instance",)), "{{instance}} p50"),
            (ask.quantile(0.99, "biolat_collect_duration_seconds", NODE, ("instance",)), "{{instance}} p99"),
            width=8,
        )
    )
    board.with_panel(
        lines(
            "Age of the figures",
            "How long ago the figures were read from the kernel: up to the daemon's --interval.",
            "s",
            (
                f"timestamp(biolat_collect_timestamp_seconds{{{NODE}}}) - biolat_collect_timestamp_seconds{{{NODE}}}",
                "{{instance}}",
            ),
            width=8,
            minimum=None,
        )
    )
    board.with_panel(
        lines(
            "Passes that failed or were late",
            "A second. The figures of the last good pass stay.",
            "cps",
            (rate("biolat_collect_failures_total", NODE), "{{instance}} failed"),
            (rate("biolat_collect_overruns_total", NODE), "{{instance}} late"),
            width=8,
        )
    )
    board.with_panel(
        lines(
            "A run of the probe",
            "Time in the probe for each completion; only with --probe-stats, which itself costs more than the probe.",
            "s",
            (
                f"{rate('biolat_probe_run_seconds_total', NODE)} / {rate('biolat_probe_runs_total', NODE)}",
                "{{instance}}",
            ),
            width=8,
        )
    )
    board.with_panel(
        lines(
            "Lost",
            "Completions a second that are in no histogram. iostats_off, passthrough and no_disk are how a node is "
            "used; the others are a defect.",
            "iops",
            (summed(("instance", "reason"), rate("biolat_lost_completions_total", NODE)), "{{instance}} {{reason}}"),
            width=8,
        )
    )
    board.with_panel(
        lines(
            "Unseen",
            "Completions a second in the kernel's books that it did not run the probe for: a lower bound.",
            "iops",
            (
                summed(("instance", "device"), rate("biolat_unseen_completions_total", DEVICE)),
                "{{instance}} {{device}}",
            ),
            width=8,
        )
    )
    board.with_panel(
        columns(
            "Series that there is room for",
            "It grows with the series in use.",
            [f"biolat_series_slots{{{NODE}}}"],
            {"instance": "Node", "Value": "Series"},
            width=8,
        )
    )
    board.with_panel(
        columns(
            "Versions",
            "Which biolat the nodes run.",
            [f"count by (version, revision) (biolat_build_info{{{NODE}}})"],
            {"version": "Version", "revision": "Revision", "Value": "Nodes"},
            width=8,
        )
    )
    board.with_panel(
        columns(
            "Phases of the devices",
            "1 where the kernel takes the stamps for it; else the log of biolat says which command turns them on.",
            [f"biolat_device_phase_available{{{DEVICE}}}"],
            {"instance": "Node", "device": "Device", "phase": "Phase", "Value": "Available"},
            width=8,
        )
    )
