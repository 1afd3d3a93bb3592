"""The row on biolat itself: its cost, gaps in its figures, its versions."""

from grafana_foundation_sdk.builders import dashboard as builders

from latencies import DEVICE, NODE, rate, summed
from panels import columns, lines


def figures(board, ask):
    board.with_row(builders.Row("biolat itself"))
    process = f'job=~"biolat.*", {NODE}'
    board.with_panel(
        lines(
            "CPU",
            "CPU time of the daemon, as a share of one CPU. The probe runs at completions and is not included.",
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
            "Kernel memory of the counters by device and op, on all CPUs. Those of workloads take up to 64 MiB more.",
            "bytes",
            (f"biolat_map_bytes{{{NODE}}}", "{{instance}}"),
            width=8,
        )
    )
    board.with_panel(
        lines(
            "Collection time",
            "Duration of a collection: read the kernel's counters, sum them, audit.",
            "s",
            (ask.quantile(0.5, "biolat_collect_duration_seconds", NODE, ("instance",)), "{{instance}} p50"),
            (ask.quantile(0.99, "biolat_collect_duration_seconds", NODE, ("instance",)), "{{instance}} p99"),
            width=8,
        )
    )
    board.with_panel(
        lines(
            "Age of the figures",
            "Time since the figures were read from the kernel: at most the daemon's --interval.",
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
            "Failed and late collections",
            "Per second. After a failure biolat serves the figures of the last good collection.",
            "cps",
            (rate("biolat_collect_failures_total", NODE), "{{instance}} failed"),
            (rate("biolat_collect_overruns_total", NODE), "{{instance}} late"),
            width=8,
        )
    )
    board.with_panel(
        lines(
            "Probe run time",
            "Mean time of a run of the probe. Needs --probe-stats, which itself costs more than the probe.",
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
            "Lost completions",
            "Completions per second that are in no histogram. iostats_off, passthrough and no_disk are configuration "
            "or commands; the other reasons are faults.",
            "iops",
            (summed(("instance", "reason"), rate("biolat_lost_completions_total", NODE)), "{{instance}} {{reason}}"),
            width=8,
        )
    )
    board.with_panel(
        lines(
            "Missed completions",
            "Completions per second in the kernel's disk statistics that the probe missed: a lower bound.",
            "iops",
            (
                summed(("instance", "device"), rate("biolat_unseen_ios_total", DEVICE)),
                "{{instance}} {{device}}",
            ),
            width=8,
        )
    )
    board.with_panel(
        columns(
            "Series slots",
            "Series that the probe has room for. The number grows with the series in use.",
            [f"biolat_series_slots{{{NODE}}}"],
            {"instance": "Node", "Value": "Series"},
            width=8,
        )
    )
    board.with_panel(
        columns(
            "Versions",
            "How many nodes run which version of biolat.",
            [f"count by (version, revision) (biolat_build_info{{{NODE}}})"],
            {"version": "Version", "revision": "Revision", "Value": "Nodes"},
            width=8,
        )
    )
    board.with_panel(
        columns(
            "Phases of the devices",
            "Latencies that a device lacks, as the kernel does not record the timestamps. biolat-daemon check names the cause.",
            [f"biolat_device_phase_available{{{DEVICE}}}"],
            {"instance": "Node", "device": "Device", "phase": "Phase", "Value": "Available"},
            width=8,
        )
    )
