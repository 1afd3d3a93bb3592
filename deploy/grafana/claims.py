"""The row on persistent volume claims. Empty without kube-state-metrics."""

from latencies import BY_DEVICE, FLEET_DEVICE, NOW, highest, most, recorded, summed
from panels import coloured, columns, lines, link, row, unit_of

DRIVES = "namespace_persistentvolumeclaim_device:biolat_device_holder_info:group"
RANKS = "namespace_persistentvolumeclaim_device:biolat_device_holder_info:rank"
OF_CLAIM = "namespace_persistentvolumeclaim"
TOTALS = "biolat_total_latency_seconds"
BY_CLAIM = ("cluster", "namespace", "persistentvolumeclaim")
ON_DRIVE = f"on ({', '.join(BY_DEVICE)})"
ON_CLAIM = f"on ({', '.join(BY_CLAIM)})"
CLUSTER = 'cluster=~"$cluster"'
OPS = f'{CLUSTER}, op=~"$op"'
# Stands for the panel with the workloads of one drive, whose id is not known yet.
WHO_LINK = "viewPanel=who"
# As in the table of the worst drives.
HANGS, LIMITS = 8, (0.01, 0.1)
OF_DEVICE = "The figures are those of the volume (dm, md) that the claim is directly on, otherwise of its drives."


def _worst(uid):
    ranks = f"{RANKS}{{{FLEET_DEVICE}}}"
    worst = f"topk(20, {ranks})"

    def of_claim(figure):
        return f"{worst} * 0 + {ON_CLAIM} group_left () {figure}"

    def over_ops(aggregation, figure):
        return of_claim(aggregation(BY_CLAIM, f"{OF_CLAIM}_op:{figure}{{{OPS}}}"))

    values = {
        # Derived from the rank, which rounds to 0 for drives that do not hang.
        "Hung for": f"round({worst} / 1e6, 0.1)",
        "p99": over_ops(highest, f"{TOTALS}:p99_rate5m"),
        "IOPS": over_ops(summed, f"{TOTALS}:count_rate5m"),
        "Throughput": over_ops(summed, "biolat_io_bytes:rate5m"),
        "Failed": of_claim(f"{OF_CLAIM}:biolat_failed_ios:rate5m{{{CLUSTER}}}"),
        "Claims on drive": f"{worst} * 0 + {ON_DRIVE} group_left () count by ({', '.join(BY_DEVICE)}) ({ranks})",
    }

    def chosen(*more):
        drive = (("cluster", "Cluster"), ("node", "Node"), ("device", "Device"))
        variables = (f"var-{variable}=${{__data.fields.{column}:percentencode}}" for variable, column in drive)
        place = (f"/d/{uid}?${{datasource:queryparam}}", "${__url_time_range}", "${op:queryparam}", "var-model=%24__all")
        return "&".join((*place, *variables, *more))

    return columns(
        "Worst claims now",
        f"Twenty claims: first those with an I/O in flight for {HANGS} seconds or more, then by the highest p99 total latency of "
        f"reads, writes and flushes over five minutes. {OF_DEVICE} They include the I/O of other claims and programs there. A "
        "claim on several drives has a row for each. Click a device to show only that drive, or a claim to see who keeps its drive "
        "busy. From recording rules.",
        list(values.values()),
        {
            "cluster": "Cluster",
            "namespace": "Namespace",
            "persistentvolumeclaim": "Claim",
            "persistentvolume": "Volume",
            "instance": "Node",
            "device": "Device",
        }
        | {f"Value #{chr(ord('A') + place)}": name for place, name in enumerate(values)},
        order=(("Hung for", True), ("p99", True)),
        height=10,
        properties={
            "Claim": [link("Who keeps its drive busy", chosen(WHO_LINK))],
            "Device": [link("Show only this drive", chosen())],
            "Hung for": [unit_of("s"), *coloured(HANGS, 30)],
            "p99": [unit_of("s"), *coloured(*LIMITS)],
            "IOPS": [unit_of("iops")],
            "Throughput": [unit_of("Bps")],
            "Failed": [unit_of("iops"), *coloured(1e-9, 1)],
        },
    )


def claims(board, histograms):
    def panel(title, what, unit, figure, labels=OPS, of=f" {OF_DEVICE}", **options):
        def query(window):
            of_claims = recorded(f"{OF_CLAIM}{figure}", labels, window)
            if window == NOW:
                return of_claims
            return f"{of_claims} and {ON_CLAIM} {recorded(DRIVES, FLEET_DEVICE, window)}"

        legend = "{{cluster}} {{namespace}}/{{persistentvolumeclaim}}" + (" {{op}}" if "op=" in labels else "")
        description = f"{what} The ten claims with the highest values over the time range.{of} From a recording rule."
        return lines(title, description, unit, (most(10, query), legend), recorded=True, **options)

    row(
        board,
        "Claims",
        _worst(histograms.uid),
        panel(
            "p99 by claim",
            "The p99 total latency, of the slowest drive if there are several without a volume.",
            "s",
            f"_op:{TOTALS}:p99_rate5m",
            log=True,
            minimum=None,
        ),
        panel(
            "Oldest I/O by claim",
            "Age of the oldest I/O in flight, of the claim's drives.",
            "s",
            ":biolat_oldest_inflight_seconds:max",
            CLUSTER,
            of="",
            log=True,
            minimum=None,
        ),
        panel("IOPS by claim", "I/Os per second.", "iops", f"_op:{TOTALS}:count_rate5m"),
        panel("Throughput by claim", "Bytes per second.", "Bps", "_op:biolat_io_bytes:rate5m"),
    )
